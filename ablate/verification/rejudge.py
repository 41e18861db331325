"""The verdict of a bundle or a repository, judged again from its records by the judge here; a bundle's reports too.

Only what was decided is judged: an unfinished study, or one that nobody has decided, shows no contrast here either.
A number that differs has three answers: the evidence has changed, this version judges it differently (where the ledger
says that other code decided), or, by the same code, the file is not what was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ablate.judge.decide import decide
from ablate.judge.interim import view
from ablate.judge.verdict import OWN, Check, Decision, verdict_bytes, with_deviations
from ablate.records.evidence import ITEM_COLUMNS, METRIC_COLUMNS, Evidence
from ablate.records.gather import gather
from ablate.records.parquet import TableError, open_bounded
from ablate.verification.bundle.manifest import Tool, this_tool
from ablate.verification.comparison import Comparison, compare_pages, compare_verdicts
from ablate.verification.result import Item, item
from prereg.errors import EvidenceError, StudyError
from prereg.registry.canon import sha256_bytes
from prereg.registry.ledger_entry import Entry
from prereg.registry.paths import Root
from prereg.registry.registration import Registration, load_registration


def require_same_decision(root: Root, entry: Entry, now: Decision) -> None:
    """Raise `EvidenceError` where verdict.json is not the one of a ledger entry, or states other facts than `now`.

    `now` is the decision judged here, and what is shown afterwards is `now`.
    """
    path = root.report(entry.study) / "verdict.json"
    data = path.read_bytes() if path.is_file() else b""
    registration = load_registration(root, entry.study)
    assert registration is not None, entry.study
    facts: tuple[str, ...] = ("verdict.json is not the file of the decision in the ledger",)
    here = "the evidence on disk does not give the decision in the ledger"
    if sha256_bytes(data) == entry.body["verdict_sha256"]:
        own = tuple(check for check in now.checks if check.name.startswith(OWN))
        then = _as_of(registration, gather(root, registration), entry, own or None)
        facts = compare_verdicts(data, verdict_bytes(then)).facts or _overruled(then, now)
        if by_other_code(entry) and then.evidence == entry.body.get("evidence"):
            here = "this version judges the same evidence differently"
    if facts:
        study = root.study(entry.study)
        raise EvidenceError(
            f"{here}: {facts[0]}",
            required=f"the evidence of the decision taken {entry.at}",
            fix=f"ablate verify {study}, then ablate decide {study}",
        )


def by_other_code(entry: Entry) -> bool:
    """Whether the ledger says that other code than this gave a decision."""
    code = entry.body.get("code")
    return code is not None and code != this_tool().code


_AFTERWARDS = ("decided", "reported", "attested", "reworded")
"""Entries that leave a decision before them as it is."""


def _as_of(registration: Registration, evidence: Evidence, entry: Entry, own: tuple[Check, ...] | None) -> Decision:
    """What the judge here gives with the ledger as it was before a decision."""
    before = tuple(one for one in evidence.ledger if one.index < entry.index)
    return _decide_with(registration, replace(evidence, ledger=before), own)


def _overruled(then: Decision, now: Decision) -> tuple[str, ...]:
    """What entries after a decision have made of it, where that is more than a deviation."""
    if now.status != then.status and (then.status, now.status) != ("decided", "decided_with_deviations"):
        return (f"status is {then.status}, and {now.status} by entries of the ledger since then",)
    if (then.verdict, then.line, then.findings) != (now.verdict, now.line, now.findings):
        return ("its verdict or a finding is another by entries of the ledger since then",)
    return ()


ReportsOf = Callable[[Root, Registration, Entry, Decision, Evidence], Mapping[str, bytes]]
"""Writes the reports of a decision: file name -> bytes. The root holds what a report tells next to the records."""

JUDGED, WRITTEN = "verdict, judged again", "reports, written again"
MOST_ROWS = 20_000_000
FREE_ROWS = 1_000_000
"""Rows that its records may hold however small they are; beyond, one a byte."""


def judged_again(
    root: Root,
    study: str,
    entries: tuple[Entry, ...],
    maker: Tool | None = None,
    reports_of: ReportsOf | None = None,
) -> list[Item]:
    """What the judge here makes of the records under a root, compared with the decision that lies there.

    `maker` is what made a bundle; of a repository nobody says which version decided. `reports_of` writes reports.
    """
    decided = [entry for entry in entries if entry.study == study and entry.event == "decided"]
    if not decided:
        return [item(study, JUDGED, note="not decided yet; nothing is judged, and no contrast is shown")]
    try:
        return _judged_again(root, study, decided[-1], maker, reports_of)
    except StudyError as error:
        return [item(study, JUDGED, f"cannot be judged: {error.found}")]
    except Exception as error:
        # Whatever a stranger's records make the judge stumble over is a fault of theirs until shown otherwise.
        return [item(study, JUDGED, f"cannot be judged: {type(error).__name__}: {str(error)[:200]}")]


def _judged_again(root: Root, study: str, entry: Entry, maker: Tool | None, reports_of: ReportsOf | None) -> list[Item]:
    registration = load_registration(root, study)
    assert registration is not None, study
    if entry.registration != registration.sha256:
        note = f"decided under {entry.registration[:8]} and amended since; the lock it was judged by is not here"
        return [item(study, JUDGED, note=note)]
    evidence = gather(root, registration)
    if evidence.ledger_faults:
        return [item(study, JUDGED, "the ledger is damaged, and nothing is judged")]
    seen = view(registration, evidence).evidence
    if seen.missing:
        lacking, total = len(seen.missing), len(seen.planned)
        return [item(study, JUDGED, f"{lacking} of the {total} runs it rests on are not here as sealed")]
    path = root.report(study) / "verdict.json"
    own = _as_recorded(registration, path)
    if maker is None and own is None and registration.study.checks and not path.is_file():
        note = "not judged again: what the study's own checks found is in verdict.json, which is not here"
        return [item(study, JUDGED, note=note)]
    then = _as_of(registration, evidence, entry, own)
    left = all(one.index < entry.index or one.event in _AFTERWARDS for one in evidence.ledger)
    decision = then if left else _decide_with(registration, evidence, own)
    judged = _verdict_item(study, then, path.read_bytes() if path.is_file() else None, entry, decision)
    items = [judged.model_copy(update={"inadmissible": decision.status == "inadmissible"})]
    if own:
        # Code that a stranger brings is never executed here.
        names = ", ".join(check.name for check in own)
        items.append(item(study, "own checks", note=f"not run again; taken from verdict.json: {names}"))
    if reports_of is not None and not items[0].faults and not items[0].judged_differently:
        items.append(
            _reports_item(root.report(study), study, reports_of(root, registration, entry, decision, seen), maker)
        )
    return items


def judged_here(root: Root, registration: Registration, evidence: Evidence, entry: Entry) -> Decision:
    """The decision of a ledger entry, judged again; what a study's own checks found is as verdict.json recorded it.

    Raises `EvidenceError` where verdict.json is not that of the entry, or states other facts.
    """
    own = _as_recorded(registration, root.report(registration.study.study) / "verdict.json")
    decision = _decide_with(registration, evidence, own)
    require_same_decision(root, entry, decision)
    return decision


def _decide_with(registration: Registration, evidence: Evidence, own: tuple[Check, ...] | None) -> Decision:
    return decide(registration, evidence, None if own is None else lambda _: own)


def _as_recorded(registration: Registration, path: Path) -> tuple[Check, ...] | None:
    """What the study's own checks said when it was decided; none where not all are recorded."""
    wanted = [f"{OWN}{check.name}" for check in registration.study.checks]
    if not wanted or not path.is_file():
        return None
    text = {check.name: check for check in Decision.model_validate_json(path.read_bytes()).checks}
    return tuple(text[name] for name in wanted) if set(wanted) <= set(text) else None


