"""Tokenizers, text to token ids and back: by characters, by byte pairs, by tokenizer.json; vocabulary of stored ids.

Byte pairs are trained here. A tokenizer.json of Hugging Face is read for a study and written for a trained model. The
hash of a tokenizer is part of every pair's audit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from prereg.errors import CorpusError
from prereg.registry.canon import canonical_bytes, sha256_bytes, sha256_of
from prereg.registry.disk import write_whole
from prereg.study.corpora import Shards
from prereg.study.tokenizer_file import TokenizerJson, byte_characters, malformed, read_tokenizer


@dataclass(frozen=True)
class CharTokenizer:
    """One token a character. The vocabulary is the corpus' own set of characters, in code point order.

    >>> tokenizer = CharTokenizer.of("banana")
    >>> tokenizer.characters, tokenizer.encode("nab").tolist()
    ('abn', [2, 0, 1])
    """

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
        # In UTF-32 a code point has four bytes: a text is an array, looked up in the sorted vocabulary at once.
        points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
        vocabulary = np.frombuffer(self.characters.encode("utf-32-le"), dtype=np.uint32)
        ids = np.searchsorted(vocabulary, points)
        unknown = (ids >= len(vocabulary)) | (vocabulary[np.minimum(ids, len(vocabulary) - 1)] != points)
        if unknown.any():
            stranger = chr(int(points[int(np.argmax(unknown))]))
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


PIECE = re.compile(r"[^\n]*\n+|[^\n]+")
"""Text is cut after each run of line breaks, to train and to encode: the cut is part of what the tokenizer is."""
PIECES_AT_ONCE = 20_000
SMALLEST = 257
"""256 bytes and one merge."""


@dataclass(frozen=True)
class BpeTokenizer:
    """Byte pairs. Equal entries and merges are an equal tokenizer, no matter where it was trained."""

    entries: tuple[str, ...]
    """The vocabulary by id, each byte written as one character of GPT-2's table."""
    merges: tuple[tuple[str, str], ...]
    """In the order in which they apply."""
    _made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self.entries)

    @property
    def definition(self) -> dict[str, Any]:
        """All that it is."""
        return {
            "kind": "bpe",
            "cut": "after every run of line breaks",
            "words": "GPT-2's pattern, over bytes",
            "entries": list(self.entries),
            "merges": [list(merge) for merge in self.merges],
        }

    @cached_property
    def sha256(self) -> str:
        """Hash of the definition."""
        return sha256_of(self.definition)

    def encode(self, text: str) -> np.ndarray:
        """Token ids."""
        return encoded(self.engine, text)

    def decode(self, ids: np.ndarray) -> str:
        """The text of token ids. Ids that end within a character are refused, never patched."""
        table = byte_characters()
        data = bytes(table[sign] for token in ids for sign in self.entries[int(token)])
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{len(ids)} token ids stand for bytes that are no text at byte {error.start}",
                required="ids that begin and end between two characters",
            ) from error

    def pieces(self) -> list[bytes]:
        """The bytes of each entry, in the order of their ids."""
        table = byte_characters()
        return [bytes(table[sign] for sign in entry) for entry in self.entries]

    def byte_lengths(self) -> np.ndarray:
        """UTF-8 bytes of each entry, exactly: an entry is written with one character a byte."""
        return np.array([len(entry) for entry in self.entries], dtype=np.int64)

    @property
    def engine(self) -> Any:
        """The library's tokenizer; made on first use, and not part of what this one is."""
        if "engine" not in self._made:
            from tokenizers import Tokenizer, models, pre_tokenizers

            vocabulary = {entry: number for number, entry in enumerate(self.entries)}
            engine = Tokenizer(models.BPE(vocab=vocabulary, merges=list(self.merges)))
            engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # no space that the text has not
            # The library's object can be neither hashed nor compared, and is no part of what the tokenizer is.
            self._made["engine"] = engine
        return self._made["engine"]


