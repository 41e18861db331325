"""Claims about a whole study over tasks: its pack registered, asked after training, judged over items, reported."""

from __future__ import annotations

import json
import shutil
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import House
from gpt_runs import KilledError, carry_out
from harness_samples import N_TASKS, TASKS, items_document, items_house, write_pack

import ablate as api
from ablate import cli
from ablate.evaluation.harness import tasks
from ablate.gpt import main as single
from ablate.gpt.inputs import Inputs
from ablate.gpt.trainer import Trainer
from ablate.judge.audit.audit import audit
from ablate.judge.audit.checks import AuditContext
from ablate.pinning import pin, require_pinned
from ablate.records.gather import gather
from ablate.records.rows import read_rows
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from ablate.runner import progress
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from ablate.verification.verify import verify_target
from ablate.workspace import Workspace, require_registered
from prereg.errors import CorpusError, RegistrationError, StudyError, UnsupportedError
from prereg.registry.canon import sha256_file
from prereg.registry.paths import Root
from prereg.registry.plan import RunSpec, plan
from prereg.registry.registration import load_registration, read_lock
from prereg.study.spec import study_from_document
from prereg.verification import verify_registration

N = N_TASKS * 6


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study over items, run by real workers, with no network to ask."""
    house, stream = House(tmp_path_factory.mktemp("ended") / "house"), StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ABLATE_CORPORA", raising=False)
        patch.setattr(progress, "PLAIN_EVERY_S", -1.0)
        ran = api.run(items_house(house), RunOptions(slots=1), workspace=api.Workspace(console=PlainWatcher(stream)))
    assert ran.summary.complete, ran.summary
    (house.path / "said.txt").write_text(stream.getvalue())
    return house.path


@pytest.fixture
def copy(ended: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoiled."""
    return Path(shutil.copytree(ended, tmp_path / "copy"))


def study_of(path: Path) -> Path:
    return path / "studies" / "tiny.yaml"


def records(path: Path) -> list[RunRecord]:
    case = Workspace().open(study_of(path))
    return list(gather(case.root, require_registered(case)).runs)


@pytest.mark.slow
def test_a_study_over_items_is_run_decided_and_told(copy: Path) -> None:
    decided = api.decide(study_of(copy))
    decision = decided.decision
    failed = [check.name for check in decision.checks if not check.passed and check.severity != "note"]
    assert failed == []
    (finding,) = decision.findings
    assert finding.metric == "harness/accuracy"
    assert finding.estimate is not None and finding.estimate.items is not None
    assert (finding.estimate.items.n_items, finding.n) == (N, 2)
    assert finding.estimate.items.estimand == "new_seeds_and_items"
    page = decided.markdown_path.read_text()
    assert f"2 seeds x {N} items" in page
    assert f"{TASKS}: 3 tasks, 18 items, with 0 and 2 examples" in page
    assert "every run was asked by the same harness" in {check.name for check in decision.checks if check.passed}
    api.report(study_of(copy), forms=["csv"])
    (values,) = Path(copy).rglob("values.csv")
    assert "harness/macro_accuracy_shots_2" in values.read_text()
    assert verify_registration(Root(copy), "tiny") == []


def test_the_judge_reads_the_very_items_that_were_scored(ended: Path) -> None:
    case = Workspace().open(study_of(ended))
    evidence = gather(case.root, require_registered(case))
    assert evidence.items is not None
    accuracy = evidence.items[evidence.items["metric"] == "harness/accuracy"]
    assert len(accuracy) == N * 4
    recorded = evidence.final("harness/accuracy")
    for (arm, seed), scores in accuracy.groupby(["variant", "seed"])["value"]:
        assert recorded[str(arm), int(str(seed))] == pytest.approx(scores.mean(), abs=1e-12)
    likelihoods = evidence.items[evidence.items["metric"].str.startswith("harness/loglikelihood/")]
    assert len(likelihoods) == N * 4 * 2 * 2 and (likelihoods["value"] < 0).all()


