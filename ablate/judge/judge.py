"""Outcomes of claims (`judge_p`): supported, refuted or inconclusive, from p values corrected over hypotheses.

`decide` calls it with one study, `design` with thousands.

    tests by hypothesis -> p of both nulls -> corrected by role, or over the gate -> outcomes
    lost pairs          -> every outcome to reckon with -> whether the rule gives one verdict for all of them
    stable arms, a look -> whether what was found ends a sequential study

What must be rejected, from which side and at which level stands in `ablate.judge.stats.null_hypotheses`; the tests in
`ablate.judge.stats.significance_tests`. A hypothesis that cannot be tested keeps its place in its family with p = 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ablate.judge.stats.kinds import class_of_test, over_seeds, undecided
from ablate.judge.stats.multiplicity import adjusted_rows, holm, holm_rows, levels_tested
from ablate.judge.stats.null_hypotheses import (
    Nulls,
    beyond,
    is_gated,
    levels_of,
    nulls_in,
    nulls_of,
    short_of,
    why_zeros_are_open,
    within,
)
from ablate.judge.stats.sequential import RepeatedT
from ablate.judge.stats.significance_tests import (
    TINY,
    BootstrapT,
    Floats,
    Kept,
    NoTestError,
    PairedT,
    SignificanceTest,
    Welch,
)
from ablate.judge.stats.two_way import Spread, Tail, TwoWay
from ablate.judge.verdict import GateLevel, Zone
from prereg.registry.looks import Look
from prereg.rule.condition import Outcome
from prereg.rule.divergence import ENDS, End, least_of, least_pairs, pushed, refutable
from prereg.study.analysis import LEAST_RUNS, Looks, Stopping
from prereg.study.spec import Study
from prereg.study.verbs import VerbKind
from prereg.text import compact

Codes = npt.NDArray[np.int8]
Rows = npt.NDArray[np.intp]
OUTCOME: tuple[Outcome, ...] = ("supported", "refuted", "inconclusive")
"""What a code means."""
UNDECIDED: Final = "inconclusive"
"""The verdict whose words mean that the study did not decide: it is given whatever was lost."""
_DECIDED, _OPEN = 0b011, 0b100
"""Masks of outcomes: supported and refuted; inconclusive."""

Tested = Iterable[tuple[Rows, SignificanceTest]]
"""The tests of one hypothesis, each of some studies; a study in none of them cannot be tested."""


@dataclass(frozen=True)
class Judged:
    """What became of one hypothesis of one study: p after correction, and the outcome."""

    support: float | None
    """None where there is no test."""
    refute: float | None
    """None where there is no test, or nothing could refute the claim."""
    outcome: Outcome
    note: str = ""
    """What a reader must know of the gate."""
    gate: GateLevel | None = None
    """Under a gate, the levels of its support."""


@dataclass(frozen=True)
class Outcomes:
    """What became of studies, and what the rule makes of it."""

    study: Study
    codes: Codes
    """Studies x hypotheses."""
    stable: Kept
    """Studies x arms."""

    def one_verdict(self) -> Kept:
        """Which studies have one verdict only, also with their lost pairs at their worst."""
        return np.ones(len(self.codes), dtype=bool)

    def ends_the_study(self) -> Kept:
        """Which sequential studies these outcomes end at a look that is not the last (`settles`)."""
        cases, place = distinct(np.concatenate([self.codes, self.stable], axis=1))
        return np.array([settles(self.study, *case_of(self.study, case)) for case in cases], dtype=bool)[place]


@dataclass(frozen=True)
class Judgement(Outcomes):
    """p values and outcomes, studies x hypotheses."""

    names: tuple[str, ...]
    support: Floats
    """p of the null that a claim must reject to be supported; 1 where there is none."""
    refute: Floats
    """p of the null that must be rejected to refute it; 1 where there is none."""
    support_adjusted: Floats
    refute_adjusted: Floats
    lost: Kept | None = None
    """Studies x arms: whether the arm lost runs whose pairs are left out; none where no pair is."""

    def with_p(self, support: Floats, refute: Floats) -> Judgement:
        """The same studies with other p values."""
        return replace(judge_p(self.study, self.names, support, refute), stable=self.stable, lost=self.lost)

    def possible(self, worst: Mapping[End, tuple[Floats, Floats]] | None = None) -> Codes:
        """The outcomes to reckon with, as masks (`possible_codes`): lost pairs may lie at their worst."""
        return possible_codes(self, {} if self.lost is None else ends_of(self.study, self.lost), worst)

    def one_verdict(self) -> Kept:
        if self.lost is None:
            return super().one_verdict()
        possible = self.possible()
        cases, place = distinct(np.concatenate([self.codes, self.stable, possible], axis=1))
        width, arms = self.codes.shape[1], self.stable.shape[1]
        # For each combination of outcomes, stable arms and what is possible once.
        answers = []
        for case in cases:
            outcomes, stable = case_of(self.study, case[: width + arms])
            verdict = self.study.rule.decide(outcomes, stable).verdict
            open_to = outcomes_of_masks(self.names, case[width + arms :])
            as_found = {arm: (is_stable,) for arm, is_stable in stable.items()}
            answers.append(not other_verdicts(self.study, verdict, open_to, as_found))
        return np.array(answers, dtype=bool)[place]

    def single(self, tested: Mapping[str, bool]) -> dict[str, Judged]:
        """What became of every hypothesis of the first study, of which some may have had no test."""
        study, judged_by_name, gates = self.study, {}, {}
        # The levels of the gate, from which supports were let through.
        for together in study.corrected_together.values():
            if is_gated(study, together):
                places = [self.names.index(name) for name in together]
                gates = _gate_levels(study, (self.support_adjusted[0, places] <= study.analysis.alpha).tolist())
        for at, name in enumerate(self.names):
            gate = gates.get(name)
            if not tested[name]:
                judged_by_name[name] = Judged(None, None, "inconclusive", gate=gate)
                continue
            refute = float(self.refute_adjusted[0, at]) if nulls_in(study, name)[1] is not None else None
            note = "" if gate is None else _about_gate(gate)
            support, outcome = float(self.support_adjusted[0, at]), OUTCOME[self.codes[0, at]]
            judged_by_name[name] = Judged(support, refute, outcome, note, gate)
        return judged_by_name


def judge(study: Study, tests: Mapping[str, Tested], lost: Kept | None, stable: Kept) -> Judgement:
    """What becomes of studies of which each hypothesis has these tests.

    Parameters
    ----------
    tests : mapping of hypothesis to tests
        Each test with the rows, or studies, that it is of; a study in none of them cannot be tested.
    lost : array, studies x arms, optional
        Arms that lost runs whose pairs are left out; none where no pair is left out.
    stable : array, studies x arms
        Which arms are stable.

    Returns
    -------
    Judgement: p values before and after correction, outcomes, and what the rule makes of them.
    """
    # p values of all hypotheses, studies x hypotheses, then the correction over each role.
    weighed = [weigh(study, name, tests[name], len(stable))[0] for name in study.hypotheses]
    support, refute = (np.stack([p[which] for p in weighed], axis=1) for which in (0, 1))
    return replace(judge_p(study, tuple(study.hypotheses), support, refute), stable=stable, lost=lost)


def all_stable(study: Study, n_studies: int = 1) -> Kept:
    """That every arm of so many studies is stable."""
    return np.ones((n_studies, len(study.arms)), dtype=bool)


@dataclass(frozen=True)
class Shifted:
    """The same studies under another truth: every difference moved by `by`, and another margin than the registered."""

    by: float = 0.0
    smallest: float | None = None


AS_IT_IS = (Shifted(),)


def weigh(
    study: Study, name: str, tests: Tested, n_studies: int, cases: Sequence[Shifted] = AS_IT_IS
) -> list[tuple[Floats, Floats]]:
    """p of support and of refutation of one hypothesis, study by study, in each case; 1 where it has no p.

    Parameters
    ----------
    tests : tests of the hypothesis
        Each with the rows that it is of. They are used up one at a time: their arrays may be large.
    cases : sequence of Shifted
        The same studies under other true effects and margins. One preparation of the tests serves all of them, because
        every test moves with its differences.

    Returns
    -------
    For each case both p values, one number a study.
    """
    claim = study.claims[name]
    p_by_case = [(np.ones(n_studies), np.ones(n_studies)) for _ in cases]
    for rows, test in tests:
        for both, case in zip(p_by_case, cases, strict=True):
            smallest = study.hypotheses[name].smallest if case.smallest is None else case.smallest
            for p, null in zip(both, nulls_of(claim.verb, claim.better, smallest), strict=True):
                if null is not None:
                    p[rows] = null.p(test, case.by)
        del test  # its arrays make room for the next block's
    return p_by_case


def judge_p(study: Study, names: Sequence[str], support: Floats, refute: Floats) -> Judgement:
    """Outcomes from p values, studies x hypotheses, of whole roles (or the gate) at a time: the only place that
    corrects over hypotheses.

    Parameters
    ----------
    names : sequence of str
        The hypotheses of the columns: all of a role, or of the gate, or none of them.
    support, refute : array, studies x hypotheses
        Uncorrected p values; 1 where there is none.
    """
    alpha, uncorrected = study.analysis.alpha, study.analysis.correct == "none"
    # Support and refutation are corrected apart: each has its own alpha.
    support_adjusted, refute_adjusted = np.empty_like(support), np.empty_like(refute)
    for together in dict.fromkeys(study.corrected_with(name) for name in names):
        places = [names.index(name) for name in together]
        gated, p = is_gated(study, together), support[:, places]
        # A role is a gate of one step.
        steps = study.gate_steps if gated else [together]
        support_adjusted[:, places] = p if uncorrected and not gated else adjusted_rows(steps, p)
    for family in dict.fromkeys(study.family_of(name) for name in names):
        places = [names.index(name) for name in family]
        refute_adjusted[:, places] = refute[:, places] if uncorrected else holm_rows(refute[:, places])
    # Adjusted p values are compared with alpha itself, so that outcome and printed p cannot disagree.
    refuted = refute_adjusted <= alpha
    # Where both hold, the difference is real and smaller than what matters: it refutes a claim of a difference.
    yields = np.array([study.claims[name].kind.is_absence for name in names])
    supported = (support_adjusted <= alpha) & (~refuted | yields)
    codes = np.where(supported, 0, np.where(refuted, 1, 2)).astype(np.int8)
    stable = all_stable(study, len(codes))
    return Judgement(study, codes, stable, tuple(names), support, refute, support_adjusted, refute_adjusted)


def judge_nulls(study: Study, nulls: Mapping[str, Nulls | None]) -> Judgement:
    """`judge_p` of one study whose p values are known; a hypothesis without a test keeps its place with p = 1."""
    untested = Nulls(1.0, None)
    both = [nulls[name] or untested for name in study.hypotheses]
    refute = [1.0 if p.refute is None else p.refute for p in both]
    return judge_p(study, tuple(study.hypotheses), np.array([[p.support for p in both]]), np.array([refute]))


def possible_codes(
    judged: Judgement,
    ends: Mapping[End, Kept],
    worst: Mapping[End, tuple[Floats, Floats]] | None = None,
) -> Codes:
    """A bit for each outcome to reckon with, studies x hypotheses.

    `ends` are the ends towards which lost pairs push each hypothesis: its p values are taken there in the family that
    it is corrected in. `worst` are p values at each end where something else is in doubt.
    """
    study = judged.study
    # A claim that nothing refutes keeps p = 1 there, however far lost pairs push it.
    can = np.array([refutable(study, name) for name in judged.names])
    possible = np.left_shift(1, judged.codes).astype(np.int8)
    for end in ENDS:
        support, refute = (judged.support, judged.refute) if worst is None else worst[end]
        moved = ends.get(end)
        if moved is not None:
            # p at its best and at its worst: 0 and 1, as far as a p can be 0.
            at = (TINY, 1.0) if end == "supported" else (1.0, TINY)
            support = np.where(moved, at[0], support)
            refute = np.where(moved, np.where(can, at[1], 1.0), refute)
        possible |= np.left_shift(1, judged.with_p(support, refute).codes).astype(np.int8)
    # Inconclusive lies between the two.
    possible[possible & _DECIDED == _DECIDED] |= _OPEN
    return possible


def ends_of(study: Study, lost: Kept) -> dict[End, Kept]:
    """End -> studies x hypotheses: whether lost pairs push the hypothesis there. `lost` is studies x arms."""
    ends: dict[End, Kept] = {}
    for end in ENDS:
        # hypotheses x arms; with lost (studies x arms) it says which studies have a pair lost that pushes this
        # way.
        pushing = np.array([[end in pushed(study, name, arm) for arm in study.arms] for name in study.hypotheses])
        ends[end] = (lost[:, None, :] & pushing[None]).any(axis=2)
    return ends


def case_of(study: Study, row: Iterable[int]) -> tuple[dict[str, Outcome], dict[str, bool]]:
    """Outcomes and stable arms of a row that holds the codes of all hypotheses, then those of all arms."""
    codes = list(row)
    outcomes = {name: OUTCOME[code] for name, code in zip(study.hypotheses, codes, strict=False)}
    stable = zip(study.arms, codes[len(outcomes) :], strict=True)
    return outcomes, {arm: bool(is_stable) for arm, is_stable in stable}


def outcomes_of_masks(names: Sequence[str], masks: Codes) -> dict[str, frozenset[Outcome]]:
    """Hypothesis -> the outcomes of its mask, of one study.

    Examples
    --------
    >>> sorted(outcomes_of_masks(["gain"], np.array([0b101]))["gain"])
    ['inconclusive', 'supported']
    """
    return {
        name: frozenset(outcome for code, outcome in enumerate(OUTCOME) if int(mask) >> code & 1)
        for name, mask in zip(names, masks, strict=True)
    }


def other_verdicts(
    study: Study, verdict: str, possible: Mapping[str, frozenset[Outcome]], stable: Mapping[str, Collection[bool]]
) -> tuple[str, ...]:
    """What else the rule could give; nothing for "inconclusive", which needs no finding."""
    if verdict == UNDECIDED:
        return ()
    return tuple(reachable for reachable in study.rule.verdicts(possible, stable) if reachable != verdict)


def settles(study: Study, outcomes: Mapping[str, Outcome], stable: Mapping[str, bool]) -> bool:
    """Whether these outcomes end a sequential study at a look that is not its last.

    They do when the line that holds has a verdict, and would not hold if nothing had been found.
    """
    # A line that would hold with nothing found (an `else`, say) is no reason to stop: more seeds could still change
    # it.
    ruling = study.rule.decide(outcomes, stable)
    nothing: dict[str, Outcome] = dict.fromkeys(outcomes, "inconclusive")
    return ruling.verdict != UNDECIDED and ruling.line != study.rule.decide(nothing, stable).line


def distinct(table: npt.NDArray[Any]) -> tuple[Codes, Rows]:
    """The distinct rows of a table of small numbers, and which of them each row is: few, however many studies.

    Examples
    --------
    >>> rows, place = distinct(np.array([[0, 1], [2, 1], [0, 1]]))
    >>> sorted(rows.tolist()), rows[place].tolist()
    ([[0, 1], [2, 1]], [[0, 1], [2, 1], [0, 1]])
    """
    base, width = int(table.max(initial=0)) + 1, table.shape[1]
    if base**width < 2**62:
        # One 64-bit number a row is unique many times faster than rows are.
        powers = base ** np.arange(width, dtype=np.int64)
        keys, place = np.unique(table @ powers, return_inverse=True)
        return (keys[:, None] // powers % base).astype(np.int8), place
    rows, place = np.unique(table, axis=0, return_inverse=True)
    return rows.astype(np.int8), place.reshape(-1)


# The gate, the step of the correction, and where an effect lies against its margin: what a finding says beyond p.


def _gate_levels(study: Study, passed: Sequence[bool]) -> dict[str, GateLevel]:
    steps = study.gate_steps
    names = [name for step in steps for name in step]
    levels = levels_tested(steps, passed, study.analysis.alpha)
    return {
        name: GateLevel(weight=1.0 / len(steps[0]) if name in steps[0] else 0.0, level=level)
        for name, level in zip(names, levels, strict=True)
    }


def _about_gate(gate: GateLevel) -> str:
    if gate.level == 0.0:
        return "not tested for support: the gate before it did not open"
    return f"tested for support at the level {compact(float(f'{gate.level:.6g}'))} of the gate"


def step_level(judged: Judgement, name: str, gate: GateLevel | None) -> float | None:
    """The level at which the correction tested the null that was rejected, of the first study: of Holm's step, or of
    the gate; none without a correction."""
    study, at = judged.study, judged.names.index(name)
    supported = OUTCOME[judged.codes[0, at]] == "supported"
    if gate is not None and supported:
        return gate.level
    if study.analysis.correct != "holm":
        return None
    # Holm's step at which this null was rejected: alpha / (m - number of smaller p).
    p = (judged.support if supported else judged.refute)[0]
    together = study.corrected_with(name) if supported else study.family_of(name)
    return study.analysis.alpha / (
        len(together) - sum(bool(p[judged.names.index(member)] < p[at]) for member in together)
    )


@dataclass(frozen=True)
class AgainstMargin:
    """One-sided p values of an effect against the smallest difference that matters, and the zone after correction."""

    reached: float
    short: float
    zone: Zone


def zones(
    study: Study, tests: Mapping[str, SignificanceTest], judged: Mapping[str, Judged]
) -> dict[str, AgainstMargin]:
    """Hypothesis -> where its effect lies against its margin; only those with a margin and a test.

    Description by the tests that decide: an outcome that is itself a test against the margin gives the zone, and the
    rest is corrected over the role as outcomes are; under a gate too, and what the claim says needs its support.
    """
    # 1. One-sided p of each effect against its margin, from both sides.
    p_of: dict[str, tuple[float, float]] = {}
    for name, test in tests.items():
        smallest, sign = study.hypotheses[name].smallest, study.claims[name].direction
        if smallest > 0.0:
            # Evidence that the effect is short of the margin, and that it reaches it; of a claim without a direction
            # on either side, by Bonferroni.
            short = (short_of(sign, smallest) if sign else within(smallest)).p(test)
            sides = [float(beyond(side, smallest).p(test)[0]) for side in ((sign,) if sign else (1, -1))]
            p_of[name] = (min(1.0, len(sides) * min(sides)), float(short[0]))
    # 2. Corrected by role, and read as one of three zones.
    zoned: dict[str, AgainstMargin] = {}
    for names in study.families.values():
        p = [[p_of[name][which] if name in p_of else 1.0 for name in names] for which in (0, 1)]
        corrected = p if study.analysis.correct == "none" else [holm(column) for column in p]
        for name, reached, short_p in zip(names, *corrected, strict=True):
            if name in p_of:
                zone = _implied(study.claims[name].kind, judged[name].outcome)
                if zone is None and min(reached, short_p) <= study.analysis.alpha:
                    zone = "at least the margin" if reached < short_p else "short of the margin"
                    says = (zone == "short of the margin") == study.claims[name].kind.is_absence
                    # What a claim says is not shown by its zone where its gate did not let it pass.
                    if says and judged[name].gate is not None and judged[name].outcome != "supported":
                        zone = None
                zoned[name] = AgainstMargin(*p_of[name], zone or "undecided")
    return zoned


def _implied(kind: VerbKind, outcome: Outcome) -> Zone | None:
    """The zone of an outcome that is a test against the margin."""
    if outcome == "inconclusive" or not kind.against_margin(outcome):
        return None
    return "at least the margin" if outcome == "supported" and kind.has_margin else "short of the margin"


# From differences to the test that decides.


def registered_test(
    study: Study,
    x: Floats,
    *,
    zeros_decide: bool,
    look: Look | None = None,
    rng_seed: int = 0,
    simulated: bool = False,
) -> SignificanceTest:
    """The deciding test of differences, studies x pairs, of one study or of thousands; at a look its adjusted one.

    Raises `NoTestError` where no such test decides from so many pairs. With `simulated` fewer resamples are drawn.
    `zeros_decide`: whether differences that are all exactly zero reject a margin.
    """
    test = _registered_test(study, x, look=look, rng_seed=rng_seed, simulated=simulated)
    if isinstance(test, PairedT | BootstrapT):
        test.zeros_decide = zeros_decide
    return test


def _registered_test(study: Study, x: Floats, *, look: Look | None, rng_seed: int, simulated: bool) -> SignificanceTest:
    if look is not None:
        return at_look(x, study.stopping, look)
    # Over these very items the test is the paired t over the seeds' means.
    method = "paired_t" if study.analysis.test == TwoWay.name else study.analysis.test
    reason = undecided(method, x.shape[1])
    if reason is not None:
        raise NoTestError(reason)
    return over_seeds(method, x, rng_seed=rng_seed, zeros=study.analysis.zeros, simulated=simulated)


def at_look(x: Floats, stopping: Stopping, look: Look) -> RepeatedT:
    """The registered sequential test of the differences that a look sees."""
    assert isinstance(stopping, Looks), stopping
    return RepeatedT(x, looks=stopping.looks, look=look.number, spending=stopping.spending)


# The tests of simulated studies, a block of rows at a time.

_CHUNK = 160_000
"""Numbers held at a time by one array over rows and resamples: 1.3 MB, which a cache holds."""


@dataclass(frozen=True)
class ItemsOf:
    """What a test over seeds and new items knows of each study beyond the seeds' means; see `two_way.Spread`."""

    units: Floats
    """What items (or tasks) add to the variance of the mean difference, the interaction once in it."""
    both: Floats
    """What the interaction of seeds and items adds to it."""
    tail: Tail
    """Of the mean over units, from their weights."""


