"""Path of a component ablation: rounds of a pilot, the frozen path, judged runs on other seeds; what is refused, and
what no verdict survives."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from itertools import combinations, permutations
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evidence_factory import chain, make_evidence
from own_trainer import OwnHouse
from typer.testing import CliRunner

from ablate import api
from ablate.cli import app
from ablate.judge.decide import decide
from ablate.judge.design.characteristics import design as planned_design
from ablate.judge.verdict import Decision
from ablate.records.evidence import Evidence
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from ablate.verification.verify import verify_study
from prereg.documents.source import registered_source
from prereg.errors import EvidenceError, RunError, SpecError
from prereg.registry.amendments import scope_of
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry
from prereg.registry.paths import Root
from prereg.registry.registration import Registration, load_registration
from prereg.study.designs.path import chosen_by
from prereg.study.designs.tune import choose, with_choice
from prereg.study.load import load_study
from prereg.study.spec import Study, study_from_document

ARMS = ("source", "step_1", "step_2", "target")
QUIET = PlainWatcher(StringIO())
PARTS: dict[str, Any] = {
    "gate": {"with": {"gate": True}, "why": "either of the two gates will do"},
    "sink": {"with": {"sink": True}},
    "norm": {"without": {"norm": False}, "with": {"norm": True}},
}
# Exactly known: gate and sink do the same work, so that leaving out either of them from the whole system shows nothing.
TRAINER = """
import json, os
config = json.load(open(os.environ["ABLATE_CONFIG"]))
seed = int(os.environ["ABLATE_SEED"])
loss = 2.0 - max(0.30 * config["gate"], 0.28 * config["sink"]) - 0.1 * config["norm"]
loss += (seed * 7919 % 13) / 100 + (seed * (31 + config["gate"] + 5 * config["norm"] + 2 * config["sink"]) % 7) / 4000
with open("metrics.jsonl", "w") as out:
    for step in (1, 2):
        diverges = 1e6 if step == 2 and any(config[part] for part in config["fails"]) else 1.0
        print(json.dumps({"step": step, "train/loss": loss * diverges, "val/loss": loss}), file=out)
