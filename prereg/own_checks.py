"""A study's own checks of admissibility and own metrics: where their code lies, and the hash that is registered.

An entry point is `module:function`: a file beside the study (`studies/module.py`), or else a module that is installed.
Here its source is found, read and hashed; nothing of it is executed, and no package is imported to find it. The
function must be defined in that very file, at the top level: the hash is of that file and covers nothing it imports.
Running it is the matter of `ablate.judge.own_checks` and of `ablate.measure.own`.
"""

from __future__ import annotations

import ast
import importlib.util
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from prereg.canon import sha256_bytes
from prereg.errors import FieldPath, SpecError, Where
from prereg.own import OwnCheck, OwnMetric
from prereg.part import Part
from prereg.spec import Study

Brought = OwnCheck | OwnMetric
"""What a study brings of its own. Names of metrics have a stroke, and those of checks none: no two are alike."""


class CheckPin(Part):
    """What the name of a check or a metric meant at registration."""

    entry_point: str
    """module:function."""
    sha256: str
    """sha256 of the module's source file."""
    size_bytes: int
    """Its size."""


def pin_checks(study: Study, folder: Path) -> dict[str, CheckPin]:
    """What every check and metric of a study's own means now; `folder` is the one that the study's file lies in."""
    pins = {}
    for index, own in brought(study):
        _, source = read_source(own, folder, index=index)
        pins[own.name] = CheckPin(entry_point=own.entry_point, sha256=sha256_bytes(source), size_bytes=len(source))
    return pins


def brought(study: Study) -> tuple[tuple[int, Brought], ...]:
    """Everything that a study brings, each with its place among its kind."""
    return (*enumerate(study.checks), *enumerate(study.measure.own))


def kind_of(own: Brought) -> str:
    """`check` or `metric`."""
    return "check" if isinstance(own, OwnCheck) else "metric"


def read_source(check: Brought, folder: Path, *, index: int = 0) -> tuple[Path, bytes]:
    """The file of a check or a metric and its bytes; `SpecError` when there is none, or it defines no such function."""
    module, function = check.entry_point.split(":")
    place: FieldPath = ("checks",) if isinstance(check, OwnCheck) else ("measure", "own")
    where = Where(field=(*place, index, "entry_point"))
    path = _file_of(module, folder)
    if path is None:
        raise SpecError(
            f"there is no module '{module}' whose source can be read",
            required="a file next to the study, or an installed module written in Python",
            fix=f"write {folder / (module + '.py')}" if "." not in module else f"install the package of {module}",
            where=where,
        )
    try:
        source = path.read_bytes()
        found = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    except (OSError, SyntaxError, ValueError) as error:
        raise SpecError(
            f"{path.name} cannot be read as Python: {error}", required="Python source", where=where
        ) from None
    if function not in found:
        raise SpecError(
            f"{path.name} defines no function '{function}'",
            required="a plain function at the top level of that file: the registered hash is of that file alone",
            fix=f"def {function}({'records' if isinstance(check, OwnCheck) else 'view'}): ...",
            where=where,
        )
    return path, source


def _file_of(module: str, folder: Path) -> Path | None:
    """The source file of a module, found without importing it or the packages that hold it."""
    beside = folder / f"{module}.py"
    if "." not in module and beside.is_file():
        return beside
    first, *rest = module.split(".")
    try:
        spec: ModuleSpec | None = importlib.util.find_spec(first)  # of a top-level name, this imports nothing
    except (ImportError, ValueError):
        return None
    name = first
    for part in rest:
        name = f"{name}.{part}"
        within = None if spec is None else spec.submodule_search_locations
        spec = None if within is None else PathFinder.find_spec(name, list(within))
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    path = Path(spec.origin)
    return path if path.is_file() else None
