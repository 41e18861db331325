"""What the terminal says. Words carry every meaning; colour only repeats it, and only on a terminal.

Nothing a study brings is read as markup. What only some verbs need is imported where they need it: `ablate status`
must answer at once, and the pages behind a decision load charts and statistics. On a stream that cannot write `−`,
plain ASCII is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import HEAVY
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from ablate.judge.verdict import Decision, Finding
from ablate.report import words
from ablate.report.screen import fit as _fit
from ablate.report.screen import new_table as _table
from ablate.report.screen import put_row as _row
from ablate.report.screen import say as _say
from ablate.report.screen import show_table as _show
from prereg.command import ScriptPin, command_line, filled
from prereg.divergence import said_unasked
from prereg.harness_promises import is_folder

if TYPE_CHECKING:
    from ablate.bundle.check import BundleCheck
    from ablate.judge.design import Design
    from ablate.judge.glimpse import ClaimSoFar, Glimpse
    from ablate.status import StudyHealth
    from ablate.verify import Verification
    from prereg.ledger import Entry
    from prereg.spec import Study

STATUS_STYLE = {"decided": "blue", "inconclusive": "yellow", "inadmissible": "red", "continue": "yellow"}
OUTCOME_STYLE = {"supported": "blue", "refuted": "yellow", "inconclusive": "dim"}


def print_decision(console: Console, decision: Decision, *, report_path: Path | None, ledger_head: str) -> None:
    """The verdict, why, every hypothesis in a line, what did not hold, and where to read on."""
    _print_banner(console, decision)
    if decision.findings:
        if decision.status == "inadmissible":
            _say(console, "These findings are shown for the record. They are not to be used.", style="bold")
        _print_findings(console, decision.findings)
    elif decision.status == "inadmissible":
        early = decision.look is not None and not decision.look.last
        why = "before a verdict" if early else "while runs are missing or broken, or the ledger cannot log the look"
        _say(console, f"No contrast is shown {why}.")
    unstable = [arm.variant for arm in decision.stability if not arm.stable] if decision.findings else []
    if unstable:
        quoted = words.listed(f"'{arm}'" for arm in unstable)
        _say(console, f"Unstable by the registered rule: {quoted}")
    _say(console, f"Report: {report_path}" if report_path is not None else "No report was written.", wrap=False)
    _say(console, f"Ledger head: {ledger_head}", wrap=False)


def _print_banner(console: Console, decision: Decision) -> None:
    from ablate.report.document import banner_of

    banner = banner_of(decision)
    headline = f"{banner.word.upper()}: {banner.headline}"
    style = STATUS_STYLE[decision.status]
    reasons = [f"- {reason}" for reason in banner.reasons]
    # What makes a complete study inadmissible is all in the reasons; `because` would say it twice.
    why = [] if decision.status == "inadmissible" and decision.findings and reasons else [banner.because]
    body = [*reasons, *why] if decision.status == "inadmissible" else [*why, *reasons]
    if not console.is_terminal:
        for line in (headline, decision.title, *body):
            _say(console, line)
        return
    text = Text.assemble((headline, f"bold {style}"), "\n", (decision.title, "dim"), *[f"\n{line}" for line in body])
    console.print(Panel(_fit(console, text), box=HEAVY, border_style=style, padding=(0, 1)))


def _print_findings(console: Console, findings: Sequence[Finding]) -> None:
    from ablate.report.outcome import test_of

    table = _table(
        console,
        ("Outcome", "left"),
        ("Claim", "left"),
        ("Difference [interval]", "right"),
        ("p", "right"),
        ("n", "right"),
    )
    for finding in findings:
        _row(
            console,
            table,
            finding.outcome,
            finding.claim + (" (exploratory)" if finding.amended else ""),
            _difference(finding),
            _p(finding),
            _n(finding),
            style=OUTCOME_STYLE[finding.outcome],
        )
    _show(console, table)
    if any(finding.amended for finding in findings):
        _say(console, "Exploratory: touched by an amendment after evidence; no verdict rests on it.", style="bold")
    levels = sorted(
        {
            words.level(bounds.level)
            for finding in findings
            if (bounds := finding.simultaneous or (finding.estimate and finding.estimate.interval))
        }
    )
    layouts = [finding.estimate.items for finding in findings if finding.estimate and finding.estimate.items]
    tests = (one.estimate for one in findings if one.estimate)
    methods = words.listed(dict.fromkeys(test_of(one) if one.items else one.method for one in tests))
    units = words.listed(dict.fromkeys(layout.unit for layout in layouts), last="or")
    _say(
        console,
        f"n: pairs of seeds{' x ' + units if units else ''}. Test: {methods or 'none'}. Intervals: simultaneous over "
        "a role, "
        f"{words.listed(levels) or 'none'}. p: corrected over a role; of refutation where refuted, else of "
        "support.",
        style="dim",
    )


def _difference(finding: Finding) -> str:
    if finding.estimate is None:
        return "no estimate"
    decimals = words.finding_decimals(finding)
    bounds = finding.simultaneous or finding.estimate.interval
    interval = words.interval(bounds, decimals) if bounds is not None else "[none]"
    return f"{words.signed(finding.estimate.difference, decimals)} {interval}"


def _n(finding: Finding) -> str:
    items = None if finding.estimate is None else finding.estimate.items
    return str(finding.n) if items is None else f"{finding.n} x {items.n_units:,}"


def _p(finding: Finding) -> str:
    return words.p_cell(finding.p_refute_adjusted if finding.outcome == "refuted" else finding.p_support_adjusted)


def print_amendment(console: Console, study: Study, registered: Sequence[Entry], entry: Entry) -> None:
    """What an amendment changed, what was known by then, and what it made exploratory."""
    from prereg.amendments import amendments_of, touched

    amendment = amendments_of([entry])[0]
    _say(
        console,
        f"amended {study.study}: {amendment.previous[:8]} is now {amendment.registration[:8]}; "
        f"evidence by then: {amendment.evidence}",
    )
    for difference in amendment.differences:
        _say(console, f"  {difference.field}: {words.value(difference.registered)} -> {words.value(difference.now)}")
    found = touched(study, [amendment])
    if found.hypotheses:
        _say(console, f"exploratory from now on: {words.listed(found.hypotheses)}; no verdict rests on them")
    if found.arms:
        _say(console, f"no verdict rests on {words.listed(f'stable({arm})' for arm in found.arms)} either")
    if found.verdict:
        _say(console, "no verdict will be given: a rule chosen after evidence decides nothing")
    if found.hypotheses or found.arms or found.verdict:
        _say(console, "to decide all the same: copy the study under another name, with seeds nobody has seen")
    _say(console, "registrations: " + " -> ".join(one.registration[:8] for one in registered))


def print_admissibility(console: Console) -> None:
    """Every check of the evidence, what it looks at, and what its failure means."""
    from ablate.judge.consequences import rows

    _print_declarations(console, [(check, looks, f"if it fails: {means}", why) for check, looks, means, why in rows()])


def print_touches(console: Console) -> None:
    """What a change of each field touches, when it is made after evidence."""
    from prereg.amendments import TOUCHES

    _print_declarations(console, [(", ".join(row.fields), "", f"touches {row.said}", row.why) for row in TOUCHES])


def _print_declarations(console: Console, rows: Sequence[tuple[str, str, str, str]]) -> None:
    for name, looks, means, why in rows:
        _say(console, name, style="bold")
        for line in (f"looks at: {looks}" if looks else "", f"{means}; {why}"):
            if line:
                console.print(Padding(_fit(console, Text(line)), (0, 0, 0, 2)))


def print_check(console: Console, study: Study, scripts: Sequence[ScriptPin] = ()) -> None:
    """What a study promises: its arms, its claims and its rule as a table; of a command, all that will be started."""
    _say(console, f"{study.study}: {study.title}", style="bold")
    _say(
        console,
        f"{words.counted(len(study.arms), 'arm')} x {words.counted(len(study.seeds), 'seed')} "
        f"({words.ranged(study.seeds)}) = {words.counted(len(study.arms) * len(study.seeds), 'run')}; "
        f"baseline {study.baseline}; {study.analysis.test}, alpha {words.compact(study.analysis.alpha)}, "
        f"correction {study.analysis.correct}",
    )
    if study.trainer == "command":
        _command(console, study, scripts)
    arms = _table(console, ("Arm", "left"), ("Changes", "left"))
    for arm in study.arms.values():
        changes = ", ".join(f"{field} = {value}" for field, value in arm.overrides.items())
        _row(console, arms, arm.name, changes or "nothing")
    _show(console, arms)
    claims = _table(console, ("Hypothesis", "left"), ("Claim", "left"), ("Smallest", "right"), ("Role", "left"))
    for name, hypothesis in study.hypotheses.items():
        unit = words.unit_of(study.claims[name].metric, hypothesis.scale, study.own_units)
        _row(
            console,
            claims,
            name,
            hypothesis.claim,
            f"{words.compact(hypothesis.smallest)} {unit}".strip(),
            hypothesis.role,
        )
    _show(console, claims)
    if study.measure.harness is not None:
        asked = study.measure.harness
        shots = words.listed(str(n) for n in asked.shots)
        code = "; *.yaml there may bring code, which register and run execute" * is_folder(asked.tasks)
        _say(
            console,
            f"Asked after each run: {asked.tasks}, the first {words.counted(asked.items_per_task, 'item')} of each "
            f"task, examples in the prompt: {shots}{code}.",
        )
    for check in study.checks:
        means = {"inadmissible": "no verdict", "deviation": "a deviation", "note": "a remark"}[check.consequence]
        _say(console, f"Own check {check.name}: {check.entry_point}, executed by decide; if it fails, {means}.")
    for metric in study.measure.own:
        when = "at the last step" if metric.at_end else "at every evaluation"
        limit = f"within {words.compact(metric.limit_s)} s, or the run fails"
        _say(console, f"Own metric {metric.name}: {metric.entry_point}, executed by run {when}, {limit}.")
    rule = _table(console, ("Line", "right"), ("When", "left"), ("Verdict", "left"), ("Settles", "right"))
    for row in study.rule.table():
        _row(console, rule, str(row.line), row.when, row.verdict, f"{row.settles:,} of {row.of:,}")
    _show(console, rule)
    _say(
        console,
        "Settles: combinations of outcomes that the line decides. Every combination has a line, and every "
        "line can decide.",
        style="dim",
    )
    unasked = said_unasked(study)
    if unasked:
        _say(console, f"Note: {unasked}.")


def _command(console: Console, study: Study, scripts: Sequence[ScriptPin]) -> None:
    """Every word and every file of a user's own trainer, before anything of it is started."""
    arm, seed = next(iter(study.arms.values())), study.seeds[0]
    assert isinstance(arm.config, dict), arm.name
    first = filled(study.command, variant=arm.name, seed=seed, config=arm.config, python="python")
    _say(console, "Runs this command, without a shell: " + command_line(study.command), wrap=False)
    _say(console, f"For {arm.name}, seed {seed}: " + command_line(first), wrap=False)
    _say(console, f"Each run in a directory of its own; its metrics are read from {study.metrics.file} there.")
    for pin in scripts:
        _say(console, f"Code, to be pinned: {pin.path}, sha256 {pin.sha256[:12]}", wrap=False)
    if not scripts:
        _say(console, "No file of its code is pinned: no word names a file under the root, and there is no code:")


