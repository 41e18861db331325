"""A house of studies in a temporary folder, with a corpus small enough that a run takes a moment."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import schedule
import vl_convert
import yaml
from hypothesis import settings
from warm_processes import WarmSubprocess

if TYPE_CHECKING:
    from launchers import Launcher
    from own_trainer import OwnHouse
    from slurm_loopback import Slurm

TINY_CORPUS = "tiny"

# A claim about all inputs is none about time: on a busy machine one example takes longer than the 200 ms that
# Hypothesis allows by itself, and the next does not.
settings.register_profile("untimed", deadline=None)
settings.register_profile("few", deadline=None, max_examples=30)
settings.load_profile("untimed")


MEMORY = Path("/dev/shm")  # noqa: S108 (a file system in memory)
ROOM = 4 * 2**30
"""Bytes; half of the tests leave 0.7 GB where none is removed."""

RAY_TIMEOUT_S = 600
"""Of a test that starts a Ray cluster, often twice."""
LEFT_TO_RELEASES = ("simulation", "long")
"""Markers of what `.ci/run` leaves out and `make test-all` runs; each implies `slow`."""
WITHOUT_SIMULATIONS = {"not slow", " and ".join(f"not {marker}" for marker in LEFT_TO_RELEASES)}


def pytest_configure(config: pytest.Config) -> None:
    """Without the simulations, claims that do not say otherwise are tried on fewer examples.

    Temporary folders are in memory where there is room: every entry of a ledger is synced to its disk, for which
    tests would wait. GPUs of the machine are hidden: what tests say of devices they say of none, or of made-up ones.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if config.option.markexpr in WITHOUT_SIMULATIONS:
        settings.load_profile("few")
    if "TMPDIR" not in os.environ and MEMORY.is_dir():
        there = os.statvfs(MEMORY)
        if there.f_bavail * there.f_frsize > ROOM and not there.f_flag & os.ST_NOEXEC and os.access(MEMORY, os.W_OK):
            os.environ["TMPDIR"] = str(MEMORY)
            tempfile.tempdir = None


def pytest_itemcollected(item: pytest.Item) -> None:
    """What is left to releases is slow too."""
    if any(item.get_closest_marker(marker) for marker in LEFT_TO_RELEASES):
        item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write what became of the simulations and long tests, where `RECORD_SIMULATIONS` names a file."""
    if path := os.environ.get("RECORD_SIMULATIONS"):
        reports = [report for of in terminalreporter.stats.values() for report in of if hasattr(report, "keywords")]
        Path(path).write_text(last_results(reports, os.environ["RECORD_COMMIT"]), encoding="utf-8")


def last_results(reports: Iterable[pytest.TestReport], commit: str) -> str:
    """reports/bench/simulations.md: one row a test, over all its cases."""
    outcomes_by_test: dict[tuple[str, str], list[str]] = {}
    seconds_by_test: dict[tuple[str, str], float] = {}
    for report in reports:
        # Set-up and teardown are reports of their own: of interest where the case did not pass.
        if not set(LEFT_TO_RELEASES) & set(report.keywords) or (report.when != "call" and report.passed):
            continue
        file, _, name = report.nodeid.partition("[")[0].removeprefix("tests/").partition("::test_")
        outcomes_by_test.setdefault((file, name), []).append(report.outcome)
        seconds_by_test[file, name] = seconds_by_test.get((file, name), 0.0) + report.duration
    rows = ""
    for (file, name), outcomes in sorted(outcomes_by_test.items()):
        cases = ", ".join(f"{n} {outcome}" for outcome, n in sorted(Counter(outcomes).items()))
        rows += f"| {file} | {name.replace('_', ' ')} | {cases} | {seconds_by_test[file, name]:.0f} |\n"
    return f"""# Simulations and long tests: the last result

Tests marked `simulation` or `long`, which `.ci/run` leaves out. `make test-all` runs them with all others and makes
this page; before a release it is run, and the page committed. The error rates are in error-rates.md and selection.md.

Commit {commit}. Seconds are those of all cases together, on two shared cores.

