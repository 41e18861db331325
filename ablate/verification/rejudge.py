"""The verdict of a bundle or a repository, judged again from its records by the judge here; a bundle's reports too.

Only what was decided is judged: an unfinished study, or one that nobody has decided, shows no contrast here either.
That the judge here may be another than the one that decided is said, of a bundle with both versions; see
`ablate.verification.comparison` for what may differ between two versions, and what may not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ablate.judge.audit.user_checks import OWN
from ablate.judge.decide import decide
from ablate.judge.interim import view
from ablate.judge.verdict import Check, Decision, verdict_bytes
from ablate.records.evidence import ITEM_COLUMNS, METRIC_COLUMNS, Evidence
from ablate.records.gather import gather
from ablate.records.parquet import TableError, open_bounded
from ablate.verification.bundle.manifest import Tool, this_tool
from ablate.verification.comparison import Comparison, compare_pages, compare_verdicts, same_but_for_words
from ablate.verification.result import Item, item
from prereg.errors import EvidenceError, StudyError
from prereg.registry.canon import sha256_bytes
from prereg.registry.ledger_entry import Entry
from prereg.registry.paths import Root
from prereg.registry.registration import Registration, load_registration


def require_same(root: Root, entry: Entry, now: Decision) -> None:
    """Raises `EvidenceError` where verdict.json is not the one of a ledger entry, or anything but words differs from
    the decision as judged here, which is the one to be shown."""
    path = root.report(entry.study) / "verdict.json"
    data = path.read_bytes() if path.is_file() else b""
    registration = load_registration(root, entry.study)
    assert registration is not None, entry.study
    if sha256_bytes(data) == entry.body["verdict_sha256"]:
        later = _since(registration, gather(root, registration), entry, now)
        if same_but_for_words(data, now, later=later):
            return
    study = root.study(entry.study)
    raise EvidenceError(
        "the evidence on disk does not give the decision in the ledger",
        required=f"the evidence of the decision taken {entry.at}",
        fix=f"ablate verify {study}, then ablate decide {study}",
    )


def judged_here(root: Root, registration: Registration, entry: Entry, evidence: Evidence) -> Decision:
    """The decision of a ledger entry, judged here; what the study's own checks found is taken from verdict.json.

    Raises `EvidenceError` as `require_same`.
    """
    own = _as_recorded(registration, root.report(entry.study) / "verdict.json")
    decision = decide(registration, evidence, None if own is None else lambda _: own)
    if sha256_bytes(verdict_bytes(decision)) != entry.body["verdict_sha256"]:
        require_same(root, entry, decision)
    return decision


def _since(registration: Registration, evidence: Evidence, entry: Entry, now: Decision) -> frozenset[str]:
    """Deviations that follow from entries after the decision: it could not list them. A clock set back is one."""
    failed = frozenset(check.name for check in now.checks if not check.passed and check.severity == "deviation")
    if not failed:
        return failed
    own = tuple(check for check in now.checks if check.name.startswith(OWN))
    before = tuple(one for one in evidence.ledger if one.index < entry.index)
    then = decide(registration, replace(evidence, ledger=before), lambda _: own)
    return failed - {check.name for check in then.checks if not check.passed}


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
    decision = decide(registration, evidence, None if own is None else lambda _: own)
    now = verdict_bytes(decision)
    if path.is_file():
        data = path.read_bytes()
        later = frozenset[str]()
        if maker is not None and not is_this(maker):
            later = frozenset(check.name for check in decision.checks)
        elif data != now:
            later = _since(registration, evidence, entry, decision)
        judged = _verdict_item(study, decision, compare_verdicts(data, now, later=later), maker)
        if title := _foreign_title(registration, data):
            judged = judged.model_copy(update={"faults": (*judged.faults, title)})
    else:
        judged = _recorded_item(study, decision, now, entry, maker)
    items = [judged.model_copy(update={"inadmissible": decision.status == "inadmissible"})]
    if own:
        # Code that a stranger brings is never executed here.
        names = ", ".join(check.name for check in own)
        items.append(item(study, "own checks", note=f"not run again; taken from verdict.json: {names}"))
    if reports_of is not None and not items[0].faults:
        items.append(
            _reports_item(root.report(study), study, reports_of(root, registration, entry, decision, seen), maker)
        )
    return items


def _foreign_title(registration: Registration, data: bytes) -> str:
    """What is wrong with the title in verdict.json, which is a registered one or one that the ledger holds; no version
    writes it otherwise."""
    title = Decision.model_validate_json(data).title
    titles = {registration.study.title, *(one.words.get("title") for one in registration.rewordings)}
    return "" if title in titles else f"verdict.json: title is {title!r}, which was never registered"


def _recorded_item(study: str, decision: Decision, now: bytes, entry: Entry, maker: Tool | None) -> Item:
    """Against the ledger's entry alone, which holds the verdict and the hash of all else that was decided."""
    said, body = _said(decision), entry.body
    if sha256_bytes(now) == body.get("verdict_sha256"):
        return item(study, JUDGED, note=f"{said}: the bytes that the ledger recorded")
    if maker is None and (decision.status, decision.verdict) == (body.get("status"), body.get("verdict")):
        note = f"{said}, as the ledger recorded; verdict.json is not here, and its words and numbers were not compared"
        return item(study, JUDGED, note=note)
    return item(study, JUDGED, "verdict.json is not here, and judged here it is not what the ledger recorded")


def _as_recorded(registration: Registration, path: Path) -> tuple[Check, ...] | None:
    """What the study's own checks said when it was decided; none where not all are recorded."""
    wanted = [f"{OWN}{check.name}" for check in registration.study.checks]
    if not wanted or not path.is_file():
        return None
    text = {check.name: check for check in Decision.model_validate_json(path.read_bytes()).checks}
    return tuple(text[name] for name in wanted) if set(wanted) <= set(text) else None


def _verdict_item(study: str, decision: Decision, found: Comparison, maker: Tool | None) -> Item:
    said = _said(decision)
    if found.matter:
        faults = [f"verdict.json: {what}" for what in found.matter[:8]]
        return item(study, JUDGED, *faults, *([] if maker is None else [tool_versions(maker)]))
    if found.words:
        where = f"written otherwise: {', '.join(found.words)}"
        if is_this(maker):
            return item(study, JUDGED, f"verdict.json is {where}, and the same version wrote it")
        return item(study, JUDGED, note=f"{said}; {where}; {tool_versions(maker)}")
    if found.digits:
        return item(study, JUDGED, note=f"{said}; the same but for digits beyond the ninth, as on another processor")
    versions = "" if maker is None or is_this(maker) else f"; {tool_versions(maker)}"
    return item(study, JUDGED, note=f"{said}; the same bytes{versions}")


def _reports_item(folder: Path, study: str, pages: Mapping[str, bytes], maker: Tool | None) -> Item:
    there = {name: data for name, data in pages.items() if (folder / name).is_file()}
    if not there:
        return item(study, WRITTEN, note="no report is in the bundle")
    faults, notes = [], []
    for name, data in there.items():
        found = compare_pages(name, (folder / name).read_bytes(), data)
        text = f"{name} is not what the decision gives here: {'; '.join(found.words)}"
        if found.words and is_this(maker) and any("text" in words for words in found.words):
            faults.append(text)
        elif found.words:
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
    return decision.verdict or decision.status
