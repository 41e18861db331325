"""What a command loads: heavy libraries only where it uses them, in a new interpreter, since loading one takes longer
than many commands do."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import House
from own_trainer import OwnHouse

TABLES = ("pandas", "pyarrow")
STATISTICS = ("numpy", "scipy", "statsmodels", "pingouin")
DRAWING = ("altair", "vl_convert", "matplotlib", "seaborn")
"""jinja2 is not among them: every sentence that a command prints is in a template."""
TRAINER = ("torch", "tokenizers", "safetensors", "lm_eval", "datasets", "transformers")
EVERYTHING = (*TABLES, *STATISTICS, *DRAWING, *TRAINER)

LOADS_NOT: dict[str, tuple[str, ...]] = {
    "--help": (*EVERYTHING, "pydantic", "yaml"),
    "check": (*EVERYTHING, "ssl"),  # nothing is downloaded
    "plan": EVERYTHING,
    "status": EVERYTHING,
    "ledger": EVERYTHING,
    "run": EVERYTHING,  # of a study whose runs are sealed
    "verify": (*TRAINER, *DRAWING),
    "decide": ("matplotlib", "seaborn", *TRAINER),
    "report": ("matplotlib", "seaborn", *TRAINER),
}
"""Command -> packages that it must not load."""


def loaded(*words: str) -> set[str]:
    """Every module that is loaded when a command ends, and every package of one."""
    code = (
        "import sys\nfrom ablate.cli import app\n"
        f"try:\n    app({list(words)!r}, standalone_mode=False)\nfinally:\n    print('loaded:', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    names = done.stdout.rpartition("loaded:")[2].split()
    assert "typer" in names and done.returncode == 0, done.stderr
    return {*names, *(name.split(".")[0] for name in names)}


@pytest.mark.slow
@pytest.mark.parametrize("command", LOADS_NOT)
def test_a_command_loads_no_library_that_it_does_not_use(command: str, decided_copy: OwnHouse) -> None:
    words = [command] if command.startswith("-") else [command, str(decided_copy.study)]
    assert not loaded(*words) & set(LOADS_NOT[command])


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "plan", "status"])
def test_a_study_of_the_built_in_trainer_is_checked_without_its_libraries(command: str, house: House) -> None:
    study = house.write(assume={"metrics": {"val/loss": {"sd": 0.02, "correlation": 0.5}}})
    assert not loaded(command, str(study)) & set(EVERYTHING)


def test_importing_the_package_or_the_command_line_loads_nothing_heavy() -> None:
    code = "import sys, ablate, ablate.cli; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {*EVERYTHING, "pydantic"}
