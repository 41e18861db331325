"""Templates of a registration's documents, rendered (`say`); those of reports: `ablate/reporting/wording.py`.

`say("stopping", study)` is the macro `stopping` of `templates/study.txt` as one line, and
`say("claims.outcomes", study, c)` one of `claims.txt`. What is put into a template is text as the study has it: what
shows it escapes it for its format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prereg.documents.claims import ClaimFacts, plain
from prereg.documents.procedures import errors_held, lost_starts, not_reached, spike
from prereg.escape import markdown_sentence, quoted, visible
from prereg.rule.divergence import least_pairs, said_least
from prereg.study.analysis import in_words
from prereg.study.designs.per_task import families_listed, of_any_task, tasks_are_strata
from prereg.study.spec import Study
from prereg.text import compact, counted, duration, listed, moment, ranged, share, without_pairs

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.runtime import Context

    from prereg.documents.facts import StudyFacts

_TEMPLATES = Path(__file__).parent / "templates"


def say(name: str, study: Study, *args: object) -> str:
    """A sentence, or a few, of a study that is not looked at as a registration; empty where there is nothing to say."""
    from prereg.documents.facts import StudyFacts

    return macro(name, StudyFacts(study), *args)


def macro(name: str, facts: StudyFacts, *args: object) -> str:
    """The same with the facts at hand."""
    # A name without a file is of study.txt.
    file, _, called = name.rpartition(".")
    template = _environment().get_template(f"{file or 'study'}.txt")
    return one_line(getattr(template.make_module({"facts": facts, "study": facts.study}), called)(*args))


@cache
def fields_with_words() -> tuple[str, ...]:
    """The fields of a configuration that `templates/training.txt` puts into words, in the order of sentences."""
    macros = re.findall(r"{% macro (\w+)\(", (_TEMPLATES / "training.txt").read_text(encoding="utf-8"))
    # The first underscore alone is the dot: optim_weight_decay is optim.weight_decay.
    return tuple(name.replace("_", ".", 1) for name in macros)


def field_in_words(path: str, value: object, **how: object) -> str:
    """The value of a field that has words."""
    module = _environment().get_template("training.txt").module
    return one_line(getattr(module, path.replace(".", "_"))(value, **how))


def rendered(file: str, facts: StudyFacts, **values: object) -> str:
    """A whole template."""
    text: str = _environment().get_template(file).render(facts=facts, study=facts.study, **values)
    return text


def one_line(text: str) -> str:
    """The text with every run of white space as a space.

    >>> one_line("two\\n  lines")
    'two lines'
    """
    return " ".join(text.split())


def counted_as(study: Study, text: str) -> str:
    """A sentence of ours about pairs as it reads for the study: without pairs where no claim compares two sides."""
    return text if study.compares_sides else without_pairs(text)


@cache
def _environment() -> Environment:
    # Imported when the first sentence is asked for: most commands write none.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context

    @pass_context
    def as_counted(context: Context, text: str) -> str:
        return _of_block(text, counted_as(context["study"], one_line(text)))

    @pass_context
    def of_one_task(context: Context, text: str, claim: ClaimFacts) -> str:
        return of_any_task(context["study"], claim.label, one_line(text))

    # StrictUndefined: a misspelt fact is an error and not an empty place in a registration.
    environment = Environment(  # noqa: S701 - plain text: what shows it escapes for its own format
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: one_line(value) if isinstance(value, str) and "\n" in value else value,
    )
    environment.filters |= _FILTERS | _OF_A_STUDY | {"as_counted": as_counted, "of_any_task": of_one_task}
    return environment


def _listed(words: Iterable[str], last: str = "and") -> str:
    return listed(words, last=last)


def _each(pairs: Iterable[tuple[object, ...]], pattern: str) -> list[str]:
    return [pattern.format(*pair) for pair in pairs]


def _alike(claims: Iterable[ClaimFacts], text: Callable[[ClaimFacts], str]) -> Iterator[tuple[str, list[ClaimFacts]]]:
    """Claims by their text, which is said once for all of them."""
    groups: dict[str, list[ClaimFacts]] = {}
    for claim in claims:
        groups.setdefault(text(claim), []).append(claim)
    return iter(groups.items())


def _figure(value: float) -> str:
    return compact(value) if value == 0 or abs(value) > 1e-5 else f"{value:g}"


def _ended(text: str) -> str:
    text = visible(text.strip())
    return text if text.endswith((".", "!", "?")) else text + "."


def _of_block(before: str, after: str) -> str:
    """Text with the end of line that it had, which keeps what follows a filtered block apart."""
    # Jinja's block filters hand over the text with its last line break, which separates what follows.
    return after + "\n" * before.endswith("\n")


def _line(text: str) -> str:
    return _of_block(text, one_line(text))


def _md(text: str) -> str:
    return _of_block(text, markdown_sentence(text))


def _cell(text: str) -> str:
    return markdown_sentence(text).replace("|", "\\|")


_FILTERS: dict[str, Callable[..., Any]] = {
    "alike": _alike,
    "cell": _cell,
    "compact": compact,
    "counted": counted,
    "duration": duration,
    "each": _each,
    "ended": _ended,
    "figure": _figure,
    "line": _line,
    "listed": _listed,
    "md": _md,
    "moment": moment,
    "plain_metric": plain,
    "quoted": quoted,
    "ranged": ranged,
    "share": share,
    "thousands": "{:,}".format,
    "visible": visible,
}

_OF_A_STUDY: dict[str, Callable[[Study], Any]] = {
    "families": families_listed,
    "gate": in_words,
    "least_pairs": least_pairs,
    "least_runs": said_least,
    "lost_starts": lost_starts,
    "not_reached": not_reached,
    "spike": spike,
    "tasks_are_strata": tasks_are_strata,
    "verdict_held": lambda study: errors_held(study)["For the verdict"],
}
"""Filters for `study`."""

_BLANK_LINES = re.compile(r"\n\s*\n")


def paragraphs(text: str) -> list[str]:
    """What stands between blank lines, stripped; nothing for a part that holds nothing.

    >>> paragraphs("one\\n\\n\\n two\\nlines\\n\\n")
    ['one', 'two\\nlines']
    """
    return [part for part in map(str.strip, _BLANK_LINES.split(text)) if part]
