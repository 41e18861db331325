"""Claims about slices: own entries whole, others as links, the chain and its head unbroken; and never in a house."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledger_samples import enter

from prereg.errors import LedgerError
from prereg.registry.ledger import SLICE_NAME, Ledger, sliced

AT = "2026-01-02T03:04:05+00:00"


@pytest.fixture
def whole(tmp_path: Path) -> Ledger:
    """A ledger of two studies, in turns."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for number, study in enumerate(["mine", "other", "other", "mine", "other"]):
        body = {"n": number, "share": 0.25, "large": 1e17}
        enter(ledger, "started", body, study=study, registration="a" * 64, at=AT)
    return ledger


def a_slice(folder: Path, data: bytes) -> Ledger:
    (folder / SLICE_NAME).write_bytes(data)
    return Ledger(folder / SLICE_NAME)


def test_a_slice_shows_the_entries_of_one_study_and_keeps_the_head(whole: Ledger, tmp_path: Path) -> None:
    data = sliced(whole.entries(), "mine")
    found = a_slice(tmp_path, data)
    assert found.faults() == []
    assert found.entries() == tuple(entry for entry in whole.entries() if entry.study == "mine")
    assert [one.index for one in found.withheld()] == [1, 2, 4]
    assert found.head() == whole.head(), "the last entry is withheld, and its hash is the head all the same"
    assert b"other" not in data


def test_a_slice_that_withholds_nothing_is_the_ledger_to_the_byte(whole: Ledger, tmp_path: Path) -> None:
    assert sliced(whole.entries(), None) == whole.path.read_bytes()
    assert whole.withheld() == ()
    assert a_slice(tmp_path, b"").head() == "0" * 64


def test_an_entry_of_a_slice_that_is_edited_moved_or_left_out_is_found(whole: Ledger, tmp_path: Path) -> None:
    lines = sliced(whole.entries(), "mine").splitlines(keepends=True)
    for number, line in enumerate(lines):
        edited = line.replace(b'"previous":"', b'"previous":"f', 1)
        assert a_slice(tmp_path, b"".join([*lines[:number], edited, *lines[number + 1 :]])).faults(), number
        if number + 1 < len(lines):  # a tail that is cut off shows in the head alone
            assert a_slice(tmp_path, b"".join([*lines[:number], *lines[number + 1 :]])).faults(), number
    swapped = [lines[1], lines[0], *lines[2:]]
    assert a_slice(tmp_path, b"".join(swapped)).faults()
    assert a_slice(tmp_path, lines[0].replace(b'"n":0', b'"n":7')).faults()


def test_a_link_whose_hash_is_changed_breaks_the_chain_or_the_head(whole: Ledger, tmp_path: Path) -> None:
    data = sliced(whole.entries(), "mine")
    inner, last = whole.entries()[1].sha256.encode(), whole.entries()[4].sha256.encode()
    assert a_slice(tmp_path, data.replace(b'"sha256":"' + inner, b'"sha256":"' + b"0" * 64)).faults()
    other = a_slice(tmp_path, data.replace(last, b"0" * 64))
    assert other.faults() == [] and other.head() != whole.head(), "only whoever holds the head can tell"


def test_a_house_takes_no_link_for_an_entry(whole: Ledger) -> None:
    whole.path.write_bytes(sliced(whole.entries(), "mine"))
    damaged = Ledger(whole.path)
    assert "line 2: is not an entry of a ledger" in damaged.faults()[0]
    with pytest.raises(LedgerError):
        damaged.entries()


def test_nothing_is_appended_to_a_slice_and_a_torn_one_is_no_slice(whole: Ledger, tmp_path: Path) -> None:
    data = sliced(whole.entries(), "mine")
    found = a_slice(tmp_path, data)
    with pytest.raises(LedgerError, match="a slice takes no entry"):
        enter(found, "started", {}, study="mine", registration="a" * 64, at=AT)
    with pytest.raises(LedgerError, match="a slice takes no entry"):
        found.unfinished()
    assert found.path.read_bytes() == data
    torn = a_slice(tmp_path, data[:-1])
    assert "not ended" in torn.faults()[0] and len(torn.entries()) == 2
