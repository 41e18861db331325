"""examples/records: a published p value follows from its published losses, and the page says what the judge says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scipy import stats

import ablate
from examples.records import contest, printed, steps
from examples.records import judge_again as records

STUDIES = sorted((printed.FOLDER / "studies").glob("*.yaml"))
CLAIMS = records.speedrun_claims()


@pytest.fixture(scope="module")
def judged() -> dict[str, records.Judged]:
    return {one.claim.arm: one for one in records.with_holm(records.judge(CLAIMS))}


@pytest.mark.parametrize("claim", CLAIMS, ids=[claim.arm for claim in CLAIMS])
def test_a_printed_p_follows_from_the_published_losses(claim: records.Claim, judged: dict[str, records.Judged]) -> None:
    assert judged[claim.arm].n == len(claim.losses)
    assert printed.rounds_to(judged[claim.arm].p, claim.printed_p)


def test_another_p_than_the_printed_one_is_noticed() -> None:
    # The next smaller last digit, and a two-sided p: both are other claims than the printed one.
    assert not printed.rounds_to(0.000249, "0.0003")
    assert not printed.rounds_to(2 * 0.00489597, "0.0049")
    assert not printed.rounds_to(8.144e-06, "8.15e-06")
    assert not printed.rounds_to(0.00320159798, "0.0032015979421488247")


def test_which_records_meet_the_rule_and_which_still_do_after_holm(judged: dict[str, records.Judged]) -> None:
    of_short_track = [one for one in judged.values() if one.claim.kind == "record" and one.claim.target == 3.28]
    assert [one.claim.arm for one in of_short_track if not one.holds] == ["SparseBigramGradient"]
    assert (len(of_short_track), sum(one.holds_after_holm for one in of_short_track)) == (46, 12)
    # R: p.adjust(p, "holm") multiplies the smallest of 46 by 46, and leaves the largest as the running maximum.
    smallest = min(of_short_track, key=lambda one: one.p)
    assert smallest.p_holm == pytest.approx(46 * smallest.p)
    assert all(one.p_holm is None for one in judged.values() if one.claim.kind != "record")


def test_no_p_value_is_shown_as_zero_or_one(judged: dict[str, records.Judged]) -> None:
    shown = {one.claim.arm: printed.digits(one.p) for one in judged.values()}
    assert all(0 < float(text) < 1 for text in shown.values())
    assert shown["SparsifyEmbeds"] == "7.41e-31"  # its author prints 0.0000, of 1,261 runs
    assert shown["MuddFormer-before-1430"] == "0.99999994"  # printed as 1.0000


def test_a_number_that_the_contest_prints_follows_or_says_why_not() -> None:
    numbers = contest.printed_numbers()
    assert [one.arm for one in numbers if not one.matched] == ["SeqLen4096", "TunedLR", "NineHparams"]
    assert all(one.differs == (not one.matched) for one in numbers)
    assert all(one.remark for one in numbers if one.differs)
    # The two p values above .01 that its leaderboard prints are one-sided, of Welch's t, without the margin.
    by_arm = {one.arm: one for one in numbers if one.quantity == "one-sided p"}
    assert (by_arm["Muon097"].printed, by_arm["MLPClip12"].printed) == ("0.020", "0.063")
    # scipy: ttest_ind(record, before, equal_var=False, alternative="less").
    assert by_arm["Muon097"].here == pytest.approx(0.020416771, abs=1e-9)
    assert by_arm["MLPClip12"].here == pytest.approx(0.062501713, abs=1e-9)


def test_a_z_of_the_track_of_steps_follows_or_leaves_out_the_root_of_n() -> None:
    records_of_steps = steps.step_records()
    assert [one.arm for one in records_of_steps if not one.matched] == ["Aurora", "CircuitMuon"]
    assert all(one.without_root == (not one.matched) for one in records_of_steps)
    for one in records_of_steps:
        if one.matched:
            decimals = len(one.printed_z.partition(".")[2])
            assert f"{one.z:.{decimals}f}" == one.printed_z
    assert all(one.holds for one in records_of_steps)
    own = "TrustLight SplitCooldown RadialBrake CircuitMuon"
    assert [one.arm for one in records_of_steps if not one.holds_with_own_sd] == own.split()
    z, p = steps.first_six()
    assert (round(z, 2), round(p, 4)) == (2.64, 0.0041)


def test_a_difference_that_the_speedrun_prints_follows_from_the_published_losses() -> None:
    differences = contest.printed_numbers("speedrun", "speedrun_pairs.csv")
    assert [one.printed for one in differences] == ["1.44e-08", "0.066", "0.336", "0.8587465"]
    assert all(one.matched for one in differences)


def test_which_records_of_the_contest_meet_its_rule() -> None:
    compared = contest.compared()
    assert len(compared) == 29
    names = "Int6QAT XSA4 SelfGenGPTQ Vocab4096 MuonEqR SP8192-SDClip VarLenAttn"
    assert [one.record.arm for one in compared if one.holds] == names.split()
    assert [one.record.arm for one in compared if one.holds_after_holm] == ["Int6QAT"]
    assert sum(one.p_any < printed.ALPHA for one in compared) == 17
    # scipy: ttest_ind(record + 0.00296, before, equal_var=False, alternative="less") of SelfGenGPTQ.
    by_arm = {one.record.arm: one for one in compared}
    shifted = stats.ttest_ind(
        [value + 0.00296 for value in by_arm["SelfGenGPTQ"].record.values],
        by_arm["SelfGenGPTQ"].before.values,
        equal_var=False,
        alternative="less",
    )
    assert by_arm["SelfGenGPTQ"].p == pytest.approx(shifted.pvalue)


@pytest.mark.parametrize("path", STUDIES, ids=[path.stem for path in STUDIES])
def test_a_study_of_public_records_is_valid(path: Path) -> None:
    assert ablate.check(path).study.analysis.alpha == printed.ALPHA


@pytest.mark.slow
def test_the_page_is_what_the_script_writes(tmp_path: Path) -> None:
    assert records.PAGE.read_text(encoding="utf-8") == records.judge_all(tmp_path)


@pytest.mark.slow
def test_the_commands_of_the_page_give_its_outcome_and_no_verdict(tmp_path: Path) -> None:
    study = "speedrun-sparse-bigram"
    records.write_source(tmp_path / "published" / study, records.runs_of(study, CLAIMS), "val/loss")
    (tmp_path / "studies").mkdir()
    shutil.copy(printed.FOLDER / "studies" / f"{study}.yaml", tmp_path / "studies")

    def ablate_says(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "ablate", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)

    path = f"studies/{study}.yaml"
    code, output = ablate_says("register", path)
    assert code == 2 and "chance of 12.9%" in output
    assert ablate_says("register", path, "--accept-underpowered", "they are published")[0] == 0
    # Without --exploratory runs that are older than the registration are refused: nothing passes as registered before.
    code, output = ablate_says("import", path, f"published/{study}", "--note", "public repository")
    assert code == 2 and "made under registration none" in output
    assert ablate_says("import", path, f"published/{study}", "--exploratory", "--note", "public repository")[0] == 0
    assert ablate_says("decide", path)[0] == 4
    verdict = json.loads((tmp_path / "reports" / study / "verdict.json").read_text(encoding="utf-8"))
    [finding] = verdict["findings"]
    row = next(
        line for line in records.PAGE.read_text(encoding="utf-8").splitlines() if f"studies/{study}.yaml)" in line
    )
    assert verdict["status"] == "inadmissible"
    assert f"| {finding['n']} | 0.13 |" in row and f"| {finding['outcome']} | none (inadmissible)" in row
    assert "5 runs were made before the registration" in row