Items = Mapping[str, ItemsOf]
"""By hypothesis; needed under `estimand: new_seeds_and_items` alone."""


def tests_of(
    study: Study,
    name: str,
    differences: Floats,
    kept: Kept | None = None,
    *,
    rng_seed: int = 0,
    look: Look | None = None,
    items: Items | None = None,
) -> Iterator[tuple[Rows, SignificanceTest]]:
    """The registered test of one hypothesis of simulated studies, studies x seeds, a block of studies at a time.

    `kept` are the pairs that enter. Studies with too few of them are in no block. All studies share the resamples of
    `rng_seed`, as real ones do.
    """
    test, estimand = study.analysis.test, study.analysis.estimand
    assert estimand != "new_seeds_and_items" or items is not None, study.analysis
    if not study.paired:
        yield from _unpaired(study, name, differences, kept)
        return
    zeros_decide = not why_zeros_are_open(study, name)
    numbers = 1 if look is not None else class_of_test(test).numbers(differences.shape[1])
    for rows, x in _blocks(differences, kept, least_pairs(study), numbers):
        if items is not None and estimand == "new_seeds_and_items":
            mine = items[name]
            # MS_S / (S I): the variance of the seeds' means over S. The luck of items is the same for all seeds and
            # leaves it alone.
            spread = Spread(x.var(axis=1, ddof=1) / x.shape[1], mine.units[rows], mine.both[rows])
            yield rows, TwoWay(x, spread, mine.tail, levels=levels_of(study, name))
            continue
        try:
            test_of_rows = registered_test(
                study, x, zeros_decide=zeros_decide, look=look, rng_seed=rng_seed, simulated=True
            )
            yield rows, test_of_rows
        except NoTestError:
            continue  # too few pairs are left


