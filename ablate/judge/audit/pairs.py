"""Checks that pairs are matched: did the runs of one seed start, read and drop the same things.

Runs of a seed are compared within groups whose configurations promise equality. Variants that differ in a field
which moves the compared thing (another width, other steps) cannot match in it; that is no fault, so it is a note
that names the fields. A run that diverged ended early, so its chained hashes cover less: it is held to the same
initial weights and the same corpus, not to the same batches. Of another trainer, what its runs state themselves is
compared (`must_match`). Whether a run has the configuration and the code of its registration: `runs.py`.

Then, over all runs: were they made with the same code, device, libraries, path through attention and machine?
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from pydantic import JsonValue

from ablate.judge.audit.checks import AuditContext, CheckResult, Found, built_in, check_body, named_run
from ablate.judge.readings import read_values, samples_of, uneven_spread
from ablate.records.run_record import Provenance, RunRecord
from prereg.registry.canon import canonical_bytes
from prereg.study.spec import Study
from prereg.text import counted


def _paired_runs(context: AuditContext) -> bool:
    return built_in(context) and context.study.paired


_check = partial(check_body, applies=built_in)
_check_pairs = partial(check_body, applies=_paired_runs)
_INITIAL = "initial/"
"""What begins the name of the hash of a parameter's initial bytes."""
_STATED = {"batches", "dropout", "corpus", "tokenizer"}
"""Names that every run of the built-in trainer states, next to its parameters."""
_TOKENS = ("data.corpus", "data.tokenizer", "data.validation")
"""Fields that decide the tokenizer."""
_MODEL = ("layers", "width", "heads", "size_of_head", "inner_width", "context", "tie_embeddings", "init")
_SHAPES = (*(f"model.{name}" for name in _MODEL), *_TOKENS)
"""Fields that may change the shape or the scale of a parameter of the same name."""
_DATA = ("corpus", "tokenizer", "validation")
_READING = (*(f"data.{name}" for name in _DATA), "model.context", "budget.batch", "budget.steps")
"""Fields that decide which tokens a run reads."""
_MASKS = ("model.dropout", "model.layers", "budget.steps")
"""Fields that decide how many dropout masks a run draws, where, or in which order."""


def _ended(context: AuditContext) -> list[RunRecord]:
    return [run for run in context.ended if run.variant in context.study.trained]


Hashes = Mapping[str, str]
"""What a run states in `must_match`."""


def _states_all(run: RunRecord) -> bool:
    """Whether a run of the built-in trainer states all that it has to."""
    names = (run.must_match or {}).keys()
    return names >= _STATED and any(name.startswith(_INITIAL) for name in names)


def _paired(context: AuditContext) -> list[tuple[RunRecord, Hashes]]:
    return [(run, run.must_match or {}) for run in _ended(context) if _states_all(run)]


@_check("every run states what its pair shares")
def _stated(context: AuditContext) -> Found:
    ended = _ended(context)
    bare = [named_run(run) for run in ended if not _states_all(run)]
    return CheckResult(bare, f"{len(ended) - len(bare)} of {len(ended)} ended runs state it")


