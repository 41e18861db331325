"""A sequence of token ids cut into training and validation part, as `ablate.data.reading` cuts a text of characters."""

from __future__ import annotations

import numpy as np

from ablate.data.batches import Split


def split_of(ids: np.ndarray, share: float, context: int) -> Split:
    """The last `share` of the ids for validation, the rest to train on. Raises `CorpusError` for a part too short."""
    border = int(len(ids) * (1.0 - share))
    split = Split(ids[:border], ids[border:])
    split.require(context)
    return split