"""
# The path of that function, by hand: 1.70 against 1.72 and 1.90, then 1.60 against 1.70, then what is left.
KNOWN = {"gate": -0.30, "norm": -0.10, "sink": 0.0}


def document(
    parts: Mapping[str, Any] = PARTS, block: Mapping[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """From a plain system to one with three parts, two of which do the same work."""
    return {
        "study": "own",
        "title": "Which part makes the difference?",
        "trainer": "command",
        "command": ["{python}", "train.py"],
        "base": {"gate": False, "sink": False, "norm": True, "fails": []},
        "seeds": [1, 2],
        "components": {
            "design": "path",
            "parts": dict(parts),
            "seeds": [101],
            "choose_by": "val/loss",
            "claim": "improves val/loss by at least 0.02",
            **(block or {}),
        },
    } | changes


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnHouse:
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)
    made = OwnHouse(tmp_path / "house")
    made.script(TRAINER)
    return made


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> OwnHouse:
    """A house whose path has been found, judged and reported; read only."""
    made = OwnHouse(tmp_path_factory.mktemp("path") / "house")
    made.script(TRAINER)
    made.register(document())
    assert api.run(study_path(made), RunOptions(), watcher=QUIET).summary.complete
    assert api.decide(study_path(made)).decision.verdict == "the target is better"
    return made


def study_path(house: OwnHouse) -> Path:
    return house.path / "studies" / "own.yaml"


def entries_of(house: OwnHouse) -> tuple[Entry, ...]:
    return Ledger(Root(house.path).ledger).entries()


def chosen_in(house: OwnHouse) -> list[Any]:
    """What each `tuned` entry of the ledger holds."""
    return [entry.body["chosen"] for entry in entries_of(house) if entry.event == "tuned"]


def terminal(*words: str) -> tuple[int, str]:
    ended = CliRunner().invoke(app, [*words], env={"COLUMNS": "80"})
    return ended.exit_code, " ".join(ended.output.split())


def test_the_path_attributes_what_leaving_one_out_misses(finished: OwnHouse) -> None:
    # An exhaustively known reference: `KNOWN` is computed by hand from the trainer's formula.
    verdict = json.loads((finished.path / "reports" / "own" / "verdict.json").read_text())
    found = {one["hypothesis"]: one for one in verdict["findings"]}
    assert {one.get("part", ""): one["outcome"] for one in found.values()} == {
        "gate": "supported", "norm": "supported", "sink": "refuted", "": "supported",
    }  # fmt: skip
    for at, (part, effect) in enumerate(KNOWN.items(), start=1):
        assert found[f"step_{at}"]["part"] == part
        assert found[f"step_{at}"]["estimate"]["difference"] == pytest.approx(effect, abs=0.002)
    assert found["total"]["estimate"]["difference"] == pytest.approx(sum(KNOWN.values()), abs=0.002)
    # Of the whole system, by the same formula, leaving out either gate costs at most what does not matter.
    whole = 2.0 - 0.30 - 0.1
    assert [2.0 - 0.28 - 0.1 - whole, 2.0 - 0.30 - 0.1 - whole] == pytest.approx([0.02, 0.0])


def test_rounds_are_run_and_frozen_one_by_one_before_any_judged_run(finished: OwnHouse) -> None:
    assert chosen_in(finished) == [
        {"step_1": {"part": "gate"}},
        {"step_1": {"part": "gate"}, "step_2": {"part": "norm"}, "target": {"part": "sink"}},
    ]
    registration = load_registration(Root(finished.path), "own")
    assert registration is not None and registration.study.settings_known
    pilots, arms = registration.study.pilots, registration.study.arms
    assert list(pilots) == ["step_1.gate", "step_1.sink", "step_1.norm", "step_2.sink", "step_2.norm"]
    assert len(registration.study.cells) == registration.study.n_runs == 5 + 8
    events = [(entry.event, str(entry.body.get("variant"))) for entry in entries_of(finished)]
    first, last = (at for at, (event, _) in enumerate(events) if event == "tuned")
    assert {name for event, name in events[:first] if event == "sealed"} == {one for one in pilots if "step_1" in one}
    assert {name for event, name in events[first:last] if event == "sealed"} == {
        one for one in pilots if "step_2" in one
    }
    assert {name for event, name in events[last:] if event == "sealed"} == set(arms)
    configs = {name: arm.config for name, arm in arms.items()}
    assert [configs["step_1"][part] for part in PARTS] == [True, False, False]  # type: ignore[index, call-overload]
    assert [configs["step_2"][part] for part in PARTS] == [True, False, True]  # type: ignore[index, call-overload]
    # A pilot arm and the arm that it became have one configuration, and no pilot arm is run twice.
    assert pilots["step_2.norm"].config == configs["step_2"]
    assert len({json.dumps(one.config, sort_keys=True) for one in pilots.values()}) == len(pilots)


def test_report_and_terminal_name_the_part_of_every_step(finished: OwnHouse) -> None:
    page = (finished.path / "reports" / "own" / "report.md").read_text()
    section = page[page.index("## Component ablation") :].split("\n## ")[0].replace("**", "")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| ")]
    steps = {row[2]: row for row in rows if len(row) == 11}
    assert [steps[arm][1] for arm in ("step_1", "step_2")] == ["gate", "norm"]
    shares = [float(steps[arm][8].rstrip("%")) for arm in ("step_1", "step_2")]
    assert shares == pytest.approx([75.0, 25.0], abs=0.5)
    rounds = [row for row in rows if len(row) == 6 and row[0].startswith("step")]
    assert [(row[0], row[1], row[-1]) for row in rounds] == [
        ("step_1", "gate", "taken"), ("step_1", "sink", ""), ("step_1", "norm", ""),
        ("step_2", "sink", ""), ("step_2", "norm", "taken"),
    ]  # fmt: skip
    assert "The path: gate, then norm, then sink." in section and "5 runs of the pilot" in section
    code, shown = terminal("status", str(study_path(finished)))
    assert code == 0 and "13 runs: 13 done." in shown and "more" not in shown
    code, shown = terminal("ledger", str(study_path(finished)))
    assert code == 0 and shown.count(" tuned ") == 2


def test_the_terminal_names_the_parts_and_the_study_verifies(finished: OwnHouse) -> None:
    code, shown = terminal("decide", str(study_path(finished)))
    assert code == 0 and "step_1 (gate), supported" in shown and "step_3 (sink), refuted" in shown
    assert verify_study(study_path(finished)).intact


@pytest.mark.slow
def test_a_bundle_of_a_path_verifies(finished: OwnHouse, tmp_path: Path) -> None:
    bundle = tmp_path / "own.ablate.zip"
    code, shown = terminal("bundle", str(study_path(finished)), "--out", str(bundle))
    assert code == 0, shown
    code, shown = terminal("verify", str(bundle))
    assert code == 0, shown


def test_the_document_of_the_registration_stays_that_of_the_promise(finished: OwnHouse) -> None:
    page = (finished.path / "studies" / "own.registration.md").read_text()
    assert "chooses the part of each step" in page and "the parts that the pilot has taken by then" in page
    assert "it takes gate" not in page and "The path:" not in page
    source = registered_source(Root(finished.path), "own")
    assert source is not None and source.study.open_steps == ("step_1", "step_2")


# --- on the way -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_path_that_is_stopped_anywhere_is_the_same_path(house: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    path, quiet = study_path(house), {"watcher": QUIET}
    house.register(document())
    before = Root(house.path).ledger.read_bytes()
    with pytest.raises(RunError, match="has not chosen the path yet"):
        api.run(path, RunOptions(only=("source/1",)), **quiet)
    with pytest.raises(RunError, match="step_2"):
        api.run(path, RunOptions(only=("step_2.norm/101",)), **quiet)
    assert Root(house.path).ledger.read_bytes() == before
    # In the middle of the first round; then between the entry of a round and anything after it; then in the second.
    api.run(path, RunOptions(only=("step_1.norm/101",)), **quiet)
    assert chosen_in(house) == []
    code, shown = terminal("status", str(path))
    assert "10 waiting, 1 done." in shown and "2 runs more: later rounds of the path" in shown
    with monkeypatch.context() as patch:
        patch.setattr("prereg.registry.registration.with_choice", _fails_once_there_is_a_choice)
        with pytest.raises(ZeroDivisionError):
            api.run(path, RunOptions(), **quiet)
    assert chosen_in(house) == [{"step_1": {"part": "gate"}}]
    done = api.run(path, RunOptions(only=("step_2.sink/101",)), **quiet)
    assert (done.summary.planned, done.summary.sealed) == (1, 1) and len(chosen_in(house)) == 1
    code, shown = terminal("run", str(path), "--dry-run")
    assert code == 0 and "9 runs to make" in shown
    done = api.run(path, RunOptions(only=("step_2.norm/101",)), **quiet)
    assert chosen_in(house)[-1] == {"step_1": {"part": "gate"}, "step_2": {"part": "norm"}, "target": {"part": "sink"}}
    assert done.registration.study.settings_known
    code, shown = terminal("run", str(path), "--dry-run")
    assert code == 0 and "8 runs to make, " in shown


def _fails_once_there_is_a_choice(study: Study, logged: Sequence[Any]) -> Study:
    return with_choice(study, logged) if not logged else study.model_copy(update={"seeds": 1 / 0})


def test_runs_of_another_house_are_imported_round_by_round(finished: OwnHouse, house: OwnHouse) -> None:
    house.register(document())
    path, runs = study_path(house), finished.path / "data" / "runs"
    with pytest.raises(EvidenceError, match="in this round of its path"):
        api.import_runs(path, runs, note="another machine")
    first = [f"step_1.{part}/101" for part in PARTS]
    with pytest.raises(EvidenceError, match="no choice of the pilot yet"):
        api.import_runs(path, runs, note="another machine", only=[*first, "source/1"])
    assert api.import_runs(path, runs, note="another machine", only=first).missing == 8
    assert chosen_in(house) == [{"step_1": {"part": "gate"}}]
    api.import_runs(path, runs, note="another machine", only=["step_2.sink/101", "step_2.norm/101"])
    assert chosen_in(house) == chosen_in(finished)
    done = api.import_runs(path, runs, note="another machine")
    assert done.missing == 0
    assert api.decide(path).decision.verdict == "the target is better"


@pytest.mark.slow
def test_two_parts_find_the_path_and_a_killed_process_finds_it_again(house: OwnHouse) -> None:
    house.register(document(base=document()["base"] | {"sleep": 0.2}))
    house.script(TRAINER.replace("with open", "import time; time.sleep(config['sleep'])\nwith open"))
    house.register(document(base=document()["base"] | {"sleep": 0.2}, study="killed"))
    words = [sys.executable, "-m", "ablate", "run"]
    killed = house.path / "studies" / "killed.yaml"
    for events in (2, 7):
        process = subprocess.Popen([*words, str(killed)], stderr=subprocess.DEVNULL)
        while (
            process.poll() is None
            and sum(e.event == "sealed" and e.study == "killed" for e in entries_of(house)) < events
        ):
            time.sleep(0.05)
        process.kill()
        process.wait()
    assert subprocess.run([*words, str(killed)], check=False).returncode == 0
    assert api.decide(killed).decision.verdict == "the target is better"
    assert chosen_in(house)[-1] == {"step_1": {"part": "gate"}, "step_2": {"part": "norm"}, "target": {"part": "sink"}}


@pytest.mark.slow
def test_two_parts_make_the_rounds_and_then_the_rest(house: OwnHouse) -> None:
    house.register(document())
    words = [sys.executable, "-m", "ablate", "run", str(study_path(house)), "--part"]
    parts = [subprocess.Popen([*words, f"{part}/2"], stdout=subprocess.DEVNULL) for part in (1, 2)]
    assert [part.wait(timeout=300) for part in parts] == [0, 0]
    decided = api.decide(study_path(house)).decision
    assert decided.verdict == "the target is better"
    assert all(one.passed or one.severity == "note" for one in decided.checks)


@pytest.mark.slow
def test_a_part_that_diverges_comes_last_and_where_all_do_there_is_no_path(house: OwnHouse) -> None:
    house.register(document(base=document()["base"] | {"fails": ["gate", "sink", "norm"]}))
    with pytest.raises(RunError, match="no part tried for step_1 ended every run of the pilot"):
        api.run(study_path(house), RunOptions(), watcher=QUIET)
    assert chosen_in(house) == []


# --- what is refused, and what is written -----------------------------------------------------------------------------


def one(**changes: Any) -> dict[str, Any]:
    return document(block=changes)


@pytest.mark.parametrize(
    ("written", "place", "words"),
    [
        (one(seeds=[]), "components.seeds", "without pilot seeds"),
        (one(seeds=[1, 101]), "components.seeds", "pilot seed 1 is a seed of the study too"),
        (one(seeds=[101, 101]), "components.seeds", "given twice"),
        (one(interactions="all"), "components.interactions", "interactions with design: path"),
        (one(design="leave_one_out"), "components.seeds", "seeds with design: leave_one_out"),
        (one(design="leave_one_out", seeds=[]), "components.choose_by", "choose_by with design: leave_one_out"),
        (one(choose_by="own/score"), "components.better", "which way own/score improves"),
        (one(choose_by="own/score", better="lower"), "components.choose_by", "better is about the claim"),
        (one(parts={"gate": PARTS["gate"]}), "components.parts", "1 part"),
        (
            one(parts={f"p{at}": {"with": {f"p{at}": 1}} for at in range(10)}),
            "components.parts",
            "a path of 10 parts",
        ),
        (one(parts={"A": {"with": {"gate": True}}, "a": PARTS["sink"]}), "components.parts", "named 'step_1.a'"),
        (document(variants={"step_2.gate": {"fails": [1]}}), "components.parts", "named 'step_2.gate'"),
        (document(stopping={"looks": [2]}), "components", "pilot before a sequential design"),
        (
            document(tune={"grid": {"fails": [[], ["x"]]}, "seeds": [7], "choose_by": "val/loss"}),
            "tune",
            "tune and a path",
        ),
    ],
)
def test_what_cannot_be_a_path_is_refused(written: dict[str, Any], place: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        study_from_document(written)
    assert words in caught.value.found and ".".join(map(str, caught.value.where.field)) == place
    assert caught.value.required


def gpt(parts: Mapping[str, Any], **changes: Any) -> Study:
    """A path of the built-in trainer, from a plain model."""
    model = {"layers": 1, "width": 16, "heads": 2, "context": 8}
    base = {"base": {"model": model, "budget": {"steps": 4, "batch": 4}, "data": {"corpus": "toy"}}}
    written = document(parts, measure={"every": 4}, **base) | changes
    del written["trainer"], written["command"]
    return study_from_document(written)


def test_parts_of_the_built_in_trainer_leave_data_alone_and_every_combination_can_be_trained() -> None:
    swiglu, wide = {"with": {"model.activation": "swiglu"}}, {"with": {"model.width": 24}}
    assert gpt({"swiglu": swiglu, "wide": wide}).components is not None
    with pytest.raises(SpecError, match="on a path"):
        gpt({"swiglu": swiglu, "text": {"with": {"data.corpus": "tinyshakespeare"}}})
    # 24 heads of a width of 24, and three of one of 16: each part needs the other, and neither can come first.
    with pytest.raises(SpecError) as caught:
        gpt({"wide": wide, "heads": {"with": {"model.heads": 24}}})
    assert caught.value.where.field[:3] == ("components", "parts", "heads")
    with pytest.raises(SpecError, match="match and a path"):
        gpt({"swiglu": swiglu, "wide": wide}, match={"by": "parameters", "vocabulary": 65})


def test_arms_claims_and_rule_are_written_by_position() -> None:
    study = study_from_document(document())
    assert list(study.arms) == ["source", "step_1", "step_2", "target"] and study.baseline == "source"
    assert {name: one.claim for name, one in study.hypotheses.items()} == {
        "step_1": "step_1 lowers val/loss by at least 0.02 than source",
        "step_2": "step_2 lowers val/loss by at least 0.02 than step_1",
        "step_3": "target lowers val/loss by at least 0.02 than step_2",
        "total": "target lowers val/loss by at least 0.02 than source",
    }
    assert list(study.families) == ["primary"] and study.analysis.correct == "holm"
    assert [line.verdict for line in study.decision][1:3] == ["the target is better", "the target is not better"]
    assert study.open_steps == ("step_1", "step_2") and not study.settings_known and study.n_runs == 5 + 8
    assert study_from_document(one(choose_by="")).components == study.components
    assert "part" not in study.model_dump_json() or "_chosen" not in study.model_dump_json()
    other = study_from_document(document(block={"design": "leave_one_out", "seeds": [], "choose_by": ""}))
    assert "choose_by" not in json.dumps(json.loads(other.model_dump_json())["components"])


def test_fresh_seeds_pass_over_the_pilot_seeds_of_a_path(house: OwnHouse) -> None:
    house.register(document(block={"seeds": [5, 6]}))
    assert load_study(house.write(document(study="other", seeds="fresh 3"))).study.seeds == (3, 4, 7)


def test_another_pilot_is_another_study_for_every_claim_and_for_stability() -> None:
    assert scope_of("components.seeds") == scope_of("components.choose_by") == "everything"
    assert scope_of("components.parts.gate.why") == "hypotheses"


# --- the rule ---------------------------------------------------------------------------------------------------------


def walked(study: Study, value: Callable[[frozenset[str], int], float]) -> tuple[str, ...]:
    """The path by the product's own functions, round by round, of values by parts and pilot seed."""
    assert study.components is not None
    for _ in study.components.steps[:-1]:
        assert study.components is not None
        values = {
            (name, seed): value(present, seed)
            for name, (_, _, present) in study.components.candidates().items()
            for seed in study.pilot_seeds
        }
        known = {cell: found for cell, found in values.items() if isfinite(found)}
        study = with_choice(study, [{"chosen": {**chosen_by(study, choose(study, known))}}])
    assert study.components is not None and study.settings_known
    return study.components.path


