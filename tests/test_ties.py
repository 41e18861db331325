"""Tie-breakers that decide: what is written from them, what is refused, how often they err, and a decided study."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from evidence_factory import LEVELS, make_evidence, small_study
from own_trainer import SCRIPT, OwnHouse, own_document
from prereg_samples import EMBNORM, changed, load_text
from typer.testing import CliRunner

import ablate.judge.design.characteristics as design_room
from ablate import RunOptions, api
from ablate.cli import app
from ablate.judge.decide import decide
from ablate.judge.design.assumptions import assumed
from ablate.judge.design.scenarios import TrueEffects, drawable, effect_scenarios
from ablate.judge.design.simulate import Scenario, harmful_verdicts, simulate
from prereg.documents.analysis_plan import families, tie_breakers
from prereg.errors import StudyError
from prereg.registry.canon import sha256_of
from prereg.rule.bound import absences_of_the_tie, tie_errors
from prereg.study.spec import Study, study_from_document

TWO_ARMS = {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}}
GAIN = {"claim": "layernorm lowers val/loss", "smallest": 0.02}
SAME = {"claim": "layernorm does_not_change val/loss", "smallest": 0.02}
ORDER = [{"metric": "val/accuracy", "smallest": 0.005}, {"metric": "speed/tokens_per_s", "smallest": "2%"}]
WRITTEN = [f"{arm}_by_{metric}" for metric in ("val_accuracy", "speed_tokens_per_s") for arm in ("layernorm", "none")]


def tied(*, when: str = "supported(same)", **changes: Any) -> Study:
    """Two arms, a primary outcome that can be a tie, and two metrics that break it."""
    document: dict[str, Any] = {
        "variants": TWO_ARMS,
        "hypotheses": {"gain": GAIN, "same": SAME},
        "decision": [
            {"verdict": "adopt layernorm", "when": "supported(gain) and not supported(same)"},
            {"verdict": "tie", "when": when},
            {"verdict": "inconclusive"},
        ],
        "tie_breakers": {"between": ["layernorm", "none"], "order": ORDER},
        "assume": {},
    }
    return small_study(**(document | changes))


def test_two_claims_a_metric_and_their_lines_are_written_before_the_line_of_the_tie() -> None:
    study = tied()
    assert list(study.hypotheses) == ["gain", "same", *WRITTEN]
    assert study.families["tie_breaker"] == tuple(WRITTEN)
    assert study.hypotheses[WRITTEN[1]].claim == "none raises val/accuracy by at least 0.005 than layernorm"
    assert (study.hypotheses[WRITTEN[2]].percent, study.hypotheses[WRITTEN[2]].scale) == (2.0, "log")
    lines = [(line.verdict, line.when) for line in study.decision[1:6]]
    assert lines[0] == (
        "layernorm (tie broken by val/accuracy)",
        "supported(same) and supported(layernorm_by_val_accuracy)",
    )
    assert lines[3][0] == "none (tie broken by speed/tokens_per_s)"
    assert lines[4] == ("tie", "supported(same)")
    # The rule is proved over all of it: every line can decide, every case has a line.
    rows = study.rule.table()
    assert sum(row.settles for row in rows) == rows[0].of and all(row.settles for row in rows)


def test_an_alternative_in_the_tie_s_condition_keeps_its_meaning() -> None:
    study = tied(when="supported(same) or refuted(gain)")
    assert study.decision[1].when == f"(supported(same) or refuted(gain)) and supported({WRITTEN[0]})"
    assert "at most 0.1," in tie_errors(study)


def test_a_lower_metric_of_the_study_s_own_is_better_low() -> None:
    own = {"name": "own/gap", "entry_point": "gap:gap", "better": "lower", "definition": "A gap."}
    order = [{"metric": "own/gap", "smallest": 0.1}]
    study = tied(measure={"every": 20, "own": [own]}, tie_breakers={"between": ["none", "layernorm"], "order": order})
    assert study.hypotheses["none_by_own_gap"].claim == "none lowers own/gap by at least 0.1 than layernorm"


def test_what_a_lock_holds_is_read_back_and_one_part_cannot_be_changed_without_the_other() -> None:
    study = tied()
    held = study.model_dump(mode="json")
    assert study_from_document(held) == study
    for change in (
        lambda d: d["hypotheses"][WRITTEN[0]].update(smallest=0.001, claim=GAIN["claim"]),
        lambda d: d["decision"].pop(2),
        lambda d: d["tie_breakers"]["order"].reverse(),
        lambda d: d["tie_breakers"]["order"][0].update(smallest=0.004),
        lambda d: d["decision"][5].update(when="supported(gain)"),
    ):
        document = study.model_dump(mode="json")
        change(document)
        with pytest.raises(StudyError, match="tie_breakers"):
            study_from_document(document)


def test_a_list_describes_as_before_and_keeps_its_bytes() -> None:
    study = small_study(stable={"loss_spike": {}})
    assert study.model_dump(mode="json")["tie_breakers"] == ["speed/tokens_per_s"]
    assert study.shown_at_ties == ("speed/tokens_per_s",) and "tie_breaker" not in study.families
    # Of the version before tie-breakers could decide.
    assert (
        sha256_of(study.model_dump(mode="json")) == "3679166933ae559729e2c2dd68c6d3e8b0f90486de6eef6d3153035f5317e12d"
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("between: [layernorm, none]", "between: [layernorm, nome]", "between", "'nome' is not a variant"),
        ("between: [layernorm, none]", "between: [none, none]", "between", "'none' twice"),
        ("between: [layernorm, none]", "between: [none]", "between", "missing"),
        ("tie: same", "tie: equal", "tie: equal", "no line of the decision has the verdict 'equal'"),
        ("tie: same", "tie: inconclusive", "tie: inc", "a line without a condition"),
        ("tie: same", "tie: keep none", "tie: keep", "more than one line"),
        ("metric: val/accuracy, smallest: 0.005", "metric: val/accuracy, smallest: 0", "smallest: 0", "more than 0"),
        ("metric: val/accuracy", "metric: val/acuracy", "val/acuracy", "nothing says which way"),
        ("metric: val/accuracy", "metric: grad/norm", "grad/norm", "nothing says which way grad/norm improves"),
        ("metric: val/accuracy", "metric: speed/tokens_per_s", "order", "speed/tokens_per_s comes twice"),
        ("role: guardrail}", "role: tie_breaker}", "role: tie_breaker", "has the role tie_breaker"),
        ("when: supported(same)", "when: supported(sane)", "when: supported(sane)", "'sane' is not a hypothesis"),
        ("verdict: late, when: supported(gain_ln)", "verdict: late, when: supported(gain)", "verdict: late", "'gain'"),
    ],
)
def test_mistakes_are_placed_in_the_file(tmp_path: Path, old: str, new: str, line: str, words: str) -> None:
    text = changed(
        EMBNORM,
        "tie_breakers: [val/bits_per_byte, speed/tokens_per_s]\n",
        "tie_breakers:\n  between: [layernorm, none]\n  tie: same\n  order:\n"
        "    - {metric: val/accuracy, smallest: 0.005}\n    - {metric: speed/tokens_per_s, smallest: 2%}\n",
    )
    text = changed(
        text, "  harm_ln:", "  same: {claim: layernorm does_not_change val/loss, smallest: 0.02}\n  harm_ln:"
    )
    text = changed(
        text,
        "  - {verdict: inconclusive}",
        "  - {verdict: same, when: supported(same)}\n  - {verdict: late, when: supported(gain_ln)}\n"
        "  - {verdict: inconclusive}",
    )
    assert load_text(tmp_path / "right", text).study.decision[5].verdict.startswith("layernorm (tie")
    broken = changed(text, old, new)
    with pytest.raises(StudyError) as refused:
        load_text(tmp_path / "wrong", broken)
    assert words in refused.value.found or words in refused.value.required
    assert refused.value.where.line is not None
    assert line in broken.splitlines()[refused.value.where.line - 1]


def test_an_inconclusive_primary_is_a_tie_only_where_registered_and_then_check_warns() -> None:
    assert absences_of_the_tie(tied()) == ()
    assert "at most 0.05" in tie_errors(tied()) and "the tie is a finding" in tie_errors(tied())
    study = tied(when="not supported(gain) and not refuted(gain)")
    assert absences_of_the_tie(study) == ("not supported(gain)", "not refuted(gain)")
    assert "nothing bounds how often arms are called tied that are not" in tie_errors(study)
    assert "nothing bounds" in families(study)
    assert absences_of_the_tie(tied(when="inconclusive(gain) and supported(same)")) == ("inconclusive(gain)",)
    assert absences_of_the_tie(tied(when="not inconclusive(gain) and stable(none)")) == ()
    assert absences_of_the_tie(small_study()) == () and tie_errors(small_study()) == ""
    assert "errors of 4 tie-breaking claims add up" in tie_errors(tied(analysis={"correct": "none"}))


def finals(accuracy: float, speed: float) -> dict[str, dict[tuple[str, int], float]]:
    """Equal losses; layernorm's accuracy higher by so much, its speed by that ratio."""
    noise = {1: 0.2, 2: -0.31, 3: 0.1, 4: 0.3, 5: -0.29}
    cells = [(arm, seed) for arm in TWO_ARMS for seed in noise]
    level = {"layernorm": 1.0, "none": 0.0}
    small = {(arm, seed): 1e-3 * noise[seed] * (1 + level[arm]) for arm, seed in cells}
    tokens = LEVELS["speed/tokens_per_s"]
    return {
        "val/loss": {cell: 2.0 + small[cell] for cell in cells},
        "val/accuracy": {cell: 0.5 + accuracy * level[cell[0]] + small[cell] for cell in cells},
        "speed/tokens_per_s": {cell: tokens * speed ** level[cell[0]] * (1 + small[cell]) for cell in cells},
    }