def test_every_run_says_how_it_was_asked(ended: Path) -> None:
    pins = read_lock(ended / "studies" / "tiny.lock.json").tasks
    assert pins is not None
    for run in records(ended):
        assert run.harness is not None and run.items_sha256 is not None
        assert (run.harness.version, run.harness.tasks_sha256) == (tasks.WANTED, pins.sha256)
        assert (run.harness.n_items, run.harness.n_requests) == (N, N * 2 * 2)
        assert 0.0 < run.harness.wall_s < run.wall_s and run.eval_s >= run.harness.wall_s * 0.9


def test_a_study_that_is_run_shows_no_answer(ended: Path) -> None:
    said = (ended / "said.txt").read_text()
    assert "accuracy" not in said and "loglikelihood" not in said


@pytest.mark.slow
def test_a_run_says_how_far_it_is_asked_and_no_answer(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    kept = single.write_passing

    def write(path: Path, data: bytes) -> None:
        written.extend([data] if path.name == "progress.json" else [])
        kept(path, data)

    monkeypatch.setattr(single, "REPORT_EVERY_S", -1.0)
    monkeypatch.setattr(single, "write_passing", write)
    assert carry_out(house.path, house.path / "run", spec_of(house)).status == "done"
    begun, *counted = [json.loads(data) for data in written]
    assert begun == {"steps": 8, "text": f"asking {TASKS}", "seconds_left": None}
    texts = [one["text"] for one in counted]
    assert texts[0] == f"asking {TASKS}: 0 of {N * 4} requests, 0 shots"
    assert f"asking {TASKS}: {N * 2} of {N * 4} requests, 2 shots" in texts
    assert texts[-1] == f"asking {TASKS}: {N * 4} of {N * 4} requests, 2 shots"
    assert all(one["seconds_left"] is None or one["seconds_left"] >= 0 for one in counted)


def test_tasks_are_part_of_the_promise(copy: Path) -> None:
    root = Root(copy)
    registration = load_registration(root, "tiny")
    assert registration is not None and registration.tasks is not None
    assert (registration.tasks.n_tasks, registration.tasks.n_items, registration.tasks.name) == (N_TASKS, N, TASKS)
    page = root.page("tiny").read_text()
    assert registration.tasks.sha256 in page and "3 tasks, 18 items" in page
    lock = root.lock("tiny")
    document = json.loads(lock.read_text())
    document["tasks"]["n_items"] = 17
    lock.write_text(json.dumps(document, indent=2))
    assert any("edited" in fault for fault in verify_registration(root, "tiny"))


def test_tasks_are_compared_with_the_registered_ones_where_they_are_here(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)

    def found() -> tuple[tuple[str, ...], str]:
        (item,) = (item for item in verify_target(study_of(copy)).items if item.what == f"tasks '{TASKS}'")
        return item.faults, item.note or item.unchecked

    assert found() == ((), "the registered tasks")
    path = next((copy / TASKS).glob("*.jsonl"))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert found()[0] == (f"the tasks '{TASKS}' are not those that were registered",)
    shutil.rmtree(path.parent)
    assert found() == ((), "not here")


def test_changed_tasks_are_refused_by_run_and_amended_on_the_record(copy: Path) -> None:
    path = copy / TASKS / "order.jsonl"
    path.write_text(path.read_text().replace("cat", "hat", 1))
    with pytest.raises(RegistrationError, match="are not what was registered") as caught:
        api.run(study_of(copy))
    assert "amend" in caught.value.fix
    registration, entry = api.amend(study_of(copy), reason="a misprint")
    assert registration.tasks is not None
    assert [one.field for one in entry.differences] == ["tasks.sha256"]


def spec_of(house: House) -> RunSpec:
    registration, _ = api.register(items_house(house))
    spec = plan(registration)[0]
    assert isinstance(spec, RunSpec)
    return spec


def test_a_run_finds_wrong_tasks_before_it_trains(house: House) -> None:
    spec = spec_of(house)
    path = house.path / TASKS / "order.jsonl"
    path.write_text(path.read_text().replace("cat", "hat", 1))
    ended = carry_out(house.path, house.path / "run", spec)
    assert ended.status == "failed" and "not those registered" in str(ended.error)
    assert not (house.path / "run" / "work" / "metrics.jsonl").exists(), "no step was taken"


def test_a_run_stopped_or_killed_while_asked_is_asked_again_and_not_trained(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, whole, folder = spec_of(house), RunFolder(house.path / "whole"), RunFolder(house.path / "run")
    assert carry_out(house.path, whole.path, spec).status == "done"

    # Stopped once its last step is taken: then it asks.
    assert carry_out(house.path, folder.path, spec, stop_at=spec.steps).event == "stopped"

    # Killed after its answers were written, before they were sealed.
    def killed(*_: Any, **__: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "seal", killed)
        with pytest.raises(KilledError):
            carry_out(house.path, folder.path, spec)
    rows = read_rows(folder.path / "work" / "metrics.jsonl")
    assert any(row.metric == "harness/accuracy" for row in rows)

    assert carry_out(house.path, folder.path, spec, kill_at=spec.steps).status == "done", "no step was taken again"
    first, again = whole.read_record(), folder.read_record()
    assert first is not None and again is not None
    assert again.outcome_sha256 == first.outcome_sha256 and again.resumed_from == (spec.steps, spec.steps)
    assert sha256_file(folder.items_path) == sha256_file(whole.items_path)


def test_answers_are_those_of_the_averaged_weights_and_of_float32(house: House) -> None:
    """A run in bfloat16 is asked in float32: the same weights give the same answers."""
    from safetensors.torch import load_file

    from ablate.evaluation.harness.evaluate import evaluate_tasks

    base = items_document()["base"]
    base = base | {"numerics": {"dtype": "bfloat16"}, "optim": {"lr": 0.01, "ema": 0.5}}
    torch.set_num_threads(1)
    registration, _ = api.register(items_house(house, base=base))
    spec = plan(registration)[0]
    assert isinstance(spec, RunSpec)
    folder = RunFolder(house.path / "run")
    assert carry_out(house.path, folder.path, spec).status == "done"
    inputs = Inputs(house.path / "data" / "corpora", house.path)
    text = inputs.text(spec)
    questions = inputs.questions(spec, text)
    assert questions is not None
    model = Trainer(spec.config, text.split, text.tokenizer.size).model
    model.load_state_dict(load_file(folder.weights_path), strict=False)
    found = evaluate_tasks(questions, model, spec.config.model.context, text.tokenizer)
    import pyarrow.parquet as pq

    sealed = pq.read_table(folder.items_path)["value"].to_pylist()
    assert sealed == [one.value for one in found.items]


def changed(run: RunRecord, **fields: Any) -> RunRecord:
    assert run.harness is not None
    return run.model_copy(update={"harness": run.harness.model_copy(update=fields)})


@pytest.mark.parametrize(
    ("fields", "name", "severity"),
    [
        ({"version": "0.4.12"}, "every run was asked by the same harness", "deviation"),
        ({"arguments_sha256": "00" * 32}, "every run was asked by the same harness", "deviation"),
        ({"prompts_sha256": "00" * 32}, "every run was asked by the same harness", "deviation"),
        ({"tasks_sha256": "00" * 32}, "every run answered the registered tasks", "inadmissible"),
        ({"n_items": N - 1}, "every run answered the registered tasks", "inadmissible"),
    ],
)
def test_runs_that_were_asked_differently_are_told(
    ended: Path, fields: dict[str, Any], name: str, severity: str
) -> None:
    from dataclasses import replace

    case = Workspace().open(study_of(ended))
    registration = require_registered(case)
    evidence = gather(case.root, registration)
    assert all(check.passed for check in audit(AuditContext(registration, evidence)) if check.name == name)
    runs = (changed(evidence.runs[0], **fields), *evidence.runs[1:])
    (found,) = [
        check for check in audit(AuditContext(registration, replace(evidence, runs=runs))) if check.name == name
    ]
    assert not found.passed and found.severity == severity
    assert "none seed 1" in found.found
    runs = (evidence.runs[0].model_copy(update={"harness": None}), *evidence.runs[1:])
    (found,) = [
        check
        for check in audit(AuditContext(registration, replace(evidence, runs=runs)))
        if check.name == "every run answered the registered tasks"
    ]
    assert not found.passed and "no tasks" in found.found


def test_without_the_extra_a_study_is_refused_before_anything_is_written(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = items_house(house)
    before = house.snapshot()
    monkeypatch.setattr(tasks, "installed", lambda: None)
    for verb in ("check", "register", "run"):
        monkeypatch.setattr(sys, "argv", ["ablate", verb, str(study)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert caught.value.code == 2
        said = capsys.readouterr().err
        assert "lm_eval" in said and "pip install 'ablate-prereg[harness]'" in said
    assert house.snapshot() == before
    monkeypatch.setattr(tasks, "installed", lambda: "0.4.12")
    with pytest.raises(UnsupportedError, match=r"lm_eval 0\.4\.12 is installed"):
        api.check(study)
    # A study without tasks needs no extra.
    api.check(house.write())


def test_check_shows_what_will_be_asked_and_what_that_may_execute(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ablate", "check", str(items_house(house))])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    said = " ".join(capsys.readouterr().out.split())
    assert caught.value.code in (0, None)
    assert f"Evaluated after each run: {TASKS}, the first 6 items of each task, examples in the prompt: 0 and 2" in said
    assert "may bring code, which register and run execute" in said


def test_variants_whose_tokenizers_leave_out_different_items_are_refused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Workspace().open(items_house(house, variants={"none": {}, "layernorm": {"data.corpus": "toy"}}))
    write_pack(house.path, strange=True)
    with pytest.raises(
        UnsupportedError, match=r"cannot write the same items of 'tasks/made-up': they leave out \[0, 1\]"
    ):
        pin(case)
    write_pack(house.path)
    pinned = pin(case).pins.tasks
    assert pinned is not None and pinned.n_unencodable == 0


def test_a_pack_that_is_missing_is_refused_before_anything_is_written(house: House) -> None:
    study = items_house(house, measure={"every": 8, "harness": {"tasks": "blimp"}})
    before = house.snapshot()
    with pytest.raises(CorpusError, match="the task pack 'blimp' is not here"):
        api.register(study)
    assert house.snapshot() == before


def test_metrics_that_are_no_mean_over_items_are_claimed_under_a_test_over_seeds(house: House) -> None:
    claims = {
        "surer": {"claim": "layernorm lowers harness/ece", "smallest": 0.01},
        "robust": {"claim": "layernorm does_not_worsen harness/macro_accuracy_median_prompt", "smallest": 0.01},
        "shots": {"claim": "layernorm raises harness/macro_accuracy_shots_2", "smallest": 0.01},
    }
    document = items_document(
        hypotheses=claims,
        analysis={"test": "paired_t"},
        decision=[
            {"verdict": "adopt", "when": "supported(surer) and supported(robust) and supported(shots)"},
            {"verdict": "inconclusive"},
        ],
    )
    study = study_from_document(document)
    assert [study.claims[name].better for name in claims] == ["lower", "higher", "higher"]
    with pytest.raises(StudyError, match="has no items"):
        study_from_document(document | {"analysis": {"test": "items", "estimand": "new_seeds"}})


def test_a_pack_elsewhere_on_the_search_path_is_the_same_promise(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = {"every": 8, "suites": ["loss"], "harness": {"tasks": "mine", "items_per_task": 6, "shots": [0]}}
    study = house.write(items_document(measure=measure))
    write_pack(house.path / "data", "mine")
    registration, _ = api.register(study)
    shutil.move(house.path / "data" / "mine", tmp_path / "mine")
    monkeypatch.setenv("ABLATE_CORPORA", str(tmp_path))
    case = api.check(study)
    require_pinned(case, registration)
