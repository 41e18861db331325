"""The reliability curve: right means by bin, empty bins left out, every number in its table, nothing while withheld."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from metric_samples import BINS, full, with_bins, with_blocks, with_rows
from report_samples import told

from ablate.records.run_record import CountedBaselines, Repeated, Repetition
from ablate.reporting import html, markdown
from ablate.reporting.blocks import Figure, Paragraph, Table
from ablate.reporting.context import ReportContext
from ablate.reporting.description import recorded_metrics, summarise
from ablate.reporting.sections.curves import families
from ablate.reporting.sections.final_values import final_values_section
from ablate.reporting.sections.reliability import MOST_ROWS, Bin, bins_of, drawn, reliability_section, shown_by_bin

SUITES = {"measure": {"every": 25, "suites": ["loss", "calibration", "gradients", "speed"]}}


def test_a_bin_is_the_mean_over_the_runs_in_which_it_is_not_empty() -> None:
    account = with_bins(told(**SUITES))
    found = drawn(bins_of(account.evidence, list(account.study.arms)))
    assert list(found) == ["none", "layernorm", "rmsnorm"]
    assert [one.number for one in found["none"]] == list(range(2, BINS))  # 0 and 1 are empty in every run
    lone, next_one = found["none"][:2]
    assert (lone.n, lone.n_runs, next_one.n) == (1, 5, 5)
    assert fmean(next_one.confidences.values()) == pytest.approx(3.5 / BINS)
    assert fmean(next_one.accuracies.values()) == pytest.approx(3.5 / BINS - 0.05 + 0.004 * 3)
    # The one run in which bin 2 holds tokens gives it a fifth of that run's share.
    assert lone.share == pytest.approx(lone.shares[1] / 5)


def lacking(account: ReportContext, metric: str, *seeds: int, arm: str = "none") -> ReportContext:
    """As a user's own trainer could have left it: without a value of some runs."""
    frame = account.evidence.metrics
    gone = (frame["metric"] == metric) & (frame["variant"] == arm) & frame["seed"].isin(seeds)
    assert gone.sum() == len(seeds)
    return replace(account, evidence=replace(account.evidence, metrics=frame[~gone]))


def bin_of(account: ReportContext, number: int, arm: str = "none") -> Bin:
    (found,) = [one for one in bins_of(account.evidence, list(account.study.arms))[arm] if one.number == number]
    return found


def words_of(account: ReportContext) -> tuple[str, str, list[tuple[str, ...]]]:
    """What is warned of, the caption, and the rows of the table."""
    section = reliability_section(account)
    assert section is not None
    warned = " ".join(one.text for one in section.blocks if isinstance(one, Paragraph))
    (figure,) = (one for one in section.blocks if isinstance(one, Figure))
    (table,) = (one for one in section.blocks if isinstance(one, Table))
    return warned, figure.caption, list(table.rows)


def test_a_run_with_a_share_and_no_confidence_is_missing_and_not_empty() -> None:
    whole = with_bins(told(**SUITES))
    account = lacking(whole, "calibration/bin_confidence_5", 2, 4)
    one, before = bin_of(account, 5), bin_of(whole, 5)
    assert (one.missing, one.n, one.n_runs, before.missing) == ((2, 4), 3, 5, ())
    assert one.share == pytest.approx(before.share), "its share is known all the same, and is not 0"
    assert set(one.accuracies) == set(one.confidences) == {1, 3, 5}
    warned, caption, rows = words_of(account)
    assert "Not recorded whole: bin 5 of none, seeds 2 and 4." in warned and "These are not empty bins" in warned
    assert "Hollow: empty or not recorded in some of the runs" in caption
    cells = {row[:2]: row[-1] for row in rows}
    assert cells["none", "5: 0.333 to 0.4"] == "3 of 5, 2 not recorded" and cells["none", "2: 0.133 to 0.2"] == "1 of 5"
    told_here = shown_by_bin(account)
    assert not any(name.endswith("_5") for name in told_here) and "calibration/bin_accuracy_6" in told_here


def test_a_bin_that_no_run_recorded_whole_is_on_no_curve_and_is_named() -> None:
    account = lacking(with_bins(told(**SUITES)), "calibration/bin_accuracy_7", 1, 2, 3, 4, 5)
    assert bin_of(account, 7).n == 0
    assert 7 not in {one.number for one in drawn(bins_of(account.evidence, list(account.study.arms)))["none"]}
    warned, _, rows = words_of(account)
    assert "bin 7 of none, seeds 1, 2, 3, 4 and 5" in warned
    assert len(rows) == 3 * 13 - 1
    assert "calibration/bin_share_7" not in shown_by_bin(account)


