"""A decided study of six short runs, and what somebody who holds its files could do to them.

A forgery is a function of a `Holding`: the folder of the study, or a bundle of it that was unpacked, which has the same
layout. So each forgery is made once, and tried on both.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ledger_samples
import pyarrow as pa
import pyarrow.parquet as pq

from ablate.records.outcome import outcome_hash
from ablate.records.rows import Row
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder, parquet_bytes
from prereg.registry.canon import canonical_bytes, sha256_bytes, sha256_file, sha256_of
from prereg.registry.ledger_entry import FIRST, Event
from prereg.registry.paths import Root

LATER = "2099-01-03T03:04:05+00:00"
"""After the times that the runs wrote, which are real."""
Line = dict[str, Any]


@dataclass(frozen=True)
class Holding:
    """The files of the study in somebody's hands."""

    path: Path

    @property
    def study(self) -> Path:
        return self.path / "studies" / "own.yaml"

    @property
    def lock(self) -> Path:
        return self.path / "studies" / "own.lock.json"

    @property
    def ledger(self) -> Path:
        return self.path / "studies" / "ledger.jsonl"

    @property
    def verdict(self) -> Path:
        return self.path / "reports" / "own" / "verdict.json"

    @property
    def registration(self) -> str:
        return str(next(line["registration"] for line in self.lines() if line["event"] == "registered"))

    def run(self, arm: str, seed: int) -> RunFolder:
        return RunFolder(Root(self.path).run("own", self.registration, arm, seed))

    def record(self, arm: str, seed: int) -> RunRecord:
        found = self.run(arm, seed).read_record()
        assert found is not None
        return found

    # --- The ledger, as a text file and as its writer would continue it.

    def lines(self) -> list[Line]:
        return [json.loads(line) for line in self.ledger.read_bytes().splitlines()]

    def log(self, event: Event, body: Mapping[str, Any], at: str = LATER) -> None:
        """One more entry, by whoever holds the ledger."""
        new = self.lines()[-1] | {
            "event": event,
            "body": ledger_samples.line(event, body)["body"],
            "at": at,
            "sha256": "new",
        }
        self.rewrite(lambda lines: [*lines, new])

    def rewrite(self, change: Callable[[list[Line]], list[Line]]) -> None:
        """The ledger with other lines, every place and hash after them made right, and every mention of a hash too."""
        previous, renamed, written = FIRST, {}, []
        for index, line in enumerate(change(self.lines())):
            content = _with_hashes({key: value for key, value in line.items() if key != "sha256"}, renamed)
            content |= {"index": index, "previous": previous}
            previous = renamed[line["sha256"]] = sha256_of(content)
            written.append(canonical_bytes(content | {"sha256": previous}) + b"\n")
        self.ledger.write_bytes(b"".join(written))

    # --- Runs, with the hashes that their forger can make right.

    def reseal(self, arm: str, seed: int, data: bytes, *, logged: bool = True, **changes: Any) -> None:
        """Another table in place of a run's own, the hash in run.json made right, and a seal of it in the ledger."""
        folder, record = self.run(arm, seed), self.record(arm, seed)
        folder.sealed_path.write_bytes(data)
        folder.write_record(record.model_copy(update={"metrics_sha256": sha256_bytes(data)} | changes))
        if logged:
            self.seal(arm, seed)

    def seal(self, arm: str, seed: int) -> None:
        """What lies in the folder of a run, entered as sealed."""
        self.log("sealed", self.record(arm, seed).seal(sha256_file(self.run(arm, seed).record_path)))

    def worse(self, seed: int) -> tuple[bytes, list[Row]]:
        """The table of a run of `fast` with a worse loss."""
        folder = self.run("fast", seed)
        rows = [Row(row.step, row.metric, row.value + (row.metric == "val/loss")) for row in folder.sealed_rows()]
        return parquet_bytes(self.record("fast", seed), rows), rows

    def table(self, change: Callable[[dict[str, list[Any]]], dict[str, list[Any]]]) -> bytes:
        """The table of fast/2, its columns changed."""
        place = self.path / "table.parquet"
        pq.write_table(pa.table(change(pq.read_table(self.run("fast", 2).sealed_path).to_pydict())), place)
        data = place.read_bytes()
        place.unlink()
        return data

    def change_verdict(self, change: Callable[[Line], object], **in_ledger: Any) -> None:
        """Another verdict.json, with an entry of the ledger to match where anything of one is given."""
        verdict = json.loads(self.verdict.read_bytes())
        change(verdict)
        data = json.dumps(verdict, indent=2).encode() + b"\n"
        self.verdict.write_bytes(data)
        if in_ledger:

            def decided(lines: list[Line]) -> list[Line]:
                for line in lines:
                    if line["event"] == "decided":
                        outcomes = {finding["hypothesis"]: finding["outcome"] for finding in verdict["findings"]}
                        line["body"] |= {"verdict_sha256": sha256_bytes(data), "outcomes": outcomes} | in_ledger
                return lines

            self.rewrite(decided)


