"""Resolution of commits to pins: each name in a study becomes a full hash, and every file of it is hashed.

What is laid out for a run is what the commit holds below the root, but for what ablate keeps there (studies/, reports/
and its folders in data/) and for the files that `data:` names, which are read where they lie. Where the study has
`code:`, it is only what that and the words of the command name. A submodule, a pointer of Git LFS and a link that leads
out of the root stand for bytes that the commit does not hold, and are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from prereg.commits.layout import damaged
from prereg.commits.objects import Repository, TreeEntry
from prereg.commits.pins import LINK, WORKTREE, CodeChanges, CommitPin, CommittedFile
from prereg.commits.worktree import changed_paths, commit_worktree, scratch_repository
from prereg.errors import FieldPath, RegistrationError, Where
from prereg.registry.canon import sha256_bytes, sha256_of
from prereg.study.arms import COMMIT
from prereg.study.command import every_word, is_inside
from prereg.text import counted, listed

if TYPE_CHECKING:
    from prereg.registry.paths import Root
    from prereg.study.spec import Study

_OWN_FOLDERS = ("studies", "reports", "data/runs", "data/try", "data/corpora", "data/tokenizers")
"""What ablate writes below the root: no code of an arm, unless `code:` or the command names it."""
_WRITTEN_HERE = _OWN_FOLDERS[1:]
"""The same without studies/, in which a user may keep code."""
_MOST_FILES = 2000
_MOST_BYTES = 2**28
_SHOWN = 5
_POINTER = b"version https://git-lfs.github.com/spec/"
_SUBMODULE = "160000"


def resolve_with_changes(
    study: Study, root: Root, registered: Mapping[str, CommitPin] | None = None, *, keeps: bool = True
) -> tuple[dict[str, CommitPin], dict[str, CodeChanges]]:
    """Return commit, as the study writes it -> what it means, and what differs in each from that of the baseline.

    Both are empty of a study whose arms are no commits. A name that is `registered` keeps its commit, wherever it has
    moved since; its files are read again. What differs is for readers, and no part of a promise. With `keeps` false
    nothing is left in the repository, not even objects of the working tree. Raises `RegistrationError` at the field of
    the commit that cannot be pinned: it is not here, the working tree differs from it, or it holds what cannot be laid
    out.
    """
    # Each name once, however many arms it is the commit of.
    names = dict.fromkeys(study.commits.values())
    if not names:
        return {}, {}
    repository = repository_of(root, study)
    if not keeps:
        with scratch_repository(repository) as apart:
            return _resolved(study, apart, names, registered or {})
    return _resolved(study, repository, names, registered or {})


def repository_of(root: Root, study: Study) -> Repository:
    """The repository that a study's commits are in. Raises `RegistrationError` where the root is in none."""
    repository = Repository.around(root.path)
    if repository is None:
        raise RegistrationError(
            "the folder that holds studies/ lies in no git repository",
            required="the repository whose commits the arms are",
            fix=f"git init, and a commit; or no commit: in {study.study}",
            where=Where(file=None, field=field_of_commit(study, next(iter(study.commits.values())))),
        )
    return repository


def field_of_commit(study: Study, name: str) -> FieldPath:
    """The field of a study that writes a commit."""
    for arm, overrides in study.variants.items():
        if overrides.get(COMMIT) == name:
            return ("variants", arm, COMMIT)
    for factor, levels in study.factors.items():
        for level, overrides in levels.items():
            if overrides.get(COMMIT) == name:
                return ("factors", factor, level, COMMIT)
    return ("base", COMMIT) if isinstance(study.base, dict) and COMMIT in study.base else ("tune",)


def _resolved(
    study: Study, repository: Repository, names: Iterable[str], registered: Mapping[str, CommitPin]
) -> tuple[dict[str, CommitPin], dict[str, CodeChanges]]:
    laid_out = LaidOut.of(study)
    pins: dict[str, CommitPin] = {}
    for name in names:
        try:
            earlier = registered.get(name)
            # An amended or rebased commit may be gone from a fresh clone, and the files that runs start from be there.
            if earlier is not None and not repository.has(earlier.commit) and not any(damaged(repository, earlier)):
                pins[name] = earlier
                continue
            commit = _commit(study, repository, laid_out, name) if earlier is None else earlier.commit
            pins[name] = pin_commit(repository, commit, laid_out)
        except RegistrationError as error:
            raise error.at(field=field_of_commit(study, name)) from None
    # Then what holds between the commits: each has the scripts, and no two arms are one.
    _require_words(study, pins)
    _require_different_arms(study, pins)
    return pins, _changes(study, repository, laid_out, pins)


def _changes(
    study: Study, repository: Repository, laid_out: LaidOut, pins: Mapping[str, CommitPin]
) -> dict[str, CodeChanges]:
    against = study.commits[study.baseline]
    return {
        name: CodeChanges(
            against=against,
            files=tuple(
                change
                for change in repository.changes(pins[against].commit, pin.commit)
                if laid_out.counts(change.path)
            ),
        )
        for name, pin in pins.items()
        # Of a commit that is gone git cannot say what differs; the lock has it from the registration.
        if pin.sha256 != pins[against].sha256 and repository.has(pins[against].commit) and repository.has(pin.commit)
    }


