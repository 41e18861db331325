"""Lines of a ledger: each one entry, in canonical bytes with its hash; and what is wrong with a line that is none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, JsonValue, ValidationError

from prereg.frozen import FrozenModel
from prereg.registry.canon import canonical_bytes, from_canonical, sha256_bytes, sha256_of

Event = Literal[
    "registered", "amended", "started", "breached", "sealed", "failed", "finished", "looked", "decided", "peeked",
    "imported", "attested", "reported", "reworded", "tuned", "continued",
]  # fmt: skip

_RUN = {"variant": "its arm", "seed": "its seed"}
_SEAL = {
    **_RUN,
    "status": "`done` or `diverged`",
    "attempts": "times that the run was started",
    "metrics_sha256": "sha256 of its metrics.parquet",
    "outcome_sha256": "sha256 over its repeatable metrics",
    "items_sha256": "sha256 of its items.parquet, where items were scored",
    "run_sha256": "sha256 of its run.json",
    "recipe_sha256": "sha256 over what its values follow from: configuration, code, data and seed",
}
_PROMISE = {
    "lock_sha256": "sha256 of the lock's bytes",
    "source_sha256": "sha256 of the bytes of the study's file",
    "file": "the study's file, from the root",
    "override": "what registration would have refused, and the reason to accept it",
    "same_runs_as": "other registered studies with the same arms and seeds",
}
_LOOK = {"evidence": "sha256 over the sealed records that were read"}
EVENTS: Mapping[Event, tuple[str, Mapping[str, str]]] = {
    "continued": (
        "this ledger begins where one of another format ended; of no study",
        {
            "ledger": "the file of that ledger, from the root",
            "ledger_sha256": "sha256 of its bytes",
            "entries": "how many it has",
            "head": "sha256 of its last entry",
        },
    ),
    "registered": ("the study was registered for the first time", _PROMISE),
    "amended": (
        "the registration was replaced by a changed one",
        _PROMISE
        | {
            "previous": "sha256 of the registration that is replaced",
            "runs_of": "sha256 of the registration whose runs are kept; absent where runs are made anew",
            "reason": "why, in the user's words",
            "evidence": "what was known by then: `none`, `runs started` or `outcomes read`",
            "failed_runs": "runs that had failed, where they are no evidence",
            "differences": "field, registered value and value now of every change",
        },
    ),
    "reworded": (
        "title or question were changed, and nothing else",
        {
            "words": "the new title or question",
            "reason": "why, in the user's words",
            "file": _PROMISE["file"],
            "source_sha256": _PROMISE["source_sha256"],
        },
    ),
    "started": (
        "`ablate run` began to make runs (the first five fields), or one run was started (the others)",
        {
            "runs": "runs to be made",
            "of": "planned runs",
            "slots": "runs at the same time",
            "code": "sha256 of the code that runs execute",
            "trained_again": "runs among them that were sealed before",
            **_RUN,
            "attempt": "which start of this run",
            "resumed_from": "the step at which it resumes",
            "left_values": "whether the attempt before it, whose values are given up, had recorded one of a claimed "
            "metric",
            "recipe_sha256": _SEAL["recipe_sha256"],
            "made_with": "sha256 of the code, versions and hardware that may change a bit of the result",
            "launcher": "what a run that is made elsewhere was handed to, in place of `made_with`: `slurm`, `ray` or "
            "`commands`",
        },
    ),
    "breached": (
        "a run exceeded a limit of its budget; it still counts",
        _RUN
        | {
            "limit": "the field of the budget",
            "promised": "its value",
            "measured": "what the run took",
            "metrics_sha256": _SEAL["metrics_sha256"],
        },
    ),
    "sealed": (
        "a run ended and was sealed",
        _SEAL
        | {
            "recovered": "true where a later `ablate run` found the run sealed and not in the ledger",
            "without_start": "attempts at it of which this ledger has no start",
            "redrawn": "attempts whose values of a claimed metric a resumed one replaced by others",
        },
    ),
    "failed": (
        "a run ended in an error",
        _RUN
        | {
            "error": "its last line",
            "left_values": "whether it left a value of a claimed metric",
            "wrote_in": "ARM/SEED/FILE of other runs that were written in while it was made",
        },
    ),
    "finished": ("every planned run is sealed", {"runs": "how many"}),
    "imported": (
        "a run made elsewhere was taken in",
        _SEAL
        | {
            "bound": "whether it names this registration; other runs are exploratory",
            "note": "where it comes from, in the user's words",
            "import_sha256": "sha256 over all runs of the same import",
            "replayed": "true where it was made before the registration",
        },
    ),
    "tuned": (
        "a pilot's choice was frozen",
        {
            "chosen": "arm -> the setting chosen",
            "by": "the metric that chose",
            "means": "run of the pilot -> mean of that metric",
            "pilot_runs": "runs that the choice rests on",
        },
    ),
    "looked": (
        "a planned look of a sequential study was taken",
        {
            "look": "which, from 1",
            "of": "planned looks",
            "seeds": "seeds that it saw",
            **_LOOK,
            "final": "whether it ended the study",
        },
    ),
    "peeked": (
        "somebody looked at results early",
        {
            "reason": "why, in the user's words",
            "ended": "runs that had ended",
            "planned": "planned runs",
            **_LOOK,
            "took_place": "when, where the look was recorded afterwards",
        },
    ),
    "decided": (
        "the rule was applied",
        {
            "status": "`decided`, `decided_with_deviations`, `inconclusive` or `inadmissible`",
            "verdict": "the registered words; null without a verdict",
            "verdict_sha256": "sha256 of verdict.json",
            "code": "sha256 over the sources of ablate that judged and worded it",
            **_LOOK,
        },
    ),
    "reported": (
        "reports of a decision were written",
        {
            "decision": "sha256 of the entry of the decision",
            "report.md": "sha256 of that page",
            "report.html": "sha256 of that page",
            "published": "sha256 of the published figures that they show",
        },
    ),
    "attested": (
        "a seal of the lock was made",
        {
            "kind": "`ssh`, `rfc3161` or `git`",
            "lock_sha256": _PROMISE["lock_sha256"],
            "by": "fingerprint of the key, `openssl ts` of a timestamp, or hash of the commit",
            "file": "the seal's file, from the root",
            "sha256": "sha256 of that file",
            "time": "the time that the seal states",
            "git": "of a commit: the state of the repository around the lock",
        },
    ),
}
"""What each event says, and the fields of its body, for the documentation. A field that does not apply is left out."""

SEALS: tuple[Event, ...] = ("sealed", "imported")
"""The events that bind a run to its hashes: one made here, one imported."""

PROMISES: tuple[Event, ...] = ("registered", "amended")
"""The events that make a promise: a study's first one, and those that replace it."""