@pytest.mark.parametrize(
    ("accuracy", "speed", "verdict"),
    [
        (0.01, 1.0, "layernorm (tie broken by val/accuracy)"),
        (-0.01, 1.1, "none (tie broken by val/accuracy)"),  # the first that is shown decides
        (0.0, 0.9, "none (tie broken by speed/tokens_per_s)"),
        (0.004, 1.1, "layernorm (tie broken by speed/tokens_per_s)"),  # below its margin
        (0.0, 1.01, "tie"),
    ],
)
def test_the_first_metric_that_shows_its_margin_decides_a_tie(accuracy: float, speed: float, verdict: str) -> None:
    found = decide(*make_evidence(tied(), finals=finals(accuracy, speed)))
    assert (found.status, found.verdict) == ("decided", verdict)
    assert found.tie_breakers == {} and len(found.findings) == 6


def test_tie_breakers_say_nothing_where_there_is_no_tie() -> None:
    values = finals(0.05, 1.5)
    # Not shown to be equal: the noise is larger than the margin.
    values["val/loss"] = {cell: 2.0 + 300 * (value - 2.0) for cell, value in values["val/loss"].items()}
    found = decide(*make_evidence(tied(), finals=values))
    assert found.verdict == "inconclusive" and found.findings[2].outcome == "supported"


