"""LIES about campaigns: what somebody who holds the files, or proposes, could do, and what finds it.

The house has a campaign of three proposals: one is kept, one dropped, and what was dropped is proposed once more.
`FORGERIES` change its files, and `verify` names them; the tests below go through `propose` and `register`.
"""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from forgeries import Holding, Line, entries, saying, text
from quiet import QUIET
from test_lies import checked
from test_propose import TRAINER, document

import ablate as api
from ablate.campaigning import register_campaign
from ablate.proposing import ProposalResult
from ablate.runner.options import RunOptions
from ablate.verification.verify import verify_target
from prereg.campaign.record import campaign_sha256
from prereg.errors import StudyError
from prereg.registry.canon import sha256_of
from prereg.verification import HISTORY

CAMPAIGN, STUDIES, DECIDED = "campaign", "studies of proposals", "proposals decided again"
PROMISE, RECORDS, NOTHING = "study and lock", "sealed records", ""
WORKSPACE = api.Workspace(console=QUIET)


class Campaign(Holding):
    """The files of a campaign in somebody's hands."""

    @property
    def file(self) -> Path:
        return self.path / "campaigns" / "night.yaml"

    def propose(self, why: str = "it may help", again: str | None = None, **settings: Any) -> ProposalResult:
        return api.propose(self.file, settings, why=why, again=again, options=RunOptions(slots=1), workspace=WORKSPACE)

    def refused(self, **settings: Any) -> str:
        with pytest.raises(StudyError) as refused:
            self.propose(**settings)
        return refused.value.found

    def write(self, name: str = "night", **changes: Any) -> Path:
        path = self.file.with_stem(name)
        path.write_text(yaml.safe_dump(document(campaign=name, **changes), sort_keys=False), encoding="utf-8")
        return path


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three proposals: a keep, a drop, and what was dropped once more; next to them a bundle of it, unpacked."""
    path = tmp_path_factory.mktemp("campaign") / "house"
    of = Campaign(path)
    for folder in ("studies", "campaigns"):
        (path / folder).mkdir(parents=True)
    (path / "train.py").write_text(TRAINER.replace("../stop", str(path.parent / "stop")), encoding="utf-8")
    of.write()
    assert of.propose(gain=0.3).answer == "keep"
    assert of.propose(gain=0.2).answer == "drop"
    assert of.propose(gain=0.2, again="once more").answer == "drop"
    bundled = api.bundle(of.file, out=path.parent / "night.ablate.zip", workspace=WORKSPACE)
    with zipfile.ZipFile(bundled.path) as archive:
        archive.extractall(path.parent / "bundle")
    return path


@pytest.fixture
def stop(honest: Path) -> Iterator[Path]:
    """A file that makes every run fail as long as it is there."""
    yield honest.parent / "stop"
    (honest.parent / "stop").unlink(missing_ok=True)


@pytest.fixture
def house(honest: Path, tmp_path: Path) -> Campaign:
    return Campaign(Path(shutil.copytree(honest, tmp_path / "house")))


def changed(of: Campaign) -> set[str]:
    return {item.what for item in verify_target(of.path / "studies" / "night.yaml").items if item.faults}


def of_proposal(number: int, event: str, change: Callable[[Line], object]) -> Callable[[Holding], None]:
    """Another body of the last entry of that kind of a proposal, chained anew."""

    def do(of: Holding) -> None:
        def other(lines: list[Line]) -> list[Line]:
            mine = [line for line in lines if line["event"] == event and line["body"]["number"] == number]
            change(mine[-1]["body"])
            return lines

        of.rewrite(other)

    return do


def setting(**settings: Any) -> Callable[[Line], object]:
    return lambda body: body["change"].update(settings=settings)


def kept(body: Line) -> None:
    body["decision"] |= {"outcome": "keep", "reason": "shown"}
    body |= {"outcome": "keep", "decision_sha256": sha256_of(body["decision"])}


def a_larger_gain(body: Line) -> None:
    body["decision"]["parts"][0]["improvement"] = 0.9
    body["decision_sha256"] = sha256_of(body["decision"])


def promising(**fields: Any) -> Callable[[Holding], None]:
    """Another campaign in the ledger, its registration made right, and every mention of it."""

    def change(lines: list[Line]) -> list[Line]:
        opened = lines[0]["body"]
        old = lines[0]["registration"]
        opened["campaign"] |= fields
        new = campaign_sha256(opened["campaign"], opened["start_sha256"], None, "nonce")
        return [line | {"registration": new} if line["registration"] == old else line for line in lines]

    return entries(change)


def without_nonce(body: Line) -> None:
    """What somebody writes who wants to know the seeds first: the seeds of the rule without a nonce."""
    body.pop("nonce")
    # The forgery writes the chain anew, so that the entry before has another hash; whatever it is, no nonce is enough.
    body["seeds"] = [*range(1, 1 + len(body["seeds"]))]


def of_before_nonces(lines: list[Line]) -> list[Line]:
    """The promise of nonces taken back, in the entry that registers the campaign, without its hash."""
    lines[0]["body"].pop("seeds_follow_from")
    return lines


def left_out(number: int) -> Callable[[Holding], None]:
    """Without a proposal, its study and its runs."""
    return entries(lambda lines: [
        line for line in lines
        if line["body"].get("number") != number and line["study"] != f"night-p{number}"
    ])  # fmt: skip


def another_table(of: Holding) -> None:
    table = sorted(of.path.glob("data/runs/night-p1/*/proposal/*/metrics.parquet"))[0]
    table.write_bytes(table.read_bytes() + b"x")


def in_the_file(of: Holding) -> None:
    Campaign(of.path).write(start=document()["start"] | {"base": {"gain": -0.5, "speed": 1.0}})


# fmt: off
FORGERIES = [
    #   what was done, the forgery, the item of `verify` that finds it, in files and in a bundle
    ("nothing", lambda _: None, NOTHING),
    # A kept change, edited after the keep.
    ("another kept change in the ledger", of_proposal(1, "proposed", setting(gain=0.4)), CAMPAIGN),
    ("another last change in the ledger", of_proposal(3, "proposed", setting(gain=0.4)), STUDIES),
    ("another kept change in its study", text("studies/night-p1.yaml", "gain: 0.3", "gain: 0.4"), PROMISE),
    ("another kept change in its lock", text("studies/night-p1.lock.json", '"gain": 0.3', '"gain": 0.4'), PROMISE),
    ("another trainer after the keep", text("train.py", "3.0 - gain", "2.0 - gain"), PROMISE),
    ("another table of a kept change", another_table, RECORDS),
    # A baseline, changed by hand.
    ("another start in the ledger", promising(start=document()["start"] | {"base": {"gain": -1.0, "speed": 1.0}}),
        CAMPAIGN),
    ("another best in the ledger", of_proposal(3, "proposed", lambda body: body.update(best_sha256="0" * 64)),
        CAMPAIGN),
    ("another best in a study", text("studies/night-p3.lock.json", '"gain": 0.3', '"gain": 0.1'), PROMISE),
    # A decision, a proposal or a promise that was another.
    ("a drop as a keep", of_proposal(3, "staged", kept), DECIDED),
    ("a larger gain", of_proposal(3, "staged", a_larger_gain), DECIDED),
    ("other evidence", of_proposal(3, "staged", lambda body: body.update(evidence="0" * 64)), DECIDED),
    ("a keep given up", of_proposal(1, "staged", lambda body: body.update(given_up="no")), CAMPAIGN),
    ("a proposal left out", left_out(2), CAMPAIGN),
    ("a repetition without its reason", of_proposal(3, "proposed", lambda body: body.pop("again")), CAMPAIGN),
    ("a repetition as another change",
        of_proposal(3, "proposed", lambda body: body.update(content_sha256="0" * 64)), CAMPAIGN),
    ("other seeds", of_proposal(3, "proposed", lambda body: body["seeds"].reverse()), CAMPAIGN),
    ("another nonce", of_proposal(3, "proposed", lambda body: body.update(nonce="0" * 32)), CAMPAIGN),
    ("no nonce, and seeds that could be computed before", of_proposal(3, "proposed", without_nonce), CAMPAIGN),
    ("a campaign of nonces as one from before there were any", entries(of_before_nonces), CAMPAIGN),
    ("a larger error in the ledger", promising(error={"any_false_keep": 0.2}), CAMPAIGN),
    ("a larger error, and its hash not", entries(saying("opened", campaign=document())), CAMPAIGN),
]
# fmt: on


@pytest.mark.slow
@pytest.mark.parametrize(("forge", "finds"), [pytest.param(forge, finds, id=name) for name, forge, finds in FORGERIES])
def test_a_forgery_of_a_campaign_is_found(
    house: Campaign, honest: Path, tmp_path: Path, forge: Callable[[Holding], None], finds: str
) -> None:
    bundle = Campaign(Path(shutil.copytree(honest.parent / "bundle", tmp_path / "bundle")))
    forge(house)
    forge(bundle)
    for items in (changed(house), checked(bundle)):
        assert finds in items if finds else not items, items


@pytest.mark.slow
def test_what_only_git_or_a_head_that_somebody_has_can_show(house: Campaign) -> None:
    left_out(3)(house)
    assert not changed(house)


@pytest.mark.slow
def test_a_bundle_of_a_campaign_holds_what_has_ended(house: Campaign, stop: Path, tmp_path: Path) -> None:
    stop.touch()
    house.propose(gain=0.6)
    stop.unlink()
    api.run(house.path / "studies" / "night-p4.yaml", RunOptions(slots=1), workspace=WORKSPACE)
    bundled = api.bundle(house.file, out=tmp_path / "night.ablate.zip", workspace=WORKSPACE)
    with zipfile.ZipFile(bundled.path) as archive:
        names = archive.namelist()
    assert {name.split("/")[2] for name in names if name.startswith("data/runs/")} == {
        "night-p1",
        "night-p2",
        "night-p3",
    }
    assert {f"studies/night-p{number}.lock.json" for number in (1, 2, 3, 4)} <= set(names)
    assert bundled.check.intact and "campaigns/night.yaml" in names
    with pytest.raises(StudyError, match="a proposal of 'night' is open"):
        api.bundle(house.file, evidence=True, workspace=WORKSPACE)


@pytest.mark.slow
def test_a_clone_without_runs_decides_proposals_again_from_the_committed_evidence(house: Campaign) -> None:
    place = api.bundle(house.file, evidence=True, workspace=WORKSPACE).path
    assert place == house.path / "reports" / "night" / "evidence.ablate.zip"
    # 1. Next to the runs it is held against the ledger; without them it is read in their place.
    assert not changed(house)
    shutil.rmtree(house.path / "data" / "runs")
    items = {(each.study, each.what): each for each in verify_target(house.file).items}
    assert items["night", DECIDED].note == "3 proposals" and not items["night", DECIDED].unchecked
    assert items["night-p1", RECORDS].note.endswith("6 of 6 sealed runs hold")
    assert "none of these is in data/runs, so they are read from there" in items["night", "committed evidence"].note
    assert not changed(house)
    # 2. A study of the campaign finds its runs there too.
    assert verify_target(house.path / "studies" / "night-p1.yaml").intact
    # 3. Another record in it is found, and the proposals are not decided again from it.
    honest = place.read_bytes()
    with zipfile.ZipFile(place) as archive:
        record = next(archive.read(name) for name in archive.namelist() if name.endswith("metrics.parquet"))
    place.write_bytes(honest.replace(record, bytes([record[0]]) + record[1:-1][::-1] + record[-1:]))
    assert changed(house) == {"committed evidence"}
    place.write_bytes(honest)
    # 4. Evidence that another decision has followed says so.
    assert house.propose(gain=0.6).answer == "keep"
    (stale,) = [fault for each in verify_target(house.file).items for fault in each.faults if "evidence" in fault]
    assert "was made before the last decision" in stale and "ablate bundle campaigns/night.yaml --evidence" in stale


@pytest.mark.slow
def test_a_proposal_under_another_name_is_named_as_the_earlier_one(house: Campaign) -> None:
    # The best has gain .3 now: what is proposed are changes of it.
    for words in ({"gain": 0.2}, {"gain": 2e-1}, {"speed": 1, "gain": 0.2}, {"speed": 1.0, "gain": 0.2}):
        assert "proposal 3 had this code and configuration, and ended as drop" in house.refused(why="new", **words)
    for words in ({"gain": 0.3}, {"speed": 1.0}, {"gain": 0.30, "speed": 1}):
        assert "the change changes nothing" in house.refused(why="new", **words)


@pytest.mark.slow
def test_a_baseline_that_was_changed_by_hand_is_refused(house: Campaign) -> None:
    in_the_file(house)
    assert "start of 'night' changed since it was registered" in house.refused(speed=2.0)
    house.write()
    script = house.path / "train.py"
    script.write_text(script.read_text(encoding="utf-8").replace("3.0 - gain", "3.5 - gain"), encoding="utf-8")
    assert "code or data of 'night' are not what they were" in house.refused(speed=2.0)


@pytest.mark.slow
def test_a_best_that_was_changed_while_its_proposal_is_open_is_refused(house: Campaign, stop: Path) -> None:
    stop.touch()
    assert house.propose(gain=0.6).answer == "unfinished"
    stop.unlink()
    study = house.path / "studies" / "night-p4.yaml"
    honest = study.read_text(encoding="utf-8")
    study.write_text(honest.replace("gain: 0.3", "gain: 0.1"), encoding="utf-8")
    assert "'night-p4' is not what was registered" in house.refused(gain=0.6)
    assert PROMISE in changed(house)
    study.write_text(honest, encoding="utf-8")
    assert house.propose(gain=0.6).answer == "keep"


# Which campaign begins after `night`, what it changes, and what is said of `night`.
ANEW = [
    ("evening", {"smallest": 0.01}, "the same start"),
    # Another name of the metric, which the trainer would write as well.
    ("renamed", {"metric": "train/loss"}, "the same start, another metric"),
    (
        "shifted",
        {"start": document()["start"] | {"base": {"gain": 0.001, "speed": 1.0}}},
        "the same trainer, another start",
    ),
    (
        "both",
        {
            "start": document()["start"] | {"base": {"gain": 0.001, "speed": 1.0}},
            "metric": "speed",
            "better": "higher",
            "guardrails": [],
        },
        "the same trainer, another start, another metric",
    ),
    (
        "copied",
        {"start": document()["start"] | {"command": ["{python}", "./train.py", "{gain}", "{speed}", "--again"]}},
        "the same trainer, another start",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "changes", "shares"), ANEW, ids=[name for name, *_ in ANEW])
def test_a_campaign_that_begins_anew_after_bad_luck_names_the_earlier_one(
    house: Campaign, name: str, changes: dict[str, Any], shares: str
) -> None:
    again = house.write(name, **changes)
    record, _ = register_campaign(again, workspace=WORKSPACE)
    said = f"'night' (3 proposals, 1 kept, no confirmation; {shares})"
    assert [each.words for each in record.entry.earlier] == [each.words for each in record.others] == [said]
    # The earlier one names none: it had ended.
    assert not register_campaign(house.file, workspace=WORKSPACE)[0].others
    # Whatever its entry says: everybody reads it off the ledger.
    house.rewrite(lambda lines: [
        line | {"body": {key: value for key, value in line["body"].items() if key != "earlier"}} for line in lines
    ])  # fmt: skip
    items = {item.study: item for item in verify_target(again).items if item.what == CAMPAIGN}
    assert f"1 other campaign of the same trainer, start or metric: {said}" in items[name].note
    assert not items[name].faults
    assert [each.words for each in register_campaign(again, workspace=WORKSPACE)[0].others] == [said]


@pytest.mark.slow
def test_campaigns_that_were_registered_at_once_name_each_other_as_soon_as_they_go_on(house: Campaign) -> None:
    """Several are registered before the first proposal, so that the one that wins was before all others."""
    spare = house.write("spare", smallest=0.01)
    assert [each.campaign for each in register_campaign(spare, workspace=WORKSPACE)[0].others] == ["night"]
    house.propose(gain=0.5)
    (named,) = register_campaign(house.file, workspace=WORKSPACE)[0].others
    assert named.words == "'spare' (0 proposals, 0 kept; the same start)"


@pytest.mark.slow
def test_a_campaign_of_another_trainer_and_metric_names_none(house: Campaign) -> None:
    (house.path / "other.py").write_text("print(1)\n", encoding="utf-8")
    start = document()["start"] | {"command": ["{python}", "other.py"], "code": ["other.py"], "base": {"width": 1}}
    other = house.write("other", metric="test/error", better="lower", guardrails=[], start=start)
    record, _ = register_campaign(other, workspace=WORKSPACE)
    assert not record.entry.earlier and not record.others


@pytest.mark.slow
def test_proposals_that_were_taken_back_are_found_where_git_held_them(house: Campaign) -> None:
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "night")):
        subprocess.run([*git, *words], cwd=house.path, check=True)
    left_out(3)(house)
    assert HISTORY in changed(house)
    assert "taken back: proposed of 'night'" in house.refused(gain=0.5)
    # All of it, and the campaign begun anew.
    for name in ("studies", "data"):
        shutil.rmtree(house.path / name)
    (house.path / "studies").mkdir()
    with pytest.raises(StudyError, match="taken back"):
        register_campaign(house.file, workspace=WORKSPACE)
    assert HISTORY in {item.what for item in verify_target(folder=house.path).items if item.faults}
