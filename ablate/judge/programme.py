"""Every confirmatory test that a repository ever registered, how each ended, and the false discovery rate over all.

It reads the ledger, the locks, and verdict files whose bytes the ledger vouches for; it changes nothing, and no
verdict depends on it. What is counted: each hypothesis of each distinct registration a study ever had, exploratory
ones apart. What enters the rates, in the order of the ledger's decisions and within a study in that of its file: one
step for each confirmatory hypothesis of each decision, with the uncorrected p of its support; hypotheses that were
registered and never decided are counted and are no step. A step whose p cannot be known (no test was possible, the
evidence was inadmissible, the verdict file is gone or changed) enters as 1: it takes its place and finds nothing.
A decision repeated on the same evidence is one step.

What cannot be known: studies registered in no ledger of this repository; hypotheses of a replaced registration
that the ledger's differences cannot rebuild (`prereg.registry.history`), which are listed without their number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from prereg.frozen import FrozenModel
from prereg.registry.canon import sha256_bytes
from prereg.registry.history import PastRegistration, past_registrations
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry
from prereg.registry.ledger_graph import places
from prereg.registry.looks import recorded_afterwards
from prereg.registry.paths import Root

Ending = Literal[
    "supported",
    "refuted",
    "inconclusive",
    "inadmissible",
    "decided, its verdict file is not here",
    "decided, its verdict file has changed",
    "decided, a later decision replaced its file",
    "amended away",
    "abandoned",
    "never decided",
]
ENDINGS: tuple[Ending, ...] = get_args(Ending)


class _OfRegistration(FrozenModel):
    """What is about one registration."""

    study: str
    """The study's id."""
    registration: str
    """sha256 of the registration."""
    registered_at: str
    """When, by the ledger."""


class Registered(_OfRegistration):
    """One hypothesis of one registration."""

    hypothesis: str
    """Its name."""
    claim: str
    """Its claim."""
    role: str
    """primary, secondary, guardrail or exploratory."""
    proven: bool
    """Whether the registration it is read from has the hash that the ledger names."""
    ending: Ending
    """How it ended. `abandoned`: not decided, and nothing of the study in the ledger for long."""
    carried_over: bool = False
    """Of one amended away: whether the registration that followed held the same hypothesis, word for word."""
    times_decided: int = 0
    """Decisions on different evidence."""
    n: int | None = None
    """Pairs, of one with a finding."""
    method: str | None = None
    """The test."""
    family: int | None = None
    """Hypotheses it was corrected with."""
    p: float | None = None
    """p of its support, uncorrected; none where there is no finding to be used."""
    p_adjusted: float | None = None
    """The same, corrected within its study, by its study's registered correction."""
    p_refute: float | None = None
    """p of its refutation, uncorrected; it enters no rate."""
    p_refute_adjusted: float | None = None
    """The same, corrected within its study."""


class Unreadable(_OfRegistration):
    """A registration whose hypotheses cannot be read."""

    why: str
    """Why."""


class Step(FrozenModel):
    """One decided test, in the order of decisions."""

    number: int
    """From 1."""
    study: str
    """The study's id."""
    registration: str
    """sha256 of the registration."""
    hypothesis: str
    """Its name."""
    decided_at: str
    """When, by the ledger."""
    p: float | None
    """p of its support, uncorrected; none where it cannot be known, and then it counts as 1."""
    bh_adjusted: float
    """Adjusted by Benjamini-Hochberg over all steps."""
    bh_found: bool
    """Whether that is at most the level."""


