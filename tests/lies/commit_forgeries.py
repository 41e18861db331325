"""What somebody could do to a study whose arms are commits: to git's objects, to the pins, to what runs say of their
code. A bundle has no repository; what is done to an object is done there to its copy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forgeries import Holding, saying

from prereg.registry.canon import sha256_file


def git(of: Holding, *words: str) -> str:
    people = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    configuration = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", "-C", str(of.path), *words],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **people, **configuration},
    )
    return done.stdout.strip()


def in_git(do: Callable[[Holding], None]) -> Callable[[Holding], None]:
    """Something done to the repository, which a bundle has not."""
    return lambda of: do(of) if (of.path / ".git").exists() else None


def pins(of: Holding) -> dict[str, Any]:
    pinned: dict[str, Any] = json.loads(of.lock.read_bytes())["commits"]
    return pinned


def a_moved_branch(of: Holding) -> None:
    """Tag and branch mean other commits, and what they meant is kept."""
    git(of, "commit", "-q", "--allow-empty", "-m", "Later")
    git(of, "tag", "-f", "v1", "HEAD")


def a_replaced_commit(of: Holding) -> None:
    git(of, "replace", pins(of)["v1"]["commit"], pins(of)["HEAD"]["commit"])


def a_collected_commit(of: Holding) -> None:
    """The commit of an arm is gone, and everything that only it held; of a bundle, its folder."""
    commit = pins(of)["HEAD"]["commit"]
    if not (of.path / ".git").exists():
        shutil.rmtree(of.path / "commits" / commit[:10])
        return
    git(of, "update-ref", "-d", f"refs/ablate/own/{commit}")
    git(of, "reset", "-q", "--hard", "v1")
    git(of, "reflog", "expire", "--expire=now", "--all")
    git(of, "gc", "-q", "--prune=now")


def _script(of: Holding) -> tuple[Path, Path]:
    """The object of the script of `after`, and its copy in a bundle."""
    pin = pins(of)["HEAD"]
    file = next(file for file in pin["files"] if file["path"] == "train.py")
    loose = of.path / ".git" / "objects" / file["blob"][:2] / file["blob"][2:]
    return loose, of.path / "commits" / pin["commit"][:10] / file["sha256"]


def a_file_of_a_commit_is_gone(of: Holding) -> None:
    loose, copy = _script(of)
    (loose if loose.exists() else copy).unlink()


def another_file_of_a_commit(of: Holding) -> None:
    loose, copy = _script(of)
    if not loose.exists():
        copy.write_text("print(1)", encoding="utf-8")
        return
    loose.chmod(0o644)
    loose.write_bytes(zlib.compress(b"blob 8\0print(1)"))


def _in_the_lock(of: Holding, change: Callable[[dict[str, Any]], object]) -> None:
    lock = json.loads(of.lock.read_bytes())
    change(lock["commits"])
    of.lock.write_text(json.dumps(lock, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def another_commit_in_the_lock(of: Holding) -> None:
    """The pins of two arms change places, each whole in itself."""

    def exchange(commits: dict[str, Any]) -> None:
        commits["v1"], commits["HEAD"] = commits["HEAD"], commits["v1"]

    _in_the_lock(of, exchange)


def another_hash_in_the_lock(of: Holding) -> None:
    _in_the_lock(of, lambda commits: commits["HEAD"]["files"][0].update(sha256="0" * 64))


def another_commit_everywhere(of: Holding) -> None:
    """The same, and the hash of the lock in the ledger: all but the promise's own hash."""
    another_commit_in_the_lock(of)
    of.rewrite(saying("registered", lock_sha256=sha256_file(of.lock)))


def made_with_the_code_of_another_arm(of: Holding) -> None:
    """A run that says that it was made with the code of the other arm, sealed."""
    record, other = of.record("after", 2), of.record("before", 2)
    provenance = record.provenance.model_copy(update={"code": other.provenance.code})
    of.run("after", 2).write_record(record.model_copy(update={"provenance": provenance}))
    of.seal("after", 2)


def arms_exchanged_of(one: str, other: str) -> Callable[[Holding], None]:
    """The folders of a run of two arms change places."""

    def do(of: Holding) -> None:
        first, second = of.run(one, 2).path, of.run(other, 2).path
        first.rename(of.path / "aside")
        second.rename(first)
        (of.path / "aside").rename(second)

    return do