def _blocks(differences: Floats, kept: Kept | None, least: int, numbers: int) -> Iterator[tuple[Rows, Floats]]:
    """Studies with equally many complete pairs, a block at a time."""
    step = max(1, _CHUNK // numbers)
    for rows, values in _complete(differences, kept, least):
        for start in range(0, len(rows), step):
            yield rows[start : start + step], values[start : start + step]


def _complete(differences: Floats, kept: Kept | None, least: int) -> Iterator[tuple[Rows, Floats]]:
    """Studies with equally many complete pairs, all or at least `least`, and these pairs in the order of the seeds."""
    if kept is None:
        yield np.arange(len(differences)), differences
        return
    # Studies with equally many pairs are one array: every test needs one n.
    counts = kept.sum(axis=1)
    for count in np.unique(counts):
        rows = np.flatnonzero(counts == count)
        if count >= (2 if count == differences.shape[1] else least):
            yield rows, np.ascontiguousarray(differences[rows][kept[rows]].reshape(len(rows), count))


def _unpaired(study: Study, name: str, values: Floats, kept: Kept | None) -> Iterator[tuple[Rows, SignificanceTest]]:
    """Welch's test of every study that has enough runs of each arm, studies with equally many runs together.

    A row holds the runs of a study, arm by arm: as many columns for every arm of the claim as the largest arm has runs,
    in the order of the claim's weights. A run that is not planned is NaN, and one that was lost is not `kept`.
    """
    weights = np.array(list(study.claims[name].weights.values()))
    parts = columns_by_arm(study, name, values) * weights[None, :, None]
    # A run is missing because it was never planned (NaN) or because it was lost (`kept`).
    there = ~np.isnan(parts)
    planned = there[:1].sum(axis=2)
    if kept is not None:
        there &= kept.reshape(parts.shape)
    counts = there.sum(axis=2)
    # An arm that lost runs needs as many as the study registered; one that lost none, as many as the test.
    least = np.array([[least_of(study, int(size)) for size in planned[0]]])
    enough = np.all((counts >= LEAST_RUNS) & ((counts == planned) | (counts >= least)), axis=1)
    for sizes in np.unique(counts[enough], axis=0):
        rows = np.flatnonzero(enough & np.all(counts == sizes, axis=1))
        yield rows, Welch([parts[rows, at][there[rows, at]].reshape(rows.size, n) for at, n in enumerate(sizes)])


def columns_by_arm(study: Study, name: str, values: Floats) -> Floats:
    """The columns of a claim without pairs by arm: studies x arms x runs."""
    weights = study.claims[name].weights
    return values.reshape(len(values), len(weights), values.shape[1] // len(weights))


def moved_by(study: Study, name: str, values: Floats, by: float) -> Floats:
    """The same studies with an effect that is larger by this: the runs of the first arm are shifted."""
    # Moving the first arm alone moves the weighted sum: no other arm's runs change.
    weight = next(iter(study.claims[name].weights.values()))
    arms = columns_by_arm(study, name, values).copy()
    arms[:, 0] += by / weight
    return np.asarray(arms.reshape(values.shape))


def judge_rows(
    study: Study,
    differences: Mapping[str, Floats],
    kept: Mapping[str, Kept] | None = None,
    *,
    lost: Kept | None = None,
    stable: Kept | None = None,
    rng_seed: int = 0,
    look: Look | None = None,
    items: Items | None = None,
) -> Judgement:
    """The judgement of simulated studies, by hypothesis studies x seeds, at a look of a sequential study."""
    tests = {
        name: tests_of(
            study,
            name,
            values,
            None if kept is None else kept[name],
            rng_seed=rng_seed,
            look=look,
            items=items,
        )
        for name, values in differences.items()
    }
    # The tests are made and used up block by block, hypothesis by hypothesis (`weigh`).
    n_studies = len(next(iter(differences.values())))
    return judge(study, tests, lost, all_stable(study, n_studies) if stable is None else stable)