def print_design(console: Console, design: Design) -> None:
    """What the registered rule can find with these seeds, and how often it errs, by simulation."""
    from ablate.judge.hopeless import obstacle
    from ablate.report.planned import facts_of
    from ablate.report.promise import detectable_of

    cost = "" if design.cost_s is None else f", {words.duration(design.cost_s)} one after another"
    _say(
        console,
        f"{design.study}: {design.test}, alpha {words.compact(design.alpha)}, correction {design.correct}, "
        f"{words.counted(design.n_seeds, 'seed')}, {words.counted(design.n_runs, 'run')}{cost}",
        style="bold",
    )
    table = _table(
        console,
        ("Hypothesis", "left"),
        ("Can end as", "left"),
        ("Detectable", "right"),
        ("Power", "right"),
        ("Seeds", "right"),
    )
    for one in design.hypotheses:
        endings = [
            word
            for word, possible in (("supported", one.can_be_supported), ("refuted", one.can_be_refuted))
            if possible
        ]
        _row(
            console,
            table,
            one.hypothesis,
            " or ".join([*endings, "inconclusive"]),
            detectable_of(one),
            words.NONE if one.power_at_smallest is None else words.share(one.power_at_smallest),
            words.NONE if one.seeds_80 is None else str(one.seeds_80),
        )
    _show(console, table)
    _say(
        console,
        "Detectable: found with power 80% by a paired t, after correction. Power: at the smallest "
        "difference that matters. Seeds: for power 80% there.",
        style="dim",
    )
    for term, text in facts_of(design):
        _say(console, f"{term}: {text}")
    _print_scenarios(console, design)
    _print_power(console, design)
    for verdict in design.unreachable:
        _say(console, f"No data can lead to the verdict '{verdict}'.", style="bold red")
    refused = obstacle(design)
    if refused is not None:
        _say(console, f"Registration will be refused: {refused.found}.", style="bold red")
    if design.remedy:
        _say(console, f"Remedy: {design.remedy}", style="bold")
    for note in design.notes:
        _say(console, f"- {note}")


