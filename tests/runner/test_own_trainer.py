"""A user's own trainer for real: processes, their ends of every kind, what is read of them, and what is kept."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from launchers import parent_of
from ledger_samples import enter
from own_trainer import AT, SCRIPT, OwnHouse, Stop
from test_run import alive, start

import ablate as api
from ablate.judge.decide import decide as judge
from ablate.judge.design import characteristics as design_room
from ablate.judge.verdict import Check, Decision
from ablate.records.gather import gather
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.audit import pairs_section, runs_section
from ablate.reporting.sections.registration import registration_section
from ablate.runner import child as child_room
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from prereg.errors import RegistrationError, RunError
from prereg.registry import ledger_lines
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import RunStartedEntry
from prereg.registry.paths import Root
from prereg.registry.registration import Registration

QUIET = PlainWatcher(StringIO())
ROOT = Path(__file__).resolve().parents[2]

WAITS = """
import os, subprocess, sys, time
open("pid", "w").write(str(os.getpid()))
below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("below", "w").write(str(below.pid))
open("metrics.jsonl", "w").write('{"step": 1, "metric": "train/loss", "value": 3.0}\\n')
time.sleep(600)
"""


def events(house: OwnHouse) -> list[str]:
    """What the ledger holds, but for the starts of single runs."""
    entries = Ledger(house.path / "studies" / "ledger.jsonl").entries()
    return [entry.event for entry in entries if not isinstance(entry, RunStartedEntry)]


def record(house: OwnHouse, variant: str, seed: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((house.run_folder(variant, seed) / "run.json").read_text())
    return found


def judged(house: OwnHouse, registration: Registration) -> Decision:
    return judge(registration, gather(Root(house.path), registration))


def check_named(decision: Decision, name: str) -> Check:
    return next(check for check in decision.checks if check.name == name)


def wait_for(house: OwnHouse, name: str, *, least: int = 1) -> list[Path]:
    """Until so many runs have left a file of that name."""
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        found = [p for p in house.path.glob(f"data/runs/*/*/*/*/work/{name}") if p.read_bytes()]
        if len(found) >= least:
            return found
        time.sleep(0.02)
    pytest.fail(f"no run left {name} within a minute")


def all_dead(pids: list[int]) -> bool:
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline and any(alive(pid) for pid in pids):
        time.sleep(0.05)
    return not any(alive(pid) for pid in pids)


@pytest.mark.slow
def test_from_a_script_to_a_verdict_and_running_again_does_nothing(own_house: OwnHouse) -> None:
    registration = own_house.register()
    study = own_house.study
    ran = api.run(study, RunOptions(slots=2), workspace=api.Workspace(console=QUIET))
    assert ran.summary.complete, ran.summary.failed
    assert events(own_house) == ["registered", "started", *["sealed"] * 6, "finished"]
    before = own_house.snapshot()
    assert api.run(study, workspace=api.Workspace(console=QUIET)).summary.complete
    assert own_house.snapshot() == before
    decision = judged(own_house, registration)
    assert (decision.status, decision.verdict) == ("decided", "take fast")
    assert check_named(decision, "every run used the registered code").passed
    assert check_named(decision, "every configuration is the registered one").passed
    (finding,) = decision.findings
    assert finding.estimate is not None
    assert finding.estimate.difference == pytest.approx(-0.3 + 0.3 * sum(seed * 7919 % 13 for seed in (1, 2, 3)) / 3000)
    evidence = gather(Root(own_house.path), registration)
    assert len(evidence.curve("train/loss")) == 6 * 4
    assert {run.steps for run in evidence.runs} == {4}
    told = ReportContext(
        decision, registration, evidence, ledger_head="0" * 64, generated_at="2026-01-02T03:04:05+00:00"
    )
    text = " ".join(map(repr, (registration_section(told), pairs_section(told), runs_section(told))))
    assert "train.py, sha256 " in text and "Trainable parameters" not in text and "not stated" in text
    assert "Training steps" not in text and "initial weights" not in text


def test_the_command_is_told_seed_variant_configuration_and_place(own_house: OwnHouse) -> None:
    own_house.script(
        "import json, os, sys\n"
        "told = {k: v for k, v in os.environ.items() if k.startswith(('ABLATE_', 'WANDB_NAME', 'WANDB_RUN'))}\n"
        "json.dump({'env': told, 'cwd': os.getcwd(),"
        " 'words': sys.argv[1:], 'config': json.load(open(os.environ['ABLATE_CONFIG']))}, open('told.json', 'w'))\n"
        + SCRIPT
    )
    registration = own_house.register(command=["{python}", "train.py", "--lr={lr}", "{variant} {seed}", "$HOME; *"])
    assert own_house.carry_out(registration, "fast", 2)[0].status == "done"
    folder = own_house.run_folder("fast", 2)
    told = json.loads((folder / "work" / "told.json").read_text())
    assert told["words"] == ["--lr=0.4", "fast 2", "$HOME; *"]
    assert told["cwd"] == str(folder / "work")
    assert told["config"] == {"lr": 0.4, "steps": 4}
    assert told["env"] == {
        "ABLATE_SEED": "2",
        "ABLATE_VARIANT": "fast",
        "ABLATE_CONFIG": str(folder / "config.json"),
        "ABLATE_ROOT": str(own_house.path.resolve()),
        "ABLATE_RUN_DIR": str(folder / "work"),
        "ABLATE_METRICS": str(folder / "work" / "metrics.jsonl"),
        "ABLATE_REGISTRATION": registration.sha256,
        "ABLATE_ATTEMPT": "1",
        "WANDB_NAME": "fast/seed2",
        "WANDB_RUN_GROUP": f"own-{registration.sha256[:8]}",
    }


@pytest.mark.slow
def test_a_failure_tells_the_end_of_stderr_and_the_others_go_on(own_house: OwnHouse) -> None:
    own_house.script(
        SCRIPT + "\nif seed == 2 and lr > 0.2:\n    print('a\\n\\x1b[31mbad', config['lr'], file=sys.stderr)\n"
        "    raise SystemExit(3)\n"
    )
    registration = own_house.register(seeds=[1, 2])
    ran = api.run(own_house.study, RunOptions(slots=2), workspace=api.Workspace(console=QUIET))
    failure = f"own/{registration.sha256[:8]}/fast/2: exit status 3; stderr ends: a / [31mbad 0.4"
    assert ran.summary.failed == (failure,)
    assert (events(own_house).count("sealed"), events(own_house).count("failed")) == (3, 1)
    assert record(own_house, "fast", 2)["status"] == "failed"
    assert judged(own_house, registration).status == "unfinished"
    assert own_house.carry_out(registration, "fast", 2)[0].attempts == 2


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (
            'print(\'{"step": 1, "metric": "val/loss", "value": NaN}\', file=o)',
            "metrics.jsonl: line 6: val/loss is nan",
        ),
        (
            'print(\'{"step": 4, "metric": "val/loss", "value": 1}\', file=o)',
            "line 6: val/loss at step 4 is already on line 5",
        ),
        ('print(\'{"step": 5, "metric": "x", "value": 1}\', file=o)', "metrics.jsonl: no val/loss at step 5, its last"),
        ("o.truncate(0)", "metrics.jsonl: it is empty"),
        ("os.remove('metrics.jsonl')", "metrics.jsonl is not there"),
    ],
)
def test_metrics_that_cannot_be_judged_fail_the_run_that_left_them(own_house: OwnHouse, spoil: str, found: str) -> None:
    own_house.script(SCRIPT + f"\no = open('metrics.jsonl', 'a')\n{spoil}\n")
    ended, said = own_house.carry_out(own_house.register(), "slow", 1)
    assert (ended.status, ended.metrics_sha256) == ("failed", None)
    assert found in said and found in str(ended.error)


def test_a_curve_with_a_hole_fails_only_where_the_rule_asks_for_stability(own_house: OwnHouse) -> None:
    own_house.script(SCRIPT.replace("range(1, config", "range(2, config"))
    assert "train/loss at every step from 1 to 4" in own_house.carry_out(own_house.register(), "slow", 1)[1]
    other = OwnHouse(own_house.path.parent / "other")
    other.script(SCRIPT.replace("range(1, config", "range(2, config"))
    decision = [{"verdict": "take fast", "when": "supported(gain)"}, {"verdict": "inconclusive"}]
    assert other.carry_out(other.register(decision=decision), "slow", 1)[0].status == "done"


def test_a_metric_read_at_a_step_is_needed_there(own_house: OwnHouse) -> None:
    gain = {"claim": "fast lowers val/loss", "smallest": 0.05, "read": {"step": 2}}
    registration = own_house.register(hypotheses={"gain": gain})
    assert "no val/loss at step 2" in own_house.carry_out(registration, "slow", 1)[1]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["NaN", "7.5"])
@pytest.mark.parametrize("ending", ["time.sleep(600)", "raise SystemExit(1)", "pass"])
def test_a_run_that_diverges_ends_there_however_its_command_ends(own_house: OwnHouse, loss: str, ending: str) -> None:
    own_house.script(
        "import time\no = open('metrics.jsonl', 'w')\n"
        f"for step, loss in ((1, '3.0'), (2, '3.0'), (3, '{loss}'), (4, '0.1')):\n"
        '    print(f\'{{"step": {step}, "metric": "train/loss", "value": {loss}}}\', file=o, flush=True)\n'
        '    print(f\'{{"step": {step}, "metric": "val/loss", "value": 1}}\', file=o, flush=True)\n'
        f"{ending}\n"
    )
    registration = own_house.register(stable={"diverged": {"loss_above": 2.0}})
    ended, _ = own_house.carry_out(registration, "fast", 1)
    assert (ended.status, ended.steps, ended.error) == ("diverged", 3, None)
    from ablate.records.store import RunFolder

    rows = RunFolder(own_house.run_folder("fast", 1)).sealed_rows()
    assert sorted(row.step for row in rows if row.metric == "train/loss") == ([1, 2] if loss == "NaN" else [1, 2, 3])
    assert sorted(row.step for row in rows if row.metric == "val/loss") == [1, 2, 3]


@pytest.mark.slow
def test_a_killed_scheduler_takes_the_command_and_all_it_started_with_it(own_house: OwnHouse) -> None:
    own_house.script(WAITS)
    own_house.register()
    process = start(own_house.study, "--slots", "2")
    below = [int(path.read_text()) for path in wait_for(own_house, "below", least=2)]
    pids = [*below, *(int(path.read_text()) for path in wait_for(own_house, "pid", least=2))]
    assert all(alive(pid) for pid in pids)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert all_dead(pids)
    assert record(own_house, "slow", 1)["status"] == "running"


@pytest.mark.slow
def test_a_killed_process_of_a_run_leaves_no_command_behind_and_the_run_is_made_again(own_house: OwnHouse) -> None:
    own_house.script(
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\n"
        "if [os.environ['ABLATE_' + name] for name in ('ATTEMPT', 'SEED', 'VARIANT')] == ['1', '1', 'slow']:\n"
        "    time.sleep(600)\n" + SCRIPT
    )
    own_house.register(seeds=[1, 2])
    process = start(own_house.study, "--slots", "1")
    (path,) = wait_for(own_house, "pid")
    pid = int(path.read_text())
    os.kill(parent_of(pid), signal.SIGKILL)
    assert all_dead([pid])
    output, _ = process.communicate(timeout=150)
    assert process.returncode == 0, output
    assert "beginning the run again at its first step" in output  # its trainer cannot resume
    assert record(own_house, "slow", 1)["attempts"] == 2


STARTER = """
import sys, time
from pathlib import Path
from ablate.runner.child import Child, start_program
folder = Path(sys.argv[1])
child = Child(start_program((sys.executable, "-c", "import time; time.sleep(600)"), folder, {}), folder)
print(child.process.pid, flush=True)
time.sleep(600)
"""


def test_what_outlived_its_worker_and_scheduler_is_ended_before_its_run_is_made_again(own_house: OwnHouse) -> None:
    registration = own_house.register()
    folder = own_house.path / "data" / "runs" / "own" / registration.sha256[:8] / "slow" / "1"
    folder.mkdir(parents=True)
    worker = subprocess.Popen([sys.executable, "-c", STARTER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    pid = int(worker.stdout.readline())
    worker.kill()
    worker.communicate()
    assert alive(pid)
    assert own_house.carry_out(registration, "slow", 1)[0].status == "done"
    assert all_dead([pid])
    assert not (folder / "child.json").exists()


def test_a_process_that_only_has_the_same_number_is_left_alone(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        (tmp_path / "child.json").write_text(json.dumps({"pid": other.pid, "born": "another boot 12345"}))
        assert not child_room.end_leftover(tmp_path)
        assert alive(other.pid)
    finally:
        other.kill()
        other.wait()


RESUMES = """
import json, os, time
seed = int(os.environ["ABLATE_SEED"])
done = int(open("state").read()) if os.path.exists("state") else 0
open("attempts", "a").write(os.environ["ABLATE_ATTEMPT"] + " ")
out = open("metrics.jsonl", "a")
for step in range(done + 1, 7):
    print(json.dumps({"step": step, "metric": "train/loss", "value": 3.0 - step / 10}), file=out, flush=True)
    open("state", "w").write(str(step))
    MARK
    if step == 3 and os.environ["ABLATE_ATTEMPT"] == "1":
        print('{"step": 4, "metric": "train/lo', end="", file=out, flush=True)
        open("waiting", "w").write("yes")
        time.sleep(600)
