"""Guide to a bundle for a reader without ablate: `README.txt`, and the figures of the report as files.

Both follow from the other files alone, so that a check writes them again and compares: a README that states another
verdict than `verdict.json` is found.

Plain text in short lines: it is the first file that a reader opens, in whatever program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap

from ablate.judge.verdict import Decision, with_deviations
from ablate.verification.manifest import BundleManifest, LeftOut
from prereg.campaign.record import CampaignRecord
from prereg.escape import visible
from prereg.registry.registration import Registration
from prereg.text import counted

GUIDED = ("report.html", "verdict.json")
README, FIGURES = "README.txt", "figures/"
_CHART = re.compile(rb"<svg xmlns=\"http://www\.w3\.org/2000/svg\".*?</svg>", re.DOTALL)
_LABEL = re.compile(rb'aria-label="([^"]*)"')
_WIDTH = 78
KINDS = (
    ("MANIFEST.json", "every other file with its sha256 and size, and a hash over all of that"),
    (README, "this text"),
    ("studies/{study}.yaml", "the study, as its authors wrote it"),
    ("studies/{study}.lock.json", "its registration: what was promised before the first run, exactly"),
    ("studies/{study}.registration.md", "the same in words"),
    ("studies/ledger.jsonl", "the log of registration, runs and decision, each line with the hash of the last"),
    ("studies/ledger.slice.jsonl", "the same; of other studies only the hashes that keep the chain whole"),
    ("reports/{study}/verdict.json", "the verdict, every finding and check behind it, as data"),
    ("reports/{study}/report.html", "the report, with its figures; open it in a browser"),
    ("reports/{study}/report.md", "the report as text"),
)


def guide(
    files: Iterable[str],
    page: bytes | None,
    verdict: bytes | None,
    *,
    registration: Registration,
    head: str,
    left_out: Sequence[LeftOut],
    version: str,
) -> dict[str, bytes]:
    """`README.txt` and the figures, by name, of a bundle that holds `files`.

    `page` is its report.html and `verdict` its verdict.json, where it has them; `version` is that of ablate.
    """
    figures = figures_of(page or b"")
    # Both are listed before they are written: the README describes itself, too.
    named = sorted({README, "MANIFEST.json", *files, *figures})
    decision = None if verdict is None else Decision.model_validate_json(verdict)
    text = _readme(named, decision, registration=registration, head=head, left_out=left_out, version=version)
    return {README: text, **figures}


def campaign_guide(
    files: Iterable[str], record: CampaignRecord, *, head: str, left_out: Sequence[LeftOut], version: str
) -> dict[str, bytes]:
    """`README.txt` of the bundle of a campaign that holds `files`."""
    campaign = record.campaign
    parts = [
        f"Evidence of the campaign '{campaign.campaign}'",
        f"{campaign.title}\nThis folder holds a campaign: changes that were tried one after the other against the best "
        f"so far, with one error rate over all of them ({campaign.error_words}). Each was on record before its first "
        "run, on seeds that follow by rule.",
        _heading("Proposals"),
        _ends_of(record),
        f"Registered {record.entry.at}, sha256 {record.entry.registration}.",
        *_checking(head, version),
        _heading("What each file is"),
        *_listing(sorted({README, "MANIFEST.json", *files}), campaign.campaign),
        *_gaps(left_out),
    ]
    return {README: _text(parts)}


def _ends_of(record: CampaignRecord) -> str:
    """A line for each proposal."""
    lines = []
    for proposal in record.proposals:
        change = proposal.entry.change
        values = [f"{path} = {json.dumps(value)}" for path, value in change.settings.items()]
        words = ", ".join([*([] if change.commit is None else [f"commit {change.commit}"]), *values])
        end = "open" if proposal.end is None else proposal.end.outcome.replace("_", " ")
        lines.append(f"{proposal.entry.number}, {end}: {words}")
    return f"{counted(len(lines), 'proposal')}.{_lines_of(lines)}"


def campaign_guide_differs(folder: Path, manifest: BundleManifest, record: CampaignRecord) -> str:
    """What `guide_differs` says, of the bundle of a campaign."""
    if README not in manifest.members:
        return ""
    expected = campaign_guide(
        manifest.members.keys() - {README},
        record,
        head=manifest.ledger.head,
        left_out=manifest.left_out,
        version=manifest.made_with.version,
    )
    return README if (folder / README).read_bytes() != expected[README] else ""


def guide_differs(folder: Path, manifest: BundleManifest, registration: Registration) -> str:
    """What in a bundle's guide is not what its other files say; empty where all is, or where it has none."""
    if README not in manifest.members:
        return ""
    # What the guide itself wrote is no input to it.
    own = {name for name in manifest.members if name == README or name.startswith(FIGURES)}
    held = {name: (folder / name).read_bytes() for name in own}
    report = folder / "reports" / manifest.study
    page, verdict = (path.read_bytes() if (path := report / name).is_file() else None for name in GUIDED)
    # Made again from what the bundle holds, in the name of the version that made it.
    expected = guide(
        manifest.members.keys() - own,
        page,
        verdict,
        registration=registration,
        head=manifest.ledger.head,
        left_out=manifest.left_out,
        version=manifest.made_with.version,
    )
    changed = sorted(name for name in held.keys() | expected.keys() if held.get(name) != expected.get(name))
    return f"{', '.join(changed[:3])}{' and others' if changed[3:] else ''}" if changed else ""


