"""Warnings, what is legal in a study and likely a mistake: one list, which `check`, `register` and `design` print.

To add a warning: a generator of `DesignWarning` in the list of `design_warnings`, worst first, and its kind.

Nothing here refuses a study, and nothing of it enters a lock. Before a design is simulated (`check`), the power of a
paired t is computed exactly, by the noncentral t: of a claim that is corrected with others as an upper bound, before
that correction. With a design, simulated powers take its place, and what registration refuses is not said again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import log, sqrt
from typing import TYPE_CHECKING, Final, Literal

from ablate.judge.design.effects import FEWEST_FOR_CORRELATION, contrast_sd, distance, effect_when_true
from prereg.metrics.catalogue import ITEM_METRICS, task_of
from prereg.rule.condition import Outcome
from prereg.study.analysis import Looks
from prereg.study.measure import PACKS
from prereg.study.spec import Study
from prereg.study.timed import timed_promises
from prereg.text import compact, counted, listed

if TYPE_CHECKING:
    from ablate.judge.design.characteristics import Design
    from ablate.judge.design.reach import HypothesisDesign

LOW_POWER: Final = 0.5
FLOAT32_STEP: Final = 2.0**-21
"""Distance of two float32 numbers from 4 to 8, where the losses of single tokens mostly lie."""
FEW_SEEDS: Final = 5
"""With fewer a test is warned of."""
FEW_AGAINST_CONSTANT: Final = 6
SKEWED: Final[dict[str, tuple[int, float, float]]] = {
    "paired_t": (3, 0.164, 0.003),
    "bootstrap_t": (5, 0.092, 0.007),
    "items": (3, 0.161, 0.008),
}
"""Test -> (seeds, false 'supported', its standard error) with exponential differences, with the fewest seeds measured;
tests/judge/test_design_warnings.py compares them with reports/bench/error-rates.json."""

Power = tuple[float, str, int]
"""A power, how it was found, and seeds for .80: 0 where they are not known."""
Kind = Literal[
    "registration",
    "trainer",
    "rule",
    "direction",
    "power",
    "resolution",
    "seeds",
    "order",
    "correlation",
    "schedule",
    "families",
]


@dataclass(frozen=True)
class DesignWarning:
    """One thing in a study that is likely a mistake."""

    kind: Kind
    about: str
    """The hypothesis or metric; empty where it is the study or an arm."""
    found: str
    """What it is, with its number."""
    fix: str
    """What to type instead."""


def design_warnings(
    study: Study, *, path: str = "STUDY", design: Design | None = None, validation_tokens: int | None = None
) -> tuple[DesignWarning, ...]:
    """Every warning of a study, worst first. `path` is its file, for what to type; `validation_tokens` how many tokens
    are predicted at an evaluation, where that is known."""
    return (
        *_rules(study),
        *_directions(study),
        *_powers(study, design),
        *_seeds(study, design),
        *_orders(study),
        *_resolutions(study, validation_tokens),
        *_correlations(study, path, design),
        *_schedules(study),
        *_roles_apart(study),
    )


def warnings_as_json(warnings: Sequence[DesignWarning]) -> list[dict[str, str]]:
    """Plain data for `--json`."""
    return [{("try" if key == "fix" else key): value for key, value in asdict(warning).items()} for warning in warnings]


_INCONCLUSIVE: Final[Outcome] = "inconclusive"
"""The outcome, and the verdict that states nothing."""
_STATED_P: Final = re.compile(r"(?<![\w'])p\s*[<>=≤≥]\s*\.?\d", re.IGNORECASE)
"""A p value in the words of a verdict."""


def _rules(study: Study) -> Iterator[DesignWarning]:
    """A rule whose verdict no outcome changes, a primary claim that cannot change it, a verdict that states a p."""
    primary = study.families.get("primary", ())
    constant = study.rule.constant_verdict
    if constant is not None:
        text = f"the verdict is '{constant}' whatever comes out: no claim and no stability carries it"
        when = f"supported({primary[0]})" if primary else "supported(HYPOTHESIS)"
        fix = f'decision: [{{verdict: "{constant}", when: "{when}"}}, {{verdict: inconclusive}}]'
        yield DesignWarning("rule", "", text, fix)
    idle = [name for name in primary if name not in study.rule.deciding_hypotheses]
    if idle and constant is None:
        text = f"the primary {'claim' if len(idle) == 1 else 'claims'} {listed(idle)} cannot change the verdict"
        fix = f"a line of the decision that asks about {idle[0]}, or role: exploratory"
        yield DesignWarning("rule", idle[0], text, fix)
    yield from _nothing_found(study)
    for verdict in dict.fromkeys(line.verdict for line in study.decision):
        stated = _STATED_P.search(verdict)
        if stated is not None:
            text = f"the verdict '{verdict}' states a p value, and its words are printed whatever p comes out"
            fix = f"verdict: {verdict[: stated.start()].rstrip(' ,;:(')}; the report states the p of every claim"
            yield DesignWarning("rule", "", text, fix)


def _nothing_found(study: Study) -> Iterator[DesignWarning]:
    """A condition that gives a verdict although every claim is inconclusive, as `not supported(gain)` does."""
    rule, outcomes = study.rule, dict.fromkeys(study.hypotheses, _INCONCLUSIVE)
    stable = dict.fromkeys(study.arms, True)
    ruling = rule.decide(outcomes, stable)
    when = study.decision[ruling.line - 1].when
    # A last line without a condition says openly what is left.
    if when is None or rule.is_remainder(ruling.line) or ruling.verdict == _INCONCLUSIVE:
        return
    asked = rule.decided_by(ruling.line, outcomes, stable)
    if any(question.state in ("stable", "inconclusive") for question in asked):
        return
    name = asked[0].name
    text = f"'{ruling.verdict}' is the verdict also where every claim is inconclusive: '{when}' holds there"
    fix = f"when: refuted({name}), if {name} is to be shown false; or a last line without `when`"
    yield DesignWarning("rule", name, text, fix)


def _directions(study: Study) -> Iterator[DesignWarning]:
    """Verdicts that need the support of a claim, by `raises` or `lowers`, that a metric gets worse: such a claim may be
    turned the wrong way round. Those of `components` say what removing a part does."""
    if study.components is not None:
        return
    worse = {"raises": "lower", "lowers": "higher"}
    turned = {"raises": "lowers", "lowers": "raises", "above": "below", "below": "above"}
    # A claim that the metric gets worse, and a verdict that somebody acts on because of it.
    for verdict, names in study.rule.needed_support.items():
        for name in sorted(names):
            better = study.claims[name].better
            if better == worse.get(study.claims[name].plain_verb):
                claim = study.hypotheses[name].claim
                fix = " ".join(turned.get(word, word) for word in claim.split())
                text = f"'{verdict}' needs {name}: {claim}, and {better} is better"
                yield DesignWarning("direction", name, text, f"claim: {fix}, unless the worse value is meant")


def _roles_apart(study: Study) -> Iterator[DesignWarning]:
    """Families of one role that are corrected apart: each holds alpha, and the role only their sum."""
    if study.analysis.correct == "none":
        return
    by_role: dict[str, list[str]] = {}
    for label, names in study.corrected_together.items():
        role: str = study.hypotheses[names[0]].role
        if role != "exploratory":
            by_role.setdefault(role, []).append(label)
    # Each family holds alpha by itself (Holm), and k of them k alpha together (Bonferroni's inequality).
    for apart, labels in by_role.items():
        if len(labels) > 1:
            k, alpha = len(labels), study.analysis.alpha
            rest = ["the rest of the role" if label == apart else label for label in labels]
            text = (
                f"the {apart} role is {k} families, {listed(rest)}, corrected apart: each has any false 'supported' in "
                f"at most alpha, {compact(alpha)}, and all together in at most {k} alpha, {compact(k * alpha)}; "
                "likewise any false 'refuted'"
            )
            fix = "analysis: {gate: ...}, which holds one alpha over the support of all; or other roles, said so"
            yield DesignWarning("families", labels[0], text, fix)


def _schedules(study: Study) -> Iterator[DesignWarning]:
    """Arms of the built-in trainer whose learning rate never reaches its peak."""
    for arm in study.arms if study.trainer == "gpt" else ():
        config = study.training(arm)
        if config.optim.warmup >= config.budget.steps:
            text = f"the learning rate of '{arm}' never reaches its peak: warmup {config.optim.warmup:,} of"
            fix = f"optim.warmup: {config.budget.steps // 10}, or more steps"
            yield DesignWarning("schedule", "", f"{text} {counted(config.budget.steps, 'step')}", fix)


def _powers(study: Study, design: Design | None) -> Iterator[DesignWarning]:
    for names in _families(study).values():
        with_power = [
            (_exact_power(study, claim) if design is None else _simulated_power(design, claim), claim)
            for claim in names
        ]
        powers = [(power, name) for power, name in with_power if power is not None]
        # One warning for all claims written from one line: the weakest of them.
        if not powers or min(powers)[0][0] >= LOW_POWER:
            continue
        (power, how, seeds), name = min(powers)
        effect = effect_when_true(study, name)
        where = f"if there is no difference (margin {compact(study.hypotheses[name].smallest)})"
        if effect:
            where = f"at a true effect of {compact(effect)}"
        text = f"{name} would be supported with a chance of {100 * power:.2g}% {where}"
        fix = "a less noisy metric, or a larger smallest difference"
        if name in study.assume.effects:
            fix = "a smallest difference below that effect" if _short(study, name) else "a less noisy metric"
        if seeds:
            fix = f"{seeds} seeds, for power 80%; {fix}"
        yield DesignWarning("power", name, f"{text}, n = {study.n_seeds} seeds, {how}", fix)


def _families(study: Study) -> dict[str, list[str]]:
    """Hypothesis, or line `per: task` -> the hypotheses that it is: one warning serves them all."""
    families: dict[str, list[str]] = {}
    for name, hypothesis in study.hypotheses.items():
        families.setdefault(hypothesis.family or name, []).append(name)
    return families


def _short(study: Study, name: str) -> bool:
    """Whether the expected effect is too small for the claim, so that enough seeds refute it."""
    expected, smallest = study.assume.effects.get(name), study.hypotheses[name].smallest
    beyond = study.claims[name].by is not None
    return expected is not None and (expected < smallest or (beyond and expected == smallest))


def _exact_power(study: Study, name: str) -> Power | None:
    """Power of a paired t with a fixed number of seeds at the assumed SD; none for another test, without an SD, or
    without an effect."""
    claim, analysis, n = study.claims[name], study.analysis, study.n_seeds
    belief = study.assume.of(claim.metric)
    if belief is None or analysis.test != "paired_t" or study.stopping != "fixed":
        return None
    if distance(study, name) <= 0.0 and not _short(study, name):
        return None
    from ablate.judge.stats import t_power

    sd = contrast_sd(claim, belief.sd * sqrt(1.0 - belief.correlation), belief.sd * sqrt(max(0.0, belief.correlation)))
    # SDs of the differences are the unit of every textbook power.
    kind, size, together = claim.kind.power, distance(study, name) / sd, len(study.corrected_with(name))
    alone = together == 1 or (analysis.correct == "none" and not study.gate_steps)
    # A change that is shown to be too small to matter is refuted; that also depends on the correction.
    refutable = alone and claim.by is None and not claim.kind.is_absence
    below = study.hypotheses[name].smallest / sd if refutable else None
    power = t_power.t_test_power(kind, size, n, analysis.alpha, refuted_below=below)
    level = analysis.alpha / (1 if alone else together)
    seeds = t_power.seeds_for(kind, size, level, 0.8, refuted_below=below) or 0
    if alone:
        return power, "by the noncentral t", seeds
    correction = "the gate" if study.gate_steps else f"{analysis.correct} over {together}"
    # A level alone does not say how many seeds open a gate, nor how many refute an effect short of the margin.
    seeds_known = not study.gate_steps and not _short(study, name)
    return power, f"by the noncentral t before {correction}, which lowers it", seeds if seeds_known else 0


def _simulated_power(design: Design, name: str) -> Power | None:
    [planned] = [planned for planned in design.hypotheses if planned.hypothesis == name]
    if planned.power is None or name in _refused(design):
        return None
    error = "" if planned.power_error is None else f" (± {100 * planned.power_error:.1g})"
    return planned.power, f"by simulation{error}", planned.seeds_80 or 0


def _refused(design: Design) -> tuple[str, ...]:
    """Hypotheses for which registration is refused, which says so itself."""
    from ablate.judge.design.refusal import obstacle

    refusal = obstacle(design)
    if refusal is None:
        return ()
    if refusal.where.field[:1] == ("hypotheses",):
        return (str(refusal.where.field[1]),)
    return tuple(row.hypothesis for row in design.hypotheses if not (row.can_be_supported and row.can_be_refuted))


def _seeds(study: Study, design: Design | None) -> Iterator[DesignWarning]:
    refused = () if design is None else _refused(design)
    firsts = [names[0] for names in _families(study).values()]
    for planned in _reached(study, design):
        if planned.hypothesis in firsts and planned.hypothesis not in refused:
            yield from _never(study, planned)
    test, n = study.analysis.test, study.n_seeds
    # With few seeds no plot shows skewness, and a t errs most where it is: measured rates, not a rule of thumb.
    if test in SKEWED and n < FEW_SEEDS and study.stopping == "fixed":
        measured, share, error = SKEWED[test]
        text = (
            f"{counted(n, 'seed')} cannot show whether differences are skewed: where they are exponential, {test} "
            f"calls a false claim supported in {100 * share:.1f} ± {100 * error:.1f}% instead of 5%, measured with "
            f"{measured} seeds (reports/bench/error-rates.md)"
        )
        yield DesignWarning("seeds", "", text, f"{FEW_SEEDS} seeds or more, so that an outlier shows")
    sizes = {arm: len(study.seeds_of(arm)) for arm in study.arms}
    if not study.paired and min(sizes.values()) < FEW_SEEDS:
        few = listed(f"{arm} has {counted(n, 'run')}" for arm, n in sizes.items() if n < FEW_SEEDS)
        text = (
            f"{few}: with 8 and 3 runs, the three of four times the variance, {test} calls 7.1% of true nulls "
            "different instead of 5% (docs/designs.md)"
        )
        yield DesignWarning("seeds", "", text, f"{FEW_SEEDS} runs or more of each arm, about equally many")
    constants = [name for name, claim in study.claims.items() if claim.constant is not None]
    if constants and test == "paired_t" and n <= FEW_AGAINST_CONSTANT:
        text = (
            f"{listed(constants)}: skewness does not cancel against a constant, and n = {n} seeds; with 6 seeds and "
            "lognormal values the t test errs in 23% instead of 5% (docs/designs.md)"
        )
        yield DesignWarning("seeds", constants[0], text, "more seeds, or scale: log where values are ratios")


def _reached(study: Study, design: Design | None) -> tuple[HypothesisDesign, ...]:
    """What each claim can end as; before a design only where a test has a floor, since a paired t has none."""
    if design is not None:
        return design.hypotheses
    if study.analysis.test == "paired_t":
        return ()
    from ablate.judge.design.assumptions import Beliefs
    from ablate.judge.design.reach import hypothesis_design

    return tuple(hypothesis_design(study, name, Beliefs()) for name in study.hypotheses)


def _never(study: Study, planned: HypothesisDesign) -> Iterator[DesignWarning]:
    from ablate.judge.design.reach import way_out

    ends: list[tuple[Outcome, float | None, bool]] = [
        ("supported", planned.attainable_support, planned.can_be_supported),
        ("refuted", planned.attainable_refute, planned.can_be_refuted),
    ]
    for state, floor, possible in ends:
        if possible or floor is None:
            continue
        text = (
            f"{planned.hypothesis} can never be {state}: the smallest p of {study.analysis.test} with "
            f"{counted(planned.n, 'seed')} is {floor:.3g}, and alpha is {compact(study.analysis.alpha)}"
        )
        # More seeds lower the floor of p; a t has none.
        n, instead = way_out(study, [(planned.hypothesis, state)])
        fix = instead if n is None else f"{n} seeds, or {instead}"
        yield DesignWarning("seeds", planned.hypothesis, text, fix)


def _orders(study: Study) -> Iterator[DesignWarning]:
    """Where the order of runs leaves a part of a drift of the machine in a claim about a time."""
    timed = timed_promises(study)
    if not timed:
        return
    runs_of_arm = {len(study.seeds_of(arm)) for arm in study.arms}
    if len(runs_of_arm) > 1:
        text = f"arms have different numbers of runs, and {timed[0]}: a drift of the machine cancels only about"
        yield DesignWarning("order", "", text, f"{max(runs_of_arm)} runs of every arm")
        return
    looked_at = study.stopping.looks if isinstance(study.stopping, Looks) else (study.n_seeds,)
    odd = [n for n in looked_at if n % 2]
    if not odd:
        return
    text = f"{listed(map(str, odd))} seeds are an odd number, and {timed[0]}"
    fix = f"{odd[-1] + 1} seeds" if len(looked_at) == 1 else "looks at even numbers of seeds"
    mirror = (
        "a drift of the machine cancels over two seeds, whose orders mirror each other, and the last one has no other"
    )
    yield DesignWarning("order", "", f"{text}: {mirror}", fix)


def _resolutions(study: Study, validation_tokens: int | None) -> Iterator[DesignWarning]:
    for name in (names[0] for names in _families(study).values()):
        claim = study.claims[name]
        margin, scale = study.hypotheses[name].smallest, study.hypotheses[name].scale
        resolution = _step(study, claim.metric, validation_tokens)
        if margin <= 0.0 or resolution is None or any(abs(weight) != 1.0 for weight in claim.weights.values()):
            continue
        step, why = resolution
        if scale != "raw":
            # A share is at most 1, so that its logarithm moves by at least as much; a loss may be larger.
            if why == _ROUNDED:
                continue
            step /= log(10.0) if scale == "log10" else 1.0
        if margin < step:
            text = f"the margin {compact(margin)} of {name} is below the resolution of {claim.metric}: {why}"
            least = f"{step:.2g}"
            yield DesignWarning("resolution", name, text.format(step=least), f"a margin of {least} or more")


_ROUNDED: Final = "losses of tokens are float32, in steps of {step}"
_LOSSES: Final = ("val/loss", "val/bits_per_byte", "train/loss", "length/loss_beyond", "calibration/loss_t")


def _step(study: Study, metric: str, validation_tokens: int | None) -> tuple[float, str] | None:
    """The least step of a run's value, as far as it is known, and what it comes from."""
    if study.trainer == "gpt" and metric.startswith(_LOSSES):
        return FLOAT32_STEP, _ROUNDED
    if metric.startswith("val/accuracy") and "/" not in metric.removeprefix("val/") and validation_tokens:
        return 1.0 / validation_tokens, f"a share of {validation_tokens:,} tokens at most moves in steps of {{step}}"
    # A mean over n items moves in steps of 1 / n.
    harness = study.measure.harness
    if harness is None or metric not in ITEM_METRICS:
        return None
    tasks = 1 if task_of(metric) is not None else PACKS.get(harness.tasks, (0, 0))[0]
    n = tasks * harness.items_per_task * len(harness.shots)
    return (1.0 / n, f"a share of {n:,} items at most moves in steps of {{step}}") if n else None


def _correlations(study: Study, path: str, design: Design | None) -> Iterator[DesignWarning]:
    used = {claim.metric: study.assume.of(claim.metric) for claim in study.claims.values()}
    piloted = design is not None and any(prior.source != "assumed" for prior in design.beliefs)
    pilot = f"ablate try {path} --seeds {FEWEST_FOR_CORRELATION}   (a pilot proposes it)"
    silent = [
        metric for metric, prior in used.items() if prior is not None and "correlation" not in prior.model_fields_set
    ]
    if silent and not piloted and study.paired and study.compares_sides:
        text = f"correlation 0 of two arms over shared seeds is assumed for {listed(silent)}: the study gives none"
        yield DesignWarning("correlation", silent[0], text, pilot)
    # No pilot of `ablate design` measures this one.
    if len(used) > 1 and (piloted or all(used.values())) and study.assume.metric_correlation is None:
        text = (
            f"correlation 0 of the noise of {listed(used)} in one run is assumed for power, and the worst from 0 to 1 "
            "for error rates: the study gives none"
        )
        yield DesignWarning("correlation", "", text, pilot)
