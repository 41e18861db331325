"""The plan: every run that a registration promises, in the order in which runs are best done.

All variants of the first seed come first, so that whole pairs exist early and an interrupted study
has lost no half pairs. The plan is a pure function of the registration; who runs it, and where, is
`ablate.run`'s business.
"""

from __future__ import annotations

from prereg.errors import UnsupportedError, Where
from prereg.part import Part
from prereg.register import CorpusPin, Registration
from prereg.spec import Measure
from prereg.training import Training


class RunSpec(Part):
    """One run to do: all that the trainer is told. It holds no hypothesis."""

    study: str
    """The study's id."""
    registration: str
    """sha256 of the registration."""
    variant: str
    """The arm."""
    seed: int
    """The seed."""
    config: Training
    """The arm's resolved configuration."""
    measure: Measure
    """What to observe."""
    diverged_above: float
    """The run has diverged when its training loss exceeds this many times that of its first step."""
    corpus: CorpusPin
    """The registered corpus."""

    @property
    def run_id(self) -> str:
        """Stable name of the run: study, first eight digits of the registration, variant, seed."""
        return f"{self.study}/{self.registration[:8]}/{self.variant}/{self.seed}"


def plan(registration: Registration) -> tuple[RunSpec, ...]:
    """Every planned run: all variants of the first seed, then of the second, and so on."""
    study, corpus = registration.study, registration.corpus
    if study.trainer != "gpt":
        raise UnsupportedError(
            f"no runs can be planned for trainer '{study.trainer}'",
            required="trainer: gpt",
            where=Where(field=("trainer",)),
        )
    assert corpus is not None, study.study
    return tuple(
        RunSpec(
            study=study.study,
            registration=registration.sha256,
            variant=variant,
            seed=seed,
            config=study.training(variant),
            measure=study.measure,
            diverged_above=study.stable.diverged.loss_above,
            corpus=corpus,
        )
        for seed in study.seeds
        for variant in study.arms
    )
