"""Are the pairs pairs: did the runs of one seed start, read and drop the same things?

Runs of a seed are compared within groups whose configurations promise equality. Variants that differ in a field
which moves the compared thing (another width, other steps) cannot match in it; that is no fault, so it is a note
that names the fields. A run that diverged ended early, so its chained hashes cover less: it is held to the same
initial weights and the same corpus, not to the same batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Final

from pydantic import JsonValue

from ablate.judge.audit.checks import listed, named_run, none_against
from ablate.judge.verdict import Check
from ablate.records.run_record import Pairing, RunRecord
from prereg.metrics.catalogue import source_of
from prereg.registry.canon import canonical_bytes
from prereg.registry.registration import Registration, reading_sha256
from prereg.study.spec import Study
from prereg.study.training import Training

TOKENIZER: Final = "every run used the registered tokenizer"
VALIDATED: Final = "claimed losses are of the same validation text"
SHAPES = (
    "model.layers",
    "model.width",
    "model.heads",
    "model.size_of_head",
    "model.inner_width",
    "model.context",
    "model.tie_embeddings",
    "model.init",
    "data.corpus",
    "data.tokenizer",
    "data.validation",
)
"""Fields that may change the shape or the scale of a parameter of the same name."""
READING = (
    "data.corpus",
    "data.mixture",
    "data.tokenizer",
    "data.validation",
    "model.context",
    "budget.batch",
    "budget.steps",
)
"""Fields that move which tokens a run reads."""
MASKS = ("model.dropout", "model.layers", "budget.steps")
"""Fields that move how many dropout masks a run draws, where, or in which order."""
TOKENS = ("data.corpus", "data.tokenizer", "data.validation")
"""Fields that move the tokenizer."""


def check_matching(registration: Registration, runs: Iterable[RunRecord]) -> tuple[Check, ...]:
    """Every check of the pairs of a `trainer: gpt` study, over its ended runs."""
    study = registration.study
    ended = [run for run in runs if run.status in ("done", "diverged") and run.variant in study.arms]
    paired = [run for run in ended if run.pairing is not None]
    bare = [named_run(run) for run in ended if run.pairing is None]
    done = [run for run in paired if run.status == "done"]
    return (
        none_against(
            "every run states what its pair shares",
            bare,
            "hashes of initial weights, batches, dropout, corpus and tokenizer in every run.json",
            found=f"{len(paired)} of {len(ended)} ended runs state it",
        ),
        *_initial(study, paired),
        *_same(study, done, READING, "pairs read the same batches", lambda run: _pairing(run).batches),
        *_same(study, done, MASKS, "pairs drew the same dropout", lambda run: _pairing(run).dropout),
        *_same(
            study, paired, TOKENS, "pairs used the same tokenizer", lambda run: _pairing(run).tokenizer, over_seeds=True
        ),
        _corpus(registration, paired),
        *_tokenizer(registration, paired),
        *_validated(study),
        *_layouts(ended),
    )


def differing(study: Study, arms: Iterable[str], fields: tuple[str, ...]) -> list[str]:
    """Those of the fields in which the arms' configurations differ."""
    return [field for field in fields if len({canonical_bytes(_field(study.training(arm), field)) for arm in arms}) > 1]


def _pairing(run: RunRecord) -> Pairing:
    assert run.pairing is not None, (run.variant, run.seed)
    return run.pairing


def _initial(study: Study, runs: list[RunRecord]) -> tuple[Check, ...]:
    compared, wrong = 0, []
    for seed, group in _groups(study, runs, SHAPES):
        first: dict[str, tuple[str, str]] = {}
        for run in group:
            for parameter, sha256 in sorted(_pairing(run).initial.items()):
                if parameter not in first:
                    first[parameter] = (sha256, run.variant)
                    continue
                compared += 1
                if first[parameter][0] != sha256:
                    wrong.append(f"{parameter} of {run.variant} and {first[parameter][1]}, seed {seed}")
    name = "pairs start from the same weights"
    return (
        none_against(
            name,
            wrong,
            "equal initial bytes of every parameter that two variants share",
            found=f"{compared} shared parameters compared, {len(wrong)} differ",
        ),
        *_apart(study, runs, SHAPES, name),
    )


def _same(
    study: Study,
    runs: list[RunRecord],
    fields: tuple[str, ...],
    name: str,
    ask: Callable[[RunRecord], str],
    *,
    over_seeds: bool = False,
) -> tuple[Check, ...]:
    compared, wrong = 0, []
    for seed, group in _groups(study, runs, fields, over_seeds=over_seeds):
        for run in group[1:]:
            compared += 1
            if ask(run) != ask(group[0]):
                wrong.append(f"{run.variant} and {group[0].variant}, seed {run.seed if over_seeds else seed}")
    return (
        none_against(
            name,
            wrong,
            "equal hashes within a seed",
            found=f"{compared} pairs of runs compared, {len(wrong)} differ",
        ),
        *_apart(study, runs, fields, name),
    )


