"""How the verdict was reached, in words that can go into a paper, and a glossary for a newcomer."""

from __future__ import annotations

from ablate.judge.recompute import recompute
from ablate.judge.verdict import Check
from ablate.reporting.blocks import Facts, Paragraph, Section
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.registration import units_of
from prereg import text as words
from prereg.documents import analysis_plan, measures
from prereg.documents.configuration import training_sentences
from prereg.documents.designs import pairing, sample, tuning
from prereg.documents.procedures import (
    ABOUT_CORRECTIONS,
    SPENDING,
    TESTS,
    about_test,
    after_correction,
    counted_as,
    divergence,
    errors_held,
    gatekeeping,
)
from prereg.registry.looks import Look
from prereg.study.analysis import EProcess, Looks
from prereg.study.designs.per_task import tasks_are_strata
from prereg.study.spec import Study

ABOUT_ESTIMANDS = {
    "new_seeds": " The verdict speaks of new seeds on these very items, so that the test is the paired t (Student "
    "1908) over the seeds' means of them.",
    "new_seeds_and_items": " The verdict speaks of new seeds and new {units}: both are samples, and an item's luck is "
    "shared by all seeds. The standard error is that of the two-way layout without replication (Cornfield and Tukey "
    "1956), and the mean square of each factor is weighed with the critical value of t for its own degrees of freedom "
    "(Banerjee 1960), the number of seeds or of {units} less one, so that few of either cannot pass for many. Tasks of "
    "unequal size have the exact quantile of their mean over its standard error in place of t.",
}
ABOUT_STRATA = (
    " Of a mean in which tasks count alike the tasks are strata: items are sampled within them and vary about their "
    "own task's mean (Cochran 1977), with the degrees of freedom of the smallest task (Hajek 1962)."
)


MATCHING = (
    "pairs start from the same weights",
    "pairs read the same batches",
    "pairs drew the same dropout",
    "pairs are matched",
)
"""Checks that compare what the runs of one seed share."""


IMPORTED = "every run was made here"
"""The check of where runs were made; there where any was imported."""


def methods_section(context: ReportContext) -> Section:
    """How runs were trained and by whom, when the study stopped, each procedure by name, and which error rate is
    controlled."""
    study = context.study
    trained = f"{training_sentences(study, context.registration.corpus)} {_made(context)}".strip()
    stopping = " ".join(filter(None, [tuning(study), analysis_plan.starting(study), analysis_plan.stopping(study)]))
    looked = [] if context.decision.look is None else [_looks(context, context.decision.look)]
    paragraphs = [trained, measures.measured(study), stopping]
    paragraphs += [_pairs(context), _tests(study), *looked, _rate(study), _verdict(context)]
    if context.decision.findings:
        paragraphs.append(recompute(study, context.decision.findings, context.decision.look).summary)
    return Section("methods", "Methods", tuple(Paragraph(text) for text in paragraphs))


def _made(context: ReportContext) -> str:
    """Who made the runs; of a user's own trainer the sentences of its command say it, unless runs were imported."""
    imported = next((check for check in context.decision.checks if check.name == IMPORTED), None)
    if imported is not None:
        return f"{imported.found.rstrip('.')}."
    return "The built-in trainer of ablate made the runs." if context.study.trainer == "gpt" else ""


def _pairs(context: ReportContext) -> str:
    study, look = context.study, context.decision.look
    if not study.paired:
        return f"{sample(study)} {pairing(study)} Values are read {_read_at(study)}."
    seeds = words.counted(len(study.seeds), "seed")
    if look is not None and not look.last:
        seeds = f"{words.counted(look.n_seeds, 'seed')} (of {len(study.seeds)} planned)"
    return (
        f"{words.counted(len(study.arms), 'arm').capitalize()} were trained with the same {seeds}, and each seed gives "
        f"{counted_as(study, 'one paired difference')} for each claim: left side minus right side, {_read_at(study)}. "
        f"{_shared(context)}"
    )


def _shared(context: ReportContext) -> str:
    """What the runs of one seed share, as far as the checks of this decision show it."""
    checks = {check.name: check for check in context.decision.checks}
    found = [checks[name] for name in MATCHING if name in checks]
    held = [check for check in found if check.passed]
    parts = []
    if held:
        parts.append(f"Compared by hash within each seed: {_listed(held)}.")
    failed = [check for check in found if not check.passed and check.severity == "inadmissible"]
    if failed:
        parts.append(f"Not so: {_listed(failed)}.")
    parts += [
        f"{checks[other].found.capitalize()}." for name in MATCHING if (other := f"{name}, for all variants") in checks
    ]
    if len(context.study.arms) > 1 and not (held or failed):
        parts.append(
            "The trainer was given the same seed for every arm; whether runs of one seed share their initial values, "
            "the order of their batches or any other random number was not checked."
        )
    made = checks.get(IMPORTED)
    if made is not None and not made.passed:
        parts.append("Of imported runs all of this is as the records that came with them state it.")
    return " ".join(parts)


