"""One process of the benchmark `zeroshot`: a run trained and asked as registered, or its sealed weights asked again.

    python -m benchmarks.asked '{"do": "ask", "study": ..., "folder": ..., "batch": 8}'

The last line of its output is a JSON object.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ablate.evaluation.harness.evaluate import Answers
    from ablate.records.run_record import RunRecord
    from ablate.records.store import ItemScore, RunFolder
    from ablate.runner.messages import Message
    from prereg.registry.paths import Root
    from prereg.registry.plan import RunSpec

CHOICES = 2
"""Of every item: these are minimal pairs."""


def train(study: Path, folder: Path) -> dict[str, Any]:
    """The first run of a study, trained, asked and sealed by a worker process like any other."""
    from ablate.evaluation.harness.adapter import ROWS
    from ablate.records.store import RunFolder
    from ablate.runner.progress import doing
    from ablate.runner.standalone import make_again

    root, spec = first_run(study)
    said = [0.0]

    def tell(message: Message) -> None:
        if time.monotonic() - said[0] > 10.0:
            said[0] = time.monotonic()
            print(f"{spec.run_id}: {doing(message) or f'step {message.step} of {message.steps}'}", file=sys.stderr)

    make_again(spec, folder, root, onlooker=tell)
    record = read(RunFolder(folder))
    assert record.harness is not None and record.train_s is not None, record
    rows = {row.metric: row.value for row in RunFolder(folder).sealed_rows() if row.metric.startswith("harness/")}
    return {
        "run": f"{spec.study}, {spec.variant} seed {spec.seed}",
        "steps": record.steps,
        "dtype": spec.config.numerics.dtype,
        "context": spec.config.model.context,
        "parameters": record.parameters,
        "items_per_task": harness_of(spec).items_per_task,
        "shots": list(harness_of(spec).shots),
        "train_s": round(record.train_s, 1),
        "batch": ROWS,
        "wall_s": round(record.harness.wall_s, 1),
        **outcome_of(spec, record, rows, RunFolder(folder).sealed_items()),
    }


def ask_again(study: Path, folder: Path, batch: int) -> dict[str, Any]:
    """The sealed weights, asked in batches of a size, and every score held against the sealed one."""
    import torch

    from ablate.evaluation.harness.evaluate import evaluate_tasks
    from ablate.records.store import RunFolder
    from ablate.runner.builtin.resources import THREADS
    from ablate.runner.builtin.worker import Worker

    torch.set_num_threads(THREADS)
    root, spec = first_run(study)
    run = RunFolder(folder)
    record = read(run)
    worker = Worker(root.corpora, lambda _: None, threading.Event(), root=root.path)
    text = worker.text(spec)
    questions = worker.questions(spec, text)
    assert questions is not None, spec.run_id
    trainer = worker.trainer(spec, text)
    assert str(trainer.paths) == record.provenance.paths, (trainer.paths, record.provenance.paths)
    put_in(trainer.model, run, record)
    wall, cpu = time.perf_counter(), time.process_time()
    answers = evaluate_tasks(questions, trainer.model, spec.config.model.context, text.written_with, batch=batch)
    seconds = {"cpu_s": round(time.process_time() - cpu, 1), "wall_s": round(time.perf_counter() - wall, 1)}
    asked = record.model_copy(update={"harness": answers.record})
    return {
        "batch": batch,
        **seconds,
        **outcome_of(spec, asked, answers.metrics, answers.items),
        **differences(answers, run),
    }


def first_run(study: Path) -> tuple[Root, RunSpec]:
    """The first run of a registered study's plan: the baseline with the first seed."""
    from ablate.api import open_study, require_registered
    from prereg.registry.plan import RunSpec, plan

    case = open_study(study)
    spec = plan(require_registered(case))[0]
    assert isinstance(spec, RunSpec), spec
    return case.root, spec


def harness_of(spec: RunSpec) -> Any:
    """What the study declares to be asked."""
    assert spec.measure.harness is not None, spec.run_id
    return spec.measure.harness


def read(run: RunFolder) -> RunRecord:
    """The record of a run that has ended, its seals whole."""
    record = run.read_record()
    assert record is not None and record.status == "done" and not run.faults(record), record
    return record


def put_in(model: Any, run: RunFolder, record: RunRecord) -> None:
    """The weights that were sealed, every one of them."""
    import torch
    from safetensors.torch import load_file

    from prereg.registry.canon import sha256_file

    assert sha256_file(run.weights_path) == record.weights_sha256, run.weights_path
    weights, parameters = load_file(run.weights_path), dict(model.named_parameters())
    assert set(weights) == set(parameters), set(weights) ^ set(parameters)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def differences(answers: Answers, run: RunFolder) -> dict[str, Any]:
    """Scores of items, and metrics, that are not the sealed ones to the last bit; those that only one side has too."""
    rows = {row.metric: row.value for row in run.sealed_rows() if row.metric.startswith("harness/")}
    sealed = bits(run.sealed_items()) | {("", "", "", name): value.hex() for name, value in rows.items()}
    found = bits(answers.items) | {("", "", "", name): value.hex() for name, value in answers.metrics.items()}
    apart = sorted(key for key in sealed.keys() | found.keys() if sealed.get(key) != found.get(key))
    such = [f"{' '.join(key)}: {found.get(key)}, sealed {sealed.get(key)}" for key in apart[:3]]
    return {"scores_that_differ": len(apart), "such_as": such}


def bits(items: Sequence[ItemScore]) -> dict[tuple[str, str, str, str], str]:
    """Every score, exactly."""
    return {(one.task, one.item, one.item_sha256, one.metric): one.value.hex() for one in items}


def outcome_of(spec: RunSpec, record: RunRecord, metrics: Any, items: Sequence[ItemScore]) -> dict[str, Any]:
    """What every repetition of the evaluation must give again."""
    from ablate.records.outcome import outcome_hash

    asked = record.harness
    assert asked is not None, spec.run_id
    return {
        "tasks": asked.tasks,
        "n_tasks": asked.n_tasks,
        "n_items": asked.n_items,
        "n_requests": asked.n_requests,
        "n_scores": len(bits(items)),
        "unencodable": asked.unencodable,
        "truncated": asked.truncated,
        "accuracy": {str(n): metrics[f"harness/accuracy_shots_{n}"] for n in harness_of(spec).shots},
        "answers": outcome_hash([], items),
        "interfaces": [name for _, name in socket.if_nameindex()],
    }


def main() -> None:
    """Do what the one argument wants."""
    wanted = json.loads(sys.argv[1])
    study, folder = Path(wanted["study"]), Path(wanted["folder"])
    found = train(study, folder) if wanted["do"] == "train" else ask_again(study, folder, int(wanted["batch"]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
