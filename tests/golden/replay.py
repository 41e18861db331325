"""A trainer that trains nothing: it writes the rows that a table holds for its arm and seed.

In the seed that its configuration names it is killed half way, once, and goes on from there when it is started again.
"""

import csv
import json
import os
import signal
import sys
from pathlib import Path

config = json.loads(Path(os.environ["ABLATE_CONFIG"]).read_text(encoding="utf-8"))
arm, seed = os.environ["ABLATE_VARIANT"], os.environ["ABLATE_SEED"]
with Path(sys.argv[1]).open(encoding="utf-8") as table:
    rows = [row for row in csv.DictReader(table) if (row["variant"], row["seed"]) == (arm, seed)]
half = len(rows) // 2
resumed = Path("resumable").exists()
killed = config.get("killed_in_seed") == int(seed) and not resumed
with Path("metrics.jsonl").open("a" if resumed else "w", encoding="utf-8") as out:
    for row in rows[half:] if resumed else rows[:half] if killed else rows:
        line = {"step": int(row["step"]), "metric": row["metric"], "value": float(row["value"])}
        out.write(json.dumps(line) + "\n")
if killed:
    Path("resumable").touch()
    os.kill(os.getpid(), signal.SIGKILL)
