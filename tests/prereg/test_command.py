"""The words of a user's own trainer: every placeholder is known before anything runs, and its code is pinned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_trainer import OwnHouse, own_document

from prereg.errors import RegistrationError, SpecError
from prereg.registry.canon import sha256_bytes
from prereg.registry.history import differing_fields
from prereg.registry.paths import Root
from prereg.study.command import command_line, filled, is_inside, pin_scripts, script_of
from prereg.study.load import load_study
from prereg.study.spec import study_from_document

OWN = {"variant": "v", "seed": "1", "python": "/p", "root": "/r", "run_dir": "/d"}


def fault(**changes: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        study_from_document(own_document(**changes))
    return caught.value


def test_a_word_is_filled_and_stays_one_word() -> None:
    config = {"optim": {"name": "a b; $(c) 'd'", "lr": 1e-3, "betas": [0.9, 0.95], "nesterov": True, "clip": None}}
    words = ("--x={optim.name}", "{optim.lr}", "{optim.betas}", "{optim.nesterov}{optim.clip}", "{{{seed}}}-{variant}")
    assert filled(words, OWN | {"seed": "7"}, config) == (
        "--x=a b; $(c) 'd'",
        "0.001",
        "[0.9, 0.95]",
        "truenull",
        "{7}-v",
    )


def test_a_flag_is_there_where_its_value_is_true() -> None:
    words = ("run", "{--amp if optim.amp}", "{root}/x", "{run_dir}", "{{--amp if optim.amp}}")
    rest = ("/r/x", "/d", "{--amp if optim.amp}")
    assert filled(words, OWN, {"optim": {"amp": True}}) == ("run", "--amp", *rest)
    assert filled(words, OWN, {"optim": {"amp": False}}) == ("run", None, *rest)


@given(st.text(max_size=20))
def test_what_is_filled_in_is_never_read_as_a_placeholder(text: str) -> None:
    assert filled(("{x}",), OWN, {"x": text}) == (text,)


@given(st.text(max_size=20))
def test_any_word_can_be_written_with_doubled_braces(text: str) -> None:
    escaped = text.replace("{", "{{").replace("}", "}}")
    assert filled((escaped,), OWN, {}) == (text,)


def test_the_file_and_line_of_a_faulty_word_are_named(tmp_path: Path) -> None:
    path = OwnHouse(tmp_path / "house").write(command=["python", "train.py", "--lr={optim.lr}"])
    with pytest.raises(SpecError, match=r"own\.yaml:\d+ command\[2\]: '\{optim\.lr\}' at character 6 of word 3"):
        load_study(path)


@pytest.mark.parametrize("path", ["/somewhere/x", "../x", "a/../../x", "", "."])
def test_metrics_and_code_lie_inside(path: str) -> None:
    assert not is_inside(path)
    assert str(fault(metrics={"file": path}).where) == "metrics.file"
    assert str(fault(code=[path]).where) == "code[0]"


def test_files_named_by_words_are_pinned_for_every_arm_and_seed(own_house: OwnHouse) -> None:
    for arm in ("slow", "fast"):
        own_house.script(arm, f"configs/{arm}.json")
    words = ["{python}", "train.py", "configs/{variant}.json", "--x", "no-file", str(own_house.path / "train.py")]
    pins = pin_scripts(Root(own_house.path), study_from_document(own_document(command=words)))
    assert [pin.path for pin in pins] == ["configs/fast.json", "configs/slow.json", "train.py"]
    assert pins[0].sha256 == sha256_bytes(b"fast")


def test_code_pins_whole_folders_without_caches_and_hidden_files(own_house: OwnHouse) -> None:
    for name in ("lib/a.py", "lib/sub/b.py", "lib/__pycache__/a.pyc", "lib/.venv/c.py"):
        own_house.script("", name)
    pins = pin_scripts(Root(own_house.path), study_from_document(own_document(code=["lib"])))
    assert [pin.path for pin in pins] == ["lib/a.py", "lib/sub/b.py", "train.py"]


@pytest.mark.parametrize(
    ("changes", "field"), [({"command": ["python", "tarin.py"]}, "command[1]"), ({"code": ["gone"]}, "code[0]")]
)
def test_a_file_that_is_not_there_is_refused(own_house: OwnHouse, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(RegistrationError, match="no file") as caught:
        pin_scripts(Root(own_house.path), study_from_document(own_document(**changes)))
    assert str(caught.value.where) == field


def test_a_word_that_leaves_the_root_names_no_file_of_the_code(tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("")
    root = OwnHouse(tmp_path / "house").path
    for word in ("../outside.py", str(outside), "", "\0", "x" * 9000, "studies", "train.py/../../outside.py"):
        assert script_of(root, word) is None, word[:40]
    assert script_of(root, "train.py") == script_of(root, str(root / "train.py")) == root / "train.py"


def test_code_is_a_field_of_the_promise() -> None:
    plain, with_code = study_from_document(own_document()), study_from_document(own_document(code=["lib"]))
    assert [d.field for d in differing_fields(plain, with_code)] == ["code"]
    assert study_from_document(with_code.model_dump(mode="json")) == with_code


def test_a_command_line_is_shown_so_that_words_can_be_told_apart() -> None:
    assert command_line(("python", "a b", "", "--seed={seed}", "it's")) == "python 'a b' '' --seed={seed} 'it'\"'\"'s'"