class Programme(FrozenModel):
    """All of it."""

    confirmatory: tuple[Registered, ...]
    """In the order of registrations."""
    exploratory: tuple[Registered, ...]
    """The same of exploratory hypotheses, which are counted apart and enter no rate."""
    untold: tuple[Unreadable, ...]
    """Registrations known only by their hash."""
    n_registrations: int
    """Distinct registrations, untold ones too."""
    n_studies: int
    """Studies."""
    steps: tuple[Step, ...]
    """Decided tests."""
    level: float
    """False discovery rate."""
    faults: tuple[str, ...]
    """What is wrong with the ledger; only its sound part is counted then."""
    head: str
    """Hash of the last sound entry."""

    def count(self, ending: Ending) -> int:
        """Confirmatory hypotheses that ended so."""
        return sum(one.ending == ending for one in self.confirmatory)


@dataclass(frozen=True)
class _Decision:
    """The last decision on one state of the evidence, and the first's place in the ledger."""

    entry: Entry
    place: int
    findings: Mapping[str, Mapping[str, Any]] | None
    """By hypothesis; none where the verdict file is not the one the ledger hashed."""
    without: Ending
    """How its hypotheses ended where there are no findings."""


def count_programme(root: Root, *, level: float, now: str, abandoned_after_days: int) -> Programme:
    """Count every test of a root. A damaged ledger is counted as far as it is sound, and its faults are listed."""
    sound = Ledger(root.ledger).sound()
    entries = sound.entries
    confirmatory: list[Registered] = []
    exploratory: list[Registered] = []
    untold: list[Unreadable] = []
    stream: list[tuple[int, Entry, str, float | None]] = []
    made: list[tuple[PastRegistration, PastRegistration | None]] = []
    for study in dict.fromkeys(entry.study for entry in entries if entry.event in ("registered", "amended")):
        history = _distinct(past_registrations(root, study, entries))
        made += zip(history, [*history[1:], None], strict=True)
    order = places(entries)
    for promise, following in sorted(made, key=lambda made_next: order[made_next[0].entry]):
        decisions = _decisions(root, promise, entries, order)
        if promise.document is None:
            why = (promise.unknown or "unknown") + (f"; decisions: {len(decisions)}" if decisions else "")
            untold.append(
                Unreadable(study=promise.study, registration=promise.sha256, registered_at=promise.at, why=why)
            )
            continue
        quiet = following is None and _is_quiet(entries, promise.study, now, abandoned_after_days)
        for name, hypothesis in _hypotheses(promise).items():
            registered = _registered(promise, name, hypothesis, decisions)
            if not decisions:
                ending: Ending = "abandoned" if quiet else "never decided"
                kept = False
                if following is not None:
                    ending, kept = "amended away", _hypotheses(following).get(name) == hypothesis
                registered = registered.model_copy(update={"ending": ending, "carried_over": kept})
            if registered.role == "exploratory":
                exploratory.append(registered)
                continue
            confirmatory.append(registered)
            stream += [(decision.place, decision.entry, name, _p(decision, name)) for decision in decisions]
    return Programme(
        confirmatory=tuple(confirmatory),
        exploratory=tuple(exploratory),
        untold=tuple(untold),
        n_registrations=len(made),
        n_studies=len({promise.study for promise, _ in made}),
        steps=_steps(stream, level),
        level=level,
        faults=sound.faults,
        head=sound.head,
    )


def _distinct(history: Sequence[PastRegistration]) -> list[PastRegistration]:
    """Each promise once, where it was last made: one that an amendment took back and a later one restored is one."""
    return sorted({promise.sha256: promise for promise in history}.values(), key=lambda promise: promise.index)


def _hypotheses(promise: PastRegistration) -> dict[str, dict[str, Any]]:
    named = (promise.document or {}).get("hypotheses")
    if not isinstance(named, dict):
        return {}
    return {name: value for name, value in named.items() if isinstance(value, dict)}


