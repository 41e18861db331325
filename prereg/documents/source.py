"""What a document is written from: a study, and where it is registered its lock and its entries in the ledger.

Entries that come after the registration (starts, seals, decisions) are left out, so that the document of a registration
does not change while the study runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from prereg.escape import visible
from prereg.registry.ledger import Entry, Ledger
from prereg.registry.paths import Root
from prereg.registry.registration import Registration, load_registration
from prereg.study.spec import Study
from prereg.text import listed, moment


@dataclass(frozen=True)
class Source:
    """A study to be told."""

    study: Study
    registration: Registration | None = None
    """None for a draft."""
    entries: tuple[Entry, ...] = ()
    """The ledger's entries that registered and amended it, oldest first."""

    @property
    def draft(self) -> bool:
        return self.registration is None

    @property
    def entry(self) -> Entry:
        """The entry of the registration in force."""
        assert self.entries, self.study.study
        return self.entries[-1]


def registered_source(root: Root, name: str) -> Source | None:
    """The source of a registered study; none when it is not registered."""
    registration = load_registration(root, name)
    if registration is None:
        return None
    entries = tuple(
        entry
        for entry in Ledger(root.ledger).readable()
        if entry.study == name and entry.event in ("registered", "amended")
    )
    return Source(registration.study, registration, entries)


EVIDENCE = {
    "none": "no run had been started",
    "runs started": "runs had been started, and no outcome had been read",
    "outcomes read": "outcomes had been read",
}
"""State of the evidence at an amendment -> what was known then."""


def status(source: Source) -> str:
    """The first line of every document: a draft, or which registration it tells."""
    if source.registration is None:
        return f'DRAFT: the study "{source.study.study}" is not registered. Nothing below binds anybody yet.'
    registration = source.registration
    amended = f", amending {registration.previous[:12]}" if registration.previous else ""
    at, name = moment(registration.registered_at), source.study.study
    return f'Registered {at} as {registration.sha256[:12]}{amended} (study "{name}").'


def identity(source: Source) -> str:
    """Which registration this is, so that a reader can check it."""
    registration = source.registration
    if registration is None:
        return ""
    text = f"Registration sha256: {registration.sha256}."
    if registration.previous:
        text += f" It amends {registration.previous[:12]}: {_ended(registration.reason or 'no reason recorded')}"
    if registration.override is not None:
        text += f" {override(source)}"
    return text


def override(source: Source) -> str:
    """An obstacle that was accepted on record."""
    assert source.registration is not None and source.registration.override is not None, source.study.study
    accepted = source.registration.override
    return (
        f"It was registered although the design says: {_ended(accepted.obstacle)} The reason given is: "
        f"{_ended(accepted.reason)}"
    )


def versions(source: Source) -> str:
    """What registered it."""
    assert source.registration is not None, source.study.study
    return f"Registered with {listed(f'{name} {version}' for name, version in source.registration.tool.items())}."


def amendments(source: Source) -> Iterator[tuple[Entry, str, list[tuple[str, str, str]]]]:
    """Every amendment: its entry, what was known by then, and (field, registered, now) of what changed."""
    for entry in source.entries:
        if entry.event == "amended":
            known = EVIDENCE.get(str(entry.body.get("evidence")), "what was known of outcomes was not recorded")
            yield entry, known, list(_differences(entry.body.get("differences")))


def _differences(listed_: JsonValue) -> Iterator[tuple[str, str, str]]:
    for one in listed_ if isinstance(listed_, list) else []:
        if isinstance(one, dict):
            yield str(one.get("field")), _value(one.get("registered")), _value(one.get("now"))


def _value(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _ended(text: str) -> str:
    text = visible(text.strip())
    return text if text.endswith((".", "!", "?")) else text + "."
