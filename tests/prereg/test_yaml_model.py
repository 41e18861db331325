"""`Study.to_yaml` and `from_yaml`: what is written reads back as the same study, with the same registration hash."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import export_samples
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ablate as api
from ablate import Study
from prereg.errors import StudyError
from prereg.registry.registration import promise_sha256
from prereg.study.spec import study_from_document

ROOT = Path(__file__).resolve().parents[2]
FILES = [path for path in sorted((ROOT / "studies").glob("*.yaml")) if not path.stem.endswith(".published")]


def same(study: Study) -> None:
    again = Study.from_yaml(study.to_yaml())
    assert again == study and again.model_dump_json() == study.model_dump_json()
    hashes = [promise_sha256({"study": one.model_dump(mode="json"), "corpus": None}) for one in (study, again)]
    assert hashes[0] == hashes[1]


def test_every_committed_study_reads_back_as_it_is() -> None:
    assert len(FILES) >= 4
    for path in FILES:
        same(Study.from_yaml(path))


def test_every_template_and_option_reads_back_as_it_is(tmp_path: Path) -> None:
    for name in api.templates():
        same(Study.from_yaml(api.new(f"mine_{name}", name, workspace=api.Workspace(tmp_path)).study))
    for option in export_samples.OPTIONS:
        same(export_samples.study(option))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    # What YAML 1.1, YAML 1.2 and people take for something else.
    | st.sampled_from(["no", "1e5", "0o17", "0x1f", "1_000", "12:30", "~", "", " a", "a: b", "# x", "2026-01-01", ".5"])
    | st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=12),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=25)
@given(value=PLAIN, title=st.text(max_size=30))
def test_any_value_is_read_back_or_the_text_that_no_file_may_hold_is_named(value: Any, title: str) -> None:
    command = export_samples.OPTIONS["command"]
    document = command | {"title": f"T{title}", "base": command["base"] | {"extra": value}}
    study = study_from_document(document)
    try:
        same(study)
    except StudyError as error:
        assert not title.isprintable() or unicodedata.normalize("NFC", f"{title}{value}") != f"{title}{value}", error


def test_a_file_is_written_once_left_where_it_says_the_same_and_never_overwritten(tmp_path: Path) -> None:
    study = export_samples.study("plain")
    path = tmp_path / "studies" / "plain.yaml"
    text = study.to_yaml(path)
    assert path.read_text() == text and Study.from_yaml(path) == Study.from_yaml(str(path)) == study
    path.write_text(f"# mine\n{text}")
    study.to_yaml(path)
    assert path.read_text().startswith("# mine")
    other = study.model_copy(update={"title": "Another <b>"})
    assert "title: Another &lt;b&gt;" in other._repr_html_()
    with pytest.raises(StudyError, match="says something else") as refused:
        other.to_yaml(path)
    assert "replace=True" in refused.value.fix and path.read_text().startswith("# mine")
    other.to_yaml(path, replace=True)
    assert Study.from_yaml(path) == other
    with pytest.raises(StudyError, match=r"'plain' as 'x\.yaml'"):
        study.to_yaml(tmp_path / "x.yaml")
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["plain.yaml", "studies"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": "fresh 5"}, "lies in no file"),
        ({"seeds": range(3)}, "YAML cannot hold"),
        ({"base": {"optim": {"lr": float("nan")}}}, "YAML cannot hold"),
        ({"sedes": [1]}, "did you mean 'seeds'|sedes"),
    ],
)
def test_a_mapping_that_is_no_study_is_refused_in_words(change: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        api.load(export_samples.document(**change))


def test_a_mistake_in_a_text_is_placed_at_its_line() -> None:
    text = export_samples.study("plain").to_yaml().replace("title: A", "titel: A")
    with pytest.raises(StudyError, match="titel") as refused:
        Study.from_yaml(text)
    assert refused.value.where.line == 2


def test_a_text_that_no_utf_8_holds_is_refused_and_a_place_without_a_file_is_a_line() -> None:
    with pytest.raises(StudyError, match="not UTF-8"):
        Study.from_yaml("study: a\ntitle: \ud800\n")
    with pytest.raises(StudyError, match=r"\Aline 2: a second document"):
        Study.from_yaml("study: a\n---\nstudy: b\n")