| file | test | cases | seconds |
|---|---|---|---|
{rows}"""


# Side by side, each of pytest's own processes keeps to one core: a study that it trains then makes one run at a time,
# not one for every core of the machine beside those of its neighbours.
_SIDE = os.environ.get("PYTEST_XDIST_WORKER", "")
if _SIDE and hasattr(os, "sched_setaffinity"):
    _cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_cores[int(_SIDE.removeprefix("gw")) % len(_cores)]})

WARM = WarmSubprocess()

_to_svg = vl_convert.vegalite_to_svg
_svgs: dict[str, str] = {}


def _svg_of(chart: dict[str, Any], **given: Any) -> str:
    """The same chart is drawn once: tests decide copies of one study, and tell its decision again."""
    key = json.dumps([chart, given], sort_keys=True)
    if key not in _svgs:
        _svgs[key] = _to_svg(chart, **given)
    return _svgs[key]


vl_convert.vegalite_to_svg = _svg_of


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture: servers of runs that this process starts are forked from one that has loaded torch.

    Those of tests marked `cold` are started as a user starts them.
    """
    from ablate.runner import pool

    cold = item.get_closest_marker("cold") is not None
    pool.subprocess = subprocess if cold or sys.platform != "linux" else WARM  # type: ignore[attr-defined]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests go to several workers, the longest begin first."""
    if _SIDE:
        schedule.sort_longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of `--dist loadfile`, our own; of others xdist's."""
    return schedule.scheduler(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """What is loaded by now stays: nobody need look through it for garbage, which takes half a second each time."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Whoever forked them ends with the tests."""
    WARM.end()


def tiny_text() -> str:
    """About nine thousand characters with some structure to learn."""
    verses = ["the cat sat on the mat.\n", "a dog ran to the barn.\n", "no rain fell on the plain.\n"]
    return "".join(verses[(7 * i * i + i) % 3] for i in range(380))


def tiny_document(**changes: Any) -> dict[str, Any]:
    """A whole study, as plain data, that trains in about a second a run."""
    document: dict[str, Any] = {
        "study": "tiny",
        "title": "A tiny study",
        "base": {
            "model": {"layers": 1, "width": 16, "heads": 2, "context": 16},
            "data": {"corpus": TINY_CORPUS},
            "optim": {"lr": 1.0e-2},
            "budget": {"steps": 30, "batch": 8},
        },
        "baseline": "none",
        "variants": {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}},
        "seeds": [1, 2, 3],
        "measure": {"every": 10},
        "hypotheses": {"gain": {"claim": "layernorm lowers val/loss", "smallest": 0.05}},
        "decision": [
            {"verdict": "adopt layernorm", "when": "supported(gain)"},
            {"verdict": "keep none", "when": "refuted(gain)"},
            {"verdict": "inconclusive"},
        ],
    }
    return document | changes


SHORT: dict[str, Any] = {
    "base": tiny_document()["base"] | {"budget": {"steps": 4, "batch": 8}},
    "measure": {"every": 4},
    "seeds": [1, 2],
}
"""What makes the tiny study as short as a study can be: for tests that need runs and no numbers."""


class House:
    """A temporary repository of studies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "studies").mkdir(parents=True)
        corpus = path / "data" / "corpora" / TINY_CORPUS
        corpus.mkdir(parents=True)
        text = tiny_text().encode()
        (corpus / "input.txt").write_bytes(text)
        from ablate.data.corpora import Library

        source = path / "tiny.txt"
        source.write_bytes(text)
        Library.of(path / "data" / "corpora", {}).add(TINY_CORPUS, source)
        source.unlink()

    def write(self, document: Mapping[str, Any] | None = None, **changes: Any) -> Path:
        """Write a study file."""
        whole = dict(document) if document is not None else tiny_document(**changes)
        path = self.path / "studies" / f"{whole['study']}.yaml"
        path.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
        return path

    def snapshot(self) -> dict[str, bytes]:
        """Every file and its bytes: what 'nothing changed on disk' is checked against."""
        return {p.relative_to(self.path).as_posix(): p.read_bytes() for p in self.path.rglob("*") if p.is_file()}

    @property
    def study(self) -> Path:
        """The file of the tiny study."""
        return self.path / "studies" / "tiny.yaml"

    @classmethod
    def at(cls, path: Path) -> House:
        """A repository that is there already."""
        made = cls.__new__(cls)
        made.path = path
        return made

    def copy(self, path: Path) -> House:
        """The same repository elsewhere, to be changed."""
        return House.at(Path(shutil.copytree(self.path, path)))


@pytest.fixture
def no_own_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpora that this machine's user has are not found."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)


@pytest.fixture
def house(tmp_path: Path, no_own_corpora: None) -> House:
    """An empty house, shut off from the user's own corpora."""
    return House(tmp_path / "house")


