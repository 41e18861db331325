"""Studies checked by other tools: several files at once, the pre-commit hooks, the GitHub Action, and our own CI."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import House
from test_cli import ablate

import ablate as api

ROOT = Path(__file__).resolve().parents[2]
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
CI = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))


def two_studies(folder: Path) -> tuple[Path, Path]:
    """A valid study, and one with a mistake."""
    good, bad = (api.new(name, "target", workspace=api.Workspace(folder)).study for name in ("good", "bad"))
    bad.write_text(bad.read_text().replace("title:", "titel:"))
    return good, bad


def test_check_names_each_mistake_of_several_studies_and_goes_on_after_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = two_studies(tmp_path)
    other = shutil.copy(bad, bad.with_name("other.yaml"))
    assert ablate(monkeypatch, "check", bad, good, other) == 2
    out, err = capsys.readouterr()
    assert out.startswith(f"ok  {good}\n") and out.endswith("\n2 of 3 studies have mistakes\n")
    assert err.count("error: ") == 2 and f"{bad}:4 titel" in err and f"{other}:4 titel" in err


def test_check_of_several_valid_studies_answers_each_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("one", "two")
    paths = [api.new(name, "target", workspace=api.Workspace(tmp_path)).study for name in names]
    assert ablate(monkeypatch, "check", *paths) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith("ok")] == [f"ok  {path}" for path in paths]
    assert ablate(monkeypatch, "check", "--json", *paths) == 0
    assert [one["study"]["study"] for one in json.loads(capsys.readouterr().out)] == list(names)


@pytest.fixture
def repository(decided: House, tmp_path: Path) -> Path:
    """A git repository with a decided study, its committed evidence aside, and two that are not registered."""
    folder = decided.copy(tmp_path / "repository").path
    for name in ("first", "second"):
        api.new(name, "target", workspace=api.Workspace(folder))
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    return folder


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def environment(folder: Path) -> dict[str, str]:
    """One in which `ablate` is this checkout under this interpreter, on PATH as an installation puts it there."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    command = place / "ablate"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ablate "$@"\n')
    command.chmod(0o755)
    return {"PATH": f"{place}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(folder), "COLUMNS": "80"}


def spoil(repository: Path, what: str) -> None:
    """A mistake in one study, or a change of one that is frozen."""
    if what == "mistake":
        path = repository / "studies" / "second.yaml"
        path.write_text(path.read_text().replace("title:", "titel:"))
    else:
        path = repository / "reports" / "tiny" / "verdict.json"
        path.write_bytes(path.read_bytes() + b"\n")
    git(repository, "add", ".")


@pytest.mark.slow
@pytest.mark.parametrize(("what", "codes"), [("", (0, 0)), ("mistake", (2, 0)), ("change", (0, 4))])
def test_the_hooks_run_over_the_files_that_they_name(
    repository: Path, tmp_path: Path, what: str, codes: tuple[int, int]
) -> None:
    if what:
        spoil(repository, what)
    files = git(repository, "ls-files").split()
    for hook, code in zip(("ablate-check", "ablate-verify"), codes, strict=True):
        passed = [file for file in files if re.search(HOOKS[hook]["files"], file)]
        words = [*HOOKS[hook]["entry"].split(), *(passed if HOOKS[hook].get("pass_filenames", True) else ())]
        done = subprocess.run(words, cwd=repository, env=environment(tmp_path), capture_output=True, check=False)
        assert done.returncode == code, (words, done.stdout, done.stderr)
    assert {file for file in files if re.search(HOOKS["ablate-check"]["files"], file)} == {
        f"studies/{name}.yaml" for name in ("tiny", "first", "second")
    }


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pre-commit") is None, reason="pre-commit is not installed")
def test_pre_commit_itself_runs_the_hooks(repository: Path, tmp_path: Path) -> None:
    """With `ablate` found on PATH, since installing it once more needs an index of packages."""
    subprocess.run(["pre-commit", "validate-manifest", ROOT / ".pre-commit-hooks.yaml"], check=True)
    hooks = [{**hook, "language": "system"} for hook in HOOKS.values()]
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [{"repo": "local", "hooks": hooks}]}))
    git(repository, "add", ".")
    words = ["pre-commit", "run", "--all-files"]
    done = subprocess.run(words, cwd=repository, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("Passed") == 2, done
    spoil(repository, "mistake")
    done = subprocess.run(words, cwd=repository, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "did you mean 'title'?" in done.stdout, done


def step(name: str) -> dict[str, Any]:
    [found] = [one for one in ACTION["runs"]["steps"] if one.get("name") == name]
    return dict(found)


def start(script: str, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a step as a runner does."""
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(("what", "failed"), [("", ""), ("mistake", "ablate check"), ("change", "ablate verify")])
def test_the_action_fails_with_a_summary_that_names_what_is_wrong(
    repository: Path, tmp_path: Path, what: str, failed: str
) -> None:
    if what:
        spoil(repository, what)
    summary = tmp_path / "summary.md"
    env = environment(tmp_path) | {"ROOT": "repository", "GITHUB_STEP_SUMMARY": str(summary)}
    done = start(step("Check and verify all studies")["run"], tmp_path, env)
    text = summary.read_text()
    assert done.returncode == bool(failed), (done, text)
    for title in ("ablate check", "ablate verify"):
        assert (f"### {title}: failed" in text) == (title == failed), text
        assert (f"### {title}: passed" in text) == (title != failed), text
    assert done.stdout.count("::error") == bool(failed)
    assert {"": "ok  studies/first.yaml", "mistake": "did you mean 'title'?", "change": "CHANGED"}[what] in text


@pytest.mark.slow
def test_the_action_refuses_a_folder_without_studies(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    env = environment(tmp_path) | {"ROOT": ".", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    done = start(step("Check and verify all studies")["run"], tmp_path, env)
    assert done.returncode == 2 and "holds no .yaml file" in done.stdout


def test_no_line_that_a_study_brings_is_a_command_to_the_runner(tmp_path: Path) -> None:
    program = tmp_path / "ablate"
    program.write_text('#!/bin/sh\necho "::set-output name=x::y"\n')
    program.chmod(0o755)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "first.yaml").touch()
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ROOT": ".", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    done = start(step("Check and verify all studies")["run"], tmp_path, env)
    stopped = r"::stop-commands::([0-9a-f]{32})\n::set-output name=x::y\n::\1::\n"
    assert done.returncode == 0 and re.fullmatch(f"{stopped}{stopped.replace('1', '2')}", done.stdout), done


@pytest.mark.parametrize(
    ("version", "words"),
    [("1.0.0", ["ablate-prereg==1.0.0"]), ("", ["--constraint", "/action/constraints.txt", "/action"])],
)
def test_the_action_installs_a_release_or_its_own_checkout(tmp_path: Path, version: str, words: list[str]) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SOURCE": "/action", "VERSION": version}
    done = start(step("Install ablate")["run"], tmp_path, env)
    assert done.stdout.split() == ["-m", "pip", "install", "--quiet", *words], done


def test_every_input_of_the_action_is_used_and_no_expression_is_pasted_into_a_script() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    for one in ACTION["runs"]["steps"]:
        assert "${{" not in one.get("run", "")


def test_continuous_integration_tests_every_python_that_the_classifiers_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r":: 3\.\d+$", one)]
    for job in ("test", "wheel"):
        assert CI["jobs"][job]["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"


def test_the_commands_of_the_workflow_and_of_the_dev_container_are_targets_of_make() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    lines = [one["run"] for job in CI["jobs"].values() for one in job["steps"] if "run" in one]
    named = {word for line in [*lines, container["postCreateCommand"]] for word in line.split()[1:] if "=" not in word}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert named - targets - {"docs"} == set()