def lettered(letters: str, **block: Any) -> Study:
    parts = {letter: {"with": {letter: 1}} for letter in letters}
    return study_from_document(document(parts, block, base=dict.fromkeys(letters, 0)))


def test_the_published_path_of_irace_is_found() -> None:
    # A published case: `inst/exdata/log-ablation.Rdata` of irace (Lopez-Ibanez et al.; github.com/MLopez-Ibanez/irace
    # at commit 3f2fd71), the log that its `plotAblation` draws: ACOTSP from configuration 1 to configuration 2, full
    # ablation. Mean cost over the 50 instances of every configuration that each round tried, from its table of
    # experiments, and its trajectory 1, 4, 9, 14, 19, 22, 2.
    rounds: tuple[dict[str, float], ...] = (
        {"algorithm": 38940837.38, "localsearch": 33524732.22, "alpha": 40488081.26, "beta": 40461142.04,
         "rho": 40488081.26, "ants": 40488081.26},
        {"algorithm": 32785040.66, "alpha": 32831211.44, "beta": 33415822.64, "rho": 33523733.9, "ants": 33517272.9},
        {"alpha": 32748854.18, "beta": 32836527.02, "rho": 32868412.4, "ants": 32845400.82},
        {"beta": 32760643.84, "rho": 32708083.42, "ants": 32740317.5},
        {"beta": 32758258.92, "ants": 32732997.1},
    )  # fmt: skip
    published = ("localsearch", "algorithm", "alpha", "rho", "ants", "beta")
    study = study_from_document(
        document(
            {name: {"with": {name: 1}} for name in rounds[0]}, {"claim": "improves tour/cost", "smallest": 1.0,
             "choose_by": "tour/cost", "better": "lower"}, base=dict.fromkeys(rounds[0], 0)
        )
    )  # fmt: skip

    def cost(present: frozenset[str], seed: int) -> float:
        (part,) = present - set(published[: len(present) - 1])  # fails where the path is another one
        return rounds[len(present) - 1][part]

    assert walked(study, cost) == published