def _with_hashes(value: Any, renamed: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _with_hashes(one, renamed) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_hashes(one, renamed) for one in value]
    return renamed.get(value, value) if isinstance(value, str) else value


# --- Values of runs. ------------------------------------------------------------------------------------------------


def values_alone(of: Holding) -> None:
    """A worse table in the place of a sealed one."""
    of.run("fast", 1).sealed_path.write_bytes(of.worse(1)[0])


def values_and_record(of: Holding) -> None:
    """The same, with the hash in run.json made right."""
    of.reseal("fast", 1, of.worse(1)[0], logged=False)


def values_sealed_again(of: Holding) -> None:
    """The same, sealed again in the ledger under the outcome that was sealed first."""
    for seed in (1, 2, 3):
        of.reseal("fast", seed, of.worse(seed)[0])


def values_of_their_own_outcome(of: Holding) -> None:
    """The same, with the outcome that the worse values have."""
    for seed in (1, 2, 3):
        data, rows = of.worse(seed)
        of.reseal("fast", seed, data, outcome_sha256=outcome_hash(rows))


def seals_replaced(of: Holding) -> None:
    """The same, the first seals taken out of the ledger, which is chained anew: the values and their hashes agree."""
    values_of_their_own_outcome(of)

    def only_last(lines: list[Line]) -> list[Line]:
        new = {(one["body"]["variant"], one["body"]["seed"]): one for one in lines if one["event"] == "sealed"}
        kept = []
        for line in lines:
            if line["event"] != "sealed":
                kept.append(line)
            elif (cell := (line["body"]["variant"], line["body"]["seed"])) in new:
                kept.append(line | {"body": new.pop(cell)["body"]})
        return kept

    of.rewrite(only_last)


def another_end(of: Holding) -> None:
    """A finished run is called diverged, and sealed again."""
    of.run("fast", 2).write_record(of.record("fast", 2).model_copy(update={"status": "diverged"}))
    of.seal("fast", 2)


def an_earlier_step_as_the_last(of: Holding) -> None:
    """A run that went on for four steps ends at the third."""
    of.run("fast", 2).write_record(of.record("fast", 2).model_copy(update={"steps": 3}))
    of.seal("fast", 2)


def another_seal_of_the_same_values(of: Holding) -> None:
    """A run sealed a second time: no forgery, and no two outcomes."""
    of.seal("fast", 2)


def table_of(change: Callable[[dict[str, list[Any]]], dict[str, list[Any]]]) -> Callable[[Holding], None]:
    """A changed table of fast/2, every hash of it made right."""
    return lambda of: of.reseal("fast", 2, of.table(change))


def column(name: str, value: Any) -> Callable[[dict[str, list[Any]]], dict[str, list[Any]]]:
    return lambda table: table | {name: [value] * len(table[name])}