def test_words_say_what_is_registered() -> None:
    said = tie_breakers(tied())
    assert "tie (supported(same))" in said and "val/accuracy by at least 0.005 and speed/tokens_per_s by" in said
    assert "deciding nothing" in tie_breakers(small_study())


def test_a_verdict_by_a_tie_breaker_adopts_the_arm_that_it_names() -> None:
    guard = {"claim": "layernorm does_not_worsen grad/norm", "smallest": 0.1, "better": "lower", "role": "guardrail"}
    study = tied(hypotheses={"gain": GAIN, "same": SAME, "harm": guard})
    effects = dict.fromkeys(study.hypotheses, 0.0)
    assert harmful_verdicts(study, effects) == frozenset()
    harmed = harmful_verdicts(study, effects | {"harm": 0.5})
    assert "layernorm (tie broken by val/accuracy)" in harmed and "none (tie broken by val/accuracy)" not in harmed
    # A change for the better breaks a claim of no change, and harms nobody.
    assert harmful_verdicts(study, effects | {"same": -0.5}) == frozenset()
    assert "adopt layernorm" in harmful_verdicts(study, effects | {"same": 0.5})


def test_tie_breakers_are_a_step_of_a_gate() -> None:
    study = tied(
        analysis={"gate": {"order": ["same", "gain", "tie_breaker"]}},
        decision=[{"verdict": "tie", "when": "supported(same)"}, {"verdict": "inconclusive"}],
    )
    assert study.gate_steps[2].names == tuple(WRITTEN)


def test_a_design_draws_each_tie_breaker_true_by_itself() -> None:
    noise = {m: {"sd": 0.01} for m in ("val/loss", "val/accuracy", "speed/tokens_per_s")}
    study = tied(assume={"metrics": noise})
    drawn = {one.name for one in effect_scenarios(study) if drawable(study, one, assumed(study)) is None}
    assert {f"only {name} true, at its smallest" for name in WRITTEN} <= drawn


def simulated(
    when: str, *, n: int, loss: float = 0.0, accuracy: float = 0.0, speed: float = 0.0, margin: float = 2.0
) -> dict[str, tuple[float, float]]:
    """Chance of every verdict, and its error, of 40,000 simulated studies; effects in SDs of a difference, margins of
    the tie-breakers 1 SD."""
    noise = {m: {"sd": 0.5**0.5, "correlation": 0.0} for m in ("val/loss", "val/accuracy", "speed/tokens_per_s")}
    study = tied(
        when=when,
        seeds=list(range(1, n + 1)),
        hypotheses={"gain": GAIN | {"smallest": margin}, "same": SAME | {"smallest": margin}},
        tie_breakers={
            "between": ["layernorm", "none"],
            "order": [{"metric": "val/accuracy", "smallest": 1.0}, {"metric": "speed/tokens_per_s", "smallest": 1.0}],
        },
        assume={"metrics": noise},
    )
    effects = dict(zip(study.hypotheses, (loss, loss, accuracy, -accuracy, speed, -speed), strict=True))
    found: Scenario = simulate(study, TrueEffects("", effects), assumed(study), n_sims=40_000, seed=[n])
    return {one.of: (one.share, one.error) for one in found.verdicts}


