"""tokenizer.json, read as JSON: how many ids it has, whether it keeps every byte, what it cannot write.

Read as JSON, without the library `tokenizers`: a study is checked, and models are sized, where that is not installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prereg.errors import CorpusError
from prereg.registry.disk import read_regular

LARGEST_FILE = 64 * 2**20
_KEEPS = ("Split", "Punctuation")
"""Steps that may drop what they find (behavior: Removed)."""


@dataclass(frozen=True)
class TokenizerJson:
    """A tokenizer.json that has been read."""

    content: bytes
    """The file."""
    definition: Mapping[str, Any]
    """The same, parsed."""
    kind: str
    """BPE, Unigram, WordPiece or WordLevel."""
    ids: Mapping[str, int]
    """Every entry with its id, those that were added included."""
    unknown: int | None
    """The id for text without a token; none where there is no such id."""

    @property
    def size(self) -> int:
        """Number of ids."""
        return max(self.ids.values()) + 1

    @property
    def added(self) -> Mapping[int, str]:
        """The entries that were added to the model's own, by id: they are found in a text as they are."""
        return {token["id"]: token["content"] for token in self.definition.get("added_tokens") or ()}

    @property
    def steps(self) -> tuple[Mapping[str, Any], ...]:
        """What cuts a text before the model sees it, in order."""
        return tuple(_flat(self.definition.get("pre_tokenizer")))

    @property
    def over_bytes(self) -> bool:
        """Whether it turns text into bytes and has an entry for each of them."""
        return (
            any(step.get("type") == "ByteLevel" for step in self.steps) and byte_characters().keys() <= self.ids.keys()
        )

    @property
    def exact(self) -> bool:
        """Whether its tokens are the bytes of the text: byte pairs over bytes, nothing changed, added or dropped."""
        model, table = self.definition["model"], byte_characters()
        # A prefix or suffix ("##", "</w>") is in the entry and not in the text: its bytes would be counted too.
        parts = (model.get("continuing_subword_prefix"), model.get("end_of_word_suffix"))
        own = (entry for entry, number in self.ids.items() if number not in self.added)
        return (
            self.kind == "BPE"
            and self.over_bytes
            and self.definition.get("normalizer") is None
            and not any(parts)
            and all(map(_keeps, self.steps))
            and not any(map(_reaches, self.definition.get("added_tokens") or ()))
            and all(sign in table for entry in own for sign in entry)
        )


