"""A trainer that learns nothing: its losses are drawn, one curve a seed and arm."""

import json
import os
import random
import sys

config = json.load(open(os.environ["ABLATE_CONFIG"]))
if os.environ.get("FAILS") == os.environ["ABLATE_VARIANT"]:
    sys.exit("told to fail")
draw = random.Random(f"{os.environ['ABLATE_SEED']} {config['name']}")
shared = random.Random(os.environ["ABLATE_SEED"]).gauss(0.0, 0.1)
with open("metrics.jsonl", "w") as out:
    for step in range(1, config["steps"] + 1):
        at = 3.0 - step / 10 + shared
        print(json.dumps({"step": step, "metric": "train/loss", "value": at + draw.gauss(0.0, 0.005)}), file=out)
    for metric, gain in (("val/loss", config["gain"]), ("val/accuracy", config["gain"] / 10)):
        value = 2.0 + shared - gain if metric == "val/loss" else 0.4 - shared / 10 + gain
        print(json.dumps({"step": config["steps"], "metric": metric, "value": value + draw.gauss(0, 0.01)}), file=out)
