"""Timestamps by RFC 3161, read and checked (none is requested): a signed hash of a lock with the time of signing.

The file is the user's to get (`openssl ts -query`, then any client of HTTP); `openssl ts` reads and checks it here, and
no server is asked. Whom to believe is in `studies/timestamp_roots.pem`, never in the machine's own store: that vouches
for web servers, and a check must say the same everywhere. Of an authority that nobody vouches for only the hash is
compared: anyone can make a certificate, so its signature says nothing more. A timestamp proves that the lock existed by
then, not that nobody ran the experiment earlier.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from prereg.errors import SealError, Where
from prereg.program import Answer, NoAnswerError, Program, ask
from prereg.seals.state import SealResult

LARGEST_BYTES = 256 * 1024
"""A timestamp is about five thousand bytes."""
TIMEOUT_S = 30
# A check must not depend on how a machine is configured.
_OPENSSL = Program(
    "openssl", install="install openssl", required="OpenSSL 3.0 or newer", environment={"OPENSSL_CONF": os.devnull}
)
# Of the signed part of a reply, as `openssl ts -reply -token_in -text` prints it. Names and extensions come later.
_HASH = re.compile(rb"^Hash Algorithm: sha256\nMessage data:\n((?:    [0-9a-f]{4} - .*\n)+)", re.MULTILINE)
_BYTES = re.compile(rb"^    [0-9a-f]{4} - ((?:[0-9a-f]{2}[ -]){16})", re.MULTILINE)
_TIME = re.compile(rb"^Time stamp: ([A-Z][a-z]{2}) +(\d+) (\d\d:\d\d:\d\d)(?:\.\d+)? (\d{4}) GMT$", re.MULTILINE)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_STRANGER = re.compile(r"certificate verify error.*?Verify error:([^;]*)")


@dataclass(frozen=True)
class Stamp:
    """What a timestamp says, whoever signed it."""

    time: datetime
    sha256: str | None
    """Of the bytes that were stamped; none where another hash was taken."""


def read(data: bytes) -> Stamp:
    """What a file says. Raises `SealError` where it is no timestamp, or openssl is not here."""
    token = _openssl("-reply", "-in", "/dev/stdin", "-token_out", file=data)
    # The status of a reply is text that nobody signed, so only the token is read.
    text = _openssl("-reply", "-in", "/dev/stdin", "-token_in", "-text", file=token.output)
    time = _TIME.search(text.output)
    if not (token.is_yes and text.is_yes) or time is None:
        raise SealError(
            "openssl reads no timestamp in it",
            required="the reply of a time-stamping authority that has granted the request",
            fix="openssl ts -reply -in FILE -text   (says what it is)",
        )
    # By a table of months: strptime's %b would be of the user's language.
    month, day, clock, year = (word.decode() for word in time.groups())
    at = datetime.fromisoformat(f"{year}-{_MONTHS.index(month) + 1:02}-{int(day):02}T{clock}+00:00")
    stamped = _HASH.search(text.output)
    dumped = b"" if stamped is None else b"".join(_BYTES.findall(stamped[1]))
    return Stamp(at, re.sub(rb"[ -]", b"", dumped).decode() or None)


def examine_timestamp(data: bytes, lock_sha256: str, roots: Path | None) -> SealResult:
    """What a stored timestamp is worth. Raises `SealError` when the file of roots cannot be read."""
    try:
        stamp = read(data)
    except NoAnswerError as error:
        return SealResult(state="unchecked", says=error.found)
    except SealError:
        return SealResult(state="broken", says="is not a timestamp")
    # Before any certificate: a timestamp of other bytes says nothing of this lock, whoever signed it.
    if stamp.sha256 != lock_sha256:
        return SealResult(state="broken", says="is a timestamp of other bytes")
    says = f"timestamped at {stamp.time.isoformat()}"
    if roots is None or not roots.is_file():
        return SealResult(state="unvouched", says=f"{says} by an authority that nobody here vouches for")
    return _believed(data, stamp, roots, says)


def _believed(data: bytes, stamp: Stamp, roots: Path, says: str) -> SealResult:
    """Check the authority's signature, and its certificate against those that the reader believes."""
    # As of the stated time: certificates expire, and a forged time outside the certificate's life ends here too.
    then = ("-attime", str(int(stamp.time.timestamp())))
    words = ("-verify", "-digest", str(stamp.sha256), "-in", "/dev/stdin", "-CAfile", str(roots.absolute()))
    done = _openssl(*words, *then, file=data)
    if done.is_yes:
        return SealResult(state="holds", says=f"{says} by an authority of {roots.name}")
    if "no certificate or crl found" in done.complaint or "Error loading file" in done.complaint:
        raise SealError(
            "no certificates can be read from it",
            required="certificates of time-stamping authorities, as PEM",
            where=Where(file=roots),
        )
    stranger = _STRANGER.search(done.complaint)
    if stranger is not None:
        says += f" by an authority that {roots.name} does not vouch for ({stranger[1]})"
        return SealResult(state="unvouched", says=says)
    return SealResult(state="broken", says="is not a timestamp that holds: its signature fails")


def _openssl(*words: str, file: bytes) -> Answer:
    return ask(_OPENSSL, "ts", *words, data=file, seconds=TIMEOUT_S)
