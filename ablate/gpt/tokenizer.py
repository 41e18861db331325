"""Text to token ids and back, character by character; and the vocabulary of ids that were made elsewhere.

The hash of a tokenizer is part of every pair's audit. Byte pairs are in `ablate.gpt.bpe`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prereg.errors import CorpusError
from prereg.registry.canon import sha256_of
from prereg.study.corpora import Shards


@dataclass(frozen=True)
class CharTokenizer:
    """One token a character. The vocabulary is the corpus' own set of characters, in code point order."""

    characters: str

    @classmethod
    def of(cls, text: str) -> CharTokenizer:
        """The tokenizer of a text."""
        return cls("".join(sorted(set(text))))

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self.characters)

    @property
    def sha256(self) -> str:
        """Hash of the definition."""
        return sha256_of({"kind": "char", "characters": self.characters})

    def encode(self, text: str) -> np.ndarray:
        """Token ids. A character outside the vocabulary is an error, never a stand-in."""
        points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
        known = np.frombuffer(self.characters.encode("utf-32-le"), dtype=np.uint32)
        ids = np.searchsorted(known, points)
        wrong = (ids >= len(known)) | (known[np.minimum(ids, len(known) - 1)] != points)
        if wrong.any():
            stranger = chr(int(points[int(np.argmax(wrong))]))
            raise CorpusError(
                f"character {stranger!r} is not in the vocabulary of {self.size} characters",
                required="text in the characters of the training corpus",
            )
        return ids.astype(np.int64)

    def decode(self, ids: np.ndarray) -> str:
        """The text of token ids."""
        return "".join(self.characters[int(i)] for i in ids)

    def pieces(self) -> list[bytes]:
        """The UTF-8 bytes of each entry: what metrics by class of token sort them by."""
        return [character.encode() for character in self.characters]

    def byte_lengths(self) -> np.ndarray:
        """UTF-8 bytes of each entry: what turns nats a token into bits a byte."""
        return np.array([len(character.encode()) for character in self.characters], dtype=np.int64)


@dataclass(frozen=True)
class StoredVocabulary:
    """What is known of the tokenizer of a corpus that is stored as token ids. It turns no text into ids."""

    size: int
    """Number of entries."""
    sha256: str
    """Hash of size and byte lengths."""
    lengths: tuple[int, ...] | None
    """UTF-8 bytes of each entry, where they are known."""

    @classmethod
    def of(cls, shards: Shards) -> StoredVocabulary:
        """The vocabulary of a corpus."""
        return cls(shards.vocabulary, shards.tokenizer_sha256, shards.byte_lengths)

    def pieces(self) -> None:
        """The bytes of each entry: not known, even where their numbers are."""

    def byte_lengths(self) -> np.ndarray | None:
        """UTF-8 bytes of each entry, or none: bits per byte are then not defined."""
        return None if self.lengths is None else np.array(self.lengths, dtype=np.int64)
