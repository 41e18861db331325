"""Made-up decisions for the report's tests: three arms, three hypotheses, five seeds, four endings.

Findings come from the judge; the checks and the verdict are written by hand, so that a report can be tested
without a disk, a ledger or a training.
"""

from __future__ import annotations

import copy
import math
from typing import Any, Literal

import numpy as np
import pandas as pd
from evidence_factory import small_study

from ablate.judge.decide import decide
from ablate.judge.design.characteristics import simulate_design as design_study
from ablate.judge.findings import judge_hypotheses
from ablate.judge.verdict import Check, Decision, Finding, Stability, Status
from ablate.records.evidence import METRIC_COLUMNS, Evidence
from ablate.records.run_record import Provenance, RunRecord
from ablate.reporting.context import ReportContext
from prereg.registry.canon import sha256_of
from prereg.registry.registration import CorpusPin, Registration, promise_sha256
from prereg.study.spec import Study, study_from_document

Ending = Literal["decided", "deviating", "inconclusive", "inadmissible", "incomplete"]
ENDINGS: tuple[Ending, ...] = ("decided", "deviating", "inconclusive", "inadmissible", "incomplete")
SEEDS = (1, 2, 3, 4, 5)
FLOOR = 1.4321

# Final validation loss and accuracy by arm and seed; 'inconclusive' shifts the variants towards the baseline.
LOSS = {
    "none": (2.0712, 2.0591, 2.0834, 2.0655, 2.0777),
    "layernorm": (2.0214, 2.0176, 2.0271, 2.0202, 2.0263),
    "rmsnorm": (2.0668, 2.0602, 2.0791, 2.0671, 2.0719),
}
PARAMETERS = {"none": 1_617_920, "layernorm": 1_618_176, "rmsnorm": 1_618_048}


def document(**changes: Any) -> dict[str, Any]:
    """The study as plain data."""
    return {
        "study": "embnorm",
        "title": "Embedding normalization in a small Pre-LN GPT",
        "question": "Does one normalization layer after the summed token and position embeddings change the quality or "
        "the stability of a 1.6M-parameter Pre-LN GPT?",
        "base": {"model": {"layers": 8}, "budget": {"steps": 300, "batch": 16}},
        "baseline": "none",
        "variants": {
            "none": {},
            "layernorm": {"model.embedding_norm": "layernorm"},
            "rmsnorm": {"model.embedding_norm": "rmsnorm"},
        },
        "seeds": list(SEEDS),
        "measure": {"every": 25},
        "hypotheses": {
            "gain_ln": {"claim": "layernorm lowers val/loss", "smallest": 0.02},
            "gain_rms": {"claim": "rmsnorm lowers val/loss", "smallest": 0.02},
            "harm_ln": {"claim": "layernorm does_not_worsen val/accuracy", "smallest": 0.005, "role": "guardrail"},
        },
        "analysis": {"also": ["sign_flip"]},
        "decision": [
            {"verdict": "keep none", "when": "refuted(harm_ln) and stable(none)"},
            {"verdict": "adopt layernorm", "when": "supported(gain_ln) and supported(harm_ln)"},
            {"verdict": "adopt rmsnorm", "when": "supported(gain_rms)"},
            {"verdict": "keep none", "when": "refuted(gain_ln) and refuted(gain_rms)"},
            {"verdict": "inconclusive"},
        ],
        "assume": {"metrics": {"val/loss": {"sd": 0.011, "correlation": 0.8}, "val/accuracy": {"sd": 0.0015}}},
        "tie_breakers": ["speed/tokens_per_s"],
    } | changes


def told(ending: Ending = "decided", *, every: int = 25, spiky: bool = False, **changes: Any) -> ReportContext:
    """A whole account that ends in one of four ways."""
    study = study_from_document(document(**changes))
    registration = register_by_hand(study)
    evidence = make_evidence(study, registration, ending, every=every)
    return ReportContext(
        decision=decide_by_hand(study, registration, evidence, ending, spiky=spiky),
        registration=registration,
        evidence=evidence,
        ledger_head=sha256_of(["ledger", ending]),
        generated_at="2026-05-04T15:20:11+00:00",
        floors={"val/loss": FLOOR},
    )


_DESIGNS: dict[str, dict[str, Any]] = {}


