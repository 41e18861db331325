"""A trained model asked its tasks again and again, without a network: complete, and the same bits every time?

One run of a study is trained and asked by a worker process, as registered. Then its sealed weights are asked in
processes of their own: as before, once more, and with other batch sizes. Every score of every item is held against the
sealed one. What does not hold is no figure but a failure: `Different` ends the benchmark with an exit status.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.asked import CHOICES

TASKS, PARADIGMS, ITEMS, SHOTS = "blimp", 67, 100, (0, 3)
BATCHES = (16, 12, 40)
"""Sequences at once, of each asking after the registered one: as many again, fewer, more."""


class Different(Exception):  # noqa: N818 (what was found, not an error of the program)
    """What should be complete or the same is not."""


def measure_zeroshot(study: Path, steps: int | None = None, house: Path | None = None) -> dict[str, Any]:
    """The first run of a study, all paradigms. Raises `StudyError` where the tasks or the harness are not here.

    A `house` is kept, and what an earlier call left in it is gone on from: training takes minutes.
    """
    import yaml

    from ablate.evaluation.harness.packs import find_pack
    from ablate.evaluation.harness.tasks import require_extra
    from prereg.registry.paths import Root

    require_extra()
    with tempfile.TemporaryDirectory(prefix="ablate-zeroshot-") as folder:
        house = house.resolve() if house is not None else Path(folder) / "house"
        (house / "studies").mkdir(parents=True, exist_ok=True)
        find_pack(TASKS, Root(house))
        document = yaml.safe_load(study.read_text(encoding="utf-8"))
        document["measure"]["harness"] = {"tasks": TASKS, "items_per_task": ITEMS, "shots": list(SHOTS)}
        document["base"]["budget"]["steps"] = steps or document["base"]["budget"]["steps"]
        path = house / "studies" / study.name
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return measure_in(path, PARADIGMS, BATCHES)


def measure_in(path: Path, n_tasks: int, batches: Sequence[int]) -> dict[str, Any]:
    """The first run of the study of a house, trained, asked, and asked again with each of these batch sizes."""
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
    wanted = [{"do": "ask", "study": str(path), "folder": str(run), "batch": batch} for batch in batches]
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

    words = [*alone, sys.executable, "-m", "benchmarks.asked", json.dumps(wanted)]
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
