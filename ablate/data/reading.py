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

from ablate.data.batches import Split, Tokens
from ablate.data.corpora import Corpus, Library, require_validation
from ablate.data.shards import StoredTokens, open_shards
from ablate.data.tokenizers import BpeTokenizer, CharTokenizer, FileTokenizer, StoredVocabulary, bpe_of
from prereg.errors import CorpusError
from prereg.study.corpora import Manifest, Role
from prereg.study.training import Bpe, Data, TokenizerFile

Tokenizer = CharTokenizer | BpeTokenizer | FileTokenizer | StoredVocabulary


@dataclass(frozen=True)
class TokenizedCorpus:
    """What a run reads: its tokens, split, and how they came about."""

    split: Split
    tokenizer: Tokenizer
    manifest: Manifest
    characters: int
    """0 where it is stored as tokens."""


def read_corpus(library: Library, data: Data, *, registered: str | None = None) -> TokenizedCorpus:
    """The tokens of a configuration; `registered` is the hash of its tokenizer where one was registered.

    >>> from pathlib import Path
    >>> toy = read_corpus(Library.of(Path("data/corpora")), Data(corpus="toy", tokenizer="char"))
    >>> toy.tokenizer.size, len(toy.split.train), len(toy.split.validation)
    (25, 990007, 110001)
    """
    manifest = library.manifest(data.corpus)
    # By the manifest alone: no text is read for a refusal.
    require_validation(manifest, data.validation)
    if data.tokenizer == "own":
        return _stored(library, manifest, data)
    corpus = library.find(data.corpus)
    train, held_out = _parted(corpus, data.validation)
    tokenizer: CharTokenizer | BpeTokenizer | FileTokenizer
    if isinstance(data.tokenizer, Bpe):
        tokenizer = bpe_of(train, data.tokenizer.bpe, library.tokenizers, registered)
    elif isinstance(data.tokenizer, TokenizerFile):
        tokenizer = FileTokenizer.read(library.root, data.tokenizer.file)
    else:
        # Of both parts: a character that occurs in the validation part alone would otherwise have no id.
        tokenizer = CharTokenizer.of(train + held_out)
    return TokenizedCorpus(
        Split(tokenizer.encode(train), tokenizer.encode(held_out)),
        tokenizer,
        corpus.manifest,
        len(corpus.text) + len(corpus.held_out or ""),
    )


def _parted(corpus: Corpus, validation: float | Literal["own"]) -> tuple[str, str]:
    if validation == "own":
        assert corpus.held_out is not None, corpus.manifest.name
        return corpus.text, corpus.held_out
    border = int(len(corpus.text) * (1.0 - validation))  # in characters, the same for every tokenizer
    return corpus.text[:border], corpus.text[border:]


def _stored(library: Library, manifest: Manifest, data: Data) -> TokenizedCorpus:
    if manifest.shards is None:
        raise CorpusError(
            f"corpus '{data.corpus}' is a text, and tokenizer: own is for token ids that are stored as such",
            required="a corpus of shards",
            fix="tokenizer: char, or tokenizer: {bpe: 4096}",
        )
    parts = open_shards(manifest, library.cache)
    train, held_out = (
        (parts["train"], parts["validation"]) if data.validation == "own" else _cut(parts, data.validation)
    )
    return TokenizedCorpus(Split(train, held_out), StoredVocabulary.of(manifest.shards), manifest, 0)


def _cut(parts: Mapping[Role, StoredTokens], share: float) -> tuple[Tokens, Tokens]:
    tokens = parts["train"]
    border = int(len(tokens) * (1.0 - share))  # in tokens: there is no text to cut
    return tokens.part(0, border), tokens.part(border, len(tokens))
