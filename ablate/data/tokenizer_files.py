"""Tokenizers as Hugging Face stores them, in tokenizer.json: read for a study, written for a trained model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ablate.data.tokenizers import PIECE, BpeTokenizer, CharTokenizer, encoded
from prereg.errors import CorpusError
from prereg.registry.canon import sha256_bytes
from prereg.study.tokenizer_file import TokenizerJson, byte_characters, malformed, read_tokenizer


@dataclass(frozen=True)
class FileTokenizer:
    """A tokenizer of the library `tokenizers`, as its file has it. No special token is added to a text."""

    content: bytes
    """The file."""
    file: TokenizerJson = field(repr=False, compare=False)
    """What the file says."""
    _engine: Any = field(repr=False, compare=False)

    @classmethod
    def read(cls, root: Path, name: str) -> FileTokenizer:
        """The tokenizer of a file below the root. Raises `CorpusError` where it is none that can be used."""
        from tokenizers import Tokenizer

        file = read_tokenizer(root, name)
        try:
            engine = Tokenizer.from_str(file.content.decode("utf-8"))
        except Exception as error:  # the library raises nothing narrower
            raise malformed(name, str(error)) from error
        if engine.get_vocab(with_added_tokens=True) != file.ids:
            raise malformed(name, "the library gives its entries other ids than the file")
        engine.no_truncation()
        engine.no_padding()
        return cls(file.content, file, engine)

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.file.size

    @property
    def sha256(self) -> str:
        """Hash of the file."""
        return sha256_bytes(self.content)

    def encode(self, text: str) -> np.ndarray:
        """Token ids. Text that the tokenizer has no token for is an error, never a stand-in."""
        try:
            if self._lengths is not None:
                ids = encoded(self._engine, text)
            else:  # it may mark the beginning of what it is given, and a piece begins nothing
                (whole,) = self._engine.encode_batch_fast([text], add_special_tokens=False)
                ids = np.array(whole.ids, dtype=np.int64)
        except Exception as error:  # the library raises nothing narrower
            raise CorpusError(
                f"the tokenizer cannot write a part of the text: {str(error)[:200]}", required=_CAN_WRITE
            ) from error
        if self.file.unknown is not None and (ids == self.file.unknown).any():
            raise CorpusError(
                f"the tokenizer has no token for a part of the text, and would write id {self.file.unknown}",
                required=_CAN_WRITE,
            )
        # What the file says of its bytes is held against every text.
        if self._lengths is not None and int(self._lengths[ids].sum()) != len(text.encode()):
            raise CorpusError("the tokenizer leaves out a part of the text", required="a tokenizer that keeps it whole")
        return ids

    def decode(self, ids: np.ndarray) -> str:
        """The text of token ids, as the library joins it."""
        return str(self._engine.decode([int(one) for one in ids], skip_special_tokens=False))

    def pieces(self) -> list[bytes] | None:
        """The bytes of each entry; none where they are not known exactly, which they are of byte pairs alone."""
        if not self.file.exact:
            return None
        table, added = byte_characters(), self.file.added
        by_id = sorted((number, entry) for entry, number in self.file.ids.items() if added.get(number, entry) == entry)
        return [entry.encode() if number in added else bytes(table[sign] for sign in entry) for number, entry in by_id]

    def byte_lengths(self) -> np.ndarray | None:
        """UTF-8 bytes of each entry, or none: bits per byte are then not defined."""
        return self._lengths

    @cached_property
    def _lengths(self) -> np.ndarray | None:
        pieces = self.pieces()
        return None if pieces is None else np.array([len(piece) for piece in pieces], dtype=np.int64)


_CAN_WRITE = "a tokenizer that can write the text, such as one over bytes"


def library_json(tokenizer: CharTokenizer | BpeTokenizer | FileTokenizer) -> str:
    """The tokenizer.json of a tokenizer, which gives a whole text the ids that the model was trained on."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    if isinstance(tokenizer, FileTokenizer):
        return _with_cuts(tokenizer.file) if tokenizer.file.exact else tokenizer.content.decode("utf-8")
    if isinstance(tokenizer, CharTokenizer):
        vocabulary = {character: number for number, character in enumerate(tokenizer.characters)}
        engine = Tokenizer(models.WordLevel(vocabulary))
        engine.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        engine.decoder = decoders.Fuse()
        return str(engine.to_str())
    engine = Tokenizer.from_str(tokenizer.engine.to_str())
    cut = pre_tokenizers.Split(Regex(PIECE.pattern), "isolated")
    engine.pre_tokenizer = pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    engine.decoder = decoders.ByteLevel()
    return str(engine.to_str())


def _with_cuts(file: TokenizerJson) -> str:
    """The same file with our cuts after line breaks: its pattern may look past one, and ours never did."""
    cut = {"type": "Split", "pattern": {"Regex": PIECE.pattern}, "behavior": "Isolated", "invert": False}
    steps = {"type": "Sequence", "pretokenizers": [cut, *file.steps]}
    return json.dumps({**file.definition, "pre_tokenizer": steps}, ensure_ascii=False)
