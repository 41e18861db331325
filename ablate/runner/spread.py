"""How one run is spread over devices. Given when a study is run, kept in each run's provenance, no part of its promise.

Another spread adds in another order, so it moves the last bits of a run: runs are resumed under the spread they were
begun under, and start over under another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ablate.records.layout import WHOLE_ONLY
from ablate.records.run_record import SINGLE
from prereg.errors import RunError
from prereg.study.spec import Study
from prereg.study.training import Training

Shard = Literal["none", "ddp", "fsdp"]


@dataclass(frozen=True)
class Spread:
    """Devices of one run, and what each of them holds: whole weights (ddp) or its part of them (fsdp)."""

    devices: int = 1
    shard: Shard = "none"

    @classmethod
    def of(cls, devices: int, shard: str | None) -> Spread:
        """As it was asked for; data parallel unless told otherwise."""
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
            raise RunError(
                f"--devices-per-run {self.devices} with trainer: command",
                required="the built-in trainer; your own trainer spreads its runs itself",
                fix="leave --devices-per-run out, and start torchrun in the study's command",
            )
        unseen = [c.metric for c in study.claims.values() if c.metric.startswith(WHOLE_ONLY)]
        if self.shard == "fsdp" and unseen:
            raise RunError(
                f"--shard fsdp, and a claim reads {unseen[0]}",
                required="whole weights and moments, of which a device under fsdp holds a part",
                fix=f"--devices-per-run {self.devices} --shard ddp",
            )
        for name, arm in study.arms.items():
            assert isinstance(arm.config, Training), name
            self._require_trainable(name, arm.config)

    def _require_trainable(self, arm: str, config: Training) -> None:
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
