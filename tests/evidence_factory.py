"""Evidence made by hand: a registered study, matched runs, sealed records, a chained ledger. No disk, no trainer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from ledger_samples import entry

from ablate.records.evidence import ITEM_COLUMNS, METRIC_COLUMNS, Evidence
from ablate.records.run_record import Provenance, RunRecord
from prereg.registry.canon import sha256_of
from prereg.registry.ledger_entry import FIRST, Entry, Event
from prereg.registry.registration import CorpusPin, Registration, promise_sha256
from prereg.registry.run_order import MIRRORED_ROTATION
from prereg.study.corpora import TOY_SHA256
from prereg.study.spec import Study, study_from_document
from prereg.study.timed import timed_promises

Cell = tuple[str, int]
RECORDED = (
    "train/loss",
    "val/loss",
    "val/perplexity",
    "val/bits_per_byte",
    "val/accuracy",
    "grad/norm",
    "embedding/norm",
    "speed/tokens_per_s",
    "speed/eval_s",
)
"""Metrics that the evidence holds. Fixed: their draws follow one another, and reference values rest on them."""
LEVELS = {"val/loss": 2.0, "val/accuracy": 0.5, "speed/tokens_per_s": 16_000.0}


def small_study(**changes: Any) -> Study:
    """Three arms, five seeds, two gains and two guardrails; any field can be changed."""
    document: dict[str, Any] = {
        "study": "small",
        "title": "A small study",
        "base": {"budget": {"steps": 60, "batch": 4}, "model": {"layers": 2, "width": 16, "heads": 2, "context": 8}},
        "baseline": "none",
        "variants": {
            "none": {},
            "layernorm": {"model.embedding_norm": "layernorm"},
            "rmsnorm": {"model.embedding_norm": "rmsnorm"},
        },
        "seeds": [1, 2, 3, 4, 5],
        "measure": {"every": 20},
        "hypotheses": {
            "gain_ln": {"claim": "layernorm lowers val/loss", "smallest": 0.02},
            "gain_rms": {"claim": "rmsnorm lowers val/loss", "smallest": 0.02},
            "harm_ln": {"claim": "layernorm does_not_worsen val/accuracy", "smallest": 0.005, "role": "guardrail"},
            "harm_rms": {"claim": "rmsnorm does_not_worsen val/accuracy", "smallest": 0.005, "role": "guardrail"},
        },
        "decision": [
            {"verdict": "adopt layernorm", "when": "supported(gain_ln) and supported(harm_ln)"},
            {"verdict": "adopt rmsnorm", "when": "supported(gain_rms) and supported(harm_rms)"},
            {"verdict": "adopt layernorm", "when": "not stable(none) and stable(layernorm) and not refuted(harm_ln)"},
            {"verdict": "keep none", "when": "refuted(gain_ln) and refuted(gain_rms)"},
            {"verdict": "inconclusive"},
        ],
        "tie_breakers": ["speed/tokens_per_s"],
        "assume": {
            "metrics": {"val/loss": {"sd": 0.01, "correlation": 0.5}, "val/accuracy": {"sd": 0.003, "correlation": 0.5}}
        },
    }
    return study_from_document(document | changes)


def one_claim(
    claim: str = "layernorm lowers val/loss",
    smallest: float = 0.02,
    *,
    seeds: int = 5,
    hypothesis: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Study:
    """A study of one hypothesis, `h`, which decides alone."""
    settings = {"claim": claim, "smallest": smallest} | dict(hypothesis or {})
    return small_study(
        **(
            {
                "seeds": list(range(1, seeds + 1)),
                "hypotheses": {"h": settings},
                "tie_breakers": [],
                "assume": {},
                "decision": [
                    {"verdict": "yes", "when": "supported(h)"},
                    {"verdict": "no", "when": "refuted(h)"},
                    {"verdict": "inconclusive"},
                ],
            }
            | changes
        )
    )


def make_evidence(
    study: Study,
    *,
    effects: Mapping[str, Mapping[str, float]] | None = None,
    sd: float = 0.01,
    rho: float = 0.5,
    steps: int | None = None,
    seed: int = 0,
    finals: Mapping[str, Mapping[Cell, float]] | None = None,
    diverged: tuple[Cell, ...] = (),
    left_out: tuple[Cell, ...] = (),
) -> tuple[Registration, Evidence]:
    """A registration and evidence as they should be: complete, matched, sealed, in the ledger.

    `effects` is metric -> arm -> shift of its mean; `sd` and `rho` are an arm's SD over seeds and the correlation of
    two arms; `finals` fixes single final values; `diverged` runs end half way; `left_out` cells have no run.
    """
    registration = make_registration(study)
    rng = np.random.default_rng(seed)
    planned = study.cells
    each_seed = dict.fromkeys(one for _, one in planned)
    shared = {(metric, one): rng.standard_normal() for metric in RECORDED for one in each_seed}
    runs, rows = [], []
    for arm, one in planned:
        noise = {
            metric: math.sqrt(rho) * shared[metric, one] + math.sqrt(1 - rho) * rng.standard_normal()
            for metric in RECORDED
        }
        if (arm, one) in left_out:
            continue
        budget = steps or study.training(arm).budget.steps
        status = "diverged" if (arm, one) in diverged else "done"
        last = budget // 2 if status == "diverged" else budget
        final = {
            metric: LEVELS.get(metric, 1.0)
            + (effects or {}).get(metric, {}).get(arm, 0.0)
            + sd * noise[metric] * (LEVELS[metric] if metric == "speed/tokens_per_s" else 1.0)
            for metric in RECORDED
        }
        for metric, fixed in (finals or {}).items():
            final[metric] = fixed.get((arm, one), final[metric])
        rows += _rows(study, arm, one, last=last, budget=budget, final=final)
        runs.append(_run(registration, arm, one, status=status, steps=last))
    frame = pd.DataFrame(rows, columns=list(METRIC_COLUMNS)).astype({"value": "float64", "step": "int64"})
    ledger = make_ledger(registration, runs)
    return registration, Evidence(
        planned=planned, runs=tuple(runs), metrics=frame, ledger=ledger, ledger_head=ledger[-1].sha256
    )


def make_registration(study: Study) -> Registration:
    """A registration that never touched a disk."""
    corpus = CorpusPin(name="toy", sha256=TOY_SHA256, size_bytes=100_000, characters=100_000)
    # Hand-made evidence is mostly that of a registration from before there was an order; a claim on a time needs one.
    order = MIRRORED_ROTATION if timed_promises(study) else None
    promise = {"study": study.model_dump(mode="json"), "corpus": corpus.model_dump(mode="json")}
    if order is not None:
        promise["run_order"] = order
    sha256 = promise_sha256(promise)
    return Registration(
        study=study,
        run_order=order,
        corpus=corpus,
        sha256=sha256,
        source_sha256=sha256_of("yaml"),
        registered_at="2026-05-04T13:20:00+00:00",
        tool={"ablate": "1.0.0"},
        design=None,
        previous=None,
        reason=None,
        lock_sha256=sha256_of("lock"),
    )


def make_ledger(registration: Registration, runs: list[RunRecord]) -> tuple[Entry, ...]:
    """registered, started, one sealed entry a run, finished."""
    events: list[tuple[Event, dict[str, Any]]] = [
        ("registered", {"lock_sha256": registration.lock_sha256}),
        ("started", {"runs": len(runs), "code": sha256_of("code")}),
        *(("sealed", sealed_body(run)) for run in runs),
        ("finished", {}),
    ]
    return chain(registration, events)


def sealed_body(run: RunRecord) -> dict[str, Any]:
    """What the ledger says of a sealed run."""
    return {
        "variant": run.variant,
        "seed": run.seed,
        "status": run.status,
        "attempts": run.attempts,
        "metrics_sha256": run.metrics_sha256,
        "outcome_sha256": run.outcome_sha256,
        **({} if run.items_sha256 is None else {"items_sha256": run.items_sha256}),
        "run_sha256": sha256_of(run.model_dump(mode="json")),
    }


def chain(
    registration: Registration, events: list[tuple[Event, dict[str, Any]]], under: Mapping[int, str] | None = None
) -> tuple[Entry, ...]:
    """Entries of one study, hashed and chained; `under` names other registrations by the index of the entry."""
    entries: list[Entry] = []
    for index, (event, body) in enumerate(events):
        made = entry(
            event,
            body,
            index=index,
            at=f"2026-05-04T13:{20 + index // 60:02d}:{index % 60:02d}+00:00",
            study=registration.study.study,
            registration=(under or {}).get(index, registration.sha256),
            previous=entries[-1].sha256 if entries else FIRST,
        )
        entries.append(made)
    return tuple(entries)


def with_entry(
    registration: Registration, evidence: Evidence, event: Event, body: dict[str, Any], *, at: int | None = None
) -> Evidence:
    """The same evidence with one more ledger entry, at the end or at a place."""
    events: list[tuple[Event, dict[str, Any]]] = [(one.event, one.stated) for one in evidence.ledger]
    events.insert(len(events) if at is None else at, (event, body))
    ledger = chain(registration, events)
    return replace(evidence, ledger=ledger, ledger_head=ledger[-1].sha256)


EARLIER = "e" * 64
Change = tuple[str, Any, Any]


def with_amendments(
    registration: Registration, evidence: Evidence, *amendments: tuple[str, list[Change]]
) -> tuple[Registration, Evidence]:
    """The same study, reached by amendments: each what was known by then, and (field, registered, now) of its changes.

    All stand before the runs of the registration in force, as they do when its runs are made anew.
    """
    made = [EARLIER, *(sha256_of(["amendment", number]) for number in range(1, len(amendments))), registration.sha256]
    events: list[tuple[Event, dict[str, Any]]] = [("registered", {"lock_sha256": "0" * 64})]
    for number, (known, changes) in enumerate(amendments):
        body: dict[str, Any] = {"reason": "a better idea", "evidence": known, "previous": made[number]}
        body["differences"] = [{"field": field, "registered": old, "now": new} for field, old, new in changes]
        events.append(("amended", body))
    under = dict(enumerate(made))
    events += [(one.event, one.stated) for one in evidence.ledger if one.event != "registered"]
    ledger = chain(registration, events, under)
    changed = registration.model_copy(update={"previous": made[-2], "reason": "a better idea"})
    return changed, replace(evidence, ledger=ledger, ledger_head=ledger[-1].sha256)


def with_run(evidence: Evidence, cell: Cell, **changes: Any) -> Evidence:
    """The same evidence with fields of one run changed (its seals and ledger entry are left as they were)."""
    runs = tuple(run.model_copy(update=changes) if (run.variant, run.seed) == cell else run for run in evidence.runs)
    return replace(evidence, runs=runs)


def with_items(
    registration: Registration,
    evidence: Evidence,
    scores: Mapping[Cell, npt.ArrayLike],
    *,
    tasks: Sequence[str] | None = None,
) -> Evidence:
    """The same evidence with the score of every item of some runs, sealed with them and in the ledger.

    Every run of a cell in `scores` is given one score an item; `tasks` names the task of each item (two by default).
    """
    most = max(np.asarray(values).size for values in scores.values())
    task_of = [("even", "odd")[place % 2] if tasks is None else tasks[place] for place in range(most)]
    texts = [sha256_of(["text", task, place]) for place, task in enumerate(task_of)]
    rows = [
        (arm, seed, task_of[place], f"{place:05d}", texts[place], "harness/accuracy", float(value))
        for (arm, seed), values in scores.items()
        for place, value in enumerate(np.asarray(values, dtype=np.float64))
    ]
    runs = tuple(
        run.model_copy(update={"items_sha256": sha256_of(["items", list(map(float, np.asarray(scores[cell])))])})
        if (cell := (run.variant, run.seed)) in scores
        else run
        for run in evidence.runs
    )
    ledger = make_ledger(registration, list(runs))
    return replace(
        evidence,
        runs=runs,
        items=pd.DataFrame(rows, columns=list(ITEM_COLUMNS)),
        ledger=ledger,
        ledger_head=ledger[-1].sha256,
    )


def with_losses(evidence: Evidence, cell: Cell, losses: Mapping[int, float]) -> Evidence:
    """The same evidence with the training loss of some steps of one run replaced."""
    frame = evidence.metrics.copy()
    for step, value in losses.items():
        frame.loc[
            (frame["variant"] == cell[0])
            & (frame["seed"] == cell[1])
            & (frame["metric"] == "train/loss")
            & (frame["step"] == step),
            "value",
        ] = value
    return replace(evidence, metrics=frame)


def _rows(
    study: Study,
    arm: str,
    seed: int,
    *,
    last: int,
    budget: int,
    final: Mapping[str, float],
) -> list[tuple[str, int, int, str, float]]:
    """Smooth training and validation curves that end at the final values."""
    rng = np.random.default_rng([seed, len(arm)])

    def fade(step: int) -> float:
        return (math.exp(-4.0 * step / budget) - math.exp(-4.0)) / (1 - math.exp(-4.0))

    rows = [
        (arm, seed, step, "train/loss", final["val/loss"] + 2.0 * fade(step) + 0.005 * rng.standard_normal())
        for step in range(1, last + 1)
    ]
    for step in sorted({*range(0, last + 1, study.measure.every), last if last == budget else 0}):
        for metric, value in final.items():
            if metric != "train/loss":
                rows.append((arm, seed, step, metric, value * (1.0 + 0.5 * fade(step)) if step < budget else value))
    return rows


def _run(registration: Registration, arm: str, seed: int, *, status: str, steps: int) -> RunRecord:
    config = registration.study.training(arm)
    own = {"layernorm": ["norm_embedding.weight", "norm_embedding.bias"], "rmsnorm": ["norm_embedding.weight"]}
    blocks = [f"block{layer}.{part}.weight" for layer in range(config.model.layers) for part in ("attention", "feed")]
    names = ["tokens.weight", "positions.weight", *blocks, *own.get(arm, [])]
    reading = [seed, steps, config.budget.batch, config.model.context]
    # One after the other where there is an order, and else all at once.
    place = 0 if registration.run_order is None else registration.cells.index((arm, seed))
    began = datetime(2026, 5, 4, 13, 30, tzinfo=UTC) + timedelta(minutes=2 * place)
    return RunRecord(
        format=1,
        study=registration.study.study,
        registration=registration.sha256,
        variant=arm,
        seed=seed,
        status=status,  # type: ignore[arg-type]
        attempts=1,
        config=config.model_dump(mode="json"),
        steps=steps,
        tokens=steps * config.budget.batch * config.model.context,
        parameters=10_000 + len(names),
        must_match={
            **{f"initial/{name}": sha256_of([name, seed, config.model.width]) for name in names},
            "batches": sha256_of(["batches", *reading]),
            "corpus": TOY_SHA256,
            "dropout": sha256_of(["dropout", seed, steps, config.model.dropout, config.model.layers]),
            "tokenizer": sha256_of("char"),
        },
        provenance=Provenance(
            code=sha256_of("code"),
            commit="3f2a9c17",
            dirty=False,
            python="3.11.9",
            torch="2.6.0",
            numpy="2.1.0",
            platform="Linux x86_64",
            processor="a processor",
            device="cpu",
            threads=1,
        ),
        started_at=began.isoformat(),
        ended_at=(began + timedelta(minutes=2)).isoformat(),
        train_s=90.0 + seed,
        eval_s=10.0,
        wall_s=105.0 + seed,
        metrics_sha256=sha256_of(["metrics", arm, seed]),
        outcome_sha256=sha256_of(["outcome", arm, seed]),
    )
