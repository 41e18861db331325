"""An amendment on the terminal: what it changed, and what follows from when it was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from ablate.reporting import text
from ablate.reporting.screen import say

if TYPE_CHECKING:
    from prereg.registry.ledger import Entry
    from prereg.study.spec import Study


def print_amendment(console: Console, study: Study, registered: Sequence[Entry], entry: Entry) -> None:
    """What an amendment changed, what was known by then, and what it made exploratory."""
    from prereg.registry.amendments import amendments_of, touched

    amendment = amendments_of([entry])[0]
    say(
        console,
        f"amended {study.study}: {amendment.previous[:8]} is now {amendment.registration[:8]}; "
        f"evidence by then: {amendment.evidence}",
    )
    for difference in amendment.differences:
        say(console, f"  {difference.field}: {text.value(difference.registered)} -> {text.value(difference.now)}")
    found = touched(study, [amendment])
    if found.hypotheses:
        say(console, f"exploratory from now on: {text.listed(found.hypotheses)}; no verdict rests on them")
    if found.arms:
        say(console, f"no verdict rests on {text.listed(f'stable({arm})' for arm in found.arms)} either")
    if found.verdict:
        say(console, "no verdict will be given: a rule chosen after evidence decides nothing")
    if found.hypotheses or found.arms or found.verdict:
        say(console, "to decide all the same: copy the study under another name, with seeds nobody has seen")
    say(console, "registrations: " + " -> ".join(one.registration[:8] for one in registered))
