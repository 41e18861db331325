"""OSF Preregistration form, field by field, in full sentences: `templates/osf.txt`.

What was known of the data before is for a person to say, and left blank. So is the reason for the number of seeds in a
draft, where no design has been frozen yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from prereg.documents.facts import StudyFacts
from prereg.documents.sentences import macro, one_line, paragraphs, rendered
from prereg.escape import json_visible, markdown_sentence, quoted
from prereg.text import listed


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

    def markdown(self) -> str:
        """The form as text, blanks named first."""
        parts = [self.status, f"# {self.name}: {markdown_sentence(self.title)}", self._blanks()]
        parts += [f"## {field.title}\n\n{_escaped(field.shown)}" for field in self.fields]
        return "\n\n".join(part for part in parts if part) + "\n"

    def json(self) -> str:
        """Field -> text, and under `status` what it was filled from. A blank holds its mark, never an answer."""
        # A blank keeps its mark in JSON too, where a form may be sent on without being read.
        answers = {"status": self.status} | {field.key: field.shown for field in self.fields}
        return json_visible(json.dumps(answers, indent=2, ensure_ascii=False)) + "\n"

    def _blanks(self) -> str:
        blanks = [field for field in self.fields if field.blank]
        if not blanks:
            return ""
        are = "field is" if len(blanks) == 1 else "fields are"
        return f"**{len(blanks)} {are} left to you: {listed(quoted(field.title) for field in blanks)}**"


def _escaped(answer: str) -> str:
    """An answer line by line: what a study brings is shown unchanged, and is no markup."""
    return "\n".join(markdown_sentence(line, numbered=True) for line in answer.split("\n"))


def osf(facts: StudyFacts) -> Form:
    """The form, filled."""
    fields: list[Field] = []

    # The template calls this for each field and prints nothing: order and titles are in the template alone.
    def field(key: str, title: str, caller: Callable[[], str], *, blank: bool = False) -> str:
        text = "\n".join(map(one_line, paragraphs(caller())))
        fields.append(Field(key, title, text, blank))
        return ""

    rendered("osf.txt", facts, field=field)
    return Form("OSF Preregistration", facts.study.title, macro("status", facts), tuple(fields))
