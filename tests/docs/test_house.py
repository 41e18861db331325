"""Who may import whom: exhaustive, so that a new module fails until it has been given a place."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from conftest import LEFT_TO_RELEASES, WITHOUT_SIMULATIONS, last_results
from readability import names_with_several_homes

ROOT = Path(__file__).resolve().parents[2]

VERBS = (
    "workspace",
    "pinning",
    "capabilities",
    "checking",
    "from_script",
    "creating",
    "planning",
    "trying",
    "registering",
    "running",
    "training",
    "clusters",
    "study_status",
    "early_looks",
    "deciding",
    "exporting",
    "proving",
    "frame",
    "gating",
    "campaigning",
    "proposing",
    "confirming",
    "campaign_report",
    "serving",
)

# room -> what its modules may import beside the standard library. A module belongs to the longest room it starts with.
# Only the process of a run of the built-in trainer joins training, evaluation and records.
RUN_OF_GPT = ("ablate.gpt.main", "ablate.gpt.inputs", "ablate.gpt.observer", "ablate.gpt.checkpoints")
GPT_AND_WHAT_IT_RECORDS = {
    "ablate.gpt",
    "ablate.data",
    "ablate.evaluation",
    "ablate.records",
    "prereg",
    "torch",
    "numpy",
    "safetensors",
}
ROOMS: dict[str, set[str]] = {
    "prereg": {"prereg", "pydantic", "yaml", "lark", "rfc8785"},
    "prereg.documents": {"prereg", "pydantic", "jinja2"},
    "prereg.seals": {"prereg", "pydantic"},
    "ablate": {"ablate", "prereg"},
    # Imported by a user's training script.
    "ablate.client": set(),
    "ablate.huggingface": {"ablate.client", "transformers"},
    # What `decide` returns: shows a decision in a notebook, and computes nothing.
    "ablate.notebook": {"ablate.notebook", "ablate.judge", "ablate.reporting", "prereg", "altair", "pandas", "rich"},
    "ablate.__main__": {"ablate.cli"},
    "ablate.cli": {"*"},
    # The Python API: one module for each step from a study's file to its report.
    **{f"ablate.{name}": {"*"} for name in VERBS},
    "ablate.verification": {
        "ablate.verification",
        "ablate.judge",
        "ablate.records",
        "ablate.evaluation.harness.packs",
        "prereg",
        "pydantic",
        "pyarrow",
    },
    # Sealing opens a study as the API does.
    "ablate.verification.seal": {"prereg", "ablate.workspace"},
    "ablate.data": {"ablate.data", "ablate.gpt.streams", "prereg", "torch", "numpy", "tokenizers"},
    "ablate.gpt": {"ablate.gpt", "ablate.data", "prereg", "torch", "numpy", "safetensors"},
    **dict.fromkeys(RUN_OF_GPT, GPT_AND_WHAT_IT_RECORDS),
    "ablate.evaluation": {"ablate.evaluation", "ablate.gpt", "ablate.data", "prereg", "torch", "numpy"},
    # The harness and its data sets are an optional extra, imported only where a study measures tasks.
    "ablate.evaluation.harness": {
        "ablate.evaluation.harness",
        "ablate.records",
        "prereg",
        "torch",
        "numpy",
        "lm_eval",
        "datasets",
    },
    # Packages of trackers are optional extras, imported when a source of an import names one.
    "ablate.records": {"ablate.records", "prereg", "pandas", "numpy", "pyarrow", "pydantic", "mlflow", "tensorboard"},
    "ablate.runner": {
        "ablate.runner",
        "ablate.data",
        "ablate.gpt",
        "ablate.evaluation",
        "ablate.evaluation.harness",
        "ablate.records",
        "prereg",
        "torch",
        "numpy",
        "pyarrow",
        "pydantic",
        "rich",
    },
    "ablate.runner.ray_cluster": {"prereg", "ray"},
    "ablate.runner.slurm": {"prereg", "pydantic", "yaml"},
    "ablate.judge": {
        "ablate.judge",
        "ablate.records",
        "prereg",
        "numpy",
        "scipy",
        "statsmodels",
        "pingouin",
        "pandas",
        "pydantic",
    },
    "ablate.reporting": {
        "ablate.reporting",
        "ablate.judge",
        "ablate.records",
        "prereg",
        "altair",
        "vl_convert",
        "jinja2",
        "markupsafe",
        "rich",
        "pandas",
        "numpy",
        "ablate.verification",
    },
}


def modules() -> list[str]:
    """Every module of the two packages by its dotted name."""
    names = []
    for package in ("prereg", "ablate"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def source(name: str) -> Path:
    path = ROOT / Path(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def imports(name: str) -> frozenset[str]:
    """Everything a module imports at any depth, type-checking blocks left out."""
    tree = ast.parse(source(name).read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def room(name: str) -> str:
    parts = name.split(".")
    return next(".".join(parts[:n]) for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in ROOMS)


def test_every_module_has_a_place() -> None:
    for name in modules():
        if name in ("ablate", "prereg"):
            continue
        assert room(name) != "ablate", f"{name} has no place in tests/docs/test_house.py: give it one, or move it"


@pytest.mark.slow
@pytest.mark.parametrize("name", modules())
def test_a_module_imports_only_what_its_room_may(name: str) -> None:
    allowed = ROOMS[room(name)]
    if "*" in allowed:
        return
    for imported in imports(name):
        if imported.split(".")[0] in sys.stdlib_module_names:
            continue
        if any(imported == good or imported.startswith(good + ".") for good in allowed):
            continue
        pytest.fail(f"{name} imports {imported}; the room '{room(name)}' may import {sorted(allowed)}")


def test_the_judge_and_the_report_never_reach_the_trainer() -> None:
    for name in modules():
        if name.startswith(("ablate.judge", "ablate.reporting", "ablate.records", "prereg")):
            reached = {
                i
                for i in imports(name)
                if i.startswith(("ablate.runner", "ablate.data", "ablate.gpt", "ablate.evaluation", "torch"))
            }
            assert not reached, (name, reached)


DESIGN = (
    "effects",
    "assumptions",
    "reach",
    "scenarios",
    "simulate",
    "power",
    "error_rate",
    "choice",
    "characteristics",
    "refusal",
    "warnings",
    "retrospective",
)
"""The modules of `ablate.judge.design` in the order in which its `__init__` tells them."""


def test_design_is_read_in_one_direction() -> None:
    room = "ablate.judge.design"
    assert {name for name in modules() if name.startswith(f"{room}.")} == {f"{room}.{name}" for name in DESIGN}
    for at, name in enumerate(DESIGN):
        later = [other for other in DESIGN[at:] if re.search(rf"from {room}\.{other} import", source_text(room, name))]
        assert not later, f"{room}.{name} imports {later}, which come after it"


def source_text(room: str, name: str) -> str:
    return source(f"{room}.{name}").read_text(encoding="utf-8")


READ_ALONE = (
    "significance_tests",
    "precision",
    "two_way",
    "sequential",
    "spending",
    "spikes",
    "multiplicity",
    "t_power",
    "root",
)
"""Statistics that know nothing of studies, records and reports."""


def test_statistics_can_be_read_alone() -> None:
    room = "ablate.judge.stats"
    for name in READ_ALONE:
        ours = {one for one in imports(f"{room}.{name}") if one.split(".")[0] in ("ablate", "prereg")}
        beside = {one for one in ours if not one.startswith(tuple(f"{room}.{other}." for other in READ_ALONE))}
        assert not beside, (name, beside)


def test_only_a_run_of_the_built_in_trainer_joins_training_evaluation_and_records() -> None:
    joined = {
        name
        for name in modules()
        if name.startswith(("ablate.gpt", "ablate.runner"))
        and all(
            any(imported.startswith(part) for imported in imports(name))
            for part in ("ablate.gpt", "ablate.evaluation", "ablate.records")
        )
    }
    assert joined and joined <= set(RUN_OF_GPT), joined


def test_every_dependency_is_imported_by_a_product_module() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [needs for extra, needs in project["optional-dependencies"].items() if extra not in ("dev", "docs")]
    named = {re.match(r"[\w-]+", need)[0] for need in sum(extras, project["dependencies"])}  # type: ignore[index]
    called = {
        "mlflow-skinny": "mlflow",
        "pyyaml": "yaml",
        "vl-convert-python": "vl_convert",
    }
    used = {one.split(".")[0] for name in modules() for one in imports(name)}
    assert {called.get(name, name) for name in named} - used == set()


def private_names(path: Path) -> set[str]:
    """Names with an underscore that a test imports from the product, looks up in what it imported, or patches."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    given = [
        name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and re.match(r"(ablate|prereg)\b", node.module or "")
        for name in node.names
    ]
    ours, used = {name.asname or name.name for name in given}, {name.name for name in given}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ours:
            used.add(node.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            words = [word.value for word in node.args[1:2] if isinstance(word, ast.Constant)]
            used |= {word for word in words if isinstance(word, str)}
    return {name for name in used if re.match("_[A-Za-z]", name)}


def test_tests_use_public_names_alone() -> None:
    assert {path.name: found for path in (ROOT / "tests").rglob("*.py") if (found := private_names(path))} == {}


SEVERAL_HOMES = {
    # The documented API of prereg, which other tools use alone, and the verb of ablate that does more of the same.
    "Verification": ("ablate/verification/result.py", "prereg/verification.py"),
    "amend": ("ablate/registering.py", "prereg/registering.py"),
    "register": ("ablate/registering.py", "prereg/registering.py"),
    "verify": ("ablate/proving.py", "prereg/verification.py"),
    # `ablate.decide`, and the only source of a verdict, which ARCHITECTURE.md names by its place.
    "decide": ("ablate/deciding.py", "ablate/judge/decide.py"),
    # The entry points of processes.
    "main": (
        "ablate/cli/__init__.py",
        "ablate/gpt/main.py",
        "ablate/runner/pool.py",
        "ablate/runner/ray_cluster.py",
    ),
}
"""Public names that several modules have on purpose."""


def test_a_public_name_has_one_home() -> None:
    modules = [path for folder in ("ablate", "prereg") for path in sorted((ROOT / folder).rglob("*.py"))]
    several = names_with_several_homes(modules)
    assert {
        name: tuple(path.relative_to(ROOT).as_posix() for path in paths) for name, paths in several.items()
    } == SEVERAL_HOMES, "rename one of each to say what it is"


@pytest.mark.slow
def test_importing_the_trainer_loads_neither_the_harness_nor_byte_pairs() -> None:
    code = "import sys, ablate.gpt.main; print(' '.join(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"lm_eval", "datasets", "tokenizers"}


def test_a_process_of_an_own_trainer_loads_no_trainer_of_ours() -> None:
    code = "import sys, ablate.runner.pool; print(' '.join(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"torch", "pandas", "scipy", "altair"}


@pytest.mark.slow
def test_judging_loads_pingouin_without_its_plots_and_leaves_it_whole() -> None:
    assert [name for name in modules() if any(i.startswith("pingouin") for i in imports(name))] == [
        "ablate.judge.recompute"
    ]
    code = """
import sys
import ablate.judge.decide
from ablate.judge.recompute import pingouin_without_plots
assert "pingouin" not in sys.modules
theirs = pingouin_without_plots()
theirs.ttest([1.0, 2.0, 3.5], 0.0), theirs.wilcoxon([1.0, 2.0, 3.5, -1.5]), theirs.multicomp([0.1, 0.2])
import pingouin
assert pingouin is theirs is pingouin_without_plots()
assert not {"matplotlib", "seaborn", "pingouin.plotting"} & set(sys.modules)
assert not hasattr(pingouin, "no_such_name") and not hasattr(pingouin, "__getattr__")
assert pingouin.plot_paired is pingouin.plotting.plot_paired is sys.modules["pingouin.plotting"].plot_paired
assert "seaborn" in sys.modules and pingouin.ttest is theirs.ttest
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
    code = "from ablate.judge.recompute import pingouin_without_plots as load\nload()\nfrom pingouin import *\n"
    code += "assert plot_paired and ttest"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_left_to_releases_is_slow_and_ci_says_what_it_leaves_out(request: pytest.FixtureRequest) -> None:
    left = [test for test in request.session.items if any(map(test.get_closest_marker, LEFT_TO_RELEASES))]
    assert all(test.get_closest_marker("slow") for test in left)
    if request.config.option.markexpr in WITHOUT_SIMULATIONS:
        assert left == []
    makefile, ci = ((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", ".ci/run"))
    recipe = makefile.partition("\ntest-ci:")[2].partition("\n\n")[0]
    assert '-m "not simulation and not long"' in recipe and "not simulation and not long" in WITHOUT_SIMULATIONS
    assert "left out: tests marked simulation or long; 'make test-all' runs them" in recipe
    assert ci.endswith("as_a_newcomer make lint\nas_a_newcomer make test-ci\n")
    assert (ROOT / "reports" / "bench" / "simulations.md").is_file()


def test_the_last_result_has_a_row_for_each_test_that_is_left_out() -> None:
    def report(name: str, outcome: str, when: str = "call", marker: str = "simulation") -> pytest.TestReport:
        return pytest.TestReport(name, ("", 0, ""), {marker: 1}, outcome, None, when, duration=1.5)  # type: ignore[arg-type]

    text = last_results(
        [
            report("tests/test_a.py::test_one_rate[3]", "passed", "setup"),
            report("tests/test_a.py::test_one_rate[3]", "passed"),
            report("tests/test_a.py::test_one_rate[4]", "failed"),
            report("tests/test_b.py::test_page", "skipped", "setup", "long"),
            report("tests/test_b.py::test_fast", "passed", marker="slow"),
        ],
        "abc of 2026-01-01",
    )
    assert text.partition("|---|---|---|---|\n")[2].splitlines() == [
        "| test_a.py | one rate | 1 failed, 1 passed | 3 |",
        "| test_b.py | page | 1 skipped | 2 |",
    ]
    assert "Commit abc of 2026-01-01." in text
