"""Runs carried out one after another in one process; what goes wrong in a run becomes its record, not the process'."""

from __future__ import annotations

import os
import traceback

from ablate.records.run_record import utc_now
from ablate.records.store import RunFolder
from ablate.runner.company import LOST_A_RANK
from ablate.runner.equipment import Equipment
from ablate.runner.messages import Message
from ablate.runner.saving import said, show_trace
from ablate.runner.single import SingleRun
from prereg.registry import disk
from prereg.registry.plan import RunSpec


class Worker(Equipment):
    """Carries out runs one after another."""

    def carry_out(self, spec: RunSpec, folder: RunFolder, until: int | None = None) -> None:
        """One run from where it stands to its seal. Everything that goes wrong becomes a `failed` record.

        `until` ends it after that step, unsealed: the beginning of a run, made again to be compared.
        """
        try:
            SingleRun(self, spec, folder).finish(until)
        except Exception as error:
            if self.company is not None and self.company.killed():
                traceback.print_exception(error)
                disk.remove_all()
                os._exit(LOST_A_RANK)  # no error of the run: it is taken up again
            self.end()
            self.fail(spec, folder, error)

    def fail(self, spec: RunSpec, folder: RunFolder, error: Exception) -> None:
        """Record a run as failed, and say so."""
        show_trace(error)
        line = said(error, folder)
        folder.fail(line, utc_now())
        self.say(Message(event="ended", run_id=spec.run_id, status="failed", error=line))
