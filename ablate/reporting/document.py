"""Document of a decision: its sections in order (`compose`), and the short one that `ablate decide` prints.

The first screen (verdict in a sentence, forest plot, trust, what to do next) and sections in order: what was
found, then why it can be believed, then what was promised, and hashes last. Renderers take them from here and add no
content of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ablate.judge.audit.runs import PAIRING_LINES
from ablate.judge.decide import WAITING
from ablate.judge.recompute import recompute
from ablate.judge.verdict import Decision, with_deviations
from ablate.reporting.blocks import Block, Facts, Figure, Paragraph, Section
from ablate.reporting.context import ReportContext
from ablate.reporting.forest import forest_figure
from ablate.reporting.headline import headline_of, later_study
from ablate.reporting.sections.audit import (
    checks_section,
    decisions_in_words,
    gravest_first,
    pairs_section,
    runs_section,
)
from ablate.reporting.sections.components import components_section
from ablate.reporting.sections.curves import curves_section, diagnostics_section
from ablate.reporting.sections.findings import findings_section
from ablate.reporting.sections.methods import STATED, methods_section
from ablate.reporting.sections.registration import registration_section
from ablate.reporting.sections.tasks import summary_of_family
from ablate.reporting.sections.tuning import tuning_section
from ablate.reporting.view import FindingView, Shared, views_of
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.documents.claims import capital
from prereg.registry.ledger_entry import DecidedEntry, EarlierClaims
from prereg.registry.registration import Registration
from prereg.study.designs.per_task import by_family
from prereg.study.spec import Study

FOREST = "Differences"


@dataclass(frozen=True)
class Banner:
    """The first thing a reader sees."""

    status: str
    word: str
    headline: str
    """The verdict as registered, or that there is none."""
    reasons: tuple[str, ...]
    """Of what was found, what made this the verdict: with size, interval, n and margin, a sentence each."""
    failed: tuple[str, ...]
    """Checks that forbid a verdict, then deviations, each in one sentence; shown right under the verdict."""


@dataclass(frozen=True)
class Document:
    """A report before it has a format."""

    study: str
    title: str
    banner: Banner
    opening: tuple[Block, ...]
    """What is shown with the verdict on the first screen."""
    sections: tuple[Section, ...]

    @property
    def on_opening(self) -> tuple[Block, ...]:
        """The blocks of the first screen for paper: the legend is the caption of the figure, which has a name."""
        legends = [block for block in self.opening if isinstance(block, Paragraph) and block.tone == "aside"]
        return tuple(
            replace(block, name=FOREST, caption=" ".join(legend.text for legend in legends))
            if isinstance(block, Figure)
            else block
            for block in self.opening
            if block not in legends
        )

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every figure, in the order of the page."""
        blocks = (*self.on_opening, *(block for section in self.sections for block in section.blocks))
        return tuple(block for block in blocks if isinstance(block, Figure))


def compose(context: ReportContext) -> Document:
    """The document of a decision."""
    promised = context.registration.sha256
    # A decision next to another registration would show promises that nobody made.
    assert context.decision.registration == promised, (context.decision.registration, promised)
    # From here on names for people; the ledger, verdict.json and CSV have ids.
    context = replace(context, decision=context.decision.labelled(context.study.labels))
    sections = (
        findings_section(context),
        components_section(context),
        tuning_section(context),
        curves_section(context),
        diagnostics_section(context),
        pairs_section(context),
        checks_section(context),
        registration_section(context),
        methods_section(context),
        runs_section(context),
    )
    banner = banner_of(context.decision, context.registration)
    return Document(
        context.decision.study,
        context.decision.title,
        banner,
        (*opening_blocks(context.decision, context.registration), *_claimed_before(context.claimed_before)),
        tuple(section for section in sections if section is not None),
    )


def banner_of(decision: Decision, registration: Registration) -> Banner:
    """Status, verdict and what it rests on, in words."""
    headline = headline_of(decision, registration)
    # A note forbids nothing and deviates from nothing; it is listed with the checks.
    failed = [check for check in gravest_first(decision.checks) if not check.passed and check.severity != "note"]
    inadmissible, deviates = decision.status == "inadmissible", with_deviations(decision)
    word, verdict = phrase("first_screen.status", decision.status), decision.verdict or headline.verdict
    if deviates and decision.status == "inconclusive":
        # In the line of the verdict: who quotes one quotes the other.
        verdict += f", {deviates}"
    elif deviates:
        word += f" {deviates}"
    return Banner(
        decision.status,
        word,
        phrase("first_screen.without_verdict") if inadmissible else verdict,
        () if inadmissible else tuple(f"{_begun(clause, decision)}." for clause in headline.clauses),
        tuple(
            # A study that waits for runs has no fault: what it waits for is said without the name of a check.
            check.found if not inadmissible and check.name in WAITING else phrase("first_screen.reason", check)
            for check in failed
        ),
    )


def _begun(clause: str, decision: Decision) -> str:
    """A clause as it begins a sentence: the name of an arm keeps its small letter."""
    return capital(clause) if decision.line is None or clause.startswith(("whether ", "this verdict ")) else clause


def decision_document(
    decision: Decision,
    registration: Registration,
    *,
    earlier: Sequence[DecidedEntry] = (),
    claimed_before: EarlierClaims | None = None,
) -> Document:
    """What `ablate decide` shows before it writes the report: the first screen, then every finding in short."""
    decision = decision.labelled(registration.study.labels)
    banner = banner_of(decision, registration)
    blocks = [*_findings(decision, registration)]
    if earlier:
        blocks.append(Paragraph(phrase("first_screen.earlier", decisions_in_words(earlier))))
    blocks += _claimed_before(claimed_before)
    opening = tuple(opening_blocks(decision, registration))
    return Document(decision.study, decision.title, banner, opening, (Section("decision", "", tuple(blocks)),))