@pytest.fixture
def own_house(tmp_path: Path, no_own_corpora: None) -> OwnHouse:
    """A house with a trainer of its own, which is not told of the user's corpora."""
    from own_trainer import OwnHouse

    return OwnHouse(tmp_path / "house")


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm | str]:
    """One Slurm for all tests of a module, or why there is none."""
    from slurm_loopback import slurm

    with slurm(tmp_path_factory.mktemp("slurm") / "slurm") as started:
        yield started


@pytest.fixture(scope="module")
def shared_ray() -> Iterator[int]:
    """One Ray cluster for all tests of a module, as a process in its network."""
    from launchers import ray_head

    with ray_head() as started:
        yield started


@pytest.fixture(params=["local", "slurm", pytest.param("ray", marks=pytest.mark.timeout(RAY_TIMEOUT_S)), "commands"])
def launcher(
    request: pytest.FixtureRequest, own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Launcher]:
    """Each way to launch a study in turn, with a house that holds none yet."""
    import launchers

    made = launchers.BY_NAME[request.param](own_house, own_house.study)
    if isinstance(made, launchers.SlurmLauncher):
        cluster = request.getfixturevalue("shared_cluster")
        if isinstance(cluster, str):
            pytest.skip(cluster)
        monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
        made.cluster = cluster
    if isinstance(made, launchers.RayLauncher):
        launchers.require_ray()
        made.head = request.getfixturevalue("shared_ray")
    yield made
    made.close()


@pytest.fixture
def no_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """`decide` draws no reports: that takes seconds, and most claims about a decision need none."""
    from ablate import deciding

    monkeypatch.setattr(deciding, "pages", lambda *_: {})


def made_once(name: str, folders: pytest.TempPathFactory, make: Callable[[Path], object]) -> Path:
    """A folder that whichever worker needs it first makes; every worker has a copy of its own."""
    place = folders.mktemp(name) / "house"
    if not _SIDE:
        make(place)
        return place
    shared = folders.getbasetemp().parent / f"shared-{name}"
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shared.exists():
            shutil.copytree(shared, place)
        else:
            make(place)
            shutil.copytree(place, shared.with_suffix(".part"))
            shared.with_suffix(".part").rename(shared)
    return place


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> House:
    """The tiny study, run without incident: once for all tests. Whoever changes it takes a copy."""

    def make(path: Path) -> None:
        import ablate as api
        from ablate.runner.options import RunOptions
        from ablate.runner.progress import PlainWatcher

        made = House(path)
        api.run(made.write(), RunOptions(slots=1), workspace=api.Workspace(console=PlainWatcher(StringIO())))

    return House.at(made_once("trained", tmp_path_factory, make))


@pytest.fixture(scope="session")
def decided(trained: House, tmp_path_factory: pytest.TempPathFactory) -> House:
    """The same, decided, with its report."""

    def make(path: Path) -> None:
        import ablate as api

        api.decide(trained.copy(path).study)

    return House.at(made_once("decided", tmp_path_factory, make))


@pytest.fixture(scope="session")
def decided_own(tmp_path_factory: pytest.TempPathFactory) -> OwnHouse:
    """A study of one's own trainer, run by workers in this process and decided, with its report: once for all tests."""
    from own_trainer import OwnHouse

    def make(path: Path) -> None:
        import ablate as api

        made = OwnHouse(path)
        made.make_runs(made.register())
        api.decide(made.study)

    return OwnHouse.at(made_once("decided-own", tmp_path_factory, make))


@pytest.fixture
def decided_copy(decided_own: OwnHouse, tmp_path: Path, no_own_corpora: None) -> OwnHouse:
    """A copy of it, to be changed."""
    return type(decided_own)(tmp_path / "house", of=decided_own.path)


@pytest.fixture
def copied(trained: House, house: House) -> House:
    """A copy of the tiny study's runs, shut off from the user's own corpora."""
    shutil.rmtree(house.path)
    return trained.copy(house.path)


@pytest.fixture
def shakespeare(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that holds tinyshakespeare, or a skip that says why."""
    here = Path(__file__).resolve().parents[1]
    for folder in (os.environ.get("ABLATE_CORPORA", ""), str(here.parent / "shared" / "data")):
        if folder and (Path(folder) / "tinyshakespeare" / "input.txt").is_file():
            monkeypatch.setenv("ABLATE_CORPORA", folder)
            return Path(folder)
    pytest.skip("tinyshakespeare is neither in ABLATE_CORPORA nor in ../shared/data")
