"""One test for each way to launch a study: the fixture `launcher`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from launchers import CommandsLauncher, Launcher, LocalLauncher, RayLauncher, SlurmLauncher, require_ray
from own_trainer import OwnHouse
from slurm_loopback import Slurm, slurm

LAUNCHERS = {"local": LocalLauncher, "slurm": SlurmLauncher, "ray": RayLauncher, "commands": CommandsLauncher}


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm | str]:
    """One Slurm for all tests of a module, or why there is none."""
    with slurm(tmp_path_factory.mktemp("slurm") / "slurm") as started:
        yield started


@pytest.fixture(params=list(LAUNCHERS))
def launcher(
    request: pytest.FixtureRequest, own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Launcher]:
    """Each launcher in turn, with a house that holds no study yet."""
    made = LAUNCHERS[request.param](own_house, own_house.study)
    if isinstance(made, SlurmLauncher):
        found = request.getfixturevalue("shared_cluster")
        if isinstance(found, str):
            pytest.skip(found)
        monkeypatch.setenv("SLURM_CONF", found.environment["SLURM_CONF"])
        made.cluster = found
    if isinstance(made, RayLauncher):
        require_ray()
    yield made
    made.close()
