"""Which device a study's runs are made on, which seeds are trained together, and how their steps are computed.

Decided before anything is written.

All of it follows what is there. Runs made on one kind of device are not completed on another, for no pair of them would
be admissible; and where a seed already has runs of a layout, its other variants get the same one, so that pairs differ
in their variant alone. Members are a function of plan and layout, not of what happens to be unfinished: a run that is
made again gets the members that it had.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ablate.records.provenance import NOT_STATED
from ablate.records.run_record import SINGLE, WHOLE_ONLY, RunRecord, members_in, step_in
from ablate.records.store import RunFolder
from ablate.runner.options import RunOptions
from ablate.training.compiling import cannot_compile
from ablate.training.device import (
    AUTO,
    CPU,
    EAGER,
    cannot_take,
    choose_device,
    choose_step,
    device_name,
    visible_gpus,
)
from prereg.errors import RunError
from prereg.registry.looks import Look, looks_of
from prereg.registry.paths import Root
from prereg.registry.plan import plan
from prereg.registry.registration import Registration
from prereg.study.spec import Study
from prereg.study.training import Training
from prereg.text import counted

Shard = Literal["none", "ddp", "fsdp"]


@dataclass(frozen=True)
class Spread:
    """Devices of one run, and what each of them holds: whole weights (ddp) or its part of them (fsdp)."""

    devices: int = 1
    shard: Shard = "none"

    @classmethod
    def of(cls, devices: int, shard: str | None) -> Spread:
        """The spread that the options name; data parallel by default."""
        if shard not in (None, "ddp", "fsdp"):
            raise RunError(
                f"--shard {shard} is not known",
                required="ddp (whole weights on each device) or fsdp (weights cut over the devices)",
                fix="--devices-per-run 2 --shard fsdp",
            )
        if devices == 1 and shard is not None:
            raise RunError(
                f"--shard {shard} needs more than one device a run",
                required="--devices-per-run of 2 or more",
                fix=f"--devices-per-run 2 --shard {shard}",
            )
        if devices == 1:
            return cls()
        return cls(devices, "fsdp" if shard == "fsdp" else "ddp")

    @classmethod
    def of_layout(cls, layout: str) -> Spread:
        """The spread that a provenance names; one device where it names none."""
        found = re.fullmatch(r"(\d+) devices, (ddp|fsdp)", layout)
        return cls.of(int(found[1]), found[2]) if found is not None else cls()

    @property
    def layout(self) -> str:
        """The words for a provenance."""
        return SINGLE if self.devices == 1 else f"{self.devices} devices, {self.shard}"

    def require_possible(self, study: Study) -> None:
        """Refuse a spread that some arm cannot be trained under, before anything is written."""
        if self.devices == 1:
            return
        if study.trainer == "command":
            gpus = len(visible_gpus())
            if self.shard == "fsdp" or gpus < self.devices:
                raise RunError(
                    f"--devices-per-run {self.devices} with trainer: command, and {gpus} GPUs are visible",
                    required="as many GPUs, which your own trainer uses as it likes; no --shard",
                    fix="leave --devices-per-run out, or start torchrun in the study's command",
                )
            return
        unseen = [c.metric for c in study.claims.values() if c.metric.startswith(WHOLE_ONLY)]
        if self.shard == "fsdp" and unseen:
            raise RunError(
                f"--shard fsdp, and a claim reads {unseen[0]}",
                required="whole weights and moments, of which a device under fsdp holds a part",
                fix=f"--devices-per-run {self.devices} --shard ddp",
            )
        for name, arm in study.trained.items():
            assert isinstance(arm.config, Training), name
            self._require_trainable(name, arm.config)

    def _require_trainable(self, arm: str, config: Training) -> None:
        if config.numerics.compile:
            raise RunError(
                f"arm {arm}: numerics.compile with --devices-per-run {self.devices}",
                required="a compiled run on one device",
                fix="leave --devices-per-run out",
            )
        batch, micro = config.budget.batch, config.budget.micro_batch
        if batch % self.devices:
            raise RunError(
                f"arm {arm}: a batch of {batch} sequences does not divide over {self.devices} devices",
                required="--devices-per-run that divides budget.batch",
                fix="another --devices-per-run",
            )
        if micro is not None and (batch // self.devices) % micro:
            raise RunError(
                f"arm {arm}: micro-batches of {micro} do not divide the {batch // self.devices} sequences of a device",
                required="budget.micro_batch that divides budget.batch / --devices-per-run",
                fix="another --devices-per-run",
            )
        if self.shard != "fsdp":
            return
        if config.optim.name == "muon":
            raise RunError(
                f"arm {arm}: --shard fsdp with optim.name muon",
                required="whole matrices, which Muon orthogonalises, or an optimiser that works element by element",
                fix=f"--devices-per-run {self.devices} --shard ddp",
            )
        if config.model.residual_scale == "rezero":
            raise RunError(
                f"arm {arm}: --shard fsdp with model.residual_scale rezero",
                required="parameters that can be cut; a learned scalar cannot",
                fix=f"--devices-per-run {self.devices} --shard ddp",
            )


MOST_MEMBERS = 16
"""Runs trained together at most, by default: a bound on memory, not a measured optimum."""
WHOLE = Spread()
"""Each run on one device."""


@dataclass(frozen=True)
class Machine:
    """The device of the runs, and how many are trained together."""

    device: str = CPU
    """cpu, or cuda:N."""
    cohort: str = "auto"
    """auto, on, off, or how many seeds at most are trained together."""
    why_apart: str = ""
    """Why runs are trained one by one where `auto` would have trained them together; nothing where it would not."""
    step: str = AUTO
    """auto, or the kind of step that is requested (`ablate.training.device`)."""
    spread: Spread = WHOLE
    """The devices of each run."""
    gpus: tuple[str, ...] = ()
    """The GPUs that this process may use, by their names in CUDA_VISIBLE_DEVICES."""

    @property
    def gpu_slots(self) -> int:
        """Runs that fit on the GPUs side by side, one on its own at least."""
        return max(1, len(self.gpus) // self.spread.devices)

    def gpus_of(self, lane: int) -> tuple[str, ...]:
        """The GPUs that the worker of a slot sees; with more slots than fit, several workers see the same."""
        first = lane % self.gpu_slots * self.spread.devices
        return self.gpus[first : first + self.spread.devices]

    @property
    def members(self) -> int:
        """Seeds trained together where no sealed run decides; one is a run by itself."""
        if self.cohort == "auto":
            # Measured on the CPU: no gain there (reports/LOG.md).
            return 1 if self.device == CPU else MOST_MEMBERS
        return {"on": MOST_MEMBERS, "off": 1}.get(self.cohort) or int(self.cohort)


def choose_machine(
    study: Study,
    records: Iterable[RunRecord],
    options: RunOptions,
) -> Machine:
    """The device, the cohorts and the kind of step that were requested. Raises `RunError` where they do not fit.

    A run that is spread over devices is in no cohort, and kinds of steps are those of cohorts.
    """
    device, cohort, step = options.device, options.cohort, options.step
    spread = Spread.of(options.devices_per_run, options.shard)
    if cohort not in ("auto", "on", "off") and not (cohort.isascii() and cohort.isdigit() and int(cohort) > 0):
        raise RunError(f"--cohort {cohort}", required="auto, on, off, or a number of runs", fix="--cohort auto")
    if study.trainer == "command":
        for option, word in (("--device", device), ("--cohort", cohort), ("--step", step)):
            if word != "auto":
                raise RunError(
                    f"{option} {word}, and '{study.study}' brings its own trainer",
                    required=f"no {option}: a user's own trainer chooses for itself",
                    fix=f"leave {option} out, and give the trainer an argument in command:",
                )
        return Machine(spread=spread, gpus=visible_gpus())
    if spread.devices > 1:
        _require_apart(cohort, spread, step)
    machine = Machine(_device(study, records, device), cohort)
    for name, arm in study.trained.items():
        if isinstance(arm.config, Training) and arm.config.numerics.compile and (why := cannot_compile(machine.device)):
            raise RunError(
                f"arm {name}: numerics.compile, and here is {why}",
                required="what torch.compile needs",
                fix="install it, or leave numerics.compile out",
            )
    if machine.device == "cuda:0" and device != machine.device:
        machine = replace(machine, gpus=visible_gpus())  # each worker sees one of them, as cuda:0
    if spread.devices > 1:
        gpus = visible_gpus() if machine.device != CPU else ()
        if machine.device != CPU and (machine.device != "cuda:0" or len(gpus) < spread.devices):
            raise RunError(
                f"--devices-per-run {spread.devices} on {machine.device}, and {len(gpus)} GPUs are visible",
                required="as many GPUs for each run, or the processors of this machine",
                fix=f"--device {CPU}, or leave --devices-per-run out",
            )
        return Machine(machine.device, "off", spread=spread, gpus=gpus)
    return _stepped(_grouped(study, machine), step)


def _stepped(machine: Machine, wanted: str) -> Machine:
    """With the requested kind of step, which only cohorts take."""
    step = choose_step(wanted, machine.device)
    if step not in (AUTO, EAGER) and machine.members == 1:
        raise RunError(
            f"--step {step}, and {machine.why_apart or 'runs are trained one by one'}",
            required="runs that are trained together: only their steps are computed in several ways",
            fix=f"--step {EAGER}" if machine.why_apart else f"--cohort on --step {step}",
        )
    return replace(machine, step=step)


def _require_apart(cohort: str, spread: Spread, step: str) -> None:
    if step not in (AUTO, EAGER):
        raise RunError(
            f"--step {step} with --devices-per-run {spread.devices}",
            required="runs trained together on one device, whose steps are computed in several ways",
            fix="leave one of the two out",
        )
    if cohort not in ("auto", "off", "1"):
        raise RunError(
            f"--cohort {cohort} with --devices-per-run {spread.devices}",
            required="runs trained together on one device, or each spread over several, not both",
            fix="leave one of the two out",
        )


def _grouped(study: Study, machine: Machine) -> Machine:
    """Cohorts that every arm can be trained in, or none for any: the runs of a seed are to have the same layout."""
    if machine.cohort in ("off", "1"):
        return machine
    configs = {name: arm.config for name, arm in study.trained.items() if isinstance(arm.config, Training)}
    again = [name for name, config in configs.items() if config.numerics.recompute != "none"]
    compiled = [name for name, config in configs.items() if config.numerics.compile]
    moved = [claim.metric for claim in study.claims.values() if claim.metric.startswith(WHOLE_ONLY)]
    if again:
        blocks = f"arm {', '.join(again)}: numerics.recompute computes blocks again, which runs trained together cannot"
        fix = "--cohort off, or budget.micro_batch, which also saves memory"
    elif compiled:
        blocks = f"arm {', '.join(compiled)}: numerics.compile compiles the steps of single runs"
        fix = "--cohort off, or --step compiled in place of numerics.compile"
    elif study.measure.harness is not None:
        blocks = "measure.harness asks each run by itself when it has been trained, and these end together"
        fix = "--cohort off"
    elif study.arm_seeds:
        blocks, fix = "arms have seeds of their own, and a cohort is made of the seeds of all arms", "--cohort off"
    elif moved:
        blocks, fix = f"a claim reads {moved[0]}, which is not measured of runs trained together", "--cohort off"
    else:
        return machine
    if machine.cohort != "auto":
        raise RunError(
            f"--cohort {machine.cohort}, and {blocks}",
            required="runs one by one",
            fix=fix,
        )
    return Machine(machine.device, "off", f"runs are trained one by one: {blocks}" if machine.members > 1 else "")


def _device(study: Study, records: Iterable[RunRecord], wanted: str) -> str:
    """The requested device; `auto` stays where the sealed runs were made."""
    made = Counter(record.provenance.device for record in records if record.status in ("done", "diverged"))
    made.pop(NOT_STATED, None)
    chosen = choose_device(CPU if wanted == "auto" and set(made) == {CPU} else wanted)
    name = device_name(chosen)
    if made and name not in made:
        kind, count = made.most_common(1)[0]
        raise RunError(
            f"{count} sealed runs of '{study.study}' were made on {kind}, and this call would use {name}",
            required="one device class for all runs: pairs across two are not admissible",
            fix=f"--device {CPU}" if kind == CPU else f"go on where there is a {kind}, or make a study of its own",
        )
    return chosen


def records_of(root: Root, registration: Registration) -> dict[tuple[str, int], RunRecord]:
    """The record of every planned run that has one, by arm and seed."""
    found = {}
    for spec in plan(registration):
        record = RunFolder(root.run(spec.study, spec.registration, spec.variant, spec.seed)).read_record()
        if record is not None:
            found[spec.cell] = record
    return found


def cohorts_by_seed(
    study: Study, machine: Machine, records: Mapping[tuple[str, int], RunRecord]
) -> dict[int, tuple[int, ...]]:
    """Seed -> the seeds it is trained with, itself included. Nothing is grouped across a look."""
    members: dict[int, tuple[int, ...]] = {}
    pilot, first = study.pilot_seeds, 0
    for start in range(0, len(pilot), machine.members):
        members |= dict.fromkeys(pilot[start : start + machine.members], pilot[start : start + machine.members])
    for end in (*(look.n_seeds for look in looks_of(study)), len(study.seeds)):
        for start in range(first, end, machine.members):
            together = tuple(study.seeds[start : min(end, start + machine.members)])
            members |= dict.fromkeys(together, together)
        first = max(first, end)
    if machine.cohort == "auto":
        members |= _begun_layouts(study, records)
    return members


def step_of(members: tuple[int, ...], machine: Machine, records: Mapping[tuple[str, int], RunRecord]) -> str:
    """How a cohort's steps are computed: as requested, else as of most of its sealed run, else operator by operator.

    Refused where that kind cannot be taken here: pairs would differ by more than their variant, unrequested.
    """
    if machine.step != AUTO:
        return machine.step
    found = Counter(
        step_in(record.provenance.layout)
        for record in records.values()
        if record.status != "failed" and members_in(record.provenance.layout) == members
    )
    if not found:
        return EAGER
    (kind, count), *_ = found.most_common(1)
    if why := cannot_take(kind, machine.device):
        raise RunError(
            f"{counted(count, 'run')} of seeds {', '.join(map(str, members))} were trained with steps {kind}, "
            f"and {machine.device} on this machine cannot take such steps: {why}",
            required=f"steps {kind} for the other runs of these seeds too: another kind rounds in another order",
            fix=f"--step {EAGER}, and the report lists the pairs of two layouts; or go on where those were trained",
        )
    return kind


def require_steps(
    study: Study,
    machine: Machine,
    records: Mapping[tuple[str, int], RunRecord],
    look: Look | None = None,
) -> None:
    """Refuse what `step_of` refuses, of every cohort that still has a run to be trained before a look, if there is one.

    So nothing is written before. Checked again when the runs are given out: another process may have sealed some by
    then.
    """
    if study.trainer == "command":
        return
    members = cohorts_by_seed(study, machine, records)
    waiting = {
        seed
        for cell in study.cells
        if cell not in records or records[cell].status not in ("done", "diverged")
        for seed in cell[1:]
    }
    for seed in members if look is None else study.seeds[: look.n_seeds]:
        if len(members[seed]) > 1 and seed in waiting:
            step_of(members[seed], machine, records)


def _begun_layouts(study: Study, records: Mapping[tuple[str, int], RunRecord]) -> dict[int, tuple[int, ...]]:
    """What the runs that were begun already say; the layout of most, where they differ."""
    found: dict[int, Counter[tuple[int, ...]]] = {}
    for (_, seed), record in records.items():
        members = members_in(record.provenance.layout)
        if record.status != "failed" and set(members) <= {seed for _, seed in study.cells}:
            found.setdefault(seed, Counter())[members or (seed,)] += 1
    return {seed: counted.most_common(1)[0][0] for seed, counted in found.items()}
