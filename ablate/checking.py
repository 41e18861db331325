"""`ablate check`: everything that can be known of a study before a corpus is read, and what is likely a mistake in it.

What is no study at all `prereg.study.load` refuses, and what this version cannot carry out `ablate.capabilities`; the
warnings themselves are in `ablate.judge.design.warnings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from ablate.capabilities import require_known_corpora, require_supported, require_tokenizer_files
from ablate.workspace import HERE, StudyContext, StudySource, Workspace, placed
from prereg.errors import CorpusError, StudyError
from prereg.registry.paths import Root
from prereg.study.command import ScriptPin
from prereg.study.spec import Study
from prereg.text import listed, moment, short

if TYPE_CHECKING:
    from ablate.judge.design.characteristics import Design
    from ablate.judge.design.warnings import DesignWarning
    from prereg.registry.registration import Pins


def check(study: StudySource, workspace: Workspace = HERE) -> StudyContext:
    """Everything that can be known without reading a corpus: the file is well formed, and this version can carry it
    out; a study that is not registered yet names known corpora, and validation parts that they have. Returns the opened
    study; raises `StudyError`.

    >>> ablate.check("studies/own.yaml").study.baseline
    'slow'
    """
    context = workspace.open(study)
    check_opened(context)
    return context


def check_opened(context: StudyContext) -> None:
    """The same of a study that is open."""
    placed(context, lambda: require_supported(context.study))
    # What a registered study reads is not checked here: `require_pinned` compares it with the lock.
    registered = context.load_registration()
    if context.study.trainer == "gpt" and registered is None:
        placed(context, lambda: require_known_corpora(context.study, context.root))
    placed(context, lambda: require_tokenizer_files(context.study, context.root.path))
    if context.study.measure.harness is not None:
        from ablate.evaluation.harness.tasks import require_extra

        placed(context, require_extra)


def warnings_of(context: StudyContext, design: Design | None = None) -> tuple[DesignWarning, ...]:
    """What is legal in a study and likely a mistake; powers are those of its `design`, where there is one. First that
    it was edited after its registration, if it was."""
    from ablate.judge.design.warnings import design_warnings

    tokens = validation_tokens(context.study, context.root) if context.study.trainer == "gpt" else None
    of_design = design_warnings(context.study, path=str(context.path), design=design, validation_tokens=tokens)
    return (*_edited(context), *of_design)


def _edited(context: StudyContext) -> Iterator[DesignWarning]:
    """A warning where the file or its trainer's code are not what was registered."""
    from ablate.judge.design.warnings import DesignWarning
    from ablate.pinning import pin_code
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
    if data.tokenizer != "char":
        return None
    try:
        extent = Library.of(root.corpora).extent(data.corpus, download=False)
    except CorpusError:
        return None
    if data.validation == "own":
        return None if extent.held_out is None else extent.held_out - 1
    # Less the first token, which nothing predicts.
    return extent.characters - int(extent.characters * (1.0 - data.validation)) - 1


def unnamed_metrics_file(study: Study, root: Root, scripts: Sequence[ScriptPin]) -> str:
    """A note where neither the command nor the trainer's pinned files name the file of its metrics; else empty."""
    name = study.metrics.file
    if any(PurePath(name).name in word or "{run_dir}" in word for word in study.command):
        return ""
    # Any of these in the script's bytes will do: it is a note, and a text search cannot follow a variable.
    ways = (PurePath(name).name.encode(), b"ABLATE_METRICS", b"ABLATE_RUN_DIR", b"ablate")
    texts = ((root.path / pin.path).read_bytes() for pin in scripts)
    if not scripts or any(way in text for text in texts for way in ways):
        return ""
    return (
        f"Note: metrics are read from '{name}' in each run's own directory, which neither the command nor its script "
        "names. ablate try shows where the trainer writes."
    )