REPAIRS = ("cut_back", "ended_line")
"""What an append adds to the body where it repaired what a crash had left behind."""

FIRST = "0" * 64
"""What the first entry names as the hash of the one before."""


class Entry(FrozenModel):
    """One line of the ledger."""

    format: Literal[1]
    """The version of the format."""
    index: int
    """How many entries lead to it, of several branches on the longest. Until a merge, its position from 0."""
    at: str
    """When it was appended: ISO 8601 with offset, by the caller's clock. The chain proves the order, not the time."""
    event: Event
    """What happened."""
    study: str
    """The study's id."""
    registration: str
    """sha256 of the registration it happened under."""
    body: dict[str, JsonValue]
    """What else is known of it."""
    previous: str
    """sha256 of the entry before."""
    joins: Annotated[tuple[str, ...], Field(strict=False)]
    """Where it is the first one after a merge: sha256 of the last entries of the other branches; else empty."""
    sha256: str
    """sha256 of the canonical bytes of all other fields."""

    @property
    def stated(self) -> dict[str, JsonValue]:
        """The body as it was given, without the repairs that its append made and added."""
        return {key: value for key, value in self.body.items() if key not in REPAIRS}


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

    entries: tuple[Entry, ...]
    """Every line that is sound in itself, whatever its place in the chain."""
    withheld: tuple[Withheld, ...]
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
    entries: list[Entry] = []
    withheld: list[Withheld] = []
    faults: list[tuple[int, str]] = []
    for line in data[:n_bytes].split(b"\n")[:-1]:
        found, fault = parsed(line, sliced=sliced)
        if found is not None:
            if found.index != next_index:
                fault = f"holds the entry with index {found.index}; entries are missing, or in another order"
            elif previous is not None and found.previous != previous:
                fault = "does not carry the hash of the line before"
            elif found.joins != joins:
                fault = "does not carry the hashes of the branches that were merged before it"
            if isinstance(found, Entry):
                entries.append(found)
            else:
                withheld.append(found)
        if fault:
            faults.append((n_lines + 1, fault))
        previous, joins = (found.sha256 if found is not None else None), ()
        n_lines, next_index = n_lines + 1, next_index + 1
    tail = data[n_bytes:]
    return Reading(tuple(entries), tuple(withheld), tuple(faults), n_bytes, tail, previous, n_lines, next_index, joins)


def line_of(
    index: int,
    previous: str,
    event: Event,
    *,
    joins: tuple[str, ...] = (),
    study: str,
    registration: str,
    body: Mapping[str, JsonValue],
    at: str,
) -> tuple[Entry, bytes]:
    """The entry of that index, which follows another and joins several, and its line without the end of line."""
    content: dict[str, JsonValue] = {
        "format": 1,
        "index": index,
        "at": at,
        "event": event,
        "study": study,
        "registration": registration,
        "body": dict(body),
        "previous": previous,
        "joins": list(joins),
    }
    content["sha256"] = sha256_of(content)
    line = canonical_bytes(content)
    # What is read back is what the line says: 1.0 is written as 1.
    entry, fault = parsed(line, sliced=False)
    assert isinstance(entry, Entry), fault
    return entry, line


_PLAIN = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_NO_SMALL_INTEGER = re.compile(rb'(?:":|[\[,])-?\d+(?:[.eE]|\d{15})')
"""Finds every number that is a fraction or not far from 2^53; what it finds in a text as well does no harm."""


_CONFLICT = (b"<<<<<<<", b"|||||||", b"=======", b">>>>>>>")


@lru_cache(maxsize=2**12)
def parsed(line: bytes, *, sliced: bool) -> tuple[Entry | Withheld | None, str]:
    """The entry of a line that is sound in itself, or of a slice its link, or what is wrong with the line."""
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
        if sliced and isinstance(content, dict) and content.keys() == Withheld.model_fields.keys():
            return Withheld.model_validate(content), ""
        entry = Entry.model_validate(content)
    except ValidationError:
        return None, "is not an entry of a ledger"
    # The names of a canonical line are in order: the hash, then the study. Quotes within a text are escaped.
    before, _, after = line.rpartition(b'"sha256":"%s","study":' % entry.sha256.encode())
    sound = sha256_bytes(before + b'"study":' + after) == entry.sha256
    return (entry, "") if sound else (None, "its content does not match its hash: it was edited")