@pytest.mark.parametrize("seed", range(20))
def test_the_path_is_the_greedy_one_whatever_the_order_of_the_file(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = {frozenset(some): float(rng.normal()) for n in range(5) for some in combinations("abcd", n)}
    expected: list[str] = []
    while len(expected) < 4:
        expected.append(min(set("abcd") - set(expected), key=lambda part: table[frozenset([*expected, part])]))
    for order in list(permutations("abcd"))[:: 5 + seed % 3]:
        assert walked(lettered("".join(order)), lambda present, _: table[present]) == tuple(expected)


def test_an_entry_that_is_no_path_leaves_the_plan_to_the_others() -> None:
    study, first = lettered("abc"), {"chosen": {"step_1": {"part": "b"}}}
    for odd in ({"step_1": {"part": "x"}}, {"step_2": {"part": "a"}}, {"step_1": {"part": ["b"]}}, None):
        assert with_choice(study, [{"chosen": odd}, first]).pilots.keys() == with_choice(study, [first]).pilots.keys()
    twice = {"chosen": {"step_1": {"part": "b"}, "step_2": {"part": "b"}}}
    assert with_choice(study, [first, twice]).open_steps == ("step_2",)


def test_ties_go_to_the_first_part_and_a_part_with_a_diverged_run_comes_last() -> None:
    study = lettered("abc", seeds=[101, 102])
    assert walked(study, lambda present, seed: 1.0) == ("a", "b", "c")

    def value(present: frozenset[str], seed: int) -> float:
        return (
            nan if "a" in present and len(present) == 1 and seed == 102 else -float("a" in present) - ("c" in present)
        )

    assert walked(study, value) == ("c", "a", "b")
    assert walked(lettered("abc", choose_by="val/accuracy"), lambda present, _: float("b" in present))[0] == "b"


# --- what the judge makes of it ---------------------------------------------------------------------------------------

MODEL_PARTS: dict[str, Any] = {
    "rotary": {"with": {"model.positions": "rope"}},
    "swiglu": {"with": {"model.activation": "swiglu"}},
    "qk_norm": {"with": {"model.qk_norm": True}},
}
EFFECTS = {"rotary": 0.1, "swiglu": 0.3, "qk_norm": 0.2}
Events = list[tuple[str, dict[str, Any]]]


def path_evidence(
    change: Callable[[Events], Events] = lambda events: events, effects: Mapping[str, float] = EFFECTS
) -> tuple[Registration, Evidence]:
    """Evidence of a path, swiglu before qk_norm before rotary, its ledger's events changed. With other effects than
    those of the runs, the path that they give was frozen, and its arms trained."""
    study, entries = gpt(MODEL_PARTS, seeds=[1, 2, 3, 4, 5]), []
    while not study.settings_known:
        assert study.components is not None
        values, frozen = (
            {
                (name, 101): 2.0 - sum(worth[part] for part in present)
                for name, (_, _, present) in study.components.candidates().items()
            }
            for worth in (EFFECTS, effects)
        )
        entries.append({"chosen": {**chosen_by(study, choose(study, frozen))}})
        study = with_choice(study, entries)
    assert study.components is not None
    assert study.components.path == tuple(sorted(effects, key=lambda part: -effects[part]))
    shifts = {arm: -sum(EFFECTS[part] for part in parts) for arm, parts in study.components.arms().items()}
    registration, evidence = make_evidence(study, finals={"val/loss": values}, effects={"val/loss": shifts})
    events = [(entry.event, dict(entry.body)) for entry in evidence.ledger]
    for at, entry in enumerate(entries, start=1):
        last = max(n for n, (_, body) in enumerate(events) if str(body.get("variant")).startswith(f"step_{at}."))
        events.insert(last + 1, ("tuned", entry))
    ledger = chain(registration, change(events))
    return registration, replace(evidence, ledger=ledger, ledger_head=ledger[-1].sha256)


def failed(decision: Decision) -> set[str]:
    return {check.name for check in decision.checks if not check.passed and check.severity != "note"}


def test_an_honest_path_is_judged_without_its_pilot() -> None:
    decision = decide(*path_evidence())
    assert decision.status == "decided" and not failed(decision)
    assert decision.verdict == "the target is better, and every step helps"
    assert [finding.part for finding in decision.findings] == ["swiglu", "qk_norm", "rotary", ""]
    assert {finding.n for finding in decision.findings} == {5}


DERIVED = "the path is the one that the pilot's runs give"
FROZEN = "the path was frozen before the runs that are judged"


def renamed(**parts: str) -> Callable[[Events], Events]:
    """The ledger with other parts under some steps."""

    def change(events: Events) -> Events:
        return [
            (event, {"chosen": {arm: {"part": parts.get(arm, one["part"])} for arm, one in body["chosen"].items()}})
            if event == "tuned"
            else (event, body)
            for event, body in events
        ]

    return change


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda events: [one for one in events if one[0] != "tuned"], DERIVED),
        (renamed(target="qk_norm", step_2="rotary"), DERIVED),
        (lambda events: [*events, ("tuned", {"chosen": {"step_1": {"part": "rotary"}}})], DERIVED),
        (lambda events: [*events, ("tuned", {"chosen": None})], DERIVED),
        (lambda events: sorted(events, key=lambda one: one[0] == "tuned"), FROZEN),
        (lambda events: [events[0], *(one for one in events if one[0] == "tuned"),
                         *(one for one in events[1:] if one[0] != "tuned")], FROZEN),
    ],
)  # fmt: skip
def test_a_path_that_is_not_the_pilots_gives_no_verdict(change: Callable[[Events], Events], check: str) -> None:
    decision = decide(*path_evidence(change))
    assert decision.status == "inadmissible" and check in failed(decision)