def _registered(
    promise: PastRegistration, name: str, hypothesis: Mapping[str, Any], decisions: Sequence[_Decision]
) -> Registered:
    last = decisions[-1] if decisions else None
    finding: Mapping[str, Any] = {} if last is None else (last.findings or {}).get(name, {})
    ending: Ending = finding.get("outcome") or ("never decided" if last is None else last.without)
    return Registered(
        study=promise.study,
        registration=promise.sha256,
        registered_at=promise.at,
        hypothesis=name,
        claim=str(hypothesis.get("claim")),
        role=str(hypothesis.get("role")),
        proven=promise.proven,
        ending=ending,
        times_decided=len(decisions),
        n=finding.get("n"),
        method=(finding.get("estimate") or {}).get("method"),
        family=finding.get("family"),
        p=finding.get("p_support"),
        p_adjusted=finding.get("p_support_adjusted"),
        p_refute=finding.get("p_refute"),
        p_refute_adjusted=finding.get("p_refute_adjusted"),
    )


def _decisions(
    root: Root, promise: PastRegistration, entries: Iterable[Entry], order: Mapping[str, int]
) -> list[_Decision]:
    """The decisions of a registration, one for each state of the evidence, in the ledger's order."""
    all_of_study = [entry for entry in entries if entry.study == promise.study and entry.event == "decided"]
    looks = recorded_afterwards(entry for entry in entries if entry.study == promise.study)
    written, digest = _verdict(root, promise.study)
    others = {entry.body.get("verdict_sha256") for entry in all_of_study}
    by_evidence: dict[str, _Decision] = {}
    for entry in (entry for entry in all_of_study if entry.registration == promise.sha256):
        evidence = str(entry.body.get("evidence"))
        place = by_evidence[evidence].place if evidence in by_evidence else order[entry.sha256]
        findings: Mapping[str, Mapping[str, Any]] | None = None
        without: Ending = "decided, its verdict file is not here"
        if entry.body.get("status") == "inadmissible" or any(look.index > entry.index for look in looks):
            # An early look recorded after the decision: by the registered rules there is no verdict.
            without = "inadmissible"
        elif digest == entry.body.get("verdict_sha256") and written is not None:
            findings = {str(one["hypothesis"]): one for one in written["findings"]}
        elif digest is not None and digest in others:
            without = "decided, a later decision replaced its file"
        elif digest is not None:
            without = "decided, its verdict file has changed"
        by_evidence[evidence] = _Decision(entry, place, findings, without)
    return sorted(by_evidence.values(), key=lambda decision: order[decision.entry.sha256])


def _verdict(root: Root, study: str) -> tuple[dict[str, Any] | None, str | None]:
    """The verdict file's content and hash; its content is believed only where the ledger holds the hash."""
    try:
        data = (root.report(study) / "verdict.json").read_bytes()
    except OSError:
        return None, None
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None, sha256_bytes(data)
    return (content if isinstance(content, dict) else None), sha256_bytes(data)


def _p(decision: _Decision, hypothesis: str) -> float | None:
    found = (decision.findings or {}).get(hypothesis)
    return None if found is None else found["p_support"]


def _is_quiet(entries: Sequence[Entry], study: str, now: str, days: int) -> bool:
    """Whether the ledger has nothing of a study for so long."""
    last = max(datetime.fromisoformat(entry.at) for entry in entries if entry.study == study)
    return (datetime.fromisoformat(now) - last).days >= days


def _steps(stream: list[tuple[int, Entry, str, float | None]], level: float) -> tuple[Step, ...]:
    if not stream:
        return ()
    from ablate.judge.stats.multiplicity import benjamini_hochberg  # here: it loads scipy

    # Stable: within a decision, hypotheses stay in the order of their study.
    ordered = sorted(stream, key=lambda one: one[0])
    p = [1.0 if one[3] is None else one[3] for one in ordered]
    return tuple(
        Step(
            number=number,
            study=entry.study,
            registration=entry.registration,
            hypothesis=name,
            decided_at=entry.at,
            p=p_support,
            bh_adjusted=bh,
            bh_found=bh <= level,
        )
        for number, ((_, entry, name, p_support), bh) in enumerate(
            zip(ordered, benjamini_hochberg(p), strict=True), start=1
        )
    )
