"""The part of the report that looks back: plan against outcome, seeds still needed, and the winner's curse."""

from __future__ import annotations

from ablate.judge.design.hindsight import LOW_POWER, Hindsight, look_back
from ablate.judge.verdict import Finding
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table, columns
from ablate.reporting.context import ReportContext
from ablate.reporting.estimates import NONE
from prereg import text as words
from prereg.documents.procedures import after_correction, at_level
from prereg.registry.looks import Look

POST_HOC = (
    "Post hoc: computed after the data and no part of the verdict. Power is at the registered smallest difference that "
    "matters, never at the observed one; only the spread is taken from the data, and from few seeds it is uncertain."
)


def _said_look(look: Look, planned: int) -> str:
    return (
        f"The study ended at {look.words}, of at most {planned}. SD and correlation are those of the pairs it saw. "
        f"Detectable difference and power are those of all {planned} planned seeds judged once, as in the design: a "
        "study with looks has less power than that. It could stop because of what it found, which selects "
        "large estimates; by how much is not said here, nor how many seeds more it would have taken."
    )


def hindsight_section(context: ReportContext) -> Section | None:
    """Achieved against assumed, or nothing while nothing may be shown."""
    if context.withheld:
        return None
    found = look_back(context.registration, context.decision.findings)
    if not found:
        return None
    findings = {finding.hypothesis: finding for finding in context.decision.findings}
    correct = context.study.analysis.correct
    blocks: list[Block] = [Paragraph(POST_HOC, "aside"), _table(found, findings, correct)]
    if context.decision.look is not None:
        blocks.insert(1, Paragraph(_said_look(context.decision.look, len(context.study.seeds)), "aside"))
    paired = [(one, findings[one.hypothesis]) for one in found]
    said = tuple((finding.label, text) for one, finding in paired if (text := _sentence(one, finding, correct)))
    if said:
        blocks.append(Facts(said))
    return Section("hindsight", "Looking back at the plan", tuple(blocks))


def _table(found: tuple[Hindsight, ...], findings: dict[str, Finding], correct: str) -> Table:
    rows = []
    for one in found:
        decimals = estimates.finding_decimals(findings[one.hypothesis]) + 1

        def pair(achieved: float | None, assumed: float | None, places: int) -> str:
            return " / ".join(NONE if one is None else words.number(one, places) for one in (achieved, assumed))

        rows.append(
            (
                findings[one.hypothesis].label,
                pair(one.sd, one.sd_assumed, decimals),
                pair(one.correlation, one.correlation_assumed, 2),
                pair(one.detectable, one.detectable_assumed, decimals),
                NONE if one.power is None else words.share(one.power),
                str(one.n) if one.planned is None else f"{one.n} of {one.planned}",
            )
        )
    return Table(
        "Achieved / assumed.",
        columns(
            "Hypothesis",
            "SD of differences:",
            "Correlation of the sides:",
            "Detectable:",
            "Power at the smallest difference that matters:",
            "n:",
        ),
        tuple(rows),
        note=f"Detectable: found with power 80% by a paired t {after_correction(correct)}. Power: with the "
        "achieved SD. Of a claim by at least D: detectable that far beyond D, and power at 2 D.",
    )


def _sentence(one: Hindsight, finding: Finding, correct: str) -> str:
    # At its own border a claim by at least D is never found: its power is stated at twice that.
    size = finding.smallest * (1.0 if estimates.claim_of(finding).by is None else 2.0)
    smallest = f"{words.compact(size)} {finding.unit}".strip()
    if one.exaggeration is not None and one.wrong_sign is not None and one.power is not None:
        return (
            f"Beware of the winner's curse. If the true difference were the registered {smallest}, this test would "
            f"find it with power {words.share(one.power)} (below {words.share(LOW_POWER)}), and an estimate that it "
            f"does find would on average be {words.number(one.exaggeration, 1)} times too large (type M error), with "
            f"the wrong sign in {words.share(one.wrong_sign)} of cases (type S error). "
            f"SD {words.compact(float(f'{one.sd:.3g}'))}, n = {one.n}, paired t {at_level(correct)} (Gelman "
            "and Carlin 2014)."
        )
    if one.beyond_reach:
        return (
            f"Inconclusive, and at the achieved SD no number of seeds up to 2,000 would give power 80% at {smallest}: "
            "a less noisy measure is needed. Post hoc."
        )
    if one.more_seeds is None or one.power is None:
        return ""
    if one.more_seeds == 0:
        return (
            f"Inconclusive although the power at {smallest} was {words.share(one.power)} at the achieved SD with n = "
            f"{one.n}: more seeds are not what was lacking. Post hoc."
        )
    more = words.counted(one.more_seeds, "more seed")
    return (
        f"Inconclusive. The same rule would need {more} ({one.n + one.more_seeds} in all) for power 80% at {smallest}, "
        f"at the achieved SD and by a paired t {after_correction(correct)}. Post hoc: it plans another study "
        "and must not extend "
        "this one."
    )
