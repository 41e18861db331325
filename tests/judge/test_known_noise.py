"""`assume: {sd: known from STUDY}`: what is registered of the runs named, when it is withdrawn, refusals, and LIES.

The house has a study `earlier` of four seeds and a study `again` of the same two setups under other names of
the arms, with seeds of its own. The trainer takes the noise of the second arm from a table, so that every SD is known
by hand.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from own_trainer import OwnHouse, own_document
from quiet import QUIET

import ablate as api
import prereg.registering
from ablate import deciding, exporting
from ablate.judge.decide import decide
from ablate.records.evidence import Evidence
from ablate.records.gather import gather
from ablate.records.store import RunFolder
from ablate.reporting import markdown
from ablate.reporting.context import ReportContext
from ablate.reporting.document import compose
from ablate.runner.options import RunOptions
from prereg.errors import StudyError
from prereg.registry.ledger_entry import AmendedEntry, Difference, SealedEntry
from prereg.registry.paths import Root
from prereg.registry.registration import KnownNoise, Registration, load_registration

pytestmark = pytest.mark.slow

RULE = "the spread that is known is that of sealed runs"
LARGER = "the spread is no larger than it was known to be"
NOISE = {1: 0.01, 2: 0.02, 3: 0.03, 4: 0.06, 21: 0.0, 22: 0.02, 23: 0.04, 31: -0.3, 32: 0.0, 33: 0.3}
TRAINER = f"""
import json, os
config, seed = json.load(open(os.environ["ABLATE_CONFIG"])), int(os.environ["ABLATE_SEED"])
noise = {NOISE}.get(seed, 0.0) if config["lr"] > 0.2 else 0.0
with open("metrics.jsonl", "w") as out:
    for step in range(1, config["steps"] + 1):
        print(json.dumps({{"step": step, "metric": "train/loss", "value": 3.0 - step / 10}}), file=out)
    value = 2.0 - config["lr"] + seed / 100 + noise
    print(json.dumps({{"step": config["steps"], "metric": "val/loss", "value": value}}), file=out)
