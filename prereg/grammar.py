"""Grammars of claims and conditions: `Language` parses a sentence with lark, and refuses it at the wrong word.

A `Language` is a grammar of lark (LALR, with a lexer that knows what may come next), its keywords, and a table of what
is said where a word is not one of those that may come next. lark is imported, and a grammar compiled, when the first
sentence is read: it takes longer than everything else about a study.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from textwrap import dedent
from typing import TYPE_CHECKING, NamedTuple

from prereg.errors import SpecError, nearest

if TYPE_CHECKING:
    from lark import Token, Tree

_WORD = re.compile(r"[(),]|[^\s(),]+")


class Expected(NamedTuple):
    """What is said where a terminal was expected and another word, or the end, was found."""

    terminal: str
    what: str
    """What should be there, in a sentence's part: `a verb`."""
    required: str
    fix: str = ""
    """What to type where no keyword is close. {before} and {after} are the sentence up to the word, and from it on."""


@dataclass(frozen=True)
class Language:
    """A grammar with what is said of its mistakes."""

    rules: str
    """Its rules and terminals in the notation of lark, without those of the keywords; the first rule is a sentence."""
    keywords: Mapping[str, str]
    """Terminal -> the word that it is."""
    expected: Sequence[Expected]
    """The first row of which the terminal was expected says what is wrong; the last where nothing was."""
    error: type[SpecError]
    names: str
    """Characters of a name, as the inside of a regular expression's brackets: a keyword ends before others."""
    misplaced: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """A word -> what is required where it stands in the wrong place, and what to type, in place of its row's."""
    synonyms: Mapping[str, str] = field(default_factory=dict)
    """A word that people write -> the keyword that means it."""

    @cached_property
    def _read(self) -> Callable[[str], Tree[Token]]:
        from lark import Lark

        # Priority 2, above the `.1` of a grammar's own terminals: a keyword is never a name where one may come
        # next.
        words = [f"{terminal}.2: /{word}(?![{self.names}])/" for terminal, word in self.keywords.items()]
        # The first rule is the sentence; `?` is lark's mark and no part of its name.
        start = self.rules.split(":", maxsplit=1)[0].strip("? \n")
        grammar = "\n".join([self.rules, *words, r"%ignore /\s+/"])
        parser = Lark(grammar, parser="lalr", start=start, maybe_placeholders=False, propagate_positions=True)
        # A study is read several times in a command, and each of its claims several times a reading.
        return lru_cache(maxsize=1024)(parser.parse)

    @property
    def shown(self) -> str:
        """The grammar for readers: each keyword as the word that it is."""
        text = dedent(self.rules).strip()
        for terminal, word in self.keywords.items():
            text = re.sub(rf"(?<!\w){terminal}(?!\w)", f'"{word}"', text)
        return re.sub(r"(?<!\w)_(?=[a-z])", "", text)

    def parse(self, text: str) -> Tree[Token]:
        """The sentence as a tree. Raises the language's error, with a caret under the word that breaks it."""
        from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

        try:
            return self._read(text)
        except UnexpectedInput as error:
            expected: set[str] = set()
            at_end = isinstance(error, UnexpectedEOF)
            # `accepts` is exact and may be missing; `expected` holds more, since LALR merges states.
            if isinstance(error, UnexpectedToken):
                at_end = error.token.type == "$END"
                expected = {*(error.accepts or error.expected)}
            elif isinstance(error, UnexpectedCharacters):
                expected = {*(error.allowed or ())}
            place = len(text.rstrip()) if at_end else error.pos_in_stream or 0
            raise self._misplaced(text, place, expected) from None

    def mistake(self, text: str, place: int, found: str, required: str, fix: str = "") -> SpecError:
        """The error of what the grammar takes and has no meaning, at a place of the sentence, from 0."""
        return self.error(pointed(text, place + 1, found), required=required, fix=fix)

    def _misplaced(self, text: str, place: int, expected: set[str]) -> SpecError:
        opened = _opened(text[:place])
        if not opened and "RPAR" in expected:  # states of the parser that differ in this alone are one
            expected = expected - {"RPAR"} | {"$END"}
        row = next((row for row in self.expected if row.terminal in expected), self.expected[-1])
        match = _WORD.match(text, place)
        word = "" if match is None else match[0]
        required, fix = self.misplaced.get(word, (row.required, row.fix))
        what = row.what + (f" of the '(' in column {opened}" if row.terminal == "RPAR" else "")
        before, after = text[:place].strip(), text[place:].strip()
        if word in self.keywords.values():  # `by least 0.05`: what follows is what it was for
            after = after.removeprefix(word).strip()
        fix = self._meant(word, expected) or fix.format(before=before, after=after or "D")
        shown = f"'{word[:80]}'" if word else "the end"
        return self.mistake(text, place, f"{shown} where {what} should be", required, fix)

    def _meant(self, word: str, expected: set[str]) -> str:
        """The keyword that a word is a slip of; a keyword in the wrong place is no slip."""
        keywords = [keyword for terminal, keyword in self.keywords.items() if terminal in expected]
        lower = word[:80].lower()
        if self.synonyms.get(lower) in keywords:
            return f"did you mean '{self.synonyms[lower]}'?"
        if not keywords or not word or word in self.keywords.values():
            return ""
        close = nearest(lower, keywords)
        return close if close.startswith("did") else ""


def pointed(text: str, column: int, message: str) -> str:
    """The message, the sentence below it, and a caret under the column (from 1).

    >>> print(pointed("a lower val/loss", 3, "'lower' where a verb should be"))
    'lower' where a verb should be, column 3
        a lower val/loss
          ^
    """
    if not text.strip():
        return message
    shown = re.sub(r"\s", " ", text.rstrip())
    start = max(0, column - 70)  # a long sentence is shown around the fault
    return f"{message}, column {column}\n    {shown[start : start + 100]}\n    {' ' * (column - 1 - start)}^"


def _opened(before: str) -> int:
    """Column of the last parenthesis that is open, from 1; 0 where none is."""
    closed = 0
    for place in range(len(before) - 1, -1, -1):
        closed += (before[place] == ")") - (before[place] == "(")
        if closed < 0:
            return place + 1
    return 0
