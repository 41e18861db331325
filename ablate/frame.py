"""`ablate judge FILE`, `judge_frame`: judges a table of results without a registration; exploratory, labelled so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.notebook.results import Results
from ablate.records.rows import TableLayout
from ablate.records.tables import LONG, guess_columns, read_frame, require_complete
from prereg.errors import EvidenceError, SpecError, nearest
from prereg.study.claim import parse_claim

if TYPE_CHECKING:
    import pandas as pd

    from ablate.judge.verdict import Finding
    from ablate.reporting.document import Document
    from ablate.reporting.view import FindingView
    from prereg.study.spec import Study

_UNREGISTERED = "not registered. Nothing here was promised before the values were known."
LABEL = f"EXPLORATORY: {_UNREGISTERED}"
_NAME = "frame"


@dataclass(frozen=True, repr=False)
class JudgedFrame(Results):
    """What the tests say of a table. In a notebook it shows itself; `print` it elsewhere."""

    judged: tuple[Finding, ...]
    """The judge's findings, in the order of the claims."""
    study: Study
    """The study that the claims, arms and seeds would make; it is not registered, and has no verdict."""

    def __repr__(self) -> str:
        outcomes = ", ".join(f"{finding.hypothesis}={finding.outcome!r}" for finding in self.judged)
        return f"JudgedFrame({outcomes}, status={self.status!r})"

    @property
    def status(self) -> str:
        """exploratory, always."""
        return "exploratory"

    @property
    def table(self) -> pd.DataFrame:
        """One row per claim: outcome, difference, the interval that agrees with the outcome, p, n and test."""
        import pandas as pd

        # p of the direction that decided it; the other one says nothing about the outcome.
        rows = []
        for view in self._views:
            finding, bounds, estimate = view.finding, view.bounds, view.estimate
            rows.append(
                {
                    "claim": finding.claim,
                    "outcome": finding.outcome,
                    "difference": None if estimate is None else estimate.difference,
                    "low": None if bounds is None else bounds.low,
                    "high": None if bounds is None else bounds.high,
                    "level": None if bounds is None else bounds.level,
                    "p": finding.p_refute_adjusted if finding.outcome == "refuted" else finding.p_support_adjusted,
                    "n": finding.n,
                    "test": view.test,
                }
            )
        return pd.DataFrame(rows, index=[finding.hypothesis for finding in self.judged])

    def __str__(self) -> str:
        from ablate.reporting.forest import text_forest
        from ablate.reporting.wording import phrase

        sentences = [f"{view.name}: {phrase('finding.sentence', view)}" for view in self._views]
        notes = [f"{finding.hypothesis}: {note}" for finding in self.judged for note in finding.notes]
        return "\n".join([LABEL, "", *text_forest(self._views), "", *sentences, *notes])

    @property
    def _views(self) -> list[FindingView]:
        from ablate.reporting.view import views_of

        return views_of(self.judged, self.study)

    @property
    def _study(self) -> Study:
        return self.study

    def _require_findings(self) -> tuple[Finding, ...]:
        return self.judged

    def _first_screen(self) -> Document:
        from ablate.reporting.blocks import Block, Paragraph
        from ablate.reporting.document import Banner, Document
        from ablate.reporting.forest import forest_figure
        from ablate.reporting.view import Shared
        from ablate.reporting.wording import phrase

        views = self._views
        reasons = tuple(f"{view.name}: {phrase('finding.sentence', view)}" for view in views)
        opening: list[Block] = [forest_figure(views)]
        opening += [Paragraph(f"{finding.hypothesis}: {note}") for finding in self.judged for note in finding.notes]
        opening += [Paragraph(phrase("finding.legend", Shared(views)), "aside")]
        return Document("", "", Banner(self.status, "Exploratory", _UNREGISTERED, reasons, ()), tuple(opening), ())


