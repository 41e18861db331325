"""What makes a command start sooner, in a process that runs one command and shows no library's documentation.

Most of the CPU time of `verify` and `decide` is the import of scipy.stats and pingouin, by which the deciding numbers
are computed a second time. With what is left out here `verify` of the quickstart takes 1.62 in place of 2.03 s.
Notebooks import none of this, so that there everything is as its authors made it.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_DOCUMENTS = "scipy._lib._docscrape"
_XARRAY = "pandas_flavor.xarray"
_OBJECTS = 100_000
"""Objects more than were freed, after which the collector looks for cycles among them; 700 is usual in Python 3.11."""


class _AsWritten:
    """In place of scipy's `FunctionDoc`: takes every change of a docstring, and gives it back as it was written."""

    def __init__(self, function: Any, **_: Any) -> None:
        self._text = function.__doc__ or ""

    def __getitem__(self, section: str) -> list[str]:
        return []

    def __setitem__(self, section: str, lines: list[str]) -> None:
        pass

    def __str__(self) -> str:
        return f"signature\n{self._text}"  # scipy cuts the first line off


class _Documents(ModuleType):
    """scipy's reader of docstrings, loaded when scipy first asks for it, with `_AsWritten` in its place."""

    def __getattr__(self, name: str) -> Any:
        del sys.modules[self.__name__]
        module = import_module(self.__name__)
        module.FunctionDoc = _AsWritten  # type: ignore[attr-defined]
        vars(self).update(vars(module))
        return getattr(module, name)


def quicken_imports() -> None:
    """Leave out what importing a library does for nobody here. Call it first in a process."""
    # Imports make a million objects and hardly any garbage.
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
    # scipy parses the docstrings of 600 functions and writes them again, with notes on array libraries.
    sys.modules.setdefault(_DOCUMENTS, _Documents(_DOCUMENTS))
    # pingouin imports pandas_flavor for its methods of frames, which imports all of xarray for methods of arrays.
    without = ModuleType(_XARRAY)
    vars(without).update(register_xarray_dataarray_method=None, register_xarray_dataset_method=None)
    sys.modules.setdefault(_XARRAY, without)
