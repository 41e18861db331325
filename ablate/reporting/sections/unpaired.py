"""What only the report of a study without pairs has: the runs arm by arm, and what pairing would have given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ablate.judge.verdict import Estimate, Finding
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Table, columns
from ablate.reporting.estimates import NONE
from prereg import text as words


def runs_in_words(sizes: Iterable[int]) -> str:
    """Numbers of runs by arm, left side first: `6 + 5`."""
    return " + ".join(map(str, sizes))


def runs_table(findings: Iterable[Finding]) -> Table:
    """Every run that entered a test, arm by arm."""
    rows = []
    for finding in findings:
        decimals = estimates.finding_decimals(finding)
        for sample in finding.samples:
            rows += [
                (finding.label, sample.arm, str(seed), words.number(value, decimals), finding.unit)
                for seed, value in zip(sample.seeds, sample.values, strict=True)
            ]
    return Table(
        "The runs as numbers: none is paired with another.",
        columns("Hypothesis", "Arm", "Seed:", "Value:", "Unit"),
        tuple(rows),
        folded=True,
    )


def pairing_table(findings: Iterable[Finding]) -> Table | None:
    """What pairing by seed would have given where arms share seeds; none where they share none."""
    rows = []
    for finding in findings:
        shared, decimals = finding.shared, estimates.finding_decimals(finding) + 1
        if shared is not None:
            rows.append(
                (
                    finding.label,
                    str(shared.n),
                    words.number(shared.se_unpaired, decimals),
                    words.number(shared.se_paired, decimals),
                    NONE if shared.correlation is None else words.number(shared.correlation, 2),
                )
            )
    if not rows:
        return None
    return Table(
        "What pairing would have given: description over the seeds that all arms of a claim share. It decides nothing.",
        columns("Hypothesis", "Shared seeds:", "Standard error without pairs:", "With pairs:", "Correlation:"),
        tuple(rows),
        note="Both standard errors are of the difference over these seeds alone. A positive correlation makes the "
        "test without pairs more cautious than it need be; a negative one would make it err more often than alpha.",
    )


def any_unpaired(estimates_: Iterable[Estimate | None]) -> bool:
    """Whether any of these tests has no pairs."""
    return any(one is not None and one.sizes for one in estimates_)


def runs_tables(findings: Sequence[Finding]) -> list[Block]:
    """Both tables of a study without pairs; nothing of another."""
    if not any(finding.samples for finding in findings):
        return []
    pairing = pairing_table(findings)
    return [*([] if pairing is None else [pairing]), runs_table(findings)]


def about_pairing(findings: Sequence[Finding]) -> str:
    """What a standard error takes for granted of the runs of one seed."""
    if any_unpaired(finding.estimate for finding in findings):
        return "The runs of different arms are taken to be independent."
    if not any(estimates.claim_of(finding).is_paired for finding in findings):
        return ""
    return "Pairing helps in proportion to the correlation of the two sides over seeds."


def what_n_counts(findings: Sequence[Finding]) -> str:
    """What n is."""
    if any_unpaired(finding.estimate for finding in findings):
        return "runs of each arm of the claim, without pairs"
    paired = any(estimates.claim_of(finding).is_paired for finding in findings)
    return "pairs of runs that share a seed" if paired else "seeds"
