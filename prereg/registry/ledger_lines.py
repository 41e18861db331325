"""An entry's hash and its link to the one before (`entry_line`): lines of a ledger, written, read, found damaged."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, TypeVar

from pydantic import Field, JsonValue, ValidationError

from prereg.errors import dotted
from prereg.frozen import FrozenModel
from prereg.registry.canon import canonical_bytes, from_canonical, sha256_bytes, sha256_of
from prereg.registry.ledger_entry import HEADER, Entry, entry_of

K = TypeVar("K", bound=Entry)


class Withheld(FrozenModel):
    """What a slice shows of an entry that it does not show: its link in the chain, and nothing that can be checked."""

    index: int
    """Its index."""
    previous: str
    """sha256 of the entry before."""
    joins: Annotated[tuple[str, ...], Field(strict=False)]
    """sha256 of the last entries of other branches, where it is the first one after a merge."""
    sha256: str
    """sha256 of the entry, as the slice states it."""


@dataclass(frozen=True)
class Reading:
    """A ledger file, as far as it was read."""

    chain: tuple[Entry | Withheld, ...]
    """Every line that is sound in itself, whatever its place in the chain; of a slice with the links between."""
    faults: tuple[tuple[int, str], ...]
    """(line, what is wrong) of every damaged line."""
    n_bytes: int
    """Of all terminated lines."""
    tail: bytes
    """What follows the last end of line: empty, an entry whose end was not written, or the torso of one."""
    last: str | None
    """The hash that the next entry must name; none where the last line cannot be read."""
    n_lines: int
    """Lines of the file up to here."""
    next_index: int
    """The index of the next entry: `n_lines`, unless git has merged branches."""
    joins: tuple[str, ...] = ()
    """The other hashes that the next entry must name: the last entries of other branches."""

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of the chain."""
        return tuple(entry for entry in self.chain if isinstance(entry, Entry))

    @cached_property
    def withheld(self) -> tuple[Withheld, ...]:
        """The links of the chain that a slice shows in place of entries."""
        return tuple(entry for entry in self.chain if isinstance(entry, Withheld))


def read_lines(
    data: bytes,
    previous: str | None,
    n_lines: int,
    *,
    next_index: int,
    joins: tuple[str, ...] = (),
    sliced: bool = False,
) -> Reading:
    """What lines say of one branch that follow so many others, the last of which has the hash `previous`. After a
    merge, `joins` are the last ones of the other branches, and the first line names them too."""
    n_bytes = data.rfind(b"\n") + 1
    chain: list[Entry | Withheld] = []
    faults: list[tuple[int, str]] = []
    # Split at \n alone: splitlines would end a line at \r, too.
    for line in data[:n_bytes].split(b"\n")[:-1]:
        entry, fault = parsed(line, sliced=sliced)
        if entry is not None:
            # The three links to the line before: position, hash, and after a merge the ends of the other
            # branches.
            if entry.index != next_index:
                fault = f"holds the entry with index {entry.index}; entries are missing, or in another order"
            elif previous is not None and entry.previous != previous:
                fault = "does not carry the hash of the line before"
            elif entry.joins != joins:
                fault = "does not carry the hashes of the branches that were merged before it"
            chain.append(entry)
        if fault:
            faults.append((n_lines + 1, fault))
        # After a line that cannot be read the next one's `previous` is not compared: one damage, one fault.
        previous, joins = (entry.sha256 if entry is not None else None), ()
        n_lines, next_index = n_lines + 1, next_index + 1
    tail = data[n_bytes:]
    return Reading(tuple(chain), tuple(faults), n_bytes, tail, previous, n_lines, next_index, joins)


def entry_line(
    entry: K, *, index: int, previous: str, joins: tuple[str, ...], repaired: dict[str, JsonValue]
) -> tuple[K, bytes]:
    """The entry at its place in the chain, and its line without the end of line. `repaired` is what its append adds."""
    # The hash is over all other fields in canonical form; the line is canonical too, so each entry has one form.
    content: dict[str, JsonValue] = {
        "format": 1,
        "index": index,
        "at": entry.at,
        "event": entry.event,
        "study": entry.study,
        "registration": entry.registration,
        "body": entry.stated | repaired,
        "previous": previous,
        "joins": list(joins),
    }
    content["sha256"] = sha256_of(content)
    line = canonical_bytes(content)
    # What is read back is what the line says: 1.0 is written as 1.
    placed, fault = parsed(line, sliced=False)
    assert isinstance(placed, type(entry)), (fault, placed)
    return placed, line


_PLAIN = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_NO_SMALL_INTEGER = re.compile(rb'(?:":|[\[,])-?\d+(?:[.eE]|\d{15})')
"""Finds every number that is a fraction or not far from 2^53; what it finds in a text as well does no harm."""


_CONFLICT = (b"<<<<<<<", b"|||||||", b"=======", b">>>>>>>")


@lru_cache(maxsize=2**12)
def parsed(line: bytes, *, sliced: bool) -> tuple[Entry | Withheld | None, str]:
    """The entry of a line that is sound in itself, or of a slice its link, or what is wrong with the line.

    >>> parsed(b"{", sliced=False)
    (None, 'is not JSON')
    """
    try:
        content = from_canonical(line)
        # Canonical JSON (RFC 8785) differs from `json.dumps` in fractions, in whole numbers from 2^53 on, and in the
        # order of names beyond ASCII; a line without any of these is checked faster.
        plain = line.isascii() and not _NO_SMALL_INTEGER.search(line)
        if line != (_PLAIN.encode(content).encode() if plain else canonical_bytes(content)):
            return None, "is not in canonical bytes: it was edited"
    except (ValueError, RecursionError):
        if line.startswith(_CONFLICT):
            return None, "is a mark that git leaves in a conflict: keep the lines of both sides, and delete the marks"
        return None, "is not JSON"
    try:
        names = content.keys() if isinstance(content, dict) else set()
        # The hash first: of a line that was edited, that is what is wrong with it, whatever it says now.
        if isinstance(content, dict) and names == {*HEADER, "body"} and not _has_its_hash(line, content):
            return None, "its content does not match its hash: it was edited"
        is_link = sliced and names == Withheld.model_fields.keys()
        # A link has no body; where a whole ledger has one in place of an entry, `entry_of` refuses it.
        return (Withheld.model_validate(content) if is_link else entry_of(content)), ""
    except ValueError as error:
        return None, f"is not an entry of a ledger: {_reason(error)}"


def _has_its_hash(line: bytes, content: dict[str, JsonValue]) -> bool:
    # The names of a canonical line are in order: the hash, then the study. Quotes within a text are escaped.
    sha256 = str(content["sha256"])
    before, _, after = line.rpartition(b'"sha256":"%s","study":' % sha256.encode())
    return sha256_bytes(before + b'"study":' + after) == sha256


def _reason(error: ValueError) -> str:
    """What is wrong with the object of a line, in a clause; of a field of its body, with the body's name."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False)[0]
    field = dotted(first["loc"])
    return f"{field if field in HEADER else f'body.{field}'}: {first['msg'][:1].lower()}{first['msg'][1:]}"
