"""The root is found upward, and every path of the house is spelled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from prereg.errors import StudyFileError
from prereg.registry.paths import Root


def test_the_root_of_a_study_is_the_nearest_folder_above_it_that_holds_studies(tmp_path: Path) -> None:
    (tmp_path / "studies" / "deep").mkdir(parents=True)
    assert Root.find(tmp_path / "studies" / "s.yaml").path == tmp_path
    assert Root.find(tmp_path / "studies" / "deep" / "s.yaml").path == tmp_path
    assert Root.find(tmp_path / "s.yaml").path == tmp_path


def test_a_study_outside_any_house_is_told_where_to_go(tmp_path: Path) -> None:
    with pytest.raises(StudyFileError) as caught:
        Root.find(tmp_path / "s.yaml")
    assert "mkdir -p studies" in caught.value.fix


def test_a_root_that_is_given_must_hold_studies(tmp_path: Path) -> None:
    with pytest.raises(StudyFileError, match="holds no folder named 'studies'"):
        Root.find(tmp_path / "s.yaml", tmp_path)
    with pytest.raises(StudyFileError):
        Root.around(tmp_path, tmp_path)


def test_a_verb_without_a_study_finds_its_root_upward_too(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "reports" / "x").mkdir(parents=True)
    assert Root.around(tmp_path / "reports" / "x").path == tmp_path
    with pytest.raises(StudyFileError, match="neither"):
        Root.around(tmp_path.parent)


def test_paths_of_the_house(tmp_path: Path) -> None:
    root = Root(tmp_path)
    assert root.run("s", "abcdefgh01", "none", 3) == tmp_path / "data" / "runs" / "s" / "abcdefgh" / "none" / "3"
    assert root.lock("s").name == "s.lock.json"
    assert root.ledger == tmp_path / "studies" / "ledger.jsonl"


def test_a_name_is_relative_to_the_root_or_to_where_runs_are_read_from() -> None:
    root = Root(Path("/r"), runs_from=Path("/there/it"))
    assert root.run("s", "0a1b2c3d" * 8, "a", 1) == Path("/there/it/data/runs/s/0a1b2c3d/a/1")
    assert root.relative(root.run("s", "0a1b2c3d" * 8, "a", 1)) == "data/runs/s/0a1b2c3d/a/1"
    assert root.relative(Path("/r/studies/r/s.yaml")) == "studies/r/s.yaml"
    assert root.relative(Path("/other/r/s.yaml")) == "/other/r/s.yaml"
    assert root.shortened("/there/it/data/x and /r/studies/y") == "data/x and studies/y"
