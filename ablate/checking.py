"""What this version can carry out of what the study format can say. Checked before anything is registered.

The format is wider than the tool: a study that needs a part that does not exist yet is refused here, by
name, so that nobody finds out after training. Delete a line when its part lands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from ablate.workspace import HERE, StudyContext, StudySource, Workspace, placed
from prereg.errors import (
    CorpusError,
    FieldPath,
    RunError,
    SpecError,
    StudyError,
    UnsupportedError,
    Where,
    dotted,
    missing_gpt,
)
from prereg.registry.paths import Root, is_device
from prereg.study.analysis import Ceiling
from prereg.study.command import ScriptPin
from prereg.study.spec import Study
from prereg.study.tokenizer_file import TokenizerJson, read_tokenizer
from prereg.study.training import TokenizerFile
from prereg.text import listed, moment, short

if TYPE_CHECKING:
    from ablate.judge.design.characteristics import Design
    from ablate.judge.design.warnings import DesignWarning
    from prereg.commits.pins import CommitPin
    from prereg.registry.registration import Pins


def check(study: StudySource, workspace: Workspace = HERE) -> StudyContext:
    """Everything that can be known without reading a corpus: the file is well formed, and this version can carry it
    out; a study that is not registered yet names known corpora, and validation parts that they have. Returns the opened
    study; raises `StudyError`.

    >>> ablate.check("studies/own.yaml").study.baseline
    'slow'
    """
    from prereg.metrics.user_code import pin_checks

    context = workspace.open(study)
    placed(context, lambda: require_supported(context.study))
    registered = context.load_registration()
    if context.study.trainer == "gpt" and registered is None:
        placed(context, lambda: require_known_corpora(context.study, context.root))
    if context.study.trainer == "command" and registered is None:
        from prereg.study.handover import check_handover

        placed(context, lambda: check_handover(context.study, context.root))
    placed(context, lambda: require_tokenizer_files(context.study, context.root.path))
    placed(context, lambda: pin_checks(context.study, context.path.parent))  # found and read; none is executed
    if context.study.measure.harness is not None:
        from ablate.evaluation.harness.tasks import require_extra

        placed(context, require_extra)
    return context


def require_known_corpora(study: Study, root: Root) -> None:
    """Raise `CorpusError` for a corpus that is neither here nor known by its address, and where an arm takes its
    validation part from another place than the corpus has it. No text is read."""
    from ablate.data.corpora import Library, require_validation

    library = Library.of(root.corpora)
    for arm in study.arms:
        data = study.training(arm).data
        for name in data.sources:
            try:
                manifest = library.manifest(name)
            except CorpusError as error:
                raise error.at(field=_field_of(study, arm, "corpus")) from None
            try:
                require_validation(manifest, data.validation)
            except CorpusError as error:
                raise error.at(field=_field_of(study, arm, "validation")) from None


def _field_of(study: Study, arm: str, name: str) -> FieldPath:
    """Where a study says what an arm reads: its own override, else that of all arms."""
    own: list[FieldPath] = [("variants", arm, key) for key in study.arms[arm].overrides if name in key]
    return (*own, ("base", "data", name))[0]


GPT_PACKAGES: Final = ("torch", "tokenizers", "safetensors")
"""What the extra `gpt` installs, for the built-in trainer."""


def require_gpt() -> None:
    """Raise `UnsupportedError` where a package of the built-in trainer is missing."""
    from importlib.util import find_spec

    for package in GPT_PACKAGES:
        if find_spec(package) is None:
            raise missing_gpt(package)


def require_program(study: Study, root: Root, commits: Mapping[str, CommitPin]) -> None:
    """Raise `RunError` where the program of a user's own trainer is not here, or in a commit of its arms, to be
    started."""
    import os
    import shutil

    from prereg.study.command import script_of, words_of

    word = study.command[0]
    if word == "{python}":
        return
    committed = [file for file in (pin.file(word) for pin in commits.values()) if file is not None]
    if committed and len(committed) == len(commits):
        if all(file.mode == "100755" for file in committed):
            return
        raise RunError(
            f"the command's program '{word}' is not executable in every commit",
            required="an executable file in the commit of each arm",
            fix=f"git update-index --chmod=+x {word}, and a commit",
            where=Where(field=("command", 0)),
        )
    script = None if commits else script_of(root.path, word)
    if os.access(script, os.X_OK) if script is not None else shutil.which(word):
        return
    if script is None and len(study.command) == 1 and " " in word.strip():
        raise RunError(
            f"the whole command is one word, '{word}'",
            required="a word for each argument: no shell splits them",
            fix=f"command: {words_of(word)}",
            where=Where(field=("command",)),
        )
    raise RunError(
        f"the command's program '{word}' is not here" if script is None else f"'{word}' is not executable",
        required="a program on the PATH, or an executable file under the root",
        fix=f"chmod +x {script}" if script is not None else '"{python}" is the Python that ablate runs under',
        where=Where(field=("command", 0)),
    )


def warnings_of(context: StudyContext, design: Design | None = None) -> tuple[DesignWarning, ...]:
    """What is legal in a study and likely a mistake; powers are those of its `design`, where there is one. First that
    it was edited after its registration, if it was."""
    from ablate.judge.design.warnings import design_warnings

    tokens = validation_tokens(context.study, context.root) if context.study.trainer == "gpt" else None
    of_design = design_warnings(context.study, path=str(context.path), design=design, validation_tokens=tokens)
    return (*_edited(context), *_not_handed_over(context), *of_design)


def _not_handed_over(context: StudyContext) -> Iterator[DesignWarning]:
    """A warning of each thing in which the study and the text of its script likely do not agree."""
    from ablate.judge.design.warnings import DesignWarning
    from prereg.study.handover import forgotten

    try:
        registered = context.load_registration() if context.study.commits else None
        gaps = forgotten(context.study, context.root, None if registered is None else registered.commits)
    except StudyError:
        return  # what needs the registration, or the commits, says what is wrong with them
    for gap in gaps:
        if not gap.certain:
            line = context.loaded.line(gap.field)
            where = f"line {line}: " if line is not None else ""
            yield DesignWarning("trainer", dotted(gap.field), f"{where}{gap.found}", gap.fix)


def _edited(context: StudyContext) -> Iterator[DesignWarning]:
    """A warning where the file, its own checks or its trainer's code are not what was registered."""
    from ablate.judge.design.warnings import DesignWarning
    from ablate.pins import pin_code
    from prereg.registry.register import changes_since

    try:
        registered = context.load_registration()
        if registered is None:
            return
        pins: Pins = registered
        if context.study.trainer == "command":
            pins = pin_code(context, keeps=False)
        changes = changes_since(registered, context.loaded, pins)
    except StudyError:
        return  # nothing differs, or what needs the registration says what is wrong with it
    fields = [change.field for change in changes]
    more = f" and {len(fields) - 3} more" if len(fields) > 3 else ""
    yield DesignWarning(
        "registration",
        "",
        f"registered as {short(registered.sha256)} on {moment(registered.registered_at)}, and now it differs in "
        + (", ".join(fields[:3]) + more if more else listed(fields)),
        f"ablate amend {context.path} --reason TEXT, or undo the change",
    )


