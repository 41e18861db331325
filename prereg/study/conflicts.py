"""Settings that exclude each other: one table, checked by one function, and printed as docs/conflicts.md.

A row names two things that a study may not hold together, the reason, and what to write instead. Each thing is written
as a study writes it, `PATH: VALUE`: the value may be `given`, `none`, several words joined by `or`, or `not` before
them; of a list it means an entry, of a mapping a field. What is no setting (a claim with a constant) is a fact with a
name, `_FACTS`. The error lies at the first of the two.

To add a conflict: a row here and one in tests/designs/test_refusals.py, then `python -m docs.generator`. A row in
`OF_BLOCKS` is checked before any arm is resolved; one that asks about claims belongs in `OF_CLAIMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, reduce
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from prereg.errors import FieldPath, SpecError, field_error, nearest
from prereg.frozen import FrozenModel
from prereg.metrics.catalogue import ITEM_METRICS

if TYPE_CHECKING:
    from prereg.study.claim import Claim
    from prereg.study.spec import Study


class Conflict(NamedTuple):
    """Two things that no study has together."""

    this: str
    other: str
    because: str
    """What is required, and why."""
    fix: str


class Match(NamedTuple):
    """One thing of a row as a study has it."""

    place: FieldPath
    words: str
    fix: str = ""
    """What to type here, where it is not what the row says."""


def _rows(*rows: tuple[str, str, str, str]) -> tuple[Conflict, ...]:
    return tuple(Conflict(*row) for row in rows)


# fmt: off
OF_BLOCKS = _rows(
    ("factors: given", "components: given",
     "one of the two: components write the arms", "components: {design: factorial, ...}"),
    ("tune.grid: given", "tune.settings: given", "one of the two", "grid: {optim.lr: [1e-3, 3e-3]}"),
    ("tune.arms: given", "tune.settings: given", "settings, which name their arms", "leave arms out"),
    ("command: given", "trainer: gpt", "trainer: command, or no command", "trainer: command"),
    ("code: given", "trainer: gpt", "trainer: command, or no code", "trainer: command"),
    ("data: given", "trainer: gpt", "trainer: command, or no data", "trainer: command"),
    ("metrics.declare: given", "trainer: gpt",
     "a trainer of your own: what the built-in one records is in the catalogue", "leave declare out"),
    ("metrics.step_name: not step", "trainer: gpt",
     "a trainer of your own: what the built-in one records is in the catalogue", "leave step_name out"),
)
OF_SETTINGS = _rows(
    ("tune: given", "stopping: looks", "a fixed number of seeds after a pilot", "leave stopping out"),
    ("analysis.correct: none", "analysis.gate: given",
     "holm: a gate is a correction of its own, and what it leaves out (refutations) is corrected by Holm",
     "correct: holm, or no gate"),
    ("analysis.gate: given", "stopping: looks",
     "a fixed number of seeds: no joint error rate of gates and looks is established here",
     "stopping: fixed, or no gate"),
    ("seeds of their own for each arm", "analysis.test: not welch",
     "one list of seeds for all arms, whose runs of one seed are pairs, or a test without pairs: welch",
     "analysis: {test: welch}"),
    ("analysis.also: welch", "analysis.test: not welch", "tests over pairs", "also: []"),
    ("analysis.also: not welch", "analysis.test: welch",
     "no other test next to one without pairs; the report says what pairing would have given", "also: []"),
    ("stopping: looks", "analysis.test: welch",
     "test: paired_t, for which the levels of looks are computed, or a fixed number of runs", "stopping: fixed"),
    ("analysis.test: not paired_t or welch", "stopping: looks",
     "paired_t: the levels of looks are those of a t test", "test: paired_t, or stopping: fixed"),
    ("analysis.zeros: wilcox", "no test that ranks differences", "wilcoxon", "leave it out"),
    ("analysis.estimand: new_seeds_and_items", "analysis.test: not items",
     "test: items, because a test over seeds knows no items and speaks of new seeds on these ones",
     "test: items, or estimand: new_seeds"),
    ("analysis.test: items", "trainer: command",
     "trainer: gpt, because a command leaves one number a step and metric, and no items", "test: paired_t"),
    ("analysis.test: items", "measure.harness: none",
     "measure.harness, whose items are measured, or a test over seeds", "test: paired_t"),
    ("analysis.also: items", "trainer: command",
     "trainer: gpt, because a command leaves one number a step and metric, and no items", "also: []"),
    ("analysis.also: items", "measure.harness: none",
     "measure.harness, whose items are measured, or a test over seeds", "also: []"),
    ("estimand is not said", "analysis.test: items",
     "estimand: new_seeds (these items are the ones that matter), or new_seeds_and_items (both are samples, and the "
     "interval is wider)", "estimand: new_seeds_and_items"),
    ("measure.harness: given", "an arm that reads token ids",
     "tokenizer: char or {bpe: N}, over a corpus of text, for every variant: tasks are texts",
     "a corpus of text; or no measure.harness"),
)
OF_CLAIMS = _rows(
    ("a claim with a constant", "analysis.test: welch",
     "a test of one group: paired_t is then the one-sample t test", "test: paired_t"),
    ("a claim with a constant", "analysis.test: items",
     "claims between arms: items are compared with the same items of another arm",
     "test: paired_t, over the runs' own values"),
    ("a claim with a constant", "analysis.also: items",
     "claims between arms: items are compared with the same items of another arm",
     "test: paired_t, over the runs' own values"),
    ("a claim about a metric without items", "analysis.test: items",
     "claims about harness/accuracy or harness/macro_accuracy, or a test over seeds", "test: paired_t"),
    ("analysis.also: items", "no claim about a metric with items",
     "a claim about harness/accuracy or harness/macro_accuracy", "also: []"),
    ("a claim about items on a logarithm", "analysis.test: items",
     "scale: raw, because the score of one item may be 0, which has no logarithm", "scale: raw"),
    ("a claim about items on a logarithm", "analysis.also: items",
     "scale: raw, because the score of one item may be 0, which has no logarithm", "scale: raw"),
)
# fmt: on


def conflicts(study: Study, rows: Sequence[Conflict]) -> Iterator[SpecError]:
    """What is wrong with a study by some rows of the table, one error for each row that it has both things of.

    What else conflicts with a setting that an earlier remedy changes is the same mistake."""
    changed: set[str] = set()
    for row in rows:
        # `this` first: most rows do not apply, and the second side is then never looked for.
        this = None if row.other in changed else next(_matches(study, row.this), None)
        against = next(_matches(study, row.other), None) if this is not None else None
        if this is not None and against is not None:
            yield field_error(this.place, f"{this.words} and {against.words}", row.because, this.fix or row.fix)
            # `analysis.test: items` against three rows would say three times to change the test.
            if row.fix.partition(":")[0] == row.other.partition(":")[0]:
                changed.add(row.other)


def _matches(study: Study, side: str) -> Iterator[Match]:
    """One side of a row as a study has it; nothing where it does not."""
    if side in _FACTS:
        yield from _FACTS[side](study)
        return
    # Four forms of a value: `given`, `none`, words, or `not` and words.
    path, place, value_of_row, words = _read(side)
    value = reduce(lambda outer, name: getattr(outer, name, None), place, cast("Any", study))
    has = _words(value)
    if value_of_row == "given":
        if has:
            yield Match(place, f"{place[-1]} is given")
        return
    if value_of_row == "none" and not has:  # else it is the word of the format, as in `correct: none`
        yield Match(place, f"no {path}")
        return
    matching = [word for word in has if (word in words) is not value_of_row.startswith("not ")]
    if matching:
        listed = ", ".join(f"'{word}'" for word in matching)
        yield Match(place, f"{place[-1]} {'is' if isinstance(value, str) else 'has'} {listed}")


@cache
def _read(side: str) -> tuple[str, tuple[str, ...], str, frozenset[str]]:
    """The path of a setting, the same as a place, the value of a row as it is written, and the words of it."""
    path, _, value = side.partition(": ")
    return path, tuple(path.split(".")), value, frozenset(value.removeprefix("not ").split(" or "))


def _words(value: Any) -> tuple[str, ...]:
    """A setting as words: a text itself, the entries of a list, the fields of a mapping; none where it is left out."""
    if value is None:
        return ()
    if isinstance(value, FrozenModel):
        # Only what the study says itself: a default conflicts with nothing.
        return tuple(field for field in type(value).model_fields if field in value.model_fields_set)
    if isinstance(value, dict | tuple):
        return tuple(str(entry) for entry in value)
    return (str(value),)


Fact = Callable[["Study"], Iterator[Match]]


def _of_study(place: FieldPath, words: str, holds: Callable[[Study], bool]) -> Fact:
    """A fact about the study as one."""
    # Holds at one place of the study; a fact of claims has one for each claim.
    return lambda study: iter([Match(place, words)] if holds(study) else [])


def _of_claims(field: str, words: Callable[[Study, str, Claim], str]) -> Fact:
    """A fact about single claims: what `words` says of one, from its name, lies at the field; empty where it does not
    hold."""

    def matches(study: Study) -> Iterator[Match]:
        for name, claim in study.claims.items():
            if text := words(study, name, claim):
                yield Match(("hypotheses", name, field), text)

    return matches


def _of_token_ids(study: Study) -> Iterator[Match]:
    for arm in study.arms if study.trainer == "gpt" else ():
        if study.training(arm).data.tokenizer == "own":
            yield Match(("variants", arm), f"'{arm}' reads token ids (tokenizer: own), whose tokenizer is not here")


def _without_items(study: Study) -> Iterator[Match]:
    for name, claim in study.claims.items():
        if claim.metric not in ITEM_METRICS:
            fix = nearest(claim.metric, ITEM_METRICS) if claim.metric.startswith("harness/") else ""
            yield Match(("hypotheses", name, "claim"), f"{claim.metric} has no items", fix)


_FACTS: dict[str, Fact] = {
    "seeds of their own for each arm": _of_study(
        ("seeds",), "seeds of their own for each arm", lambda study: bool(study.arm_seeds)
    ),
    "no test that ranks differences": _of_study(
        ("analysis", "test"),
        "no test ranks differences",
        lambda study: "wilcoxon" not in (study.analysis.test, *study.analysis.also),
    ),
    "estimand is not said": _of_study(
        ("analysis", "estimand"),
        "nothing says what the verdict speaks of",
        lambda study: "estimand" not in study.analysis.model_fields_set,
    ),
    "no claim about a metric with items": _of_study(
        ("hypotheses",),
        "no claim is about a metric with items",
        lambda study: not any(claim.metric in ITEM_METRICS for claim in study.claims.values()),
    ),
    "an arm that reads token ids": _of_token_ids,
    "a claim with a constant": _of_claims(
        "claim",
        lambda study, name, claim: f"{name} compares with a constant" if claim.constant is not None else "",
    ),
    "a claim about a metric without items": _without_items,
    "a claim about items on a logarithm": _of_claims(
        "scale",
        lambda study, name, claim: (
            f"scale is '{study.hypotheses[name].scale}'"
            if claim.metric in ITEM_METRICS and study.hypotheses[name].scale != "raw"
            else ""
        ),
    ),
}
