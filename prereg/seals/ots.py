"""OpenTimestamps: public calendars gather hashes and put one root of them into a Bitcoin block.

A new proof is a calendar's promise; after some hours the calendar can complete it to a path that ends in a
block. Asking needs a network. What can be checked without one is that the path begins at the lock and where
it ends: comparing that end with the block itself needs a Bitcoin node, and the result says so. The
bytes of a proof are the `opentimestamps` library's matter, an optional dependency loaded when it is needed.
"""

from __future__ import annotations

import fnmatch
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prereg.errors import SealError, UnreachableError
from prereg.seals.exchange import exchange, require_address
from prereg.seals.state import SealResult

if TYPE_CHECKING:
    from opentimestamps.core.timestamp import DetachedTimestampFile, Timestamp

CALENDARS = (
    "https://a.pool.opentimestamps.org",
    "https://b.pool.opentimestamps.org",
    "https://a.pool.eternitywall.com",
)
"""Public calendars; each gets a request, and one answer is enough."""

# A proof names the calendar that can complete it. It comes from a server, so it may not send us anywhere.
_KNOWN_HOSTS = ("*.calendar.opentimestamps.org", "*.calendar.eternitywall.com", "*.calendar.catallaxy.com")
_LIMIT_BYTES = 10_000
_TIMEOUT_S = 10.0
_HIGHEST_BLOCK = 100_000_000


@dataclass(frozen=True)
class Proof:
    """A proof and what became of the calendars that got a request."""

    data: bytes
    """The bytes of the `.ots` file."""
    complete: bool
    """Whether some path ends in a Bitcoin block."""
    unanswered: tuple[str, ...]
    """What the calendars that did not help said."""


def require_library() -> None:
    """Raise `SealError` when the optional dependency is not installed."""
    try:
        import opentimestamps.core.timestamp  # noqa: F401
    except ImportError:
        raise SealError(
            "OpenTimestamps needs a package that is not installed",
            required="opentimestamps, which the extra 'ots' brings",
            fix="pip install 'ablate-prereg[ots]'",
        ) from None


def stamp(lock_sha256: str, calendars: Sequence[str] = CALENDARS) -> Proof:
    """Hand the hash of a lock to calendars. Raises `UnreachableError` when none of them takes it."""
    require_library()
    from opentimestamps.core.op import OpSHA256
    from opentimestamps.core.timestamp import DetachedTimestampFile, Timestamp

    digest = bytes.fromhex(lock_sha256)
    proof = DetachedTimestampFile(OpSHA256(), Timestamp(digest))
    unanswered = []
    for calendar in calendars:
        try:
            proof.timestamp.merge(_request(f"{require_address(calendar)}/digest", digest, question=digest))
        except SealError as error:
            unanswered.append(error.found)
    if len(unanswered) == len(calendars):
        raise UnreachableError(
            f"none of {len(calendars)} calendars took the hash: {unanswered[0]}",
            required="a network, and a calendar that answers",
        )
    return Proof(_bytes(proof), bool(_blocks(proof)), tuple(unanswered))


def complete(stored: bytes, calendars: Sequence[str] = CALENDARS) -> Proof:
    """Ask the calendars of a proof for the rest of it; the same bytes where they do not have it yet."""
    require_library()
    proof = _read(stored)
    unanswered = []
    for stamped, address in list(_promises(proof.timestamp)):
        if not _is_listed(address, calendars):
            unanswered.append(f"{address} is not a calendar that is known here")
            continue
        try:
            stamped.merge(_request(f"{address}/timestamp/{stamped.msg.hex()}", stamped.msg, question=None))
        except SealError as error:
            unanswered.append(error.found)
    return Proof(_bytes(proof), bool(_blocks(proof)), tuple(unanswered))


def examine(stored: bytes, lock_sha256: str) -> SealResult:
    """What a proof is worth as far as it can be seen without a network."""
    try:
        require_library()
    except SealError as error:
        return SealResult(state="unchecked", says=f"{error.found}; {error.fix}")
    try:
        proof = _read(stored)
    except SealError as error:
        return SealResult(state="broken", says=error.found)
    if proof.file_hash_op.HASHLIB_NAME != "sha256" or proof.file_digest.hex() != lock_sha256:
        return SealResult(state="broken", says="is a proof for other bytes")
    blocks = _blocks(proof)
    if blocks:
        height, root = min(blocks)
        says = f"leads to Bitcoin block {height}; compare its merkle root, {root}, with a node you trust"
        return SealResult(state="unchecked", says=says)
    promised = sorted({address for _, address in _promises(proof.timestamp)})
    if not promised:
        return SealResult(state="broken", says="leads neither to a Bitcoin block nor to a calendar")
    says = f"promised by {', '.join(promised)}: in no Bitcoin block yet (ablate seal completes it)"
    return SealResult(state="incomplete", says=says)


def _request(address: str, digest: bytes, *, question: bytes | None) -> Timestamp:
    """A calendar's answer about a hash."""
    from opentimestamps.core.serialize import BytesDeserializationContext, DeserializationError
    from opentimestamps.core.timestamp import Timestamp

    reply = exchange(address, question, timeout_s=_TIMEOUT_S, limit_bytes=_LIMIT_BYTES)
    context = BytesDeserializationContext(reply)
    try:
        found = Timestamp.deserialize(context, digest)
        context.assert_eof()
    except (DeserializationError, ValueError):
        raise SealError(f"the reply of {address} is not a proof", required="the reply of a calendar") from None
    return found


def _read(stored: bytes) -> DetachedTimestampFile:
    from opentimestamps.core.serialize import BytesDeserializationContext, DeserializationError
    from opentimestamps.core.timestamp import DetachedTimestampFile

    try:
        return DetachedTimestampFile.deserialize(BytesDeserializationContext(stored))
    except (DeserializationError, ValueError):
        raise SealError("is not an OpenTimestamps proof", required="a proof as a calendar made it") from None


def _bytes(proof: DetachedTimestampFile) -> bytes:
    from opentimestamps.core.serialize import BytesSerializationContext

    context = BytesSerializationContext()
    proof.serialize(context)
    data: bytes = context.getbytes()
    return data


def _blocks(proof: DetachedTimestampFile) -> list[tuple[int, str]]:
    """Height and merkle root, as block explorers print it, of every block that a path ends in."""
    from opentimestamps.core.notary import BitcoinBlockHeaderAttestation

    return [
        (found.height, message[::-1].hex())
        for message, found in proof.timestamp.all_attestations()
        if isinstance(found, BitcoinBlockHeaderAttestation) and len(message) == 32 and found.height < _HIGHEST_BLOCK
    ]


def _promises(stamped: Timestamp) -> Iterator[tuple[Timestamp, str]]:
    """Every place of a proof where a calendar promises the rest, with the calendar's address."""
    from opentimestamps.core.notary import PendingAttestation

    for found in stamped.attestations:
        if isinstance(found, PendingAttestation):
            yield stamped, found.uri
    for below in stamped.ops.values():
        yield from _promises(below)


def _is_listed(address: str, calendars: Sequence[str]) -> bool:
    if address in calendars:
        return True
    parts = urllib.parse.urlsplit(address)
    known = any(fnmatch.fnmatch(parts.netloc, pattern) for pattern in _KNOWN_HOSTS)
    return parts.scheme == "https" and parts.path in ("", "/") and known
