"""A process that makes runs of a user's own trainer, one after another, for a scheduler at its standard input."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ablate.records.store import RunFolder
from ablate.runner.child import adopt_orphans
from ablate.runner.control import Abandoned
from ablate.runner.messages import Pipes, begun
from ablate.runner.pinned import Hashed
from ablate.runner.process import Place, fail, held, make_run, prepare
from prereg.registry.plan import CommandSpec


class Server:
    """Makes runs; what they share is what was hashed."""

    def __init__(self, pipes: Pipes) -> None:
        self.pipes, self.hashed, self.gone = pipes, Hashed(), False
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
        self.gone = True

    def carry_out(self, spec: CommandSpec, folder: RunFolder, place: Place) -> None:
        self.pause = 0.0005
        try:
            with held(folder):
                try:
                    start = prepare(spec, folder, place)
                except Exception as error:
                    self.pipes.send(fail(spec, folder, place, error))
                    return
                self.pipes.say(begun(spec, start.record, start.resumed_from, left_values=start.left_values))
                self.pipes.send(make_run(spec, folder, place, self, self.pipes.send, hashed=self.hashed))
        except Abandoned:
            os._exit(3)


def main() -> None:
    """Serve a scheduler over standard input and output."""
    adopt_orphans()
    pipes = Pipes()
    server = Server(pipes)
    for order in pipes.orders(server.abandon):
        spec = CommandSpec.model_validate_json(json.dumps(order["spec"]))
        place = Place(Path(str(order["root"])), Path(str(order["study_folder"])))
        server.carry_out(spec, RunFolder(Path(str(order["folder"]))), place)


if __name__ == "__main__":
    main()
