"""A study's own metrics: registered code only, on copies, one number back; claims read it like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import House, tiny_document
from gpt_runs import carry_out
from quiet import QUIET

import ablate as api
from ablate.capabilities import require_supported
from ablate.evaluation.loss import measure_loss
from ablate.evaluation.user_metrics import MetricSource, measure_own, registered_sources
from ablate.gpt.model import GPT, initialise
from ablate.records.gather import gather
from ablate.runner.alone import rerun
from ablate.workspace import Workspace, require_registered
from prereg.documents.sentences import say
from prereg.errors import EvidenceError, RegistrationError
from prereg.metrics.user_code import pin_checks
from prereg.registry.amendments import affected
from prereg.registry.paths import Root
from prereg.registry.plan import RunSpec, plan
from prereg.registry.register import amend_study, register_study
from prereg.registry.registration import Pins
from prereg.study.measure import OwnMetric
from prereg.study.spec import Study, study_from_document
from prereg.study.training import Model
from prereg.verification import verify_registration

TOKENS = np.random.default_rng(1).integers(0, 5, 60)
WORST = {
    "name": "own/worst",
    "entry_point": "mine:worst",
    "better": "lower",
    "unit": "nats",
    "definition": "largest cross-entropy of a validation token.",
}
OFTEN = "\n\ndef often(view):\n    return view.step\n"
CODE = "def worst(view):\n    return view.losses().max()\n"


def small() -> GPT:
    model = GPT(Model(layers=1, width=8, heads=2, context=8), 5)
    initialise(model, 1)
    return model


def asked(folder: Path, body: str, model: GPT | None = None, *, times: int = 1) -> list[float]:
    (folder / "mine.py").write_text(f"def worst(view):\n{body}", encoding="utf-8")
    metric = OwnMetric.model_validate(WORST)
    source = MetricSource(metric, folder / "mine.py", (folder / "mine.py").read_bytes())
    pieces = [b"a", b"b", b"c", b"d", b" "]
    return [measure_own((source,), model or small(), TOKENS, pieces, 7)["own/worst"] for _ in range(times)]


def own_document(**changes: Any) -> dict[str, Any]:
    return tiny_document(
        **{
            "measure": {"every": 10, "own": [WORST]},
            "hypotheses": {"gain": {"claim": "layernorm does_not_worsen own/worst", "smallest": 50.0}},
            "seeds": [1, 2],
            **changes,
        }
    )


def own_study(**changes: Any) -> Study:
    return study_from_document(own_document(**changes))


def test_the_view_gives_the_losses_whose_mean_is_the_loss_of_the_tool(tmp_path: Path) -> None:
    model = small()
    with torch.inference_mode():
        told = measure_loss(model, TOKENS, np.ones(5, dtype=int))["val/loss"]
    assert asked(tmp_path, "    return view.losses().mean()\n", model) == [pytest.approx(told, rel=1e-12)]
    assert asked(tmp_path, "    return len(view.losses())\n") == [59.0]
    assert asked(tmp_path, "    return sum(t.numel() for _, t, _ in view.predictions())\n") == [59.0]
    assert asked(tmp_path, "    return view.step + 10 * len(view.pieces)\n") == [57.0]
    assert asked(tmp_path, "    return float('inf')\n") == [float("inf")]  # which no row of records keeps
    body = "    import torch\n    return torch.tensor(2.5, dtype=torch.bfloat16)\n"
    assert asked(tmp_path, body) == [2.5]


def test_what_it_does_to_the_model_changes_no_run(tmp_path: Path) -> None:
    model, text = small(), TOKENS.copy()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    body = "    import torch\n    torch.rand(3)\n    view.model.token.weight.zero_()\n    return 1.0\n"
    asked(tmp_path, body, model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state) and np.array_equal(text, TOKENS)
    with pytest.raises(EvidenceError, match="read-only"):
        asked(tmp_path, "    view.tokens[0] = 1\n    return 1.0\n")


def test_nothing_is_carried_from_one_evaluation_to_the_next(tmp_path: Path) -> None:
    body = "    seen.append(1)\n    return len(seen)\n\nseen = []\n"
    assert asked(tmp_path, body, times=3) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    raise KeyError('x')\n", "raised KeyError"),
        ("    raise SystemExit(0)\n", "raised SystemExit"),
        ("    return None\n", "returned NoneType"),
        ("    return True\n", "returned bool"),
        ("    return '1'\n", "returned str"),
        ("    return view.losses()\n", "returned ndarray"),
    ],
)
def test_whatever_is_not_a_number_is_an_error_with_its_name(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(EvidenceError, match=f"own/worst {said}"):
        asked(tmp_path, body)


def test_what_it_prints_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked(tmp_path, "    print('hello')\n    return 1\n")
    said = capsys.readouterr()
    assert said.out == "" and "hello" in said.err


def test_code_that_has_changed_is_not_executed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE, encoding="utf-8")
    study = own_study()
    pins = pin_checks(study, tmp_path)
    assert registered_sources(study.measure.own, pins, tmp_path)[0].content == CODE.encode()
    trap = tmp_path / "executed"
    (tmp_path / "mine.py").write_text(f"open({str(trap)!r}, 'w').close()\n" + CODE, encoding="utf-8")
    with pytest.raises(EvidenceError, match=r"own/worst is not the registered code: mine.py has changed"):
        registered_sources(study.measure.own, pins, tmp_path)
    with pytest.raises(EvidenceError, match="not the registered code"):
        registered_sources(study.measure.own, {}, tmp_path)
    (tmp_path / "mine.py").unlink()
    with pytest.raises(EvidenceError, match="no module 'mine'"):
        registered_sources(study.measure.own, pins, tmp_path)
    assert not trap.exists()


def test_a_worker_that_is_handed_changed_code_fails_the_run_and_executes_nothing(house: House) -> None:
    path = house.write(own_document())
    (house.path / "studies" / "mine.py").write_text(CODE)
    registration, _ = api.register(path)
    trap = house.path / "executed"
    (house.path / "studies" / "mine.py").write_text(f"open({str(trap)!r}, 'w').close()\n" + CODE)
    spec = plan(registration)[0]
    assert isinstance(spec, RunSpec) and set(spec.own) == {"own/worst"}
    ended = carry_out(house.path, house.path / "run", spec)
    assert (ended.event, ended.status) == ("ended", "failed")
    assert "own/worst is not the registered code" in str(ended.error) and not trap.exists()


@pytest.mark.slow
def test_a_run_made_again_finds_the_code_of_its_own_metrics(house: House) -> None:
    path = house.write(own_document())
    (house.path / "studies" / "mine.py").write_text(CODE)
    registration, _ = api.register(path)
    case = Workspace().open(path)
    made = rerun(plan(registration)[0], house.path / "again", case.root)
    record = made.read_record()
    assert record is not None and record.status == "done"


def test_what_it_does_to_the_text_changes_no_evaluation(tmp_path: Path) -> None:
    before = TOKENS.copy()
    asked(tmp_path, "    view.read[:] = 0\n    return 1.0\n")
    assert np.array_equal(TOKENS, before)


@pytest.mark.slow
def test_a_run_records_it_and_a_claim_gets_its_verdict(house: House) -> None:
    often = {**WORST, "name": "own/often", "entry_point": "mine:often", "at_end": False}
    document = own_document(measure={"every": 10, "own": [WORST, often]})
    (house.path / "studies" / "mine.py").write_text(CODE + OFTEN)
    path = house.write(document)
    require_supported(study_from_document(document))
    api.run(path, workspace=api.Workspace(console=QUIET))
    case = Workspace().open(path)
    frame = gather(case.root, require_registered(case)).metrics
    rows = frame[(frame["variant"] == "none") & (frame["seed"] == 1)].set_index("metric")
    assert rows.loc[["own/often"]]["value"].tolist() == [0.0, 10.0, 20.0, 30.0]
    assert rows.loc[["own/worst"]]["step"].tolist() == [30]
    finding = api.decide(path).decision.findings[0]
    assert (finding.metric, finding.unit, finding.better, finding.outcome) == (
        "own/worst",
        "nats",
        "lower",
        "supported",
    )
    # Code that changes after the registration: the study is refused as a whole, and a worker would not execute it.
    (house.path / "studies" / "mine.py").write_text(CODE.replace("max", "min") + OFTEN)
    with pytest.raises(RegistrationError, match="own/worst"):
        api.run(path, workspace=api.Workspace(console=QUIET))


def test_the_code_is_part_of_the_promise(tmp_path: Path) -> None:
    from prereg_samples import AT, EMBNORM, PIN, changed, house_with

    own = "  own: [{name: own/worst, entry_point: 'mine:worst', better: lower, unit: nats, definition: The worst.}]\n"
    text = changed(EMBNORM, "  every: 25\n", "  every: 25\n" + own)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "mine.py").write_text(CODE)
    root, loaded = house_with(tmp_path, text)
    told: dict[str, Any] = {"pins": Pins(corpus=PIN), "design": None, "tool": {}, "at": AT}
    first, _ = register_study(root, loaded, **told)
    assert set(first.own_checks) == {"own/worst"} and verify_registration(root, "embnorm") == []
    lock = json.loads((tmp_path / "studies" / "embnorm.lock.json").read_text())
    assert lock["own_checks"]["own/worst"]["entry_point"] == "mine:worst"
    (tmp_path / "studies" / "mine.py").write_text(CODE + "# another\n")
    assert "the metric 'own/worst' is not the registered code" in verify_registration(root, "embnorm")[0]
    second, entry = amend_study(root, loaded, **told, reason="a comment", evidence="outcomes read")
    assert second.sha256 != first.sha256
    fields = [difference.field for difference in entry.differences]
    assert "own_checks.own/worst.sha256" in fields
    from prereg.registry.amendments import amendments_of
    from prereg.registry.ledger import Ledger

    entries = Ledger(Root(tmp_path).ledger).entries()
    assert affected(second.study, amendments_of(entries)).verdict  # code chosen after evidence decides nothing


def test_the_registration_says_what_it_is() -> None:
    study = own_study()
    assert "own/worst (mine:worst, at the last step): largest cross-entropy of a validation token." in say(
        "recorded", study
    )
    assert "own/worst: largest cross-entropy of a validation token, in nats; lower is better." in say("measured", study)
    assert study.claims["gain"].better == "lower" and study_from_document(study.model_dump(mode="json")) == study