def _print_scenarios(console: Console, design: Design) -> None:
    if not design.scenarios:
        return
    table = _table(console, ("If the truth is", "left"), ("The study ends as", "left"), ("False", "right"))
    for scenario in design.scenarios:
        ends = (*scenario.verdicts, *((scenario.inadmissible,) if scenario.inadmissible else ()))
        verdicts = ", ".join(f"{one.of} {words.share(one.share)}" for one in ends if one.share > 0.0)
        wrong = [*scenario.false_supported, *scenario.false_refuted]
        _row(console, table, scenario.name, verdicts, words.share(max((one.share for one in wrong), default=0.0)))
    _show(console, table)
    _say(
        console,
        "False: the largest chance, over roles, of any false 'supported' or any false 'refuted'. All of them, with "
        "their simulation errors: ablate design --json.",
        style="dim",
    )


def _print_power(console: Console, design: Design) -> None:
    """The chart, in the characters that the stream can write."""
    from ablate.report.planned import text_chart

    lines = text_chart(design)
    if not lines:
        return
    _say(console, "")
    for line in lines:
        try:
            line.encode(console.encoding)
        except UnicodeEncodeError:
            line = line.translate(str.maketrans("●○◉", "*o@"))  # noqa: PLW2901
        _say(console, line, wrap=False)
    _say(console, "")