def _declare_equal(
    name: str,
    hashes: Callable[[Hashes], Hashes],
    fields: tuple[str, ...],
    *,
    compares: str = "pairs of runs",
    only_done: bool = False,
    over_seeds: bool = False,
) -> None:
    """Declare that runs of a seed (or of all) whose arms agree in the fields have the same hashes, and the note on arms
    that do not agree."""

    def paired(context: AuditContext) -> list[tuple[RunRecord, Hashes]]:
        return [(run, stated) for run, stated in _paired(context) if run.status == "done" or not only_done]

    declared = _check if over_seeds else _check_pairs

    @declared(name)
    def _equal(context: AuditContext) -> Found:
        if len(context.study.arms) == 1:
            return None
        compared, wrong = 0, []
        runs, alike = paired(context), {arm: _values(context.study, arm, fields) for arm in context.study.trained}
        # Arms that agree in every field which moves the compared thing must have it in common; others need not.
        groups: dict[tuple[int, bytes], list[tuple[RunRecord, Hashes]]] = defaultdict(list)
        # Runs whose arms agree in `fields` are compared among themselves: of one seed, or of all.
        for run, stated in sorted(runs, key=lambda run_and_stated: run_and_stated[0].cell):
            groups[0 if over_seeds else run.seed, canonical_bytes(alike[run.variant])].append((run, stated))
        for group in (groups[key] for key in sorted(groups)):
            first: dict[str, tuple[str, str]] = {}
            for run, stated in group:
                for what, sha256 in sorted(hashes(stated).items()):
                    # Each with the first of its group: equality is transitive, so that n - 1 comparisons do for n
                    # runs.
                    compared += what in first
                    first_sha256, variant = first.setdefault(what, (sha256, run.variant))
                    if sha256 != first_sha256:
                        of = f"{what} of " if what else ""
                        wrong.append(f"{of}{run.variant} and {variant}, seed {run.seed}")
        return CheckResult(wrong, f"{compared} {compares} compared, {len(wrong)} differ")

    @declared(f"{name}, for all variants")
    def _apart(context: AuditContext) -> Found:
        arms = {run.variant for run, _ in paired(context)}
        # Fields in which arms differ are named, so that a reader sees why nothing was compared.
        values = [[canonical_bytes(value) for value in _values(context.study, arm, fields)] for arm in arms]
        moved = [field for field, *of_arms in zip(fields, *values, strict=True) if len(set(of_arms)) > 1]
        text = f"variants differ in {', '.join(moved)}, so they are compared only among equals"
        return CheckResult(passed=False, found=text) if moved else None


_declare_equal(
    "pairs start from the same weights",
    lambda stated: {
        name.removeprefix(_INITIAL): sha256 for name, sha256 in stated.items() if name.startswith(_INITIAL)
    },
    _SHAPES,
    compares="shared parameters",
)
_declare_equal(
    "pairs read the same batches",
    lambda stated: {"": stated["batches"]},
    _READING,
    only_done=True,
)
_declare_equal(
    "pairs drew the same dropout",
    lambda stated: {"": stated["dropout"]},
    _MASKS,
    only_done=True,
)
_declare_equal(
    "pairs used the same tokenizer",
    lambda stated: {"": stated["tokenizer"]},
    _TOKENS,
    over_seeds=True,
)


@check_body(
    "pairs match in what their trainer says they must",
    applies=lambda context: context.study.paired and not built_in(context),
)
def _matched(context: AuditContext) -> Found:
    first: dict[tuple[int, str], tuple[str, str]] = {}
    compared, wrong = 0, []
    for run in sorted(_ended(context), key=lambda run_of_seed: run_of_seed.cell):
        for name, sha256 in sorted((run.must_match or {}).items()):
            compared += (run.seed, name) in first
            variant, first_sha256 = first.setdefault((run.seed, name), (run.variant, sha256))
            if sha256 != first_sha256:
                wrong.append(f"{name} of {run.variant} and {variant}, seed {run.seed}")
    return CheckResult(wrong, f"{compared} hashes compared, {len(wrong)} differ") if first else None


@check_body("runs are compared without pairs", applies=lambda context: not context.study.paired)
def _without_pairs(context: AuditContext) -> CheckResult:
    study, shared_seeds = context.study, []
    for name, claim in study.claims.items():
        shared = set.intersection(*(set(study.seeds_of(arm)) for arm in claim.weights))
        shared_seeds.append(f"{name}: {counted(len(shared), 'seed')} shared" if shared else f"{name}: no seed shared")
    return CheckResult(found="; ".join(shared_seeds))


@check_body("arms without pairs vary alike", applies=lambda context: not context.study.paired)
def _spread_apart(context: AuditContext) -> Found:
    # Without pairs unequal variances err, most where the arm that varies more has few runs (`Welch`).
    apart = []
    for name in context.study.hypotheses:
        samples, _, _ = samples_of(context.study, name, read_values(context.study, name, context.evidence))
        text = uneven_spread(samples)
        apart += [f"{name}: {text.partition(': ')[0]}"] if text else []
    return apart