def judge_frame(
    table: pd.DataFrame | str | Path,
    claims: str | Sequence[str] | Mapping[str, str | Mapping[str, Any]],
    *,
    smallest: float | None = None,
    baseline: str | None = None,
    arm: str | None = None,
    seed: str | None = None,
    step: str | None = None,
    run_pattern: str | None = None,
    test: str = "paired_t",
    alpha: float = 0.05,
    correct: str = "holm",
) -> JudgedFrame:
    """The registered tests on a table with a row per run (or per run and step, of which the last is read).

    `table` is a frame, or a file: CSV, JSON lines or Parquet. Of a file, long rows (metric, value) and the panel export
    of W&B (`RUN - METRIC` columns, whose run names hold arm and seed as `run_pattern` says, `{variant}-{seed}` or
    `{variant}_seed{seed}` and the like by default) are read as what they are.

    Columns of arm, seed, step and metrics are guessed by their names where they are not given. A claim is written as
    in a study, "fast lowers val/loss by at least 0.05", about a column of the table; `smallest`
    is the smallest difference that matters to claims that do not say one, or a mapping name -> {claim, smallest, scale,
    role} gives each its own. The baseline is the arm of the first row, unless given. A seed that some arm of a claim
    lacks is left out, and then the claim is given an outcome only if it is the same whatever the missing values were.
    Without pairs: `test="welch"`, with seeds that no arms share, or the same seeds for all.

    Raises `StudyError` for a table or a claim that cannot be read, a column that cannot be guessed, a run without a
    finite value or with one that the metric cannot have, and runs that end at different steps.

    >>> import pandas as pd
    >>> acc = pd.DataFrame({"arm": ["a"] * 4 + ["b"] * 4, "seed": [1, 2, 3, 4] * 2,
    ...                     "acc": [0.80, 0.82, 0.79, 0.81, 0.84, 0.85, 0.82, 0.86]})
    >>> ablate.judge_frame(acc, "b raises acc by at least 0.01").table["outcome"].item()
    'supported'
    """
    from ablate.judge.findings import judge_hypotheses

    # The claims say which metrics are needed; the columns of the table say where they are.
    hypotheses = _hypotheses(claims, smallest)
    metrics = dict.fromkeys(parse_claim(str(fields.get("claim")), baseline="").metric for fields in hypotheses.values())
    layout = TableLayout(arm=arm, seed=seed, step=step, run_pattern=run_pattern)
    if isinstance(table, (str, Path)):
        table, layout = read_frame(Path(table), metrics, layout), LONG
    columns = [str(column) for column in table.columns]
    layout = guess_columns(columns, layout.model_copy(update={"metrics": metrics}))
    require_complete(columns, layout)
    frame = table.rename(columns={label: metric for metric, label in layout.metrics.items()}).reset_index(drop=True)
    # One row per run, values by (arm, seed), then the same tests as for a registered study.
    rows = _last_rows(frame, str(layout.arm), str(layout.seed), layout.step, metrics)
    first_arm = str(frame[layout.arm].iloc[0])
    analysis = {"test": test, "alpha": alpha, "correct": correct}
    study = _study(rows, hypotheses, baseline=baseline or first_arm, analysis=analysis)
    values = {metric: _values(rows, metric, study) for metric in metrics}
    findings = judge_hypotheses(study, values)
    withheld = _withheld(study, findings, set(rows.index))
    return JudgedFrame(judge_hypotheses(study, values, withheld=withheld) if withheld else findings, study)


def _values(rows: pd.DataFrame, metric: str, study: Study) -> dict[tuple[str, int], float]:
    """A metric by arm and seed: finite, and within what the metric can be. Raises `EvidenceError`."""
    from ablate.records.rows import RangeError, require_range

    values = dict(zip(rows.index, _numbers(rows, metric).astype(float), strict=True))
    # A table has no record of a divergence. So a run without a finite value is refused: which ones to leave out is a
    # choice about the data that the judge cannot make.
    for (arm, seed), value in values.items():
        if not isfinite(value):
            raise EvidenceError(
                f"{arm}, seed {seed}, has no finite {metric}",
                required="a value for every run: a run that diverged is an outcome, and to drop it chooses the data",
                fix="a worst value in its place, or the seed left out of every arm and said so",
            )
        try:
            require_range(metric, value, study.metrics.range_of(metric))
        except RangeError as fault:
            raise EvidenceError(
                f"{arm}, seed {seed}: {fault}",
                required="values in the unit in which the claims and their margins are written",
                fix="divide the column by 100, or give it a name of your own, such as accuracy_percent",
            ) from None
    return values


