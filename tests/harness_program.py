"""Train a model for a few steps, evaluate it on a pack of tasks, print the result as JSON: a program without a network.

    python tests/harness_program.py FOLDER '{"tasks": "blimp", "items": 100, "shots": [0, 3], "model": {}, "steps": 10}'

FOLDER holds the pack and `tinyshakespeare/input.txt`, as `ABLATE_CORPORA` would name it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch
from split_samples import split_of

from ablate.data.tokenizers import CharTokenizer
from ablate.evaluation.harness.evaluate import evaluate_tasks, prepare_questions
from ablate.evaluation.harness.pins import task_pin
from ablate.gpt.trainer import Trainer
from ablate.records.outcome import outcome_hash
from ablate.records.store import rows_at_step
from prereg.registry.paths import Root
from prereg.study.measure import Harness
from prereg.study.training import Training


def reachable() -> bool:
    """Whether anything outside can be reached: asked of an address, so that no name has to be resolved."""
    try:
        socket.create_connection(("1.1.1.1", 53), timeout=3).close()
    except OSError:
        return False
    return True


def main(folder: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Everything that is asserted, by name."""
    torch.set_num_threads(1)
    os.environ["ABLATE_CORPORA"] = str(folder)
    text = (folder / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    tokenizer = CharTokenizer.of(text)
    config = Training.model_validate(
        {"model": {"embedding_norm": "layernorm"} | wanted["model"], "budget": {"steps": wanted["steps"]}}
    )
    trainer = Trainer(config, split_of(tokenizer.encode(text), 0.1, config.model.context), tokenizer.size)
    trainer.begin(1)
    for _ in range(wanted["steps"]):
        trainer.step()
    harness = Harness(tasks=wanted["tasks"], items_per_task=wanted["items"], shots=tuple(wanted["shots"]))
    root = Root(Path("nowhere"))
    questions = prepare_questions(harness, task_pin(harness, root, tokenizer), root, tokenizer)
    found: dict[str, Any] = {"reachable": reachable(), "parameters": trainer.parameters, "answers": []}
    for batch in wanted.get("batches", [16]):
        began = time.process_time()
        answers = evaluate_tasks(questions, trainer.model, config.model.context, tokenizer, batch=batch)
        found["answers"].append(
            {
                "batch": batch,
                "cpu_s": time.process_time() - began,
                "outcome": outcome_hash(rows_at_step(0, answers.metrics), answers.items),
                "scores": len(answers.items),
                "metrics": dict(answers.metrics),
                "record": answers.record.model_dump(mode="json"),
            }
        )
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), json.loads(sys.argv[2]))))
