"""What the user of `ablate run` chooses for one call. None of it is registered."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from prereg.errors import RunError

LOST_AFTER_S = 60.0


@dataclass(frozen=True)
class RunOptions:
    """Passed whole from the command line, or a notebook, to the scheduler. Checked where each is used."""

    slots: int | None = None
    """Runs side by side; by default one per core; of a user's own trainer or on an accelerator one per GPU, or one."""
    only: tuple[str, ...] = ()
    """ARM/SEED of the runs to make; all by default."""
    part: str | None = None
    """I/N: make runs alongside other parts, on machines that share the folder; alone by default."""
    lost_after_s: float = LOST_AFTER_S
    """How long another process gives no sign before its runs are taken over."""
    next_look: bool = False
    """Stop at the next look of a sequential study, which is always so; refused for a fixed number of seeds."""
    checkpoint_every_s: float | None = None
    """Seconds between checkpoints of a run. Moves no bit."""
    devices_per_run: int = 1
    """GPUs that each run of a user's own trainer sees."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""

    def words(self) -> tuple[str, ...]:
        """The options of `ablate run` that say the same, but for the part."""
        found: list[str] = []
        for one in fields(self):
            value = getattr(self, one.name)
            if value == one.default or one.name == "part":
                continue
            flag = f"--{_FLAGS.get(one.name, one.name.replace('_', '-'))}"
            if one.name == "only":
                found += [word for name in value for word in (flag, name)]
            else:
                found += [flag] if value is True else [flag, str(value)]
        return tuple(found)


_FLAGS = {"checkpoint_every_s": "checkpoint-every", "lost_after_s": "lost-after"}


def parse_part(text: str) -> tuple[int, int]:
    """I and N of `I/N`. Raises `RunError` for anything else."""
    found = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise RunError(f"--part {text}", required="I/N with I from 1 to N", fix="--part 1/3")
    return int(found[1]), int(found[2])
