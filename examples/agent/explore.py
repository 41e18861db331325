"""Whether the six repairs of agent-night help whatever was repaired before: all 64 states of the start, two seeds each.

    python examples/agent/explore.py          # 128 runs in build/agent-night, which git ignores; three to seven minutes

Exploratory, on seeds that are given here and no campaign draws. It says, of each repair, the gain in the least
favourable of the 32 states without it, and the SD of its paired differences.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pandas as pd
import yaml
from proposals import USEFUL

ROOT = Path(__file__).resolve().parents[2]
SCRATCH = ROOT / "build" / "agent-night"
CAMPAIGN = ROOT / "campaigns" / "agent-night.yaml"
SEEDS = (900041, 900042)
REPAIRS = {next(iter(each.change)).rsplit(".", 1)[-1]: each.change for each in USEFUL}


class Plain(yaml.SafeDumper):
    """YAML without anchors, which a study must not have."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def states() -> list[frozenset[str]]:
    """Every set of repairs, from none to all."""
    return [frozenset(names) for n in range(len(REPAIRS) + 1) for names in combinations(REPAIRS, n)]


def arm(state: frozenset[str]) -> str:
    """The name of a state's arm."""
    return "-".join(sorted(state)) or "start"


def write_study() -> Path:
    """The study of all states, with the runs of the campaign's start."""
    campaign = yaml.safe_load(CAMPAIGN.read_text(encoding="utf-8"))
    document = {
        "study": "lattice",
        "title": "Which repairs of the start of agent-night help, in which state?",
        **campaign["start"],
        "baseline": "start",
        "variants": {
            arm(state): {path: value for name in sorted(state) for path, value in REPAIRS[name].items()}
            for state in states()
        },
        "seeds": list(SEEDS),
        "hypotheses": {"all": {"claim": f"{arm(states()[-1])} lowers {campaign['metric']}", "smallest": 0.02}},
        "decision": [{"verdict": "all help", "when": "supported(all)"}, {"verdict": "unclear"}],
    }
    path = SCRATCH / "studies" / "lattice.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.dump(document, sort_keys=False, Dumper=Plain), encoding="utf-8")
    return path


def values(metric: str) -> pd.DataFrame:
    """The last value of a metric, a row each seed and a column each arm."""
    rows = []
    for table in sorted((SCRATCH / "data" / "runs" / "lattice").glob("*/*/*/metrics.parquet")):
        curve = pd.read_parquet(table)
        last = curve[curve["metric"] == metric].sort_values("step")["value"].iloc[-1]
        rows.append((table.parts[-3], int(table.parts[-2]), last))
    return pd.DataFrame(rows, columns=["arm", "seed", "value"]).pivot(index="seed", columns="arm", values="value")


def main() -> None:
    """Make what is missing of the runs, and print a line for each repair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="2", help="runs at once")
    jobs = parser.parse_args().jobs
    subprocess.run([sys.executable, "-m", "ablate", "run", write_study(), "--jobs", jobs], cwd=SCRATCH, check=True)
    losses = values("val/loss")
    print("repair        smallest gain  median  largest  SD of the paired differences  in the least favourable state")
    for name in REPAIRS:
        before = [state for state in states() if name not in state]
        gains = pd.DataFrame({arm(state): losses[arm(state)] - losses[arm(state | {name})] for state in before})
        sd = (gains.var() ** 0.5).pow(2).mean() ** 0.5
        mean = gains.mean()
        print(
            f"{name:13s} {mean.min():13.4f} {mean.median():7.4f} {mean.max():8.4f} {sd:29.4f}  {mean.idxmin()}"
            f"{'' if (gains > 0).all(axis=None) else '   (not in every pair)'}"
        )


if __name__ == "__main__":
    main()