def test_a_path_that_was_followed_but_is_not_the_pilots_gives_no_verdict() -> None:
    for wanted in ({"rotary": 3, "swiglu": 2, "qk_norm": 1}, {"swiglu": 3, "rotary": 2, "qk_norm": 1}):
        decision = decide(*path_evidence(effects=wanted))
        assert decision.status == "inadmissible" and failed(decision) == {DERIVED}


def test_a_lost_candidate_is_a_missing_run() -> None:
    registration, evidence = path_evidence()
    runs = tuple(run for run in evidence.runs if run.variant != "step_2.rotary")
    decision = decide(registration, replace(evidence, runs=runs))
    assert decision.status == "inadmissible" and not decision.findings


def test_a_path_that_nobody_finished_is_not_judged() -> None:
    registration, evidence = path_evidence()
    whole = registration.study
    assert whole.components is not None
    open_again = whole.model_copy(update={"components": whole.components.frozen({})})
    decision = decide(registration.model_copy(update={"study": open_again}), evidence)
    assert decision.status == "inadmissible" and DERIVED in failed(decision)


# --- before any data --------------------------------------------------------------------------------------------------


def test_plan_check_and_design_say_what_is_known_and_what_the_pilot_chooses(house: OwnHouse) -> None:
    assume = {"metrics": {"val/loss": {"sd": 0.01, "correlation": 0.5}}, "seconds_per_run": 1}
    path = house.write(document(assume=assume))
    for verb, said in (
        ("check", "step_1 the parts that the pilot has taken by then"),
        ("plan", "2 rounds of 3 and 2 candidates (5 runs)"),
    ):
        code, shown = terminal(verb, str(path))
        assert code == 0 and said in shown, (verb, shown)
    found = planned_design(load_study(path).study, n_sims=200)
    assert found.n_runs == 13 and found.cost_s == 13.0
    assert any("the pilot takes the best part first" in note for note in found.notes)
    # Effects of the steps add up to that of the whole, and every state of the world can be drawn.
    effects = {one.hypothesis: one.effect for one in found.hypotheses}
    assert effects == pytest.approx({"step_1": -0.04, "step_2": -0.04, "step_3": -0.04, "total": -0.12})
    assert not any("cannot all be so" in note for note in found.notes)