def figures_of(page: bytes) -> dict[str, bytes]:
    """The drawings of report.html as files, in their order; one that only a narrow screen shows is left out.

    >>> sorted(figures_of(b'<svg xmlns="http://www.w3.org/2000/svg" aria-label="curves"></svg>'))
    ['figures/figure-01.svg']
    """
    # Of two drawings with the same label the second is for narrow screens.
    # A drawing without a label is its own key, so that it is never taken for a second version of another.
    drawing_by_label: dict[bytes, bytes] = {}
    for drawing in _CHART.findall(page):
        label = _LABEL.search(drawing)
        drawing_by_label.setdefault(label[1] if label else drawing, drawing)
    drawings = enumerate(drawing_by_label.values(), start=1)
    return {f"{FIGURES}figure-{number:02}.svg": drawing + b"\n" for number, drawing in drawings}


def _readme(
    files: Sequence[str],
    decision: Decision | None,
    *,
    registration: Registration,
    head: str,
    left_out: Sequence[LeftOut],
    version: str,
) -> bytes:
    study = registration.study
    page = f"reports/{study.study}/report.html"
    # 1. What was asked, and the verdict.
    parts = [
        f"Evidence of the study '{study.study}'",
        f"{registration.worded.title}\n"
        "This folder holds a pre-registered comparison of ways to train a model: what was promised before the first "
        "run, the records of every run, and the verdict that the promised rule gives on them.",
        _heading("Verdict"),
        _verdict(decision),
        f"Registered {registration.registered_at}, sha256 {registration.sha256}.",
    ]
    if page in files:
        # 2. How to read it, how to check it.
        parts += [_heading("Read it"), f"Open {page} in a browser. It needs no other file and no network."]
    parts += [
        *_checking(head, version),
        _heading("What each file is"),
        *_listing(files, study.study),
        # The gaps, next to what is there: a reader must not look for them in vain.
        *_gaps(left_out),
    ]
    return _text(parts)


