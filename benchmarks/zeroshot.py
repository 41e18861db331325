"""A trained model evaluated on its tasks again and again, without a network: complete, and the same bits every time?

One run of a study is trained and evaluated by a worker process, as registered. Then its sealed weights are evaluated in
processes of their own: as before, once more, and with other batch sizes. Every score of every item is compared with the
sealed one. What does not hold is no figure but a failure: `Different` ends the benchmark with an exit status. One such
process is this module; the last line of its output is a JSON object:

    python -m benchmarks.zeroshot '{"do": "evaluate", "study": ..., "folder": ..., "batch": 8}'
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ablate.evaluation.harness.evaluate import Answers
    from ablate.records.run_record import RunRecord
    from ablate.records.store import ItemScore, RunFolder
    from ablate.runner.messages import Message
    from prereg.registry.paths import Root
    from prereg.registry.plan import RunSpec

TASKS, PARADIGMS, ITEMS, SHOTS = "blimp", 67, 100, (0, 3)
BATCHES = (16, 12, 40)
"""Sequences at once, of each evaluation after the registered one: as many again, fewer, more."""


class Different(Exception):  # noqa: N818 (what was found, not an error of the program)
    """What should be complete or the same is not."""


def measure_zeroshot(study: Path, steps: int | None = None, project: Path | None = None) -> dict[str, Any]:
    """The first run of a study, all paradigms. Raises `StudyError` where the tasks or the harness are not here.

    A `project` is kept, and what an earlier call left in it is resumed: training takes minutes.
    """
    import yaml

    from ablate.evaluation.harness.packs import find_pack
    from ablate.evaluation.harness.tasks import require_extra
    from prereg.registry.paths import Root

    require_extra()
    with tempfile.TemporaryDirectory(prefix="ablate-zeroshot-") as folder:
        project = project.resolve() if project is not None else Path(folder) / "project"
        (project / "studies").mkdir(parents=True, exist_ok=True)
        find_pack(TASKS, Root(project))
        document = yaml.safe_load(study.read_text(encoding="utf-8"))
        document["measure"]["harness"] = {"tasks": TASKS, "items_per_task": ITEMS, "shots": list(SHOTS)}
        document["base"]["budget"]["steps"] = steps or document["base"]["budget"]["steps"]
        path = project / "studies" / study.name
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return measure_in(path, PARADIGMS, BATCHES)


def measure_in(path: Path, n_tasks: int, batches: Sequence[int]) -> dict[str, Any]:
    """The first run of the study of a project: trained, evaluated, and again with each of these batch sizes."""
    from ablate.runner.local import default_slots

    alone, open_because = without_network()
    load = [round(os.getloadavg()[0], 2)]
    words = [sys.executable, "-m", "ablate", "register", str(path)]
    subprocess.run(words, check=True, stdout=sys.stderr, cwd=path.parents[1])
    run = path.parents[1] / f"run-{path.stem}"
    text = run.with_suffix(".json")
    if not text.is_file():
        trained = child(alone, {"do": "train", "study": str(path), "folder": str(run)})
        text.write_text(json.dumps(trained), encoding="utf-8")
    trained = json.loads(text.read_text(encoding="utf-8"))
    require_complete(trained, n_tasks)
    wanted = [{"do": "evaluate", "study": str(path), "folder": str(run), "batch": batch} for batch in batches]
    slots = default_slots()
    with ThreadPoolExecutor(slots) as pool:
        again = list(pool.map(lambda one: child(alone, one), wanted))
    for one in again:
        require_same(one, trained)
    load.append(round(os.getloadavg()[0], 2))
    return {
        **trained,
        "network": open_because or "shut off: unshare -n",
        "load_before_and_after": load,
        "side_by_side": min(slots, len(wanted)),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "again": [{key: one[key] for key in ("batch", "cpu_s", "wall_s", "process_s", "answers")} for one in again],
    }


def without_network() -> tuple[list[str], str]:
    """Words that start a process without a network, or why there are none."""
    said = "there is no unshare"
    for words in (["unshare", "-n"], ["unshare", "-r", "-n"]) if shutil.which("unshare") else ():
        tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return words, ""
        said = tried.stderr.strip() or f"exit status {tried.returncode}"
    print(f"the network is NOT shut off: {said}", file=sys.stderr)
    return [], f"NOT shut off: {said}"


def child(alone: list[str], wanted: dict[str, Any]) -> dict[str, Any]:
    """What one process of its own found, in the environment of a worker."""
    from ablate.runner.processes import ALONE

    words = [*alone, sys.executable, "-m", "benchmarks.zeroshot", json.dumps(wanted)]
    started = time.perf_counter()
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, **ALONE})
    if done.returncode:
        raise Different(f"a process that was to {wanted['do']} ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    interfaces = found.pop("interfaces")
    if alone and interfaces != ["lo"]:
        raise Different(f"{' '.join(alone)} left more than a loopback")
    return {**found, "process_s": round(time.perf_counter() - started, 1)}


def require_complete(found: dict[str, Any], n_tasks: int) -> None:
    """No task, item, choice or number of shots is lost, but for items that cannot be written, which are counted."""
    n_items = n_tasks * found["items_per_task"] - found["unencodable"]
    n_shots = len(found["shots"])
    promised = {
        "n_tasks": n_tasks,
        "n_items": n_items,
        "n_requests": n_items * n_shots * CHOICES,
        # Its score, its score with each number of shots, and the log-likelihood of every choice with each.
        "n_scores": n_items * (1 + n_shots + n_shots * CHOICES),
    }
    wrong = {name: (found[name], number) for name, number in promised.items() if found[name] != number}
    if wrong:
        raise Different("; ".join(f"{name} is {have}, not {want}" for name, (have, want) in wrong.items()))


def require_same(found: dict[str, Any], sealed: dict[str, Any]) -> None:
    """Every score has the bits of the sealed one, and every count is the same."""
    said = f"asked again in batches of {found['batch']}"
    if found["scores_that_differ"]:
        raise Different(f"{said}, {found['scores_that_differ']} scores differ, such as {found['such_as']}")
    wrong = [
        name
        for name in ("n_tasks", "n_items", "n_requests", "n_scores", "unencodable", "truncated", "accuracy", "answers")
        if found[name] != sealed[name]
    ]
    if wrong:
        raise Different(f"{said}: " + "; ".join(f"{name} {found[name]}, not {sealed[name]}" for name in wrong))


def as_markdown(found: dict[str, Any]) -> str:
    """The section of the page."""
    shots = " and ".join(str(n) for n in found["shots"])
    accuracy = ", ".join(f"{value:.4f} with {n} shots" for n, value in found["accuracy"].items())
    before, after = found["load_before_and_after"]
    lines = [
        f"{found['date']}: {found['run']}, {found['steps']:,} steps in {found['dtype']}, asked `{found['tasks']}`:"
        f" {found['n_tasks']} tasks, {found['n_items']:,} items, {shots} shots, {found['n_requests']:,} requests, of"
        f" which the beginning of {found['truncated']:,} did not fit the context of {found['context']};"
        f" {found['unencodable']} items could not be written. Accuracy {accuracy} (n = {found['n_items']:,} items each;"
        f" chance is 1/{CHOICES}). Network {found['network']}. All {found['n_scores']:,} scores have the same bits in"
        f" every asking. One"
        f" thread each, the later askings {found['side_by_side']} side by side; load of the machine {before} before and"
        f" {after} after.",
        "",
        "| asked | batch | CPU s | wall s | whole process, wall s | scores |",
        "|---|---|---|---|---|---|",
        f"| by the run that was trained ({found['train_s']} s of training) | {found['batch']} | not apart |"
        f" {found['wall_s']} | {found['process_s']} | {found['answers'][:8]} |",
    ]
    lines += [
        f"| again, from the sealed weights | {one['batch']} | {one['cpu_s']} | {one['wall_s']} | {one['process_s']} |"
        f" {one['answers'][:8]} |"
        for one in found["again"]
    ]
    return "\n".join(lines) + "\n"


CHOICES = 2
"""Of every item: these are minimal pairs."""


def train(study: Path, folder: Path) -> dict[str, Any]:
    """The first run of a study, trained, evaluated and sealed by a worker process like any other."""
    from ablate.evaluation.harness.adapter import ROWS
    from ablate.records.store import RunFolder
    from ablate.runner.processes import rerun
    from ablate.runner.progress import doing

    root, spec = first_run(study)
    said = [0.0]

    def report(message: Message) -> None:
        if time.monotonic() - said[0] > 10.0:
            said[0] = time.monotonic()
            print(f"{spec.run_id}: {doing(message) or f'step {message.step} of {message.steps}'}", file=sys.stderr)

    rerun(spec, folder, root, onlooker=report)
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


def evaluate_again(study: Path, folder: Path, batch: int) -> dict[str, Any]:
    """The sealed weights, evaluated in batches of a size, and every score compared with the sealed one."""
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
    evaluated = record.model_copy(update={"harness": answers.record})
    return {
        "batch": batch,
        **seconds,
        **outcome_of(spec, evaluated, answers.metrics, answers.items),
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
    """What the study declares to be evaluated."""
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

    tasks = record.harness
    assert tasks is not None, spec.run_id
    return {
        "tasks": tasks.tasks,
        "n_tasks": tasks.n_tasks,
        "n_items": tasks.n_items,
        "n_requests": tasks.n_requests,
        "n_scores": len(bits(items)),
        "unencodable": tasks.unencodable,
        "truncated": tasks.truncated,
        "accuracy": {str(n): metrics[f"harness/accuracy_shots_{n}"] for n in harness_of(spec).shots},
        "answers": outcome_hash([], items),
        "interfaces": [name for _, name in socket.if_nameindex()],
    }


def main() -> None:
    """Do what the one argument wants."""
    wanted = json.loads(sys.argv[1])
    study, folder = Path(wanted["study"]), Path(wanted["folder"])
    found = train(study, folder) if wanted["do"] == "train" else evaluate_again(study, folder, int(wanted["batch"]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
