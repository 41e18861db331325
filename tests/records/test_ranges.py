"""Values that a metric cannot have, and what a user's own metrics and steps are: refused at every door, used by all."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from evidence_factory import small_study
from own_trainer import OwnHouse, own_document

import ablate as api
from ablate.records.gather import gather
from ablate.records.imports import Terms, read_runs
from ablate.records.rows import read_rows, require_range
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from prereg.documents.sentences import say
from prereg.errors import EvidenceError
from prereg.registry.paths import Root
from prereg.study.command import Declared, MetricsFile
from prereg.study.spec import study_from_document

SHARE_ABOVE = r"val/accuracy is above 1, the largest value that it can have"
PERCENT = {"unit": "percent", "better": "higher", "range": [0, 100]}
TRAINER = """
import json, os
seed, worse = int(os.environ["ABLATE_SEED"]), os.environ["ABLATE_VARIANT"] == "slow"
with open("metrics.jsonl", "w") as out:
    for epoch in (1, 2, 3):
        loss = 2.0 / epoch + 0.1 * worse + seed * (2 + worse) % 7 / 100
        row = {"step": epoch, "val/loss": loss, "NAME": VALUE + seed * (3 + worse) % 5 / 100}
        print(json.dumps(row), file=out)
"""


def classifier(name: str = "val/accuracy", **metrics: Any) -> dict[str, Any]:
    """A study of a classifier by epochs, whose trainer records accuracy under a name."""
    return own_document(
        hypotheses={
            "better": {"claim": "fast lowers val/loss", "smallest": 0.01},
            "same": {"claim": f"fast does_not_change {name}", "smallest": 0.005, "role": "guardrail"},
        },
        decision=[{"verdict": "use fast", "when": "supported(better)"}, {"verdict": "keep slow"}],
        metrics=metrics,
    )


def trainer(name: str, value: float) -> str:
    return TRAINER.replace("NAME", name).replace("VALUE", str(value))


def run(house: OwnHouse) -> None:
    """Every run, in this process, and in the ledger."""
    api.run(
        house.path / "studies" / "own.yaml", RunOptions(), workspace=api.Workspace(console=PlainWatcher(StringIO()))
    )


@pytest.mark.slow
def test_a_trial_finds_an_accuracy_in_percent_under_the_name_of_a_share(own_house: OwnHouse) -> None:
    own_house.script(trainer("val/accuracy", 90.2))
    path = own_house.write(**classifier())
    problem = api.try_out(path, workspace=api.Workspace(own_house.path)).problems[0]
    assert re.search(SHARE_ABOVE, problem.found) and "90" not in problem.found
    assert "divide by 100" in problem.fix and "unit: percent" in problem.fix


@pytest.mark.slow
def test_a_run_that_records_it_fails_and_shows_no_value(own_house: OwnHouse) -> None:
    own_house.script(trainer("val/accuracy", 90.2))
    own_house.register(**classifier())
    done = api.run(own_house.study, RunOptions(), workspace=api.Workspace(console=PlainWatcher(StringIO())))
    assert done.summary.failed and not done.summary.complete


def test_rows_of_others_are_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "val/accuracy": 0.5}\n{"step": 2, "val/accuracy": 55.0}\n')
    with pytest.raises(EvidenceError, match=f"line 2: {SHARE_ABOVE}") as fault:
        read_rows(path)
    assert "divide by 100" in fault.value.fix
    assert len(
        read_rows(path, MetricsFile(declare={"val/accuracy": Declared.model_validate_json(json.dumps(PERCENT))}))
    )


def test_an_import_is_refused(own_house: OwnHouse) -> None:
    registration = own_house.register(**classifier())
    table = own_house.path / "rows.csv"
    lines = [
        f"{arm},{seed},3,{metric},{value}"
        for arm, seed in registration.study.cells
        for metric, value in (("val/loss", 1.0 + seed / 10), ("val/accuracy", 91.0))
    ]
    table.write_text("\n".join(["variant,seed,step,metric,value", *lines]) + "\n")
    terms = Terms(registration, registration.registered_at, registration.registered_at, exploratory=True)
    with pytest.raises(EvidenceError, match=SHARE_ABOVE) as fault:
        read_runs(table, terms)
    assert "divide by 100" in fault.value.fix and "margins" in str(fault.value.required)


def test_sealed_values_that_cannot_be_are_broken_evidence(own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    own_house.script(trainer("val/accuracy", 90.2))
    registration = own_house.register(**classifier())
    with monkeypatch.context() as before:  # runs that were recorded without this check
        before.setattr("ablate.records.rows.require_range", lambda *_: None)
        for arm, seed in registration.study.cells:
            assert own_house.carry_out(registration, arm, seed)[0].status == "done"
    evidence = gather(Root(own_house.path), registration)
    assert any(re.search(SHARE_ABOVE, one) for one in evidence.broken)
    assert not len(evidence.metrics)


def test_a_table_in_a_notebook_is_refused() -> None:
    rows = [("old", seed, 90.0 + seed) for seed in range(5)] + [("new", seed, 91.0 + seed) for seed in range(5)]
    frame = pd.DataFrame(rows, columns=["variant", "seed", "val/accuracy"])
    with pytest.raises(EvidenceError, match=SHARE_ABOVE) as fault:
        api.judge_frame(frame, "new raises val/accuracy", smallest=0.005)
    assert "divide the column by 100" in fault.value.fix
    named = frame.rename(columns={"val/accuracy": "accuracy_percent"})
    assert api.judge_frame(named, "new raises accuracy_percent", smallest=0.5).judged


def test_the_ends_of_a_range_and_rounding_are_in_it() -> None:
    limits = MetricsFile().range_of("val/accuracy")
    for value in (0.0, 1.0, 1.0 + 1e-7, -1e-7, float("nan")):
        require_range("val/accuracy", value, limits)
    for value in (1.001, -0.001):
        with pytest.raises(ValueError, match="that it can have"):
            require_range("val/accuracy", value, limits)
    assert MetricsFile().range_of("val/loss") is None and MetricsFile().range_of("cost/mfu") is None


def test_a_known_name_of_a_users_own_trainer_is_not_defined_by_this_tool() -> None:
    said = say("measured", study_from_document(own_document()))
    assert said.startswith("Validation loss (val/loss): as the researcher's own trainer defines it, in nats per token")
    assert "cross-entropy" not in said and "cross-entropy" in say("measured", small_study())


@pytest.mark.slow
def test_what_is_declared_is_in_figures_tables_methods_and_the_registration(own_house: OwnHouse) -> None:
    own_house.script(trainer("test/accuracy", 90.2))
    declare = {"test/accuracy": {**PERCENT, "definition": "test images whose label is predicted"}}
    document = classifier("test/accuracy", step_name="epoch", declare=declare | {"val/loss": {"unit": "nats"}})
    registration = own_house.register(**document)
    study = registration.study
    assert study.better("test/accuracy") == "higher" and study.unit("same") == "percent"
    run(own_house)
    decided = api.decide(own_house.study)
    assert decided.decision.status != "inadmissible"
    page = (own_house.path / "reports" / "own" / "report.md").read_text()
    registered = (own_house.path / "studies" / "own.registration.md").read_text()
    for text in (page, registered):
        assert "nats/token" not in text and "nats per token" not in text and "optimiser step" not in text
        assert "test images whose label is predicted, in percent" in text.replace("\\", "")
    assert "at the last epoch" in page and "Means over seeds by epoch" in page
    html = (own_house.path / "reports" / "own" / "report.html").read_text()
    assert {"epoch", "val/loss (nats)", "test/accuracy (percent)"} <= set(re.findall(r"<text[^>]*>([^<]+)<", html))
    assert "at epoch 3" in html
