"""A trainer of one's own, in plain Python: a bigram model of characters, trained by stochastic gradient descent.

ablate starts it once a run, in an empty directory, and reads metrics.jsonl when it has ended. What one seed draws
(initial weights, order of the text) must be the same for every variant: then runs of one seed form pairs.
"""

import argparse
import json
import math
import os
import random
from pathlib import Path

WORDS = "the a old young cat dog bird saw heard followed under over quiet river hill house and then at dawn".split()


def text(characters):
    """The same text on every machine: words that follow one another by a fixed rule with some chance in it."""
    draw, words, last = random.Random("the text"), [], 0
    while sum(map(len, words)) < characters:
        last = (3 * last + draw.choice((1, 2, 5))) % len(WORDS)
        words.append(WORDS[last] + " ")
    return "".join(words)


def softmax(row):
    highest = max(row)
    powers = [math.exp(x - highest) for x in row]
    total = sum(powers)
    return [x / total for x in powers]


def loss(logits, pairs):
    """Mean cross-entropy in nats, over counted pairs of characters."""
    total = sum(pairs.values())
    tables = [softmax(row) for row in logits]
    return -sum(n * math.log(tables[a][b]) for (a, b), n in pairs.items()) / total


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seed", type=int, required=True)
    options.add_argument("--momentum", type=float, required=True)
    options = options.parse_args()
    config = json.loads(Path(os.environ["ABLATE_CONFIG"]).read_text())
    lr, steps, batch = config["optim"]["lr"], config["budget"]["steps"], config["budget"]["batch"]

    letters = sorted(set(" ".join(WORDS)))
    ids = [letters.index(letter) for letter in text(20_000)]
    pairs = list(zip(ids, ids[1:]))
    boundary = len(pairs) * 9 // 10
    validation = {}
    for pair in pairs[boundary:]:
        validation[pair] = validation.get(pair, 0) + 1

    draw = random.Random(options.seed)
    logits = [[draw.gauss(0.0, 0.1) for _ in letters] for _ in letters]
    speed = [[0.0] * len(letters) for _ in letters]
    with open("metrics.jsonl", "w") as metrics:

        def record(step, metric, value):
            metrics.write(json.dumps({"step": step, "metric": metric, "value": value}) + "\n")
            metrics.flush()

        record(0, "val/loss", loss(logits, validation))
        for step in range(1, steps + 1):
            gradient, total = {}, 0.0
            for a, b in (pairs[draw.randrange(boundary)] for _ in range(batch)):
                chances = softmax(logits[a])
                total -= math.log(chances[b])
                row = gradient.setdefault(a, [0.0] * len(letters))
                for letter, chance in enumerate(chances):
                    row[letter] += (chance - (letter == b)) / batch
            for a, row in enumerate(speed):
                slope = gradient.get(a)
                for letter in range(len(letters)):
                    row[letter] = options.momentum * row[letter] + (slope[letter] if slope else 0.0)
                    logits[a][letter] -= lr * row[letter]
            record(step, "train/loss", total / batch)
            if step % 25 == 0 or step == steps:
                record(step, "val/loss", loss(logits, validation))


if __name__ == "__main__":
    main()
