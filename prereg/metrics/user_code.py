"""Code of a study's own checks and metrics: where it lies, and the hash that is registered; it is run elsewhere.

An entry point is `module:function`: a file next to the study (`studies/module.py`), or else a module that is installed.
Here its source is found, read and hashed; nothing of it is executed, and no package is imported to find it. The
function must be defined in that very file, at the top level: the hash is of that file and covers nothing it imports.
Running it is the matter of `ablate.judge.audit.user_checks` and of `ablate.evaluation.user_metrics`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import TypeVar

from prereg.errors import FieldPath, SpecError, field_error
from prereg.frozen import FrozenModel
from prereg.registry.canon import sha256_bytes
from prereg.study.measure import OwnCheck, OwnMetric
from prereg.study.spec import Study

OwnCode = OwnCheck | OwnMetric
"""What a study brings of its own. Names of metrics have a stroke, and those of checks none: no two are alike."""


class CheckPin(FrozenModel):
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
    for index, own in own_code(study):
        _, source = read_source(own, folder, index=index)
        pins[own.name] = CheckPin(entry_point=own.entry_point, sha256=sha256_bytes(source), size_bytes=len(source))
    return pins


def own_code(study: Study) -> tuple[tuple[int, OwnCode], ...]:
    """Everything that a study brings, each with its place among its kind."""
    return (*enumerate(study.checks), *enumerate(study.measure.own))


def kind_of(own: OwnCode) -> str:
    """`check` or `metric`."""
    return "check" if isinstance(own, OwnCheck) else "metric"


def read_source(check: OwnCode, folder: Path, *, index: int = 0) -> tuple[Path, bytes]:
    """The file of a check or a metric and its bytes; `SpecError` when there is none, or it defines no such function."""
    module, function = check.entry_point.split(":")
    kind: FieldPath = ("checks",) if isinstance(check, OwnCheck) else ("measure", "own")
    place = (*kind, index, "entry_point")
    # Where it lies: next to the study, or installed.
    path = _file_of(module, folder)
    if path is None:
        raise field_error(
            place,
            f"there is no module '{module}' whose source can be read",
            "a file next to the study, or an installed module written in Python",
            f"write {folder / (module + '.py')}" if "." not in module else f"install the package of {module}",
        )
    try:
        source = path.read_bytes()
        # By the text, and only at the top level: what a name means after the module has run is known by running it.
        functions = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    except (OSError, SyntaxError, ValueError) as error:
        raise field_error(place, f"{path.name} cannot be read as Python: {error}", "Python source") from None
    if function not in functions:
        raise field_error(
            place,
            f"{path.name} defines no function '{function}'",
            "a plain function at the top level of that file: the registered hash is of that file alone",
            f"def {function}({'records' if isinstance(check, OwnCheck) else 'view'}): ...",
        )
    return path, source


def read_registered(check: OwnCode, folder: Path, pins: Mapping[str, CheckPin]) -> tuple[Path, bytes]:
    """The same of code that was registered; `SpecError`, whose `found` says why, where it is not what was."""
    path, source = read_source(check, folder)
    pin = pins.get(check.name)
    if pin is None or sha256_bytes(source) != pin.sha256:
        raise SpecError(f"{path.name} has changed", required="the code that was registered")
    return path, source


def _file_of(module: str, folder: Path) -> Path | None:
    """The source file of a module, found without importing it or the packages that hold it."""
    local = folder / f"{module}.py"
    if "." not in module and local.is_file():
        return local
    first, *rest = module.split(".")
    try:
        spec: ModuleSpec | None = importlib.util.find_spec(first)  # of a top-level name, this imports nothing
    except (ImportError, ValueError):
        return None
    # `find_spec("a.b")` would import a; each level is looked up in the folders of the one above instead.
    name = first
    for part in rest:
        name = f"{name}.{part}"
        within = None if spec is None else spec.submodule_search_locations
        spec = None if within is None else PathFinder.find_spec(name, list(within))
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    path = Path(spec.origin)
    return path if path.is_file() else None


@contextlib.contextmanager
def loading(name: str, path: Path, source: bytes) -> Iterator[Callable[[], ModuleType]]:
    """What executes these bytes and gives their module, which is known under its name for as long as the block lasts.

    Apart from each other, so that a limit can be set to what the code does and to nothing that is tidied up after it.
    """
    # From the bytes that were hashed: the file may change between its hash and its import.
    spec = importlib.util.spec_from_loader(name, _Bytes(path, source), origin=str(path))
    assert spec is not None, name
    if spec.submodule_search_locations is not None:
        spec.submodule_search_locations = [str(path.parent)]
    module = importlib.util.module_from_spec(spec)
    # Known by its name while it runs, as dataclasses want it, and afterwards no longer: the next study may
    # bring another module of that name.
    before = sys.modules.get(name)
    sys.modules[name] = module

    def execute() -> ModuleType:
        assert spec is not None and spec.loader is not None, name
        spec.loader.exec_module(module)
        return module

    try:
        yield execute
    finally:
        if before is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = before


class _Bytes(InspectLoader):
    """Loads a module from bytes that were hashed."""

    def __init__(self, path: Path, source: bytes) -> None:
        self.path, self.source = path, source

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self.source)

    def get_code(self, fullname: str) -> CodeType:
        # With the name of its file, so that a traceback says where in it.
        return self.source_to_code(self.source, str(self.path))

    def is_package(self, fullname: str) -> bool:
        return self.path.name == "__init__.py"


AGAIN_S = 1.0
"""Seconds between interruptions of code that goes on all the same."""

T = TypeVar("T")


class Overdue(BaseException):
    """The limit has passed. No `Exception`: what the interrupted code makes of its own errors must not catch it."""


def at_most(seconds: float, work: Callable[[], T]) -> T:
    """What the work returns; `Overdue` where it takes longer, whatever the code made of the interruption.

    The alarm rings in a process's main thread, between two steps of Python. Work in another thread, and a call of C, is
    not interrupted: it is late when it has ended.
    """
    due = time.monotonic() + seconds
    alone = threading.current_thread() is not threading.main_thread()
    try:
        value = work() if alone else _under_alarm(seconds, work)
    except BaseException as error:
        if time.monotonic() >= due:
            raise Overdue from error
        raise
    if time.monotonic() >= due:
        raise Overdue
    return value


def _under_alarm(seconds: float, work: Callable[[], T]) -> T:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Overdue

    began = time.monotonic()
    # An alarm of somebody else waits, and rings afterwards.
    left, every = signal.setitimer(signal.ITIMER_REAL, 0.0)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
        try:
            return work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    finally:
        # Reached where the alarm rang just before it was stopped, too: the next one is a second away.
        signal.signal(signal.SIGALRM, before)
        rest = max(left - (time.monotonic() - began), 1e-3) if left else 0.0
        signal.setitimer(signal.ITIMER_REAL, rest, every)
