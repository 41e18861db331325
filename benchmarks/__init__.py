"""Ratios against a peer, in one sitting, on one machine: `make bench`. Never asserted in a timed test.

The peer's side runs the user's own clone of nanoGPT (`NANOGPT=path`), its own `train.py`, as whole processes,
one after another with two threads: what a researcher would do instead. Nothing of it is copied here; only its
documented command-line settings are used, with the same model, batch, steps, text, and as many tokens evaluated.
Peer runs are taken before and after ours, so that a machine that drifts shows.
"""
