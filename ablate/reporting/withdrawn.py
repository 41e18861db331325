"""The pages of a decision whose sealed records are gone: kept as they were written, under a notice that says so.

A notice follows from the registration and the ledger alone, so that it is the same whichever version writes it. It is
put above the page and can be taken off again: what lies below is, byte for byte, the page whose hash the notice names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markupsafe import Markup, escape

from prereg import text as words
from prereg.escape import markdown_line, visible
from prereg.registry.ledger_entry import Entry
from prereg.registry.lineage import lineage_of
from prereg.registry.looks import TOOK_PLACE, recorded_afterwards
from prereg.registry.registration import Registration

BEGIN, END = "<!-- ablate notice: begin -->", "<!-- ablate notice: end -->"
NARROW_UNTIL: Final = "2026-11-22"
"""The last day on which a report was written with intervals of standardised effects that are too narrow."""
NARROW: Final = (
    f"Standardised-effect intervals (g_z) in reports written up to {NARROW_UNTIL} are too narrow (coverage .69 to .90 "
    "of a nominal .95)."
)
_CSS: Final = (Path(__file__).parent / "templates" / "notice.css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Notice:
    """The notice above a page that was kept."""

    label: str
    headline: str
    lines: tuple[str, ...]
    grave: bool
    """Whether what came after the decision leaves no verdict."""


def notice_of(
    registration: Registration,
    decision: Entry,
    entries: Iterable[Entry],
    *,
    page_sha256: str,
    written: Entry | None,
    absent: int,
    sealed: int,
    corrected: str = "",
) -> Notice:
    """The notice above one page of a decision, from the ledger's entries of its study.

    `written` is the `reported` entry that holds the page's hash, if one does. `absent` of the `sealed` runs are not on
    this disk. `corrected` names the file of published figures where it is no longer the one that the page shows.
    """
    mine = [entry for entry in entries if entry.study == decision.study]
    later = [entry for entry in mine if entry.index > decision.index]
    looks, at = recorded_afterwards(later), (decision if written is None else written).at
    lines = [_look(look) for look in looks]
    if looks:
        lines.append("Where this report says that every check held or that nobody looked, this was not yet known.")
    lines += [
        f"The study was amended after this decision (ledger entry {entry.index}, {words.moment(entry.at)}): what is "
        f"below was judged as registered in {words.short(decision.registration)}."
        for entry in later
        if entry.event == "amended"
    ]
    lines += [_rewording(entry) for entry in later if entry.event == "reworded"]
    if corrected:
        lines.append(
            f"What this page says of published figures was corrected later in {corrected}: where the two differ, the "
            "file is right."
        )
    which = f"its {sealed} runs" if absent == sealed else f"{absent} of its {sealed} runs"
    lines.append(
        f"Decided {words.moment(decision.at)}, written {words.moment(at)} by an older version of ablate "
        f"({_versions(registration, decision, mine)}). The sealed records of {which} are no longer here, so later "
        "versions could not judge the study again."
    )
    if at[: len(NARROW_UNTIL)] <= NARROW_UNTIL:
        lines.append(NARROW)
    held = f"ledger entry {written.index}" if written is not None else "the ledger kept no hash of it at that time"
    lines.append(
        f"Without this notice the page has the bytes it was written with: sha256 {words.short(page_sha256)}, {held}."
    )
    if looks:
        headline = "An early look was recorded after the decision: by the registered rules the verdict is inadmissible."
        return Notice("Inadmissible", headline, tuple(lines), grave=True)
    headline = "Written by an older version of ablate; the sealed records are gone."
    return Notice("Not judged again", headline, tuple(lines), grave=False)


def _look(look: Entry) -> str:
    body = look.body
    return (
        f"The look took place {words.moment(str(body[TOOK_PLACE]))}, when {body.get('ended')} of {body.get('planned')} "
        f"planned runs had ended, and was recorded {words.moment(look.at)} (ledger entry {look.index}). Reason given: "
        f"{str(body.get('reason')).rstrip('.')}."
    )


def _rewording(entry: Entry) -> str:
    now = entry.body["words"]
    assert isinstance(now, dict), now
    return (
        f"Reworded {words.moment(entry.at)} to '{now['title']}'. Reason given: {str(entry.body['reason']).rstrip('.')}."
    )


def _versions(registration: Registration, decision: Entry, entries: Sequence[Entry]) -> str:
    """What lock and ledger hold of the tool."""
    shared = lineage_of(entries, decision.registration)
    code = {str(e.body["code"]) for e in entries if e.registration in shared and "code" in e.body}
    found = []
    if registration.sha256 == decision.registration and "ablate" in registration.tool:
        found.append(f"registered with ablate {registration.tool['ablate']}")
    if code:
        found.append(f"runs made by code {words.listed(words.short(one) for one in sorted(code))}")
    return ", ".join(found) or "neither lock nor ledger names which"


def _html(text: str) -> Markup:
    return escape(visible(text, lines=True))


def put_on(page: str, data: bytes, notice: Notice) -> bytes:
    """The bytes of report.md or report.html with a notice at the top."""
    text = data.decode()
    if page.endswith(".md"):
        lines = [f"> **{markdown_line(notice.label.upper())}: {markdown_line(notice.headline)}**", ">"]
        lines += [f"> - {markdown_line(line)}" for line in notice.lines]
        return "\n".join([BEGIN, *lines, "", END, "", text]).encode()
    rows = "\n".join(f"<li>{_html(line)}</li>" for line in notice.lines)
    aside = (
        f'<aside class="{"kept grave" if notice.grave else "kept"}" aria-label="Notice">\n'
        f'<p class="label">{_html(notice.label)}</p>\n<p class="headline">{_html(notice.headline)}</p>\n'
        f"<ul>\n{rows}\n</ul>\n</aside>"
    )
    for place, part, before in (("</head>", f"<style>\n{_CSS}</style>", True), ("<body>\n", aside, False)):
        added = f"{BEGIN}\n{part}\n{END}\n"
        assert place in text, (page, place)
        text = text.replace(place, added + place if before else place + added, 1)
    return text.encode()


def taken_off(page: str, data: bytes) -> bytes:
    """The bytes of a page without its notice; of a page without one, the same bytes."""
    text, end = data.decode(), END + ("\n\n" if page.endswith(".md") else "\n")
    for _ in range(1 if page.endswith(".md") else 2):
        before, begin, rest = text.partition(BEGIN)
        _, ended, after = rest.partition(end)
        if not (begin and ended):
            break
        text = before + after
    return text.encode()


def known_pages(decision: Entry, entries: Iterable[Entry]) -> dict[str, dict[str, Entry | None]]:
    """page -> sha256 -> the first `reported` entry that holds it, of a decision's pages without a notice.

    None in place of an entry where a page was kept that no entry had held before.
    """
    found: dict[str, dict[str, Entry | None]] = {}
    for entry in entries:
        if entry.event != "reported" or entry.body.get("decision") != decision.sha256:
            continue
        kept = entry.body.get("kept")
        for page, sha256 in (kept if isinstance(kept, dict) else entry.body).items():
            if page.startswith("report."):
                found.setdefault(page, {}).setdefault(str(sha256), None if isinstance(kept, dict) else entry)
    return found