def validation_tokens(study: Study, root: Root) -> int | None:
    """How many tokens are predicted at an evaluation, of a text that is here and read by its characters; else none."""
    from ablate.data.corpora import Library

    data = study.training(study.baseline).data
    if data.tokenizer != "char" or data.mixture is not None:
        return None
    try:
        extent = Library.of(root.corpora).extent(data.corpus, download=False)
    except CorpusError:
        return None
    if data.validation == "own":
        return None if extent.held_out is None else extent.held_out - 1
    return extent.characters - int(extent.characters * (1.0 - data.validation)) - 1


def unnamed_metrics_file(study: Study, root: Root, scripts: Sequence[ScriptPin]) -> str:
    """A note where neither the command nor the trainer's pinned files name the file of its metrics; else empty."""
    name = study.metrics.file
    if any(PurePath(name).name in word or "{run_dir}" in word for word in study.command):
        return ""
    ways = (PurePath(name).name.encode(), b"ABLATE_METRICS", b"ABLATE_RUN_DIR", b"ablate")
    texts = ((root.path / pin.path).read_bytes() for pin in scripts)
    if not scripts or any(way in text for text in texts for way in ways):
        return ""
    return (
        f"Note: metrics are read from '{name}' in each run's own directory, which neither the command nor its script "
        "names. ablate try shows where the trainer writes."
    )