def test_without_a_share_a_bin_is_empty_only_where_the_others_hold_all_tokens() -> None:
    account = with_bins(told(**SUITES))
    for metric in ("share", "confidence", "accuracy"):
        account = lacking(account, f"calibration/bin_{metric}_6", 3)
    assert bin_of(account, 6).missing == (3,), "the other shares of the run lack some tokens"
    # Of the made-up runs only those of the first seed have shares that add up to 1.
    frame = with_bins(told(**SUITES)).evidence.metrics
    silent = frame["metric"].str.startswith("calibration/bin_share") & (frame["value"] == 0.0)
    one = bin_of(replace(account, evidence=replace(account.evidence, metrics=frame[~silent])), 2)
    assert one.missing == (2, 3, 4, 5) and set(one.shares) == {1}
    bare = frame[~(silent & (frame["seed"] == 1))]
    assert 0 not in {one.number for one in bins_of(replace(account.evidence, metrics=bare), ["none"])["none"]}


def test_only_bins_that_this_section_tells_are_counted_as_told() -> None:
    account = with_bins(told(**SUITES))
    names = shown_by_bin(account)
    assert "calibration/bin_accuracy_2" in names and "calibration/bin_share_0" in names
    frame = account.evidence.metrics
    lone = frame[~frame["metric"].str.startswith("calibration/bin_confidence")]
    assert shown_by_bin(replace(account, evidence=replace(account.evidence, metrics=lone))) == set()


@pytest.mark.slow
def test_more_bins_than_a_page_holds_are_pointed_to() -> None:
    section = reliability_section(with_bins(told(measure=SUITES["measure"] | {"calibration": {"bins": 500}}), bins=500))
    assert section is not None and isinstance(section.blocks[1], Paragraph)
    assert f"more than {MOST_ROWS:,} rows" in section.blocks[1].text and "metrics.parquet" in section.blocks[1].text


def test_nothing_is_drawn_while_runs_are_missing_or_where_no_bin_was_recorded() -> None:
    assert reliability_section(told()) is None
    assert reliability_section(with_bins(told("incomplete", **SUITES))) is None
    section = reliability_section(with_bins(told("inadmissible", **SUITES)))
    assert section is not None and isinstance(section.blocks[0], Paragraph)


COUNTED = Repetition(
    lines=Repeated(repeated=300, units=400),
    paragraphs=Repeated(repeated=1, units=8),
    held_out_lines=Repeated(repeated=3, units=40),
    held_out_paragraphs=Repeated(repeated=0, units=1),
)


def name() -> str:
    [pin] = told().registration.pinned
    return pin.name


def recorded(*records: dict[str, Any]) -> ReportContext:
    """The sample, its runs with these in turn."""
    whole = told()
    runs = (run.model_copy(update=records[place % len(records)]) for place, run in enumerate(whole.evidence.runs))
    return replace(whole, evidence=replace(whole.evidence, runs=tuple(runs)))


def line(of: ReportContext) -> str:
    [found] = [line for line in markdown.render(of).splitlines() if "sha256 " in line and f"{name()}: " in line]
    return found


RARE, EMPTY = Repeated(repeated=1, units=1_000_000), Repeated(repeated=0, units=0)
MORE = COUNTED.model_copy(update={"held_out_lines": Repeated(repeated=6, units=40), "one_in": 4})
IDS = Repetition(not_measured="not measured, since ids show no lines")
ONE = CountedBaselines(uniform=4.1744, unigram=3.3091, bigram=2.4612, tokens=111_540)
TOY = ONE.model_copy(update={"floor": 0.3124})
MIXED = CountedBaselines(not_computed="not computed for a mixture")


def repeats(*counted: Repetition) -> tuple[dict[str, Any], ...]:
    return tuple({"repetition": {name(): one}} for one in counted)


def drew(*shares: int) -> tuple[dict[str, Any], ...]:
    return tuple({"mixture": {name(): share, "other": 100 - share}} for share in shares)


LINES: list[tuple[tuple[dict[str, Any], ...], list[str]]] = [
    # what the runs recorded in turn, what the line of the corpus says; the page of test_pages.py has the plain case
    (repeats(COUNTED, MORE), ["about 75.00% of its lines", "about 7.50% to 15.00% of its held-out lines"]),
    (repeats(COUNTED.model_copy(update={"held_out_lines": EMPTY})), ["; none (there are none) of its held-out lines"]),
    (repeats(COUNTED.model_copy(update={"held_out_lines": RARE})), ["; less than 0.01% of its held-out lines"]),
    (repeats(IDS), ["repeats itself: not measured, since ids show no lines"]),
    (({},), ["how much of it repeats itself was not recorded"]),
    (drew(40, 41), ["40.00% to 41.00% of the windows that a run was trained on came from it"]),
]


