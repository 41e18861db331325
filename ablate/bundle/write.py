"""One file for whoever has no access to the repository. A bundle that its own check would reject is never left behind.

The same study gives the same bytes: nothing in a bundle looks at a clock, and the archive leaves no choice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ablate.bundle.archive import (
    LARGEST_BYTES,
    MANIFEST,
    MOST_MEMBERS,
    Source,
    UnsoundError,
    measure,
    write_archive,
)
from ablate.bundle.check import BundleCheck
from ablate.bundle.gathered import gathered
from ablate.bundle.manifest import Member, manifest_bytes, this_tool
from prereg.errors import EvidenceError, StudyFileError, Where
from prereg.registry.canon import sha256_file
from prereg.registry.disk import move
from prereg.registry.paths import Root
from prereg.registry.registration import Registration

SUFFIX = ".ablate.zip"


@dataclass(frozen=True)
class Bundled:
    """A bundle that was written, or that was there already."""

    path: Path
    check: BundleCheck
    written: bool
    """Whether it was written now; the same bytes may have been there."""


def write_bundle(
    root: Root,
    registration: Registration,
    target: Path,
    *,
    check: Callable[[Path], BundleCheck],
    whole_ledger: bool = False,
    weights: bool = False,
) -> Bundled:
    """Write the bundle of a registered study, check it as a stranger would, and move it to its place."""
    study = registration.study.study
    sources, left_out, ledger = gathered(root, registration, whole_ledger=whole_ledger, weights=weights)
    measured = [(source, measure(source)) for source in sources]
    size = sum(slot.size_bytes for _, slot in measured)
    if size > LARGEST_BYTES - (1 << 24) or len(measured) >= MOST_MEMBERS:
        raise StudyFileError(
            f"{len(measured):,} files with {size:,} bytes are more than a bundle holds",
            required=f"fewer than {MOST_MEMBERS:,} files and {LARGEST_BYTES - (1 << 24):,} bytes",
            fix="leave out --weights" if weights else "give the records to others as they lie in data/runs/",
        )
    manifest = manifest_bytes(
        study=study,
        registration=registration.sha256,
        ledger=ledger,
        members={slot.name: Member(sha256=slot.sha256, size_bytes=slot.size_bytes) for _, slot in measured},
        left_out=left_out,
        made_with=this_tool(),
    )
    first = Source(MANIFEST, manifest)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w+b") as stream:
            try:
                write_archive(stream, [(first, measure(first)), *measured])
            except UnsoundError as error:
                raise EvidenceError(
                    str(error), required="a study that nobody is working on", fix="wait for the run to end"
                ) from None
            stream.flush()
            os.fsync(stream.fileno())
        found = check(temporary)
        if not found.stands:
            raise EvidenceError(
                f"a bundle of '{study}' would fail its checks: " + next(f for item in found.items for f in item.faults),
                required="a study of which nothing frozen has changed, and which this version judges as it was judged",
                fix=f"ablate verify {study}; if that passes, ablate decide {study}",
            )
        written = not (target.is_file() and sha256_file(target) == found.sha256)
        if written and target.exists():
            raise StudyFileError(
                "there is another file in the place of the bundle, and it is kept",
                required="a new name, or none",
                fix=f"--out OTHER{SUFFIX}, or rm {target}",
                where=Where(file=target),
            )
        if written:
            move(temporary, target)
        return Bundled(target, found, written)
    finally:
        temporary.unlink(missing_ok=True)
