"""Git, called so that no setting of the repository starts a program: `ask_git`, the only place that calls it.

A repository that somebody else made may name programs in its configuration and in `.gitattributes`: filters, hooks,
monitors of files, programs that compare, sign or fetch. Each is overridden on git's command line, which goes before
every file of configuration. Filters have names of the repository's choice, so its configuration is listed first. Files
are therefore compared as they lie there: one that only its filter makes equal to the committed one counts as changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from prereg.errors import SealError
from prereg.program import Answer, Program, ask

_SETTINGS = (
    # Programs.
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=false",
    "core.sshCommand=false",
    "core.gitProxy=",
    "core.askPass=",
    "credential.helper=",
    "log.showSignature=false",
    "commit.gpgSign=false",
    "gpg.program=false",
    "gpg.openpgp.program=false",
    "gpg.x509.program=false",
    "gpg.ssh.program=false",
    "submodule.recurse=false",
    "maintenance.auto=false",
    "gc.auto=0",
    # Answers that a setting would shorten.
    "core.quotePath=false",
    "log.follow=false",
    "log.showRoot=true",
    "log.diffMerges=separate",
)
_ENVIRONMENT = {
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    # No protocol at all, whatever `protocol.NAME.allow` says: git before 2.45 fetches what a partial clone lacks.
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
# Variables that git sets for its hooks lead to the repository of the hook.
_WITHOUT = (
    "GIT_(DIR|WORK_TREE|INDEX_FILE|COMMON_DIR|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|NAMESPACE|PREFIX|"
    "REPLACE_REF_BASE|GRAFT_FILE|SHALLOW_FILE|EXTERNAL_DIFF|DIFF_OPTS|TRACE.*|LITERAL_PATHSPECS|"
    "GLOB_PATHSPECS|NOGLOB_PATHSPECS|ICASE_PATHSPECS|AUTHOR_.*|COMMITTER_.*)"
)
# Within a submodule git starts another git, which is not handed these settings and reads the submodule's own.
_SUBMODULES_UNOPENED = "--ignore-submodules=dirty"
_NO_DIFF_PROGRAM = ("--no-ext-diff", "--no-textconv", "--submodule=short", _SUBMODULES_UNOPENED)
_OPTIONS: dict[str, tuple[str, ...]] = {
    "status": (_SUBMODULES_UNOPENED,),
    "log": _NO_DIFF_PROGRAM,
    "show": _NO_DIFF_PROGRAM,
    "diff-tree": _NO_DIFF_PROGRAM,
}
"""Command of git -> what it is always given."""
_NO_FILES = ("rev-parse", "cat-file", "ls-tree", "update-ref", "write-tree", "commit-tree")
"""Commands that look at no file of the working tree, so that no filter could run."""
_MOST_DRIVERS = 200


def ask_git(
    folder: Path,
    *words: str,
    data: bytes = b"",
    environment: Mapping[str, str] | None = None,
    seconds: float,
) -> Answer:
    """Return what git answers in a folder to a command, whose name is the first word.

    Raises `NoAnswerError` where git is missing or too slow, and `SealError` where the repository's configuration cannot
    be overridden.
    """
    # The options go right after the command's name, before any "--".
    verb, *arguments = words
    program = Program(
        "git",
        install="install git",
        required="git 2.31 or newer",
        environment={**_ENVIRONMENT, **(environment or {})},
        without=_WITHOUT,
    )
    start = ("--no-pager", *_overriding(_SETTINGS), "-C", str(folder))
    without_drivers: tuple[str, ...] = ()
    if verb not in _NO_FILES:
        listed = ask(program, *start, "config", "--list", "--name-only", "-z", seconds=seconds)
        without_drivers = _overriding(_without_drivers(folder, listed))
    return ask(program, *start, *without_drivers, verb, *_OPTIONS.get(verb, ()), *arguments, data=data, seconds=seconds)


def _overriding(settings: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for setting in settings for word in ("-c", setting))


def _without_drivers(folder: Path, listed: Answer) -> Iterator[str]:
    """Yield settings that take from every configured filter its programs, and switch off every configured hook."""
    if not listed.is_yes:
        raise SealError(
            f"git cannot read the repository's configuration: {listed.complaint or 'it does not say why'}",
            required="a configuration whose filters can be switched off",
            fix=f"git -C {folder} config --list",
        )
    # SECTION.NAME.KEY; the name may have dots.
    keys = (os.fsdecode(key) for key in listed.output.split(b"\0") if key.count(b".") > 1)
    drivers = dict.fromkeys((key.partition(".")[0], key.partition(".")[2].rpartition(".")[0]) for key in keys)
    programs = [(section, name) for section, name in drivers if section in ("filter", "hook")]
    # After the first "=" git would read the rest of the name as a value, and override another setting.
    odd = next((f"{section}.{name}" for section, name in programs if "=" in name), None)
    if odd is not None or len(programs) > _MOST_DRIVERS:
        raise SealError(
            f"the repository's configuration has {f'{odd!a}' if odd else f'{len(programs):,} filters and hooks'}",
            required=f"at most {_MOST_DRIVERS}, without '=' in their names: each is switched off by its name",
            fix=f"git -C {folder} config --list",
        )
    for section, name in programs:
        if section == "hook":
            yield f"hook.{name}.enabled=false"
            continue
        yield f"filter.{name}.clean="
        yield f"filter.{name}.smudge="
        yield f"filter.{name}.process="
        yield f"filter.{name}.required=false"