print(json.dumps({"step": 6, "metric": "val/loss", "value": 2.0 + seed / 100}), file=out, flush=True)
"""


@pytest.mark.parametrize("resumable", [True, False])
def test_a_stopped_run_goes_on_only_where_the_command_says_that_it_can(own_house: OwnHouse, resumable: bool) -> None:
    own_house.script(RESUMES.replace("MARK", 'open("resumable", "w").close()' if resumable else "pass"))
    registration = own_house.register()
    stop = Stop()
    ended: list[str] = []
    running = threading.Thread(target=lambda: ended.append(own_house.carry_out(registration, "slow", 1, stop=stop)[1]))
    running.start()
    wait_for(own_house, "waiting")
    stop.send()
    running.join(60)
    assert ended == ["stopped None: "]
    assert record(own_house, "slow", 1)["status"] == "running"
    found, _ = own_house.carry_out(registration, "slow", 1)
    assert (found.status, found.attempts, found.steps) == ("done", 2, 6)
    assert found.resumed_from == ((3,) if resumable else ())
    assert (own_house.run_folder("slow", 1) / "work" / "attempts").read_text() == ("1 2 " if resumable else "2 ")


@pytest.mark.slow
def test_ctrl_c_stops_the_commands_and_the_next_call_ends_the_study(own_house: OwnHouse) -> None:
    own_house.script(RESUMES.replace("MARK", 'open("resumable", "w").close()'))
    registration = own_house.register(seeds=[1, 2])
    process = start(own_house.study, "--slots", "2")
    wait_for(own_house, "waiting", least=2)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=150)
    assert process.returncode == 130, output
    for path in own_house.path.glob("data/runs/*/*/*/2/"):
        shutil.rmtree(path)
    own_house.script((own_house.path / "train.py").read_text())
    for variant, seed in (("slow", 1), ("fast", 1)):
        assert own_house.carry_out(registration, variant, seed)[0].status == "done"
    decision = judged(own_house, registration)
    once = check_named(decision, "every run was made in one go")
    assert (once.passed, once.severity) == (False, "deviation")


def test_code_that_changed_after_registration_is_not_run(own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    own_house.register()
    study = own_house.study
    own_house.script(SCRIPT + "\n# better\n")
    before = own_house.snapshot()
    with pytest.raises(RegistrationError, match=r"the trainer's code is not what was registered .*: train\.py"):
        api.run(study, workspace=api.Workspace(console=QUIET))
    assert own_house.snapshot() == before
    monkeypatch.setattr(design_room, "simulate_design", partial(design_room.simulate_design, n_sims=20))
    amended, entry = api.amend(study, reason="a comment")
    assert entry.differences[0].field == "scripts.train.py"
    assert own_house.carry_out(amended, "slow", 1)[0].status == "done"


def test_code_that_changes_while_a_run_is_made_fails_the_run(own_house: OwnHouse) -> None:
    path = own_house.path / "train.py"
    own_house.script(SCRIPT + f"\nopen({str(path)!r}, 'a').write('#')\n")
    assert "train.py is not the file that was registered" in own_house.carry_out(own_house.register(), "slow", 1)[1]


def test_a_program_that_is_not_here_is_refused_before_anything_is_written(own_house: OwnHouse) -> None:
    for word, found in (
        ("no-such-program", "program 'no-such-program' is not here"),
        ("train.py", "is not executable"),
    ):
        study = own_house.write(command=[word])
        before = own_house.snapshot()
        with pytest.raises(RunError, match=found) as caught:
            api.run(study, workspace=api.Workspace(console=QUIET))
        assert str(caught.value.where).endswith("command[0]")
        assert own_house.snapshot() == before


@pytest.mark.slow
def test_output_is_kept_in_bounds_and_both_its_ends_survive(own_house: OwnHouse) -> None:
    own_house.script(
        SCRIPT + "\nprint('the beginning')\nfor _ in range(40):\n    print('x' * 99999)\nprint('the end')\n"
        "os.write(2, b'no end of line')\n"
    )
    assert own_house.carry_out(own_house.register(), "slow", 1)[0].status == "done"
    kept = (own_house.run_folder("slow", 1) / "stdout.txt").read_bytes()
    assert kept.startswith(b"the beginning\n") and kept.endswith(b"the end\n") and b" bytes left out]" in kept
    assert len(kept) <= child_room.HEAD_BYTES + child_room.TAIL_BYTES + 100
    assert (own_house.run_folder("slow", 1) / "stderr.txt").read_bytes() == b"no end of line"


@pytest.mark.slow
def test_the_worked_example_runs_to_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    shutil.copy(ROOT / "studies" / "own-trainer.yaml", tmp_path / "studies")
    shutil.copytree(ROOT / "studies" / "own-trainer", tmp_path / "studies" / "own-trainer")
    study = tmp_path / "studies" / "own-trainer.yaml"
    for verb, said in (("run", "10 of 10 runs sealed"), ("decide", "DECIDED: use momentum")):
        words = [sys.executable, "-m", "ablate", verb, str(study)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert said in done.stdout


QUICK = """
printf '{"step": 1, "metric": "train/loss", "value": 3.0}\\n{"step": 1, "metric": "val/loss", "value": 2.0}\\n' \\
    > metrics.jsonl
"""


@pytest.mark.slow
def test_what_a_run_costs_beside_its_work_does_not_grow_with_the_ledger(
    own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_house.script(QUICK, "quick.sh")
    own_house.register(command=["/bin/sh", "quick.sh"], base={"lr": 0.1}, seeds=list(range(1, 13)))
    synced: list[int] = []
    real_sync = os.fsync

    def sync(descriptor: int) -> None:
        synced.append(descriptor)
        real_sync(descriptor)

    ledger = Ledger(own_house.path / "studies" / "ledger.jsonl")
    for n in range(40):  # a long history of other studies
        enter(ledger, "started", {"n": n, "pad": "x" * 5000}, study="other", registration="a" * 64, at=AT)

    def n_verified() -> int:
        counts = ledger_lines.parsed.cache_info()
        return counts.hits + counts.misses

    before = n_verified()
    monkeypatch.setattr(os, "fsync", sync)
    summary = api.run(own_house.study, RunOptions(slots=1), workspace=api.Workspace(console=QUIET)).summary
    assert summary.sealed == 24
    # No line of the history is verified again once a run: 24 runs, each with two entries, would make it 2,000 times.
    assert n_verified() - before < 400
    assert len(synced) < 40  # of this process: one an entry
