"""Reading a ledger whole: one chain of entries, or the lines of several branches as git merges them.

A merge that keeps the lines of both sides may leave them one side after the other or mixed, and a line may stand above
one that it follows. So of a merged ledger the hashes say what follows what, and not the order of its lines.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from prereg.registry.ledger_entry import FIRST, Entry, Reading, Withheld, parsed, read_lines
from prereg.registry.ledger_graph import Descent, heads, is_merged, places


def read_file(data: bytes, *, sliced: bool = False) -> Reading:
    """A whole file. The lines that this process last found sound are compared, and not verified again."""
    global _sound  # noqa: PLW0603 - several objects read one ledger
    lines, known = _sound  # at once: another thread may read another ledger
    if sliced or not data.startswith(lines):
        lines, known = b"", _NOTHING
    new = read_lines(
        data[len(lines) :], known.last, known.n_lines, next_index=known.next_index, joins=known.joins, sliced=sliced
    )
    reading = replace(new, entries=known.entries + new.entries, n_bytes=len(lines) + new.n_bytes)
    if reading.faults:
        reading = _read_merged(data, sliced=sliced) or reading
    if not sliced and not reading.faults:
        _sound = data[: reading.n_bytes], reading
    return reading


_NOTHING = Reading((), (), (), 0, b"", FIRST, 0, 0)
_sound = b"", _NOTHING


def _read_merged(data: bytes, *, sliced: bool) -> Reading | None:
    """A file that holds the lines of several branches; none where it does not. Its entries are in the order
    of `places`; where something is wrong, in that of the lines."""
    n_bytes = data.rfind(b"\n") + 1
    lines = [parsed(line, sliced=sliced) for line in data[:n_bytes].split(b"\n")[:-1]]
    # Where two people have merged each other's branches, git may leave a line twice: the same bytes say nothing new.
    first: dict[str, tuple[int, Entry | Withheld]] = {}
    for number, (one, _) in enumerate(lines, start=1):
        if one is not None:
            first.setdefault(one.sha256, (number, one))
    found = list(first.values())
    if not is_merged(one for _, one in found):
        return None
    faults = [(number, fault) for number, (_, fault) in enumerate(lines, start=1) if fault]
    n_unreadable = len(faults)  # each may be an entry that others name
    order: list[Entry | Withheld] = []
    waiting: dict[str, list[tuple[int, Entry | Withheld]]] = defaultdict(list)
    descent, indices = Descent(), {FIRST: -1}

    def place(number: int, entry: Entry | Withheld) -> None:
        """Take in an entry once all that it names are there, and then those that waited for it."""
        following = [(number, entry)]
        while following:
            number, entry = following.pop()
            lacking = next((one for one in (entry.previous, *entry.joins) if one not in indices), None)
            if lacking is not None:
                waiting[lacking].append((number, entry))
                continue
            fault = _misplaced(entry, indices, descent)
            if fault:
                faults.append((number, fault))
            indices[entry.sha256] = entry.index
            descent.add(entry)
            order.append(entry)
            following += reversed(waiting.pop(entry.sha256, []))

    for number, entry in found:
        place(number, entry)
    for lacking in [sha256 for sha256 in waiting if sha256 not in first]:
        if n_unreadable:
            n_unreadable -= 1
        else:
            number, entry = waiting[lacking][0]
            fault = f"holds the entry with index {entry.index}, and the entry {lacking[:8]} before it is missing"
            faults.append((number, fault))
    if waiting and not faults:  # entries that name each other in a circle, which no hash allows
        faults.append((len(lines), "names entries that name it"))
    faults.sort()
    shown = [one for one, _ in lines if one is not None] if faults else order
    entries = tuple(one for one in shown if isinstance(one, Entry))
    if not faults:  # the same on both sides of a merge, and in time within a study
        at = places(entries)
        entries = tuple(sorted(entries, key=lambda entry: at[entry.sha256]))
    last = heads(order)
    return Reading(
        entries,
        tuple(one for one in shown if isinstance(one, Withheld)),
        tuple(faults),
        n_bytes,
        data[n_bytes:],
        last[0].sha256 if last and not faults else None,
        len(lines),
        last[0].index + 1 if last else 0,
        tuple(one.sha256 for one in last[1:]),
    )


def _misplaced(entry: Entry | Withheld, indices: dict[str, int], descent: Descent) -> str:
    """What is wrong with the place that an entry takes after those that it names; empty where nothing is."""
    named = (entry.previous, *entry.joins)
    if entry.index != 1 + max(indices[one] for one in named):
        return f"holds the entry with index {entry.index}; entries are missing, or in another order"
    if entry.joins and (
        FIRST in named
        or any(one != other and descent.follows(one, other) for one in named for other in named)
        or len(set(named)) < len(named)
    ):
        return "joins entries of which one follows another"
    return ""
