"""Published figures next to the study's own: the numbers are those of the records, and what is lacking is named."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean, stdev

import pytest
from metric_samples import published_document, with_published, without
from report_samples import LOSS, told

from ablate.reporting import html, markdown
from ablate.reporting.blocks import Facts, Table
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.published import comparable, published_section, read_at
from prereg.study.spec import study_from_document


def tables(account: ReportContext) -> list[Table]:
    section = published_section(account)
    assert section is not None
    return [block for block in section.blocks if isinstance(block, Table)]


def row(table: Table, at: str, arm: str) -> dict[str, str]:
    """The cells of one arm at one look, by the name of their column."""
    names = [column.name for column in table.columns]
    found = [dict(zip(names, cells, strict=True)) for cells in table.rows if cells[:2] == (at, arm)]
    assert len(found) == 1, (at, arm, table.rows)
    return found[0]


def said(account: ReportContext, term: str) -> str:
    section = published_section(account)
    assert section is not None
    facts = [item for block in section.blocks if isinstance(block, Facts) for item in block.items]
    return next(text for name, text in facts if name == term)


def figure(**changes: object) -> dict[str, object]:
    return published_document()["figures"][0] | changes


def perplexity(**changes: object) -> dict[str, object]:
    return {
        "label": "perplexity",
        "metric": "val/perplexity",
        "published": {"none": 8.1, "layernorm": 7.8, "rmsnorm": 8.0},
        "note": "Another text.",
    } | changes


def test_the_last_step_gives_the_mean_sd_n_and_difference_of_the_final_values() -> None:
    table = tables(with_published(told()))[0]
    values = LOSS["layernorm"]
    cells = row(table, "step 300, 5 seeds", "layernorm")
    assert cells["Published"] == "2.05" and cells["n (seeds)"] == "5"
    assert float(cells["Ours, mean"]) == pytest.approx(fmean(values), abs=5e-5)
    assert float(cells["SD"]) == pytest.approx(stdev(values), abs=5e-5)
    assert cells["Difference"].startswith("−")
    assert float(cells["Difference"].replace("−", "-")) == pytest.approx(fmean(values) - 2.05, abs=5e-4)


def test_an_earlier_step_reads_the_first_seeds_of_the_plan_and_no_others() -> None:
    account = with_published(told())
    frame = account.evidence.metrics
    here = frame[(frame["metric"] == "val/loss") & (frame["step"] == 150) & (frame["variant"] == "rmsnorm")]
    wanted = [float(here[here["seed"] == seed]["value"].iloc[0]) for seed in (1, 2, 3)]
    cells = row(tables(account)[0], "step 150, 3 seeds", "rmsnorm")
    assert cells["n (seeds)"] == "3"
    assert float(cells["Ours, mean"]) == pytest.approx(fmean(wanted), abs=5e-5)
    assert float(cells["SD"]) == pytest.approx(stdev(wanted), abs=5e-5)


def test_a_value_that_was_not_recorded_is_missing_by_name_and_the_n_says_so() -> None:
    account = without(with_published(told()), "val/loss", arm="rmsnorm", seed=2, step=150)
    table = tables(account)[0]
    cells = row(table, "step 150, 3 seeds", "rmsnorm")
    assert cells["n (seeds)"] == "2 of 3"
    assert [table.rows[at][:2] for at in table.marked] == [("step 150, 3 seeds", "rmsnorm")]
    assert "Missing at step 150, 3 seeds: rmsnorm seed 2 (not recorded at step 150)." in table.note
    assert "from fewer values than planned" in said(account, "loss, order of the arms")


def test_a_run_that_diverged_before_the_step_is_lacking_and_one_that_diverged_after_it_is_counted_and_named() -> None:
    account = with_published(told())
    runs = tuple(
        run.model_copy(update={"status": "diverged", "steps": {2: 120, 3: 250}[run.seed]})
        if run.variant == "layernorm" and run.seed in (2, 3)
        else run
        for run in account.evidence.runs
    )
    frame = account.evidence.metrics
    ended = (frame["variant"] == "layernorm") & (
        ((frame["seed"] == 2) & (frame["step"] > 120)) | ((frame["seed"] == 3) & (frame["step"] > 250))
    )
    account = replace(account, evidence=replace(account.evidence, runs=runs, metrics=frame[~ended]))
    table = tables(account)[0]
    assert row(table, "step 150, 3 seeds", "layernorm")["n (seeds)"] == "2 of 3"
    assert row(table, "step 300, 5 seeds", "layernorm")["n (seeds)"] == "3 of 5"
    assert "Missing at step 150, 3 seeds: layernorm seed 2 (diverged at step 120)." in table.note
    assert "layernorm seed 2 (diverged at step 120); layernorm seed 3 (diverged at step 250)" in table.note
    assert "Diverged after step 150, and counted in it: layernorm seed 3 at step 250." in table.note


def test_a_seed_without_a_run_is_lacking() -> None:
    account = told()
    runs = tuple(run for run in account.evidence.runs if run.seed != 5)
    frame = account.evidence.metrics
    evidence = replace(account.evidence, runs=runs, metrics=frame[frame["seed"] != 5])
    found = read_at(evidence, "val/loss", "none", (1, 5), 300)
    assert found.n == 1 and found.sd is None and found.lacking == {5: "no run"}


def test_perplexity_is_taken_run_by_run_from_the_loss_only_where_it_was_not_recorded_and_that_is_said() -> None:
    recorded = with_published(told(), figures=[perplexity()])
    assert "exp of the val/loss" not in tables(recorded)[0].note
    bare = without(recorded, "val/perplexity")
    assert "every value is exp of the val/loss of the same run and step" in tables(bare)[0].note
    shown = row(tables(bare)[0], "step 300, 5 seeds", "none")
    assert shown == row(tables(recorded)[0], "step 300, 5 seeds", "none")
    # The mean of the exponentials, which is not the exponential of the mean.
    exact = fmean(math.exp(loss) for loss in LOSS["none"])
    found = read_at(bare.evidence, "val/perplexity", "none", (1, 2, 3, 4, 5), 300)
    assert found.mean == pytest.approx(exact, rel=1e-12)
    assert abs(exact - math.exp(fmean(LOSS["none"]))) > 1e-4
    part = without(recorded, "val/perplexity", seed=1)
    assert "6 of the 24 values are exp of the val/loss" in tables(part)[0].note


def test_the_published_order_holds_or_the_pairs_that_are_turned_are_named() -> None:
    text = said(with_published(told()), "loss, order of the arms")
    assert text.startswith("Published: layernorm < rmsnorm < none.")
    assert "Ours at step 300, 5 seeds: layernorm < rmsnorm < none: the published order holds." in text
    other = {"none": 2.0, "layernorm": 2.1, "rmsnorm": 2.2}
    turned = with_published(told(), figures=[figure(published=other, spread={})])
    text = said(turned, "loss, order of the arms")
    assert "layernorm < rmsnorm < none: another order; 1 of 3 pairs of arms agree with the published one" in text
    assert "and these do not: none with layernorm; none with rmsnorm." in text
    assert text.endswith("An order of means; nothing is tested.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optim", "needed"),
    [
        ({"schedule": "constant", "warmup": 20}, "constant after 20 steps of warmup and does not depend"),
        ({"schedule": "linear"}, "a run of 150 steps would have ended with another rate"),
        ({"schedule": "cosine", "warmup": 20}, "falls along a cosine over the whole run"),
        ({"schedule": "wsd"}, "these values are not those of such a run"),
    ],
)
def test_only_a_schedule_that_does_not_know_the_budget_lets_a_step_stand_for_a_run(
    optim: dict[str, object], needed: str
) -> None:
    study = told(base={"model": {"layers": 8}, "budget": {"steps": 300, "batch": 16}, "optim": optim}).study
    assert needed in comparable(study, list(study.arms), 150)


def test_arms_of_other_schedules_are_told_apart() -> None:
    variants = {"none": {}, "layernorm": {"optim.schedule": "linear"}, "rmsnorm": {"budget.steps": 100}}
    document = told().study.model_dump(mode="json") | {"variants": variants}
    study = study_from_document(document)
    text = comparable(study, ["none", "layernorm", "rmsnorm"], 150)
    assert "none: A step before the end" in text and "layernorm: A step before the end" in text
    assert "rmsnorm: These runs end before it, at step 100." in text


@pytest.mark.slow
def test_both_pages_tell_it_and_what_the_file_says_stays_inert() -> None:
    account = with_published(told())
    page, text = html.render_html(account), markdown.render_markdown(account)
    assert "## Next to published figures" in text and 'id="published"' in page
    assert "<b>another</b>" not in page and "&lt;b&gt;another&lt;/b&gt;" in page
    assert "&lt;b>another&lt;/b>" in text
    for needed in ("Another text, and", "A made-up table, Table 1", "step 150, 3 seeds"):
        assert needed in page and needed in text
