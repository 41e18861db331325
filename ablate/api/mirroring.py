"""What trackers are handed: health under masks while a study is blind, everything once it is decided.

A mirror reads, and writes nothing that a verdict rests on. A tracker that fails ends its own mirror, with a note.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Self

from ablate.trackers.mirrors import open_tracker
from ablate.trackers.target import OWN, UNKNOWN_RUN, Conclusion, Group, SealedRun, Target, Tracker
from prereg.errors import RunError

if TYPE_CHECKING:
    from ablate.api.context import StudyContext
    from ablate.api.status import RunHealth, Watched
    from ablate.notebook.results import Decided
    from prereg.registry.paths import Root
    from prereg.registry.registration import Registration

EVERY_S = 5.0
"""Seconds between two looks."""
PATIENCE_S = 20.0
"""How long a tracker may take to write out the rest, once all runs have ended."""
ENDED = ("done", "diverged", "failed")


class Mirror:
    """Follows a study at work, as `ablate watch` does, and sends what it sees to trackers. A context manager."""

    def __init__(
        self, context: StudyContext, registration: Registration, targets: Sequence[Target], note: Callable[[str], None]
    ) -> None:
        self._context, self._note = context, note
        group = group_of(context.root, registration)
        self._trackers = {target: open_tracker(target, group) for target in targets}
        self._masks = masks_of(group, registration) if targets else {}
        self._stop = threading.Event()
        self._threads: dict[Target, threading.Thread] = {}
        self._left: set[Target] = set()

    def __enter__(self) -> Self:
        for target, tracker in self._trackers.items():
            thread = threading.Thread(target=self._follow, args=(target, tracker), daemon=True)
            self._threads[target] = thread
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        until = time.monotonic() + PATIENCE_S
        for target, thread in self._threads.items():
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                self._left.add(target)
                self._note(f"{target} did not answer within {PATIENCE_S:g} s: what it lacks was not mirrored")

    def _follow(self, target: Target, tracker: Tracker) -> None:
        from ablate.api.status import watch_study

        try:
            seen, looked = watch_study(self._context, None, 0.0), time.monotonic()
            sent: dict[str, RunHealth] = {_name(run): run for run in seen.health.runs if run.state in ENDED}
            last = False
            while not last:
                last = self._stop.wait(EVERY_S)
                now = time.monotonic()
                seen, looked = watch_study(self._context, seen, now - looked), now
                self._send(target, tracker, seen, sent)
            tracker.close()
        except Exception as error:
            if target not in self._left:
                self._note(_ended(target, error))

    def _send(self, target: Target, tracker: Tracker, seen: Watched, sent: dict[str, RunHealth]) -> None:
        changed = False
        for run in seen.health.runs:
            name = _name(run)
            if target in self._left:
                return  # it answered, and nobody waits for it any more
            if run.state == "waiting" or sent.get(name) == run:
                continue
            changed, sent[name] = True, run
            tracker.health(self._masks[name], run.step, health_of(run, seen.steps_per_s.get(name)))
            if run.state in ENDED:
                tracker.ended(self._masks[name], run.state)
        if changed and target not in self._left:
            tracker.health(self._masks[UNKNOWN_RUN], sum(run.step for run in seen.health.runs), whole_of(seen))


def health_of(run: RunHealth, steps_per_s: float | None) -> dict[str, float]:
    """The numbers of one run that `ablate watch` shows: no value of a metric."""
    found = {"step": float(run.step), "attempts": float(run.attempts)}
    if steps_per_s is not None:
        found["steps_per_s"] = steps_per_s
    if run.falling is not None:
        found["falling"] = float(run.falling)
    return {OWN + name: value for name, value in found.items()}


def whole_of(seen: Watched) -> dict[str, float]:
    """The numbers of the whole study that `ablate watch` shows, and the training loss of several arms together."""
    counts = {f"runs_{state}": float(seen.health.count(state)) for state in ("running", *ENDED)}
    pooled = {"pooled_loss": seen.pooled[-1]} if seen.pooled else {}
    return {OWN + name: value for name, value in (counts | pooled).items()}


def mirror_decided(
    context: StudyContext, decided: Decided, targets: Sequence[Target], note: Callable[[str], None]
) -> None:
    """Send every sealed run of a decided study, and the verdict. A tracker that fails is named in a note.

    A run whose outcome a tracker holds is not sent again; the verdict is. Of a blind study nothing is sent.
    """
    if decided.verdict_path is None:
        return note("nothing was mirrored: the study is not decided")
    group = group_of(context.root, decided.registration)
    masks = masks_of(group, decided.registration)
    decision = decided.decision
    conclusion = Conclusion(
        mask=masks[UNKNOWN_RUN],
        status=decision.status,
        verdict=decision.verdict or "none",
        because=decision.because,
        findings={one.hypothesis: (one.outcome, one.sentence) for one in decision.findings},
    )
    for target in targets:
        try:
            tracker = open_tracker(target, group)
            sent = [tracker.send(run) for run in _sealed(context, decided.registration, masks)]
            tracker.conclude(conclusion)
            tracker.close()
        except Exception as error:
            note(_ended(target, error))
        else:
            note(f"{target}: {sum(sent)} runs mirrored, {len(sent) - sum(sent)} were there; the verdict with them")
    return None


def group_of(root: Root, registration: Registration) -> Group:
    """The runs of a registration as trackers know them."""
    return Group(registration.study.study, registration.sha256, root.mirrors)


def masks_of(group: Group, registration: Registration) -> dict[str, str]:
    """ARM/SEED -> the random name of its tracker run, the same in every call. Raises `RunError` where damaged."""
    from prereg.registry.disk import create_whole

    path = group.home / f"{group.name}.json"
    names = [*(f"{arm}/{seed}" for arm, seed in registration.study.cells), UNKNOWN_RUN]
    if not path.exists():
        made = {name: secrets.token_hex(8) for name in names}
        path.parent.mkdir(parents=True, exist_ok=True)
        create_whole(path, json.dumps(made, indent=2).encode() + b"\n")
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, dict) or set(found) != set(names) or not all(isinstance(m, str) for m in found.values()):
        raise RunError(
            f"{path} does not hold the masks of this study's runs",
            required="the file as `ablate run --mirror` wrote it",
            fix=f"rm {path}   (runs then continue under new names)",
        )
    return found


def _sealed(context: StudyContext, registration: Registration, masks: Mapping[str, str]) -> list[SealedRun]:
    """Every sealed run of the plan whose seals hold."""
    from ablate.records.store import RunFolder
    from prereg.registry.plan import plan

    found = []
    for spec in plan(registration):
        folder = RunFolder(context.root.run(spec.study, registration.runs_sha256, spec.variant, spec.seed))
        record = folder.read_record() if folder.is_sealed() else None
        if record is None:
            continue
        ended = datetime.fromisoformat(record.ended_at or record.started_at)
        found.append(
            SealedRun(
                variant=spec.variant,
                seed=spec.seed,
                mask=masks[f"{spec.variant}/{spec.seed}"],
                status=record.status,
                config=record.config,
                outcome_sha256=str(record.outcome_sha256),
                ended_ms=round(ended.timestamp() * 1000),
                rows=folder.sealed_rows(),
            )
        )
    return found


def _name(run: RunHealth) -> str:
    return f"{run.variant}/{run.seed}"


def _ended(target: Target, error: Exception) -> str:
    said = str(error).strip().splitlines()
    return f"{target} failed, and its mirror ended: {type(error).__name__}: {said[0][:200] if said else ''}"
