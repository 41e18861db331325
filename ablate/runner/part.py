"""A part of a study: a scheduler that shares the plan with others, on any machine, run by run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from ablate.records.store import RunFolder
from ablate.runner.child import end_leftover
from ablate.runner.claims import Claims
from ablate.runner.failures import kind_of
from ablate.runner.messages import Message
from ablate.runner.neighbours import Neighbours
from ablate.runner.processes import Spec, WorkerProcess
from ablate.runner.scheduler import Scheduler

LOOK_EVERY_S = 1.0


@dataclass(kw_only=True)
class PartScheduler(Scheduler):
    """Makes the runs that it claims, and waits for those of others, which may be lost."""

    claims: Claims
    began: int
    """The ledger's length when it began."""
    _looked: float = 0.0

    @property
    def stated(self) -> dict[str, JsonValue]:
        """Which part it is."""
        return {"part": self.claims.part}

    def _neighbours(self) -> Neighbours | None:
        """Other parts write in the folders of their runs at any time."""
        return None

    @property
    def log_stem(self) -> str:
        """Logs of several machines lie in one folder."""
        return f"worker-{self.claims.name}"

    def folder(self, spec: Spec) -> RunFolder:
        """Where the run lies now: in this part's own folder until it has ended."""
        return RunFolder(self.claims.folder(spec))

    def binds(self, spec: Spec) -> bool:
        """Not while the part that sealed it is at work."""
        return self.claims.take_over_seal(spec)

    def next_run(self) -> Spec | None:
        """The next run that no other part is at work on."""
        busy: list[Spec] = []
        found: Spec | None = None
        while self.pending and found is None:
            spec = self.pending.popleft()
            match self.claims.take(spec):
                case "taken":
                    found = spec
                case "busy":
                    busy.append(spec)
                case "ended":
                    self._count_elsewhere(spec)
        self.pending.extendleft(reversed(busy))
        return found

    def log_start(self, spec: Spec, begun: Message) -> None:
        """A run that another part has taken over meanwhile has no start of this one's."""
        if self.claims.holds(spec):
            super().log_start(spec, begun)

    def end(self, spec: Spec, message: Message, *, recovered: bool = False, changed: Sequence[str] = ()) -> None:
        """Move the run to its place, and then log its end; a run that another part has taken over is left to it."""
        private = str(self.claims.folder(spec))
        if not self.claims.publish(spec):
            self._leave(spec)
            return
        if message.error is not None:
            error = message.error.replace(private, str(self.claims.folder(spec)))
            own = f"/.parts/{self.claims.name}/"
            message = message.model_copy(update={"error": error.replace(own, "/")})
        super().end(spec, message, recovered=recovered, changed=changed)

    def give_up_or_go_on(self, spec: Spec, error: str) -> None:
        """Failures of other parts since this one began count as its own do."""
        self.claims.mark_failed(spec)
        for entry in self.ledger.entries()[self.began :]:
            other = (entry.body.get("variant"), entry.body.get("seed")) != (spec.variant, spec.seed)
            if entry.event == "failed" and entry.registration == spec.registration and other:
                self.failures.add(kind_of(str(entry.body.get("error")), spec))
        super().give_up_or_go_on(spec, error)

    def next_event(self) -> None:
        """As any scheduler, with a look at the other parts now and then."""
        if (now := time.monotonic()) - self._looked >= LOOK_EVERY_S:
            self._looked = now
            for worker in list(self.workers.values()):
                if worker.idle:
                    self.assign(worker)
                elif worker.spec is not None and not self.claims.holds(worker.spec):
                    self._drop(worker, worker.spec)
        super().next_event()

    def _count_elsewhere(self, spec: Spec) -> None:
        record = self.folder(spec).readable_record()
        done = record is not None and record.status in ("done", "diverged")
        self.tally.sealed, self.tally.failed = self.tally.sealed + done, self.tally.failed + (not done)
        self.tally.steps_done += spec.steps or (0 if record is None else record.steps)

    def _drop(self, worker: WorkerProcess, spec: Spec) -> None:
        """Another part has this worker's run: end the worker, which may not know."""
        worker.process.kill()
        worker.process.wait()
        worker.spec, worker.idle = None, True
        self._leave(spec)

    def _leave(self, spec: Spec) -> None:
        """Leave a run to the part that has taken it over."""
        self.watcher.note(f"{spec.run_id}: another part took it over, as this one gave no sign for too long")
        end_leftover(self.claims.folder(spec))
        self.claims.give_up(spec)
        self.tally.running.pop(spec.run_id, None)
        self.pending.append(spec)
