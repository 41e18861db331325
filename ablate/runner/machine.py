"""Device of a study's runs, and which GPUs each sees. Decided before anything is written.

Runs made on one kind of device are not completed on another, for no pair of them would be admissible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ablate.gpt.compiling import cannot_compile
from ablate.gpt.device import CPU, choose_device, device_name, visible_gpus
from ablate.records.provenance import NOT_STATED
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from ablate.runner.options import RunOptions
from prereg.errors import RunError
from prereg.registry.paths import Root
from prereg.registry.plan import plan
from prereg.registry.registration import Registration
from prereg.study.spec import Study
from prereg.study.training import Training


@dataclass(frozen=True)
class Machine:
    """The device of the runs. Each is made on one; a user's own trainer may want several GPUs."""

    device: str = CPU
    """cpu, or cuda:N."""
    gpus: tuple[str, ...] = ()
    """The GPUs that are dealt out, by their names in CUDA_VISIBLE_DEVICES."""
    gpus_per_run: int = 1

    @property
    def gpu_slots(self) -> int:
        """Runs that fit on the GPUs side by side, one on its own at least."""
        return max(1, len(self.gpus) // self.gpus_per_run)

    def gpus_of(self, lane: int) -> tuple[str, ...]:
        """The GPUs that the worker of a slot sees; with more slots than fit, several workers see the same."""
        first = lane % self.gpu_slots * self.gpus_per_run
        return self.gpus[first : first + self.gpus_per_run]


def choose_machine(study: Study, records: Iterable[RunRecord], options: RunOptions) -> Machine:
    """The device that was requested, or the one that is here. Raises `RunError` where the study cannot be run on it.

    `records` are those of the study's runs: where sealed ones were made on a CPU, `auto` stays there.
    """
    require_devices(study, options)
    if study.trainer == "command":
        return Machine(gpus=visible_gpus(), gpus_per_run=options.devices_per_run)
    device = _device(study, records, options.device)
    # Now and not when the first arm that compiles has its turn, hours later.
    for name, arm in study.trained.items():
        if isinstance(arm.config, Training) and arm.config.numerics.compile and (why := cannot_compile(device)):
            raise RunError(
                f"arm {name}: numerics.compile, and here is {why}",
                required="what torch.compile needs",
                fix="install it, or leave numerics.compile out",
            )
    # Where no GPU was named, each worker sees one of all of them, as cuda:0.
    return Machine(device, gpus=visible_gpus() if device == "cuda:0" and options.device != device else ())


def require_devices(study: Study, options: RunOptions) -> None:
    """Refuse options about devices that the study's trainer cannot follow. Raises `RunError`."""
    # A user's own trainer places itself; the built-in one takes one device. So each option is for one of them alone.
    several = options.devices_per_run
    if study.trainer == "command":
        if options.device != "auto":
            raise RunError(
                f"--device {options.device}, and '{study.study}' brings its own trainer",
                required="no --device: a user's own trainer chooses for itself",
                fix="leave --device out, and give the trainer an argument in command:",
            )
        if several > 1 and (gpus := len(visible_gpus())) < several:
            raise RunError(
                f"--devices-per-run {several} with trainer: command, and {gpus} GPUs are visible",
                required="as many GPUs, which your own trainer uses as it likes",
                fix="leave --devices-per-run out, or start torchrun in the study's command",
            )
    elif several > 1:
        raise RunError(
            f"--devices-per-run {several}, and the built-in trainer makes each run on one device",
            required="a trainer of your own, whose command may start torchrun",
            fix="leave --devices-per-run out: runs are dealt one to a GPU",
        )


def _device(study: Study, records: Iterable[RunRecord], requested: str) -> str:
    """The requested device; `auto` stays where the sealed runs were made."""
    runs_by_device = Counter(record.provenance.device for record in records if record.status in ("done", "diverged"))
    runs_by_device.pop(NOT_STATED, None)  # of a user's own trainer
    chosen = choose_device(CPU if requested == "auto" and set(runs_by_device) == {CPU} else requested)
    name = device_name(chosen)
    if runs_by_device and name not in runs_by_device:
        kind, count = runs_by_device.most_common(1)[0]
        raise RunError(
            f"{count} sealed runs of '{study.study}' were made on {kind}, and this call would use {name}",
            required="one device class for all runs: pairs across two are not admissible",
            fix=f"--device {CPU}" if kind == CPU else f"go on where there is a {kind}, or make a study of its own",
        )
    return chosen


def records_of(root: Root, registration: Registration) -> dict[tuple[str, int], RunRecord]:
    """The record of every planned run that has one, by arm and seed."""
    record_by_cell = {}
    for spec in plan(registration):
        record = RunFolder(root.run(spec.study, spec.registration, spec.variant, spec.seed)).read_record()
        if record is not None:
            record_by_cell[spec.cell] = record
    return record_by_cell