def _commit(study: Study, repository: Repository, laid_out: LaidOut, name: str) -> str:
    """The commit that a name means now. Raises `RegistrationError` where it means none, or not what lies here."""
    if name == WORKTREE:
        return commit_worktree(repository, laid_out.counts)
    commit = repository.commit_of(name)
    if commit is None:
        raise missing_commit(repository, f"'{name}' is no commit of this repository")
    # With the working tree as another arm, HEAD without its changes is what it is compared with.
    if not _has_worktree_as_arm(study, repository, laid_out, commit):
        require_as_committed(repository, commit, laid_out, named=f"'{name}'", worktree=f"commit: {WORKTREE}")
    return commit


def _has_worktree_as_arm(study: Study, repository: Repository, laid_out: LaidOut, commit: str) -> bool:
    """Return true where another arm than `commit` is the working tree as it lies here, by its name or by its hash."""
    names = study.commits.values()
    if WORKTREE in names or len(set(names)) == 1 or commit != repository.commit_of("HEAD"):
        return WORKTREE in names
    # `ablate gate` writes the commit of the working tree by its hash.
    return commit_worktree(repository, laid_out.counts) in {name for name in names if name != commit}


def require_as_committed(repository: Repository, commit: str, laid_out: LaidOut, *, named: str, worktree: str) -> None:
    """Refuse the commit that is checked out where the working tree differs from it in a file of an arm.

    `named` is what the user wrote for the commit, `worktree` what would take the files as they lie here. Raises
    `RegistrationError`.
    """
    # What is checked out is what the user looks at: run with other files, it would be a surprise.
    if commit == repository.commit_of("HEAD") and (paths := changed_paths(repository, laid_out.counts)):
        more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        listed_paths = ", ".join(paths[:_SHOWN])
        raise RegistrationError(
            f"{named} is the commit that is checked out, and {listed_paths}{more} "
            f"{'differs from it' if len(paths) == 1 else 'differ from it'}",
            required=f"a working tree as it was committed, or {worktree}, which pins it as it lies here",
            fix=f"git add {paths[0]} && git commit; or {worktree}; or git stash -u",
        )


def missing_commit(repository: Repository, fault: str) -> RegistrationError:
    """The error of a commit that is not here: of a shallow clone it may be elsewhere."""
    if repository.is_shallow:
        return RegistrationError(
            f"{fault}, which is a shallow clone",
            required="the history that holds the commits of all arms",
            fix="git fetch --unshallow --tags   (in CI, of actions/checkout: fetch-depth: 0)",
        )
    return RegistrationError(
        fault,
        required="a hash, branch or tag of a commit that is here",
        fix="git fetch --all --tags; git log --oneline",
    )


class LaidOut:
    """Which paths below the root are files of an arm."""

    def __init__(self, code: Collection[str], words: Collection[str], data: Collection[str]) -> None:
        self.code, self.words = _plain(code), _plain(words)
        self.data = _plain(data)

    @classmethod
    def of(cls, study: Study) -> LaidOut:
        """Those of a study."""
        words = {word for _, word in every_word(study) if is_inside(word)}
        return cls(study.code, words, study.data)

    def counts(self, path: str) -> bool:
        """Whether a path is laid out, where a commit has it."""
        # Data first: it is pinned by itself and read where it lies, also where `code:` names its folder.
        if _below(path, self.data):
            return False
        if path in self.words or _below(path, self.code):
            return True
        return not self.code and not _below(path, _OWN_FOLDERS)

    def is_left_out(self, path: str) -> bool:
        """Return true of a file of the user's that no run is started from, such as a module outside `code:`."""
        is_of_studies = PurePosixPath(path).parent.as_posix() == "studies"
        return not self.counts(path) and not is_of_studies and not _below(path, _WRITTEN_HERE)


