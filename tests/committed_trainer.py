"""A study whose arms are commits of a scratch repository: the trainer changed between two of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from own_trainer import OwnHouse, own_document

BEFORE = """
from helper import level
import json, os, pathlib
config = json.load(open(os.environ["ABLATE_CONFIG"]))
seed = int(os.environ["ABLATE_SEED"])
noise = (seed * 7919 % 13) / 1000
assert "commit" not in config
with open("metrics.jsonl", "w") as out:
    for step in range(1, config["steps"] + 1):
        print(json.dumps({"step": step, "train/loss": 3.0 - step / 100 + noise}), file=out)
    print(json.dumps({"step": config["steps"], "val/loss": level - config["lr"] + noise * level}), file=out)
"""
AFTER = BEFORE.replace("level - config", "0.8 * level - config").replace("noise * level", "noise * seed / 2")


def commits_document(**changes: Any) -> dict[str, Any]:
    """Two arms, the tag v1 and the commit that is checked out."""
    variants = {"before": {"commit": "v1"}, "after": {"commit": "HEAD"}}
    hypotheses = {"gain": {"claim": "after lowers val/loss", "smallest": 0.05}}
    rule = [{"verdict": "take it", "when": "supported(gain) and stable(after)"}, {"verdict": "inconclusive"}]
    arms = {"baseline": "before", "variants": variants, "hypotheses": hypotheses, "decision": rule}
    return own_document() | arms | changes


class CommitHouse(OwnHouse):
    """A repository of studies, under version control, with a trainer that a second commit changed."""

    def __init__(self, path: Path, *, top: Path | None = None) -> None:
        if not (path / "studies").is_dir():
            super().__init__(path)
        self.path, self.study, self.top = path, path / "studies" / "own.yaml", top or path
        (path / ".gitignore").write_text("data/runs/\n__pycache__/\n", encoding="utf-8")
        self.git("init", "-q", "-b", "main")
        self.script(BEFORE)
        self.script("level = 2.0\n", "src/helper.py")
        self.commit("Before")
        self.git("tag", "v1")
        self.script(AFTER)
        self.commit("After")

    def git(self, *words: str, **environment: str) -> str:
        """What git says, with no configuration but the repository's own."""
        people = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_COMMITTER_NAME": "A"}
        people |= {"GIT_COMMITTER_EMAIL": "a@b.c", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        done = subprocess.run(
            ["git", "-C", str(self.top), *words],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, **people, **environment},
        )
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        """Commit everything that is not ignored; the hash."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def write(self, document: Mapping[str, Any] | None = None, **changes: Any) -> Path:
        return super().write(document if document is not None else commits_document(**changes))

    def state(self) -> str:
        """Index, branch and working tree of the repository, as git reports them."""
        index = self.top / ".git" / "index"
        return "\n".join([self.git("status", "--porcelain"), self.git("rev-parse", "HEAD"), index.read_bytes().hex()])
