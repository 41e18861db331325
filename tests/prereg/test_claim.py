"""The claim language: one sentence, one contrast."""

from __future__ import annotations

import pytest
from evidence_factory import one_claim
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from prereg.errors import ClaimError, SpecError, StudyError
from prereg.study.analysis import Hypothesis
from prereg.study.claim import parse_claim
from prereg.study.verbs import VERBS


def test_without_than_the_other_side_is_the_baseline() -> None:
    claim = parse_claim("layernorm lowers val/loss", baseline="none")
    assert (claim.verb, claim.metric) == ("lowers", "val/loss")
    assert claim.weights == {"layernorm": 1.0, "none": -1.0}
    assert claim.arms == ("layernorm", "none")


def test_than_names_the_other_side() -> None:
    claim = parse_claim("post-deep-cold lowers grad/layer_0 than pre-deep-cold", baseline="x")
    assert claim.weights == {"post-deep-cold": 1.0, "pre-deep-cold": -1.0}


def test_an_interaction_is_a_difference_of_differences() -> None:
    claim = parse_claim("(a-x - b-x) raises val/loss than (a-y - b-y)", baseline="z")
    assert claim.weights == {"a-x": 1.0, "b-x": -1.0, "a-y": -1.0, "b-y": 1.0}


def test_an_arm_that_cancels_out_is_named_but_not_needed() -> None:
    claim = parse_claim("(a + b) lowers m than (a + c)", baseline="z")
    assert claim.arms == ("b", "c")
    assert set(claim.named) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "the end where an arm should be"),
        ("a", "the end where a verb should be"),
        ("a lowrs m", "'lowrs' where a verb should be"),
        ("a lowers", "the end where a metric should be"),
        ("a lowers m then b", "'then' where 'than ARM' or the end should be"),
        ("a lowers m than", "the end where an arm should be"),
        ("a lowers m than b c", "'c' where the end should be"),
        ("none lowers m", "compares an arm with itself"),
        ("a lowers m than a", "compares an arm with itself"),
        ("(a - b) lowers m", "do not sum to zero"),
        ("(a + b) lowers m than c", "do not sum to zero"),
        ("(a - b lowers m", "'lowers' where '+', '-' or ')' should be"),
        ("(a -b) lowers m", "'-b' where '+', '-' or ')' should be"),
        ("(a +- b) lowers m", "'+-' where '+', '-' or ')' should be"),
        ("() lowers m", "')' where an arm should be"),
        ("(a - ) lowers m", "')' where an arm should be"),
        ("((a)) lowers m", "'(' where an arm should be"),
        ("mean(a, b, a) lowers m", "names 'a' twice"),
        ("trend(rate) lowers m", "a claim about a trend is gone since 2026-11-29"),
        ("a lowers m than trend(rate)", "'(' where the end should be"),
        ("a lowers m below", "the end where a constant should be"),
        ("a lowers m below b", "'b' where a constant should be"),
        ("a lowers m below inf", "'inf' where a constant should be"),
        ("a lowers m above 3", "'above' where 'than ARM' or the end should be"),
        ("a raises m below 3", "'below' where 'than ARM' or the end should be"),
        ("a changes m below 3", "'below' where 'than ARM' or the end should be"),
        ("a does_not_worsen m above 3", "'above' where 'than ARM' or the end should be"),
        ("a lowers m below 3 than b", "'than' where the end should be"),
        ("a lowers m by at least 1 below 3", "'below' where 'than ARM' or the end should be"),
        ("a lowers m below 3 by at least 0", "0 as a least effect"),
        ("(a - b) lowers m below 3", "do not sum to one"),
        ("(a + b) lowers m below 3", "do not sum to one"),
        ("mean(a) lowers m", "')' where a comma should be"),
        ("mean() lowers m", "')' where an arm should be"),
        ("mean(a b) lowers m", "'b' where a comma should be"),
        ("mean(a, , b) lowers m", "',' where an arm should be"),
        ("mean(0.5*a, b) lowers m", "'*a' where a comma should be"),
        ("mean(a, (b)) lowers m", "'(' where an arm should be"),
        ("mean(a, b lowers m", "'lowers' where a comma should be"),
        ("mean(a, b) lowers m than mean(b, a)", "compares an arm with itself"),
    ],
)
def test_what_is_not_a_claim_is_refused(text: str, found: str) -> None:
    with pytest.raises(ClaimError) as caught:
        parse_claim(text, baseline="none")
    assert found in caught.value.found


@pytest.mark.parametrize("text", ["(0.5*a + 0.5*b) lowers m than c", "(0.5 * a + 0.5 * b) lowers m than c"])
def test_arms_carry_weights_in_a_sum(text: str) -> None:
    claim = parse_claim(text, baseline="none")
    assert claim.weights == {"a": 0.5, "b": 0.5, "c": -1.0}
    assert parse_claim("(2*a - b) raises m than c", baseline="none").left == {"a": 2.0, "b": -1.0}
    with pytest.raises(ClaimError, match="do not sum to zero"):
        parse_claim("(0.5*a + 0.6*b) lowers m than c", baseline="none")