def _plain(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(PurePosixPath(path).as_posix() for path in paths)


def _below(path: str, folders: Collection[str]) -> bool:
    return path in folders or any(parent.as_posix() in folders for parent in PurePosixPath(path).parents)


def pin_commit(repository: Repository, commit: str, laid_out: LaidOut) -> CommitPin:
    """What a commit holds of the paths that are laid out. Raises `RegistrationError`."""
    if not repository.has(commit):
        raise missing_commit(repository, f"commit {commit[:10]} is not in this repository")
    tree = repository.tree_of(commit)
    entries = [entry for entry in repository.entries(tree) if laid_out.counts(entry.path)]
    _require_plain(commit, entries)
    files = []
    for entry, data in repository.blobs(entries):
        if data is None:
            raise RegistrationError(
                f"{entry.path} of commit {commit[:10]}: git has no whole object {entry.oid[:12]}",
                required="a repository whose objects are whole",
                fix="git fsck; then git fetch --refetch, from a repository that has it",
            )
        if data.startswith(_POINTER):
            raise _refused(commit, entry, "is a pointer of Git LFS, and the file that it stands for is not in git")
        if entry.mode == LINK:
            _require_inside(commit, entry, data)
        mode = entry.mode if entry.mode in (LINK, "100755") else "100644"  # 100664, of very old repositories
        files.append(CommittedFile(path=entry.path, mode=mode, blob=entry.oid, sha256=sha256_bytes(data)))  # type: ignore[arg-type]  # one of the three
    return CommitPin.of(commit, tree, files)


def _require_plain(commit: str, entries: Collection[TreeEntry]) -> None:
    """Raise `RegistrationError` for a tree that cannot be laid out."""
    if not entries:
        raise RegistrationError(
            f"commit {commit[:10]} holds no file of the trainer below the root",
            required="the trainer's code, committed; code: limits it to what that names",
            fix="git ls-tree -r --name-only " + commit[:10],
        )
    for entry in entries:
        if entry.mode == _SUBMODULE:
            raise _refused(commit, entry, "is a submodule, whose files are in another repository")
        # `.git` in any spelling: on macOS and Windows the file would land in the repository itself.
        parts = PurePosixPath(entry.path).parts
        is_text = not any("\ud800" <= sign <= "\udfff" for sign in entry.path)
        if not is_text or not is_inside(entry.path) or any(part.lower() == ".git" for part in parts):
            raise _refused(commit, entry, "is no path that every system can have")
    size = sum(entry.size for entry in entries)
    if len(entries) > _MOST_FILES or size > _MOST_BYTES:
        raise RegistrationError(
            f"commit {commit[:10]} holds {counted(len(entries), 'file')} of {size / 2**20:,.0f} MiB below the root",
            required=f"at most {_MOST_FILES:,} files and {_MOST_BYTES / 2**20:,.0f} MiB, which each run is given anew",
            fix="code: [the folder of the code alone]",
        )


def _require_inside(commit: str, entry: TreeEntry, target: bytes) -> None:
    """Raise `RegistrationError` for a link that leads, or could lead, out of the root."""
    # A link's own folder is no link, so that what climbs from it stays inside as long as it climbs no higher than the
    # root. After a name nothing may climb: the name may be a link itself.
    parts = PurePosixPath(target.decode("utf-8", "surrogateescape")).parts
    n_up = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    depth = len(PurePosixPath(entry.path).parts) - 1
    if not parts or parts[0] == "/" or ".." in parts[n_up:] or n_up > depth or b"\0" in target:
        where = target.decode("utf-8", "replace")[:80]
        raise _refused(commit, entry, f"is a symbolic link that leads out of the root, to '{where}'")


def _refused(commit: str, entry: TreeEntry, why: str) -> RegistrationError:
    return RegistrationError(
        f"{entry.path!r} of commit {commit[:10]} {why}"[:400],
        required="files whose bytes are in the commit",
        fix="code: [the files and folders of the code alone], without it; or data: for a file that is only read",
    )


def _require_words(study: Study, pins: Mapping[str, CommitPin]) -> None:
    """Each script that the command names, and each path of `code:`, is in the commits."""
    # Arm by arm, since a word may hold a value of the arm: `{config}.py` is another file in each.
    for arm, name in study.commits.items():
        paths = {file.path for file in pins[name].files}
        for at, word in every_word(study, arm):
            plain = PurePosixPath(word)
            if word.startswith("-") or plain.is_absolute() or plain.suffix not in (".py", ".sh") or not is_inside(word):
                continue
            if plain.as_posix() not in paths and not _below(plain.as_posix(), _plain(study.data)):
                raise RegistrationError(
                    f"'{word}', which '{arm}' is started from, is not in its commit, '{name}' ({pins[name].short})",
                    required="a path from the folder that holds studies/, in the commit of each arm",
                    fix=f"git ls-tree -r --name-only {pins[name].short}",
                    where=Where(field=("command", at)),
                )
    for at, path in enumerate(study.code):
        if not any(_below(file.path, _plain([path])) for pin in pins.values() for file in pin.files):
            raise RegistrationError(
                f"no commit of an arm holds '{path}'",
                required="a path from the folder that holds studies/, in a commit",
                fix="git ls-files",
                where=Where(field=("code", at)),
            )


def _require_different_arms(study: Study, pins: Mapping[str, CommitPin]) -> None:
    """Two arms with the same files and the same configuration would be one arm."""
    names: dict[str, list[str]] = {}
    for arm in study.arms:
        name = study.commits[arm]
        content = {"files": pins[name].sha256, "config": study.arms[arm].config}
        names.setdefault(sha256_of(content), []).append(arm)
    for arms in names.values():
        if len(arms) > 1 and len({study.commits[arm] for arm in arms}) > 1:
            written = [f"{study.commits[arm]} ({pins[study.commits[arm]].short})" for arm in arms]
            same = listed([f"'{arm}'" for arm in arms])
            raise RegistrationError(
                f"{same} are one arm: {listed(written)} hold the same files, and the configurations are the same",
                required="arms that differ in their files or their configuration",
                fix=f"git diff --stat {pins[study.commits[arms[0]]].short} {pins[study.commits[arms[-1]]].short}",
                where=Where(field=field_of_commit(study, study.commits[arms[-1]])),
            )
