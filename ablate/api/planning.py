"""From a study to what it costs: its runs, and with a target in words, memory, time and device-hours at scale."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.api.context import StudyContext, StudySource, check
from prereg.errors import CorpusError, StudyError

if TYPE_CHECKING:
    from ablate.scale.plan import Measured, ScalePlan
    from ablate.scale.target import Device
    from prereg.study.spec import Study
    from prereg.study.training import Training


@dataclass(frozen=True)
class PlannedArm:
    """What one run of an arm is made of. Of a user's own trainer, and of a step of a path before its pilot, nothing is
    known but that it is run."""

    arm: str
    parameters: int | None
    tokens: int | None
    flops: int | None


@dataclass(frozen=True)
class PlannedRuns:
    """The runs of a study: all arms of the first seed, then of the next."""

    study: str
    seeds: tuple[int, ...]
    arms: tuple[PlannedArm, ...]
    cells: tuple[tuple[str, int], ...]
    """Every run that is judged, by arm and seed."""
    about: tuple[str, ...] = ()
    """What the arms are and which runs come before theirs, of a component ablation or a tuned study."""


def plan_runs(study: StudySource, *, root: str | Path | None = None) -> PlannedRuns:
    """Every arm with its size and its budget."""
    from prereg.documents.designs import design_sentences, tuning
    from prereg.study.sizes import flops_per_token, parameters

    context = check(study, root)
    study = context.study
    about = tuple(filter(None, (design_sentences(study), tuning(study))))
    if study.trainer != "gpt":
        arms = tuple(PlannedArm(arm, None, None, None) for arm in study.arms)
        return PlannedRuns(study.study, study.seeds, arms, study.judged, about)
    found = []
    for arm in study.arms:
        if arm in study.open_steps:
            found.append(PlannedArm(arm, None, None, None))
            continue
        config = study.training(arm)
        vocabulary, _ = _vocabulary(context, arm)
        flops = flops_per_token(config.model, vocabulary) * config.tokens
        found.append(PlannedArm(arm, parameters(config.model, vocabulary), config.tokens, flops))
    return PlannedRuns(study.study, study.seeds, tuple(found), study.judged, about)


def plan_at_scale(
    study: StudySource,
    target: str,
    *,
    root: str | Path | None = None,
    numerics: Mapping[str, str | None] | None = None,
    vocabulary: int | None = None,
    mfu: float | None = None,
    peak_tflops: float | None = None,
    memory_gb: float | None = None,
    devices_per_run: int | None = None,
    shard: str | None = None,
    micro_batch: int | None = None,
    price: float | None = None,
) -> ScalePlan:
    """The study, at its own size or at the requested size and devices.

    `numerics` holds fields of the study's `numerics` to plan with instead; none leaves a field as it is.
    """
    from ablate.scale.plan import Request, plan_scale
    from ablate.scale.target import VOCABULARY, ScaleTarget, Shard, device_named, shaped

    context = check(study, root)
    study = context.study
    if study.trainer != "gpt":
        raise StudyError(
            f"'{study.study}' brings its own trainer",
            required="the built-in trainer, whose memory and FLOPs are known",
            fix=f"ablate plan {context.path}",
        )
    wanted = ScaleTarget.of(target)
    device = device_named(wanted.device, peak_tflops=peak_tflops, memory_gb=memory_gb)
    arms = {arm: _with(study.training(arm), numerics or {}) for arm in study.arms}
    if wanted.size is not None:
        _require_of_that_shape(context, wanted.size)
        arms = {arm: shaped(config, wanted.size) for arm, config in arms.items()}
        count, text = VOCABULARY, "GPT-2's"
    else:
        count, text = max(_vocabulary(context, arm) for arm in study.arms)
    if vocabulary is not None:
        count, text = vocabulary, "--vocabulary"
    if devices_per_run is not None and wanted.devices % devices_per_run:
        raise StudyError(
            f"{wanted.devices} devices do not split into groups of {devices_per_run}",
            required="--devices-per-run that divides the devices",
            fix="another --devices-per-run",
        )
    how: Shard | None = "ddp" if shard == "ddp" else "fsdp" if shard == "fsdp" else None
    if shard is not None and (how is None or devices_per_run == 1):
        raise StudyError(
            f"--shard {shard}" + (" needs more than one device a run" if how else " is not known"),
            required="ddp (whole weights on each device) or fsdp (weights cut over the devices), of two or more",
            fix="--devices-per-run 2 --shard fsdp",
        )
    return plan_scale(
        Request(
            study=study.study,
            arms=arms,
            vocabulary=count,
            vocabulary_from=text,
            n_seeds=wanted.seeds or study.n_seeds,
            runs=_runs_by_arm(study, wanted.seeds),
            open_steps=study.open_steps,
            tokens=wanted.tokens,
            devices=wanted.devices,
            device=device,
            devices_per_run=devices_per_run,
            shard=how,
            mfu=mfu,
            price=price,
            measured=_measured(context, device),
            micro_batch=micro_batch,
        )
    )


def _runs_by_arm(study: Study, n_seeds: int | None) -> dict[str, int]:
    """Arm -> its runs, with those of its pilot, where they are not one for each seed; `n_seeds` replaces the seeds."""
    if not study.arm_seeds and study.piloting is None:
        return {}
    return {arm: study.pilot_runs.get(arm, 0) + (n_seeds or len(study.seeds_of(arm))) for arm in study.arms}


def _with(config: Training, numerics: Mapping[str, str | None]) -> Training:
    from pydantic import ValidationError

    tree = config.model_dump(mode="json", exclude_unset=True)
    tree.setdefault("numerics", {}).update({field: value for field, value in numerics.items() if value is not None})
    try:
        return type(config).model_validate_json(json.dumps(tree))
    except ValidationError as error:
        fault = error.errors()[0]
        where = fault["loc"][-1]
        raise StudyError(
            f"--{where} {fault['input']} is not known",
            required=str(fault["msg"]).removeprefix("Input should be "),
            fix=f"leave --{where} out, for the study's own",
        ) from error


def _require_of_that_shape(context: StudyContext, size: str) -> None:
    from ablate.scale.target import REPLACED

    for name, arm in context.study.arms.items():
        own = [path for path in arm.overrides if path in REPLACED]
        if own:
            raise StudyError(
                f"arm {name} sets {own[0]}, which the size {size} would replace",
                required="arms that leave the shape of the model to the base, or no size in --scale",
                fix='--scale "on N DEVICE", with the shape in the study itself',
            )


def _vocabulary(context: StudyContext, arm: str) -> tuple[int, str]:
    """Entries of an arm's vocabulary, and whose they are. Nothing is tokenised for it."""
    from ablate.data.corpora import Library
    from prereg.study.tokenizer_file import read_tokenizer
    from prereg.study.training import Bpe, TokenizerFile

    data = context.study.training(arm).data
    if isinstance(data.tokenizer, Bpe):
        return data.tokenizer.bpe, "of the tokenizer"
    if isinstance(data.tokenizer, TokenizerFile):
        return read_tokenizer(context.root.path, data.tokenizer.file).size, "of the tokenizer"
    library, text = Library.of(context.root.corpora), f"of {', '.join(data.sources)}"
    if data.tokenizer == "own":
        from ablate.data.reading import read

        return read(library, data).tokenizer.size, text
    texts = (library.find(name) for name in data.sources)
    return len(set().union(*({*found.text, *(found.held_out or "")} for found in texts))), text