def _design_of(study: Study) -> dict[str, Any]:
    """Its simulated design, once for each study: most tests tell of the same one."""
    words = study.model_dump_json()
    if words not in _DESIGNS:
        _DESIGNS[words] = design_study(study, n_sims=200).model_dump(mode="json")
    return copy.deepcopy(_DESIGNS[words])


def register_by_hand(study: Study) -> Registration:
    """A registration that never touched a disk."""
    corpus = CorpusPin(name="toy", sha256=sha256_of("toy"), size_bytes=1_115_394, characters=1_115_394)
    promise = promise_sha256({"study": study.model_dump(mode="json"), "corpus": corpus.model_dump(mode="json")})
    return Registration(
        study=study,
        corpus=corpus,
        sha256=promise,
        source_sha256=sha256_of("yaml"),
        registered_at="2026-05-04T13:20:00+00:00",
        tool={"ablate": "1.0.0"},
        design=_design_of(study),
        previous=None,
        reason=None,
        lock_sha256=sha256_of("lock"),
    )


def make_evidence(study: Study, registration: Registration, ending: Ending, *, every: int = 25) -> Evidence:
    """Sealed runs with smooth curves; the incomplete study lacks two runs."""
    planned = tuple((arm, seed) for seed in study.seeds for arm in study.arms)
    lacking = {("rmsnorm", 4), ("layernorm", 5)} if ending == "incomplete" else set()
    runs, rows = [], []
    for arm, seed in planned:
        if (arm, seed) in lacking:
            continue
        runs.append(_run(registration, arm, seed))
        rng = np.random.default_rng([seed, len(arm)])
        final = loss_of(arm, seed, ending)
        start = 4.17 + 0.01 * rng.standard_normal()
        for step in [*range(0, 300, every), 300]:
            fade = (math.exp(-step / 70) - math.exp(-300 / 70)) / (1 - math.exp(-300 / 70))
            loss = final + (start - final) * fade + (0.006 * rng.standard_normal() if 0 < step < 300 else 0.0)
            rows += [
                (arm, seed, step, "val/loss", loss),
                (arm, seed, step, "val/accuracy", 0.62 - 0.12 * loss),
                (arm, seed, step, "val/perplexity", math.exp(loss)),
            ]
        rows += [
            (arm, seed, 300, "speed/tokens_per_s", 16_900.0 + 300 * rng.standard_normal()),
            (arm, seed, 300, "grad/norm", 1.31 + 0.05 * rng.standard_normal()),
        ]
    frame = pd.DataFrame(rows, columns=list(METRIC_COLUMNS))
    return Evidence(planned=planned, runs=tuple(runs), metrics=frame, ledger_head=sha256_of(["ledger", ending]))


def loss_of(arm: str, seed: int, ending: Ending) -> float:
    """The final loss of a run."""
    value = LOSS[arm][seed - 1]
    if ending == "inconclusive" and arm != "none":
        return value + (0.05 if arm == "layernorm" else 0.0) + 0.03 * math.sin(7 * seed + len(arm))
    return value


