"""Plain text as LaTeX: names in typewriter, works that are cited as links, statistics in italics, places to break.

`\\ablatecite{KEY}{WORDS}` and `\\ablatecitet` print their words; a paper may define them by natbib's commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from ablate.reporting.latex.references import CITED
from prereg.escape import curly, latex
from prereg.text import MINUS

_CODE = re.compile(r"(`[^`]+`)")
_HASH = r"\b[0-9a-f]{12,64}\b"
_STATISTIC = re.compile(r"(?<![\w.-])([pt]|n|df)(?= (?:[=<>]|to (?:support|refute)))")
INTERVAL_OR_WORD = re.compile(r"\[[^\]\s]+, [^\]\s]+\]|[<>] \S+|\S+")
COMPARISON_OR_WORD = re.compile(r"[<>] \S+|\S+")
_BOUNDS = re.compile(r"(\[[^\]\s]+,) ([^\]\s]+\])")
_COMPARED = re.compile(r"(\$[<>]\$|=) (?=[.\d])")
_TOKEN = re.compile(r"\\(?:[a-zA-Z]+|[^a-zA-Z])(?:\{[^{}]*\})?|\$[^$]*\$|.(?:\{\})?", re.DOTALL)
_BREAK_AFTER = ("/", r"\_", ".", ":", "=", ",", "-", r"\textbackslash{}")
_LONG, _LONGEST, _PIECE, _TYPED = 14, 30, 8, 8
"""A word of more characters than `_LONG`, in typewriter `_TYPED`, may be broken after a sign; a run of letters within
it if it is longer than any word that LaTeX hyphenates, in typewriter if it is long; and then into pieces."""


@dataclass(frozen=True)
class Style:
    """How one document is written."""

    names: frozenset[str] = frozenset()
    """Arms, metrics and hypotheses: those with a sign that no word has are set in typewriter."""
    line: float = 345.0
    """Points of a line, for which the columns of tables are planned; as LaTeX's own page of 10 pt has."""

    def text(self, plain: str) -> str:
        """One line of running text."""
        parts = (
            part if part[:1] == "`" else curly(part).replace(" - ", f" {MINUS} ")
            for part in _CODE.split(" ".join(plain.split()))
        )
        said = "".join(self._part(at, part) for at, part in enumerate(self._marked.split("".join(parts))))
        return _COMPARED.sub(r"\1~", said)

    def cell(self, plain: str, *, tied: bool = True) -> str:
        """The same for a cell of a table; in it a `tied` interval stays on one line."""
        said = self.text(plain).replace("$<$~.", "$<$.").replace("$>$~.", "$>$.")
        said = _BOUNDS.sub(r"\1~\2", said) if tied else said
        return f"{{}}{said}" if said[:1] in ("[", "*") else said  # after \\ they would be read as its options

    def is_typewriter(self, word: str) -> bool:
        """Whether a word is set in typewriter, as a whole or as the beginning of a longer name."""
        return not word.isalpha() and any(name.startswith(word) for name in self.names)

    def _part(self, at: int, part: str) -> str:
        if at % 2 == 0:
            pieces = enumerate(_STATISTIC.split(part))
            return "".join(rf"\textit{{{one}}}" if odd % 2 else breakable(latex(one)) for odd, one in pieces)
        if part in CITED:
            return rf"\ablatecite{'t' * part.endswith(')')}{{{CITED[part]}}}{{{latex(part)}}}"
        return rf"\texttt{{{breakable(latex(part.strip('`')), _TYPED, _LONG)}}}"

    @cached_property
    def _marked(self) -> re.Pattern[str]:
        """Code, hashes, cited works and names; the longest first: one may begin another."""
        special = sorted((name for name in self.names if not name.isalpha()), key=len, reverse=True)
        names = [rf"(?<![\w/.-]){re.escape(name)}(?![\w/-])" for name in special]
        works = [re.escape(words) for words in sorted(CITED, key=len, reverse=True)]
        return re.compile("(" + "|".join([r"`[^`]+`", _HASH, *works, *names]) + ")")


def breakable(escaped: str, long: int = _LONG, longest: int = _LONGEST) -> str:
    """LaTeX in which long words have places to break."""
    words = escaped.split(" ")
    return " ".join("".join(_with_breaks(word, long, longest)) if len(word) > long else word for word in words)


def _with_breaks(word: str, long: int, longest: int) -> Iterator[str]:
    tokens = _TOKEN.findall(word)
    if len(tokens) <= long:
        yield word
        return
    for is_sign, found in groupby(tokens, lambda token: token in _BREAK_AFTER):
        run = list(found)
        size = len(run) if is_sign or len(run) <= longest else _PIECE
        yield r"\allowbreak{}".join("".join(run[at : at + size]) for at in range(0, len(run), size))
        yield r"\allowbreak{}" * is_sign