def _verdict_item(study: str, then: Decision, written: bytes | None, entry: Entry, now: Decision) -> Item:
    """Evidence that changed, a verdict that this version judges differently, or the same."""
    said, body = _said(now), entry.body
    if overruled := _overruled(then, now):
        return item(study, JUDGED, *overruled)
    if then.evidence != body.get("evidence"):
        return item(study, JUDGED, "the evidence has changed: its sha256 is not that of the decision in the ledger")
    if written is None:
        facts = tuple(
            f"{name} is {body.get(name)}, and {value} when judged here"
            for name, value in (("status", then.status), ("verdict", then.verdict))
            if body.get(name) != value
        )
        compared = Comparison(facts)
        how = "as the ledger recorded; verdict.json is not here, and its numbers were not compared"
        if sha256_bytes(verdict_bytes(then)) == body.get("verdict_sha256"):
            compared, how = Comparison(), "the bytes that the ledger recorded"
    else:
        compared = compare_verdicts(written, verdict_bytes(then))
        how = "the same bytes"
        if compared.digits:
            how = "the same but for digits beyond the ninth, as on another processor"
    if compared.facts and by_other_code(entry):
        note = f"code {str(body['code'])[:8]} decided, and this is {this_tool().words}"
        return item(study, JUDGED, note=note).model_copy(update={"judged_differently": compared.facts})
    if compared.facts:
        return item(study, JUDGED, *(f"verdict.json: {what}" for what in compared.facts[:8]))
    since = "" if then.status == now.status else "; deviations came about afterwards"
    return item(study, JUDGED, note=f"{said}; {how}{since}")