def require_supported(study: Study) -> None:
    """Raise `UnsupportedError` or `SpecError` for a study that this version cannot carry out whole, whose test errs too
    often, or whose ceiling has no side.

    A lock from before one of these refusals still loads; what the judge makes of it is in the findings.
    """
    _require_sound_test(study)
    require_names_of_files(study)
    if study.measure.harness is not None and study.trainer == "command":
        harness = "the zero-shot harness over a trainer of your own"
        raise _unsupported(("measure", "harness"), harness, fix="no measure.harness")
    if not isinstance(study.on_divergence, Ceiling):
        return
    metrics = list(dict.fromkeys(claim.metric for claim in study.claims.values()))
    if len(metrics) > 1:
        raise _unsupported(("on_divergence",), "one ceiling for several claimed metrics", fix="exclude_pair")
    sides = {study.claims[name].better for name in study.hypotheses}
    if len(sides) > 1 or sides == {"neither"}:
        raise SpecError(
            f"a diverged run is scored at {study.on_divergence.ceiling:g}, and nothing says on which side of "
            f"{metrics[0]} the worse values lie",
            required="one side for all claims: better: lower, or better: higher",
            fix="better: lower under each hypothesis, or on_divergence: exclude_pair",
            where=Where(field=("on_divergence",)),
        )


def _unsupported(field: FieldPath, part: str, *, fix: str) -> UnsupportedError:
    return UnsupportedError(
        f"this version of ablate does not do {part} yet",
        required="what this version can carry out",
        fix=fix,
        where=Where(field=field),
    )


def require_tokenizer_files(study: Study, root: Path) -> None:
    """Raise `CorpusError` for a tokenizer file that is not there or cannot do what the study claims."""
    tokenizers: dict[str, TokenizerJson] = {}
    for arm in study.arms if study.trainer == "gpt" else ():
        chosen = study.training(arm).data.tokenizer
        if not isinstance(chosen, TokenizerFile):
            continue
        try:
            tokenizers.setdefault(chosen.file, read_tokenizer(root, chosen.file))
        except CorpusError as error:
            raise error.at(field=_field_of(study, arm, "tokenizer")) from None
        if not tokenizers[chosen.file].exact:
            require_no_bytes(study, arm)


def require_no_bytes(study: Study, arm: str) -> None:
    """Nothing that the study reads may need the bytes that token ids stand for, where nobody said them."""
    stored = study.training(arm).data.tokenizer == "own"
    reason = f"the shards that '{arm}' reads do not say how many bytes an id is"
    if not stored:
        reason = f"the tokenizer of '{arm}' changes the text or its tokens are no bytes, so that they cannot be counted"
    needed: list[tuple[FieldPath, str]] = [
        (("hypotheses", n, "claim"), c.metric) for n, c in study.claims.items() if arm in c.named
    ]
    needed += [(("tie_breakers", index), metric) for index, metric in enumerate(study.tie_breakers)]
    for field, metric in needed:
        if metric.startswith("val/bits_per_byte"):
            raise CorpusError(
                f"{metric} is required, and {reason}",
                required="the UTF-8 bytes of every entry of the vocabulary",
                fix="ablate corpus add NAME FOLDER --vocabulary N --byte-lengths FILE.json; or val/loss" * stored
                or "a tokenizer over bytes that leaves the text as it is; or val/loss",
                where=Where(field=field),
            )


def require_names_of_files(study: Study) -> None:
    """Refuse names that cannot be a folder's everywhere: a bundle could not be unpacked, and is never written."""
    for field, name in ((("study",), study.study), *((("variants",), arm) for arm in study.arms)):
        if is_device(name):
            raise UnsupportedError(
                f"'{name}' is the name of a device on Windows, and no file or folder can have it there",
                required="names that files can have on every system: folders and bundles are named after them",
                fix=f"{name}_",
                where=Where(field=field),
            )


def _require_sound_test(study: Study) -> None:
    """Refuse a deciding test whose measured error exceeds alpha."""
    test, n = study.analysis.test, len(study.seeds)
    if test == "paired_t":
        return
    from ablate.judge.stats.kinds import undecided  # here: it loads scipy, which the default test needs nothing of

    reason = undecided(test, n)
    if reason is not None:
        raise UnsupportedError(
            f"test is '{test}' with {n} seeds: {reason}",
            required=f"a test that keeps its error rate: paired_t, sign_flip, wilcoxon, or {test} with more seeds",
            fix=f"test: paired_t, and also: [{test}] as description",
            where=Where(field=("analysis", "test")),
        )
