"""`studies/NAME.published.yaml`: read as strictly as a study, no part of the promise, held to what reports tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from conftest import House, tiny_document
from split_samples import split_of
from test_cli import ablate

import ablate as api
from ablate.gpt.trainer import Trainer
from ablate.verification.verify import verify_target
from ablate.workspace import Workspace, published_beside, require_registered
from prereg.documents.published import load_published, published_schema
from prereg.errors import EvidenceError, StudyError
from prereg.registry.canon import sha256_file
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.study.training import Training

torch.set_num_threads(1)

TEXT = """\
source: A made-up table
runs: 3
looks:
  - {step: 20, seeds: 2}
  - {step: 30, seeds: 3}
figures:
  - label: loss
    metric: val/loss
    published: {none: 2.5, layernorm: 2.4}
    spread: {none: 0.1}
    note: >
      Another text.
"""


def write(house: House, text: str = TEXT, study: str = "tiny") -> Path:
    path = house.path / "studies" / f"{study}.published.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def decided(trained: House, tmp_path_factory: pytest.TempPathFactory) -> House:
    """The tiny study, run and decided with published figures beside it."""
    made = trained.copy(tmp_path_factory.mktemp("published") / "house")
    write(made)
    api.decide(made.study)
    return made


def study_of(house: House) -> Path:
    return house.path / "studies" / "tiny.yaml"


def item(house: House, what: str = "reports") -> Any:
    return next(one for one in verify_target(study_of(house)).items if one.what == what)


def test_a_file_gives_its_figures_its_place_and_its_hash(house: House) -> None:
    study, path = api.load(house.write()), write(house)
    loaded = load_published(Root(house.path), study)
    assert loaded is not None
    assert (loaded.file, loaded.sha256) == ("studies/tiny.published.yaml", sha256_file(path))
    assert loaded.published.figures[0].published == {"none": 2.5, "layernorm": 2.4}
    assert loaded.published.figures[0].note == "Another text.\n"
    assert [look.step for look in loaded.published.looks] == [20, 30]
    path.unlink()
    assert load_published(Root(house.path), study) is None


MISTAKES: dict[str, tuple[Callable[[str], str], int, str, str]] = {
    "an unknown field": (lambda t: t.replace("source:", "sauce:"), 1, "unknown field 'sauce'", "source"),
    "no note": (lambda t: t[: t.index("    note")], 7, "'note' is missing", "A sentence on the difference"),
    "an empty note": (lambda t: t.replace("Another text.", ""), 11, "found", "some text"),
    "an arm that is none": (lambda t: t.replace("layernorm: 2.4", "layernrm: 2.4"), 9, "'layernrm'", "'layernorm'"),
    "a spread of no value": (lambda t: t.replace("{none: 0.1}", "{rmsnorm: 0.1}"), 10, "no published value", "none"),
    "a metric that is none": (lambda t: t.replace("val/loss", "val/los"), 8, "'val/los' is not a metric", "val/loss"),
    "a step that is not evaluated": (lambda t: t.replace("step: 20", "step: 15"), 4, "step 15", "step: 10"),
    "a step after the end": (lambda t: t.replace("step: 20", "step: 40"), 4, "trains 30 steps", "step: 30"),
    "more seeds than there are": (lambda t: t.replace("seeds: 3", "seeds: 4"), 5, "4 seeds", "seeds: 3"),
    "a look that is given twice": (
        lambda t: t.replace("{step: 30, seeds: 3}", "{step: 20, seeds: 2}"),
        5,
        "twice",
        "each look once",
    ),
    "a value that is no number": (lambda t: t.replace("none: 2.5", "none: many"), 9, 'found "many"', "a number"),
    "a value that is not finite": (lambda t: t.replace("none: 2.5", "none: .inf"), 9, ".inf", "finite"),
    "a spread below zero": (lambda t: t.replace("0.1}", "-0.1}"), 10, "found -0.1", "at least 0"),
    "a key that is given twice": (
        lambda t: t.replace("runs: 3", "source: again"),
        2,
        "is given twice",
        "each key once",
    ),
    "an alias": (lambda t: t.replace("runs: 3", "runs: *three"), 2, "an alias", "written out"),
    "no figure": (lambda t: t[: t.index("figures")] + "figures: []\n", 6, "found []", "at least 1"),
    "an empty file": (lambda _: "", 0, "the file is empty", "source: TEXT"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_it_has_file_line_and_remedy_and_check_changes_nothing(
    mistake: str, house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, line, found, helped = MISTAKES[mistake]
    study, path = house.write(), write(house, spoil(TEXT))
    before = house.snapshot()
    assert ablate(monkeypatch, "check", study) == 2
    message = capsys.readouterr().err
    assert message.count("error:") == 1 and "Traceback" not in message
    place = f"{path.name}:{line}" if line else path.name
    assert place in message and found in message and helped in message, message
    assert house.snapshot() == before


def test_labels_are_told_apart(house: House) -> None:
    figure = TEXT[TEXT.index("  - label") :]
    write(house, TEXT + figure)
    with pytest.raises(StudyError, match="two figures are labelled 'loss'"):
        published_beside(Workspace().open(house.write()))


def test_check_says_what_stands_beside_a_study(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = house.write()
    write(house)
    assert ablate(monkeypatch, "check", study) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "studies/tiny.published.yaml: 1 published figure for 2 looks at this study." in told


def test_the_file_itself_is_no_study_and_the_message_names_the_one_it_belongs_to(house: House) -> None:
    house.write()
    with pytest.raises(StudyError, match="published figures, not a study") as caught:
        api.check(write(house))
    assert "tiny.yaml" in caught.value.fix


def test_a_study_of_such_a_name_stays_a_study(house: House) -> None:
    study = house.write()
    house.write(tiny_document(study="tiny.published"))
    assert published_beside(Workspace().open(study)) is None


def test_a_metric_of_every_step_is_read_at_any_of_them(house: House) -> None:
    house.write()
    write(house, TEXT.replace("val/loss", "train/grad_norm").replace("step: 20", "step: 17"))
    loaded = published_beside(Workspace().open(study_of(house)))
    assert loaded is not None and [look.step for look in loaded.published.looks] == [17, 30]


def test_a_user_s_own_trainer_may_write_any_metric_at_any_step(house: House) -> None:
    command = tiny_document(
        trainer="command", command=["true"], base={"a": 0}, variants={"none": {}, "layernorm": {"a": 1}}
    )
    study = house.write({key: value for key, value in command.items() if key != "measure"})
    write(house, TEXT.replace("val/loss", "theirs/score").replace("step: 20", "step: 17"))
    assert published_beside(Workspace().open(study)) is not None


def test_the_schema_knows_what_the_reader_takes() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(published_schema())
    assert list(validator.iter_errors(yaml.safe_load(TEXT))) == []
    for old, new in (("source:", "sauce:"), ("none: 2.5", "none: many"), ("seeds: 2", "seeds: 0")):
        assert list(validator.iter_errors(yaml.safe_load(TEXT.replace(old, new)))), new


def test_it_changes_no_registration(house: House, tmp_path: Path) -> None:
    study = house.write()
    other = House(tmp_path / "other")
    write(other)
    promises = [api.register(path)[0] for path in (study, other.write())]
    assert promises[0].sha256 == promises[1].sha256
    write(house)  # and a registered study stays as registered
    api.register(study)
    assert require_registered(Workspace().open(study)).sha256 == promises[0].sha256


def test_decide_tells_it_and_the_ledger_holds_its_hash(decided: House) -> None:
    entry = Ledger(Root(decided.path).ledger).entries()[-1]
    assert entry.event == "reported"
    assert entry.published == sha256_file(decided.path / "studies" / "tiny.published.yaml")
    text = (decided.path / "reports" / "tiny" / "report.md").read_text(encoding="utf-8")
    assert "## Next to published figures" in text and str(entry.published) in text
    assert not item(decided).faults and "tiny.published.yaml is the file that they show" in item(decided).note


def test_a_mistake_in_it_stops_decide_and_report_before_anything_changes(
    decided: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(decided, TEXT.replace("source:", "sauce:"))
    before = decided.snapshot()
    try:
        for verb in ("decide", "report"):
            assert ablate(monkeypatch, verb, study_of(decided)) == 2
            assert "tiny.published.yaml:1" in capsys.readouterr().err
        assert decided.snapshot() == before
    finally:
        path.write_text(TEXT, encoding="utf-8")


@pytest.mark.slow
def test_reports_that_tell_another_file_are_found_and_told_anew(decided: House) -> None:
    path = write(decided, TEXT.replace("Another text.", "Another text altogether."))
    assert "is not the file that the reports show" in " ".join(item(decided).faults)
    api.report(study_of(decided))
    assert not item(decided).faults
    path.unlink()
    assert not item(decided).faults and "is not here" in item(decided, "published figures").unchecked
    api.report(study_of(decided))
    assert item(decided).note == "2 of 2 pages are as they were written"
    write(decided)
    assert not item(decided).faults and "is not in the reports" in item(decided, "published figures").unchecked
    api.report(study_of(decided))
    assert "is the file that they show" in item(decided).note
    assert verify_target(study_of(decided)).intact


def test_a_bundle_takes_it_in_and_its_reports_are_told_again_from_it(decided: House, tmp_path: Path) -> None:
    done = api.bundle(study_of(decided), out=tmp_path / "tiny.ablate.zip")
    assert done.check.intact
    said = {one.what: one.note for one in done.check.items}
    assert "report.md the same bytes" in said["reports written again"]
    path = decided.path / "studies" / "tiny.published.yaml"
    path.unlink()
    try:
        with pytest.raises(EvidenceError, match="missing"):
            api.bundle(study_of(decided), out=tmp_path / "without.ablate.zip")
        assert not (tmp_path / "without.ablate.zip").exists()
    finally:
        write(decided)


def weights(schedule: str, budget: int) -> dict[str, bytes]:
    """Weights after 12 steps of a run of so many."""
    model = {"layers": 1, "width": 16, "heads": 2, "context": 8, "dropout": 0.1}
    optim = {"lr": 1e-2, "warmup": 5, "schedule": schedule}
    config = Training.model_validate({"model": model, "optim": optim, "budget": {"steps": budget, "batch": 4}})
    run = Trainer(config, split_of(np.random.default_rng(0).integers(0, 7, 2000), 0.1, 8), 7)
    run.begin(1)
    for _ in range(12):
        run.step()
    return {name: parameter.detach().numpy().tobytes() for name, parameter in run.model.named_parameters()}


@pytest.mark.parametrize(
    ("schedule", "alike"), [("constant", True), ("linear", False), ("cosine", False), ("wsd", False)]
)
def test_a_step_of_a_longer_run_is_a_shorter_run_only_where_no_rate_knows_the_budget(
    schedule: str, alike: bool
) -> None:
    """What the report says of a look before the end, and docs/published.md promises: to the last bit, or not at all."""
    assert (weights(schedule, 24) == weights(schedule, 12)) is alike
