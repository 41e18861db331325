"""From a study in its repository to one file for others, and back to what that file is worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ablate.chain.case import open_case, require_registered

if TYPE_CHECKING:
    from ablate.bundle.check import BundleCheck
    from ablate.bundle.write import Bundled
    from ablate.judge.verdict import Decision
    from ablate.records.evidence import Evidence
    from prereg.registry.ledger import Entry
    from prereg.registry.paths import Root
    from prereg.registry.registration import Registration


def bundle(
    path: str | Path,
    *,
    root: Path | None = None,
    out: Path | None = None,
    whole_ledger: bool = False,
    weights: bool = False,
) -> Bundled:
    """Write the bundle of a registered study, and check it as a stranger would before it is left behind."""
    from ablate.bundle.write import SUFFIX, write_bundle

    case = open_case(Path(path), root)
    registration = require_registered(case)
    target = out or Path(f"{case.study.study}{SUFFIX}")
    return write_bundle(case.root, registration, target, check=check_bundle, whole_ledger=whole_ledger, weights=weights)


def check_bundle(path: Path, *, signers: Path | None = None, roots: Path | None = None) -> BundleCheck:
    """Check a bundle with nothing but the file itself, and whom the reader believes."""
    from ablate.bundle.check import check_bundle as check

    return check(path, tell=_told_again, signers=signers, roots=roots)


def _told_again(
    root: Root, registration: Registration, entry: Entry, decision: Decision, evidence: Evidence
) -> dict[str, bytes]:
    """The reports of what lies under an unpacked root, published figures and all."""
    from ablate.chain.deciding import pages
    from prereg.documents.published import load_published

    return pages(registration, entry, decision, evidence, load_published(root, registration.study))
