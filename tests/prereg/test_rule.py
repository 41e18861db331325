"""The decision language: read, proved over every combination of outcomes, evaluated."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prereg.errors import RuleError, StudyError
from prereg.rule.condition import OUTCOMES, Outcome, holds, parse_condition
from prereg.rule.diagram import FALSE, TRUE, Diagrams, TooLargeError
from prereg.rule.rule import DecisionLine, Rule

HYPOTHESES = ("gain", "harm", "side-effect")
VARIANTS = ("none", "post-deep", "gain")  # a name may be a hypothesis and a variant


def lines(*pairs: tuple[str, str | None]) -> list[DecisionLine]:
    return [DecisionLine(verdict=verdict, when=when) for verdict, when in pairs]


def rule(*pairs: tuple[str, str | None], exploratory: tuple[str, ...] = ()) -> Rule:
    return Rule.parse(lines(*pairs), hypotheses=HYPOTHESES, variants=VARIANTS, exploratory=exploratory)


def every_case() -> list[tuple[dict[str, Outcome], dict[str, bool]]]:
    return [
        (dict(zip(HYPOTHESES, outcomes, strict=True)), dict(zip(VARIANTS, stable, strict=True)))
        for outcomes in product(OUTCOMES, repeat=3)
        for stable in product((False, True), repeat=3)
    ]


ADOPT = (
    ("adopt", "supported(gain) and not refuted(harm)"),
    ("keep", "refuted(gain) or not stable(post-deep)"),
    ("open", None),
)


def test_the_first_line_that_holds_is_the_verdict() -> None:
    decided = rule(*ADOPT).decide({"gain": "supported", "harm": "inconclusive"}, {"post-deep": False})
    assert (decided.verdict, decided.line, decided.also) == ("adopt", 1, (2,))
    decided = rule(*ADOPT).decide({"gain": "supported", "harm": "refuted"}, {"post-deep": True})
    assert (decided.verdict, decided.line, decided.also) == ("open", 3, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("supported(gain) or supported(harm) and supported(side-effect)", True),  # and binds before or
        ("(supported(gain) or supported(harm)) and supported(side-effect)", False),
        ("not supported(harm) and supported(gain)", True),  # not binds before and
        ("not (supported(harm) or supported(gain))", False),
        ("not not supported(gain)", True),
        ("  supported (\n gain )\n", True),
    ],
)
def test_precedence_is_not_then_and_then_or(text: str, expected: bool) -> None:
    outcomes: dict[str, Outcome] = {"gain": "supported", "harm": "refuted", "side-effect": "inconclusive"}
    assert holds(parse_condition(text), outcomes, {}) is expected


@pytest.mark.parametrize(
    ("when", "column", "found", "fix"),
    [
        ("suported(gain)", 1, "'suported' where a question should be", "did you mean 'supported'?"),
        ("supported(gian)", 11, "'gian' is not a hypothesis", "did you mean 'gain'?"),
        ("supported(gain) and stable(nnone)", 28, "'nnone' is not a variant", "did you mean 'none'?"),
        ("supported(none)", 11, "'none' is not a hypothesis", "stable(none)"),
        ("stable(harm)", 8, "'harm' is not a variant", "supported(harm)"),
        (
            "supported(gain) AND refuted(harm)",
            17,
            "'AND' where 'and', 'or' or the end should be",
            "did you mean 'and'?",
        ),
        ("supported(gain) && refuted(harm)", 17, "'&&' where 'and', 'or' or the end should be", ""),
        ("supported gain", 11, "'gain' where '(' should be", ""),
        ("supported()", 11, "')' where a name should be", ""),
        ("(supported(gain)", 17, "the end where the ')' of the '(' in column 1 should be", ""),
        ("supported(gain))", 16, "')' where 'and', 'or' or the end should be", ""),
        ("supported(gain) and", 20, "the end where a question should be", ""),
        ("or supported(gain)", 1, "'or' where a question should be", ""),
        ("__import__(gain)", 1, "'__import__' where a question should be", ""),
    ],
)
def test_a_mistake_is_shown_with_its_column_and_a_caret(when: str, column: int, found: str, fix: str) -> None:
    with pytest.raises(RuleError) as caught:
        rule(("adopt", when), ("open", None))
    assert found in caught.value.found
    assert f"column {column}\n" in caught.value.found
    shown, caret = caught.value.found.splitlines()[-2:]
    assert shown == f"    {when}"
    assert caret == " " * (3 + column) + "^"
    assert fix in caught.value.fix
    assert caught.value.where.field == ("decision", 0, "when")


def test_the_caret_stands_under_the_fault_of_a_long_condition() -> None:
    with pytest.raises(RuleError) as caught:
        rule(("adopt", "supported(gain) and " * 40 + "supportet(harm)"), ("open", None))
    shown, caret = caught.value.found.splitlines()[-2:]
    assert shown[caret.index("^") :].startswith("supportet")


def test_an_empty_condition_is_refused() -> None:
    with pytest.raises(RuleError, match="an empty condition"):
        rule(("adopt", "  "), ("open", None))
    with pytest.raises(RuleError, match="no decision line"):
        rule()


def test_an_exploratory_hypothesis_decides_nothing() -> None:
    assert rule(*ADOPT, exploratory=("side-effect",))
    with pytest.raises(RuleError, match="'gain' is exploratory"):
        rule(*ADOPT, exploratory=("gain",))


def test_a_case_without_a_verdict_is_refused_with_that_case() -> None:
    with pytest.raises(RuleError, match="no line covers this case: gain is inconclusive") as caught:
        rule(("adopt", "supported(gain)"), ("keep", "refuted(gain)"))
    assert caught.value.where.field == ("decision",)
    assert "verdict: inconclusive" in caught.value.fix


def test_conditions_that_cover_everything_need_no_last_resort() -> None:
    assert rule(("adopt", "supported(gain)"), ("keep", "not supported(gain)")).table()[1].when == "not supported(gain)"


@pytest.mark.parametrize(
    ("conditions", "witness", "field"),
    [
        (
            ("supported(gain)", "supported(gain) and stable(none)", None),
            "line 1 always holds first",
            ("decision", 1, "when"),
        ),
        (("supported(gain)", None, "refuted(gain)"), "line 2 always holds first", ("decision", 2, "when")),
        ((None, None), "line 1 always holds first", ("decision", 1)),
        (
            ("stable(none)", "supported(gain)", "not supported(gain)", "refuted(harm)"),
            "one of lines 2, 3 always holds first",
            ("decision", 3, "when"),
        ),
    ],
)
def test_a_line_that_can_never_decide_is_refused_with_the_lines_before_it(
    conditions: tuple[str | None, ...], witness: str, field: tuple[str | int, ...]
) -> None:
    with pytest.raises(RuleError, match=witness) as caught:
        rule(*[(f"verdict {n}", when) for n, when in enumerate(conditions)])
    assert caught.value.where.field == field


def test_a_condition_that_no_outcome_satisfies_is_refused() -> None:
    with pytest.raises(RuleError, match=r"no combination of outcomes satisfies line 1 \('adopt'\)"):
        rule(("adopt", "supported(gain) and refuted(gain)"), ("open", None))


def test_a_name_can_be_a_hypothesis_and_a_variant() -> None:
    both = rule(("adopt", "supported(gain) and not stable(gain)"), ("open", None))
    assert both.decide({"gain": "supported"}, {"gain": False}).line == 1
    assert both.table()[0].of == 6  # three outcomes of the hypothesis x two of the variant


def test_the_table_counts_the_cases_that_each_line_settles() -> None:
    rows = rule(*ADOPT).table()
    counted = [0, 0, 0]
    for outcomes, stable in every_case():
        counted[rule(*ADOPT).decide(outcomes, stable).line - 1] += 1
    # the rule mentions gain, harm and post-deep: 18 cases, each seen 12 times among all 216
    assert [(row.settles * 12, row.of) for row in rows] == [(n, 18) for n in counted]
    assert rows[2].when == "otherwise"
    assert rows[0].example == "gain is supported, harm is supported"


CONDITION = st.recursive(
    st.sampled_from(
        [f"{asked}({name})" for asked in OUTCOMES for name in HYPOTHESES] + [f"stable({name})" for name in VARIANTS]
    ),
    lambda inner: st.one_of(
        inner.map(lambda a: f"not ({a})"),
        st.tuples(inner, inner).map(" and ".join),
        st.tuples(inner, inner).map(lambda ab: f"({ab[0]} or {ab[1]})"),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(st.lists(CONDITION, min_size=1, max_size=4), st.booleans())
def test_the_proof_agrees_with_trying_every_case(conditions: list[str], last_resort: bool) -> None:
    listed = [*conditions, None] if last_resort else conditions
    parsed = [None if when is None else parse_condition(when) for when in listed]
    first: list[int | None] = []
    for outcomes, stable in every_case():
        held = [n for n, c in enumerate(parsed) if c is None or holds(c, outcomes, stable)]
        first.append(held[0] if held else None)
    sound = None not in first and set(first) == set(range(len(listed)))
    try:
        proved = rule(*[("v", when) for when in listed])
    except RuleError:
        assert not sound
        return
    assert sound
    for row, settled in zip(proved.table(), range(len(listed)), strict=True):
        assert row.settles * 216 == first.count(settled) * row.of


def test_a_rule_over_many_names_is_still_proved() -> None:
    # 3^40 x 2^40 cases: more than could be listed.
    names = [f"h{i}" for i in range(40)]
    when = " and ".join(f"(supported({n}) or stable({n}))" for n in names)
    proved = Rule.parse(lines(("all", when), ("open", None)), hypotheses=names, variants=names)
    assert proved.table()[0].settles == 4**40  # of the six cases of each name, supported or stable: four
    with pytest.raises(RuleError, match="at most 250"):
        Rule.parse(
            lines(("all", " and ".join(f"supported(x{i})" for i in range(251))), ("open", None)),
            hypotheses=[f"x{i}" for i in range(251)],
            variants=(),
        )


def test_a_rule_too_entangled_to_prove_is_refused_and_not_believed() -> None:
    # The textbook bad order for a decision diagram: all left partners before all right ones.
    n = 24
    order = " or ".join(f"stable(a{i})" for i in range(n))
    pairs = " or ".join(f"stable(a{i}) and stable(b{i})" for i in range(n))
    with pytest.raises(RuleError, match="too entangled"):
        Rule.parse(
            lines(("x", f"({order}) and ({pairs})"), ("open", None)),
            hypotheses=(),
            variants=[f"{side}{i}" for side in "ab" for i in range(n)],
        )
    with pytest.raises(TooLargeError):
        Diagrams((2, 2, 2), limit=2).among(0, {1})


def test_deep_nesting_is_refused_not_followed() -> None:
    with pytest.raises(RuleError, match="nested more than 50 deep"):
        parse_condition("(" * 4000 + "supported(gain)" + ")" * 4000)
    with pytest.raises(RuleError, match="at most 10000"):
        parse_condition("not " * 5000 + "supported(gain)")


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=40)
    | st.lists(
        st.sampled_from(
            ["supported", "refuted", "stable", "(", ")", "and", "or", "not", "gain", "harm", "none", " ", "é", "$"]
        ),
        max_size=14,
    ).map("".join)
)
def test_no_text_gets_past_the_error_tree(when: str) -> None:
    try:
        rule(("adopt", when), ("open", None))
    except StudyError as error:
        assert isinstance(error, RuleError)


def test_diagrams_of_nothing_and_everything() -> None:
    diagrams = Diagrams((3, 2))
    supported = diagrams.among(0, {0})
    assert diagrams.count(TRUE) == 6
    assert diagrams.count(FALSE) == 0
    assert diagrams.count(supported) == 2
    assert diagrams.either(supported, diagrams.denied(supported)) == TRUE
    assert diagrams.both(supported, diagrams.among(0, {1, 2})) == FALSE
    assert diagrams.example(diagrams.denied(supported)) == {0: 1}