def _withheld(study: Study, findings: Sequence[Finding], there: set[tuple[str, int]]) -> dict[str, str]:
    """Claim -> why its outcome is not given: with missing runs at their worst it, or one of a claim that is corrected
    with it, could be another. Why a run is missing nobody knows, so its value may lie at either end."""
    import numpy as np

    from ablate.judge.judge import judge_nulls, outcomes_of_masks, possible_codes
    from ablate.judge.stats.null_hypotheses import found_nulls
    from prereg.rule.divergence import ENDS
    from prereg.text import counted, listed

    missing = {name: _missing(study, name, there) for name in study.claims}
    outcomes = {finding.hypothesis: finding.outcome for finding in findings}
    # As for a run that diverged in a registered study: the missing value at its best and at its worst, and the
    # outcome only if both give the same.
    ends = dict.fromkeys(ENDS, np.array([[bool(missing[name]) for name in study.hypotheses]]))
    masks = possible_codes(judge_nulls(study, found_nulls(findings)), ends)
    possible = outcomes_of_masks(list(study.hypotheses), masks[0])
    reasons: dict[str, str] = {}
    for name, outcome in outcomes.items():
        if missing[name] or len(possible[name]) > 1:
            # A claim without a gap may hang on one with a gap: they are corrected together.
            cells = missing[name] or [cell for corrected in study.corrected_with(name) for cell in missing[corrected]]
            what = counted(len(cells), "run is", "runs are")
            runs = listed([*(f"{arm}/{seed}" for arm, seed in cells[:5]), *(["others"] if cells[5:] else [])])
            instead = "" if outcome == "inconclusive" else f"inconclusive, not {outcome}: "
            reasons[name] = (
                f"{instead}{what} missing ({runs}), and with its value the outcome could be another: a run that "
                "diverged has a worst value, and one that nobody made can be made"
            )
    return reasons


def _missing(study: Study, name: str, there: set[tuple[str, int]]) -> list[tuple[str, int]]:
    """Runs that some arm of a claim has and another lacks. Arms without pairs lack none where they share no seed."""
    arms = study.claims[name].named
    seeds = {arm: {seed for arm_there, seed in there if arm_there == arm} for arm in arms}  # by arm
    if not study.paired and not set.intersection(*seeds.values()):
        return []
    every = sorted(set.union(*seeds.values()))
    return [(arm, seed) for arm in arms for seed in every if seed not in seeds[arm]]


def _last_rows(frame: pd.DataFrame, arm: str, seed: str, step: str | None, metrics: Iterable[str]) -> pd.DataFrame:
    """One row per run, by (arm, seed)."""
    # Refused in this order: columns, rows, arms, steps, seeds, one row a run. Each later check relies on those before
    # it.
    absent = next((name for name in (arm, seed, step, *metrics) if name and name not in frame.columns), None)
    if absent is not None:
        columns = [str(column) for column in frame.columns]
        raise EvidenceError(
            f"the table has no column '{absent}'",
            required="columns for arm, seed and values",
            fix=nearest(absent, columns) or "one of " + ", ".join(columns),
        )
    if frame.empty:
        raise EvidenceError("the table has no rows", required="a row for every run")
    if frame[arm].isna().any():
        raise EvidenceError(f"column '{arm}' lacks a value in some row", required="an arm for every row")
    ordered = frame
    if step is not None:
        frame = frame.assign(**{step: _numbers(frame, step)})
        # dropna=False: a run whose seed is blank must be refused below, and not vanish here.
        last = frame.groupby([arm, seed], observed=True, dropna=False)[step].transform("max")
        ordered = frame[frame[step].isna() | (frame[step] == last)]
        # A run that ended early is not compared at its own last step: its value is of less training.
        short = ordered[ordered[step] != ordered[step].max()]
        if len(short):
            name, number, last = short.iloc[0][[arm, seed, step]]
            raise EvidenceError(
                f"{name}, seed {number}, ends at step {last}, and other runs at {ordered[step].max()}",
                required="runs that end at the same step",
                fix="leave out the whole seed, if that run counts for nothing, and say so",
            )
    try:
        rows = ordered.set_index([ordered[arm].map(str), ordered[seed].map(_whole)])
    except (TypeError, ValueError, OverflowError):
        raise EvidenceError(
            f"column '{seed}' holds something other than whole numbers", required="a seed for every row"
        ) from None
    if rows.index.has_duplicates:
        name, number = rows.index[rows.index.duplicated()][0]
        raise EvidenceError(
            f"{name}, seed {number}, has several rows",
            required="one row per arm and seed"
            + (", or a column of steps" if step is None else f" at the last {step}"),
            fix='step="step"   (the last step of each run is read)' if step is None else "",
        )
    return rows


