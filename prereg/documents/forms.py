"""The OSF Preregistration, field by field, in full sentences.

What was known of the data before is for a person to say, and left blank. So is the reason for the number of seeds in a
draft, where no design has been frozen yet.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from prereg.documents import analysis_plan, measures
from prereg.documents.claims import statements
from prereg.documents.configuration import arm_sentences, base_sentences, factor_sentences
from prereg.documents.designs import design_sentences, pairing
from prereg.documents.procedures import at_level, counted_as, power_test
from prereg.documents.source import (
    Source,
    beliefs,
    cost,
    false_adoption,
    frozen_design,
    identity,
    power_sentences,
    status,
    versions,
)
from prereg.escape import json_visible, markdown_sentence, quoted
from prereg.study.designs.per_task import said_once
from prereg.study.spec import Study
from prereg.text import counted, listed


@dataclass(frozen=True)
class Field:
    """One field of a form."""

    key: str
    """Its name in JSON."""
    title: str
    """Its question, as people know it."""
    text: str
    """The answer; of a blank, what is to be answered and by whom."""
    blank: bool = False
    """Whether it is left to a person."""

    @property
    def shown(self) -> str:
        """The answer, or the blank so that nobody takes it for one."""
        return f"[LEFT TO YOU: {self.text}]" if self.blank else self.text


@dataclass(frozen=True)
class Form:
    """A filled form."""

    name: str
    """Which form."""
    title: str
    """The study's title."""
    status: str
    """What it was filled from, in a sentence."""
    fields: tuple[Field, ...]

    def markdown(self) -> str:
        """The form as text, blanks named first."""
        parts = [self.status, f"# {self.name}: {markdown_sentence(self.title)}", self._blanks()]
        parts += [f"## {field.title}\n\n{_escaped(field.shown)}" for field in self.fields]
        return "\n\n".join(part for part in parts if part) + "\n"

    def json(self) -> str:
        """Field -> text, and under `status` what it was filled from. A blank holds its mark, never an answer."""
        answers = {"status": self.status} | {field.key: field.shown for field in self.fields}
        return json_visible(json.dumps(answers, indent=2, ensure_ascii=False)) + "\n"

    def _blanks(self) -> str:
        blanks = [field for field in self.fields if field.blank]
        if not blanks:
            return ""
        are = "field is" if len(blanks) == 1 else "fields are"
        return f"**{len(blanks)} {are} left to you: {listed(quoted(field.title) for field in blanks)}**"


def _escaped(answer: str) -> str:
    """An answer line by line: what a study brings is shown unchanged, and is no markup."""
    return "\n".join(markdown_sentence(line, numbered=True) for line in answer.split("\n"))


def osf(source: Source) -> Form:
    """The form, filled."""
    study = source.study
    corpus = source.registration.corpus if source.registration else None
    tasks = measures.pinned_tasks(source.registration.tasks if source.registration else None)
    fields = (
        Field("research_questions", "Research questions or hypotheses", _hypotheses(study)),
        Field(
            "foreknowledge",
            "Foreknowledge of the data",
            "whoever registers must say what of these data existed, and what of it they had seen, before registering. "
            "The ledger cannot know what was run or seen elsewhere.",
            blank=True,
        ),
        Field(
            "foreknowledge_explanation",
            "Explanation of foreknowledge",
            "whoever registers must explain the answer above: pilot runs, results of others, earlier studies.",
            blank=True,
        ),
        Field("study_type", "Study type", "Experiment: the arms are configurations that the researcher sets."),
        Field("causal_intention", "Causal interpretation", _causal(study)),
        Field(
            "blinding",
            "Blinding",
            "No blinding is involved: the runs are made and measured by a program, which treats all arms alike.",
        ),
        Field("additional_blinding", "Additional blinding", _withheld(study)),
        Field("design", "Study design", _design(study)),
        Field("randomization", "Randomization", analysis_plan.randomization(study)),
        Field(
            "data_collection",
            "Data collection procedures",
            _joined(base_sentences(study, corpus), _corpus(source), measures.recorded(study), tasks),
        ),
        Field("sample_size", "Sample size", analysis_plan.sample_size(study)),
        _rationale(source),
        Field(
            "starting_and_stopping",
            "Starting and stopping rules",
            f"{analysis_plan.starting(study)} {analysis_plan.stopping(study)}",
        ),
        Field("manipulated", "Manipulated variables", _manipulated(study)),
        Field("measured", "Measured variables", measures.measured(study)),
        Field("indices", "Indices", measures.indices(study)),
        Field("models", "Statistical models", _models(study)),
        Field("transformations", "Transformations", measures.transformations(study)),
        Field(
            "inference_criteria",
            "Inference criteria",
            _joined(
                analysis_plan.families(study),
                analysis_plan.two_questions(study),
                analysis_plan.when_both(study),
                *analysis_plan.plain_outcomes(study),
                "The study ends with the verdict of the first line that holds:\n"
                + analysis_plan.decision_sentences(study),
            ),
        ),
        Field(
            "inclusion_exclusion",
            "Inclusion and exclusion criteria",
            f"{analysis_plan.exclusions(study)} {analysis_plan.stability(study)}",
        ),
        Field("missing_data", "Missing data", analysis_plan.missing(study)),
        Field("other_planned_analysis", "Other planned analysis", _other(study)),
        Field("context", "Context and additional information", _context(source)),
    )
    return Form("OSF Preregistration", study.title, status(source), fields)


