"""The order of tests over workers of pytest-xdist (`--dist loadfile`): what takes longest begins first.

A unit is what one worker runs in one go: a file, and of tests by launcher those of one launcher, since they share a
cluster. xdist alone begins with the file of most tests, so a file of two tests of minutes came last, on one worker
while the others had ended. Longest first is at most 4/3 of the shortest time there is (Graham, 1969).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

SECONDS = {
    "tests/runner/test_faults.py[ray]": 410,
    "tests/runner/test_faults.py[commands]": 310,
    "tests/runner/test_faults.py[slurm]": 240,
    "tests/cli/test_first_day.py": 230,
    "tests/runner/test_faults.py[local]": 180,
    "tests/runner/test_user_script.py[local]": 160,
    "tests/gpt/test_run.py": 120,
    "tests/gpt/test_without_torch.py": 100,
    "tests/runner/test_slurm.py": 100,
    "tests/evaluation/test_harness_offline_slow.py": 95,
    "tests/runner/test_user_script.py[slurm]": 86,
    "tests/runner/test_user_script.py[ray]": 72,
    "tests/runner/test_user_script.py[commands]": 50,
    "tests/docs/test_examples.py": 50,
    "tests/docs/test_public_records.py": 45,
    "tests/runner/test_ray.py": 40,
    "tests/runner/test_status_watch.py": 40,
}
"""Of the longest units, on two cores with other work (2026-11-27): only their order matters, so they may be stale."""
SECONDS_OF_A_TEST, SECONDS_OF_A_SLOW_TEST = 0.05, 2.2
"""Of all other tests on average, in the same run."""

_LAUNCHED = re.compile(r"\[(local|slurm|ray|commands)[-\]]")


def unit_of(nodeid: str) -> str:
    """The unit of a test, by its file and launcher.

    >>> unit_of("tests/runner/test_faults.py::test_processes_that_end[ray-suspend]")
    'tests/runner/test_faults.py[ray]'
    >>> unit_of("tests/cli/test_new.py::test_names")
    'tests/cli/test_new.py'
    """
    file, _, test = nodeid.partition("::")
    launcher = _LAUNCHED.search(test)
    return f"{file}[{launcher[1]}]" if launcher else file


def sort_longest_first(items: list[pytest.Item]) -> None:
    """Order collected tests by the seconds of their units, longest first; those of a unit keep their order."""
    estimated: Counter[str] = Counter()
    for item in items:
        slow = item.get_closest_marker("slow") is not None
        estimated[unit_of(item.nodeid)] += SECONDS_OF_A_SLOW_TEST if slow else SECONDS_OF_A_TEST
    seconds = {unit: SECONDS.get(unit, estimate) for unit, estimate in estimated.items()}
    items.sort(key=lambda item: (-seconds[unit_of(item.nodeid)], unit_of(item.nodeid)))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist's scheduler of files, with our units, in the order in which the workers have collected them."""
    from xdist.scheduler.loadfile import LoadFileScheduling

    class LongestFirst(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False
    return LongestFirst(config, log)