def _listed(checks: list[Check]) -> str:
    return "; ".join(f"{check.name} ({check.found})" for check in checks)


def _read_at(study: Study) -> str:
    """Where the claims read their metrics."""
    elsewhere = [name for name, hypothesis in study.hypotheses.items() if hypothesis.read != "final"]
    if not elsewhere:
        return f"at the last {study.step_name}"
    return f"at the last {study.step_name} unless its sentence says otherwise (so {words.listed(elsewhere)})"


def _looks(context: ReportContext, look: Look) -> str:
    """What makes the p values and intervals of a sequential study hold, whenever it stopped."""
    study = context.study
    alpha = words.compact(study.analysis.alpha)
    stopped = (
        f"The study ended at {look.words}. A look that is not the last gives a verdict only where a finding at its "
        "level makes a line of the decision list hold; otherwise it shows nothing and the next seeds are trained. "
    )
    if isinstance(study.stopping, EProcess):
        return (
            f"{stopped}Seeds were added until decided, at most {study.stopping.max_seeds}. The evidence of each test "
            "is a t-test e-process over the differences in the order of their seeds: the likelihood of their "
            "scale-free part with a normal effect, of mean 0 and variance 2 in units of the standard deviation, over "
            "that with no effect (Lai 1976; Wang and Ramdas 2023). If there is no effect, and the differences are "
            f"normal, it reaches {words.compact(1 / study.analysis.alpha)} at any number of seeds with a chance of at "
            f"most {alpha} (Ville 1939), so p is 1 over its largest value so far. Intervals are the anytime-valid "
            "ones of the same e-process, over all numbers of seeds so far. A valid p at every moment is all that the "
            "correction over hypotheses needs."
        )
    assert isinstance(study.stopping, Looks), study.stopping
    return (
        f"{stopped}The level is spent over the looks after {words.listed(str(n) for n in study.stopping.looks)} seeds "
        f"by the spending function of Lan and DeMets (1983) of {SPENDING[study.stopping.spending]}, half of it on each "
        "side of a two-sided test as in the symmetric designs of gsDesign, with the share of planned "
        "seeds as information. The nominal levels come from the exact joint law of the t statistics at the "
        f"looks: if differences are normal, the chance that any look errs is {alpha}. The p values shown are repeated "
        "p values and the intervals repeated confidence intervals (Jennison and Turnbull 1989): they hold over all "
        "looks together, and are wider than stage-wise ones."
    )


def _tests(study: Study) -> str:
    also = words.listed(TESTS[test] for test in study.analysis.also)
    described = f" Registered as description, deciding nothing: {also}." if also else ""
    deciding = about_test(study)
    if any(claim.constant is not None for claim in study.claims.values()):
        deciding += (
            " A claim against a constant is tested on one side of it, with or without a margin; its intervals are at "
            "1 − 2 alpha, and their ends are the one-sided bounds."
        )
    if study.analysis.test == "items":
        deciding += ABOUT_ESTIMANDS[study.analysis.estimand].format(units=units_of(study))
        deciding += ABOUT_STRATA * tasks_are_strata(study)
    return (
        f"{deciding} Each hypothesis answers two questions: whether the data establish the claim (supported), and "
        "whether they rule it out (refuted). A claimed direction (lowers, raises, changes) is tested against zero and "
        "ruled out at its registered smallest difference; a claimed effect of at least a margin is tested against that "
        "margin, and ruled out there; a claimed absence is tested against the smallest difference and ruled out by a "
        "change. Against zero the test is two-sided and counts only in the claimed direction; against a margin it is "
        "one-sided, and two one-sided tests make an equivalence (Schuirmann 1987). The side comes from the claim, "
        "never from the data. Intervals follow the claim and not the outcome: two-sided for a claimed direction, else "
        "at 1 − 2 alpha, whose ends are one-sided bounds; where that does not show what was found, the interval is "
        "that of the test against the margin or of the step of the correction that decided, and says so. For every "
        "claim with a margin the effect is shown to lie in one of three zones: at least the margin, short of it, or "
        "undecided. What is neither is "
        f"inconclusive, which is not evidence of no effect.{_about_percent(study)}{described} Standardised effects are "
        f"{_about_effects(study)}."
    )


def _about_percent(study: Study) -> str:
    """What a margin in percent is of; nothing where the study has none."""
    if all(one.percent is None for one in study.hypotheses.values()):
        return ""
    return (
        " A margin in percent is a ratio of geometric means over seeds, tested as a difference of logarithms; it says "
        "nothing of the ratio of arithmetic means, which differs where one arm varies more."
    )