"""
# The differences of seeds 1 to 4 lie .01, .02, .03 and .06 above -.3: about their mean -.02, -.01, 0 and .03, so that
# s0^2 = .0014 / 3. Those of seeds 21 to 23 have s^2 = .0004, those of 31 to 33 .09.
KNOWN_SD = (0.0014 / 3) ** 0.5


@pytest.fixture(scope="module", autouse=True)
def no_charts() -> Iterator[None]:
    """Reports are written as Markdown alone: the charts of the other page take seconds."""

    def markdown_page(text: ReportContext) -> dict[str, bytes]:
        return {"report.md": markdown.render_markdown(text, compose(text)).encode()}

    with pytest.MonkeyPatch.context() as patched:
        for module in (deciding, exporting):
            patched.setattr(module, "pages", markdown_page)
        yield


def again(**changes: Any) -> dict[str, Any]:
    """The later study: the same setups under other names."""
    document = own_document(
        study="again",
        seeds=[21, 22, 23],
        variants={"calm": {}, "quick": {"lr": 0.4}},
        baseline="calm",
        hypotheses={"gain": {"claim": "quick lowers val/loss", "smallest": 0.2}},
        decision=[{"verdict": "take quick", "when": "supported(gain)"}, {"verdict": "inconclusive"}],
        assume={"sd": "known from earlier"},
    )
    return document | changes


def workspace(house: OwnHouse) -> api.Workspace:
    return api.Workspace(root=house.path, console=QUIET)


def carried_out(house: OwnHouse, document: dict[str, Any]) -> Path:
    """A study, registered and run."""
    study = house.write(document)
    api.run(study, RunOptions(slots=1), workspace=workspace(house))
    return study


@pytest.fixture(scope="module")
def earlier_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    house = OwnHouse(tmp_path_factory.mktemp("known") / "house")
    house.script(TRAINER)
    carried_out(house, own_document(study="earlier", seeds=[1, 2, 3, 4]))
    return house.path


@pytest.fixture(scope="module")
def decided_files(earlier_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    house = OwnHouse(tmp_path_factory.mktemp("again") / "house", of=earlier_files)
    api.decide(carried_out(house, again()), workspace=workspace(house))
    return house.path


@pytest.fixture
def house(earlier_files: Path, tmp_path: Path) -> OwnHouse:
    return OwnHouse(tmp_path / "house", of=earlier_files)


def ledger_of(house: OwnHouse) -> list[dict[str, Any]]:
    lines = (house.path / "studies" / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def registered(house: OwnHouse, document: dict[str, Any]) -> KnownNoise:
    registration, _ = api.register(house.write(document), workspace=workspace(house))
    assert registration.noise is not None
    return registration.noise


def test_what_is_registered_is_the_spread_of_all_sealed_runs_of_these_setups(house: OwnHouse) -> None:
    noise = registered(house, again())
    (spread,) = noise.spreads
    assert spread.sd == pytest.approx(KNOWN_SD, rel=1e-9)
    assert (spread.hypothesis, spread.n, spread.df, noise.study, noise.level) == ("gain", 4, 3, "earlier", 0.1)
    assert [(run.variant, run.seed) for run in noise.runs] == [
        (arm, seed) for seed in (1, 2, 3, 4) for arm in ("calm", "quick")
    ]
    sealed = {line["sha256"] for line in ledger_of(house) if (line["event"], line["study"]) == ("sealed", "earlier")}
    assert {run.seal for run in noise.runs} == sealed
    page = (house.path / "studies" / "again.registration.md").read_text(encoding="utf-8")
    assert '0.0216 in "gain" (4 seeds, 3 degrees of freedom)' in page


def test_the_design_plans_with_it_as_with_a_pilot(house: OwnHouse) -> None:
    study = house.write(again())
    plan = api.design(study, workspace=workspace(house))
    house.write(again(assume={}))
    assert plan.beliefs == api.design(study, workspace=workspace(house), pilot="earlier").beliefs
    assert plan.hypotheses[0].power is not None


def test_without_it_a_study_is_registered_as_before(house: OwnHouse) -> None:
    registration, _ = api.register(house.write(again(assume={})), workspace=workspace(house))
    lock = json.loads((house.path / "studies" / "again.lock.json").read_text(encoding="utf-8"))
    assert registration.noise is None and "noise" not in lock and "sd" not in lock["study"]["assume"]


def test_the_report_says_whether_the_studys_own_spread_withdraws_it(decided_files: Path) -> None:
    verdict = json.loads((decided_files / "reports" / "again" / "verdict.json").read_text(encoding="utf-8"))
    (spread,) = verdict["noise"]
    # F = .0004 / (.0014 / 3); with 2 and 3 degrees of freedom its tail is (1 + 2 F / 3)^(-3 / 2).
    f = 0.0004 * 3 / 0.0014
    assert (spread["f"], spread["p"]) == pytest.approx((f, (1 + 2 * f / 3) ** -1.5), rel=1e-9)
    assert (spread["sd"], spread["n"], spread["withdrawn"]) == (pytest.approx(0.02), 3, False)
    report = (decided_files / "reports" / "again" / "report.md").read_text(encoding="utf-8")
    assert "gain, SD 0.0216 (n = 4, 3 degrees of freedom), here 0.02 (n = 3), F = 0.857, one-sided p .508" in report


def test_a_larger_spread_withdraws_it_and_the_verdict_is_that_of_the_study_alone(house: OwnHouse) -> None:
    decision = api.decide(carried_out(house, again(seeds=[31, 32, 33])), workspace=workspace(house)).decision
    (spread,) = decision.noise
    assert spread.withdrawn and spread.p == pytest.approx((1 + 2 * (0.09 * 3 / 0.0014) / 3) ** -1.5)
    (remark,) = [check for check in decision.checks if check.name == LARGER]
    assert (remark.passed, remark.severity) == (False, "note")
    (finding,) = decision.findings
    # t = -.3 / (.3 / sqrt(3)) = -sqrt(3) of two degrees of freedom: p = 1 - t / sqrt(2 + t^2).
    assert finding.estimate is not None and finding.estimate.df == 2
    assert finding.estimate.p == pytest.approx(1 - (3 / 5) ** 0.5)
    assert "withdrawn: it is larger" in (house.path / "reports" / "again" / "report.md").read_text(encoding="utf-8")


# --- Refusals: nothing is written. ------------------------------------------------------------------------------------


def table_changed(house: OwnHouse) -> None:
    (table,) = (house.path / "data" / "runs" / "earlier").glob("*/fast/2/metrics.parquet")
    table.write_bytes(table.read_bytes() + b"x")


def run_removed(house: OwnHouse) -> None:
    (folder,) = (house.path / "data" / "runs" / "earlier").glob("*/fast/2")
    shutil.rmtree(folder)


def code_changed(house: OwnHouse) -> None:
    house.script(TRAINER + "# another trainer\n")


def of_two_seeds(house: OwnHouse) -> None:
    carried_out(house, own_document(study="two", seeds=[5, 6]))


def all_alike(house: OwnHouse) -> None:
    carried_out(house, own_document(study="alike", seeds=[5, 6, 7]))


def nothing(_: OwnHouse) -> None:
    pass


# fmt: off
REFUSALS = [
    # what is wrong, what was done, what the study says, words of what is found
    ("itself", nothing, {"assume": {"sd": "known from again"}}, "'again' names itself"),
    ("no such study", nothing, {"assume": {"sd": "known from other"}}, "no study 'other' is registered here"),
    ("damaged", table_changed, {}, "'earlier' is damaged"),
    ("a run that is gone", run_removed, {}, "'earlier' lacks 1 of 8 planned runs"),
    ("other code", code_changed, {}, "'earlier' has no sealed run of the setup of 'quick' and 'calm'"),
    ("another configuration", nothing, {"base": {"lr": 0.1, "steps": 5}}, "no sealed run of the setup of"),
    ("another setup of one arm", nothing, {"variants": {"calm": {}, "quick": {"lr": 0.5}}}, "of the setup of 'quick'"),
    ("its own runs", nothing, {"seeds": [4, 22, 23]}, "seed 4 of 'earlier' is a run of this study too"),
    ("two pairs", of_two_seeds, {"assume": {"sd": "known from two"}}, "'two' gives no spread of gain"),
    ("no spread", all_alike, {"assume": {"sd": "known from alike"}}, "in 'alike' are all the same"),
]
# fmt: on


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row[0])
def test_registration_refuses_what_is_no_knowledge_from_before(
    row: tuple[str, Callable[[OwnHouse], None], dict[str, Any], str], house: OwnHouse
) -> None:
    _, prepare, changes, words = row
    prepare(house)
    study = house.write(again(**changes))
    before = house.snapshot()
    with pytest.raises(StudyError) as refused:
        api.register(study, workspace=workspace(house))
    assert words in refused.value.found and refused.value.where.line is not None
    assert house.snapshot() == before


def test_a_tool_that_reads_no_values_cannot_register_it(house: OwnHouse) -> None:
    with pytest.raises(StudyError, match="the spread of those runs was not computed"):
        prereg.registering.register(house.write(again()))


def test_a_pilot_next_to_it_is_refused(house: OwnHouse) -> None:
    with pytest.raises(StudyError, match=r"and assume\.sd is"):
        api.design(house.write(again()), workspace=workspace(house), pilot="earlier")


def test_it_cannot_be_named_once_runs_have_started(house: OwnHouse) -> None:
    carried_out(house, again(assume={}))
    study = house.write(again())
    with pytest.raises(StudyError, match="runs of 'again' have started"):
        api.amend(study, reason="it is known now", workspace=workspace(house))


def test_it_stays_what_it_was_when_something_else_is_amended(house: OwnHouse) -> None:
    carried_out(house, again())
    root = Root(house.path)
    before = load_registration(root, "again")
    study = house.write(again(analysis={"also": ["sign_flip"]}))
    after, _ = api.amend(study, reason="one more description", workspace=workspace(house))
    assert before is not None and after.sha256 != before.sha256 and after.noise == before.noise
    assert api.decide(study, workspace=workspace(house)).decision.gives_verdict


# --- LIES: what was done to the lock or the ledger leaves no verdict. -------------------------------------------------

Case = tuple[Registration, Evidence]
Lie = Callable[[Registration, Evidence], Case]


@pytest.fixture(scope="module")
def honest(decided_files: Path) -> Case:
    root = Root(decided_files)
    registration = load_registration(root, "again")
    assert registration is not None
    return registration, gather(root, registration)


def noise_with(change: Callable[[KnownNoise], dict[str, Any]]) -> Lie:
    """Another promise in the lock."""

    def lie(registration: Registration, evidence: Evidence) -> Case:
        noise = registration.noise
        assert noise is not None
        return registration.model_copy(update={"noise": noise.model_copy(update=change(noise))}), evidence

    return lie


def first_seal(**fields: Any) -> Lie:
    """The seal of the first run says something else."""

    def lie(registration: Registration, evidence: Evidence) -> Case:
        assert registration.noise is not None
        first = registration.noise.runs[0].seal
        entries = [
            entry.model_copy(update=fields) if isinstance(entry, SealedEntry) and entry.sha256 == first else entry
            for entry in evidence.elsewhere
        ]
        return registration, replace(evidence, elsewhere=tuple(entries))

    return lie


def sealed_afterwards(registration: Registration, evidence: Evidence) -> Case:
    assert registration.noise is not None
    late = {registration.noise.runs[0].seal: len(evidence.places)}
    return registration, replace(evidence, places={**evidence.places, **late})


def with_its_own_run(registration: Registration, evidence: Evidence) -> Case:
    """The study has a run of the earlier one, too."""
    study = registration.study.model_copy(update={"seeds": (1, 22, 23)})
    return registration.model_copy(update={"study": study}), evidence


def named_afterwards(registration: Registration, evidence: Evidence) -> Case:
    """The earlier study was named when runs of this one had started."""
    first, *rest = evidence.ledger
    fields = {name: getattr(first, name) for name in ("lock_sha256", "source_sha256", "file")}
    change = Difference(field="assume.sd", registered="(absent)", now="known from earlier")
    amended = AmendedEntry(
        **fields,
        study="again",
        registration=registration.sha256,
        at=first.at,
        index=first.index,
        sha256=first.sha256,
        replaces="0" * 64,
        reason="it is known now",
        evidence="runs started",
        differences=(change,),
    )
    return registration, replace(evidence, ledger=(first, amended, *rest))


# fmt: off
LIES = [
    ("no spread in the lock", lambda r, e: (r.model_copy(update={"noise": None}), e)),
    ("the runs of another study", noise_with(lambda noise: {"study": "other"})),
    ("a run left out", noise_with(lambda noise: {"runs": noise.runs[1:]})),
    ("a run counted twice", noise_with(lambda noise: {"runs": (*noise.runs, noise.runs[0])})),
    ("a run that no entry seals", noise_with(lambda noise: {"runs": (
        noise.runs[0].model_copy(update={"seal": "0" * 64}), *noise.runs[1:])})),
    ("runs of the other arm", noise_with(lambda noise: {"runs": tuple(
        run.model_copy(update={"variant": "quick"}) for run in noise.runs)})),
    ("no spread of a hypothesis", noise_with(lambda noise: {"spreads": ()})),
    ("a run of another setup", first_seal(recipe_sha256="0" * 64)),
    ("a run that diverged", first_seal(status="diverged")),
    ("a run that was sealed after the registration", sealed_afterwards),
    ("a run that the study has too", with_its_own_run),
    ("named after runs had started", named_afterwards),
]
# fmt: on


def test_without_a_lie_there_is_a_verdict(honest: Case) -> None:
    decision = decide(*honest)
    assert decision.gives_verdict and len(decision.noise) == 1
    assert next(check for check in decision.checks if check.name == RULE).passed


@pytest.mark.parametrize("lie", [pytest.param(lie, id=name) for name, lie in LIES])
def test_a_lie_about_what_is_known_leaves_no_verdict(lie: Lie, honest: Case) -> None:
    decision = decide(*lie(*honest))
    failed = {check.name for check in decision.checks if not check.passed and check.severity == "inadmissible"}
    assert RULE in failed and decision.verdict is None, failed


def wrong_with(target: Path) -> set[str]:
    """What `verify` finds wrong."""
    return {item.what for item in api.verify(target).items if item.faults}


KNOWN = "spread known from 'earlier'"


def test_verify_computes_it_again_where_its_runs_are(decided_files: Path, tmp_path: Path) -> None:
    house = OwnHouse(tmp_path / "house", of=decided_files)
    study = house.path / "studies" / "again.yaml"
    bundle = api.bundle(study, out=tmp_path / "again.zip", workspace=workspace(house)).path
    assert not wrong_with(study)
    # In a bundle are the seals of these runs, and not their values.
    checked = {item.what: item for item in api.verify(bundle).items}
    assert not wrong_with(bundle) and checked[KNOWN].unchecked == "its runs are not here"
    table_changed(house)
    assert wrong_with(study) == {KNOWN}


def test_runs_that_were_swapped_for_quieter_ones_are_found(decided_files: Path, tmp_path: Path) -> None:
    house = OwnHouse(tmp_path / "house", of=decided_files)
    (quiet,) = (house.path / "data" / "runs" / "earlier").glob("*/fast/1")
    for folder in quiet.parent.iterdir():
        if folder != quiet:
            shutil.copy(RunFolder(quiet).sealed_path, RunFolder(folder).sealed_path)
    assert KNOWN in wrong_with(house.path / "studies" / "again.yaml")
