"""Studies that between them use every option of the study format, for the documents of a registration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ledger_samples import entry

from prereg.documents.claims import ClaimFacts, claims_of
from prereg.documents.facts import StudyFacts
from prereg.documents.sentences import say
from prereg.registry.ledger_entry import Entry
from prereg.registry.registration import CorpusPin, Registration
from prereg.study.spec import Study, study_from_document

PIN = CorpusPin(name="toy", sha256="ab" * 32, size_bytes=1_000_003, characters=1_000_000)


def document(**changes: Any) -> dict[str, Any]:
    """A plain study of three arms."""
    plain: dict[str, Any] = {
        "study": "plain",
        "title": "A plain study",
        "question": "Does a wider or a deeper model learn faster?",
        "variants": {"small": {}, "wide": {"model.width": 256}, "deep": {"model.layers": 12}},
        "baseline": "small",
        "seeds": [1, 2, 3, 4, 5, 6, 7, 8],
        "stable": {"loss_spike": {"above": 6.0, "window": 20}},  # as every lock says that is older than rates
        "hypotheses": {
            "gain": {"claim": "wide lowers val/loss", "smallest": 0.02},
            "harm": {"claim": "wide does_not_worsen val/accuracy", "smallest": 0.01, "role": "guardrail"},
        },
        "decision": [
            {"verdict": "adopt wide", "when": "supported(gain) and (stable(wide) or not refuted(harm))"},
            {"verdict": "inconclusive"},
        ],
    }
    return plain | changes


def hypotheses(**claims: dict[str, Any]) -> dict[str, Any]:
    """Hypotheses beside the two that the decision asks about."""
    return document()["hypotheses"] | claims


FACTORS = {
    "norm": {"pre": {"model.norm": "pre"}, "post": {"model.norm": "post"}},
    "depth": {"shallow": {}, "deep": {"model.layers": 16, "optim.lr": 0.0005}},
}
_SUPPORTED = [{"verdict": "yes", "when": "supported(gain)"}, {"verdict": "inconclusive"}]

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": document(),
    "verbs": document(
        hypotheses=hypotheses(
            up={"claim": "wide raises val/accuracy", "smallest": 0.01},
            either={"claim": "deep changes val/loss than wide", "smallest": 0.03, "role": "secondary"},
            any_change={"claim": "deep changes grad/norm", "smallest": 0.0, "role": "exploratory"},
            same={"claim": "deep does_not_change embedding/norm", "smallest": 1.5, "role": "secondary"},
            direction={"claim": "deep lowers grad/norm", "smallest": 0.0, "role": "secondary"},
            mean={"claim": "(0.5*wide + 0.5*deep) lowers val/loss", "smallest": 0.02, "role": "secondary"},
        )
    ),
    "scales": document(
        hypotheses=hypotheses(
            ratio={"claim": "wide lowers val/perplexity", "smallest": 0.05, "scale": "log"},
            decades={"claim": "wide lowers grad/norm", "smallest": 0.1, "scale": "log10", "role": "secondary"},
        )
    ),
    "readings": document(
        hypotheses=hypotheses(
            early={"claim": "deep lowers val/loss", "smallest": 0.02, "read": {"step": 100}},
            best={"claim": "deep raises val/accuracy", "smallest": 0.01, "read": "best"},
            area={"claim": "deep lowers val/loss", "smallest": 0.02, "read": "area"},
        )
    ),
    "factors": {
        key: value
        for key, value in document(
            factors=FACTORS,
            baseline="pre-shallow",
            hypotheses={
                "gain": {"claim": "post-deep lowers val/loss than pre-deep", "smallest": 0.02},
                "interaction": {
                    "claim": "(post-deep - pre-deep) raises val/loss than (post-shallow - pre-shallow)",
                    "smallest": 0.05,
                    "role": "secondary",
                },
                "additive": {
                    "claim": "(post-deep - pre-deep) does_not_change val/loss than (post-shallow - pre-shallow)",
                    "smallest": 0.5,
                    "role": "secondary",
                },
            },
            decision=_SUPPORTED,
        ).items()
        if key != "variants"
    },
    "looks": document(stopping={"looks": [3, 5, 8], "spending": "pocock"}),
    "bootstrap_t": document(analysis={"test": "bootstrap_t", "alpha": 0.1}),
    "uncorrected": document(analysis={"correct": "none"}, tie_breakers=["speed/tokens_per_s"]),
    "items": document(
        analysis={"test": "items", "estimand": "new_seeds_and_items"},
        measure={"harness": {"tasks": "blimp", "items_per_task": 50, "shots": [0, 3]}, "every": 10},
        hypotheses={
            "gain": {"claim": "wide raises harness/accuracy", "smallest": 0.02},
            "harm": {"claim": "deep does_not_worsen harness/accuracy", "smallest": 0.02, "role": "guardrail"},
        },
    ),
    "command": document(
        trainer="command",
        command=["python", "train.py", "--seed={seed}", "--out=a folder"],
        metrics={"file": "log.jsonl"},
        base={"optim": {"lr": 1, "name": "sgd"}, "layers": [1, 2]},
        variants={"small": {}, "wide": {"optim.lr": 2}, "deep": {"layers": [1, 2, 3]}},
        hypotheses={
            "gain": {"claim": "wide lowers dev/loss", "smallest": 0.1},
            "harm": {"claim": "wide does_not_worsen dev/score", "smallest": 1, "better": "higher"},
        },
    ),
    "assumed": document(
        assume={"metrics": {"val/loss": {"sd": 0.01, "correlation": 0.5}}, "seconds_per_run": 90, "divergence": 0.2}
    ),
}


def study(option: str) -> Study:
    """The study of an option."""
    return study_from_document(OPTIONS[option])


def claim_facts(study: Study, name: str) -> ClaimFacts:
    """What documents say of a claim."""
    return next(claim for claim in claims_of(study) if claim.label == name)


def statement(study: Study, name: str) -> str:
    """A claim as a sentence."""
    return say("claims.statement", study, claim_facts(study, name))


def draft(option: str) -> StudyFacts:
    """The study of an option, not registered."""
    return StudyFacts(study(option))


def registered(option: str, *, design: dict[str, Any] | None = None, amended: bool = False) -> StudyFacts:
    """The study of an option as if registered; its hashes are made up."""
    registration = Registration(
        study=study(option),
        corpus=PIN if study(option).trainer == "gpt" else None,
        sha256="12" * 32,
        source_sha256="34" * 32,
        registered_at="2026-01-02T03:04:05+00:00",
        tool={"ablate": "1.0.0"},
        design=design,
        previous="78" * 32 if amended else None,
        reason="more seeds" if amended else None,
        lock_sha256="56" * 32,
    )
    first = _entry(3, "registered", "78" * 32 if amended else registration.sha256, {})
    differences = [{"field": "seeds", "registered": [1, 2], "now": list(registration.study.seeds)}]
    body = {"reason": "more seeds", "evidence": "runs started", "previous": "78" * 32, "differences": differences}
    entries = (first, _entry(9, "amended", registration.sha256, body)) if amended else (first,)
    return StudyFacts(registration.study, registration, entries)


def _entry(index: int, event: Any, registration: str, body: dict[str, Any]) -> Entry:
    at = "2026-01-02T03:04:05+00:00"
    made = entry(event, body, index=index, at=at, study="plain", registration=registration, previous="9a" * 32)
    return made.model_copy(update={"sha256": f"{index:064x}"})


ROOT = Path(__file__).resolve().parents[1]
