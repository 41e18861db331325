"""Strangers' files are decoded in a process with a limit: what comes back is bytes, or the error that was raised."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ablate.records.limited import in_limited_process
from prereg.errors import EvidenceError, StudyFileError, Where

DECODERS = """
import os, sys, time
from pathlib import Path
from prereg.errors import StudyFileError, Where

def echo(text, times): return text.encode() * times
def noisy(path):
    print("a library says something")
    return Path(path).read_bytes()
def hungry(size): return bytes(len(bytes(size)) - size)
def aborts(): os.abort()
def sleeps(): time.sleep(60)
def refuses(path):
    raise StudyFileError("two keys", required="one", fix="rm", where=Where(Path(path), 3, ("a", 0)))
def is_wrong(): return 1 / 0
"""


@pytest.fixture
def decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[..., bytes]]:
    """A function by its name, of a module that the child finds too."""
    (tmp_path / "decoders.py").write_text(DECODERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delitem(sys.modules, "decoders", raising=False)
    import decoders  # type: ignore[import-not-found]

    return lambda name: getattr(decoders, name)


def test_the_result_comes_back_to_the_byte_whatever_is_printed(
    decoder: Callable[[str], Callable[..., bytes]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytes(range(256)) * 1000 + b"\n{}\n"
    (tmp_path / "data").write_bytes(data)
    assert in_limited_process(decoder("noisy"), str(tmp_path / "data")) == data
    assert capsys.readouterr() == ("", "a library says something\n")
    assert in_limited_process(decoder("echo"), "é", 3) == "ééé".encode()


def test_an_error_of_the_user_is_raised_as_it_was(decoder: Callable[[str], Callable[..., bytes]]) -> None:
    with pytest.raises(StudyFileError, match="two keys") as caught:
        in_limited_process(decoder("refuses"), "/a/file")
    assert (caught.value.required, caught.value.fix) == ("one", "rm")
    assert caught.value.where == Where(Path("/a/file"), 3, ("a", 0))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux keeps the limit")
def test_no_more_memory_is_taken_than_allowed(decoder: Callable[[str], Callable[..., bytes]]) -> None:
    assert in_limited_process(decoder("hungry"), 2**26, memory_bytes=2**28) == b""
    with pytest.raises(EvidenceError, match="takes more than 256 MiB to decode"):
        in_limited_process(decoder("hungry"), 2**29, memory_bytes=2**28)


def test_a_decoder_that_crashes_or_does_not_end_is_the_files_fault(
    decoder: Callable[[str], Callable[..., bytes]],
) -> None:
    with pytest.raises(EvidenceError, match="or cannot be decoded"):
        in_limited_process(decoder("aborts"))
    with pytest.raises(EvidenceError, match="not decoded within 0 s"):
        in_limited_process(decoder("sleeps"), timeout_s=0.2)


def test_any_other_error_is_our_bug_and_shows_its_trace(decoder: Callable[[str], Callable[..., bytes]]) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        in_limited_process(decoder("is_wrong"))


def test_no_module_is_loaded_from_the_folder_where_the_command_was_typed(
    decoder: Callable[[str], Callable[..., bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "json.py").write_text("raise SystemExit('a stranger')")
    monkeypatch.chdir(tmp_path / "here")
    assert in_limited_process(decoder("echo"), "a", 1) == b"a"
