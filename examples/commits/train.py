"""A line of random features fitted to a noisy sine, in plain Python: how many features it has is code, not an option."""

import json
import math
import random

import ablate

WIDTH = 4

settings = ablate.config({"lr": 0.05, "steps": 300})
seed = ablate.seed()
for_weights, for_data = random.Random(seed), random.Random(seed + 1_000_000)

# A generator each: another width draws other features, and the same batches.
features = [(for_weights.gauss(0, 2), for_weights.uniform(0, 2 * math.pi)) for _ in range(WIDTH)]
weights = [0.0] * WIDTH
points = [(x, math.sin(3 * x) + for_data.gauss(0, 0.1)) for x in (for_data.uniform(-1, 1) for _ in range(400))]
train, validation = points[:200], points[200:]
ablate.fingerprint("initial features", json.dumps(features).encode())
ablate.must_match("data order", json.dumps(points).encode())


def values(x: float) -> list[float]:
    return [math.cos(a * x + b) / math.sqrt(WIDTH) for a, b in features]


def loss(batch: list[tuple[float, float]]) -> float:
    return sum((sum(w * v for w, v in zip(weights, values(x))) - y) ** 2 for x, y in batch) / len(batch)


for step in range(1, settings["steps"] + 1):
    x, y = train[step % len(train)]
    row = values(x)
    error = sum(w * v for w, v in zip(weights, row)) - y
    weights = [w - settings["lr"] * 2 * error * v for w, v in zip(weights, row)]
    if step % 100 == 0 or step == 1:
        ablate.log(step, {"train/loss": loss(train)})
ablate.log(settings["steps"] + 1, {"train/loss": loss(train), "val/mse": loss(validation)})
