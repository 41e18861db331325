"""A repository whose configuration and attributes name a program wherever git would start one.

The program writes a line into a file, the trap. `arm` takes a repository with a commit; whatever git is asked from then
on, without overriding the configuration, meets the program sooner or later.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HOOKS = ("post-index-change", "reference-transaction", "pre-commit", "post-commit", "pre-auto-gc", "post-checkout",
         "fsmonitor-watchman", "prepare-commit-msg", "post-rewrite")  # fmt: skip
# Setting -> value; PROGRAM stands for the program, FOLDER for a folder that has it under the name of every hook.
SETTINGS = {
    "core.fsmonitor": "PROGRAM",
    "core.hooksPath": "FOLDER",
    "core.sshCommand": "PROGRAM",
    "core.pager": "PROGRAM",
    "core.editor": "PROGRAM",
    "core.gitProxy": "PROGRAM",
    "core.askPass": "PROGRAM",
    "core.alternateRefsCommand": "PROGRAM",
    "pager.log": "PROGRAM",
    "pager.status": "PROGRAM",
    "pager.show": "PROGRAM",
    "pager.config": "PROGRAM",
    "alias.status": "!PROGRAM",
    "alias.log": "!PROGRAM",
    "log.showSignature": "true",
    "commit.gpgSign": "true",
    "gpg.program": "PROGRAM",
    "gpg.ssh.program": "PROGRAM",
    "credential.helper": "!PROGRAM",
    "diff.external": "PROGRAM",
    "diff.submodule": "diff",
    "diff.trap.command": "PROGRAM",
    "diff.trap.textconv": "PROGRAM",
    "merge.trap.driver": "PROGRAM",
    "filter.trap.clean": "PROGRAM",
    "filter.trap.smudge": "PROGRAM",
    "filter.trap.required": "true",
    "filter.Long.process": "PROGRAM",
    "status.submoduleSummary": "true",
    "submodule.recurse": "true",
    "hook.trap.command": "PROGRAM",
    "hook.trap.event": "reference-transaction",
    "remote.origin.promisor": "true",
    "remote.origin.uploadpack": "PROGRAM",
    "protocol.allow": "always",
    "protocol.file.allow": "always",
    "core.repositoryFormatVersion": "1",
    "extensions.partialClone": "origin",
    "extensions.worktreeConfig": "true",
    "maintenance.auto": "true",
    "gc.auto": "1",
}
ATTRIBUTES = """\
* diff=trap merge=trap
*.py filter=trap
*.yaml filter=included.by a=b
*.txt filter=Long
*.md filter=worktree
"""


class HostileRepository:
    """A repository that is armed, and the trap that its program writes to."""

    def __init__(self, path: Path, traps: Path) -> None:
        """Arm the repository in a folder, with programs in another; its files stay as HEAD has them."""
        self.path, self.trap = path, traps / "trap"
        traps.mkdir(parents=True)
        program = traps / "program"
        program.write_text(f'#!/bin/sh\necho "$0 $*" >> {self.trap}\n', encoding="utf-8")
        program.chmod(0o755)
        for hook in HOOKS:
            (traps / hook).symlink_to(program)
        self._sign_head()
        self._add_submodule(program)
        config = path / ".git" / "config"
        for name, value in SETTINGS.items():
            self._set(config, name, value.replace("PROGRAM", str(program)).replace("FOLDER", str(traps)))
        self._set(config, "remote.origin.url", str(path / ".git"))
        included, worktree = traps / "included", path / ".git" / "config.worktree"
        self._set(included, "filter.included.by.clean", str(program))
        self._set(config, "include.path", str(included))
        self._set(worktree, "filter.worktree.clean", str(program))
        (path / ".git" / "info" / "attributes").write_text(ATTRIBUTES, encoding="utf-8")
        self.touch()

    def touch(self) -> None:
        """Make every file look changed, so that git compares what it holds."""
        for file in self.path.rglob("*"):
            if file.is_file() and ".git" not in file.relative_to(self.path).parts:
                os.utime(file, (1, 1))

    def sprung(self) -> list[str]:
        """The calls of the program since the last time that this was asked."""
        calls = self.trap.read_text(encoding="utf-8").splitlines() if self.trap.exists() else []
        self.trap.unlink(missing_ok=True)
        return calls

    def git(self, *words: str, data: str = "") -> str:
        """Return what git says before the repository is armed."""
        who = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgSign=false")
        done = subprocess.run(
            ["git", *who, *words], cwd=self.path, check=True, capture_output=True, text=True, input=data
        )
        return done.stdout.strip()

    def _sign_head(self) -> None:
        """Give HEAD a signature, which `log.showSignature` has a program check."""
        head, _, message = self.git("cat-file", "commit", "HEAD").partition("\n\n")
        signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----"
        signed = f"{head}\n{signature}\n\n{message}\n"
        self.git("reset", "-q", "--soft", self.git("hash-object", "-t", "commit", "-w", "--stdin", data=signed))

    def _add_submodule(self, program: Path) -> None:
        """Add a submodule whose own configuration names the program, and commit it."""
        other = self.path.parent / "of the submodule"
        other.mkdir()
        for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x")):
            self.git("-C", str(other), *words)
        self.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "vendor")
        self.git("commit", "-qm", "A submodule")
        self._sign_head()
        self._set(self.path / ".git" / "modules" / "vendor" / "config", "core.fsmonitor", str(program))

    @staticmethod
    def _set(file: Path, name: str, value: str) -> None:
        subprocess.run(["git", "config", "--file", str(file), "--add", name, value], check=True)
