"""Final values can be scanned: what the verdict could rest on first, the rest by suite, and no number lost."""

from __future__ import annotations

from metric_samples import full, with_blocks, with_rows
from report_samples import told

from ablate.reporting import html, markdown
from ablate.reporting.blocks import Table
from ablate.reporting.context import ReportContext
from ablate.reporting.description import recorded_metrics, summarise
from ablate.reporting.sections.curves import families
from ablate.reporting.sections.final_values import final_values_section
from ablate.reporting.sections.reliability import reliability_section


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