def _apart(study: Study, runs: list[RunRecord], fields: tuple[str, ...], name: str) -> tuple[Check, ...]:
    """A note where configurations differ so that equality was never promised."""
    moved = differing(study, sorted({run.variant for run in runs}), fields)
    if not moved:
        return ()
    return (
        Check(
            name=f"{name}, for all variants",
            passed=False,
            severity="note",
            found=f"variants differ in {', '.join(moved)}, so they are compared only among equals",
            required="differences by seed still share the seed, but not all that it fixes",
        ),
    )


def _groups(
    study: Study, runs: list[RunRecord], fields: tuple[str, ...], *, over_seeds: bool = False
) -> list[tuple[int, list[RunRecord]]]:
    """Runs of one seed whose configurations agree in the fields."""
    keyed = sorted(
        (
            (
                0 if over_seeds else run.seed,
                canonical_bytes([_field(study.training(run.variant), field) for field in fields]),
                run.variant,
                run.seed,
                place,
            )
            for place, run in enumerate(runs)
        )
    )
    return [(seed, [runs[row[-1]] for row in rows]) for (seed, _), rows in groupby(keyed, key=lambda row: row[:2])]


def _corpus(registration: Registration, runs: list[RunRecord]) -> Check:
    wanted = {arm: _reading_of(registration, arm) for arm in registration.study.arms}
    wrong = [named_run(run) for run in runs if _pairing(run).corpus != wanted[run.variant]]
    name = _named(registration)
    return none_against(
        "every run read the registered corpus",
        wrong,
        f"{name}, as registered",
        found=f"{len(runs) - len(wrong)} of {len(runs)} runs read {name}",
    )


def _reading_of(registration: Registration, arm: str) -> str | None:
    pins = registration.corpora_of(arm)
    return reading_sha256((name, pin.sha256) for name, pin in pins.items()) if pins else None


def _named(registration: Registration) -> str:
    """The corpus, or the corpora, as registered."""
    pinned = registration.corpus
    if registration.data is not None and len(registration.data.corpora) > 1:
        every = ", ".join(f"'{name}'" for name in registration.data.corpora)
        return f"what was registered for their arm, of {every}"
    return "no corpus" if pinned is None else f"'{pinned.name}', sha256 {pinned.sha256[:12]}"


def _tokenizer(registration: Registration, runs: list[RunRecord]) -> tuple[Check, ...]:
    """Only where tokenizers were registered: one of single characters follows from the corpus."""
    if registration.data is None:
        return ()
    wrong = [named_run(run) for run in runs if _pairing(run).tokenizer != registration.tokenizer_of(run.variant)]
    return (
        none_against(
            TOKENIZER,
            wrong,
            "the tokenizer whose hash was registered for the arm",
            found=f"{len(runs) - len(wrong)} of {len(runs)} runs used the tokenizer of their arm",
        ),
    )


def _validated(study: Study) -> tuple[Check, ...]:
    """A claim across corpora compares losses on two texts: it was registered so, and a reader must know."""
    apart = []
    for name, claim in study.claims.items():
        arms = sorted(claim.named)
        if claim.metric.startswith("val/") and source_of(claim.metric) is None:
            read = {study.training(arm).data.sources for arm in arms}
            apart += [f"{name} ({', '.join(arms)})"] if len(read) > 1 else []
    if not apart:
        return ()
    return (
        Check(
            name=VALIDATED,
            passed=False,
            severity="deviation",
            found="arms read other corpora, each validated on its own" + listed(apart),
            required="one validation text: a mixture of all sources, with weight 0 for those that are not trained on",
        ),
    )


def _layouts(runs: list[RunRecord]) -> tuple[Check, ...]:
    """Shown only when it fails: pairs of which one run was trained by itself and one spread, or in some company."""
    found: dict[int, dict[str, str]] = {}
    for run in runs:
        found.setdefault(run.seed, {}).setdefault(run.provenance.layout, run.variant)
    apart = [
        f"seed {seed}, " + " against ".join(f"{arm} {layout}" for layout, arm in sorted(layouts.items()))
        for seed, layouts in sorted(found.items())
        if len(layouts) > 1
    ]
    if not apart:
        return ()
    return (
        Check(
            name="pairs were trained in the same layout",
            passed=False,
            severity="deviation",
            found=f"{len(apart)} of {len(found)} seeds differ" + listed(apart),
            required="all runs of a seed by themselves, spread over devices alike, or in a cohort of the same seeds",
        ),
    )


def _field(config: Training, path: str) -> JsonValue:
    value: JsonValue = config.model_dump(mode="json")
    # Two widths are derived where they are not written: what counts is what the model was built with.
    assert isinstance(value, dict) and isinstance(value["model"], dict)
    # Two mixtures of the same sources share vocabulary and validation text, whatever their weights.
    assert isinstance(value["data"], dict), path
    value["data"] |= {"corpus": " + ".join(config.data.sources)}
    value["model"] |= {"size_of_head": config.model.size_of_head, "inner_width": config.model.inner_width}
    for part in path.split("."):
        assert isinstance(value, dict), (path, value)
        value = value[part]
    return value
