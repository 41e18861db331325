"""Amendments: what each changed, and which claims are exploratory because of it (`AMENDMENT_EFFECTS`).

An amendment made before any evidence changes a plan. One made after evidence may have been chosen by it, so what it
affects is exploratory from then on, in every later table, and no later amendment makes it confirmatory again: the way
back is another study under another name. `AMENDMENT_EFFECTS` says what a change of each field affects; it is what the
code follows and what the documentation shows. Hypotheses of one role correct each other, so an outcome may move
although nothing of its own was changed: how that is bounded is for `ablate.judge.audit.sensitivity` to say, since it
takes p values.

Nothing here knows an outcome. An amendment that does not say what it changed is taken to have changed everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Literal

from prereg.frozen import FrozenModel
from prereg.registry.history import ABSENT
from prereg.registry.ledger_entry import AmendedEntry, Difference, Entry, EvidenceState, PromiseEntry
from prereg.registry.registration import bases_of
from prereg.study.claim import parse_claim
from prereg.study.spec import Study
from prereg.text import counted

Scope = Literal[
    "nothing", "hypothesis", "role", "arm", "level", "baseline", "hypotheses", "stability", "everything", "verdict"
]
_NOBODY = "(the baseline)"


class AmendmentEffect(FrozenModel):
    """What a change of some fields affects."""

    fields: tuple[str, ...]
    """Fields of the study, with everything below them; the longest that fits counts."""
    scope: Scope
    """What is affected, for the code."""
    said: str
    """What is affected, as text."""
    why: str
    """Why."""
    keeps_runs: bool = True
    """Whether runs of the earlier registration are runs of the amended one: nothing that they depend on is changed."""


AMENDMENT_EFFECTS: tuple[AmendmentEffect, ...] = (
    AmendmentEffect(
        fields=("title", "question", "labels", "report", "tie_breakers", "assume", "analysis.also"),
        scope="nothing",
        said="nothing",
        why="words, beliefs of the design and description: no outcome and no verdict depends on them",
    ),
    AmendmentEffect(
        fields=("hypotheses.H",),
        scope="hypothesis",
        said="H",
        why="another claim, margin, scale or reading is another test",
    ),
    AmendmentEffect(
        fields=("hypotheses.H, added or removed", "hypotheses.H.role", "hypotheses.H.family"),
        scope="role",
        said="every hypothesis of the role or family, old and new, or of the gate; H alone under correct: none",
        why="the correction runs over another family",
    ),
    AmendmentEffect(
        fields=("variants.ARM",),
        scope="arm",
        said="hypotheses whose claim names ARM, and stable(ARM)",
        why="another arm is another comparison",
        keeps_runs=False,
    ),
    AmendmentEffect(
        fields=("factors.F.LEVEL",),
        scope="level",
        said="the same for every arm with that level; everything where factors or levels come, go or change places",
        why="several arms have the same level",
        keeps_runs=False,
    ),
    AmendmentEffect(
        fields=("commits",),
        scope="nothing",
        said="nothing, besides what follows for the arms whose commit it is",
        why="which files a commit means: a name that the study keeps means what it meant at its registration",
    ),
    AmendmentEffect(
        fields=("baseline",),
        scope="baseline",
        said="hypotheses whose claim leaves its right side to the baseline",
        why="they compare with another arm",
    ),
    AmendmentEffect(
        fields=("analysis",),
        scope="hypotheses",
        said="every hypothesis",
        why="another test, level or correction",
    ),
    AmendmentEffect(
        fields=("components",),
        scope="hypotheses",
        said="every hypothesis, besides what follows for the arms and claims that they write",
        why="the mean of a group of arms may be one of other arms",
        keeps_runs=False,
    ),
    AmendmentEffect(
        fields=("stable.loss_spike", "stable.reached"),
        scope="stability",
        said="stable(ARM) of every arm",
        why="another meaning of a spike, or another level to reach; tests do not read it",
    ),
    AmendmentEffect(
        fields=(
            "base",
            "tune",
            "corpus",
            "data",
            "seeds",
            "arm_seeds",
            "measure",
            "stopping",
            "stable",
            "trainer",
            "command",
            "working_directory",
            "code",
            "scripts",
            "data_files",
            "tasks",
            "metrics",
        ),
        scope="everything",
        said="every hypothesis, and stable(ARM) of every arm",
        why="other runs, other values, or another moment to stop",
        keeps_runs=False,
    ),
    AmendmentEffect(
        fields=("decision",),
        scope="verdict",
        said="the verdict: there is none",
        why="a rule that was chosen after evidence decides nothing",
    ),
)
"""From fields to what they affect. A field that is not among them affects everything, and the verdict."""


class Affected(FrozenModel):
    """What amendments after evidence affect: name -> why, one phrase a field."""

    hypotheses: dict[str, tuple[str, ...]] = {}
    """Hypotheses that are exploratory from then on."""
    arms: dict[str, tuple[str, ...]] = {}
    """Arms whose `stable` cannot be evaluated."""
    verdict: tuple[str, ...] = ()
    """Changes after which no verdict is given."""


def amendments_of(entries: Iterable[Entry]) -> tuple[AmendedEntry, ...]:
    """The amendments among the entries of a study, oldest first."""
    return tuple(entry for entry in entries if isinstance(entry, AmendedEntry))


def in_short(amendment: AmendedEntry) -> str:
    """For instance `entry 7, after outcomes were read`."""
    failed = f"after {counted(amendment.failed_runs, 'run')} that failed and left no contrast"
    text_by_evidence: dict[EvidenceState, str] = {
        "none": failed if amendment.failed_runs else "before any run",
        "runs started": "after runs started",
        "outcomes read": "after outcomes were read",
    }
    return f"entry {amendment.index}, {text_by_evidence[amendment.evidence]}"


def affected(study: Study, amendments: Iterable[AmendedEntry]) -> Affected:
    """What all amendments after evidence affect, by the names of the study in force."""
    hypotheses: dict[str, list[str]] = {}
    arms: dict[str, list[str]] = {}
    verdict: list[str] = []
    for amendment in amendments:
        # Before any evidence nothing could have chosen the change: it leaves every claim confirmatory.
        if not amendment.after_evidence:
            continue
        for field, (names, variants, rule) in reached(study, amendment.differences).items():
            phrase = f"{field} ({in_short(amendment)})"
            for names_of_kind, phrases_by_name in ((names, hypotheses), (variants, arms)):
                for name in names_of_kind:
                    phrases_by_name.setdefault(name, []).append(phrase)
            verdict += [phrase] if rule else []
    return Affected(
        # Names of the study in force, in its order; a hypothesis that was removed since is in no table.
        hypotheses={name: tuple(hypotheses[name]) for name in study.hypotheses if name in hypotheses},
        arms={arm: tuple(arms[arm]) for arm in study.arms if arm in arms},
        verdict=tuple(verdict),
    )


def promise_in_force(entries: Sequence[Entry], lineage: Sequence[str]) -> PromiseEntry | None:
    """The entry of the promise in force, among the entries of its study; none where the ledger does not hold it. An
    amendment that affects nothing promises nothing new."""
    # The newest promise that changed more than words: looks at other studies are compared with its place.
    promises = [entry for entry in entries if isinstance(entry, PromiseEntry) and entry.registration in lineage]
    new = [
        entry
        for entry in promises
        if not isinstance(entry, AmendedEntry)
        or any(scope_of(difference.field) != "nothing" for difference in entry.differences)
    ]
    return next(reversed(new or promises[:1]), None)


Reach = tuple[set[str], set[str], bool]


def reached(study: Study, differences: Sequence[Difference]) -> dict[str, Reach]:
    """Field -> (hypotheses, arms, whether the verdict) that its change affects."""
    everything: Reach = (set(study.hypotheses), set(study.arms), True)
    if not differences:
        return {"what it changed is not on record": everything}
    return {difference.field: _reach(study, difference, everything) for difference in differences}


def keeps_runs(differences: Iterable[Difference]) -> bool:
    """Whether an amendment changes nothing that a run depends on: then the runs that were made stay its runs.

    >>> words, steps = (Difference(field=field, registered=1, now=2) for field in ("title", "base.steps"))
    >>> keeps_runs([words]), keeps_runs([words, steps])
    (True, False)
    """
    # bool(rows): an amendment that does not say what it changed keeps nothing.
    rows = [effect_of(difference.field) for difference in differences]
    return bool(rows) and all(row is not None and row.keeps_runs for row in rows)


def chain_faults(entries: Iterable[Entry]) -> list[str]:
    """Where one study's registrations do not follow one another: each amends the one before, the first amends none, and
    none keeps runs that its change makes other ones."""
    entries = list(entries)
    faults: list[str] = []
    # Which runs an amendment may keep follows from the entries before it, and from nothing that it says itself.
    for amendment in amendments_of(entries):
        if amendment.runs_of:
            bases = bases_of(entry for entry in entries if entry.index < amendment.index)
            if amendment.runs_of != bases.get(amendment.amends) or not keeps_runs(amendment.differences):
                faults.append(
                    f"entry {amendment.index} keeps the runs of {amendment.runs_of[:8]}, which are not its runs"
                )
    # Second, the chain of promises itself: one first registration, each later one amending the one before.
    before: PromiseEntry | None = None
    for entry in (entry for entry in entries if isinstance(entry, PromiseEntry)):
        if before is None:
            if entry.amends is not None:
                faults.append(f"entry {entry.index} amends a registration that the ledger does not hold")
        elif entry.amends is None:
            faults.append(f"entry {entry.index} registers what entry {before.index} had registered already")
        elif entry.amends != before.registration:
            faults.append(
                f"entry {entry.index} amends {entry.amends[:8]}, and the registration before it, entry {before.index}, "
                f"is {before.registration[:8]}"
            )
        before = entry
    return faults


def _reach(study: Study, difference: Difference, everything: Reach) -> Reach:
    field, (hypotheses, arms, _) = difference.field, everything
    # One branch for each scope of the table; None is a field that the table does not have, and affects all.
    match scope_of(field):
        case "nothing":
            reach: Reach = (set(), set(), False)
        case "hypothesis" | "role":
            reach = (_hypotheses_reached(study, difference), set(), False)
        case "arm":
            reach = _reach_of_arms(study, _named_in(field, "variants", study.variants))
        case "level":
            reach = _reach_of_arms(study, _arms_with_level(study, difference))
        case "baseline":
            # A claim that names one arm alone is about the baseline too: read with a baseline that no study has.
            claims = {name: parse_claim(h.claim, baseline=_NOBODY) for name, h in study.hypotheses.items()}
            reach = ({name for name, claim in claims.items() if _NOBODY in claim.named}, set(), False)
        case "hypotheses":
            reach = (hypotheses, set(), False)
        case "stability":
            reach = (set(), arms, False)
        case "everything":
            reach = (hypotheses, arms, False)
        case "verdict":
            reach = (set(), set(), True)
        case None:
            reach = everything
    return reach


def _reach_of_arms(study: Study, arms: set[str]) -> Reach:
    return {name for name, claim in study.claims.items() if arms & set(claim.named)}, arms, False


def scope_of(field: str) -> Scope | None:
    """What the change of a field affects by the table; none for a field that is not in it.

    >>> scope_of("title"), scope_of("base.optim.lr"), scope_of("hypotheses.gain.smallest")
    ('nothing', 'everything', 'hypothesis')
    """
    row = effect_of(field)
    return None if row is None else row.scope


def effect_of(field: str) -> AmendmentEffect | None:
    """The row of the table for a field; none for a field that is not in it.

    >>> effect = effect_of("hypotheses.gain.smallest")
    >>> effect.scope, effect.keeps_runs, effect.why
    ('hypothesis', True, 'another claim, margin, scale or reading is another test')
    >>> effect_of("no.such.field") is None
    True
    """
    longest: tuple[int, AmendmentEffect] | None = None
    for row in AMENDMENT_EFFECTS:
        for pattern in row.fields:
            # "hypotheses.H.role" and "hypotheses.H" have one stem: of rows with the same stem the first
            # counts.
            stem = pattern.split(".H")[0].split(".ARM")[0].split(".F.")[0]
            if field == stem or field.startswith((f"{stem}.", f"{stem}[")):
                longest = max(longest or (0, row), (len(stem), row), key=lambda match: match[0])
    return None if longest is None else longest[1]


def _hypotheses_reached(study: Study, difference: Difference) -> set[str]:
    field = difference.field
    own = _named_in(field, "hypotheses", study.hypotheses)
    if study.analysis.correct == "none":
        return own
    # Families are corrected apart from the rest of their role, so each is a group of its own.
    of = {name: hypothesis.family or hypothesis.role for name, hypothesis in study.hypotheses.items()}
    moved = [*_families(difference), *(of[name] for name in own if _reshapes(field, name, difference))]
    if _from_or_to_its_role(difference):
        if not own:
            return set(study.hypotheses)  # it was removed since, and nothing here says what its role was
        moved += [study.hypotheses[name].role for name in own]
    # Under a gate all roles share one alpha: a change of one family moves every later step.
    if study.gate_steps and moved:
        return own | set(study.hypotheses)
    return own | {name for name, family in of.items() if family in moved}


def _reshapes(field: str, name: str, difference: Difference) -> bool:
    """Whether the family of a hypothesis has other members since."""
    return field == f"hypotheses.{name}.role" or ABSENT in (difference.registered, difference.now)


def _from_or_to_its_role(difference: Difference) -> bool:
    """Whether a hypothesis left a family for its role, or its role for a family: the difference names one of them."""
    values = (difference.registered, difference.now)
    # A hypothesis that is itself named `X.family` comes or goes as a mapping.
    families = [value for value in values if isinstance(value, str) and value != ABSENT]
    return difference.field.endswith(".family") and None in values and len(families) == 1


def _families(difference: Difference) -> list[str]:
    """Families that a hypothesis left or came to, from the values of the difference."""
    families = []
    for value in (difference.registered, difference.now):
        if isinstance(value, dict) and isinstance(family := value.get("family") or value.get("role"), str):
            families.append(family)
        elif difference.field.endswith((".role", ".family")) and isinstance(value, str):
            families.append(value)
    return families


def _arms_with_level(study: Study, difference: Difference) -> set[str]:
    """Arms with the level that was changed; all where factors or levels came, went or changed places."""
    # Arms of a factorial are named LEVEL-LEVEL-...: the place of its factor says which part of a name a level is.
    levels = {f"{factor}.{level}": (at, level) for at, (factor, names_of_levels) in enumerate(study.factors.items())
              for level in names_of_levels}  # fmt: skip
    changed = [levels[name] for name in _named_in(difference.field, "factors", levels)]
    is_whole_level = difference.field in {f"factors.{name}" for name in levels}
    if not changed or (is_whole_level and ABSENT in (difference.registered, difference.now)):
        return set(study.arms)
    cells = product(*study.factors.values())
    return {"-".join(cell) for cell in cells if any(cell[at] == level for at, level in changed)}


def _named_in(field: str, place: str, names: Iterable[str]) -> set[str]:
    """The names that a dotted field may speak of; names can hold dots themselves, so there may be two."""
    return {
        name
        for name in names
        if field == f"{place}.{name}" or field.startswith((f"{place}.{name}.", f"{place}.{name}["))
    }
