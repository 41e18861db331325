"""`ablate plan`: the cost of a study before it is run, the size of every arm, its tokens, FLOPs and device-hours."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.checking import check
from ablate.workspace import HERE, StudyContext, StudySource, Workspace
from prereg.errors import CorpusError


@dataclass(frozen=True)
class PlannedArm:
    """What the runs of an arm are made of; none where nobody knows.

    The size is known of the built-in trainer alone, with its corpus here.
    """

    arm: str
    runs: int
    """Judged ones and those of a pilot."""
    parameters: int | None
    """Trainable ones, tied ones counted once."""
    tokens: int | None
    """Of one run."""
    flops: int | None
    """Of one run: 6 N D, with N parameters and D tokens (Kaplan et al. 2020)."""
    device_hours: float | None
    """Of all its runs."""


@dataclass(frozen=True)
class PlannedRuns:
    """The runs of a study in the order in which they are made: all arms of the first seed, then of the next."""

    study: str
    seeds: tuple[int, ...]
    arms: tuple[PlannedArm, ...]
    cells: tuple[tuple[str, int], ...]
    """Every run that is judged, by arm and seed."""
    timed: str
    """What says how long a run takes."""
    about: tuple[str, ...] = ()
    """What the arms are and which runs come before theirs, of a component ablation or a tuned study."""


def plan_runs(study: StudySource, *, workspace: Workspace = HERE) -> PlannedRuns:
    """Every arm with its size, its budget and what is known of its time. Raises `StudyError`.

    >>> [(arm.arm, arm.runs) for arm in ablate.plan_runs("studies/own.yaml").arms]
    [('slow', 3), ('fast', 3)]
    """
    return planned(check(study, workspace))


def planned(context: StudyContext) -> PlannedRuns:
    """The same, of a study that has been checked.

    >>> planned(HERE.open("studies/own.yaml")).cells[:3]
    (('slow', 1), ('fast', 1), ('fast', 2))
    """
    from prereg.documents.sentences import say
    from prereg.registry.run_order import cells_in_order

    study = context.study
    seconds, timed = _seconds(context)
    arms = []
    for arm in study.arms:
        n_runs = study.pilot_runs.get(arm, 0) + len(study.seeds_of(arm))
        n_parameters, tokens = _size(context, arm) if study.trainer == "gpt" else (None, None)
        # 2 N D forward, 4 N D backward.
        flops = None if n_parameters is None or tokens is None else 6 * n_parameters * tokens
        seconds_per_run = seconds.get(arm)
        hours = None if seconds_per_run is None else seconds_per_run * n_runs / 3600
        arms.append(PlannedArm(arm, n_runs, n_parameters, tokens, flops, hours))
    applies = {"design": study.components is not None, "tuning": study.tune is not None}
    about = tuple(say(name, study) for name, does_apply in applies.items() if does_apply)
    registration = context.load_registration()
    has_old_order = registration is not None and registration.run_order is None
    cells = study.cells if has_old_order else cells_in_order(study)
    judged = tuple(cell for cell in cells if cell in study.judged)
    return PlannedRuns(study.study, study.seeds, tuple(arms), judged, timed, about)


def _size(context: StudyContext, arm: str) -> tuple[int | None, int]:
    """Parameters, if its corpus is here, and tokens of one run."""
    from prereg.study.training import parameters

    config = context.study.training(arm)
    try:
        return parameters(config.model, _vocabulary(context, arm)), config.tokens
    except CorpusError:
        return None, config.tokens


def _seconds(context: StudyContext) -> tuple[dict[str, float], str]:
    """Arm -> mean seconds of a run, and what says so: sealed runs of this study, else `assume.seconds_per_run`."""
    from ablate.records.store import RunFolder
    from prereg.registry.plan import plan

    registration = context.load_registration()
    walls: dict[str, list[float]] = {}
    for spec in () if registration is None else plan(registration):
        folder = RunFolder(context.root.run(spec.study, spec.registration, spec.variant, spec.seed))
        record = folder.read_record()
        if record is not None and record.status == "done" and record.wall_s:
            walls.setdefault(spec.variant, []).append(record.wall_s)
    # An arm without a sealed run is taken to be as fast as the others: a guess, and the label says of what.
    every = [wall for of_arm in walls.values() for wall in of_arm]
    if every:
        mean = sum(every) / len(every)
        by_arm = {arm: sum(walls[arm]) / len(walls[arm]) if arm in walls else mean for arm in context.study.arms}
        return by_arm, f"the mean of {len(every)} sealed runs"
    assumed = context.study.assume.seconds_per_run
    if assumed is None:
        return {}, "unknown"
    return dict.fromkeys(context.study.arms, assumed), "assume.seconds_per_run"


def _vocabulary(context: StudyContext, arm: str) -> int:
    """Entries of an arm's vocabulary. Nothing is tokenised for it. Raises `CorpusError` for a corpus not here."""
    from prereg.study.tokenizer_file import read_tokenizer
    from prereg.study.training import Bpe, TokenizerFile

    data = context.study.training(arm).data
    if isinstance(data.tokenizer, Bpe):
        return data.tokenizer.bpe
    if isinstance(data.tokenizer, TokenizerFile):
        return read_tokenizer(context.root.path, data.tokenizer.file).size
    library = context.library
    if data.tokenizer == "own":
        from ablate.data.reading import read_corpus

        return read_corpus(library, data).tokenizer.size
    return len(library.extent(data.corpus).alphabet)
