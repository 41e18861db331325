"""Ledgers of two branches: what git merges, what the next entry joins, and what is refused."""

from __future__ import annotations

import random
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ledger_samples import enter
from seal_samples import git

from prereg.errors import LedgerError
from prereg.registry.canon import canonical_bytes, sha256_of
from prereg.registry.ledger import SLICE_NAME, Ledger, sliced
from prereg.registry.ledger_entry import Entry, Event
from prereg.registry.ledger_graph import Descent, places
from prereg.registry.paths import Root

HASH = "a" * 64


class Branches:
    """A git repository with a ledger; a clock that goes on by a minute an entry."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.minutes = folder, 0
        git(folder, "init", "-q", "-b", "main")
        (folder / "studies").mkdir()
        (folder / "studies" / ".gitattributes").write_bytes(b"ledger.jsonl -text merge=union\n")
        self.root = Root(folder)
        self.ledger = Ledger(self.root.ledger)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "start")

    def append(self, study: str, *events: Event, **body: int) -> list[Entry]:
        found = []
        for event in events or ("started",):
            self.minutes += 1
            at = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=self.minutes)).isoformat()
            found.append(enter(self.ledger, event, dict(body), study=study, registration=HASH, at=at))
        return found

    def on(self, branch: str) -> None:
        git(self.folder, "checkout", "-q", *([] if self._has(branch) else ["-b"]), branch)

    def _has(self, branch: str) -> bool:
        return branch in git(self.folder, "branch", "--format=%(refname:short)").split()

    def commit(self) -> None:
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-qm", "work")

    def merge(self, branch: str) -> None:
        git(self.folder, "merge", "-q", "--no-edit", branch)


@pytest.fixture
def branches(tmp_path: Path) -> Branches:
    return Branches(tmp_path)


def two_branches(branches: Branches) -> None:
    """`main` and `other` have each continued a common beginning; `main` is checked out."""
    branches.append("first")
    branches.commit()
    branches.on("other")
    branches.append("theirs", "registered", "started", "sealed")
    branches.commit()
    branches.on("main")
    branches.append("mine", "registered", "started")
    branches.commit()


def test_git_merges_two_branches_and_the_next_entry_joins_them(branches: Branches) -> None:
    two_branches(branches)
    branches.merge("other")
    assert branches.ledger.faults() == []
    assert [(entry.index, entry.study) for entry in branches.ledger.entries()] == [
        (0, "first"), (1, "theirs"), (2, "theirs"), (3, "theirs"), (1, "mine"), (2, "mine"),
    ]  # fmt: skip
    theirs, mine = branches.ledger.entries()[3], branches.ledger.entries()[5]
    assert branches.ledger.head() == branches.ledger.sound().head == f"{theirs.sha256}+{mine.sha256}"
    (joined,) = branches.append("mine")
    assert (joined.index, joined.previous, joined.joins) == (4, theirs.sha256, (mine.sha256,))
    content = joined.model_dump(mode="json")
    assert content.pop("sha256") == sha256_of(content)
    for ledger in (branches.ledger, Ledger(branches.ledger.path)):
        assert ledger.faults() == []
        assert ledger.head() == joined.sha256
    (after,) = branches.append("theirs")
    assert (after.index, after.previous, after.joins) == (5, joined.sha256, ())
    assert branches.ledger.faults() == []
    assert len(branches.ledger.sound().entries) == 8


def test_both_may_begin_with_an_empty_ledger(branches: Branches) -> None:
    branches.on("other")
    branches.append("theirs", "registered")
    branches.commit()
    branches.on("main")
    branches.append("mine", "registered")
    branches.commit()
    branches.merge("other")
    assert branches.ledger.faults() == []
    (joined,) = branches.append("mine")
    assert len(joined.joins) == 1
    assert branches.ledger.faults() == []


def test_two_people_who_merge_each_other_read_the_same_order(branches: Branches) -> None:
    two_branches(branches)
    git(branches.folder, "branch", "mine-before")
    branches.merge("other")
    branches.append("mine")
    branches.commit()
    branches.on("other")
    branches.merge("mine-before")  # criss-cross: neither merge has the other
    branches.append("theirs", "finished")
    branches.commit()
    branches.merge("main")
    here = branches.ledger
    assert here.faults() == []
    order = places(here.entries())
    lines = here.path.read_bytes()
    branches.on("main")
    branches.merge("other")
    assert here.faults() == []
    assert places(here.entries()) == order
    assert sorted(here.path.read_bytes().splitlines()) == sorted(lines.splitlines())
    (joined,) = branches.append("mine")
    assert here.faults() == []
    assert here.head() == joined.sha256


@pytest.mark.slow
def test_many_random_merges_keep_every_line_and_stay_sound(branches: Branches) -> None:
    rng, names = random.Random(3), ["main", "b", "c"]  # noqa: S311
    branches.append("first")
    branches.commit()
    for name in names[1:]:
        branches.on(name)
        branches.on("main")
    made = {entry.sha256 for entry in branches.ledger.entries()}
    for _ in range(30):
        name = rng.choice(names)
        branches.on(name)
        if rng.random() < 0.45:
            branches.merge(rng.choice([one for one in names if one != name]))
            assert branches.ledger.faults() == []
        else:
            made |= {entry.sha256 for entry in branches.append(name, *["started"] * rng.randrange(1, 4))}
            branches.commit()
            assert branches.ledger.faults() == []
    branches.on("main")
    for name in names[1:]:
        branches.merge(name)
    assert branches.ledger.faults() == []
    assert {entry.sha256 for entry in branches.ledger.entries()} == made
    entries = branches.ledger.entries()
    descent, order = Descent(entries), places(entries)
    here = {entry.sha256: entry for entry in entries}
    for later in entries:  # against a walk back through all that is named
        behind, waiting = set(), [later.sha256]
        while waiting:
            one = waiting.pop()
            if one in here and one not in behind:
                behind.add(one)
                waiting += (here[one].previous, *here[one].joins)
        assert {one.sha256 for one in entries if descent.follows(later.sha256, one.sha256)} == behind
        assert all(order[one] <= order[later.sha256] for one in behind)


def test_an_entry_follows_itself_and_what_it_names(branches: Branches) -> None:
    two_branches(branches)
    branches.merge("other")
    (joined,) = branches.append("mine", "sealed")
    entries = branches.ledger.entries()
    descent, theirs = Descent(entries), next(entry for entry in entries if entry.study == "theirs")
    mine = next(entry for entry in entries if entry.study == "mine")
    assert all(descent.follows(entry.sha256, entry.sha256) for entry in entries)
    assert all(descent.follows(joined.sha256, entry.sha256) for entry in entries)
    assert not descent.follows(mine.sha256, theirs.sha256) and not descent.follows(theirs.sha256, mine.sha256)
    assert not any(descent.follows(entry.sha256, joined.sha256) for entry in entries if entry != joined)


@pytest.mark.parametrize("spoil", ["cut out", "edited", "other joins", "other index"])
def test_damage_of_a_merged_ledger_is_named_by_its_line(branches: Branches, spoil: str) -> None:
    two_branches(branches)
    branches.merge("other")
    branches.append("mine", "started", "finished")
    whole = branches.ledger.path.read_bytes()
    rows = whole.splitlines(keepends=True)
    if spoil == "cut out":
        del rows[3]
        line, said = 4, "is missing"
    elif spoil == "edited":
        rows[3] = rows[3].replace(b"registered", b"finished")
        line, said = 4, "was edited"
    else:
        entry = Ledger(branches.ledger.path).entries()[6]
        change = {"joins": [HASH]} if spoil == "other joins" else {"index": 9}
        content = entry.model_dump(mode="json") | change
        content["sha256"] = sha256_of({key: value for key, value in content.items() if key != "sha256"})
        rows[6:] = [canonical_bytes(content) + b"\n"]
        line, said = 7, "is missing" if spoil == "other joins" else "index 9"
    branches.ledger.path.write_bytes(b"".join(rows))
    for ledger in (branches.ledger, Ledger(branches.ledger.path)):
        assert ledger.faults()[0].startswith(f"ledger.jsonl, line {line}: ")
        assert said in ledger.faults()[0]
        with pytest.raises(LedgerError, match=f"line {line}: "):
            enter(ledger, "started", {}, study="mine", registration=HASH, at="2026-03-01T00:00:00+00:00")
    assert branches.ledger.path.read_bytes() == b"".join(rows)


def test_a_line_that_git_left_twice_is_read_once(branches: Branches) -> None:
    two_branches(branches)
    branches.merge("other")
    entries = branches.ledger.entries()
    rows = branches.ledger.path.read_bytes().splitlines(keepends=True)
    branches.ledger.path.write_bytes(b"".join([*rows[:3], rows[1], *rows[3:], rows[4]]))
    assert branches.ledger.faults() == []
    assert branches.ledger.entries() == branches.ledger.sound().entries == entries
    (joined,) = branches.append("mine")
    assert Ledger(branches.ledger.path).entries() == (*entries, joined)


def test_an_unfinished_line_of_a_merged_ledger_is_repaired(branches: Branches) -> None:
    two_branches(branches)
    branches.merge("other")
    branches.append("mine")
    whole = branches.ledger.path.read_bytes()
    branches.append("mine")
    line = branches.ledger.path.read_bytes()[len(whole) :]
    branches.ledger.path.write_bytes(whole + line[:30])
    (entry,) = branches.append("mine")
    assert entry.cut_back
    branches.ledger.path.write_bytes(branches.ledger.path.read_bytes()[:-1])
    (entry,) = branches.append("mine")
    assert entry.ended_line
    assert branches.ledger.faults() == []


def test_ends_far_above_what_an_append_reads_are_joined(branches: Branches) -> None:
    branches.append("first")
    branches.commit()
    branches.on("other")
    for _ in range(400):
        branches.append("theirs")
    branches.commit()
    branches.on("main")
    (mine,) = branches.append("mine", "registered")
    branches.commit()
    branches.merge("other")
    assert branches.ledger.path.read_bytes().find(mine.sha256.encode()) < branches.ledger.path.stat().st_size - 2**16
    (joined,) = branches.append("theirs")
    assert joined.joins == (mine.sha256,)
    (after,) = branches.append("theirs")
    assert (after.previous, after.joins) == (joined.sha256, ())
    assert branches.ledger.faults() == []


def test_a_conflict_that_git_left_is_said_with_what_to_do(branches: Branches) -> None:
    (branches.folder / "studies" / ".gitattributes").write_bytes(b"ledger.jsonl -text\n")
    two_branches(branches)
    with pytest.raises(subprocess.CalledProcessError):
        branches.merge("other")
    assert "a mark that git leaves in a conflict: keep the lines of both sides" in branches.ledger.faults()[0]
    rows = branches.ledger.path.read_bytes().splitlines(keepends=True)
    branches.ledger.path.write_bytes(b"".join(row for row in rows if row.startswith(b"{")))
    assert branches.ledger.faults() == []


@pytest.mark.parametrize(
    ("here", "there", "is_named"),
    [
        (("started",), ("started",), True),
        (("amended",), ("decided",), True),
        (("decided",), ("decided",), False),
        (("reported",), ("amended", "started"), False),
        (("reported", "sealed"), ("attested", "peeked"), True),
    ],
)
def test_a_study_that_two_branches_continued_is_named(
    branches: Branches, here: tuple[Event, ...], there: tuple[Event, ...], *, is_named: bool
) -> None:
    branches.append("first", "registered")
    branches.commit()
    branches.on("other")
    branches.append("first", *there)
    branches.append("theirs", "registered")
    branches.commit()
    branches.on("main")
    branches.append("first", *here)
    branches.commit()
    branches.merge("other")
    branches.append("mine", "registered")
    assert branches.ledger.faults() == []
    found = branches.ledger.continued_twice()
    assert set(found) == ({"first"} if is_named else set())
    if is_named:
        assert "'first' was continued on two branches" in found["first"]


def test_a_slice_of_a_merged_ledger_holds(branches: Branches, tmp_path: Path) -> None:
    two_branches(branches)
    branches.merge("other")
    branches.append("theirs")
    (tmp_path / "slice").mkdir()
    part = Ledger(tmp_path / "slice" / SLICE_NAME)
    part.path.write_bytes(sliced(branches.ledger.entries(), "mine"))
    assert part.faults() == []
    assert part.head() == branches.ledger.head()
    assert [entry.study for entry in part.entries()] == ["mine", "mine"]


def test_a_slice_keeps_what_follows_what_through_the_entries_of_others(branches: Branches, tmp_path: Path) -> None:
    two_branches(branches)
    branches.merge("other")
    branches.append("mine", "sealed")  # joins both branches
    branches.append("theirs", "finished")
    branches.minutes -= 10  # a clock that was set back: the links say what came first, and not the times
    branches.append("mine", "decided")
    branches.append("first")
    branches.append("mine", "amended")
    (tmp_path / "slice").mkdir()
    part = Ledger(tmp_path / "slice" / SLICE_NAME)
    part.path.write_bytes(sliced(branches.ledger.entries(), "mine"))
    assert part.faults() == [] and part.head() == branches.ledger.head()
    assert part.continued_twice() == {} == branches.ledger.continued_twice()
    of_mine = [entry for entry in branches.ledger.entries() if entry.study == "mine"]
    assert list(part.entries()) == of_mine
    assert [entry.event for entry in of_mine] == ["registered", "started", "sealed", "decided", "amended"]


def test_a_slice_names_a_study_that_two_branches_continued(branches: Branches, tmp_path: Path) -> None:
    branches.append("first", "registered")
    branches.commit()
    branches.on("other")
    branches.append("theirs", "registered")
    branches.append("first", "started")
    branches.commit()
    branches.on("main")
    branches.append("first", "started")
    branches.commit()
    branches.merge("other")
    (tmp_path / "slice").mkdir()
    part = Ledger(tmp_path / "slice" / SLICE_NAME)
    part.path.write_bytes(sliced(branches.ledger.entries(), "first"))
    assert part.continued_twice() == branches.ledger.continued_twice() != {}


def test_entries_are_in_time_order_whichever_side_is_first_in_the_file(branches: Branches) -> None:
    branches.append("first", "registered", "decided")
    branches.commit()
    branches.on("other")
    branches.append("first", "reported")
    branches.commit()
    branches.on("main")
    branches.append("first", "reported")
    branches.commit()
    branches.merge("other")
    times = [entry.at for entry in branches.ledger.entries()]
    assert times == sorted(times)
    assert branches.ledger.continued_twice() == {}


def test_a_time_that_is_none_stops_no_reading(branches: Branches) -> None:
    two_branches(branches)
    branches.merge("other")
    entries = [
        entry.model_copy(update={"at": at})
        for entry, at in zip(branches.ledger.entries()[:2], ("x", "2026-01-01"), strict=True)
    ]
    entries += branches.ledger.entries()[2:]
    assert len(places(entries)) == len(entries)