def _numbers(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    import pandas as pd

    try:
        return pd.to_numeric(frame[name])
    except (TypeError, ValueError):
        raise EvidenceError(
            f"column '{name}' holds something other than numbers, or there are two of it",
            required="one column of numbers",
        ) from None


def _whole(seed: Any) -> int:
    number = int(seed)  # 3.0 is seed 3, and 3.5 is none
    if not isinstance(seed, str) and number != seed:
        raise ValueError(seed)
    return number


def _hypotheses(
    claims: str | Sequence[str] | Mapping[str, str | Mapping[str, Any]], smallest: float | None
) -> dict[str, dict[str, Any]]:
    """The fields of each claim, by its name, as a study has them."""
    if isinstance(claims, str):
        claims = [claims]
    if not isinstance(claims, Mapping):
        claims = {f"claim_{number}": claim for number, claim in enumerate(claims, start=1)}
    hypotheses: dict[str, dict[str, Any]] = {}
    for name, claim in claims.items():
        fields: dict[str, Any] = {"claim": claim} if isinstance(claim, str) else dict(claim)
        if smallest is not None and " by at least " not in str(fields.get("claim")):
            fields.setdefault("smallest", smallest)
        hypotheses[name] = fields
    return hypotheses


def _study(
    rows: pd.DataFrame, hypotheses: dict[str, dict[str, Any]], *, baseline: str, analysis: dict[str, Any]
) -> Study:
    """A study of these arms, seeds and claims, which trains nothing."""
    from ablate.capabilities import require_supported
    from prereg.study.spec import study_from_document

    # The smallest study that the judge takes: it trains nothing, so its command and configuration are there for form.
    by_arm: dict[str, list[int]] = {}
    for name, number in rows.index:
        by_arm.setdefault(name, []).append(int(number))
    union = sorted({number for numbers in by_arm.values() for number in numbers})
    unpaired = analysis["test"] == "welch"
    first, *_ = by_arm
    document = {
        "study": _NAME,
        "title": _NAME,
        "trainer": "command",
        "command": ["{python}"],
        "base": {"arm": first},
        "baseline": baseline,
        "variants": {name: {} if name == first else {"arm": name} for name in by_arm},
        "seeds": {name: sorted(numbers) for name, numbers in by_arm.items()} if unpaired else union,
        "hypotheses": hypotheses,
        "decision": [{"verdict": "inconclusive"}],  # findings alone are given, and no verdict
        "analysis": analysis,
    }
    try:
        study = study_from_document(document)
        require_supported(study)
    except SpecError as error:
        raise EvidenceError(error.found, required=error.required, fix=error.fix, where=error.where) from None
    for name, claim in study.claims.items():
        if not unpaired and not set.intersection(*(set(by_arm[arm]) for arm in claim.named)):
            raise EvidenceError(
                f"no seed has a run of every arm of '{hypotheses[name]['claim']}'",
                required="runs that share seeds, for a paired test",
                fix='test="welch"',
            )
    return study