@pytest.mark.parametrize(("records", "says"), LINES)
def test_the_line_of_a_corpus_tells_what_was_counted_and_never_leaves_it_out(
    records: tuple[dict[str, Any], ...], says: list[str]
) -> None:
    text = line(recorded(*records))
    assert not [needed for needed in says if needed not in text], text


def test_nothing_is_said_of_what_no_run_recorded() -> None:
    assert "repeats itself" not in line(replace(told(), evidence=replace(told().evidence, runs=())))
    assert "windows that a run" not in line(recorded({}))
    assert "Losses to compare with" not in markdown.render(told())


@pytest.mark.parametrize(
    ("baselines", "says"),
    [
        ([TOY], "; the source's own entropy is 0.312"),
        ([ONE, TOY], "with**: they differ between arms"),
        ([MIXED], "with**: not computed for a mixture"),
    ],
)
def test_losses_of_counting_are_given_where_runs_recorded_them(baselines: list[CountedBaselines], says: str) -> None:
    assert says in markdown.render(recorded(*({"baselines": one} for one in baselines)))


def blocks_of(account: ReportContext) -> list[Table]:
    section = final_values_section(account)
    assert section is not None
    return [block for block in section.blocks if isinstance(block, Table)]


def everything() -> ReportContext:
    return with_blocks(full(), {"none": 3, "layernorm": 3, "rmsnorm": 2})


def test_no_recorded_final_value_is_lost() -> None:
    account = everything()
    tables = blocks_of(account)
    by_metric = {(row[0], row[1]) for table in tables for row in table.rows}
    in_families = {name for members in families(account.evidence).values() for name in members}
    reliability = reliability_section(account)
    assert reliability is not None
    bins = {row[1].split(":")[0] for block in reliability.blocks if isinstance(block, Table) for row in block.rows}
    checked = 0
    for metric in recorded_metrics(account.evidence):
        for summary in summarise(account.evidence, metric, list(account.study.arms)):
            checked += 1
            if metric in in_families:
                table = next(t for t in tables if "grad/layer" in t.caption)
                block = next(row for row in table.rows if row[0] == metric.rpartition("_")[2])
                assert block[1 + list(account.study.arms).index(summary.arm)] != "–"
            elif metric.startswith("calibration/bin_"):
                assert metric.rpartition("_")[2] in bins or summary.mean == 0.0  # the share of an empty bin
            else:
                assert (metric, summary.arm) in by_metric, metric
    assert checked > 100


def test_a_single_block_that_a_hypothesis_reads_stands_among_the_first() -> None:
    hypotheses = {"first": {"claim": "layernorm lowers grad/layer_0", "smallest": 0.0}}
    decision = [{"verdict": "yes", "when": "supported(first)"}, {"verdict": "inconclusive"}]
    account = with_blocks(told("incomplete", hypotheses=hypotheses, decision=decision, assume={}), {"none": 2})
    shown = told()
    account = ReportContext(
        decision=shown.decision,
        registration=account.registration,
        evidence=with_blocks(shown, {"none": 2, "layernorm": 2}).evidence,
        ledger_head=shown.ledger_head,
        generated_at=shown.generated_at,
    )
    first = blocks_of(account)[0]
    assert first.rows[0][:2] == ("grad/layer_0", "none")


def test_own_metrics_tasks_and_unknown_ones_have_groups_of_their_own() -> None:
    own = {"name": "own/depth", "entry_point": "depth:depth", "better": "higher", "definition": "how deep"}
    account = told(measure={"every": 25, "own": [own]})
    cells = [("own/depth", 3.0), ("harness/ece", 0.1), ("theirs/odd", 7.0)]
    rows = [(run.variant, run.seed, 300, name, value) for run in account.evidence.runs for name, value in cells]
    captions = [table.caption for table in blocks_of(with_rows(account, rows))]
    assert captions[-3:] == [
        "Final values, the study's own metrics: 1 metric.",
        "Final values, zero- and few-shot tasks: 1 metric.",
        "Final values, metrics that only the study's trainer knows: 1 metric.",
    ]


def test_the_page_folds_what_markdown_shows_whole() -> None:
    account = everything()
    page, text = html.render(account), markdown.render(account)
    assert "<summary>Final values, suite loss, how well the model predicts: 1 metric.</summary>" in page
    assert "*Final values, suite loss, how well the model predicts: 1 metric.*" in text
    assert '<tr class="begins">' in page and '<tr class="follows">' in page
