"""Whole error of the rules that this project hands out: the chance of any wrong answer, all claims and looks together.

    python tests/rule_error_rates.py [STUDIES]     # writes reports/bench/rule-error-rates.{json,md}
    python tests/rule_error_rates.py --only RULE   # the same, and measures this rule alone
    python tests/rule_error_rates.py --page        # writes the page again from the numbers

The rules are those of the templates of `ablate new`, of the how-tos and of the examples, and those that changed as they
were before their whole error was measured. What a study assumes of its noise is not used: the SD of a difference of
two arms is its smallest margin, a third of it, and an eighth.

True effects are made from means of the arms: of every metric, each arm that is not the baseline lies at the baseline,
at a margin of a claim, just short of it and just beyond it, on both sides, or far away. At most 240 combinations with a
claim at a border are looked at, drawn where there are more. The noise of two metrics is correlated by -0.9, 0 and 0.9.
Every study is judged and stopped at its looks by the functions that judge real ones. An answer is wrong if the rule
gives another one where every false finding is inconclusive; "inconclusive", and what the rule says where nothing is
found, are no answers. What is false follows from a table of this file (`is_right`), not from the one by which a design
is simulated.

All combinations are ranked over few studies, and the worst are drawn again, so that a rate is not the luckiest of many.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ablate.judge.design.assumptions import Beliefs, ScaleBelief, groups_of
from ablate.judge.design.scenarios import Law, Tail, TrueEffects, constants_of, draw_studies, weights_of
from ablate.judge.design.simulate import judge_drawn
from ablate.judge.judge import case_of, distinct
from prereg.study.spec import Study, study_from_document

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "reports" / "bench" / "rule-error-rates.json"
LEVEL = 0.05
"""What is stated: any wrong answer in at most this share of studies, with normal differences."""
MARGINS_IN_SDS = (1.0, 3.0, 8.0)
"""The smallest margin of a metric, in SDs of the difference of two arms."""
CORRELATIONS = (-0.9, 0.0, 0.9)
LAWS: tuple[tuple[Law, tuple[Tail, ...]], ...] = (
    ("normal", ("better",)),
    ("exponential", ("better", "worse")),
    ("lognormal", ("better", "worse")),
)
MOST_TRUTHS, AGAIN, FEW = 240, 3, 1_000
"""States of the world that are ranked, how many of them are drawn again, and over how many studies they are ranked."""
STUDIES = 20_000
"""Of a rate that is drawn again."""
AT_LOOKS = 4
"""How many fewer of them a rule with looks takes, whose studies are slow to judge."""

_BETTER_BEFORE: dict[str, Any] = {
    "hypotheses": {
        "gain": {"claim": "head lowers val/loss by at least 0.05"},
        "no_harm": {"claim": "head does_not_worsen val/accuracy", "smallest": 0.01, "role": "guardrail"},
        "same": {"claim": "head does_not_change val/loss", "smallest": 0.05, "role": "secondary"},
    },
    "decision": [
        {"verdict": "better", "when": "supported(gain) and supported(no_harm)"},
        {"verdict": "worse", "when": "refuted(no_harm)"},
        {"verdict": "equivalent", "when": "supported(same) and supported(no_harm)"},
        {"verdict": "inconclusive"},
    ],
    "analysis": {},
}
BEFORE: dict[str, tuple[str, dict[str, Any]]] = {
    "how-to better-branch, before": ("how-to better-branch", _BETTER_BEFORE),
    "template gpt, before": ("template gpt", {"analysis": {}}),
    "template factorial, before": ("template factorial", {"analysis": {"correct": "none"}}),
    "example sklearn_digits, before": ("example sklearn_digits", {"analysis": {}}),
    "template ordered, before": (
        "template ordered",
        {"analysis": {"gate": {"order": ["loss", "calibration", "accuracy"]}}},
    ),
}
"""Rules as they were: whose they are, and what was otherwise."""


@dataclass(frozen=True)
class RuleRate:
    """The largest chance of any wrong answer of one rule under one law."""

    rule: str
    alpha: float
    """Of each family of the study."""
    law: str
    share: float
    error: float
    """Monte Carlo standard error (Agresti and Coull 1998)."""
    studies: int
    where: str
    """The state of the world."""


@cache
def rules() -> dict[str, Study]:
    """Every rule that is handed out, by where it is from, and those of before."""
    documents = {f"template {path.stem}": path.read_text(encoding="utf-8") for path in _templates()}
    for path in sorted((ROOT / "docs" / "how-to").glob("*.md")):
        blocks = re.findall(r"^```yaml\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        for block in blocks:
            if re.match(r"study: ", block) and "\ndecision:" in block:
                documents[f"how-to {path.stem}"] = block
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        # Those of public records are the rules of a contest, which this project judges again and does not hand out.
        if "records" not in path.parts and "\ndecision:" in (text := path.read_text(encoding="utf-8")):
            documents[f"example {path.stem}"] = text
    read = {name: _document(text) for name, text in documents.items()}
    before = {name: read[of] | changes for name, (of, changes) in BEFORE.items()}
    return {name: study_from_document(document) for name, document in (read | before).items()}


def _templates() -> list[Path]:
    folder = ROOT / "ablate" / "templates"
    return [
        path
        for path in sorted(folder.glob("*.yaml"))
        if "\ndecision:" in (text := path.read_text()) or "components:" in text
    ]


def _document(text: str) -> dict[str, Any]:
    document = yaml.safe_load(text.replace("NAME", "mine"))
    if isinstance(document["seeds"], str):
        document["seeds"] = list(range(1, int(document["seeds"].split()[1]) + 1))
    return dict(document)


def is_right(study: Study, name: str, effect: float, outcome: str) -> bool:
    """Whether an outcome of a claim is true at an effect: left side minus right side, or minus the constant."""
    claim, d = study.claims[name], study.hypotheses[name].smallest
    # Effects are computed from means of arms, and lie at a margin up to rounding.
    edge = 1e-9 * d
    if claim.verb == "does_not_change":
        return abs(effect) < d - edge if outcome == "supported" else effect != 0.0
    if claim.verb == "changes":
        return effect != 0.0 if outcome == "supported" else abs(effect) < d - edge
    if claim.verb == "does_not_worsen":
        harm = effect if claim.better == "lower" else -effect
        return harm < d - edge if outcome == "supported" else harm > 0.0
    gain = -effect if claim.verb.startswith("lowers") else effect
    # "By at least d" is so at d itself; a claim of any gain is not at 0, and is then rightly refuted.
    if claim.verb.endswith("_by"):
        return gain >= d - edge if outcome == "supported" else gain < d - edge
    return gain > 0.0 if outcome == "supported" else gain < d - edge or gain <= 0.0


def beliefs_of(study: Study, margin_in_sds: float) -> Beliefs:
    """Noise at which the smallest margin of each metric is so many SDs of the difference of two arms."""
    beliefs = []
    for metric, scale in groups_of(study):
        # A claim without a margin has no scale of its own: an SD of a difference is then 1.
        difference = _margins(study, metric)[0] / margin_in_sds if _margins(study, metric) else 1.0
        plain = {"metric": metric, "scale": scale, "sd": difference / sqrt(2.0), "correlation": 0.0}
        beliefs.append(ScaleBelief(**plain, source="of the simulation"))
    return Beliefs(metrics=tuple(beliefs))


def _margins(study: Study, metric: str) -> list[float]:
    found = {study.hypotheses[name].smallest for name, claim in study.claims.items() if claim.metric == metric}
    return sorted(found - {0.0})


def truths(study: Study, beliefs: Beliefs, rng: np.random.Generator) -> list[dict[str, float]]:
    """The true effects of all claims, in every state of the world that is looked at."""
    by_metric: list[list[dict[str, float]]] = []
    for (metric, scale), names in groups_of(study).items():
        belief = beliefs.of(metric, scale)
        assert belief is not None, metric
        # Distances from the baseline, which for a claim against a constant is moved to that constant.
        far = 60.0 * belief.sd + 3.0 * max(_margins(study, metric), default=0.0)
        nudge = 1e-6 * belief.sd
        near = [0.0, nudge] + [m + by for m in _margins(study, metric) for by in (-nudge, 0.0, nudge)] + [far]
        means = sorted({sign * distance for sign in (-1.0, 1.0) for distance in near})
        weights, against_constant = weights_of(study, names), constants_of(study, names).any()
        places = [[0.0] if arm == study.baseline and not against_constant else means for arm in study.arms]
        many = int(np.prod([len(place) for place in places]))
        rows = (
            list(product(*places)) if many <= 4_000 else [[rng.choice(place) for place in places] for _ in range(4_000)]
        )
        effects = {tuple((weights @ np.array(row)).tolist()) for row in rows}
        by_metric.append([dict(zip(names, row, strict=True)) for row in sorted(effects)])
    combined = [dict(pair for part in parts for pair in part.items()) for parts in _product(by_metric, rng)]
    on_a_border = [one for one in combined if any(_near_a_border(study, name, effect) for name, effect in one.items())]
    # Nothing is nearly false where no claim is at a border.
    kept = on_a_border or combined
    order = rng.permutation(len(kept))
    return [kept[at] for at in order[:MOST_TRUTHS]]


def _product(parts: list[list[dict[str, float]]], rng: np.random.Generator) -> Iterator[tuple[dict[str, float], ...]]:
    many = int(np.prod([len(part) for part in parts], dtype=np.float64))
    if many <= 4_000:
        yield from product(*parts)
        return
    for _ in range(4_000):
        yield tuple(part[int(rng.integers(len(part)))] for part in parts)


def _near_a_border(study: Study, name: str, effect: float) -> bool:
    smallest = study.hypotheses[name].smallest
    unit = smallest or 1.0
    return abs(effect) < 1e-4 * unit or abs(abs(effect) - smallest) < 1e-4 * unit


def wrong_answers(study: Study, truth: TrueEffects, beliefs: Beliefs, studies: int, seed: list[int]) -> int:
    """How many of so many studies give a wrong answer."""
    rng = np.random.default_rng(seed)
    drawn = draw_studies(study, truth, beliefs, n_sims=studies, n_seeds=study.n_seeds, rng=rng)
    ended = judge_drawn(study, drawn)
    stable = dict.fromkeys(study.arms, True)
    neutral = study.rule.decide(dict.fromkeys(study.hypotheses, "inconclusive"), stable).verdict
    cases, place = distinct(np.concatenate([ended.codes, np.ones_like(drawn.stable)], axis=1))
    wrong = []
    for row in cases.tolist():
        outcomes, _ = case_of(study, row)
        verdict = study.rule.decide(outcomes, stable).verdict
        right = {
            name: outcome
            if outcome == "inconclusive" or is_right(study, name, truth.effects[name], outcome)
            else "inconclusive"
            for name, outcome in outcomes.items()
        }
        answers = verdict not in ("inconclusive", neutral)
        wrong.append(answers and study.rule.decide(right, stable).verdict != verdict)
    return int(np.array(wrong)[place][ended.ruled].sum())


def worst(name: str, law: Law, studies: int, *, seed: int = 12, few: int = FEW) -> RuleRate:
    """The largest rate of one rule under a law, over margins, correlations and true effects."""
    study, rng = rules()[name], np.random.default_rng(seed)
    tails = next(tails for known, tails in LAWS if known == law)
    joined = CORRELATIONS if len(groups_of(study)) > 1 else (0.0,)
    ranked: list[tuple[int, float, TrueEffects]] = []
    for sds in MARGINS_IN_SDS:
        beliefs = beliefs_of(study, sds)
        states = truths(study, beliefs, rng)
        slowness = len(joined) * len(tails) * (1 if study.stopping == "fixed" else AT_LOOKS)
        chosen = states[: max(20, MOST_TRUTHS // slowness)]
        for effects, correlation, tail in product(chosen, joined, tails):
            truth = TrueEffects(name, effects, law, correlation=correlation, tail=tail)
            ranked.append((wrong_answers(study, truth, beliefs, few, [seed, len(ranked)]), sds, truth))
    ranked.sort(key=lambda one: -one[0])
    found = []
    for at, (_, sds, truth) in enumerate(ranked[:AGAIN]):
        hits = wrong_answers(study, truth, beliefs_of(study, sds), studies, [seed + 1, at])
        centre = (hits + 2.0) / (studies + 4.0)
        error = sqrt(centre * (1.0 - centre) / (studies + 4.0))
        found.append(RuleRate(name, study.analysis.alpha, law, hits / studies, error, studies, _said(truth, sds)))
    return max(found, key=lambda one: one.share)


def _said(truth: TrueEffects, sds: float) -> str:
    effects = ", ".join(f"{name} {effect:.3g}" for name, effect in truth.effects.items())
    tail = "" if truth.law == "normal" else f"; long tail towards {truth.tail}"
    return f"{effects}; metrics correlated {truth.correlation:g}; margin of {sds:g} SDs{tail}"


def table(studies: int) -> Iterator[RuleRate]:
    """Every row, as it is measured."""
    for name in rules():
        for law, _ in LAWS:
            row = worst(name, law, studies)
            print(row, flush=True)
            yield row


def page(rates: list[RuleRate]) -> str:
    """The table in Markdown."""
    by_rule: dict[str, dict[str, RuleRate]] = {}
    for rate in rates:
        by_rule.setdefault(rate.rule, {})[rate.law] = rate
    lines = [
        "# Whole error of the rules that are handed out",
        "",
        "Written by `python tests/rule_error_rates.py`; do not edit.",
        "",
        "The largest chance of any wrong answer that was found, all claims and looks together, ± the standard error of",
        f"{rates[0].studies:,} simulated studies; over true effects at and next to the margins, margins of 1, 3 and",
        "8 SDs of a difference, and correlations of metrics of -0.9, 0 and 0.9. Stated is at most .05 with normal",
        "differences; skewed ones break that as they break a t test over few pairs. *before*: the rule as it was until",
        "its whole error was measured.",
        "",
        "| rule | alpha | normal | exponential | lognormal | worst with normal differences |",
        "|---|---|---|---|---|---|",
    ]
    for name, of_laws in by_rule.items():
        shares = [f"{of_laws[law].share:.4f} ± {of_laws[law].error:.4f}".replace("0.", ".") for law, _ in LAWS]
        normal = of_laws["normal"]
        lines.append(f"| {name} | {normal.alpha:g} | {' | '.join(shares)} | {normal.where} |")
    return "\n".join([*lines, ""])


def committed() -> list[RuleRate]:
    """The committed rows."""
    return [RuleRate(**row) for row in json.loads(OUT.read_text(encoding="utf-8"))]


def main(arguments: list[str]) -> None:
    """Measure and write, or write the page again."""
    if arguments == ["--page"]:
        rates = committed()
    elif arguments[:1] == ["--only"]:
        again = {law: worst(arguments[1], law, STUDIES) for law, _ in LAWS}
        rates = [again[row.law] if row.rule == arguments[1] else row for row in committed()]
    else:
        rates = list(table(int(arguments[0]) if arguments else STUDIES))
    if arguments != ["--page"]:
        OUT.write_text(json.dumps([asdict(row) for row in rates], indent=2) + "\n", encoding="utf-8")
    OUT.with_suffix(".md").write_text(page(rates), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