@pytest.mark.simulation
def test_a_wrong_verdict_by_a_tie_breaker_has_at_most_alpha() -> None:
    """The numbers of docs/designs.md."""

    def chance(verdicts: dict[str, tuple[float, float]], arm: str = "") -> float:
        return sum(share for verdict, (share, _) in verdicts.items() if f"{arm} (tie" in verdict)

    for n in (5, 8):
        equal, one, both = (
            simulated("supported(same)", n=n, accuracy=a, speed=s) for a, s in ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0))
        )
        # The tie is none: layernorm is better, or worse, by the margin; none wins every tie-breaker.
        apart = [simulated("supported(same)", n=n, loss=loss, accuracy=-6.0) for loss in (-2.0, 2.0)]
        wrong = [chance(equal), chance(one), chance(both), *map(chance, apart)]
        right = [chance(simulated("supported(same)", n=n, accuracy=a), "layernorm") for a in (2.0, 3.0)]
        print(n, wrong, right, equal["tie"])
        assert all(share < 0.05 + 3 * (0.05 * 0.95 / 40_000) ** 0.5 for share in wrong)
        assert wrong[0] < 0.001 and right[1] > right[0]
        absent = simulated("not supported(gain) and not refuted(gain)", n=n, loss=-1.0, accuracy=-6.0, margin=1.0)
        shown = simulated("supported(same)", n=n, loss=-1.0, accuracy=-6.0, margin=1.0)
        print("absence", chance(absent), "shown", chance(shown))
        assert chance(absent) > 5 * chance(shown)


@pytest.mark.slow
def test_a_study_from_its_file_to_a_tie_that_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(design_room, "design", partial(design_room.design, n_sims=50))
    house = OwnHouse(tmp_path / "house")
    house.script(SCRIPT.replace("step / 100 + noise", "step / 100 + noise * lr"))
    # Equal val/loss within .05 at rates of .1 and .102, and a train/loss that falls with the rate.
    path = house.write(
        variants={"slow": {}, "fast": {"lr": 0.102}},
        base={"lr": 0.1, "steps": 40},
        seeds=[1, 2, 3, 4],
        hypotheses={"same": {"claim": "fast does_not_change val/loss", "smallest": 0.05}},
        decision=[{"verdict": "tie", "when": "supported(same)"}, {"verdict": "inconclusive"}],
        tie_breakers={
            "between": ["fast", "slow"],
            "order": [{"metric": "train/loss", "smallest": 0.0002, "better": "lower"}],
        },
    )
    checked = CliRunner().invoke(app, ["check", str(path)], env={"COLUMNS": "100"})
    assert checked.exit_code == 0 and "fast_by_train_loss" in checked.output
    assert api.run(path, RunOptions(slots=2)).summary.complete
    decided = api.decide(path).decision
    assert decided.verdict == "fast (tie broken by train/loss)" and decided.line == 1
    assert {one.hypothesis: one.outcome for one in decided.findings}["fast_by_train_loss"] == "supported"
    registered = (house.path / "studies" / "own.registration.md").read_text(encoding="utf-8")
    assert "the first of these metrics that shows fast or slow to be better decides" in registered
    report = (house.path / "reports" / "own" / "report.md").read_text(encoding="utf-8")
    assert "fast (tie broken by train/loss)" in report
    assert CliRunner().invoke(app, ["verify", str(path)]).exit_code == 0


def test_a_file_says_the_mapping_in_yaml(tmp_path: Path) -> None:
    document = own_document(
        hypotheses={"same": {"claim": "fast does_not_change val/loss", "smallest": 0.05}},
        decision=[{"verdict": "tie", "when": "supported(same)"}, {"verdict": "inconclusive"}],
        tie_breakers={"between": ["fast", "slow"], "order": [{"metric": "x", "smallest": "5%", "better": "lower"}]},
    )
    study = study_from_document(yaml.safe_load(yaml.safe_dump(document)))
    assert study.hypotheses["fast_by_x"].percent == 5.0 and study.hypotheses["fast_by_x"].better == "lower"