def _hypotheses(study: Study) -> str:
    return "\n".join(part for part in (study.question.strip(), *statements(study)) if part)


def _causal(study: Study) -> str:
    text = "A causal interpretation is intended: a difference between arms is read as the effect of what they change"
    if not study.paired:
        return f"{text}, as far as runs of different arms differ in nothing else but their seeds."
    if study.trainer == "gpt":
        return f"{text}, because runs of one seed differ in nothing else."
    return f"{text}, as far as the researcher's own trainer changes nothing else between runs of one seed."


def _withheld(study: Study) -> str:
    until = (
        "before the last planned run has ended"
        if study.stopping == "fixed"
        else "before a planned look, and at a look only if it ends the study"
    )
    return (
        f"The software shows no contrast between arms {until}. An earlier look has to be asked for: it goes on record, "
        "and no verdict is given after it."
    )


def _design(study: Study) -> str:
    shape = f"one factor with {len(study.arms)} levels, the arms"
    if study.factors:
        crossed = " x ".join(str(len(levels)) for levels in study.factors.values())
        shape = f"a full {crossed} factorial" if len(study.factors) > 1 else shape
    if study.components is not None:
        shape = f"{counted(len(study.arms), 'arm')}. {design_sentences(study)}".removesuffix(".")
    kind = counted_as(study, "Within-seed (paired) design") if study.paired else "Design of independent runs"
    return f"{kind}: {shape}. {pairing(study)}"


def _corpus(source: Source) -> str:
    pins = source.registration.pinned if source.registration else ()
    if len(pins) == 1 and pins[0].tokens is None:
        return f"The text of the corpus has {counted(pins[0].size_bytes, 'byte')} and the sha256 {pins[0].sha256}."
    return " ".join(
        f"The corpus {pin.name} has {counted(pin.size_bytes, 'byte')} and the sha256 {pin.sha256}." for pin in pins
    )


def _rationale(source: Source) -> Field:
    design, key, title = frozen_design(source.registration), "sample_size_rationale", "Sample size rationale"
    if design is None:
        who = "whoever registers must give the reason for this number of seeds; no design that could give it is frozen."
        return Field(key, title, who, blank=True)
    study = source.study
    reason = _joined(
        beliefs(study, design),
        f"Power is that of {power_test(study)} {at_level(study.analysis.correct)}.",
        *power_sentences(study, design),
        false_adoption(design),
        cost(design),
    )
    return Field(key, title, reason)


def _manipulated(study: Study) -> str:
    factors = factor_sentences(study)
    if not factors:
        return " ".join(arm_sentences(study))
    named = ", ".join(quoted(name) for name in study.arms)
    return (
        f"{' '.join(factors)} Arms are all {len(study.arms)} combinations, named by their levels in this order: "
        f"{named}. The baseline is {quoted(study.baseline)}."
    )


def _models(study: Study) -> str:
    return _joined(
        "δ is the mean, over seeds, of the left side of a claim minus its right side.",
        analysis_plan.deciding_test(study),
        *analysis_plan.grouped_nulls(study),
        analysis_plan.estimand(study),
    )


def _other(study: Study) -> str:
    exploratory = [label for label, name in said_once(study).items() if study.hypotheses[name].role == "exploratory"]
    said = (
        f"{listed(exploratory)} {'is' if len(exploratory) == 1 else 'are'} exploratory: reported, and asked by no line "
        "of the decision list."
        if exploratory
        else ""
    )
    return _joined(analysis_plan.secondary_tests(study), said, analysis_plan.tie_breakers(study)) or "None."


def _context(source: Source) -> str:
    if source.registration is None:
        return "This is a draft; the registration will be written, with its sha256, by the command ablate register."
    ledger = (
        f"It is entry {source.entry.index} of the hash-chained ledger of this repository; that entry has the sha256 "
        f"{source.entry.sha256}. A ledger proves the order of its entries; it does not prove that nothing was run "
        "elsewhere before."
    )
    return f"{identity(source)} {ledger} {versions(source)}"


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)