def _values(study: Study, arm: str, fields: Iterable[str]) -> list[JsonValue]:
    """The fields of an arm's configuration, as the model was built with them."""
    config = study.training(arm)
    value = config.model_dump(mode="json")
    # Two widths are derived where they are not written.
    value["model"] |= {"size_of_head": config.model.size_of_head, "inner_width": config.model.inner_width}
    return [value[section][name] for section, name in (field.split(".") for field in fields)]


@_check("every run read the registered corpus")
def _corpus(context: AuditContext) -> Found:
    runs, registered, registered_sha256 = _paired(context), context.registration, {}
    for arm in context.study.trained:
        pin = registered.corpus_of(arm)
        registered_sha256[arm] = None if pin is None else pin.sha256
    wrong = [named_run(run) for run, stated in runs if stated["corpus"] != registered_sha256[run.variant]]
    pinned = registered.corpus
    if registered.data is not None and len(registered.data.corpora) > 1:
        every = ", ".join(f"'{name}'" for name in registered.data.corpora)
        name = f"what was registered for their arm, of {every}"
    else:
        name = "no corpus" if pinned is None else f"'{pinned.name}', sha256 {pinned.sha256[:12]}"
    text = f"{len(runs) - len(wrong)} of {len(runs)} runs read {name}"
    return CheckResult(wrong, text, required=f"{name}, as registered")


@_check("every run used the registered tokenizer")
def _tokenizer(context: AuditContext) -> Found:
    runs, registered = _paired(context), context.registration
    if registered.data is None:  # a tokenizer of single characters follows from the corpus
        return None
    wrong = [named_run(run) for run, stated in runs if stated["tokenizer"] != registered.tokenizer_of(run.variant)]
    return CheckResult(wrong, f"{len(runs) - len(wrong)} of {len(runs)} runs used the tokenizer of their arm")


@_check("claimed losses are of the same validation text")
def _validated(context: AuditContext) -> Found:
    study, apart = context.study, []
    for name, claim in study.claims.items():
        if claim.metric.startswith("val/"):
            arms = sorted(claim.named)
            # Losses on two texts differ by the texts, whatever the arms do.
            if len({study.training(arm).data.corpus for arm in arms}) > 1:
                apart.append(f"{name} ({', '.join(arms)})")
    return CheckResult(apart, "arms read other corpora, each validated on its own")


def _one_kind(
    name: str, kind_of: Callable[[Provenance], str], applies: Callable[[AuditContext], bool] | None = None
) -> None:
    """Declare that a part of the provenance is the same for all runs."""

    @check_body(name, applies=applies)
    def _kinds(context: AuditContext) -> Found:
        kinds = Counter(kind_of(run.provenance) for run in context.ended)
        counts = [f"{kind if len(kind) < 64 else kind[:12]} ({count} runs)" for kind, count in sorted(kinds.items())]
        return CheckResult(counts, f"{len(kinds)} over {len(context.ended)} runs", passed=len(kinds) <= 1)


_one_kind(
    "every run used the same code",
    lambda made: made.code,
    applies=lambda context: not context.registration.commits,  # each arm has a code of its own, compared with its pin
)


@check_body("every run was made at the same commit")
def _commits(context: AuditContext) -> Found:
    commits = sorted({run.provenance.commit or "no commit" for run in context.ended})
    return [commit[:12] for commit in commits] if len(commits) > 1 else []


_one_kind(
    "every run used the same device class",
    lambda made: made.device,
    applies=built_in,
)
_one_kind(
    "every run used the same library versions",
    lambda made: f"python {made.python}, torch {made.torch}, numpy {made.numpy}",
    applies=built_in,
)
_one_kind(
    "the steps of every run were compiled alike",
    lambda made: made.compiler,
)
_one_kind(
    "every run used the same processor and platform",
    lambda made: f"{made.platform}, {made.processor}",
)


@check_body("the tool's source tree was clean", applies=built_in)
def _clean(context: AuditContext) -> Found:
    return [named_run(run) for run in context.ended if run.provenance.dirty]
