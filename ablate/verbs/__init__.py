"""The verbs, in groups; `ablate.cli` gathers them."""
