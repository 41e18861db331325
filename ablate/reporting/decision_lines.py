"""A decision on the terminal. Words carry every meaning; colour only repeats it, and only on a terminal.

The pages behind a decision load charts and statistics, so they are imported only where one is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.box import HEAVY
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from ablate.judge.verdict import Decision, Finding
from ablate.reporting import text as words
from ablate.reporting.screen import fit, new_table, put_row, say, show_table
from prereg.registry.ledger import Entry

STATUS_STYLE = {"decided": "blue", "inconclusive": "yellow", "inadmissible": "red", "continue": "yellow"}
OUTCOME_STYLE = {"supported": "blue", "refuted": "yellow", "inconclusive": "dim"}


def print_decision(
    console: Console,
    decision: Decision,
    *,
    report_path: Path | None,
    ledger_head: str,
    earlier: Sequence[Entry] = (),
) -> None:
    """The verdict, why, every hypothesis in a line, what did not hold, earlier decisions, and where to read on."""
    _print_banner(console, decision)
    if decision.findings:
        if decision.status == "inadmissible":
            say(console, "These findings are shown for the record. They are not to be used.", style="bold")
        _print_findings(console, decision.findings)
    elif decision.status == "inadmissible":
        early = decision.look is not None and not decision.look.last
        why = "before a verdict" if early else "while runs are missing or broken, or the ledger cannot log the look"
        say(console, f"No contrast is shown {why}.")
    unstable = [arm.variant for arm in decision.stability if not arm.stable] if decision.findings else []
    if unstable:
        quoted = words.listed(f"'{arm}'" for arm in unstable)
        say(console, f"Unstable by the registered rule: {quoted}")
    if earlier:
        from ablate.reporting.sections.deviations import decisions_in_words

        say(console, f"Earlier decisions of this registration: {decisions_in_words(earlier)}")
    say(console, f"Report: {report_path}" if report_path is not None else "No report was written.", wrap=False)
    say(console, f"Ledger head: {ledger_head}", wrap=False)


def _print_banner(console: Console, decision: Decision) -> None:
    from ablate.reporting.document import banner_of

    banner = banner_of(decision)
    headline = f"{banner.word.upper()}: {banner.headline}"
    style = STATUS_STYLE[decision.status]
    reasons = [f"- {reason}" for reason in banner.reasons]
    # What makes a complete study inadmissible is all in the reasons; `because` would say it twice.
    why = [] if decision.status == "inadmissible" and decision.findings and reasons else [banner.because]
    body = [*reasons, *why] if decision.status == "inadmissible" else [*why, *reasons]
    if not console.is_terminal:
        for line in (headline, decision.title, *body):
            say(console, line)
        return
    head = [fit(console, headline, style=f"bold {style}"), fit(console, decision.title, style="dim")]
    text = Text("\n").join([*head, *(fit(console, line) for line in body)])
    console.print(Panel(text, box=HEAVY, border_style=style, padding=(0, 1)))


def _print_findings(console: Console, findings: Sequence[Finding]) -> None:
    from ablate.reporting.sections.findings import test_of

    table = new_table(
        console,
        ("Outcome", "left"),
        ("Claim", "left"),
        ("Difference [interval]", "right"),
        ("p", "right"),
        ("n", "right"),
    )
    for finding in findings:
        put_row(
            console,
            table,
            finding.outcome,
            finding.claim + (" (exploratory)" if finding.amended else ""),
            _difference(finding),
            _p(finding),
            _n(finding),
            style=OUTCOME_STYLE[finding.outcome],
        )
    show_table(console, table)
    for finding in findings:
        say(console, _in_words(finding))
    if any(finding.amended for finding in findings):
        say(console, "Exploratory: touched by an amendment after evidence; no verdict rests on it.", style="bold")
    levels = [
        [
            words.level(bounds.level)
            for finding in findings
            if finding.estimate
            and (bounds := words.shown_interval(finding))
            and words.rests_on_margin(finding) is margin
        ]
        for margin in (False, True)
    ]
    intervals = [
        f"{words.listed(dict.fromkeys(found))} {what}"
        for found, what in zip(levels, ("against zero", "(1 − 2 alpha) against a margin, on one side"), strict=True)
        if found
    ]
    corrected = words.is_corrected(findings)
    layouts = [finding.estimate.items for finding in findings if finding.estimate and finding.estimate.items]
    tests = (one.estimate for one in findings if one.estimate)
    methods = words.listed(dict.fromkeys(test_of(one) if one.items else one.method for one in tests))
    units = words.listed(dict.fromkeys(layout.unit for layout in layouts), last="or")
    say(
        console,
        f"n: pairs of seeds{' x ' + units if units else ''}. Test: {methods or 'none'}. Intervals: "
        f"{'over all claims of a role, ' * corrected}{'; '.join(intervals) or 'none'}. p: "
        f"{'corrected over a role, ' * corrected}of refutation where refuted, else of support.",
        style="dim",
    )


def _difference(finding: Finding) -> str:
    if finding.estimate is None:
        return "no estimate"
    decimals = words.finding_decimals(finding)
    bounds = words.shown_interval(finding)
    interval = words.interval(bounds, decimals) if bounds is not None else "[none]"
    return f"{words.signed(finding.estimate.difference, decimals)} {interval}"


def _n(finding: Finding) -> str:
    items = None if finding.estimate is None else finding.estimate.items
    return str(finding.n) if items is None else f"{finding.n} x {items.n_units:,}"


def _p(finding: Finding) -> str:
    p = finding.p_refute_adjusted if finding.outcome == "refuted" else finding.p_support_adjusted
    return words.p_cell(p, words.levels_of(finding))


def _in_words(finding: Finding) -> str:
    """`no_harm: supported - b does not worsen val/accuracy by 0.01 share or more; zone: less than the margin`."""
    from ablate.judge.wording import same_in_every_pair

    said = f"{finding.label}: {finding.outcome} - {words.meaning_of(finding)}"
    if finding.margin is not None:
        said += f"; zone: {words.zone_of(finding)}"
    same = same_in_every_pair([pair.left for pair in finding.pairs], [pair.right for pair in finding.pairs])
    return f"{said}. Note: {same}" if same else said