def _reports_item(folder: Path, study: str, pages: Mapping[str, bytes], maker: Tool | None) -> Item:
    there = {name: data for name, data in pages.items() if (folder / name).is_file()}
    if not there:
        return item(study, WRITTEN, note="no report is in the bundle")
    faults, notes = [], []
    for name, data in there.items():
        found = compare_pages(name, (folder / name).read_bytes(), data)
        text = f"{name} is not what the decision gives here: {'; '.join(found.parts)}"
        if found.parts and is_this(maker) and any("text" in part for part in found.parts):
            faults.append(text)
        elif found.parts:
            notes.append(text)
        else:
            notes.append(f"{name} the same" + (" but for last digits" if found.digits else " bytes"))
    if faults:
        return item(study, WRITTEN, *faults, "the same version wrote it, so somebody changed it afterwards")
    return item(study, WRITTEN, note="; ".join([*notes, *([] if is_this(maker) else [tool_versions(maker)])]))


def oversized(folder: Path) -> str:
    """A table that would fill the memory when it is read: a few bytes of Parquet can hold any number of rows."""
    rows = size = 0
    for path in sorted(folder.rglob("*.parquet")):
        columns = ITEM_COLUMNS if path.name == "items.parquet" else METRIC_COLUMNS
        try:
            with open_bounded(path, columns) as file:
                rows += file.metadata.num_rows
                size += path.stat().st_size
        except TableError as error:
            return f"{path.relative_to(folder).as_posix()} {error}"
        most = min(MOST_ROWS, FREE_ROWS + size)
        if rows > most:
            return f"its records hold {rows:,} rows in {size:,} bytes, and {most:,} are the most"
    return ""


def is_this(maker: Tool | None) -> bool:
    """Whether what made a bundle is what runs here."""
    if maker is None:
        return False
    here = this_tool()
    return (maker.version, maker.code, maker.libraries) == (here.version, here.code, here.libraries)


def tool_versions(maker: Tool | None) -> str:
    """Which version made a bundle, and which is here."""
    here = this_tool()
    if maker is None:
        return f"as another version writes it, or by hand: this is {here.words}"
    if is_this(maker):
        return f"judged by the version that made the bundle ({here.words})"
    others = [name for name in here.libraries if maker.libraries.get(name) != here.libraries[name]]
    libraries = f" with other versions of {', '.join(others[:4])}{' and more' if others[4:] else ''}" if others else ""
    return f"the bundle was made by {maker.words}; this is {here.words}{libraries}"


def _said(decision: Decision) -> str:
    return ", ".join(filter(None, [decision.verdict or decision.status, with_deviations(decision)]))