def test_a_plan_of_a_path_counts_the_runs_of_all_rounds() -> None:
    study = gpt(MODEL_PARTS)
    assert planned_design(study, n_sims=200).n_runs == 5 + 8


def test_a_plan_counts_the_pilot_and_knows_no_size_of_a_step_before_it(tmp_path: Path) -> None:
    path = OwnHouse(tmp_path / "house").write(json.loads(gpt(MODEL_PARTS).model_dump_json(exclude={"checks"})))
    arms = api.plan_runs(path).arms
    assert sum(arm.runs for arm in arms) == 5 + 8
    sized = {arm.arm: arm.parameters for arm in arms}
    assert sized["step_1"] is None and sized["step_2"] is None
    assert sized["target"] is not None and sized["source"] is not None and sized["target"] > sized["source"]


@pytest.mark.slow
def test_a_path_of_the_built_in_trainer_from_file_to_bundle(tmp_path: Path) -> None:
    house = OwnHouse(tmp_path / "house")
    optim = {"lr": 1.0e-2, "warmup": 2, "schedule": "constant"}
    model = {"layers": 1, "width": 16, "heads": 2, "context": 8}
    written = document(
        MODEL_PARTS,
        {"claim": "improves val/loss", "smallest": 0.001},
        base={"model": model, "budget": {"steps": 10, "batch": 4}, "data": {"corpus": "toy"}, "optim": optim},
        measure={"every": 10},
        seeds=[1, 2, 3],
    )
    del written["trainer"], written["command"]
    path = house.write(written)
    for verb in ("check", "plan", "run", "status", "decide", "verify", "bundle"):
        out = ("--out", str(tmp_path / "own.ablate.zip")) if verb == "bundle" else ()
        code, shown = terminal(verb, str(path), *out)
        assert code in ((0, 3) if verb == "decide" else (0,)), (verb, shown)
    verdict = json.loads((house.path / "reports" / "own" / "verdict.json").read_text())
    assert {one["part"] for one in verdict["findings"][:3]} == set(MODEL_PARTS)
    assert all(one["passed"] or one["severity"] == "note" for one in verdict["checks"])
    assert len(Ledger(Root(house.path).ledger).entries()) > 2 * (5 + 12)


@pytest.mark.slow
def test_a_trial_runs_each_arm_with_its_parts_in_the_order_of_the_file(house: OwnHouse) -> None:
    trial = api.try_out(house.write(document()), seeds=1)
    assert [(run.variant, run.seed) for run in trial.runs[:4]] == [(arm, 102) for arm in ARMS]
    assert trial.planned == 13 and not Root(house.path).ledger.exists()