def read_tokenizer(root: Path, name: str) -> TokenizerJson:
    """The tokenizer.json of that name below the root. Raises `CorpusError` for one that cannot be used."""
    path = root / name
    # Every folder on the way: a registration pins bytes at a path, and a link leads elsewhere on the next machine.
    for place in (path, *path.parents[: len(Path(name).parts) - 1]):
        if place.is_symlink():
            raise CorpusError(
                f"the tokenizer file '{name}' lies behind a symbolic link",
                required="a file that lies there itself: nothing pins what a link leads to",
                fix=f"put what '{place.relative_to(root).as_posix()}' leads to in its place",
            )
    try:
        content = read_regular(path, LARGEST_FILE)
    except FileNotFoundError:
        raise CorpusError(
            f"the tokenizer file '{name}' is not there",
            required=f"a tokenizer.json at {path}",
            fix=f"cp FOLDER_OF_THE_MODEL/tokenizer.json {path}",
        ) from None
    except OSError as error:
        raise CorpusError(
            f"the tokenizer file '{name}' cannot be read: {error.strerror}",
            required=f"a tokenizer.json of at most {LARGEST_FILE:,} bytes",
        ) from None
    try:
        tokenizer = _parsed(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise malformed(name, f"it has no {error}" if isinstance(error, KeyError) else str(error)) from None
    _require_usable(name, tokenizer)
    return tokenizer


def malformed(name: str, why: str) -> CorpusError:
    """The error of a file that is no tokenizer."""
    return CorpusError(
        f"'{name}' is no tokenizer: {why[:200]}",
        required="tokenizer.json as the library `tokenizers` writes it, and `transformers` saves it",
        fix="AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)   (writes FOLDER/tokenizer.json)",
    )


def byte_characters() -> dict[str, int]:
    """The character that represents each byte in GPT-2's table, as Radford et al. (2019) laid it out: printable bytes
    stand for themselves, the others take the next characters from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


def _parsed(content: bytes) -> TokenizerJson:
    definition = json.loads(content.decode("utf-8"))
    model = definition["model"]
    vocabulary, kind = model["vocab"], model.get("type")
    if kind is None:  # files of the library's first versions
        unigram = isinstance(vocabulary, list)
        word = "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"
        kind = "Unigram" if unigram else "BPE" if "merges" in model else word
    # A list of [entry, score]: the place is the id.
    if kind == "Unigram":
        vocabulary = {entry: number for number, (entry, _) in enumerate(vocabulary)}
    added = {token["content"]: token["id"] for token in definition.get("added_tokens") or ()}
    ids = {**vocabulary, **added}
    if any(type(number) is not int for number in ids.values()) or any(type(entry) is not str for entry in ids):
        raise ValueError("entries that are no text, or ids that are no whole numbers")
    # An added token may take the place of an entry of the model. Embeddings need every other id once, without a gap.
    added_by_id = {number: entry for entry, number in added.items()}
    in_use = sorted(number for entry, number in ids.items() if added_by_id.get(number, entry) == entry)
    if not ids or in_use != list(range(len({*ids.values()}))):
        raise ValueError("its ids are not those from 0 to the largest, each once")
    # Unigram names the unknown token by its id, the others by its text.
    unknown = model.get("unk_id") if kind == "Unigram" else ids.get(model.get("unk_token") or "")
    tokenizer = TokenizerJson(content, definition, kind, ids, unknown)
    _ = tokenizer.exact  # every part that is read later has its form
    return tokenizer


def _require_usable(name: str, tokenizer: TokenizerJson) -> None:
    """Refuse a tokenizer that is not the same twice, or that leaves out parts of a text without a sign."""
    model = tokenizer.definition["model"]
    if model.get("dropout"):
        raise CorpusError(
            f"'{name}' drops merges at random (dropout: {model['dropout']})",
            required="a tokenizer that gives a text the same ids each time",
            fix='"dropout": null in its model',
        )
    # All 256 entries "<0x00>" to "<0xFF>", as SentencePiece names them: without one of them a byte is dropped.
    fallback = bool(model.get("byte_fallback")) and all(f"<0x{byte:02X}>" in tokenizer.ids for byte in range(256))
    # `tokenizers` drops a character without a token in silence, and bits per byte would then be of a shorter text.
    if tokenizer.kind == "BPE" and tokenizer.unknown is None and not tokenizer.over_bytes and not fallback:
        raise CorpusError(
            f"'{name}' would leave out characters that it has no token for",
            required="byte pairs over all 256 bytes, or an unk_token, which shows what cannot be written",
            fix="a tokenizer over bytes, such as GPT-2's; or tokenizer: {bpe: 4096}",
        )


def _flat(step: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if step is None:
        return
    if step.get("type") == "Sequence":
        for below in step["pretokenizers"]:
            yield from _flat(below)
    else:
        yield step


def _keeps(step: Mapping[str, Any]) -> bool:
    """Whether a step leaves every character of a text where it is."""
    if step["type"] == "ByteLevel":
        return not step.get("add_prefix_space", True)
    return step["type"] == "Digits" or (step["type"] in _KEEPS and step.get("behavior") != "Removed")


def _reaches(token: Mapping[str, Any]) -> bool:
    """Whether an added token takes blanks next to it, or goes on after a line break, where texts are cut."""
    return bool(token.get("lstrip") or token.get("rstrip") or re.search(r"\n[^\n]", token["content"]))
