"""A claim and its converse: known to exclude each other by the proof, and by the judge on any data."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import tiny_document
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.judge.findings import judge_hypotheses
from prereg.errors import RuleError
from prereg.rule.condition import OUTCOMES, Contradiction, Outcome, contradictions, holds, parse_condition
from prereg.rule.rule import DecisionLine, Rule
from prereg.study.spec import Study, study_from_document

UNDECIDED = [{"verdict": "inconclusive"}]


def study(claims: dict[str, str], decision: list[dict[str, str]] | None = None, **changes: Any) -> Study:
    """Two or more claims about three arms; a claim may carry fields of its hypothesis after a semicolon."""
    hypotheses = {}
    for name, text in claims.items():
        claim, *more = (part.strip() for part in text.split(";"))
        hypotheses[name] = {"claim": claim, "smallest": 0.05} | dict(part.split("=") for part in more)
    return study_from_document(
        tiny_document(
            variants={
                "none": {},
                "ln": {"model.embedding_norm": "layernorm"},
                "rms": {"model.embedding_norm": "rmsnorm"},
            },
            hypotheses=hypotheses,
            decision=[*(decision or []), *UNDECIDED],
            **changes,
        )
    )


def excluded(claims: dict[str, str]) -> set[tuple[tuple[str, str], tuple[str, str]]]:
    made = study(claims)
    return {(one.first, one.second) for one in contradictions(made.hypotheses, made.claims)}


BOTH = {(("up", "supported"), ("down", "supported"))}


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"up": "ln raises val/loss", "down": "ln lowers val/loss"}, BOTH),
        ({"up": "ln lowers val/loss", "down": "none lowers val/loss than ln"}, BOTH),
        ({"up": "(0.5*ln + 0.5*rms) raises val/loss", "down": "(ln + rms) lowers val/loss than (none + none)"}, BOTH),
        # real and smaller than what matters: supported as harmless, refuted as a gain
        (
            {"up": "ln lowers val/loss", "down": "ln does_not_worsen val/loss"},
            {(("up", "supported"), ("down", "refuted"))},
        ),
        (
            {"up": "ln raises val/accuracy", "down": "ln does_not_worsen val/accuracy"},
            {(("up", "supported"), ("down", "refuted"))},
        ),
        ({"up": "ln raises val/loss", "down": "ln lowers val/accuracy"}, set()),  # another metric
        ({"up": "ln raises val/loss", "down": "rms lowers val/loss"}, set()),  # other arms
        ({"up": "ln raises val/loss; scale=log", "down": "ln lowers val/loss"}, set()),  # another scale
        ({"up": "ln raises val/loss; read=area", "down": "ln lowers val/loss"}, set()),  # read elsewhere
        ({"up": "ln lowers val/loss", "down": "ln lowers val/loss than none"}, set()),  # the same claim twice
        ({"up": "ln changes val/loss", "down": "ln does_not_change val/loss"}, set()),  # small and real is both
        # rms cancels out, yet a seed that it lacks is lacking in one claim only
        ({"up": "(ln + rms) raises val/loss than (none + rms)", "down": "ln lowers val/loss"}, set()),
    ],
)
def test_what_excludes_each_other_is_known_and_nothing_more(claims: dict[str, str], expected: set[object]) -> None:
    assert excluded(claims) == expected


def test_a_line_that_needs_a_claim_and_its_converse_is_refused_with_both_named() -> None:
    claims = {"up": "ln raises val/loss", "down": "ln lowers val/loss"}
    with pytest.raises(
        RuleError, match=r"line 1 \('adopt'\): supported\(up\) and supported\(down\) cannot both be"
    ) as caught:
        study(claims, [{"verdict": "adopt", "when": "supported(up) and supported(down)"}])
    assert caught.value.where.field == ("decision", 0, "when")


def test_no_line_is_needed_for_what_cannot_be() -> None:
    claims = {"up": "ln raises val/loss", "down": "ln lowers val/loss"}
    lines = [
        {"verdict": "worse", "when": "supported(up) and not supported(down)"},
        {"verdict": "better", "when": "supported(down) and not supported(up)"},
        {"verdict": "neither", "when": "not supported(up) and not supported(down)"},
    ]
    with pytest.raises(RuleError, match=r"line 4 \('inconclusive'\) can never decide"):
        study(claims, lines)
    made = Rule.parse(
        [DecisionLine(**line) for line in lines],
        hypotheses=("up", "down"),
        variants=(),
        contradictions=(Contradiction(("up", "supported"), ("down", "supported")),),
    )
    assert [row.settles for row in made.table()] == [2, 2, 4] and made.table()[0].of == 8
    with pytest.raises(RuleError, match="no line covers"):  # without knowing them as converses, a case is left
        Rule.parse([DecisionLine(**line) for line in lines], hypotheses=("up", "down"), variants=())


NAMES = ("a", "b", "c")
CONDITION = st.recursive(
    st.sampled_from([f"{asked}({name})" for asked in OUTCOMES for name in NAMES]),
    lambda inner: st.one_of(
        inner.map(lambda one: f"not ({one})"),
        st.tuples(inner, inner).map(" and ".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} or {two[1]})"),
    ),
    max_leaves=5,
)
PAIR = st.tuples(st.permutations(NAMES), st.sampled_from(OUTCOMES), st.sampled_from(OUTCOMES)).map(
    lambda drawn: Contradiction((drawn[0][0], drawn[1]), (drawn[0][1], drawn[2]))
)


@settings(max_examples=150, deadline=None)
@given(st.lists(CONDITION, min_size=1, max_size=3), st.booleans(), st.lists(PAIR, max_size=2))
def test_the_proof_agrees_with_trying_every_possible_case(
    conditions: list[str], last_resort: bool, pairs: list[Contradiction]
) -> None:
    listed = [*conditions, None] if last_resort else conditions
    parsed = [None if when is None else parse_condition(when) for when in listed]
    # An exclusion counts where the rule asks about both hypotheses; what it does not ask about is free.
    mentioned = {name for name in NAMES if any(when and f"({name})" in when for when in listed)}
    known = [one for one in pairs if {one.first[0], one.second[0]} <= mentioned]
    first: list[int | None] = []
    for drawn in product(OUTCOMES, repeat=3):
        outcomes: dict[str, Outcome] = dict(zip(NAMES, drawn, strict=True))
        if any(all(outcomes[name] == end for name, end in (one.first, one.second)) for one in known):
            continue
        held = [n for n, condition in enumerate(parsed) if condition is None or holds(condition, outcomes, {})]
        first.append(held[0] if held else None)
    sound = None not in first and set(first) == set(range(len(listed)))
    try:
        proved = Rule.parse(
            [DecisionLine(verdict="v", when=when) for when in listed],
            hypotheses=NAMES,
            variants=(),
            contradictions=pairs,
        )
    except RuleError:
        assert not sound
        return
    assert sound
    assert [row.settles * len(first) for row in proved.table()] == [
        first.count(n) * row.of for n, row in enumerate(proved.table())
    ]


@pytest.mark.simulation
@pytest.mark.parametrize("correct", ["holm", "none"])
@pytest.mark.parametrize("test", ["paired_t", "bootstrap_t", "sign_flip", "wilcoxon"])
def test_the_judge_never_finds_what_the_proof_excludes(test: str, correct: str) -> None:
    claims = {
        "up": "ln raises val/loss",
        "down": "ln lowers val/loss",
        "back": "none lowers val/loss than ln",
        "safe": "ln does_not_worsen val/loss",
    }
    made = study(claims, seeds=list(range(1, 9)), analysis={"test": test, "correct": correct, "alpha": 0.1})
    excluding = contradictions(made.hypotheses, made.claims)
    assert len(excluding) == 3
    rng = np.random.default_rng(11)
    supported = 0
    for _ in range(20):
        shift = rng.choice([-0.1, -0.02, 0.02, 0.1])
        values = {
            (arm, seed): float(rng.lognormal(0.0, 0.05) + (shift if arm == "ln" else 0.0))
            for seed in made.seeds
            for arm in made.arms
        }
        found = {one.hypothesis: one.outcome for one in judge_hypotheses(made, {"val/loss": values}, rng_seed=3)}
        supported += "supported" in (found["up"], found["down"])
        for one in excluding:
            assert any(found[name] != end for name, end in (one.first, one.second)), (one, found)
    assert supported > 5  # otherwise nothing was excluded
