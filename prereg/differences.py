"""What differs between a registration and what is here now, field by field; and the refusal that names it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from prereg.canon import canonical_bytes, sha256_bytes
from prereg.command import ScriptPin
from prereg.errors import FieldPath, RegistrationError, Where, dotted
from prereg.load import Loaded
from prereg.own_checks import CheckPin, pin_checks
from prereg.part import Part
from prereg.registration import CorpusPin, DataPins, Registration
from prereg.spec import Study
from prereg.task_pin import TaskPin

ABSENT = "(absent)"
"""What a difference says of a field that one side lacks."""


class Difference(Part):
    """One field that is not what was registered."""

    field: str
    """Its dotted path."""
    registered: JsonValue
    """The registered value; `(absent)` where there was none."""
    now: JsonValue
    """The value now."""


def differing_fields(old: Study, new: Study) -> list[Difference]:
    """The fields of a study that are not what was registered, both resolved whole."""
    found = differences(plain(old), plain(new), ())
    if not found and list(old.factors) != list(new.factors):
        return [Difference(field="factors", registered=list(old.factors), now=list(new.factors))]
    return found


def as_registered(registration: Registration, loaded: Loaded) -> Loaded:
    """The file with the study that was registered from the same bytes; a file of other bytes as it is.

    A default that has changed since then changes no registered study.
    """
    if sha256_bytes(loaded.source_bytes) != registration.source_sha256:
        return loaded
    return replace(loaded, study=registration.study)


def require_unchanged(registration: Registration, loaded: Loaded) -> None:
    """Raise `RegistrationError` when the study, or the code of one of its own checks, is not as registered any more."""
    loaded = as_registered(registration, loaded)
    name = loaded.study.study
    refuse_change(loaded.path, name, registration, differing_fields(registration.study, loaded.study))
    pins = pin_checks(loaded.study, loaded.path.parent)
    refuse_change(
        loaded.path, name, registration, differences(code_of(registration.own_checks), code_of(pins), ("own_checks",))
    )


def refuse_change(path: Path, name: str, registration: Registration, differences: list[Difference]) -> None:
    if not differences:
        return
    shown = [f"{d.field} (registered {_short(d.registered)}, now {_short(d.now)})" for d in differences[:5]]
    more = f", and {len(differences) - 5} more" if len(differences) > 5 else ""
    raise RegistrationError(
        f"'{name}' is not what was registered on {registration.registered_at}: " + ", ".join(shown) + more,
        required=f"the study of registration {registration.sha256[:8]}",
        fix=f'ablate amend {path} --reason "..."; or copy the file under another name and register that',
        where=Where(file=path),
    )


def differing_pins(
    registered: Registration,
    corpus: CorpusPin | None,
    scripts: tuple[ScriptPin, ...] | None,
    data: DataPins | None = None,
    *,
    tasks: TaskPin | None = None,
    data_files: tuple[ScriptPin, ...] = (),
) -> list[Difference]:
    was, now = ({pin.path: pin.sha256 for pin in pins or ()} for pins in (registered.scripts, scripts))
    read, reads = ({pin.path: pin.sha256 for pin in pins} for pins in (registered.data_files, data_files))
    return [
        *differences(plain(registered.corpus), plain(corpus), ("corpus",)),
        *differences(plain(registered.data), plain(data), ("data",)),
        *differences(dict(was), dict(now), ("scripts",)),
        *differences(dict(read), dict(reads), ("data_files",)),
        *differences(plain(registered.tasks), plain(tasks), ("tasks",)),
    ]


def differences(old: JsonValue, new: JsonValue, path: FieldPath) -> list[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            found
            for key in dict.fromkeys([*old, *new])
            for found in differences(old.get(key, ABSENT), new.get(key, ABSENT), (*path, key))
        ]
    if (
        isinstance(old, list)
        and isinstance(new, list)
        and len(old) == len(new)
        and all(isinstance(item, dict) for item in [*old, *new])
    ):
        return [
            found
            for index, (a, b) in enumerate(zip(old, new, strict=True))
            for found in differences(a, b, (*path, index))
        ]
    # As canonical bytes: to Python, true equals 1.
    if canonical_bytes(old) == canonical_bytes(new):
        return []
    return [Difference(field=dotted(path), registered=old, now=new)]


def code_of(pins: dict[str, CheckPin]) -> dict[str, Any]:
    return {name: plain(pin) for name, pin in pins.items()}


def plain(part: Part | None) -> Any:
    return None if part is None else part.model_dump(mode="json")


def _short(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
