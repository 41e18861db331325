"""The AsPredicted form, as the Open Science Framework takes it: eleven fields, and room for little.

Everything that decides is said; what only describes the runs is said in as few words as it takes. Whether data exist
already is a question that only a person can answer, and it is left blank.
"""

from __future__ import annotations

from prereg.export.claims import grouped_statements, quoted
from prereg.export.conduct import exclusions_in_brief, sample_in_brief, stability_in_brief
from prereg.export.configuration import arms_in_brief, base_in_brief, factor_sentences
from prereg.export.form import Field, Form
from prereg.export.inference import (
    decision_in_brief,
    estimand,
    families_in_brief,
    grouped_nulls,
    test_in_brief,
    tie_breakers,
    when_both_in_brief,
)
from prereg.export.measures import measured
from prereg.export.record import identity, status
from prereg.export.source import Source
from prereg.plain import visible

CUSTOMARY = 3_200
"""Characters that all answers together customarily have."""


def aspredicted(source: Source) -> Form:
    """The form, filled."""
    study = source.study
    analyses = (
        test_in_brief(study),
        " ".join(grouped_nulls(study)),
        "Neither rejected: inconclusive." + when_both_in_brief(study),
        families_in_brief(study),
        "" if study.analysis.estimand == "new_seeds" else estimand(study),
        "Verdict: the first line that holds.\n" + decision_in_brief(study),
    )
    fields = (
        Field(
            "data",
            "Have any data been collected for this study already?",
            'whoever registers must choose "Yes", "No" or "It\'s complicated" (and then explain it under "Anything '
            'else to pre-register?"). Only they know what was run or seen elsewhere.',
            blank=True,
        ),
        Field("hypothesis", "What is the main question being asked or hypothesis being tested?", _hypothesis(source)),
        Field("dependent", "Which are the key dependent variables?", measured(study, brief=True)),
        Field("conditions", "How many and which conditions are there?", _conditions(source)),
        Field("analyses", "Exactly which analyses will be conducted?", _joined(*analyses, join="\n")),
        Field("outliers", "How are outliers and exclusions handled?", exclusions_in_brief(study)),
        Field("sample", "What determines the sample size?", sample_in_brief(study)),
        Field(
            "other",
            "Anything else to pre-register?",
            _joined(stability_in_brief(study), tie_breakers(study), identity(source)),
        ),
        Field("name", "Title", visible(study.title)),
        Field("study_type", "Type of study", "Experiment"),
        Field("study_type_other", "Type of study, if other", "None."),
    )
    return Form("AsPredicted", study.title, status(source), fields, CUSTOMARY)


def _hypothesis(source: Source) -> str:
    return _joined(source.study.question.strip(), *grouped_statements(source.study))


def _conditions(source: Source) -> str:
    study, registration = source.study, source.registration
    factors = factor_sentences(study)
    arms = arms_in_brief(study)
    if factors:
        named = ", ".join(quoted(name) for name in study.arms)
        arms = f"{' '.join(factors)} Arms are all {len(study.arms)} combinations: {named}; baseline "
        arms += f"{quoted(study.baseline)}."
    return _joined(arms, base_in_brief(study, registration.corpus if registration else None))


def _joined(*parts: str, join: str = " ") -> str:
    return join.join(part for part in parts if part)
