"""A process that makes runs of one study, one after another, for a scheduler at its standard input."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ablate.gpt.device import CPU
from ablate.records.store import RunFolder
from ablate.runner.child import Start, adopt_orphans, start_program
from ablate.runner.control import Abandoned
from ablate.runner.messages import Pipes, begun
from ablate.runner.pinned import Hashed
from ablate.runner.process import Place, fail, held, make_run, prepare
from prereg.registry.plan import CommandSpec, RunSpec


class Server:
    """Makes runs; what they share is what was hashed."""

    def __init__(self, pipes: Pipes) -> None:
        self.pipes, self.hashed, self.gone = pipes, Hashed(), False
        self.busy = False
        self.pause = 0.0005

    @property
    def stopped(self) -> bool:
        return self.pipes.stop.is_set()

    def wait(self, timeout_s: float) -> None:
        self.pipes.stop.wait(min(timeout_s, self.pause))
        self.pause = min(2 * self.pause, 0.05)
        if self.gone:
            raise Abandoned

    def abandon(self) -> None:
        """The scheduler is gone. A run that is being made ends its trainer first."""
        self.gone = True
        if not self.busy:
            os._exit(3)

    def forking(self, spec: RunSpec, place: Place) -> Start:
        """Where the system can fork, the built-in trainer begins with what this process has loaded for it."""
        if sys.platform != "linux":
            return start_program
        from ablate.gpt.main import prepare as load
        from ablate.runner.forked import start_forked

        load([spec], place.corpora, place.root)
        return start_forked

    def carry_out(self, spec: RunSpec | CommandSpec, folder: RunFolder, place: Place) -> None:
        self.pause, self.busy = 0.0005, True
        try:
            with held(folder):
                try:
                    start = prepare(spec, folder, place)
                except Exception as error:
                    self.pipes.send(fail(spec, folder, place, error))
                    return
                self.pipes.say(begun(spec, start.record, start.resumed_from, left_values=start.left_values))
                started = {} if isinstance(spec, CommandSpec) else {"start": self.forking(spec, place)}
                self.pipes.send(make_run(spec, folder, place, self, self.pipes.send, hashed=self.hashed, **started))
        except Abandoned:
            os._exit(3)
        finally:
            self.busy = False
        if self.gone:
            os._exit(3)


def main() -> None:
    """Serve a scheduler over standard input and output."""
    adopt_orphans()
    pipes = Pipes()
    server = Server(pipes)
    for order in pipes.orders(server.abandon):
        planned = json.dumps(order["spec"])
        own = "command" in order["spec"]
        spec = CommandSpec.model_validate_json(planned) if own else RunSpec.model_validate_json(planned)
        place = Place(
            Path(str(order["root"])),
            Path(str(order["study_folder"])),
            device=str(order.get("device") or CPU),
            checkpoint_every_s=order.get("checkpoint_every_s"),
            until=order.get("until"),
        )
        server.carry_out(spec, RunFolder(Path(str(order["folder"]))), place)


if __name__ == "__main__":
    main()
