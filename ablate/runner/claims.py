"""Several processes at work on one study, on machines that share its folder: who they are, and who makes which run.

    .parts/NAME.json      a process at work; it touches this file every few seconds, and removes it when it ends
    .parts/NAME/ARM/SEED  where it makes a run, until the run has ended
    .claims/ARM/SEED.1    the run is NAME's; the next to claim it, once NAME is gone, creates SEED.2

No file lock is needed: a claim is a file that is created once, and a run that has ended is a folder that is renamed to
its place, where no other lies. A process that was stopped so long that its run was taken over finds its claim lost when
it wakes up; whatever it had written lies in a folder that counts for nothing.

No clock is compared with another: a process is taken for gone when its file has not changed for a while, by the clock
of the one who watches, or at once where it ran on this machine and is dead.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from pydantic import ValidationError

from ablate.records.store import RunFolder
from ablate.runner.child import born, end_leftover
from ablate.runner.options import LOST_AFTER_S, parse_part
from ablate.runner.processes import Spec
from prereg.errors import RunError
from prereg.frozen import FrozenModel
from prereg.registry.disk import create_whole, sync_folder
from prereg.registry.plan import Cell

_BEAT_S = 2.0
_CARRIED = ("run.json", "metrics.jsonl", "checkpoint*.safetensors")
"""What a run of the built-in trainer resumes from. Each is checked by its hash when it does."""


class Owner(FrozenModel):
    """A process at work on a study, as it says itself."""

    host: str
    """Its machine."""
    pid: int
    """Its number there."""
    part: str = ""
    """Its part, as 2/3; empty for one that works alone."""
    born: str | None = None
    """When it was started, unlike any other process of that machine with its number."""
    namespace: str = ""
    """In which process numbers mean what they say: a container has its own."""

    @property
    def words(self) -> str:
        """For instance `part 2/3 on node7 (pid 4711)`."""
        return f"{f'part {self.part}' if self.part else 'ablate run'} on {self.host} (pid {self.pid})"

    @property
    def is_here(self) -> bool:
        """Whether it is of this machine."""
        return (self.host, self.namespace) == (socket.gethostname(), _namespace())

    @property
    def died(self) -> bool:
        """Whether it was of this machine, and is dead."""
        return self.is_here and born(self.pid) != self.born


@dataclass
class Claims:
    """This process among those that are at work on a registration's runs. Used in a `with` block."""

    runs: Path
    """The folder of all runs of the registration."""
    part: str = ""
    lost_after_s: float = LOST_AFTER_S
    name: str = field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")
    _held: dict[Cell, int] = field(default_factory=dict)
    """Generation of each claim of this process."""
    _private: set[Cell] = field(default_factory=set)
    """Runs in this process's own folder."""
    _failed_before: set[Path] = field(default_factory=set)
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Of another process: the last sign that was seen, and when by this one's clock."""
    _alive: set[str] = field(default_factory=set)
    """Other processes that have given a sign while this one looked."""
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        me = Owner(
            host=socket.gethostname(), pid=os.getpid(), part=self.part, born=born(os.getpid()), namespace=_namespace()
        )
        while True:
            self._parts.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # the last process to leave removed the empty folder meanwhile
                create_whole(self._presence(self.name), me.model_dump_json().encode())
                break
        self._failed_before = set((self.runs / ".claims").glob("*/*.failed"))
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> bool:
        """Be no longer at work. Whether no other process is."""
        self._ended.set()
        self._presence(self.name).unlink(missing_ok=True)
        for folder in (self._parts / self.name, self._parts):
            with suppress(OSError):  # not empty
                folder.rmdir()
        return all(self.is_gone(name) for name in self.others())

    def others(self) -> dict[str, Owner]:
        """Every other process that says it is at work, by name, and has not died on this machine."""
        return {name: owner for name, owner in owners(self.runs).items() if name != self.name and not owner.died}

    def require_alone(self, note: Callable[[str], None]) -> None:
        """Wait until every other process shows whether it is at work. Raises `RunError` where one is."""
        waiting = False
        while others := {name: owner for name, owner in self.others().items() if not self.is_gone(name)}:
            for name, owner in others.items():
                if name in self._alive or owner.is_here:
                    raise RunError(
                        f"the study is being run by {owner.words}",
                        required="one `ablate run` at a time, or parts alone (--part I/N)",
                        fix="wait for it, or end it there",
                    )
            if not waiting:
                words = ", ".join(owner.words for owner in others.values())
                note(f"waiting up to {self.lost_after_s:g} s for a sign of {words}")
                waiting = True
            time.sleep(0.2)

    def require_parts_only(self) -> None:
        """Raises `RunError` where a process is at work that makes all runs alone."""
        for name, owner in self.others().items():
            if not owner.part and not self.is_gone(name):
                raise RunError(
                    f"the study is being run by {owner.words}, which does not share it",
                    required="parts alone: every process with --part I/N",
                    fix="wait for it, or end it there",
                )

    def first_of(self, n: int) -> int:
        """Where this part begins among n things, so that parts begin apart."""
        number, of = parse_part(self.part)
        return (number - 1) * n // of

    def is_gone(self, name: str) -> bool:
        """Whether a process has ended, has died on this machine, or gave no sign for so long that it counts as lost."""
        try:
            with self._presence(name).open("rb") as stream:  # opening asks the server, where there is one
                owner, sign = _owner(stream.read()), os.fstat(stream.fileno()).st_mtime_ns
        except FileNotFoundError:
            return True
        if owner.died:
            return True
        seen, since = self._seen.get(name, (None, 0.0))
        if sign != seen:
            self._alive |= set() if seen is None else {name}
            self._seen[name] = sign, time.monotonic()
            return False
        return time.monotonic() - since > self.lost_after_s

    def take(self, spec: Spec) -> Literal["taken", "busy", "ended"]:
        """Claim a run: it is this process's now, or another's, or has ended in another."""
        cell, place = spec.cell, self._place(spec)
        if _is_sealed(place):
            return "ended"
        newest = _newest_claim(self.runs, cell)
        if newest and newest == self._held.get(cell):
            return "taken"  # and its worker has died
        if newest and (failed := self._failed(cell, newest)).exists() and failed not in self._failed_before:
            return "ended"
        if (newest and not self.is_gone(self._owner_of(cell, newest))) or not self._create(cell, newest + 1):
            return "busy"
        if _is_sealed(place):  # between the look and the claim
            return "ended"
        own = self._parts / self.name / spec.variant / str(spec.seed)
        own.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir():
            place.rename(own)  # of an earlier call, which failed or was ended
        else:
            self._bring(cell, newest, own)
        self._private.add(cell)
        return "taken"

    def take_over_seal(self, spec: Spec) -> bool:
        """Whether it is for this process to bind a run that another sealed, and was gone before the ledger had it."""
        newest = _newest_claim(self.runs, spec.cell)
        gone = not newest or self.is_gone(self._owner_of(spec.cell, newest))
        return gone and self._create(spec.cell, newest + 1)

    def holds(self, spec: Spec) -> bool:
        """Whether a run is still this process's."""
        mine = self._held.get(spec.cell, 0)
        return mine > 0 and self._claim(spec.cell, mine).exists() and not self._claim(spec.cell, mine + 1).exists()

    def folder(self, spec: Spec) -> Path:
        """Where the run lies now."""
        if spec.cell in self._private:
            return self._parts / self.name / spec.variant / str(spec.seed)
        return self._place(spec)

    def publish(self, spec: Spec) -> bool:
        """Move a run that has ended to its place. False where the claim was lost, and then nothing is moved."""
        own, place = self.folder(spec), self._place(spec)
        if not self.holds(spec):
            return False
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            own.rename(place)
        except OSError:  # another lies there
            return False
        self._private.discard(spec.cell)
        sync_folder(place.parent)
        return True

    def give_up(self, spec: Spec) -> None:
        """Forget a run whose claim was lost."""
        own = self.folder(spec)
        if own != self._place(spec):
            shutil.rmtree(own, ignore_errors=True)
        self._private.discard(spec.cell)
        self._held.pop(spec.cell, None)

    def mark_failed(self, spec: Spec) -> None:
        """Say that the run failed, so that no process that is at work now makes it again."""
        self._failed(spec.cell, self._held[spec.cell]).touch()

    def first(self, what: str) -> bool:
        """Whether this process is the one that does what is to be done once."""
        (self.runs / ".claims").mkdir(exist_ok=True)
        return create_whole(self.runs / ".claims" / what, self.name.encode())

    def collect(self, specs: tuple[Spec, ...]) -> None:
        """Bring every run that parts have left unfinished to its place, and forget the parts. For one that is alone."""
        for spec in specs:
            cell, place = spec.cell, self._place(spec)
            if not place.exists() and (newest := _newest_claim(self.runs, cell)):
                place.parent.mkdir(parents=True, exist_ok=True)
                self._bring(cell, newest, place)
        self.forget()

    def forget(self) -> None:
        """Remove all claims, and what processes that are gone have left."""
        shutil.rmtree(self.runs / ".claims", ignore_errors=True)
        for name in {path.stem for path in self._parts.glob("*")}:
            if self.is_gone(name):
                shutil.rmtree(self._parts / name, ignore_errors=True)
                self._presence(name).unlink(missing_ok=True)
        with suppress(OSError):  # not empty, or gone
            self._parts.rmdir()

    @property
    def _parts(self) -> Path:
        return self.runs / ".parts"

    def _presence(self, name: str) -> Path:
        return self._parts / f"{name}.json"

    def _place(self, spec: Spec) -> Path:
        return self.runs / spec.variant / str(spec.seed)

    def _claim(self, cell: Cell, generation: int) -> Path:
        return _claim_path(self.runs, cell, generation)

    def _owner_of(self, cell: Cell, generation: int) -> str:
        return self._claim(cell, generation).read_text()

    def _failed(self, cell: Cell, generation: int) -> Path:
        return self.runs / ".claims" / cell[0] / f"{cell[1]}.{generation}.failed"

    def _create(self, cell: Cell, generation: int) -> bool:
        claim = self._claim(cell, generation)
        claim.parent.mkdir(parents=True, exist_ok=True)
        created = create_whole(claim, self.name.encode())
        if created:
            self._held[cell] = generation
        return created

    def _bring(self, cell: Cell, newest: int, own: Path) -> None:
        """What an earlier owner has left of a run, so that it resumes."""
        for generation in range(newest, 0, -1):
            owner = self._owner_of(cell, generation)
            left = self._parts / owner / cell[0] / str(cell[1])
            if not left.is_dir():
                continue
            presence = self._presence(owner)
            if not presence.exists() or _owner(presence.read_bytes()).died:
                end_leftover(left)
                left.rename(own)
                return
            # It may wake up, and write on. A user's own trainer starts over: nothing vouches for what it would read.
            partial = own.with_name(f"{own.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for pattern in _CARRIED if not (left / "work").is_dir() else _CARRIED[:1]:
                for path in left.glob(pattern):
                    with suppress(FileNotFoundError):
                        shutil.copyfile(path, partial / path.name)
            partial.rename(own)
            shutil.rmtree(left, ignore_errors=True)
            return

    def _beat(self) -> None:
        sign = time.time_ns()
        while not self._ended.wait(_BEAT_S):
            sign = max(time.time_ns(), sign + 10**9)  # a sign is another one even where the clock was set back
            with suppress(OSError):
                os.utime(self._presence(self.name), ns=(sign, sign))


def owners(runs: Path) -> dict[str, Owner]:
    """The processes that say they are at work on the runs of a registration, by name."""
    return {name: owner for name, (owner, _) in _present(runs).items()}


class AtWork(Owner):
    """A process at work, as it looks from here."""

    silent_s: float
    """Seconds since its last sign, as far as the clocks of two machines agree."""


def at_work(runs: Path) -> dict[str, AtWork]:
    """The processes at work on the runs of a registration, by name: those with a sign not long ago."""
    found = {}
    for name, (owner, sign) in _present(runs).items():
        silent_s = max(0.0, time.time() - sign)
        if not owner.died and silent_s < LOST_AFTER_S:
            found[name] = AtWork(**owner.model_dump(), silent_s=silent_s)
    return found


def _present(runs: Path) -> dict[str, tuple[Owner, float]]:
    found = {}
    for path in sorted((runs / ".parts").glob("*.json")):
        with suppress(FileNotFoundError), path.open("rb") as stream:
            found[path.stem] = _owner(stream.read()), os.fstat(stream.fileno()).st_mtime
    return found


def begun_runs(runs: Path, arms: Iterable[str]) -> set[tuple[str, str]]:
    """Arm and seed of every run that was begun or claimed, by one look at each arm's folder."""
    found = set()
    for arm in arms:
        for folder in (runs / arm, runs / ".claims" / arm):
            with suppress(OSError):
                found |= {(arm, path.name.partition(".")[0]) for path in folder.iterdir()}
    return found


def working_folder(runs: Path, variant: str, seed: int) -> RunFolder:
    """Where a run lies: at its place, or with the part that makes it."""
    place = runs / variant / str(seed)
    if not place.exists() and (newest := _newest_claim(runs, (variant, seed))):
        with suppress(FileNotFoundError):
            owner = _claim_path(runs, (variant, seed), newest).read_text()
            return RunFolder(runs / ".parts" / owner / variant / str(seed))
    return RunFolder(place)


def _claim_path(runs: Path, cell: Cell, generation: int) -> Path:
    return runs / ".claims" / cell[0] / f"{cell[1]}.{generation}"


def _newest_claim(runs: Path, cell: Cell) -> int:
    """The generation of the newest claim; 0 where there is none."""
    newest = 0
    while _claim_path(runs, cell, newest + 1).exists():
        newest += 1
    return newest


def _is_sealed(place: Path) -> bool:
    record = RunFolder(place).readable_record()
    return record is not None and record.status in ("done", "diverged")


def _owner(data: bytes) -> Owner:
    try:
        return Owner.model_validate(json.loads(data))
    except (ValueError, ValidationError):
        return Owner(host="unknown", pid=0)


def _namespace() -> str:
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""