def _run(registration: Registration, arm: str, seed: int) -> RunRecord:
    names = [
        "wte",
        "wpe",
        "head.norm.weight",
        *(f"block.{layer}.{part}" for layer in range(8) for part in ("qkv", "mlp")),
    ]
    own = {"none": [], "layernorm": ["norm.weight", "norm.bias"], "rmsnorm": ["norm.weight"]}[arm]
    initial = {name: sha256_of([name, seed]) for name in [*names, *own]}
    again = (arm, seed) == ("rmsnorm", 3)
    return RunRecord(
        format=1,
        study=registration.study.study,
        registration=registration.sha256,
        variant=arm,
        seed=seed,
        status="done",
        attempts=2 if again else 1,
        resumed_from=(100,) if again else (),
        config={},
        steps=300,
        tokens=614_400,
        parameters=PARAMETERS[arm],
        must_match={
            **{f"initial/{name}": sha256 for name, sha256 in initial.items()},
            "batches": sha256_of(["batches", seed]),
            "dropout": sha256_of(["dropout", seed]),
            "corpus": sha256_of("toy"),
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
        started_at="2026-05-04T13:30:00+00:00",
        ended_at="2026-05-04T13:32:00+00:00",
        train_s=96.5 + seed,
        eval_s=14.25,
        wall_s=118.75 + seed,
        metrics_sha256=sha256_of([arm, seed]),
        outcome_sha256=sha256_of([seed, arm]),
    )


def decide_by_hand(
    study: Study, registration: Registration, evidence: Evidence, ending: Ending, *, spiky: bool = False
) -> Decision:
    """A decision in one of its four forms."""
    findings = () if ending == "incomplete" else _findings(study, evidence)
    checks = [
        Check(
            name="every planned run is present",
            passed=ending != "incomplete",
            severity="inadmissible",
            found="15 of 15 planned runs"
            if ending != "incomplete"
            else "13 of 15 planned runs; missing: layernorm seed 5, rmsnorm seed 4",
            required="every planned run done, or diverged",
        ),
        Check(
            name="no early look",
            passed=ending != "inadmissible",
            severity="inadmissible",
            found="no look before the last run ended"
            if ending != "inadmissible"
            else "1 unregistered look at outcomes, after 9 of 15 runs",
            required="no look at outcomes before the last run",
        ),
        Check(
            name="pairs are matched",
            passed=True,
            severity="inadmissible",
            found="10 of 10 pairs match",
            required="equal initial weights, batches, dropout, tokens",
        ),
        Check(
            name="no run was resumed",
            passed=ending == "decided",
            severity="deviation",
            found="held" if ending == "decided" else "rmsnorm seed 3 was resumed at step 100",
        ),
        Check(name="the tool's tree was clean", passed=True, severity="note", found="no uncommitted changes"),
    ]
    status: Status = "inadmissible"
    verdict: str | None = None
    line: int | None = None
    because = "The evidence is not what was promised, so no verdict is given."
    if ending == "incomplete":
        status = "unfinished"
        because = "13 of 15 planned runs have ended; nothing is judged, and nothing is shown, before all have."
    if ending in ("decided", "deviating"):
        status, verdict, line = "decided", "adopt layernorm", 2
        because = "Line 2 is the first that holds: supported(gain_ln) and supported(harm_ln)."
    if ending == "deviating":
        status = "decided_with_deviations"
    if ending == "inconclusive":
        status, verdict, line = "inconclusive", "inconclusive", 5
        because = "No earlier line holds; line 5 holds in every other case."
    stability = tuple(
        Stability(
            variant=arm,
            stable=not (spiky and arm == "none"),
            runs=5,
            spikes={2: (41, 42)} if spiky and arm == "none" else {},
        )
        for arm in study.arms
    )
    return Decision(
        format=1,
        study=study.study,
        title=study.title,
        registration=registration.sha256,
        status=status,
        verdict=verdict,
        line=line,
        because=because,
        findings=findings,
        stability=stability,
        checks=tuple(checks),
        evidence=evidence.sha256,
    )


def _findings(study: Study, evidence: Evidence) -> tuple[Finding, ...]:
    metrics = {claim.metric for claim in study.claims.values()}
    return judge_hypotheses(study, {metric: evidence.final(metric) for metric in metrics})


def told_of(made: tuple[Registration, Evidence]) -> ReportContext:
    """The account of evidence, as the judge decides it."""
    registration, evidence = made
    return ReportContext(
        decision=decide(registration, evidence),
        registration=registration,
        evidence=evidence,
        ledger_head=evidence.ledger_head,
        generated_at="2026-05-04T15:20:11+00:00",
    )


def factorial(**changes: Any) -> Study:
    """Eight cells, an interaction, a logarithmic scale."""
    return small_study(
        **(
            {
                "variants": {},
                "baseline": "post-shallow-cold",
                "factors": {
                    "norm": {"pre": {"model.norm": "pre"}, "post": {"model.norm": "post"}},
                    "depth": {"shallow": {"model.layers": 1}, "deep": {"model.layers": 3}},
                    "warmup": {"cold": {"optim.warmup": 0}, "warm": {"optim.warmup": 20}},
                },
                "hypotheses": {
                    "pre_helps": {"claim": "pre-deep-cold lowers val/loss than post-deep-cold", "smallest": 0.02},
                    "interacts": {
                        "claim": "(post-deep-cold - pre-deep-cold) raises val/perplexity than (post-shallow-cold - "
                        "pre-shallow-cold)",
                        "smallest": 0.02,
                        "scale": "log",
                    },
                },
                "decision": [{"verdict": "use pre", "when": "supported(pre_helps)"}, {"verdict": "inconclusive"}],
                "tie_breakers": [],
                "assume": {},
            }
            | changes
        )
    )
