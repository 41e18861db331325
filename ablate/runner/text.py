"""What a run reads: the tokenised split of its corpora, and the tokenizer that made it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ablate.gpt.batches import Split
from ablate.gpt.bpe import BpeTokenizer
from ablate.gpt.reading import Tokenizer
from ablate.gpt.tokenizer import CharTokenizer, StoredVocabulary
from ablate.measure.classes import classes_of


@dataclass(frozen=True)
class Text:
    """What a run reads, tokenised and split."""

    split: Split
    tokenizer: Tokenizer
    corpus_sha256: str

    @property
    def written_with(self) -> CharTokenizer | BpeTokenizer:
        """The tokenizer, where texts are turned into ids: a study that asks tasks reads no stored ids."""
        assert not isinstance(self.tokenizer, StoredVocabulary), self.tokenizer.sha256
        return self.tokenizer

    @cached_property
    def classes(self) -> np.ndarray | None:
        """The class of every entry of the vocabulary; none where nobody said what its entries stand for."""
        pieces = self.tokenizer.pieces()
        return None if pieces is None else classes_of(pieces)
