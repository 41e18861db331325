"""The language-model evaluation harness is an optional extra, loaded late and shut off from the network.

Its import takes seconds and brings much with it, so nothing here imports it before tasks are evaluated. A study that
asks for it where it is missing is refused before anything is registered.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from prereg.errors import UnsupportedError, Where
from prereg.registry import disk

WANTED = "0.4.13"
"""The version whose numbers, task objects and records this package was checked against."""
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def installed() -> str | None:
    """The version of the harness that is installed, or none."""
    try:
        return version("lm_eval")
    except PackageNotFoundError:
        return None


def require_extra() -> str:
    """The installed version, which must be the one we know; checked before anything is registered."""
    found = installed()
    if found != WANTED:
        missing = "lm_eval, the language-model evaluation harness, is not installed"
        raise UnsupportedError(
            missing if found is None else f"lm_eval {found} is installed",
            required=f"lm_eval {WANTED}: another version may ask and score in another way",
            fix=f"pip install 'ablate-prereg[harness]'   (or: pip install lm_eval=={WANTED})",
            where=Where(field=("measure", "harness")),
        )
    return found


@cache
def load_harness(*, network: bool = False) -> None:
    """Import the harness, quiet, and without a network unless its own tasks need one.

    What its libraries cache goes into a folder that ends with the process, so that no earlier data is mistaken for what
    is on disk now.
    """
    require_extra()
    os.environ.setdefault("TQDM_DISABLE", "1")
    if not network:
        os.environ.update(_OFFLINE)
        if "datasets" not in sys.modules:
            os.environ["HF_HOME"] = _scratch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import datasets
        import lm_eval.api.task
        import lm_eval.evaluator
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    # Its bars would fill the worker's log; the variable above is read only by the first import of tqdm.
    lm_eval.api.task.tqdm = _plain


def _plain(things: object, **_: object) -> object:
    return things


@cache
def _scratch() -> str:
    return str(disk.make("harness"))
