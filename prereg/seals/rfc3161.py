"""Timestamps by RFC 3161: a time-stamping authority signs the hash of a lock together with its own time.

Asking needs a network, checking needs none. The bytes of request and reply are `rfc3161-client`'s matter, an
optional dependency that is loaded when it is needed. Whom to believe is in `studies/timestamp_roots.pem`,
never in the machine's own store: that vouches for web servers, and a check must say the same everywhere. Of an
authority that nobody vouches for only the hash is checked: anyone can make a certificate, so its signature says
nothing more. A timestamp proves that the lock existed by then, not that nobody ran the experiment earlier.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from prereg.errors import SealError, Where
from prereg.seals.exchange import exchange
from prereg.seals.state import SealResult

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from rfc3161_client import TimeStampResponse

_SHA256 = "2.16.840.1.101.3.4.2.1"
_TIMEOUT_S = 30.0
# What OpenSSL says when the signature may be sound and the signer is a stranger to the roots that were given.
_STRANGER = "certificate verify error"
_REASON = re.compile(r"Verify error: ([A-Za-z ,-]+)")
_STATUS = ("granted", "granted with changes", "rejection", "waiting", "revocation warning", "revoked")


@dataclass(frozen=True)
class Timestamp:
    """The reply of an authority."""

    data: bytes
    """The whole reply, as `openssl ts -reply -in FILE -text` reads it."""
    time: str
    """The authority's time, UTC, ISO 8601."""


def require_client() -> None:
    """Raise `SealError` when the optional dependency is not installed."""
    try:
        import rfc3161_client  # noqa: F401
    except ImportError:
        raise SealError(
            "timestamps need a package that is not installed",
            required="rfc3161-client, which the extra 'seal' brings",
            fix="pip install 'ablate-prereg[seal]'",
        ) from None


def stamp(message: bytes, address: str) -> Timestamp:
    """Have bytes time-stamped. Raises `UnreachableError`, or `SealError` when the reply does not match the request."""
    require_client()
    from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

    request = TimestampRequestBuilder(message, HashAlgorithm.SHA256).build()
    reply = exchange(address, request.as_bytes(), sends="application/timestamp-query", timeout_s=_TIMEOUT_S)
    try:
        response = _read(reply)
        faults = _faults(response, request.message_imprint.message)
        if not faults and response.tst_info.nonce != request.nonce:
            faults = ["is the answer to another question: it does not carry the number that was sent along"]
    except ValueError as error:
        faults = [f"is not a timestamp: {_first_line(error)}"]
    if faults:
        raise SealError(f"the reply of {address} {faults[0]}", required="a timestamp of the bytes that were sent")
    return Timestamp(reply, _time(response))


def examine(stored: bytes, lock_sha256: str, roots: Path | None) -> SealResult:
    """What a stored timestamp is worth. Raises `SealError` when the file of roots cannot be read."""
    try:
        require_client()
    except SealError as error:
        return SealResult(state="unchecked", says=f"{error.found}; {error.fix}")
    try:
        response = _read(stored)
        faults = _faults(response, bytes.fromhex(lock_sha256))
        says = "" if faults else f"timestamped at {_time(response)} by {_authority(response)}"
    except ValueError as error:
        faults, says = [f"is not a timestamp: {_first_line(error)}"], ""
    if faults:
        return SealResult(state="broken", says=faults[0])
    if roots is None or not roots.is_file():
        return SealResult(state="unvouched", says=f"{says}, whose certificate nobody here vouches for")
    return _believed(response, lock_sha256, roots, says)


def _believed(response: TimeStampResponse, lock_sha256: str, roots: Path, says: str) -> SealResult:
    """Check the authority's signature and its certificate at the time of the timestamp."""
    from rfc3161_client import VerificationError, VerifierBuilder

    try:
        VerifierBuilder(roots=_certificates(roots)).build().verify(response, bytes.fromhex(lock_sha256))
    except VerificationError as error:
        if _STRANGER in str(error):
            # The chain is looked at before the signature, and as of the stated time: a forged time that lies
            # outside the certificate's life ends here too.
            why = _REASON.search(str(error))
            text = f" ({why.group(1)})" if why else ""
            return SealResult(
                state="unvouched", says=f"{says}, whose certificate {roots.name} does not vouch for{text}"
            )
        return SealResult(state="broken", says=f"is not a timestamp that holds: {_first_line(error)}")
    return SealResult(state="holds", says=says)


def _read(data: bytes) -> TimeStampResponse:
    from rfc3161_client import decode_timestamp_response

    return decode_timestamp_response(data)


def _faults(response: TimeStampResponse, digest: bytes) -> list[str]:
    """Why a reply is no timestamp of this hash, before anything is said of who signed it."""
    if response.status != 0:
        name = _STATUS[response.status] if response.status < len(_STATUS) else f"status {response.status}"
        summary = " ".join("".join(c for c in text if c.isprintable()) for text in response.status_string)
        return [f"says {name}" + (f": {summary}" if summary else "")]
    imprint = response.tst_info.message_imprint
    if imprint.hash_algorithm.dotted_string != _SHA256 or imprint.message != digest:
        return ["is a timestamp of other bytes"]
    return []


def _certificates(path: Path) -> list[Certificate]:
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return load_pem_x509_certificates(path.read_bytes())
    except (ValueError, OSError) as error:
        raise SealError(
            f"no certificates can be read from it: {_first_line(error)}",
            required="certificates of time-stamping authorities, as PEM",
            where=Where(file=path),
        ) from None


def _authority(response: TimeStampResponse) -> str:
    """The subject of the certificate that the signature names. What it says is its maker's word."""
    from cryptography.x509 import load_der_x509_certificate

    signers = {(info.issuer, info.serial_number) for info in response.signed_data.signer_infos}
    for data in response.signed_data.certificates:
        certificate = load_der_x509_certificate(data)
        if (certificate.issuer, certificate.serial_number) in signers:
            plain = "".join(sign for sign in certificate.subject.rfc4514_string() if sign.isprintable())
            return plain or "an authority without a name"
    return "an authority that does not say who it is"


def _time(response: TimeStampResponse) -> str:
    return response.tst_info.gen_time.astimezone(UTC).isoformat()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