def _about_effects(study: Study) -> str:
    if not study.paired:
        return (
            "the difference of two arm means over their pooled standard deviation, with Hedges' exact correction "
            "(Hedges' g, Hedges 1981), which takes equal variances for granted and is given without an interval, and "
            "Cliff's delta (Cliff 1993)"
        )
    return (
        "the mean over the standard deviation of the differences (d_z), with Hedges' exact correction (g_z, Hedges "
        "1981) and noncentral-t intervals"
    )


def _rate(study: Study) -> str:
    alpha = words.compact(study.analysis.alpha)
    sizes = words.listed(
        f"{role} ({words.counted(len(names), 'hypothesis', 'hypotheses')})" for role, names in study.families.items()
    )
    if study.gate_steps:
        return (
            f"{gatekeeping(study)} The simultaneous intervals are Bonferroni's over the hypotheses of the first step; "
            "one of a later step has none, and the interval shown for it is that of its test alone."
        )
    if study.analysis.correct == "none":
        return (
            f"No correction for several hypotheses was registered: each test has level {alpha} by itself, and the "
            f"chance of at least one false finding grows with their number. Families: {sizes}. Intervals are at "
            f"{words.level(1 - study.analysis.alpha)} against zero and {words.level(1 - 2 * study.analysis.alpha)} "
            "against a margin, each by itself."
        )
    return (
        f"Within each family, p values are corrected {ABOUT_CORRECTIONS[study.analysis.correct]}. Families: "
        f"{sizes}. The chance of one or more false 'supported' in a family is at most {alpha}, and so is the "
        "chance of one or more false 'refuted'; the chance of either is at most "
        f"{words.compact(2 * study.analysis.alpha)} (strong control of the family-wise error rate, where the test's "
        "assumptions hold, and only there). It is not controlled over all families together. "
        "The simultaneous intervals are Bonferroni's, which can be wider than the correction needs; a finding that "
        "they do not show has the interval at the level of the step that decided."
    )


def _verdict(context: ReportContext) -> str:
    study, checks = context.study, context.decision.checks
    held = sum(check.passed for check in checks)
    return (
        f"The verdict is the first line of the registered decision list that holds, of {len(study.decision)}. A run "
        f"that diverged: {divergence(study)}. Each claim's error rate is the registered one, where its test's "
        "assumptions hold. The verdict's is "
        f"{errors_held(study)['For the verdict']}. Before any inference the evidence is compared with the "
        f"registration, by the {words.counted(len(checks), 'check')} that this report lists with what each found "
        f"({held} held); what no check names was not checked. Where a check fails that forbids a verdict there is "
        "none. Registration, starts, ends and looks are in an append-only, hash-chained ledger."
    )


def glossary_section(context: ReportContext) -> Section:
    """Every word that a newcomer could misread."""
    corrected = context.study.analysis.correct != "none"
    after = f", {after_correction(context.study.analysis.correct)}"
    seed = (
        "A seed fixes weights, batches and dropout."
        if context.study.trainer == "gpt"
        else "A number that the trainer is given; what it fixes there was not checked."
    )
    words_explained = {
        "Supported": f"The data reject the claim's opposite{after}. Says nothing about size beyond the interval, "
        "unless the claim does (by at least).",
        "Refuted": "The data rule the claim out: a claimed change at the smallest difference that matters, a claimed "
        "absence because there is a change. This is a finding, as strong as support; a change can be refuted although "
        "it is real, when it is too small to matter.",
        "Inconclusive": "Neither. The study could not tell; more seeds might. Not a sign that there is no effect.",
        "Inadmissible": "The evidence is not what was promised, for instance a missing run or an early look. No "
        "verdict, whatever the numbers say.",
        "Smallest difference that matters": "Fixed before the data, in the metric's own unit. Grey in the figures.",
        "p to support, p to refute": "How surprising the data would be if the claim could not be supported, or not be "
        f"refuted. {'After correction, at' * corrected or 'At'} or below alpha means found.",
        "Interval": "Differences that the data do not contradict at the stated level."
        + " Simultaneous: the level holds for all hypotheses of the family at once." * corrected,
        **(
            {"Seed": f"{seed} Each gives one number for each claim; n counts seeds."}
            if context.study.paired and not context.study.compares_sides
            else {
                "Seed, pair": f"{seed} Two runs of one seed form a pair; n counts pairs."
                if context.study.paired
                else f"{seed} No run is paired with another; n counts the runs of each arm."
            }
        ),
        "Role": f"The family of a hypothesis{', corrected together' * corrected}. Exploratory hypotheses are reported "
        "and decide nothing.",
        "Stable": "No run of the arm diverged or was unstable otherwise, by the registered rule.",
        "Nats per token": "Cross-entropy with natural logarithms; divide by 0.693 for bits.",
        "Ledger head": "Hash of the last ledger entry when the report was made. Later tampering with the history "
        "would change it.",
    }
    return Section("glossary", "Glossary", (Facts(tuple(words_explained.items())),))
