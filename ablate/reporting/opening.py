"""What follows the verdict on the first screen: the forest plot, one line of trust, what to do next, a legend.

`opening_blocks` takes a decision and its registration. A word of trust is given only where its checks were made and
passed; what did not hold comes before all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ablate.judge.recompute import recompute
from ablate.judge.verdict import Decision
from ablate.reporting.blocks import Block, Paragraph
from ablate.reporting.forest import forest_figure, legend
from ablate.reporting.headline import next_step
from prereg import text as words
from prereg.registry.registration import Registration
from prereg.study.spec import Study

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
        "no start of a run was removed before its seal",
    ),
    "matched": (
        "every run states what its pair shares",
        "pairs start from the same weights",
        "pairs read the same batches",
        "pairs drew the same dropout",
        "pairs used the same tokenizer",
        "pairs match in what their trainer says they must",
        "pairs are matched",
    ),
    "verified": (
        "the ledger and the registration are intact",
        "every seal matches",
        "every sealed run is in the ledger",
        "no sealed run was trained again",
    ),
}
"""Word -> the checks that must have been made, as far as they apply, and passed."""


def opening_blocks(decision: Decision, registration: Registration, reasons: Sequence[str]) -> Iterator[Block]:
    """Forest, what did not hold, trust, what to do next, and a legend. Findings of inadmissible evidence are not drawn
    here, where they could be taken for a result."""
    study, findings = registration.study, decision.findings
    if findings and decision.status != "inadmissible":
        yield forest_figure(findings)
        yield from (Paragraph(reason, "trust") for reason in reasons)
    if findings:
        yield Paragraph(trust_line(decision, study), "trust")
    if step := next_step(decision, registration):
        yield Paragraph(step)
    if findings and decision.status != "inadmissible":
        yield Paragraph(legend(findings), "aside")


def trust_line(decision: Decision, study: Study) -> str:
    """`Registered before any run, complete, matched, verified, recomputed.` What did not pass or was not checked comes
    first, and by name."""
    held, unchecked, missing = [], [], []
    for word, names in TRUST.items():
        made = [check for check in decision.checks if check.name in names]
        failed = [check for check in made if not check.passed]
        if made and not failed:
            held.append(word)
        elif word == "matched" and (len(study.arms) == 1 or not study.paired):
            continue
        elif failed:
            missing.append(f"not {word} (failed: {'; '.join(check.name for check in failed)})")
        else:
            unchecked.append(word)
    again = recompute(study, decision.findings, decision.look)
    if any(not one.equal for one in again.numbers):
        missing.append("not recomputed: another library's numbers differ")
    elif not again.numbers:
        missing.append("not recomputed: no library computes this test")
    else:
        held.append("recomputed")
        missing += [f"not recomputed: {words.listed(again.not_covered)}"] if again.not_covered else []
    missing += [f"not checked: {', '.join(unchecked)}"] if unchecked else []
    parts = [f"{part[0].upper()}{part[1:]}." for part in ("; ".join(missing), ", ".join(held)) if part]
    return " ".join(parts)
