"""docs/reference/rule.md: the language of claims and of the decision rule."""

from __future__ import annotations

from docs.generator.markdown import NOTE, code, table
from prereg.rule.condition import CONDITIONS, DEEPEST, LONGEST, MEANS
from prereg.rule.rule import MOST_NAMES
from prereg.study.claim import CLAIMS
from prereg.study.verbs import MEANS_OF_VERBS

_PAGE = """# Claims and the decision rule

{note}

A study states claims, and a rule that turns their outcomes into a verdict. Both are parsed by grammars of their own;
nothing in a study file is ever executed.

## Claims

`hypotheses.NAME.claim` is one sentence about arms and a metric:

```text
{claim_grammar}
```

The grammar is in the notation of lark, whose parser reads it: words in quotes, `?` after what may be left out, `*` and
`+` after what may be repeated, patterns of names and numbers between slashes. Without `than` the right side is the
study's `baseline`. The effect is always the left side minus the right side. D is a number in the metric's unit, or a
percentage.

{verbs}
`smallest` is the smallest difference that matters; a claim `by at least D` says it itself. [Methods](../methods.md)
lists for each verb the null hypothesis behind each outcome, and [designs](../designs.md) shows which claim fits which
question.

## The rule

`decision` is a list of lines `{{verdict: TEXT, when: CONDITION}}`, read from the top: the first line whose condition
holds gives the verdict. The last line may leave out `when`, and then holds in every other case.

```text
{rule_grammar}
```

`not` binds more closely than `and`, and `and` more closely than `or`. A condition has at most {longest:,} characters,
nests `not` and parentheses at most {deepest} deep, and a rule asks about at most {names} hypotheses and variants.

{states}
Every hypothesis has exactly one of the outcomes supported, refuted and inconclusive; stability is a separate question
about a variant. A FAMILY is a hypothesis that the study writes once with `per: task`: `all supported(F)` holds if every
hypothesis of the family is supported, `any refuted(F)` if one is refuted. A rule cannot ask about an exploratory
hypothesis.

## What is proved before any data

`ablate check` and `ablate register` refuse a rule, with a witness, unless

- every line can hold: some combination of outcomes satisfies its condition,
- every line can decide: in some case no earlier line holds first, and
- every combination of outcomes has a line.

A claim and its converse cannot both be supported, and such combinations are no case. What is merely unlikely is found
by `ablate design`, which simulates the rule."""


def rule_page() -> str:
    """The whole page."""
    return _PAGE.format(
        note=NOTE,
        claim_grammar=CLAIMS.shown,
        verbs=table(("verb", "claims that"), [(code(verb), text) for verb, text in MEANS_OF_VERBS.items()]),
        rule_grammar=CONDITIONS.shown,
        longest=LONGEST,
        deepest=DEEPEST,
        names=MOST_NAMES,
        states=table(("question", "holds if"), [(code(question), text) for question, text in MEANS.items()]),
    )
