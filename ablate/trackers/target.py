"""Which tracker a word such as `mlflow:http://host:5000` names, and what every tracker can be handed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from prereg.errors import RunError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from ablate.records.store import Row

KINDS = {"mlflow": "mlflow:URI", "tensorboard": "tensorboard:DIR", "wandb": "wandb, or wandb:PROJECT"}
OWN = "health/"
"""What the names of health metrics begin with: no outcome has such a name."""
UNKNOWN_RUN = "study"
"""Whose mask the numbers of the whole study go under."""


@dataclass(frozen=True)
class Target:
    """A tracker, as it was named."""

    kind: str
    place: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}" if self.place else self.kind


@dataclass(frozen=True)
class Group:
    """The runs of one registration."""

    study: str
    registration: str
    home: Path
    """A folder for what a tracker keeps on this disk."""

    @property
    def name(self) -> str:
        """STUDY-REGISTRATION."""
        return f"{self.study}-{self.registration[:8]}"


@dataclass(frozen=True)
class SealedRun:
    """Everything of one run, once the study is decided."""

    variant: str
    seed: int
    mask: str
    status: str
    config: Mapping[str, JsonValue]
    outcome_sha256: str
    ended_ms: int
    """Its end, in milliseconds of Unix time."""
    rows: Sequence[Row]

    @property
    def facts(self) -> dict[str, str]:
        """What identifies it, and its configuration: one word each."""
        return {"variant": self.variant, "seed": str(self.seed)} | flat("config", self.config)

    @property
    def curves(self) -> dict[int, dict[str, float]]:
        """Step -> metric -> value."""
        steps: dict[int, dict[str, float]] = {}
        for row in sorted(self.rows, key=lambda row: row.step):
            steps.setdefault(row.step, {})[row.metric] = row.value
        return steps


@dataclass(frozen=True)
class Conclusion:
    """The verdict, in words."""

    mask: str
    status: str
    verdict: str
    because: str
    findings: Mapping[str, tuple[str, str]]
    """Hypothesis -> its outcome, and the finding in a sentence."""

    @property
    def facts(self) -> dict[str, str]:
        """Status, verdict and the outcome of every hypothesis."""
        return {
            "status": self.status,
            "verdict": self.verdict,
            **{f"finding.{name}": outcome for name, (outcome, _) in self.findings.items()},
        }

    @property
    def words(self) -> str:
        """Verdict, reason and findings as Markdown."""
        lines = [f"- {name}: {outcome}. {sentence}" for name, (outcome, sentence) in self.findings.items()]
        return "\n".join([f"{self.status.replace('_', ' ')}: {self.verdict}. {self.because}", "", *lines])


class Tracker(Protocol):
    """What a mirror does with a tracker. Any of these may raise what its library raises."""

    def health(self, mask: str, step: int, values: Mapping[str, float]) -> None:
        """Add numbers to the tracker's run of a mask; begins or resumes that run first."""

    def ended(self, mask: str, state: str) -> None:
        """A run ended as done, diverged or failed."""

    def send(self, run: SealedRun) -> bool:
        """Send a run with its name. Returns whether it was sent: false where the tracker holds this outcome."""

    def conclude(self, conclusion: Conclusion) -> None:
        """Put the verdict in place of an earlier one."""

    def close(self) -> None:
        """Write out what is held back; runs that have not ended are marked so."""


def parse_target(word: str) -> Target:
    """The tracker that a word names. Raises `RunError` for an unknown one, and where its package is missing."""
    kind, _, place = word.partition(":")
    if kind not in KINDS or (not place and kind != "wandb"):
        raise RunError(
            f"the tracker '{word}'", required="one of " + "; ".join(KINDS.values()), fix="--mirror tensorboard:board"
        )
    found = find_spec(kind)
    # A folder of that name where the command was typed, such as W&B leaves one, is no package.
    if found is None or found.origin is None:
        raise RunError(
            f"'{word}', and {kind} is not installed",
            required=f"the extra {kind}",
            fix=f"pip install 'ablate-prereg[{kind}]'",
        )
    return Target(kind, place)


def flat(name: str, value: JsonValue | Mapping[str, JsonValue]) -> dict[str, str]:
    """A nested configuration as dotted names and words."""
    if isinstance(value, Mapping) and value:
        return {key: word for part, one in value.items() for key, word in flat(f"{name}.{part}", one).items()}
    return {name: str(value)}