def test_a_mean_weighs_its_arms_equally_on_either_side() -> None:
    claim = parse_claim("mean(a, b,c) lowers m than mean( d, e )", baseline="none")
    assert claim.weights == {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3, "d": -0.5, "e": -0.5}
    assert (claim.left_side, claim.right_side) == ("mean(a, b, c)", "mean(d, e)")
    assert parse_claim("mean(a, b) lowers m", baseline="none").weights == {"a": 0.5, "b": 0.5, "none": -1.0}
    two = parse_claim("(0.5*a + 0.5*b) lowers m than c", baseline="none")
    assert two.weights == parse_claim("mean(a, b) lowers m than c", baseline="none").weights
    assert two.left_side == "(0.5*a + 0.5*b)"  # as verdicts before there were means have it


@pytest.mark.parametrize(
    ("text", "verb", "constant", "by", "direction"),
    [
        ("a lowers m below 3.28", "lowers_below", 3.28, None, -1),
        ("a raises m above -1.5", "raises_above", -1.5, None, 1),
        ("mean(a, b) lowers m below 3.28 by at least 0.01", "lowers_by", 3.28, 0.01, -1),
        ("(0.5*a + 0.5*b) raises m above 0", "raises_above", 0.0, None, 1),
    ],
)
def test_a_constant_takes_the_place_of_the_other_side(
    text: str, verb: str, constant: float, by: float | None, direction: int
) -> None:
    claim = parse_claim(text, baseline="none")
    assert (claim.verb, claim.constant, claim.by, claim.direction) == (verb, constant, by, direction)
    assert claim.plain_verb == text.split(" m ", maxsplit=1)[0].rsplit(maxsplit=1)[-1]
    assert not claim.right and not claim.is_paired and sum(claim.weights.values()) == 1.0
    assert "none" not in claim.named


def test_an_arm_may_be_named_like_a_function() -> None:
    assert parse_claim("mean lowers m than a", baseline="none").weights == {"mean": 1.0, "a": -1.0}


@given(st.lists(st.integers(0, 99).map("arm{}".format), min_size=2, max_size=60, unique=True))
def test_a_mean_of_any_arms_is_a_contrast(arms: list[str]) -> None:
    claim = parse_claim(f"mean({', '.join(arms)}) lowers m", baseline="none")
    assert set(claim.arms) == {*arms, "none"}
    assert sum(claim.weights.values()) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("term", ["0*a", "*a", "0.5*", "x*a", "0.5*0.5*a", "1e3*a", "9" * 400 + "*a"])
def test_a_weight_is_a_plain_number_above_zero(term: str) -> None:
    with pytest.raises(ClaimError):
        parse_claim(f"({term} + b) lowers m than c", baseline="none")


def test_a_misspelt_verb_gets_the_nearest() -> None:
    with pytest.raises(ClaimError) as caught:
        parse_claim("a does_not_worse m", baseline="none")
    assert caught.value.fix == "did you mean 'does_not_worsen'?"


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=40)
    | st.lists(
        st.sampled_from(
            [
                *"ab+-(),*m3",
                "b-c",
                "0.5*a",
                "0*",
                "than",
                "mean",
                "mean(",
                "a,",
                "below",
                "above",
                "by at least 1",
                "by at least 2%",
                "log2",
                *VERBS,
            ]
        ),
        max_size=12,
    ).map(" ".join)
)
def test_every_text_is_a_contrast_or_a_study_error(text: str) -> None:
    try:
        claim = parse_claim(text, baseline="none")
    except StudyError:
        return
    assert claim.weights
    assert sum(claim.weights.values()) == pytest.approx(0.0 if claim.constant is None else 1.0, abs=1e-9)


def test_a_least_effect_is_part_of_the_claim() -> None:
    claim = parse_claim("layernorm lowers val/loss by at least 0.02 than rmsnorm", baseline="none")
    assert (claim.verb, claim.plain_verb, claim.by) == ("lowers_by", "lowers", 0.02)
    assert claim.weights == {"layernorm": 1.0, "rmsnorm": -1.0}
    assert parse_claim("a raises m by at least 2e-3", baseline="b").by == 0.002


@pytest.mark.parametrize(
    "text",
    [
        "a lowers m by at least",
        "a lowers m by at least 0",
        "a lowers m by at least -1",
        "a lowers m by at least inf",
        "a lowers m by at least much",
        "a lowers m by 0.02",
        "a changes m by at least 0.02",
        "a does_not_worsen m by at least 0.02",
        "a lowers m than b by at least 0.02",
        "a lowers_by m",
    ],
)
def test_a_least_effect_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ClaimError):
        parse_claim(text, baseline="b")


def test_the_smallest_difference_of_a_claim_by_at_least_is_its_own() -> None:
    assert Hypothesis.model_validate({"claim": "a lowers m by at least 0.02"}).smallest == 0.02
    with pytest.raises(ValidationError, match="smallest"):
        Hypothesis.model_validate({"claim": "a lowers m"})
    with pytest.raises(SpecError, match=r"by at least 0\.02"):
        one_claim("layernorm lowers val/loss by at least 0.02", smallest=0.03)
