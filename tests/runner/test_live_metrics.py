"""Claims about what a user's own trainer has recorded when a run stops: it is hashed, and a resumed run keeps it."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest
from own_trainer import OwnHouse, Stop

from ablate.records.run_record import RunRecord

SCRIPT = """
import json, os, sys, time
from pathlib import Path
me, first = Path("metrics.jsonl"), os.environ["ABLATE_ATTEMPT"] == "1"
seed = int(os.environ["ABLATE_SEED"])
Path("resumable").touch()
value = 2.0 + (0 if first or {exact} else 0.25)
rows = [{{"step": 2, "metric": "val/loss", "value": value}}]
if not first:
    rows += [{{"step": 4, "metric": "val/loss", "value": 1.5}}]
rows += [{{"step": step, "metric": "train/loss", "value": 3.0 - step / 10}} for step in range(1, 2 if first else 5)]
me.write_text("".join(json.dumps(row) + "\\n" for row in rows))
if first:
    (Path(os.environ["ABLATE_RUN_DIR"]) / "recorded").touch()
    {ends}
"""


class Resuming:
    """A house whose trainer ends its first attempt halfway and resumes."""

    def __init__(self, path: Path, *, ends: str = "raise SystemExit(3)", exact: bool = True) -> None:
        self.house = OwnHouse(path)
        self.house.script(SCRIPT.format(ends=ends, exact=exact))
        self.registration = self.house.register(seeds=[1, 2])

    def carry_out(self, stop: Stop | None = None) -> tuple[RunRecord, str]:
        return self.house.carry_out(self.registration, "fast", 1, stop=stop)

    @property
    def metrics(self) -> Path:
        return self.house.run_folder("fast", 1) / "work" / "metrics.jsonl"

    def edit(self) -> None:
        """A better value in place of the recorded one."""
        text = self.metrics.read_text()
        assert "2.0" in text
        self.metrics.write_text(text.replace("2.0", "1.0"))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["failed", "stopped"])
def test_metrics_that_were_edited_after_a_run_had_ended_are_not_resumed_from(tmp_path: Path, how: str) -> None:
    one = Resuming(tmp_path, ends="raise SystemExit(3)" if how == "failed" else "time.sleep(60)")
    sent = Stop()
    if how == "stopped":

        def stop() -> None:
            while not list(tmp_path.glob("data/runs/own/*/fast/1/work/recorded")):
                time.sleep(0.01)
            sent.send()

        threading.Thread(target=stop, daemon=True).start()
    record, said = one.carry_out(sent)
    assert said.startswith("stopped" if how == "stopped" else "ended failed: exit status 3")
    assert record.live is not None and record.live.values == {"val/loss at 2": 2.0}
    one.edit()
    for _ in range(2):
        record, said = one.carry_out()
        folder = one.metrics.parent.parent
        place = one.metrics.relative_to(tmp_path.resolve())
        assert said.startswith(f"ended failed: {place} was changed after the run had stopped; restore it, or rm -r ")
        assert f"rm -r {folder.relative_to(tmp_path.resolve())} and run again, which counts as a lost start" in said
        assert record.status == "failed" and not (folder / "metrics.parquet").exists()
    one.metrics.write_text(one.metrics.read_text().replace("1.0", "2.0", 1))
    record, said = one.carry_out()
    assert said == "ended done: " and record.live is None


@pytest.mark.slow
def test_a_run_that_resumes_and_keeps_its_values_draws_none_again(tmp_path: Path) -> None:
    one = Resuming(tmp_path)
    one.carry_out()
    record, _ = one.carry_out()
    assert record.status == "done" and record.redrawn == 0 and record.resumed_from
    assert "redrawn" not in record.seal("0")


@pytest.mark.slow
def test_a_run_that_resumes_to_other_values_says_so(tmp_path: Path) -> None:
    one = Resuming(tmp_path, exact=False)
    one.carry_out()
    record, _ = one.carry_out()
    assert record.status == "done" and record.redrawn == 1 and record.seal("0")["redrawn"] == 1


@pytest.mark.slow
def test_metrics_that_are_gone_are_not_resumed_from(tmp_path: Path) -> None:
    one = Resuming(tmp_path)
    one.carry_out()
    one.metrics.unlink()
    assert "was changed after the run had stopped" in one.carry_out()[1]
    shutil.rmtree(one.house.run_folder("fast", 1))
    one.carry_out()
    assert one.carry_out()[0].status == "done"
