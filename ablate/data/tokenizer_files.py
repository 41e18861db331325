"""Tokenizers as Hugging Face stores them, in tokenizer.json: read for a study, written for a trained model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ablate.data.tokenizers import PIECE, BpeTokenizer, CharTokenizer, byte_characters, encoded
from prereg.errors import CorpusError
from prereg.registry.canon import sha256_bytes
from prereg.study.command import is_inside

_LARGEST_FILE = 64 * 2**20


@dataclass(frozen=True)
class FileTokenizer:
    """A tokenizer of the library `tokenizers`, as its file has it. No special token is added to a text."""

    content: bytes
    """The file."""
    _made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, root: Path, name: str) -> FileTokenizer:
        """The tokenizer of a file below the root. Raises `CorpusError` where it is none."""
        path = root / name
        if not is_inside(name):
            raise CorpusError(f"tokenizer file '{name}'", required="a path below the root, without ..")
        if not path.is_file():
            raise CorpusError(
                f"the tokenizer file '{name}' is not there",
                required=f"a tokenizer.json at {path}",
                fix=f"cp FOLDER_OF_THE_MODEL/tokenizer.json {path}",
            )
        found = cls(path.read_bytes() if path.stat().st_size <= _LARGEST_FILE else b"")
        try:
            _ = found._engine
        except Exception as error:  # the library raises nothing narrower
            raise CorpusError(
                f"'{name}' is no tokenizer: {str(error)[:200] or 'too large'}",
                required="tokenizer.json as the library `tokenizers` writes it",
            ) from error
        return found

    @property
    def size(self) -> int:
        """Number of entries: one more than the largest id."""
        return int(max(self._engine.get_vocab(with_added_tokens=True).values())) + 1

    @property
    def sha256(self) -> str:
        """Hash of the file."""
        return sha256_bytes(self.content)

    def encode(self, text: str) -> np.ndarray:
        """Token ids. Text that the tokenizer has no token for is an error, never a stand-in."""
        if self._is_exact:
            ids = encoded(self._engine, text)
        else:  # it may treat the beginning of a text like no other place
            ids = np.array(self._engine.encode(text, add_special_tokens=False).ids, dtype=np.int64)
        unknown = self._definition["model"].get("unk_token")
        number = None if unknown is None else self._engine.token_to_id(str(unknown))
        if number is not None and (ids == number).any():
            raise CorpusError(
                f"the tokenizer has no token for a part of the text, and would write {unknown}",
                required="a tokenizer that can write the text, such as one over bytes",
            )
        lengths = self.byte_lengths()
        if lengths is not None and int(lengths[ids].sum()) != len(text.encode()):
            raise CorpusError("the tokenizer leaves out a part of the text", required="a tokenizer that keeps it whole")
        return ids

    def decode(self, ids: np.ndarray) -> str:
        """The text of token ids, as the library joins it."""
        return str(self._engine.decode([int(one) for one in ids], skip_special_tokens=False))

    def pieces(self) -> list[bytes] | None:
        """The bytes of each entry; none where they are not known exactly, which they are of byte pairs alone."""
        if not self._is_exact:
            return None
        table, found = byte_characters(), [b""] * self.size
        added = {number: token.content for number, token in self._engine.get_added_tokens_decoder().items()}
        for entry, number in self._engine.get_vocab(with_added_tokens=True).items():
            if number in added:
                found[number] = added[number].encode()
            elif all(sign in table for sign in entry):
                found[number] = bytes(table[sign] for sign in entry)
            else:
                return None
        return found

    def byte_lengths(self) -> np.ndarray | None:
        """UTF-8 bytes of each entry, or none: bits per byte are then not defined."""
        if "lengths" not in self._made:
            pieces = self.pieces()
            self._made["lengths"] = None if pieces is None else np.array([len(piece) for piece in pieces])
        found: np.ndarray | None = self._made["lengths"]
        return found

    @property
    def _definition(self) -> dict[str, Any]:
        if "definition" not in self._made:
            self._made["definition"] = json.loads(self.content)
        return dict(self._made["definition"])

    @property
    def _is_exact(self) -> bool:
        """Whether it is made of byte pairs, and changes nothing of a text before."""
        steps = self._definition.get("pre_tokenizer") or {}
        over_bytes = [step for step in steps.get("pretokenizers", [steps]) if step.get("type") == "ByteLevel"]
        plain = self._definition["model"].get("type") == "BPE" and self._definition.get("normalizer") is None
        return plain and bool(over_bytes) and not any(step.get("add_prefix_space") for step in over_bytes)

    @property
    def _engine(self) -> Any:
        if "engine" not in self._made:
            from tokenizers import Tokenizer

            engine = Tokenizer.from_str(self.content.decode("utf-8"))
            engine.no_truncation()
            engine.no_padding()
            self._made["engine"] = engine
        return self._made["engine"]


def library_json(tokenizer: CharTokenizer | BpeTokenizer | FileTokenizer) -> str:
    """The tokenizer.json of a tokenizer, which gives the same ids."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    if isinstance(tokenizer, FileTokenizer):
        return tokenizer.content.decode("utf-8")
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
