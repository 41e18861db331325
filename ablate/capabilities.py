"""Capabilities: refuses what a study asks for and this version, or this machine, cannot carry out (`require_...`).

The format is wider than the tool: a study that needs a part that does not exist yet is refused here, by name, before
anything is registered, so that nobody finds out after training. So is one whose corpus, tokenizer, program or packages
are not here. Delete a line when its part lands. `ablate check` itself is `ablate.checking`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prereg.errors import CorpusError, FieldPath, RunError, UnsupportedError, Where, missing_gpt
from prereg.registry.paths import Root, is_device
from prereg.study.spec import Study
from prereg.study.tokenizer_file import TokenizerJson, read_tokenizer
from prereg.study.training import TokenizerFile

if TYPE_CHECKING:
    from prereg.commits.pins import CommitPin


def require_supported(study: Study) -> None:
    """Raise `UnsupportedError` or `SpecError` for a study that this version cannot carry out whole, or whose test errs
    too often.

    A lock from before one of these refusals still loads; what the judge makes of it is in the findings.
    """
    # From here on what the format allows and this version does not do, each named with what to write in its place.
    _require_sound_test(study)
    require_names_of_files(study)
    if study.measure.harness is not None and study.trainer == "command":
        harness = "the zero-shot harness over a trainer of your own"
        raise _unsupported(("measure", "harness"), harness, fix="no measure.harness")


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


def _unsupported(field: FieldPath, part: str, *, fix: str) -> UnsupportedError:
    return UnsupportedError(
        f"this version of ablate does not do {part} yet",
        required="what this version can carry out",
        fix=fix,
        where=Where(field=field),
    )


def require_known_corpora(study: Study, root: Root) -> None:
    """Raise `CorpusError` for a corpus that is neither here nor known by its address, and where an arm takes its
    validation part from another place than the corpus has it. No text is read."""
    from ablate.data.corpora import Library, require_validation

    library = Library.of(root.corpora)
    for arm in study.arms:
        data = study.training(arm).data
        try:
            manifest = library.manifest(data.corpus)
        except CorpusError as error:
            raise error.at(field=_field_of(study, arm, "corpus")) from None
        try:
            require_validation(manifest, data.validation)
        except CorpusError as error:
            raise error.at(field=_field_of(study, arm, "validation")) from None


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


def _field_of(study: Study, arm: str, name: str) -> FieldPath:
    """Where a study says what an arm reads: its own override, else that of all arms."""
    # An arm's override by its dotted key, data.corpus or corpus alone: an error is shown at the line that caused it.
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
    # Where arms are commits, the program of each run comes from its commit; git keeps no mode but executable or not.
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
    # A path below the root, else a name on the PATH, as the system itself would look it up.
    script = None if commits else script_of(root.path, word)
    if os.access(script, os.X_OK) if script is not None else shutil.which(word):
        return
    # The commonest mistake, whose message from the system would only be "No such file".
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
