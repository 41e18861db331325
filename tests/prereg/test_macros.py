"""Macros: what a block of a study writes, where it goes, and what may not be there already."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from study_samples import components_document, of_components

from prereg.errors import SpecError
from prereg.study.macros import Document, Written, expand
from prereg.study.spec import Study, study_from_document


def doubled(document: Document) -> Iterator[Written]:
    """Two entries in place of `b`, and what is said where nothing is."""
    if "b" in document["names"]:
        for name in ("b.one", "b.two"):
            yield Written(("names", name), 2, ("names", "b"), "replaces")
        yield Written(("title",), "made", ("names", "b"), "default")


def added(document: Document) -> Iterator[Written]:
    """An entry that comes from another block."""
    yield Written(("names", "new"), 1, ("block",), inner={("names", "new", "size"): ("block", "sizes")})


def test_what_replaces_an_entry_comes_in_its_place_and_what_is_added_comes_first() -> None:
    document = {"names": {"a": 1, "b": 2, "c": 3}, "block": {}}
    expansion = expand(document, [doubled, added])
    assert list(expansion.document["names"]) == ["new", "a", "b.one", "b.two", "c"]
    assert expansion.document["title"] == "made"
    assert document == {"names": {"a": 1, "b": 2, "c": 3}, "block": {}}
    assert expand({**document, "title": "mine"}, [doubled]).document["title"] == "mine"


def test_a_mistake_in_what_was_written_is_placed_where_it_was_written() -> None:
    expansion = expand({"names": {"a": 1, "b": 2}, "block": {}}, [doubled, added])
    assert expansion.origin(("names", "b.two", "claim")) == ("names", "b", "claim")
    assert expansion.origin(("names", "new", "size")) == ("block", "sizes")
    assert expansion.origin(("names", "new", "other")) == ("block",)
    assert expansion.origin(("names", "a", "claim")) == ("names", "a", "claim")


def test_what_is_written_is_there_nowhere_or_everywhere_and_the_same() -> None:
    stored = expand({"names": {"b": 2}, "block": {}}, [added]).document
    assert expand(stored, [added]).document == stored
    with pytest.raises(SpecError, match="block writes 'new' of names, and there is another one"):
        expand({"names": {"new": 5}}, [added])
    with pytest.raises(SpecError, match=r"names.b writes 'b.one' of names, and it is not there"):
        expand({"names": {"b": 2, "b.two": 2}}, [doubled])


@pytest.mark.parametrize(("kind", "name"), [("variants", "no_rotary"), ("hypotheses", "rotary")])
def test_a_stored_study_that_lacks_what_its_components_write_is_refused(kind: str, name: str) -> None:
    whole = study_from_document(components_document()).model_dump(mode="json")
    assert study_from_document(whole) == of_components()
    del whole[kind][name]
    with pytest.raises(SpecError, match=f"writes '{name}' of {kind}, and it is not there"):
        study_from_document(whole)


def test_a_copy_of_a_study_expands_to_itself_too() -> None:
    study = of_components()
    variants = study.variants | {"no_rotary": {"model.positions": "none"}}
    with pytest.raises(SpecError, match="there is another one of that name"):
        study.model_copy(update={"variants": variants})
    assert isinstance(study.model_copy(update={"title": "Another"}), Study)