def first_cell(name: str, value: Any) -> Callable[[dict[str, list[Any]]], dict[str, list[Any]]]:
    return lambda table: table | {name: [value, *table[name][1:]]}


def a_row_twice(table: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: cells + cells[:1] for name, cells in table.items()}


def a_row_left_out(table: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: cells[1:] for name, cells in table.items()}


def record_says(**changes: Any) -> Callable[[Holding], None]:
    """Another run.json of fast/2, with a seal of its own."""

    def do(of: Holding) -> None:
        of.run("fast", 2).write_record(of.record("fast", 2).model_copy(update=changes))
        of.seal("fast", 2)

    return do


def a_run_is_gone(of: Holding) -> None:
    """The worst run, folder and all."""
    shutil.rmtree(of.run("fast", 2).path)


def a_table_that_is_none(of: Holding) -> None:
    of.run("fast", 2).sealed_path.write_bytes(b"garbage")


def a_table_is_gone(of: Holding) -> None:
    of.run("fast", 2).sealed_path.unlink()


def a_record_is_gone(of: Holding) -> None:
    of.run("fast", 2).record_path.unlink()


def arms_exchanged(of: Holding) -> None:
    """The folders of two arms change places."""
    one, other = of.run("fast", 2).path, of.run("slow", 2).path
    one.rename(of.path / "aside")
    other.rename(one)
    (of.path / "aside").rename(other)


def a_better_run_twice(of: Holding) -> None:
    """A run of one seed in the place of another."""
    shutil.rmtree(of.run("fast", 2).path)
    shutil.copytree(of.run("fast", 3).path, of.run("fast", 2).path)


def bytes_after_the_table(of: Holding) -> None:
    place = of.run("fast", 2).sealed_path
    place.write_bytes(place.read_bytes() + b"x")


def the_same_values_in_another_file(of: Holding) -> None:
    """A table written anew: its values are those that were sealed, and its bytes are not."""
    of.run("fast", 2).sealed_path.write_bytes(of.table(lambda table: table))


# --- The ledger. ----------------------------------------------------------------------------------------------------


def replaced(old: bytes, new: bytes) -> Callable[[Holding], None]:
    """Bytes of the ledger, and nothing else."""

    def do(of: Holding) -> None:
        data = of.ledger.read_bytes()
        assert old in data
        of.ledger.write_bytes(data.replace(old, new, 1))

    return do


def rows(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Holding], None]:
    """Lines of the ledger, as they are."""

    def do(of: Holding) -> None:
        of.ledger.write_bytes(b"".join(change(of.ledger.read_bytes().splitlines(keepends=True))))

    return do


def entries(change: Callable[[list[Line]], list[Line]]) -> Callable[[Holding], None]:
    """Entries of the ledger, chained anew."""
    return lambda of: of.rewrite(change)


def without(event: str, **body: Any) -> Callable[[list[Line]], list[Line]]:
    """Every entry of an event is left out, or those that say so."""
    return lambda lines: [
        one for one in lines if one["event"] != event or any(one["body"].get(k) != v for k, v in body.items())
    ]


def saying(event: str, **body: Any) -> Callable[[list[Line]], list[Line]]:
    """Other words in the body of every entry of an event."""
    return lambda lines: [one | {"body": one["body"] | body} if one["event"] == event else one for one in lines]


def registered_last(lines: list[Line]) -> list[Line]:
    """The registration after the runs."""
    first = [one for one in lines if one["event"] == "registered"]
    sealed = max(at for at, one in enumerate(lines) if one["event"] == "sealed")
    return [one for one in lines[: sealed + 1] if one not in first] + first + lines[sealed + 1 :]


def twenty_years_earlier(lines: list[Line]) -> list[Line]:
    return [line | {"at": f"{int(line['at'][:4]) - 20}{line['at'][4:]}"} for line in lines]


