"""Claim parser (`parse_claim`): one sentence that says which arms differ in which metric, and which way.

Its verbs: `prereg/study/verbs.py`. Conditions of the decision rule: `prereg/rule/condition.py`.

    (a - b) raises val/loss by at least 0.02 than (c - d)

`lowers` and `raises` alone claim a direction: any effect that is not zero supports them. With `by at least D` they
claim an effect of D or more (superiority by a margin), which is what most readers take "A lowers M" with a smallest
difference that matters to mean; inside the tool these are the verbs `lowers_by` and `raises_by`.

NUMBER after `by at least` may be a percentage: the margin is then a ratio, and the claim is on the natural logarithm
(`prereg.study.macros`).

`below` and `above` compare with a constant: the weights of the left side then sum to one, and the right side has no
arm. The claim is one-sided (inside the tool `lowers_below` and `raises_above`, or `_by` with a least effect).

Without `than`, the other side is the study's baseline. A claim resolves to weights over arms that
sum to zero; the effect is always the left side minus the right side. `mean(a, b, c)` weighs its arms equally, and
`(0.5*a + 0.5*b)` is the mean of two. `+` and `-` stand between spaces, because names of arms may contain hyphens. A
GROUP is the mean of the arms that a factorial of `components` groups: `with:PART`, `without:PART`
(`prereg.study.designs.components`).

To add a verb, see `prereg.study.verbs`. To add another side, such as a median: its rule in `CLAIMS`, how its tree
becomes weights in `_side`, and sentences of both kinds, taken and refused, in tests/prereg/test_claim.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, isinf, log1p
from typing import Any, NamedTuple, cast

from prereg.errors import ClaimError
from prereg.grammar import Expected, Language
from prereg.metrics.catalogue import Better
from prereg.study.presentation import NO_LABELS, Labels
from prereg.study.removed import SINCE
from prereg.study.verbs import BEYOND, KINDS, VERBS, PlainVerb, Verb, VerbKind
from prereg.text import compact, side


@dataclass(frozen=True)
class Claim:
    """A claim, parsed: the effect is the sum of weight x value over arms."""

    verb: Verb
    metric: str
    left: Mapping[str, float]
    right: Mapping[str, float]
    by: float | None = None
    """The least effect that is claimed, of `lowers_by` and `raises_by`."""
    better: Better = "neither"
    """Which way the metric improves, as far as the study or the catalogue says; filled in by `Study.claims`."""
    left_as_written: str = ""
    """The left side where the study writes it by a function of arms, such as `mean(a, b)`."""
    right_as_written: str = ""
    """The right side likewise."""
    percent: float | None = None
    """The margin in percent, where the study writes it so; `by`, and `smallest`, are then on the natural logarithm."""
    constant: float | None = None
    """What the left side is compared with where it is no arm, on the metric's own scale."""
    labels: Labels = NO_LABELS
    """What people read in place of the ids of arms and metrics; filled in by `Study.claims`."""

    @property
    def is_paired(self) -> bool:
        """Whether each seed gives two sides that are compared; else it gives one number.

        >>> texts = ("a lowers val/loss than b", "a lowers val/loss below 3.28")
        >>> [parse_claim(text, baseline="plain").is_paired for text in texts]
        [True, False]
        """
        return bool(self.right)

    @property
    def left_side(self) -> str:
        """The left side as a reader would write it."""
        return self.labels.in_claim(self.left_as_written or side(self.left))

    @property
    def right_side(self) -> str:
        """The right side as a reader would write it."""
        if self.constant is not None:
            return compact(self.constant)
        return self.labels.in_claim(self.right_as_written or side(self.right))

    @property
    def compared(self) -> str:
        """The metric, and the constant that it is compared with where there is one.

        >>> parse_claim("a lowers val/loss below 3.28", baseline="plain").compared
        'val/loss below 3.28'
        """
        metric = self.labels.metric(self.metric)
        if self.constant is None:
            return metric
        return f"{metric} {BEYOND[self.plain_verb]} {compact(self.constant)}"

    @property
    def sides(self) -> tuple[str, str]:
        """Left and right side as a reader would write them."""
        return self.left_side, self.right_side

    @property
    def kind(self) -> VerbKind:
        """What its verb claims."""
        return KINDS[self.verb]

    @property
    def plain_verb(self) -> PlainVerb:
        """The verb as the study writes it."""
        return self.kind.plain

    @property
    def direction(self) -> int:
        """The sign of an effect that goes the way the verb speaks of: as claimed, or towards worse; 0 for either."""
        return self.kind.direction(self.better)

    @property
    def favours(self) -> int:
        """The sign of an effect that speaks for the claim; 0 where none does more than its opposite.

        >>> texts = ("a lowers val/loss", "a raises val/loss", "a does_not_change val/loss")
        >>> [parse_claim(text, baseline="plain").favours for text in texts]
        [-1, 1, 0]
        """
        # Of `does_not_worsen` the verb speaks of harm, and no harm speaks for it.
        return -self.direction if self.kind.is_absence else self.direction

    @property
    def weights(self) -> dict[str, float]:
        """Left minus right, arms with weight zero dropped."""
        # An arm on both sides may cancel out: then it has no weight, and its runs are compared all the same
        # (`named`).
        total = dict(self.left)
        for arm, weight in self.right.items():
            total[arm] = total.get(arm, 0.0) - weight
        return {arm: weight for arm, weight in total.items() if weight != 0.0}

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms the claim needs, left side first."""
        return tuple(self.weights)

    @property
    def named(self) -> tuple[str, ...]:
        """Every arm the claim names, those included that cancel out."""
        return tuple(dict.fromkeys([*self.left, *self.right]))


_ROUNDING = 1e-12
"""Of weights that sum to 0, or to 1."""
_NUMBER = r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?"
_END = r"(?![^\s()])"
_VERBS = dict(zip(("LOWERS", "RAISES", "CHANGES", "WORSENS", "SAME"), VERBS, strict=True))
_EXAMPLE = "layernorm lowers val/loss by at least 0.02"
_OF_MEANS = "mean(ARM, ARM), with two arms or more, a comma between them and a parenthesis at the end"
_OF_UNITS = "a margin is in the metric's own unit, or in percent"
_OF_MARGINS = (
    "'by at least' and a number above zero, in the metric's own unit on the claim's scale; or a percentage above zero, "
    "and below 100% for a fall"
)
_OF_CONSTANTS = "lowers METRIC below NUMBER [by at least D], or raises METRIC above NUMBER [by at least D]"
# Verbs are split by what may follow them, so that the parser itself refuses `changes M by at least D`, at the `by`.
# Terminals with `.1` win over NAME where both may come next: `mean (` and `0.5*` are told from the name
# of an arm by what follows, which a pattern may look ahead at. So an arm may be called `mean`.
CLAIMS = Language(
    rules=rf"""
        claim: side _ordered least? than? | side _bounded least? | side _open than?
        _ordered: (LOWERS | RAISES) METRIC
        _bounded: LOWERS METRIC _BELOW CONSTANT | RAISES METRIC _ABOVE CONSTANT
        _open: (CHANGES | WORSENS | SAME) METRIC
        ?side: NAME -> arm | "(" term (SIGN term)* ")" -> sum | _MEAN "(" MEMBER ("," MEMBER)+ ")" -> mean
        term: (WEIGHT "*")? NAME
        least: _BY _AT _LEAST LEAST
        than: _THAN side

        NAME: /[^\s()*,+-][^\s()*,]*/
        MEMBER: NAME
        METRIC: /[^\s()]+/
        CONSTANT: /-?{_NUMBER}{_END}/
        LEAST: /{_NUMBER}%?{_END}/
        WEIGHT.1: /\d+(\.\d+)?(?=\s*\*)/
        SIGN: /[+-](?=\s)/
        _MEAN.1: /mean(?=\s*\()/
    """,
    keywords=_VERBS
    | {"_BELOW": "below", "_ABOVE": "above", "_BY": "by", "_AT": "at", "_LEAST": "least", "_THAN": "than"},
    expected=(
        Expected("LOWERS", "a verb", f"one of {', '.join(VERBS)}", f"claim: {_EXAMPLE}"),
        Expected("METRIC", "a metric", "ARM VERB METRIC [than ARM]", "claim: {before} val/loss"),
        Expected("_MEAN", "an arm", "ARM VERB METRIC [than ARM]", "claim: layernorm lowers val/loss"),
        Expected("NAME", "an arm", "(ARM - ARM), with spaces around the sign", "(a - b)"),
        Expected("SIGN", "'+', '-' or ')'", "(ARM - ARM), with spaces around the sign", "(a - b)"),
        Expected("MEMBER", "an arm", _OF_MEANS, "mean(fast, faster)"),
        Expected("COMMA", "a comma", _OF_MEANS, "mean(fast, faster)"),
        Expected("_AT", "'at least'", _OF_MARGINS, "claim: {before} at least {after}"),
        Expected("_LEAST", "'least'", _OF_MARGINS, "claim: {before} least {after}"),
        Expected("LEAST", "a least effect", _OF_MARGINS, f"claim: {_EXAMPLE}"),
        Expected("CONSTANT", "a constant", _OF_CONSTANTS, "claim: record lowers val/loss below 3.28"),
        Expected("_THAN", "'than ARM' or the end", f"'than ARM', or nothing; {_OF_UNITS}", "claim: {before}"),
        Expected("$END", "the end", f"nothing more; {_OF_UNITS}", "claim: {before}"),
    ),
    misplaced={
        "below": (_OF_CONSTANTS, "claim: record lowers val/loss below 3.28"),
        "above": (_OF_CONSTANTS, "claim: record raises val/accuracy above 0.6"),
        "by": (
            "lowers METRIC by at least D, or raises METRIC by at least D, and 'than' after it; the margin of another "
            "verb is its smallest",
            "claim: a lowers val/loss by at least 0.02 than b; of another verb, smallest: 0.02",
        ),
        "than": (
            "two sides, or one: a claim against a constant has no other side",
            "claim: {before}",
        ),
        "%": ("a percentage without a blank", "claim: {before}%"),
    },
    error=ClaimError,
    names=r"^\s()",
    synonyms=dict.fromkeys(("reduces", "decreases", "minimizes"), "lowers")
    | dict.fromkeys(("increases", "maximizes"), "raises")
    | dict.fromkeys(("does", "doesn't", "doesnt"), "does_not_worsen")
    | dict.fromkeys(("vs", "versus", "compared"), "than"),
)


def parse_claim(text: str, *, baseline: str) -> Claim:
    """Read one claim. Raises `ClaimError`, with a caret under the word that breaks it. Names are not checked against a
    study here; `prereg.study.validate` does that.

    >>> claim = parse_claim("mean(a, b) lowers val/loss by at least 0.02", baseline="plain")
    >>> claim.weights
    {'a': 0.5, 'b': 0.5, 'plain': -1.0}
    >>> claim.verb, claim.by
    ('lowers_by', 0.02)
    >>> parse_claim("a lower val/loss", baseline="plain")
    Traceback (most recent call last):
    prereg.errors.ClaimError: 'lower' where a verb should be, column 3
        a lower val/loss
          ^
      required: one of lowers, raises, changes, does_not_worsen, does_not_change
      try:      did you mean 'lowers'?
    """
    if re.match(r"\s*trend\s*\(", text):
        raise ClaimError(
            f"a claim about a trend is gone since {SINCE}",
            required="a claim about arms",
            fix="two levels, such as high lowers val/loss than low",
        )
    # The tree: a side, a verb, a metric, then what may come after them, told apart by its rule or terminal.
    written, verb, metric, *rest = CLAIMS.parse(text).children
    parts = {part.type if isinstance(part, str) else str(part.data): part for part in rest}

    left = _side(written)
    plain = cast("PlainVerb", str(verb))
    by, percent = _least(parts["least"], plain, text) if "least" in parts else (None, None)
    constant = float(str(parts["CONSTANT"])) if "CONSTANT" in parts else None
    right = _side(parts["than"]) if "than" in parts else _Side({baseline: 1.0})
    if constant is not None:
        right = _Side({})  # a constant is compared with no arm, not with the baseline

    # Inside the tool a margin or a constant makes another verb, so that each row of `KINDS` has one pair of nulls.
    suffix = "_by" if by is not None else "" if constant is None else f"_{BEYOND[plain]}"
    claim = Claim(
        verb=cast("Verb", f"{plain}{suffix}"),
        metric=str(metric),
        left=left.weights,
        right=right.weights,
        by=by,
        left_as_written=left.as_written,
        right_as_written=right.as_written,
        constant=constant,
        percent=percent,
    )
    # Sentences that the grammar takes and that are no contrast: the parser knows no sums.
    for refusal in _NO_CONTRAST:
        if refusal.holds(claim):
            fault, fix = (part.format(text=text, baseline=baseline) for part in (refusal.found, refusal.fix))
            raise ClaimError(fault, required=refusal.required, fix=fix)
    return claim


class _Refusal(NamedTuple):
    """A sentence of the grammar that is no contrast: its weights do not sum to what they must."""

    holds: Callable[[Claim], bool]
    found: str
    required: str
    fix: str


_NO_CONTRAST = (
    _Refusal(
        lambda claim: (
            claim.constant is not None
            and (not abs(sum(claim.weights.values()) - 1.0) <= _ROUNDING or isinf(claim.constant))
        ),
        "the weights of claim '{text}', which compares with a constant, do not sum to one",
        "an arm, or a mean of arms, and a finite constant",
        "mean(a, b) lowers val/loss below 3.28",
    ),
    _Refusal(
        lambda claim: claim.is_paired and not claim.weights,
        "claim '{text}' compares an arm with itself",
        "two different sides; without 'than' the right side is the baseline",
        "name another arm than '{baseline}', or add 'than ARM'",
    ),
    _Refusal(
        # Sums of decimal fractions such as 0.1 + 0.2 miss a whole number by rounding.
        lambda claim: claim.is_paired and not abs(sum(claim.weights.values())) <= _ROUNDING,
        "the weights of claim '{text}' do not sum to zero",
        "a contrast: as many arms on the left as on the right",
        "(a - b) raises METRIC than (c - d)",
    ),
)


class _Side(NamedTuple):
    """Weights by arm."""

    weights: Mapping[str, float]
    as_written: str = ""
    """How the study writes it, where it does so by a function of arms."""


def _side(tree: Any) -> _Side:
    """One side of a claim, from its tree."""
    match tree.data, [*tree.children]:
        case "than", [side]:
            return _side(side)
        case "mean", arms:
            return _mean([str(arm) for arm in arms])
        case "sum", [first, *others]:
            weights: dict[str, float] = {}
            # Terms and signs by turns; the first term has no sign.
            for sign, term in zip(["+", *others[0::2]], [first, *others[1::2]], strict=True):
                *weight, arm = map(str, term.children)
                size = float(weight[0] if weight else 1.0)
                if not 0.0 < size < inf:
                    fault = f"{weight[0]:.80} as the weight of '{arm}'"
                    raise ClaimError(fault, required="a number above zero", fix="0.5*ARM")
                weights[arm] = weights.get(arm, 0.0) + (size if sign == "+" else -size)
            return _Side(weights)
    return _Side({str(tree.children[0]): 1.0})


def _mean(arms: list[str]) -> _Side:
    # mean(a, a, b) would be a weighted mean that nobody wrote as one.
    twice = next((arm for arm in arms if arms.count(arm) > 1), None)
    if twice is not None:
        raise ClaimError(
            f"'mean({', '.join(arms)})' names '{twice}' twice",
            required="each arm once: a mean weighs its arms equally",
            fix="(0.667*a + 0.333*b) for other weights",
        )
    return _Side(dict.fromkeys(arms, 1.0 / len(arms)), f"mean({', '.join(arms)})")


def _least(tree: Any, verb: PlainVerb, text: str) -> tuple[float, float | None]:
    """The least effect that is claimed, and the same in percent if so written."""
    word = tree.children[0]
    percent = percent_of(word)
    if percent is None:
        least = float(word)
    else:
        # The logarithm of a fall by 100% or more is not there: infinite here, and refused as such below.
        least = log_margin(percent, falls=verb == "lowers") if percent < (100.0 if verb == "lowers" else inf) else inf
    if not 0.0 < least < inf:
        raise CLAIMS.mistake(text, word.start_pos, f"{word} as a least effect", _OF_MARGINS, f"claim: {_EXAMPLE}")
    return least, percent


def with_groups(claim: Claim, groups: Mapping[str, tuple[str, ...]]) -> Claim:
    """The claim with every group of arms replaced by the mean of its arms; `groups` are arms by the group's name.

    >>> claim = parse_claim("with:rotary lowers val/loss than without:rotary", baseline="plain")
    >>> with_groups(claim, {"with:rotary": ("b", "ab"), "without:rotary": ("plain", "a")}).weights
    {'b': 0.5, 'ab': 0.5, 'plain': -0.5, 'a': -0.5}
    """
    if not any(name in groups for name in claim.named):
        return claim

    def arms(weights: Mapping[str, float]) -> dict[str, float]:
        by_arm: dict[str, float] = {}
        for name, weight in weights.items():
            # A group's weight is shared by its arms; an arm that comes by itself, too, adds both.
            members = groups.get(name, (name,))
            for arm in members:
                by_arm[arm] = by_arm.get(arm, 0.0) + weight / len(members)
        return by_arm

    left, right = claim.sides
    return replace(claim, left=arms(claim.left), right=arms(claim.right), left_as_written=left, right_as_written=right)


def margin_of(text: str) -> float | None:
    """The D of `by at least D`; none where a claim has none, or has it in percent, and of what is no claim.

    >>> margin_of("a lowers val/loss by at least 0.02"), margin_of("a lowers val/loss by at least 2%")
    (0.02, None)
    """
    try:
        claim = parse_claim(text, baseline="")
    except ClaimError:
        return None
    return claim.by if claim.percent is None else None


def percent_of(word: str) -> float | None:
    """2 for `2%`; none where the word is no percentage.

    >>> percent_of("2%"), percent_of("0.02")
    (2.0, None)
    """
    return float(word[:-1]) if re.fullmatch(f"{_NUMBER}%", word) else None


def log_margin(percent: float, *, falls: bool) -> float:
    """The size of a fall, or rise, by so many percent as a difference of natural logarithms.

    >>> round(log_margin(20.0, falls=True), 4), round(log_margin(25.0, falls=False), 4)
    (0.2231, 0.2231)
    """
    # log1p keeps its digits for a margin of a fraction of a percent.
    return -log1p(-percent / 100.0) if falls else log1p(percent / 100.0)
