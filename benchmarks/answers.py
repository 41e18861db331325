"""P5 to P7: the design's simulation, inference over seeds x items, and commands that need no training."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HELP_REPEATS = 7
STATUS_RUNS = 1000


def measure_verbs() -> dict[str, Any]:
    """`ablate --help`, and `ablate status` on a thousand runs."""
    import yaml

    # A process each: its start is most of what is measured.
    help_s = [timed([sys.executable, "-m", "ablate", "--help"]) for _ in range(HELP_REPEATS)]
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        (project / "studies").mkdir()
        # Two small arms: what `status` costs depends on the number of runs, not on their size.
        document = {
            "study": "many",
            "title": "A thousand runs",
            "baseline": "a",
            "base": {
                "model": {"layers": 1, "width": 16, "heads": 2, "context": 16},
                "budget": {"steps": 2, "batch": 1},
            },
            "variants": {"a": {}, "b": {"model.embedding_norm": "layernorm"}},
            "seeds": list(range(STATUS_RUNS // 2)),
            "hypotheses": {"h": {"claim": "b lowers val/loss", "smallest": 0.1}},
            "decision": [{"verdict": "adopt", "when": "supported(h)"}, {"verdict": "inconclusive"}],
        }
        path = project / "studies" / "many.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "ablate", "register", str(path)], check=True, stdout=sys.stderr)
        fill_with_records(path)
        status_s = [timed([sys.executable, "-m", "ablate", "status", str(path)]) for _ in range(3)]
    return {
        "help_s": round(statistics.median(help_s), 3),
        "help_n": HELP_REPEATS,
        "status_s": round(statistics.median(status_s), 3),
        "status_runs": STATUS_RUNS,
        "status_n": 3,
    }


def fill_with_records(path: Path) -> None:
    """A plausible run.json for every planned run, to be read and not believed."""
    from ablate.records.provenance import current_provenance
    from ablate.records.run_record import RunRecord
    from ablate.workspace import Workspace, require_registered
    from prereg.registry.plan import RunSpec, plan

    # Status reads run.json alone, so no run has to be made.
    case = Workspace().open(path)
    made = current_provenance(threads=1)
    for spec in plan(require_registered(case)):
        assert isinstance(spec, RunSpec), spec.run_id
        record = RunRecord(
            format=1,
            study=spec.study,
            registration=spec.registration,
            variant=spec.variant,
            seed=spec.seed,
            status="done",
            attempts=1,
            config=spec.config.model_dump(mode="json"),
            steps=2,
            tokens=32,
            parameters=1,
            provenance=made,
            started_at="2026-01-01T00:00:00+00:00",
        )
        folder = case.root.run(spec.study, spec.registration, spec.variant, spec.seed)
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(record.model_dump_json(), encoding="utf-8")


def timed(words: list[str]) -> float:
    """Wall seconds of a command."""
    started = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


DESIGN_SCENARIOS, DESIGN_STUDIES, DESIGN_REPEATS = 12, 20_000, 5


def measure_design(path: Path) -> dict[str, Any]:
    """Twelve states of the world x 20,000 simulated studies through the registered rule, in this process."""
    from ablate.judge.design.assumptions import assumed
    from ablate.judge.design.scenarios import effect_scenarios
    from ablate.judge.design.simulate import simulate
    from prereg.study.load import load_study

    study = load_study(path).study
    beliefs = assumed(study)
    states = effect_scenarios(study, divergence=beliefs.divergence)
    states = (states * DESIGN_SCENARIOS)[:DESIGN_SCENARIOS]  # as many as are timed, whatever the study has
    simulate(study, states[0], beliefs, n_sims=100, seed=[0])  # imports and caches
    walls = []
    for _ in range(DESIGN_REPEATS):
        started = time.perf_counter()
        for index, state in enumerate(states):
            simulate(study, state, beliefs, n_sims=DESIGN_STUDIES, seed=[0, index])
        walls.append(time.perf_counter() - started)
    return {
        "design_s": round(statistics.median(walls), 2),
        "design_s_each": [round(wall, 2) for wall in walls],
        "scenarios": DESIGN_SCENARIOS,
        "studies": DESIGN_STUDIES,
        "hypotheses": len(study.hypotheses),
        "seeds": len(study.seeds),
    }
