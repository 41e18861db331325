"""Programme: every confirmatory test that a repository ever registered, how each ended, the false discovery rate.

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
from prereg.registry.ledger_entry import DecidedEntry, Entry, ProposedEntry, RemovingEntry
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
    n_proposals: int
    """Proposals of campaigns, which are not among them."""
    n_removals: int
    """Removals from bests of campaigns, which are not among them either."""
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
        return sum(hypothesis.ending == ending for hypothesis in self.confirmatory)


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
    # Every registration that ever was, each with the one that replaced it.
    # Proposals and removals are counted apart: their campaigns bound their errors together.
    proposals, removals = (
        {entry.run_as for entry in entries if isinstance(entry, kind)} for kind in (ProposedEntry, RemovingEntry)
    )
    promised = dict.fromkeys(entry.study for entry in entries if entry.event in ("registered", "amended"))
    for study in (study for study in promised if study not in proposals | removals):
        history = _distinct(past_registrations(root, study, entries))
        made += zip(history, [*history[1:], None], strict=True)
    # Where git merged two branches, an entry's own index cannot order it among those of the other branch.
    order = places(entries)
    for promise, following in sorted(made, key=lambda made_next: order[made_next[0].entry.sha256]):
        decisions = _decisions(root, promise, entries, order)
        if promise.document is None:
            why = (promise.unknown or "unknown") + (f"; decisions: {len(decisions)}" if decisions else "")
            untold.append(
                Unreadable(
                    study=promise.entry.study,
                    registration=promise.entry.registration,
                    registered_at=promise.entry.at,
                    why=why,
                )
            )
            continue
        undecided: Ending = "never decided"
        if following is not None:
            undecided = "amended away"
        elif _is_quiet(entries, promise.entry.study, now, abandoned_after_days):
            undecided = "abandoned"
        for name, hypothesis in _hypotheses(promise).items():
            # Word for word the same in the registration that followed: one hypothesis, and not two of which
            # one was given up.
            carried = not decisions and following is not None and _hypotheses(following).get(name) == hypothesis
            registered = _registered(promise, name, hypothesis, decisions, undecided, carried_over=carried)
            if registered.role == "exploratory":
                exploratory.append(registered)
                continue
            confirmatory.append(registered)
            # One step for each decision on other evidence, in the order of the ledger.
            for decision in decisions:
                p_support = (decision.findings or {}).get(name, {}).get("p_support")
                stream.append((decision.place, decision.entry, name, p_support))
    return Programme(
        confirmatory=tuple(confirmatory),
        exploratory=tuple(exploratory),
        untold=tuple(untold),
        n_registrations=len(made),
        n_studies=len({promise.entry.study for promise, _ in made}),
        n_proposals=len(proposals),
        n_removals=len(removals),
        steps=_steps(stream, level),
        level=level,
        faults=sound.faults,
        head=sound.head,
    )


def _distinct(history: Sequence[PastRegistration]) -> list[PastRegistration]:
    """Each promise once, where it was last made: one that an amendment took back and a later one restored is one."""
    return sorted({past.entry.registration: past for past in history}.values(), key=lambda past: past.entry.index)


def _hypotheses(promise: PastRegistration) -> dict[str, dict[str, Any]]:
    named = (promise.document or {}).get("hypotheses")
    if not isinstance(named, dict):
        return {}
    return {name: value for name, value in named.items() if isinstance(value, dict)}


def _registered(
    promise: PastRegistration,
    name: str,
    hypothesis: Mapping[str, Any],
    decisions: Sequence[_Decision],
    undecided: Ending,
    *,
    carried_over: bool,
) -> Registered:
    """A hypothesis and how it ended; `undecided` is how it did where there is no decision."""
    last = decisions[-1] if decisions else None
    # Verdict files are read as data, not as models: those of any version count.
    finding: Mapping[str, Any] = {} if last is None else (last.findings or {}).get(name, {})
    ending: Ending = finding.get("outcome") or (undecided if last is None else last.without)
    return Registered(
        study=promise.entry.study,
        registration=promise.entry.registration,
        registered_at=promise.entry.at,
        hypothesis=name,
        claim=str(hypothesis.get("claim")),
        role=str(hypothesis.get("role")),
        proven=promise.proven,
        ending=ending,
        carried_over=carried_over,
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
    study = promise.entry.study
    all_of_study = [entry for entry in entries if entry.study == study and isinstance(entry, DecidedEntry)]
    looks = recorded_afterwards(entry for entry in entries if entry.study == study)
    # The file on disk is that of the last decision; the ledger's hash says of which.
    written, digest = _verdict(root, study)
    # A hash that some decision of the study has is a file that was replaced; any other one was changed by hand.
    others = {entry.verdict_sha256 for entry in all_of_study}
    by_evidence: dict[str, _Decision] = {}
    # A decision repeated on the same evidence keeps the place of the first: it is one step.
    for entry in (entry for entry in all_of_study if entry.registration == promise.entry.registration):
        evidence = entry.evidence
        place = by_evidence[evidence].place if evidence in by_evidence else order[entry.sha256]
        findings: Mapping[str, Mapping[str, Any]] | None = None
        without: Ending = "decided, its verdict file is not here"
        if entry.status == "inadmissible" or any(look.index > entry.index for look in looks):
            # An early look recorded after the decision: by the registered rules there is no verdict.
            without = "inadmissible"
        elif digest == entry.verdict_sha256 and written is not None:
            findings = {str(written_finding["hypothesis"]): written_finding for written_finding in written["findings"]}
        elif digest is not None and digest in others:
            without = "decided, a later decision replaced its file"
        elif digest is not None:
            without = "decided, its verdict file has changed"
        # The last decision on the same evidence speaks for it, at the place of the first.
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


def _is_quiet(entries: Sequence[Entry], study: str, now: str, days: int) -> bool:
    """Whether the ledger has nothing of a study for so long."""
    # By times and not by the last line: a merge may put older entries of one branch behind newer ones of the other.
    last = max(datetime.fromisoformat(entry.at) for entry in entries if entry.study == study)
    return (datetime.fromisoformat(now) - last).days >= days


def _steps(stream: list[tuple[int, Entry, str, float | None]], level: float) -> tuple[Step, ...]:
    if not stream:
        return ()
    from ablate.judge.stats.multiplicity import benjamini_hochberg  # here: it loads scipy

    # Stable: within a decision, hypotheses stay in the order of their study.
    ordered = sorted(stream, key=lambda test: test[0])
    # An unknown p counts as 1: leaving it out would make the family smaller by what cannot be seen, and rates
    # better.
    p = [1.0 if test[3] is None else test[3] for test in ordered]
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
