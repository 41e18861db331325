"""Every command that asks git something, in a repository that names a program wherever git would start one."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_gate
import test_propose
import yaml
from hostile_git import HostileRepository
from own_trainer import own_document
from test_cli import ablate

from ablate.cli.options import Exit

GAIN = "\nimport sys\nSHIFT -= float(sys.argv[1]) if len(sys.argv) > 1 else 0.0\nseed = int("
OWN = own_document(
    variants={"slow": {"commit": "main"}, "fast": {"commit": "feature"}}, code=["train.py"], base={"steps": 1}
)


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostileRepository:
    path = tmp_path / "repository"
    for folder in ("studies", "campaigns"):
        (path / folder).mkdir(parents=True)
    trainer = test_gate.TRAINER.format(stop=tmp_path / "stop").replace("\nseed = int(", GAIN)
    files = {
        "train.py": trainer,
        ".gitignore": "data/\nreports/\n*.zip\n",
        "studies/own.yaml": yaml.safe_dump(OWN),
        "studies/harmless.yaml": yaml.safe_dump(test_gate.document()),
        "campaigns/night.yaml": yaml.safe_dump(
            test_propose.document(
                guardrails=[],
                start={
                    "trainer": "command",
                    "command": ["{python}", "train.py", "{gain}"],
                    "code": ["train.py"],
                    "base": {"gain": 0.0, "commit": "main"},
                },
            )
        ),
    }
    for name, text in files.items():
        (path / name).write_text(text, encoding="utf-8")
    (path / "train.py").chmod(0o644)
    repository = HostileRepository.__new__(HostileRepository)
    repository.path = path
    repository.git("init", "-q", "-b", "main")
    repository.git("add", "-A")
    repository.git("commit", "-qm", "start")
    repository.git("checkout", "-q", "-b", "feature")
    (path / "train.py").write_text(trainer.replace('"as it was"', '"another order"'), encoding="utf-8")
    repository.git("commit", "-qam", "another order")
    monkeypatch.chdir(path)
    return HostileRepository(path, tmp_path / "traps")


@pytest.mark.slow
def test_no_command_starts_a_program_of_the_repository(
    hostile: HostileRepository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own, night = "studies/own.yaml", "campaigns/night.yaml"
    for words in (
        ("check", own),
        ("register", own),
        ("run", own, "--jobs", "1"),
        ("status", own),
        ("decide", own),
        ("report", own),
        ("seal", own),
        ("verify", own),
        ("reproduce", own, "--run", "fast/1"),
        ("bundle", own),
        ("gate", "studies/harmless.yaml", "--jobs", "1"),
        ("gate", "studies/harmless.yaml", "--base", "feature", "--head", "main", "--jobs", "1"),
        ("register", night),
        ("propose", night, "--set", "gain=0.5", "--why", "it may help", "--jobs", "1"),
        ("propose", night, "--commit", "feature", "--why", "it may help", "--jobs", "1"),
        ("report", night),
        ("verify", night),
        ("verify",),
        ("ledger",),
    ):
        hostile.touch()
        code = ablate(monkeypatch, *words)
        said = capsys.readouterr()
        assert hostile.sprung() == [], words
        assert code not in (Exit.BUG, Exit.MISTAKE), (words, code, said.err, said.out)
