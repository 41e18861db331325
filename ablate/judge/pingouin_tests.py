"""The functions of pingouin that judging needs, without its plots.

`import pingouin` loads matplotlib and seaborn for its plots, which is most of what the import costs. So it is imported
with that one module left out. The first name that pingouin then lacks brings it in, whoever looks for it, so that a
notebook that plots with pingouin finds all of it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_PLOTS = "pingouin.plotting"


def _with_plots(name: str) -> Any:
    """A name that pingouin lacks, once its plots are loaded. Raises `AttributeError` where there is none even then."""
    package, plots = sys.modules["pingouin"], import_module(_PLOTS)
    vars(package).pop("__getattr__", None)
    vars(package).update({one: getattr(plots, one) for one in plots.__all__})
    return getattr(package, name)


if "pingouin" in sys.modules:
    import pingouin
else:
    sys.modules[_PLOTS] = ModuleType(_PLOTS)
    try:
        import pingouin
    finally:
        del sys.modules[_PLOTS]
    pingouin.__getattr__ = _with_plots

multicomp = pingouin.multicomp
ttest = pingouin.ttest
wilcoxon = pingouin.wilcoxon
