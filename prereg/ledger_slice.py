"""A ledger for others: the entries of one study whole, those of other studies as links of the chain alone.

An entry's hash is taken over all its fields, so an entry that is withheld can only be stood for by its own hash and
that of the entry before. The links keep order and head checkable. What they cannot show is what they stand for: that a
withheld entry is of another study is the word of whoever made the slice. A whole ledger leaves nothing to be believed.
Entries of other studies that the study's verdict rests on are shown too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from prereg.canon import canonical_bytes
from prereg.ledger import Entry, Withheld


def sliced(entries: Sequence[Entry], study: str | None, also: Collection[int] = ()) -> bytes:
    """The bytes of a slice that shows the entries of one study and those of the indices in `also`; of the whole ledger,
    if no study is named."""
    lines = []
    for entry in entries:
        shown = study is None or entry.study == study or entry.index in also
        part = entry if shown else Withheld(index=entry.index, previous=entry.previous, sha256=entry.sha256)
        lines.append(canonical_bytes(part.model_dump(mode="json")) + b"\n")
    return b"".join(lines)
