"""Registered source as a module: what is executed is the very bytes that were hashed, not a compiled copy beside them.

Nothing is decided here about whether it may run: who calls this has compared the bytes with the registration.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from importlib.abc import InspectLoader
from pathlib import Path
from types import CodeType, ModuleType


@contextlib.contextmanager
def loading(name: str, path: Path, source: bytes) -> Iterator[Callable[[], ModuleType]]:
    """What executes these bytes and gives their module, which is known under its name for as long as the block lasts.

    Apart from each other, so that a limit can be set to what the code does and to nothing that is tidied up after it.
    """
    spec = importlib.util.spec_from_loader(name, _Bytes(path, source), origin=str(path))
    assert spec is not None, name
    if spec.submodule_search_locations is not None:
        spec.submodule_search_locations = [str(path.parent)]
    module = importlib.util.module_from_spec(spec)
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