def _claimed_before(claims: EarlierClaims | None) -> list[Block]:
    return [] if claims is None else [Paragraph(f"{claims.words}.")]


def _findings(decision: Decision, registration: Registration) -> Iterator[Block]:
    views = views_of(decision.findings, registration.study)
    if not views:
        if decision.status == "inadmissible":
            # Outcomes exist and are kept back; the page says so.
            yield Paragraph(phrase("first_screen.no_contrast", decision.look is not None and not decision.look.last))
        return
    together = Shared(views)
    if decision.status == "inadmissible":
        yield Paragraph(phrase("first_screen.record"), "lead")
        yield forest_figure(views)
        yield Paragraph(phrase("finding.legend", together), "aside")
    else:
        yield Paragraph(decision.because)
    yield Facts(tuple(_summaries(views)))
    if about_p := phrase("finding.about_p", together):
        yield Paragraph(about_p, "aside")
    if any(finding.amended for finding in decision.findings):
        yield Paragraph(phrase("first_screen.exploratory"), "lead")
    unstable = [f"'{registration.study.labels.arm(arm.variant)}'" for arm in decision.stability if not arm.stable]
    if unstable:
        yield Paragraph(phrase("first_screen.unstable", words.listed(unstable)))


def _summaries(views: Sequence[FindingView]) -> Iterator[tuple[str, str]]:
    """What each finding says, and one line for each family per task."""
    for label, members in by_family([view.finding for view in views]).items():
        if len(members) > 1:
            yield phrase("findings_parts.family", label), summary_of_family(members)
        else:
            view = next(view for view in views if view.name == members[0].hypothesis)
            yield f"{view.label}, {view.outcome}", view.short


PROMISED = "pairs are matched"
"""The note on such a trainer: what it does not state is its promise. It never passes."""
TRUST: Mapping[str, tuple[str, ...]] = {
    "registered before any run": (
        "registered before any run",
        "no run began before its registration",
        "every run was made under this registration",
        "no amendment after runs started",
        "no amendment after outcomes were read",
    ),
    "complete": (
        "every planned run is present",
        "no run failed",
        "no run outside the plan",
        "every finished run has every claimed metric",
        "no pair was left out for divergence",
        "no start of a run was lost before its seal",
    ),
    "matched": (
        "every run states what its pair shares",
        "pairs start from the same weights",
        "pairs read the same batches",
        "pairs drew the same dropout",
        "pairs used the same tokenizer",
        STATED,
        PROMISED,
    ),
    "verified": (
        "the ledger and the registration are intact",
        "every seal matches",
        "every sealed run is in the ledger",
        "no sealed run was trained again",
    ),
}
"""Word -> the checks that must have been made, as far as they apply, and passed: else the word is not given."""


def opening_blocks(decision: Decision, registration: Registration) -> Iterator[Block]:
    """Forest, trust, what to do next, and a legend. Findings of inadmissible evidence are not drawn here, where they
    could be taken for a result."""
    study = registration.study
    views = views_of(decision.findings, study)
    if views and decision.status != "inadmissible":
        yield forest_figure(views)
    if views:
        yield Paragraph(trust_line(decision, study), "trust")
        # Advice for a later study, where this one's trainer stated nothing that could be compared.
        passed = {check.name: check.passed for check in decision.checks}
        if passed.get(PROMISED) is False and STATED not in passed:
            yield Paragraph(phrase("first_screen.compare_pairs"), "aside")
            yield Facts(tuple(("", line) for line in PAIRING_LINES))
    if step := later_study(decision, registration):
        yield Paragraph(step)
    if views and decision.status != "inadmissible":
        yield Paragraph(phrase("finding.legend", Shared(views)), "aside")


def trust_line(decision: Decision, study: Study) -> str:
    """`Registered before any run, complete, matched, verified, recomputed.` What did not pass or was not checked comes
    first, and by name."""
    held: list[str] = []
    unchecked: list[str] = []
    failed_by_word: dict[str, list[str]] = {}
    as_stated = as_promised = False
    for word, names in TRUST.items():
        # Checks that do not apply were not made: without dropout there is no check of its masks.
        made = [check for check in decision.checks if check.name in names]
        failed = [check.name for check in made if not check.passed]
        # One arm, or arms without pairs: there is nothing to match, and the word is not given for free.
        if word == "matched" and (len(study.arms) == 1 or not study.paired) and (failed or not made):
            continue
        # What a user's trainer states was compared; the rest stays its promise, and the word says so. One that states
        # nothing has not failed: nothing was compared.
        if failed == [PROMISED] and any(check.name == STATED for check in made):
            as_stated, failed = True, []
        if failed == [PROMISED]:
            as_promised = True
        elif failed:
            failed_by_word[word] = failed
        else:
            (held if made else unchecked).append(word)
    again = recompute(study, decision.findings, decision.look)
    # Not given where every finding is one that the other library cannot compute.
    covered = bool(again.numbers) and len(again.not_covered) < len(decision.findings)
    return phrase(
        "first_screen.trust",
        held,
        as_stated,
        as_promised,
        failed_by_word,
        unchecked,
        # Without findings, as at a look that evidence forbids, there are no numbers to compute again.
        judged=bool(decision.findings),
        equal=all(number.equal for number in again.numbers),
        covered=covered,
        not_covered=again.not_covered,
    )