def print_status(console: Console, health: StudyHealth) -> None:
    """How far the runs have come: health only, nothing that separates arms."""
    _say(console, f"{health.study}: {health.title}", style="bold")
    if health.registered is None:
        _say(console, "Not registered.")
    else:
        changed = "" if health.unchanged else ", but the study file has changed since"
        _say(console, f"Registered as {words.short(health.registered)}{changed}.")
    counts = Counter(run.state for run in health.runs)
    tally = ", ".join(f"{count} {state}" for state, count in counts.items())
    at_work = " A process is at work." if health.active else ""
    _say(console, f"{words.counted(len(health.runs), 'run')}: {tally}.{at_work}")
    if health.decided is not None:
        _say(console, f"Decided: {health.decided}")
    if health.peeked:
        looks = words.counted(health.peeked, "early look")
        _say(console, f"The ledger holds {looks} at its numbers; every report will say so.")
    if health.next_look is not None:
        _say(console, f"Next: {health.next_look}. The runs of later seeds wait for what it says.")
    table = _table(
        console, ("Run", "left"), ("State", "left"), ("Step", "right"), ("Training loss", "left"), ("Attempts", "right")
    )
    loss = {True: "falling", False: "NOT FALLING", None: ""}
    for run in health.runs:
        if run.state not in ("done", "waiting"):
            _row(
                console,
                table,
                f"{run.variant}, seed {run.seed}",
                run.state,
                f"{run.step:,} of {run.steps:,}",
                loss[run.falling],
                str(run.attempts),
            )
    if table.row_count:
        _show(console, table)
    for run in health.runs:
        if run.error:
            _say(console, f"{run.variant}, seed {run.seed}: {run.error}", wrap=False)
        for breach in run.breaches:
            _say(console, f"{run.variant}, seed {run.seed}, beyond its budget: {breach}", wrap=False)


