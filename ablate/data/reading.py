"""Training and validation split of a study's texts, as token ids: the one place that joins corpora and tokenizers.

The border between training and validation is drawn in the text, before any tokenizer has seen it, at the same character
whatever the tokenizer: bits per byte then speak of the same bytes. A tokenizer that is trained reads the training part
only. The vocabulary of single characters is that of the whole corpus, as it always was: it holds nothing but which
characters there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ablate.data.batches import Mixture, Pooled, Split, Tokens
from ablate.data.corpora import Corpus, Library, require_validation
from ablate.data.shards import StoredTokens, open_shards
from ablate.data.tokenizers import BpeTokenizer, CharTokenizer, FileTokenizer, StoredVocabulary, bpe_of
from prereg.errors import CorpusError
from prereg.study.corpora import Manifest, Role
from prereg.study.training import Bpe, Data, TokenizerFile

Tokenizer = CharTokenizer | BpeTokenizer | FileTokenizer | StoredVocabulary


@dataclass(frozen=True)
class ReadCorpus:
    """One corpus that was read."""

    manifest: Manifest
    characters: int
    """0 where it is stored as tokens."""


@dataclass(frozen=True)
class TokenizedCorpora:
    """What a run reads: its tokens, split, and how they came about."""

    split: Split
    tokenizer: Tokenizer
    corpora: Mapping[str, ReadCorpus]


def read_corpora(library: Library, data: Data, *, registered: str | None = None) -> TokenizedCorpora:
    """The tokens of a configuration; `registered` is the hash of its tokenizer where one was registered.

    >>> from pathlib import Path
    >>> toy = read_corpora(Library.of(Path("data/corpora")), Data(corpus="toy", tokenizer="char"))
    >>> toy.tokenizer.size, len(toy.split.train), len(toy.split.validation)
    (25, 990007, 110001)
    """
    for name in data.sources:
        # By the manifest alone: no text is read for a refusal.
        require_validation(library.manifest(name), data.validation)
    if data.tokenizer == "own":
        return _stored(library, data)
    corpora = {name: library.find(name) for name in data.sources}
    parts = {name: _parted(corpus, data.validation) for name, corpus in corpora.items()}
    tokenizer: CharTokenizer | BpeTokenizer | FileTokenizer
    if isinstance(data.tokenizer, Bpe):
        # A line break between sources: no pair is formed of the end of one and the beginning of another.
        text = "\n".join(train for train, _ in parts.values())
        tokenizer = bpe_of(text, data.tokenizer.bpe, library.tokenizers, registered)
    elif isinstance(data.tokenizer, TokenizerFile):
        tokenizer = FileTokenizer.read(library.root, data.tokenizer.file)
    else:
        tokenizer = CharTokenizer(
            # Of both parts: a character that occurs in the validation part alone would otherwise have no id.
            "".join(sorted(set().union(*(set(text) for pair in parts.values() for text in pair))))
        )
    ids = {name: (tokenizer.encode(train), tokenizer.encode(held)) for name, (train, held) in parts.items()}
    sources = {
        name: ReadCorpus(corpus.manifest, len(corpus.text) + len(corpus.held_out or ""))
        for name, corpus in corpora.items()
    }
    return TokenizedCorpora(_joined(ids, data.mixture), tokenizer, sources)


def _parted(corpus: Corpus, validation: float | Literal["own"]) -> tuple[str, str]:
    if validation == "own":
        assert corpus.held_out is not None, corpus.manifest.name
        return corpus.text, corpus.held_out
    border = int(len(corpus.text) * (1.0 - validation))  # in characters, the same for every tokenizer
    return corpus.text[:border], corpus.text[border:]


def _stored(library: Library, data: Data) -> TokenizedCorpora:
    manifests = {name: library.manifest(name) for name in data.sources}
    tokenizers: dict[str, StoredVocabulary] = {}
    ids: dict[str, tuple[Tokens, Tokens]] = {}
    for name, manifest in manifests.items():
        if manifest.shards is None:
            raise CorpusError(
                f"corpus '{name}' is a text, and tokenizer: own is for token ids that are stored as such",
                required="a corpus of shards",
                fix="tokenizer: char, or tokenizer: {bpe: 4096}",
            )
        parts = open_shards(manifest, library.cache)
        tokenizers[name] = StoredVocabulary.of(manifest.shards)
        ids[name] = (parts["train"], parts["validation"]) if data.validation == "own" else _cut(parts, data.validation)
    # One id must mean the same bytes in every source, or the losses of a mixture would be of different units.
    first = next(iter(tokenizers.values()))
    deviating = [name for name, tokenizer in tokenizers.items() if tokenizer.sha256 != first.sha256]
    if deviating:
        raise CorpusError(
            f"'{deviating[0]}' has another vocabulary than '{next(iter(tokenizers))}'",
            required="sources of one mixture that were turned into ids by one tokenizer",
        )
    return TokenizedCorpora(
        _joined(ids, data.mixture), first, {name: ReadCorpus(manifest, 0) for name, manifest in manifests.items()}
    )


def _cut(parts: Mapping[Role, StoredTokens], share: float) -> tuple[Tokens, Tokens]:
    tokens = parts["train"]
    border = int(len(tokens) * (1.0 - share))  # in tokens: there is no text to cut
    return tokens.part(0, border), tokens.part(border, len(tokens))


def _joined(ids: Mapping[str, tuple[Tokens, Tokens]], weights: Mapping[str, float] | None) -> Split:
    if weights is None:
        ((train, validation),) = ids.values()  # without weights there is one source
        return Split(train, validation)
    return Split(
        Mixture({name: train for name, (train, _) in ids.items()}, weights),
        Pooled({name: held for name, (_, held) in ids.items()}),
    )
