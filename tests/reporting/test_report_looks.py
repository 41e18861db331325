"""Of looks at outcomes the plan is shown as the plan, and next to it what the ledger shows, by its entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from evidence_factory import make_evidence, one_claim
from ledger_samples import entry
from prereg_samples import AT
from pydantic import JsonValue
from report_samples import told

from ablate.judge.decide import decide
from ablate.reporting import html, markdown
from ablate.reporting.blocks import Paragraph
from ablate.reporting.context import ReportContext
from ablate.reporting.document import trust_line
from ablate.reporting.sections.design import looks_shown
from ablate.reporting.sections.findings import findings_section
from prereg.registry.looks import Look

LOOKS = {"stopping": {"looks": [3, 5], "spending": "obrien_fleming"}}


def with_ledger(
    account: ReportContext, *events: str, sealed: int | None = None, first: str = "sealed"
) -> ReportContext:
    """Seals of the first so many planned runs, with the given events before the last of them; `event@earlier` is one
    of another registration, and what stands after `|` comes at the end."""
    runs = account.evidence.planned[: len(account.evidence.planned) if sealed is None else sealed]
    before = [event for event in events if not event.startswith("|")]
    after = [event.removeprefix("|") for event in events if event.startswith("|")]
    seals = [(first if at == 0 else "sealed", cell) for at, cell in enumerate(runs)]
    rows = [("registered", None), ("started", None), *seals[:-1], *((one, None) for one in before), *seals[-1:]]
    rows += [(one, None) for one in after]
    entries = []
    for index, (event, cell) in enumerate(rows):
        name, _, whose = event.partition("@")
        entries.append(
            entry(
                name,
                {} if cell is None else {"variant": cell[0], "seed": cell[1]},
                index=index,
                at=AT,
                study=account.study.study,
                registration="e" * 64 if whose else account.registration.sha256,
            )
        )
    return replace(account, evidence=replace(account.evidence, ledger=tuple(entries)))


@pytest.mark.slow
def test_the_plan_is_called_a_plan_and_the_observation_stands_beside_it() -> None:
    account = with_ledger(told(), "|decided")
    for page in (markdown.render_markdown(account), html.render_html(account)):
        assert "The number of seeds was fixed." in page
        assert "Looks, as observed" in page and "none in the ledger before the last planned run was sealed" in page
        assert "No check can show whether somebody read the records by hand" in page


def damaged() -> ReportContext:
    account = with_ledger(told(), "|decided")
    return replace(account, evidence=replace(account.evidence, ledger_faults=("entry 3: the chain does not hold",)))


BEFORE = "1 entry in the ledger before the last planned run was sealed"
SHOWN: list[tuple[Callable[[], ReportContext], list[str], list[str]]] = [
    # the account, what is said of its looks, what is not
    (lambda: with_ledger(told(), "|decided", "|peeked"),
     ["none in the ledger before the last planned run was sealed (entry 16, "], ["entry 17"]),
    *((lambda event=event: with_ledger(told(), event, "|decided"), [BEFORE, f"entry 16 ({event} "], ["earlier regis"])
      for event in ("peeked", "looked", "decided")),
    (lambda: with_ledger(told(), "decided@earlier", "peeked"), ["2 entries", "under an earlier registration"], []),
    (lambda: with_ledger(told("incomplete"), sealed=13),
     ["so far, with 13 of 15 planned runs sealed", "none in the ledger"], []),
    (lambda: with_ledger(told(), sealed=0), ["unknown: the ledger has sealed no planned run"], []),
    (damaged, ["unknown: the ledger is damaged"], ["none in the ledger"]),
    (lambda: with_ledger(told(), first="imported"),
     ["1 run came from elsewhere, and of looks there this ledger shows nothing"], []),
    (lambda: with_ledger(told("incomplete", **LOOKS)), ["0 planned looks before the decision; no other"], []),
    (lambda: with_ledger(told("incomplete", **LOOKS), "looked", "peeked", "|looked"),
     ["2 planned looks before the decision: entry 16 (looked", "entry 19 (looked", "1 other: entry 17 (peeked"], []),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("account", "says", "never"), SHOWN)
def test_what_the_ledger_shows_of_looks_is_said_by_its_entries(
    account: Callable[[], ReportContext], says: list[str], never: list[str]
) -> None:
    text = looks_shown(account())
    assert not [needed for needed in says if needed not in text], text
    assert not [hidden for hidden in never if hidden in text], text


def going_on(account: ReportContext, *more: tuple[str, dict[str, JsonValue]]) -> ReportContext:
    """The same, with further entries of this registration."""
    entries = list(account.evidence.ledger)
    for event, body in more:
        last = entries[-1]
        entries.append(entry(event, body, index=len(entries), study=last.study, registration=last.registration, at=AT))
    return replace(account, evidence=replace(account.evidence, ledger=tuple(entries)))


def test_what_the_decision_wrote_and_what_came_after_it_changes_nothing_when_a_report_is_written_again() -> None:
    fixed = with_ledger(told(), sealed=13)
    decided: tuple[str, dict[str, JsonValue]] = ("decided", {"evidence": fixed.decision.evidence})
    assert looks_shown(going_on(fixed, decided, ("reported", {}), ("peeked", {}))) == looks_shown(fixed)
    other: tuple[str, dict[str, JsonValue]] = ("decided", {"evidence": "f" * 64})
    assert "1 entry in the ledger" in looks_shown(going_on(fixed, other)), "of other evidence"
    account = with_ledger(told("incomplete", **LOOKS), "looked")
    look = Look(number=2, of=2, n_seeds=5)
    account = replace(account, decision=account.decision.model_copy(update={"look": look}))
    last: tuple[str, dict[str, JsonValue]] = ("looked", {"look": 2, "final": True})
    assert "1 planned look before the decision: entry 16" in looks_shown(account)
    assert looks_shown(going_on(account, last, decided, ("peeked", {}))) == looks_shown(account)


def test_a_look_recorded_afterwards_is_named_wherever_its_entry_lies() -> None:
    past: tuple[str, dict[str, JsonValue]] = ("peeked", {"took_place": "2026-05-01T10:00:00+00:00"})
    fixed = with_ledger(told())
    decided: tuple[str, dict[str, JsonValue]] = ("decided", {"evidence": fixed.decision.evidence})
    said = looks_shown(going_on(fixed, decided, past))
    assert BEFORE in said
    assert "entry 18 (peeked 2026-05-01 10:00 UTC, recorded afterwards, " in said
    sequence = with_ledger(told("incomplete", **LOOKS), "looked")
    assert "1 other: entry 18 (peeked 2026-05-01" in looks_shown(going_on(sequence, past))


@pytest.mark.slow
def test_a_report_says_of_an_early_stop_alone_that_the_mean_then_errs() -> None:
    stopping = {"looks": [3, 5, 8], "spending": "pocock"}
    rule = [{"verdict": "changed", "when": "supported(h)"}, {"verdict": "inconclusive"}]
    study = one_claim("layernorm changes val/loss", 0.0, seeds=8, stopping=stopping, decision=rule)
    finals = {("none", seed): 2.0 + 0.001 * seed for seed in study.seeds}
    finals |= {("layernorm", s): 1.92 + 0.001 * s + 0.004 * (-1) ** s for s in study.seeds}
    left_out = tuple(cell for cell in study.cells if cell[1] > 3)
    registration, evidence = make_evidence(study, finals={"val/loss": finals}, left_out=left_out)
    decided = decide(registration, evidence)
    assert decided.verdict == "changed" and decided.look == Look(number=1, of=3, n_seeds=3)
    assert trust_line(decided, study).startswith("Not recomputed: no library computes this test. ")
    assert "recomputed" not in trust_line(decided, study).split(". ", 1)[1]
    for look, early in ((decided.look, True), (Look(number=3, of=3, n_seeds=8), False)):
        account = ReportContext(
            decided.model_copy(update={"look": look}), registration, evidence, "0" * 64, "2026-05-04"
        )
        said = [one.text for one in findings_section(account).blocks if isinstance(one, Paragraph)]
        assert any("errs towards what stopped it" in text for text in said) is early
