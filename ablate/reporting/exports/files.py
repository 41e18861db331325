"""Files of `ablate report --as`: CSV, LaTeX, figures, by path in the folder of the study.

The pages are bound to the decision by the ledger. These files are for a paper and are meant to be edited: nothing
verifies them, and each follows from the same decision at any time.

CSV is tidy, every number as it was computed: a float is written with as many digits as give it back; a number that does
not exist is an empty field. What the report may not show is not in it, and each row names the study's status, so that a
row that left the others still says whether it may be used. `columns.csv` says what each column is.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from ablate.judge.design.retrospective import design_in_lock, look_back
from ablate.judge.verdict import Finding, Interval, shown_zone
from ablate.reporting.context import ReportContext
from ablate.reporting.description import recorded_metrics
from ablate.reporting.document import Document
from ablate.reporting.exports import figures
from ablate.reporting.latex.paper import paper
from ablate.reporting.view import FindingView
from prereg.escape import visible
from prereg.study.spec import Study
from prereg.text import unit_of

Row = tuple[object, ...]
_STUDY = {
    "study": "the study's id",
    "status": "of the study: decided, inconclusive or inadmissible; rows of an inadmissible study are not to be used",
}


def _bounds(interval: Interval | None) -> Row:
    return (
        (None, None, None, None) if interval is None else (interval.low, interval.high, interval.level, interval.method)
    )


def _n_items(finding: Finding) -> int | None:
    items = finding.estimate.items if finding.estimate else None
    return None if items is None else items.n_items


_FINDING: Mapping[str, tuple[str, Callable[[Finding], object]]] = {
    "hypothesis": ("its name", lambda f: f.hypothesis),
    "claim": ("the claim, as registered", lambda f: f.claim),
    "role": ("the family it was corrected in", lambda f: f.role),
    "exploratory": (
        "true where an amendment after evidence affects it: no verdict rests on it",
        lambda f: bool(f.amended),
    ),
    "outcome": ("supported, refuted or inconclusive", lambda f: f.outcome),
    "zone": (
        "where the effect lies against the margin; empty without one",
        lambda f: f.margin and shown_zone(f.outcome, f.margin),
    ),
    "metric": ("the metric", lambda f: f.metric),
    "unit": ("unit of the difference", lambda f: f.unit),
    "scale": ("scale of the difference: raw, log or log10", lambda f: f.scale),
    "better": ("which way the metric improves", lambda f: f.better),
    "difference": (
        "the claim's left side minus its right side",
        lambda f: f.estimate.difference if f.estimate else None,
    ),
    "se": ("its standard error, where the test has one", lambda f: f.estimate.se if f.estimate else None),
    "df": (
        "degrees of freedom, where the test has one number of them",
        lambda f: f.estimate.df if f.estimate else None,
    ),
    "n": ("pairs of seeds; without pairs, runs of all arms", lambda f: f.n),
    "n_items": ("items of a test over seeds and items", _n_items),
    "test": ("the registered test", lambda f: f.estimate.method if f.estimate else None),
    "margin": ("the smallest difference that matters, on the scale of the difference", lambda f: f.smallest),
    "alpha": ("level of the family", lambda f: f.alpha),
    "family": ("hypotheses corrected together", lambda f: f.family),
    "p_support": ("p to support the claim, uncorrected", lambda f: f.p_support),
    "p_support_adjusted": ("the same, corrected", lambda f: f.p_support_adjusted),
    "p_refute": ("p to refute the claim, uncorrected; empty where it cannot be refuted", lambda f: f.p_refute),
    "p_refute_adjusted": ("the same, corrected", lambda f: f.p_refute_adjusted),
}
"""Column -> what it is, and the value that it holds of a finding."""


_INTERVALS: Mapping[str, tuple[str, Callable[[Finding], Interval | None]]] = {
    "interval": ("by which the claim was judged, as the report shows it", lambda f: FindingView(f, None).bounds),
    "alone": ("of the test alone, two-sided against zero", lambda f: f.estimate.interval if f.estimate else None),
}
_ENDS = {"low": "lower end", "high": "upper end", "level": "confidence level", "method": "how it was computed"}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "findings.csv": {
        **_STUDY,
        **{name: about for name, (about, _) in _FINDING.items()},
        **{
            f"{name}_{end}": f"{said} of the interval {about}; an end that is open is empty"
            for name, (about, _) in _INTERVALS.items()
            for end, said in _ENDS.items()
        },
    },
    "pairs.csv": {
        **_STUDY,
        "hypothesis": "the hypothesis that read the value",
        "metric": "the metric",
        "unit": "its unit, and the scale if not raw",
        "seed": "the seed",
        "side": "left or right side of the claim, or difference; without pairs, arm",
        "arm": "the arm, where a side is one",
        "value": "the value on the registered scale",
    },
    "curves.csv": {
        **_STUDY,
        "arm": "the arm",
        "seed": "the seed",
        "metric": "the metric: those of the claims and tie-breakers, and val/loss",
        "step": "step of training",
        "value": "the recorded value, on the metric's own scale; every evaluation",
    },
    "values.csv": {
        **_STUDY,
        "arm": "the arm",
        "seed": "the seed",
        "metric": "the metric: every one that was recorded",
        "unit": "its unit",
        "value": "its value at the run's last step",
    },
    "tests.csv": {
        **_STUDY,
        "hypothesis": "the hypothesis",
        "test": "the test",
        "decides": "true of the registered test; other tests are description",
        "difference": "left side minus right side, by this test",
        "low": "lower end of its own interval, two-sided against zero and uncorrected; empty where open",
        "high": "its upper end",
        "level": "its level",
        "p": "two-sided p against zero, uncorrected",
        "p_floor": "the smallest p that the test can give at this n",
        "se": "standard error of the difference",
        "df": "degrees of freedom, where there is one number of them",
        "n": "pairs; without pairs, runs of all arms",
        "correlation": "of the two sides over seeds",
    },
    "effects.csv": {
        **_STUDY,
        "hypothesis": "the hypothesis",
        "effect": "d_z, g_z, g_av, hedges_g (at equal variances) or cliff_delta",
        "value": "the standardised effect; the spread over seeds is small for trained models, so large ones are common",
        "low": "lower end of its interval, where there is one",
        "high": "its upper end",
        "level": "its level",
        "method": "how the interval was computed",
        "n": "pairs; without pairs, runs of all arms",
    },
    "checks.csv": {
        **_STUDY,
        "check": "its name; docs/checks.md has what it looks at and why",
        "held": "whether it held",
        "consequence": "what a failure means: inadmissible, deviation or note",
        "found": "what was found",
        "required": "what the registration asks",
    },
    "design.csv": {
        **_STUDY,
        "truth": "the simulated state of the world",
        "ending": "a verdict, no verdict, or a false finding of a family",
        "chance": "its share of the simulated studies",
        "error": "Monte Carlo standard error of the share",
        "at_most": "95% bound, where no simulated study ended so",
        "studies": "simulated studies",
    },
    "plan.csv": {
        **_STUDY,
        "hypothesis": "the hypothesis",
        "n": "pairs that it had",
        "sd": "standard deviation of the differences, as it came",
        "sd_assumed": "as the design assumed it",
        "correlation": "of the two sides over seeds, as it came",
        "correlation_assumed": "as the design assumed it",
        "detectable": "true effect (of a claim of no change, the margin) found with power 80%, at the SD that came",
        "detectable_assumed": "as the design stated it",
        "effect": "true effect at which the power is stated; never the observed one",
        "power": "power there at the SD that came; post hoc, and no part of the verdict",
        "more_seeds": "further seeds for power 80% there, of an inconclusive claim; they are of another study",
    },
}
"""File -> column -> what it is."""


def csv_files(context: ReportContext) -> dict[str, bytes]:
    """File name -> bytes: every table, and what their columns are."""
    rows = {
        "findings.csv": finding_rows(context.decision.findings),
        "pairs.csv": _pairs(context),
        "curves.csv": _curves(context),
        "values.csv": _values(context),
        "tests.csv": _tests(context),
        "effects.csv": _effects(context),
        "checks.csv": _checks(context),
        "design.csv": _design(context),
        "plan.csv": _plan(context),
    }
    # In every row: a row that was copied into another table still says whether it may be used.
    own = (context.decision.study, context.decision.status)
    files = {name: _bytes(COLUMNS[name], ((*own, *row) for row in made)) for name, made in rows.items()}
    described = ((name, column, about) for name, columns in COLUMNS.items() for column, about in columns.items())
    return files | {"columns.csv": _bytes(("file", "column", "meaning"), described)}


def finding_rows(findings: Iterable[Finding]) -> Iterator[Row]:
    """The columns of findings.csv but the first two, of each finding."""
    for finding in findings:
        ends = (end for _, interval in _INTERVALS.values() for end in _bounds(interval(finding)))
        yield (*(value(finding) for _, value in _FINDING.values()), *ends)


def arms_of_sides(study: Study, finding: Finding) -> dict[str, str | None]:
    """Side of a claim, left or right -> its arm; none where it is several arms or a constant."""
    claim = study.claims[finding.hypothesis]
    return {
        side: next(iter(weights)) if list(weights.values()) == [1.0] else None
        for side, weights in (("left", claim.left), ("right", claim.right))
    }


def _pairs(context: ReportContext) -> Iterator[Row]:
    for finding in context.decision.findings:
        arms = arms_of_sides(context.study, finding)
        about = (finding.hypothesis, finding.metric, finding.unit)
        for pair in finding.pairs:
            for side in ("left", "right", "difference"):  # one row a value (tidy data, Wickham 2014)
                yield (*about, pair.seed, side, arms.get(side), getattr(pair, side))
        for sample in finding.samples:
            for seed, value in zip(sample.seeds, sample.values, strict=True):
                yield (*about, seed, "arm", sample.arm, value)


def metrics_of(context: ReportContext) -> list[str]:
    """The metrics whose curves are written: val/loss, and those of the claims and tie-breakers."""
    claimed = [claim.metric for claim in context.study.claims.values()]
    return [*dict.fromkeys(["val/loss", *claimed, *context.study.tie_breakers])]


def _curves(context: ReportContext) -> Iterator[Row]:
    if context.withheld:
        return
    for metric in metrics_of(context):
        for (arm, seed), (steps, values) in context.evidence.lines(metric).items():
            for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                yield arm, seed, metric, step, value


def _values(context: ReportContext) -> Iterator[Row]:
    if context.withheld:
        return
    for metric in recorded_metrics(context.evidence):
        unit = unit_of(metric, own=context.study.own_units)
        for (arm, seed), value in context.evidence.final(metric).items():
            yield arm, seed, metric, unit, value


def _tests(context: ReportContext) -> Iterator[Row]:
    for finding in context.decision.findings:
        for estimate in filter(None, (finding.estimate, *finding.also)):
            # Of each test its own interval; that which decided is in findings.csv.
            low, high, level, _ = _bounds(estimate.interval)
            yield (
                finding.hypothesis,
                estimate.method,
                estimate is finding.estimate,
                estimate.difference,
                low,
                high,
                level,
                estimate.p,
                estimate.p_floor,
                estimate.se,
                estimate.df,
                estimate.n,
                finding.correlation,
            )


def _effects(context: ReportContext) -> Iterator[Row]:
    for finding in context.decision.findings:
        for effect in finding.effects:
            yield finding.hypothesis, effect.name, effect.value, *_bounds(effect.interval), finding.n


def _checks(context: ReportContext) -> Iterator[Row]:
    for check in context.decision.checks:
        yield check.name, check.passed, check.severity, check.found, check.required


def _design(context: ReportContext) -> Iterator[Row]:
    """The chance of each ending of a study, for each simulated state of the world."""
    design = design_in_lock(context.registration) if context.registration.design is not None else None
    for scenario in () if design is None else design.scenarios:
        endings = [(f"verdict: {chance.of}", chance) for chance in scenario.verdicts]
        if scenario.inadmissible:
            endings.append(("no verdict: inadmissible", scenario.inadmissible))
        endings += [(f"any false supported, {chance.of}", chance) for chance in scenario.false_supported]
        endings += [(f"any false refuted, {chance.of}", chance) for chance in scenario.false_refuted]
        for ending, chance in endings:
            yield scenario.name, ending, chance.share, chance.error, chance.at_most, scenario.n_sims


def _plan(context: ReportContext) -> Iterator[Row]:
    if context.withheld:
        return
    names = [name for name in COLUMNS["plan.csv"] if name not in _STUDY]
    for row in look_back(context.registration, context.decision.findings):
        yield tuple(getattr(row, name) for name in names)


def _bytes(heads: Iterable[str], rows: Iterable[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")  # by default it is \r\n, which git would show as a change
    writer.writerow(heads)
    writer.writerows([_field(value) for value in row] for row in rows)
    return text.getvalue().encode()


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    # `repr` of a float is the shortest text that reads back as the same double.
    return repr(value) if isinstance(value, float) else visible(str(value))


Export = Literal["latex", "figures", "csv"]
EXPORTS: tuple[Export, ...] = ("latex", "figures", "csv")


def export_files(form: Export, context: ReportContext, document: Document) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of every file of a form, one after the other."""
    if form == "csv":
        yield from ((f"csv/{name}", data) for name, data in csv_files(context).items())
    elif form == "latex":
        made = paper(context, document)
        yield from ((f"latex/{name}", text.encode()) for name, text in made.texts.items())
        yield from (
            (f"latex/figures/{drawing.stem}.pdf", figures.draw_panel(drawing.panel, "pdf")) for drawing in made.drawings
        )
    else:
        # One file at a time: a large report has some hundred drawings, and the renderer holds one.
        drawn = figures.drawings(document)
        for drawing in drawn:
            yield from (
                (f"figures/{drawing.stem}.{form_}", figures.draw_panel(drawing.panel, form_)) for form_ in figures.FORMS
            )
        yield "figures/captions.md", figures.captions(drawn).encode()