def train_bpe(text: str, size: int) -> BpeTokenizer:
    """The `size` entries that byte-pair encoding finds in a text: 256 bytes, then the commonest pair again and again.

    The same text gives the same merges: counts decide, and between equal counts the lower ids. Raises `CorpusError`
    where the text has fewer pairs than `size` needs.

    >>> tokenizer = train_bpe("low lower lowest\\n" * 3, size=258)
    >>> tokenizer.merges
    (('l', 'o'), ('lo', 'w'))
    >>> len(tokenizer.encode("lower")), tokenizer.decode(tokenizer.encode("lower"))
    (3, 'lower')
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # All 256 bytes from the start, sorted: any text can be written, and an id does not depend on which byte came
    # first.
    trainer = trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=[], initial_alphabet=sorted(byte_characters())
    )
    engine.train_from_iterator(_batches(text), trainer)
    model = json.loads(engine.to_str())["model"]
    # The library gives its vocabulary as a mapping; ids are the order of entries here.
    by_id = sorted(model["vocab"].items(), key=lambda item: int(item[1]))
    if len(by_id) < size:
        fit = len(by_id) >= SMALLEST
        raise CorpusError(
            f"the training text of {len(text):,} characters gives {len(by_id)} byte-pair entries",
            required=f"the {size} entries that tokenizer: {{bpe: {size}}} asks for",
            fix=f"tokenizer: {{bpe: {len(by_id)}}}, or a longer text" if fit else "tokenizer: char, or a longer text",
        )
    trained = BpeTokenizer(
        entries=tuple(entry for entry, _ in by_id), merges=tuple((left, right) for left, right in model["merges"])
    )
    assert [number for _, number in by_id] == list(range(size)), "ids with gaps"
    return trained


def bpe_of(text: str, size: int, folder: Path, registered: str | None) -> BpeTokenizer:
    """The tokenizer of a training text: as it was registered and is kept in a folder, else trained.

    What is trained may differ from what was registered; the caller that needs a registered one compares the hashes.
    """
    stored = None if registered is None else _stored(folder, registered)
    if stored is not None:
        return stored
    # Within one process a study is read more than once before it is registered.
    key = sha256_of({"text": sha256_bytes(text.encode()), "size": size})
    if key not in TRAINED:
        TRAINED[key] = train_bpe(text, size)
    if TRAINED[key].sha256 == registered:
        keep_bpe(TRAINED[key], folder)
    return TRAINED[key]


TRAINED: dict[str, BpeTokenizer] = {}


def keep_bpe(tokenizer: BpeTokenizer, folder: Path) -> Path:
    """Keep a tokenizer, whole or not at all. A folder that refuses costs the next one its training, and no more."""
    path = _place(folder, tokenizer.sha256)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, canonical_bytes(tokenizer.definition) + b"\n")
    return path


def _place(folder: Path, sha256: str) -> Path:
    return folder / f"bpe-{sha256}.json"


def _stored(folder: Path, sha256: str) -> BpeTokenizer | None:
    """A kept tokenizer with that hash; a damaged one is none, and is trained again."""
    try:
        definition = json.loads(_place(folder, sha256).read_bytes())
        merges = tuple((left, right) for left, right in definition["merges"])
        tokenizer = BpeTokenizer(entries=tuple(definition["entries"]), merges=merges)
        return tokenizer if tokenizer.sha256 == sha256 else None  # a file of that name says nothing of its content
    except (OSError, ValueError, KeyError, TypeError):
        return None


def encoded(engine: Any, text: str) -> np.ndarray:
    """Token ids of a text by the library, in pieces that end with line breaks."""
    parts = []
    for pieces in _batches(text):
        # Fast: without the places of tokens in the text.
        for encoding in engine.encode_batch_fast(pieces, add_special_tokens=False):
            parts.append(np.array(encoding.ids, dtype=np.int64))
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _batches(text: str) -> Iterator[list[str]]:
    pieces: list[str] = []
    for match in PIECE.finditer(text):
        pieces.append(match.group())
        if len(pieces) == PIECES_AT_ONCE:
            yield pieces
            pieces = []
    if pieces:
        yield pieces


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
        # A file may say to cut at the length of the model it was made for: what comes after would be lost.
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
                (encoding,) = self._engine.encode_batch_fast([text], add_special_tokens=False)
                ids = np.array(encoding.ids, dtype=np.int64)
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
        return str(self._engine.decode([int(token) for token in ids], skip_special_tokens=False))

    def pieces(self) -> list[bytes] | None:
        """The bytes of each entry; none where they are not known exactly, which they are of byte pairs alone."""
        if not self.file.exact:
            return None
        table, added = byte_characters(), self.file.added
        # An added token is written as it is, any other entry in GPT-2's characters, one a byte.
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
    """The tokenizer.json of a tokenizer, which gives a whole text the ids that the model was trained on.

    >>> json.loads(library_json(CharTokenizer.of("banana")))["model"]["vocab"]
    {'a': 0, 'b': 1, 'n': 2}
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    if isinstance(tokenizer, FileTokenizer):
        return _with_cuts(tokenizer.file) if tokenizer.file.exact else tokenizer.content.decode("utf-8")
    if isinstance(tokenizer, CharTokenizer):
        vocabulary = {character: number for number, character in enumerate(tokenizer.characters)}
        engine = Tokenizer(models.WordLevel(vocabulary))
        engine.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")  # `.` leaves out line breaks
        engine.decoder = decoders.Fuse()  # else the library joins words by spaces
        return str(engine.to_str())
    engine = Tokenizer.from_str(tokenizer.engine.to_str())
    # Here the cut is done before the library sees the text (`encoded`); in a file that others use, the library has to
    # do it.
    cut = pre_tokenizers.Split(Regex(PIECE.pattern), "isolated")
    engine.pre_tokenizer = pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    engine.decoder = decoders.ByteLevel()
    return str(engine.to_str())


def _with_cuts(file: TokenizerJson) -> str:
    """The same file with our cuts after line breaks: its pattern may look past one, and ours never did."""
    cut = {"type": "Split", "pattern": {"Regex": PIECE.pattern}, "behavior": "Isolated", "invert": False}
    steps = {"type": "Sequence", "pretokenizers": [cut, *file.steps]}
    return json.dumps({**file.definition, "pre_tokenizer": steps}, ensure_ascii=False)