def print_glimpse(console: Console, seen: Glimpse) -> None:
    """An early look: description by claim, and what it is not."""
    _say(console, f"{seen.study}: {seen.ended} of {words.counted(seen.planned, 'planned run')} ended.", style="bold")
    table = _table(console, ("Claim", "left"), ("By arm: mean (SD, n)", "left"), ("Difference (SD, n)", "right"))
    for claim in seen.claims:
        arms = "; ".join(f"{arm.arm} {arm.mean:.4g} ({_spread(arm.sd)}, {arm.n})" for arm in claim.arms)
        _row(console, table, claim.claim, arms or "no run yet", _difference_so_far(claim))
    _show(console, table)
    if seen.diverged:
        _say(console, f"Diverged, and without a number here: {words.listed(seen.diverged)}")
    _say(
        console,
        "Description only: means over the seeds that have ended, differences paired by seed and left minus right. No "
        "test is made: at an unplanned look its error rate would not be the registered one.",
        style="dim",
    )


def _difference_so_far(claim: ClaimSoFar) -> str:
    if claim.difference is None:
        return claim.note or "no pair yet"
    return f"{words.signed(claim.difference, 4)} {claim.unit} ({_spread(claim.sd)}, {claim.n})"


def _spread(sd: float | None) -> str:
    return words.NONE if sd is None else f"{sd:.2g}"


def print_verification(console: Console, found: Verification) -> None:
    """Every frozen thing that was checked, faults in full, and what its seals are worth."""
    from ablate.report.seals import print_seals

    for item in found.items:
        note = f" ({item.note})" if item.note else ""
        _say(
            console,
            f"{'stands ' if not item.faults else 'CHANGED'}  {item.study}: {item.what}{note}",
            wrap=False,
            style="" if not item.faults else "bold red",
        )
        for fault in item.faults:
            _say(console, f"         - {fault}", wrap=False)
    print_seals(console, found.seals)
    faults = sum(len(item.faults) for item in found.items)
    _say(
        console,
        "Everything stands as it was frozen."
        if found.stands
        else f"{words.counted(faults, 'fault')} found: what was frozen is not what is here.",
        style="bold",
    )
    _say(console, f"Ledger head: {found.head}", wrap=False)


def print_bundle_check(console: Console, found: BundleCheck) -> None:
    """What was checked of a bundle, what is not in it, and what only somebody else's copy of a hash can show."""
    for item in found.items:
        _say(
            console,
            f"{'stands ' if not item.faults else 'CHANGED'}  {item.study}: {item.what}",
            style="" if not item.faults else "bold red",
        )
        for line in (*item.faults, *([item.note] if item.note else [])):
            console.print(Padding(_fit(console, Text(line)), (0, 0, 0, 9), expand=False))
    faults = sum(len(item.faults) for item in found.items)
    _say(
        console,
        "The bundle stands." if found.stands else f"{words.counted(faults, 'fault')} found: the bundle does not stand.",
        style="bold",
    )
    _print_limits(console, found)


def print_bundled(console: Console, path: Path, found: BundleCheck, *, written: bool) -> None:
    """The bundle that was written, or was there already; it has been checked."""
    _say(console, f"{'wrote' if written else 'is there already:'} {path} ({found.size_bytes:,} bytes)", wrap=False)
    _print_limits(console, found)


def _print_limits(console: Console, found: BundleCheck) -> None:
    for one in found.left_out:
        _say(console, f"Not in it: {one.what}: {one.why}.")
    _say(
        console,
        "No check of a bundle can show that it was not made up as a whole. Compare one of these with what somebody "
        "else holds, or look at the seals of its lock:",
    )
    _say(console, f"Bundle sha256: {found.sha256}", wrap=False)
    _say(console, f"Ledger head:   {found.head or 'unknown'}", wrap=False)


def print_corpora(console: Console, rows: Iterable[tuple[str, int, str, object, str]]) -> None:
    """Corpora by name: size, hash, where they are, licence."""
    table = _table(
        console, ("Corpus", "left"), ("Bytes", "right"), ("sha256", "left"), ("Where", "left"), ("Licence", "left")
    )
    for name, size_bytes, sha256, found, licence in rows:
        _row(console, table, name, f"{size_bytes:,}", words.short(sha256), str(found), licence)
    _show(console, table)
