"""A form with fields: how it looks as text for people and as JSON for scripts, with every blank in sight."""

from __future__ import annotations

import json
from dataclasses import dataclass

from prereg.export.claims import quoted
from prereg.plain import json_visible, markdown_sentence
from prereg.words import counted, listed


@dataclass(frozen=True)
class Field:
    """One field of a form."""

    key: str
    """Its name in JSON."""
    title: str
    """Its question, as people know it."""
    text: str
    """The answer; of a blank, what is to be answered and by whom."""
    blank: bool = False
    """Whether it is left to a person."""

    @property
    def shown(self) -> str:
        """The answer, or the blank so that nobody takes it for one."""
        return f"[LEFT TO YOU: {self.text}]" if self.blank else self.text


@dataclass(frozen=True)
class Form:
    """A filled form."""

    name: str
    """Which form."""
    title: str
    """The study's title."""
    status: str
    """What it was filled from, in a sentence."""
    fields: tuple[Field, ...]
    customary: int | None = None
    """Characters that are customary for all answers together."""

    @property
    def length(self) -> int:
        """Characters of all answers; blanks do not count, they are not answers."""
        return sum(len(field.text) for field in self.fields if not field.blank)

    def markdown(self) -> str:
        """The form as text, blanks named first."""
        parts = [self.status, f"# {self.name}: {markdown_sentence(self.title)}", self._blanks(), self._said_length()]
        parts += [f"## {field.title}\n\n{_told(field.shown)}" for field in self.fields]
        return "\n\n".join(part for part in parts if part) + "\n"

    def json(self) -> str:
        """Field -> text, and under `status` what it was filled from. A blank holds its mark, never an answer."""
        answers = {"status": self.status} | {field.key: field.shown for field in self.fields}
        return json_visible(json.dumps(answers, indent=2, ensure_ascii=False)) + "\n"

    def _blanks(self) -> str:
        blanks = [field for field in self.fields if field.blank]
        if not blanks:
            return ""
        are = "field is" if len(blanks) == 1 else "fields are"
        return f"**{len(blanks)} {are} left to you: {listed(quoted(field.title) for field in blanks)}**"

    def _said_length(self) -> str:
        if self.customary is None:
            return ""
        length, most = self.length, self.customary
        against = (
            f"within the customary {most:,}"
            if length <= most
            else f"{length - most:,} more than the customary {most:,}"
        )
        return f"The answers have {counted(length, 'character')}, {against}."


def _told(answer: str) -> str:
    """An answer line by line: what a study brings is shown as it stands, and is no markup."""
    return "\n".join(markdown_sentence(line, numbered=True) for line in answer.split("\n"))
