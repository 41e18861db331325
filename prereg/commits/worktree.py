"""Working tree of git: whether it has uncommitted changes, and its files as a commit (`commit: WORKTREE`).

That commit is made from the bytes as they lie there, by an index of its own: the user's index, branch and files stay as
they are, and no filter is run. Its parent is HEAD and its date that of HEAD, so that the same files give the same
commit.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from prereg.commits.objects import Repository
from prereg.errors import RegistrationError

_MESSAGE = "The working tree, as ablate pins it for an arm"


def changed_paths(repository: Repository, counts: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the paths from the root, among those that count, that are not in the working tree as HEAD has them, or are
    in no commit and not ignored; of a submodule, whether it is at another commit, and not what its files are."""
    words = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
    listed = repository.output(*words, "--", ".")
    paths = (os.fsdecode(line[3:]) for line in listed.split(b"\0") if line)
    # `git status` names paths from the top, also from within a folder.
    inside = [path.removeprefix(repository.prefix) for path in paths if path.startswith(repository.prefix)]
    changed = [path for path in inside if counts(path)]
    return tuple(dict.fromkeys((*changed, *_changed_unseen(repository, counts))))


def _changed_unseen(repository: Repository, counts: Callable[[str], bool]) -> Iterator[str]:
    """Yield paths whose bytes differ from HEAD's and at which git was told not to look (`update-index
    --assume-unchanged`, `--skip-worktree`)."""
    # `-v` marks each entry: lower case where it is assumed unchanged, S where it is skipped.
    marked = _names(repository.output("ls-files", "-v", "-z", "--", "."))
    hidden = {line[2:] for line in marked if line[0].islower() or line[0] == "S"}
    looked_at = [path for path in sorted(hidden) if counts(path) and (repository.root / path).is_file()]
    head = repository.commit_of("HEAD") if looked_at else None
    if head is None:
        return
    committed = {entry.path: entry.oid for entry in repository.entries(repository.tree_of(head))}
    for path in looked_at:
        data = (repository.root / path).read_bytes()
        oid = repository.output("hash-object", "--no-filters", "--stdin", data=data).decode().strip()
        # A file that a sparse checkout leaves out is not here, and none that somebody edits.
        if oid != committed.get(path):
            yield path


@contextmanager
def scratch_repository(repository: Repository) -> Iterator[Repository]:
    """The repository with what is written to it from here on in a folder that is gone after the block."""
    objects = repository.output("rev-parse", "--path-format=absolute", "--git-path", "objects").removesuffix(b"\n")
    with tempfile.TemporaryDirectory(prefix="ablate-objects-") as folder:
        environment = {
            "GIT_OBJECT_DIRECTORY": folder,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.fsdecode(objects),
        }
        yield replace(repository, environment={**repository.environment, **environment})


def commit_worktree(repository: Repository, counts: Callable[[str], bool]) -> str:
    """The hash of a commit that holds the files of the working tree that count, and all others as HEAD has them; HEAD
    itself where nothing differs.

    Raises `RegistrationError` where there is no commit yet, or a file cannot be read or named.
    """
    # 1. The tree of HEAD, with what counts as it lies here.
    head = repository.commit_of("HEAD")
    if head is None:
        raise RegistrationError(
            "the repository has no commit yet", required="a commit that the working tree follows", fix="git commit"
        )
    tree = repository.tree_of(head)
    with tempfile.TemporaryDirectory(prefix="ablate-index-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        lines = _index_info(repository, counts, tree)
        repository.output("read-tree", tree, environment=index)
        repository.output("update-index", "-z", "--index-info", data=lines, environment=index)
        written = repository.output("write-tree", environment=index).decode().strip()
    # 2. Nothing differs: HEAD is the commit.
    if written == tree:
        return head
    # 3. A commit with HEAD's date and a made-up author: clock and user's name would give each call another hash.
    date = repository.output("show", "-s", "--format=%ct +0000", head).decode().strip()
    people = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _signature(date).items()}
    words = ("commit-tree", "--no-gpg-sign", "-p", head, "-m", _MESSAGE, written)
    return repository.output(*words, environment=people).decode().strip()


def _signature(date: str) -> Mapping[str, str]:
    return {"NAME": "ablate", "EMAIL": "ablate@localhost", "DATE": f"@{date}"}


def _index_info(repository: Repository, counts: Callable[[str], bool], head_tree: str) -> bytes:
    """Lines for `update-index --index-info`: every file that counts as it lies here, and what HEAD has and is gone."""
    names = set(_names(repository.output("ls-files", "-z", "--others", "--exclude-standard", "--", ".")))
    committed = {entry.path: entry for entry in repository.entries(head_tree)}
    submodules = {path for path, entry in committed.items() if entry.mode == "160000"}
    for line in _names(repository.output("ls-files", "-z", "--stage", "--", ".")):
        about, _, path = line.partition("\t")
        names.add(path)
        submodules |= {path} if about.startswith("160000 ") else set()
    lines, modes = list[bytes](), dict[str, str]()
    for path in sorted(filter(counts, names | committed.keys())):
        if path in submodules:
            continue  # as HEAD has it: it is refused where the files of the commit are pinned
        try:
            status = (repository.root / path).lstat()
        except OSError:
            lines.append(_line("0", "0" * len(head_tree), repository.prefix + path))
            continue
        if stat.S_ISLNK(status.st_mode):
            link = os.fsencode((repository.root / path).readlink())
            oid = repository.output("hash-object", "-w", "--no-filters", "--stdin", data=link).decode().strip()
            lines.append(_line("120000", oid, repository.prefix + path))
        elif stat.S_ISREG(status.st_mode):
            modes[path] = "100755" if status.st_mode & stat.S_IXUSR else "100644"
        # What is left is no file: a folder that is a repository of its own, a socket.
    odd = next((path for path in modes if "\n" in str(repository.root / path)), None)
    if odd is not None:
        raise RegistrationError(
            f"{odd!a} has a line end in its name", required="names without line ends", fix="rename it, or ignore it"
        )
    # In full: git takes what it is given here from the top of the repository.
    listed = "".join(f"{repository.root / path}\n" for path in modes)
    oids = repository.output("hash-object", "-w", "--no-filters", "--stdin-paths", data=os.fsencode(listed)).split()
    assert len(oids) == len(modes), (len(oids), len(modes))
    lines += [_line(modes[path], oid.decode(), repository.prefix + path) for path, oid in zip(modes, oids, strict=True)]
    return b"".join(lines)


def _line(mode: str, oid: str, path: str) -> bytes:
    return f"{mode} {oid}\t".encode() + os.fsencode(path) + b"\0"


def _names(listed: bytes) -> list[str]:
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]