def one_entry_rewritten(of: Holding) -> None:
    """An entry with a hash of its own, and the chain after it left as it was."""
    lines = of.lines()
    content = {key: value for key, value in lines[1].items() if key != "sha256"} | {"at": "2020-01-01T00:00:00+00:00"}
    lines[1] = content | {"sha256": sha256_of(content)}
    of.ledger.write_bytes(b"".join(canonical_bytes(line) + b"\n" for line in lines))


def an_entry_of_another_place(of: Holding) -> None:
    """The last entry says that five others came before it, under a hash of its own."""
    *first, last = of.lines()
    content = {key: value for key, value in last.items() if key != "sha256"} | {"index": last["index"] + 5}
    lines = [*first, content | {"sha256": sha256_of(content)}]
    of.ledger.write_bytes(b"".join(canonical_bytes(line) + b"\n" for line in lines))


def an_early_look(of: Holding) -> None:
    """A look at the results before the last run, entered afterwards."""
    at = next(line["at"] for line in of.lines() if line["event"] == "sealed")
    of.log("peeked", {"reason": "curious", "took_place": at, "recorded_afterwards": True})


# --- The study and its lock. ----------------------------------------------------------------------------------------


def text(name: str, old: str, new: str) -> Callable[[Holding], None]:
    """Another text in a file."""

    def do(of: Holding) -> None:
        place = of.path / name
        words = place.read_text(encoding="utf-8")
        assert old in words, (name, old)
        place.write_text(words.replace(old, new, 1), encoding="utf-8")

    return do


def gone(name: str) -> Callable[[Holding], None]:
    return lambda of: (of.path / name).unlink()


def where_it_is(name: str, do: Callable[[Holding], None]) -> Callable[[Holding], None]:
    """Something done to a file that a bundle leaves out."""
    return lambda of: do(of) if (of.path / name).exists() else None


def a_smaller_margin_everywhere(of: Holding) -> None:
    """The margin in the study, in the lock, and the hash of the lock in the ledger: all but the promise's own hash."""
    text("studies/own.yaml", "smallest: 0.05", "smallest: 0.01")(of)
    text("studies/own.lock.json", '"smallest": 0.05', '"smallest": 0.01')(of)
    of.rewrite(saying("registered", lock_sha256=sha256_file(of.lock)))


# --- Verdict and reports. -------------------------------------------------------------------------------------------


def verdict(change: Callable[[Line], object], **in_ledger: Any) -> Callable[[Holding], None]:
    return lambda of: of.change_verdict(change, **in_ledger)


def saying_of_itself(**fields: Any) -> Callable[[Line], object]:
    """Other values of the fields of a decision."""
    return lambda decision: decision.update(fields)


def a_failed_check_left_out(decision: Line) -> None:
    decision["checks"].remove(next(one for one in decision["checks"] if not one["passed"]))


def a_better_p(decision: Line) -> None:
    decision["findings"][0]["estimate"]["p"] /= 10


def a_larger_effect(decision: Line) -> None:
    decision["findings"][0]["estimate"]["difference"] *= 1.0001


def of_the_finding(**fields: Any) -> Callable[[Line], object]:
    """Other values of the fields of the first finding."""
    return lambda decision: decision["findings"][0].update(fields)


def a_failed_check_that_passed(decision: Line) -> None:
    next(one for one in decision["checks"] if not one["passed"])["passed"] = True


def a_stable_arm(decision: Line) -> None:
    decision["stability"][0]["stable"] = not decision["stability"][0]["stable"]


def another_verdict_in_the_ledger_alone(of: Holding) -> None:
    """The decision in the ledger says something else, and there is no verdict.json to compare it with."""
    of.change_verdict(saying_of_itself(verdict="inconclusive"), verdict="inconclusive")
    of.verdict.unlink()


def a_second_decision(of: Holding) -> None:
    """The entry of the decision, once more after that of the reports."""
    of.log("decided", next(line["body"] for line in of.lines() if line["event"] == "decided"))
