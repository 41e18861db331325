"""Entries of a ledger for tests, which name the fields that a claim is about: all others get a value of no meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_origin

from prereg.frozen import FrozenModel
from prereg.registry.canon import sha256_of
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import FIRST, HEADER, Entry, entry_kind, entry_of

HASH = "a" * 64
AT = "2026-01-02T03:04:05+00:00"

_FILLING = {str: "0" * 64, int: 1, bool: True, dict: {}, tuple: [], float: 1.0}


def _filling(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, FrozenModel):
        return {name: None if type(None) in get_args(field.annotation) else _filling(get_origin(field.annotation))
                for name, field in kind.model_fields.items()}  # fmt: skip
    return _FILLING.get(kind, kind)


def line(event: str, body: Mapping[str, Any], **header: Any) -> dict[str, Any]:
    """The JSON object of an entry's line; what of body and header is not given says nothing."""
    kind = entry_kind(event, body)
    filled = dict(body)
    for name, field in kind.model_fields.items():
        key = kind.keys.get(name, name)
        if field.is_required() and name not in Entry.model_fields and key not in filled:
            choices = get_args(field.annotation)
            plain = get_origin(field.annotation) or field.annotation
            first = choices[0] if choices and plain not in _FILLING else plain
            filled[key] = None if type(None) in choices else _filling(first)
    fields = {"format": 1, "index": 0, "at": AT, "study": "s", "registration": HASH, "previous": FIRST, "joins": []}
    fields |= header | {"event": event, "body": filled}
    return fields | {"sha256": sha256_of({name: value for name, value in fields.items() if name != "sha256"})}


def entry(event: str, body: Mapping[str, Any], **header: Any) -> Entry:
    """An entry that is in no ledger, with a right hash."""
    return entry_of(line(event, body, **header))


def enter(ledger: Ledger, event: str, body: Mapping[str, Any], **header: Any) -> Entry:
    """Put an entry into a ledger; returns it as the ledger has it."""
    return ledger.append(entry(event, body, **header))


assert set(HEADER) == set(line("finished", {})) - {"body"}