def _checking(head: str, version: str) -> list[str]:
    """How a reader checks a bundle."""
    return [
        _heading("Check it"),
        f"With ablate {version} or later (the Python package ablate-prereg), one command checks this folder, or the "
        "zip file it came in, also when it was zipped again:",
        "    ablate verify FOLDER-OR-FILE",
        "It compares every file with its hash, derives every outcome from the records again, judges again by the "
        "registered rule, and compares the verdict. It asks no server. `ablate report FOLDER-OR-FILE` writes the "
        "report again. Without ablate: the sha256 of each file is in MANIFEST.json.",
        "No check can show that all of this was not made up as a whole. Compare the contents sha256 that `ablate "
        f"verify` prints, or the head of the ledger, with one that somebody else has held. The head is {head}.",
    ]


def _gaps(left_out: Sequence[LeftOut]) -> list[str]:
    if not left_out:
        return []
    return [_heading("What is not here"), *(f"- {gap.what}: {gap.why}." for gap in left_out)]


def _text(parts: Sequence[str]) -> bytes:
    return ("\n".join(line for part in parts for line in _lines(part)) + "\n").encode()


def _heading(text: str) -> str:
    return f"\n{text.upper()}\n"


def _lines(part: str) -> list[str]:
    """A part in lines of plain text: no character of it hides another."""
    lines: list[str] = []
    for line in part.split("\n"):
        indent = re.match(r" *(?:- )?", line)
        hanging = " " * len(indent[0]) if indent else ""
        lines += wrap(visible(line), _WIDTH, subsequent_indent=hanging, break_on_hyphens=False) or [""]
    return lines


def _verdict(decision: Decision | None) -> str:
    if decision is None:
        return "None yet: the study has not been decided, or its verdict is not in this bundle."
    if decision.status == "inadmissible":
        # No finding is printed: the rules say that this evidence gives none.
        failed = [check.name for check in decision.checks if not check.passed and check.severity == "inadmissible"]
        return f"No verdict: the evidence is inadmissible by the registered rules.{_lines_of(failed)}"
    findings = _lines_of([f"{f.hypothesis}, {f.outcome}: {f.claim} (n = {f.n})" for f in decision.findings])
    deviations = _lines_of([f"deviation: {check.name}" for check in decision.deviations])
    verdict = ", ".join(filter(None, [decision.verdict or "No verdict", with_deviations(decision)]))
    return f"{verdict}{deviations}{findings}"


def _lines_of(members: Sequence[str]) -> str:
    return "".join(f"\n- {member}" for member in members)


def _listing(files: Sequence[str], study: str) -> list[str]:
    text_by_name = {name.format(study=study): text for name, text in KINDS}
    runs = [name for name in files if name.startswith("data/runs/")]
    figures = [name for name in files if name.startswith(FIGURES)]
    # Four groups: names that every bundle has, runs (thousands, so one line for all), figures, and the rest by
    # their ending.
    more = [name for name in files if name not in text_by_name and name not in runs and name not in figures]
    lines = [f"- {name}: {text}" for name, text in text_by_name.items() if name in files]
    if figures:
        lines.append(f"- {FIGURES}: the {counted(len(figures), 'drawing')} of the report as SVG files")
    if runs:
        kinds = sorted({name.rpartition("/")[2] for name in runs})
        text = {
            "run.json": "run.json (configuration, versions, hashes)",
            "metrics.parquet": "metrics.parquet (every measured value by step)",
            "items.parquet": "items.parquet (the score of every test item)",
            "weights.safetensors": "weights.safetensors (the trained weights)",
        }
        n = len({name.rpartition("/")[0] for name in runs})
        held = ", ".join(text.get(kind, kind) for kind in kinds)
        lines.append(f"- data/runs/: {counted(n, 'run')}, in folders by registration, arm and seed: {held}")
    # Files whose names vary: by their ending.
    ends: Mapping[str, str] = {
        ".sig": "a signature of the registration",
        ".tsr": "a timestamp of the registration by an authority",
        ".py": "code that the registration pins",
    }
    for name in more:
        what = next((text for end, text in ends.items() if name.endswith(end)), "a file that belongs to the study")
        lines.append(f"- {name}: {what}")
    return lines
