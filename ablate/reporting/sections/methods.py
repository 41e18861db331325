"""Section of methods: how the verdict was reached, in words that can go into a paper."""

from __future__ import annotations

from ablate.judge.recompute import recompute
from ablate.reporting.blocks import Section
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.registration import sampling_units
from ablate.reporting.view import of_all_tasks
from ablate.reporting.wording import blocks, phrase
from prereg import text as words
from prereg.documents.claims import estimates_means
from prereg.documents.facts import StudyFacts
from prereg.documents.procedures import SPENDING
from prereg.documents.sentences import counted_as, macro, say
from prereg.metrics.catalogue import METRICS
from prereg.study.analysis import Looks
from prereg.study.designs.per_task import tasks_are_strata
from prereg.study.words_of_tests import TESTS

MATCHING = (
    "pairs start from the same weights",
    "pairs read the same batches",
    "pairs drew the same dropout",
    "pairs are matched",
)
"""Checks that compare what the runs of one seed share."""


STATED = "pairs match in what their trainer says they must"
"""The check of the hashes that a user's own trainer states."""
IMPORTED = "every run was made here"
"""The check of where runs were made; there where any was imported."""


def methods_section(context: ReportContext, *, paper: bool = False) -> Section:
    """How runs were trained and by whom, when the study stopped, each procedure by name, and which error rate is
    controlled. For a `paper` also what a report says in another section or leaves to docs/methods.md."""
    study, look, checks = context.study, context.decision.look, context.decision.checks
    alpha, recomputed = words.compact(study.analysis.alpha), ""
    # A margin in percent is tested on logarithms, which a reader has to know.
    percents = [name for name, hypothesis in study.hypotheses.items() if hypothesis.percent is not None]
    if context.decision.findings:
        # By another library at the time of the report: the numbers in print are those that were compared.
        recomputed = recompute(study, context.decision.findings, look).summary
    facts = StudyFacts(study, context.registration)
    # What docs/metrics.md does not define, or what has another name here, is defined here.
    defined = paper or study.trainer == "command" or bool(study.labels.metrics)
    defined = defined or any(of_all_tasks(claim.metric) not in METRICS for claim in study.claims.values())
    made = blocks(
        "methods",
        study=study,
        paper=paper,
        training=f"{macro('training', facts)} {_made(context)}".strip(),
        measured=say("measured" if defined else "read_at", study),
        defined=defined,
        sample=_sample(context, paper=paper),
        test=say("about_test", study),
        inconclusive=any(finding.outcome == "inconclusive" for finding in context.decision.findings),
        constants=any(claim.constant is not None for claim in study.claims.values()),
        items=study.analysis.estimand if study.analysis.test == "items" else "",
        units=sampling_units(study),
        strata=study.analysis.test == "items" and tasks_are_strata(study),
        # What a sentence is for is written only where a claim needs it: directions, margins, equivalence, percent.
        directions=any(claim.kind.supported == "zero" for claim in study.claims.values()),
        margins=any(claim.kind.has_bounds for claim in study.claims.values())
        or any(hypothesis.smallest > 0.0 for hypothesis in study.hypotheses.values()),
        equivalences=any(claim.kind.supported == "margins" for claim in study.claims.values()),
        percent=bool(percents),
        percent_of_means=any(estimates_means(study, name) for name in percents),
        percent_of=TESTS[study.analysis.test].centre,
        percent_of_ratios=not TESTS[study.analysis.test].centre
        and not all(estimates_means(study, name) for name in percents),
        also=words.listed(TESTS[test].name for test in study.analysis.also),
        alpha=alpha,
        twice=words.compact(2 * study.analysis.alpha),
        correct=study.analysis.correct,
        correction=say("corrected", study, study.analysis.correct),
        gate=say("gatekeeping", study),
        roles=words.listed(study.families),
        families="; ".join(
            f"{role}, {words.counted(len(names), 'hypothesis', 'hypotheses')}" for role, names in study.families.items()
        ),
        several=any(len(names) > 1 for names in study.families.values()),
        level=words.level(1 - study.analysis.alpha),
        bound_level=words.level(1 - 2 * study.analysis.alpha),
        look=look,
        looks=words.listed(map(str, study.stopping.looks)) if isinstance(study.stopping, Looks) else "",
        stops_as_identical=isinstance(study.stopping, Looks) and study.stopping.if_identical == "stop",
        spending=SPENDING[study.stopping.spending] if isinstance(study.stopping, Looks) else "",
        checks=len(checks),
        held=sum(check.passed for check in checks),
        recomputed=recomputed,
    )
    return Section("methods", "Methods", made)


def _made(context: ReportContext) -> str:
    """Who made the runs; of a user's own trainer the sentences of its command say it, unless runs were imported."""
    if any(check.name == IMPORTED for check in context.decision.checks):
        return phrase("methods_parts.imported")
    return phrase("methods_parts.built_in") if context.study.trainer == "gpt" else ""


def _sample(context: ReportContext, *, paper: bool) -> str:
    """Pairs or runs. For a paper also how settings were chosen, and that no run began before the registration."""
    study, look = context.study, context.decision.look
    promised = [say("tuning", study), say("starting", study)] if paper else []
    if not study.paired:
        # The report's own section on arms says this.
        return " ".join(filter(None, [say("sample", study), say("pairing", study), *promised])) if paper else ""
    # A study that stopped early has fewer seeds than it planned: both numbers are stated.
    early = look.n_seeds if look is not None and not look.last else None
    drawn = counted_as(study, phrase("methods_parts.pairs", len(study.arms), len(study.seeds), early, paper))
    return " ".join(filter(None, [drawn, _shared(context, paper=paper), *promised]))


def _shared(context: ReportContext, *, paper: bool) -> str:
    """What the runs of one seed share, as far as the checks of this decision show it; in a report, which has a section
    on pairs, only what does not hold or was not checked."""
    checks = {check.name: check for check in context.decision.checks}
    compared = [checks[name] for name in MATCHING if name in checks]
    held = [check for check in compared if check.passed]
    failed = [check for check in compared if not check.passed and check.severity == "inadmissible"]
    of_all = {checks[for_all].found: None for name in MATCHING if (for_all := f"{name}, for all variants") in checks}
    imported = checks.get(IMPORTED)
    # What a user's trainer states was compared, and the rest was not: `pairs are matched` says so of the rest.
    stated = checks.get(STATED)
    return phrase(
        "methods_parts.shared",
        held=held if paper else [],
        failed=failed,
        of_all=[*of_all],
        stated=stated.found if stated is not None and stated.passed else "",
        unchecked=len(context.study.arms) > 1 and not (held or failed),
        imported=imported is not None and not imported.passed,
    )