def _measured(context: StudyContext, device: Device) -> Measured | None:
    """FLOP/s that this study's sealed runs reached on one device of the kind, each run counted once."""
    from ablate.records.store import RunFolder
    from ablate.scale.plan import Measured
    from ablate.scale.target import is_of
    from prereg.registry.plan import plan
    from prereg.registry.registration import load_registration
    from prereg.study.sizes import flops_per_token

    registration = load_registration(context.root, context.study.study)
    if registration is None:
        return None
    rates: dict[str, list[float]] = {}
    for spec in plan(registration):
        record = RunFolder(context.root.run(spec.study, spec.registration, spec.variant, spec.seed)).read_record()
        if record is None or record.status != "done" or record.train_s <= 0:
            continue
        made = record.provenance
        config = registration.study.training(spec.variant)
        if not is_of(device, made.device):
            continue
        each = flops_per_token(config.model, _vocabulary(context, spec.variant)[0])
        name = made.processor if made.device == "cpu" else made.device
        rates.setdefault(name, []).append(each * record.tokens / record.train_s)
    if not rates:
        return None
    name, found = max(rates.items(), key=lambda item: len(item[1]))
    return Measured(name, len(found), sum(found) / len(found), min(found), max(found))


def find_vocabulary(context: StudyContext) -> int | None:
    """Number of tokens of a corpus that is here and read by its characters, or of a tokenizer file; else none."""
    from ablate.data.corpora import Library
    from ablate.data.tokenizers import CharTokenizer
    from prereg.study.tokenizer_file import read_tokenizer
    from prereg.study.training import TokenizerFile

    data = context.study.training(context.study.baseline).data
    if isinstance(data.tokenizer, TokenizerFile):
        return read_tokenizer(context.root.path, data.tokenizer.file).size
    if data.tokenizer != "char" or data.mixture is not None:
        return None
    try:
        return CharTokenizer.of(Library.of(context.root.corpora).find(data.corpus).text).size
    except CorpusError:
        return None
