"""SSH signatures of a lock: `ssh-keygen -Y sign` and `-Y verify`, over its exact bytes.

The program is called and never imitated: agents, hardware keys and certificates are its matter. It gets no
terminal and no window to ask in, so a key that needs a passphrase fails at once instead of waiting for one.
A signature proves that the key's holder signed, not when; whose key it is says `studies/allowed_signers`.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from prereg.errors import SealError, Where
from prereg.program import Answer, Program, ask
from prereg.seals.state import SealResult

NAMESPACE = "ablate-registration"
"""What is signed, so that a signature of something else, such as a commit or a letter, cannot be passed off as one."""

# A hardware key waits for a touch; nothing else takes longer than a moment.
TIMEOUT_S = 60
_KEYGEN = Program(
    "ssh-keygen",
    install="install openssh-client",
    required="OpenSSH 8.9 or newer",
    environment={"SSH_ASKPASS_REQUIRE": "never"},
    without="SSH_ASKPASS|DISPLAY",
    own_session=True,
)
_FINGERPRINT = re.compile(r"with \S+ key (SHA256:[A-Za-z0-9+/]{43})")


@dataclass(frozen=True)
class Signature:
    """A signature and the key that made it."""

    data: bytes
    """The armoured signature, as `ssh-keygen` writes it."""
    fingerprint: str
    """SHA256 fingerprint of the key."""


def sign(message: bytes, key: Path) -> Signature:
    """Sign bytes with a private key, or with the agent's key of a `.pub` file. Raises `SealError`."""
    # What ssh-keygen would say of these two is no help; its other refusals are told apart below.
    if not key.is_file():
        raise SealError(
            "there is no such key",
            required="a private ssh key, or the .pub file of a key that the agent holds",
            fix="ssh-keygen -t ed25519 -f KEY",
            where=Where(file=key),
        )
    if not os.access(key, os.R_OK):
        raise SealError(
            "the key cannot be read",
            required="a key that you may read",
            fix=f"chmod u+r {key}",
            where=Where(file=key),
        )
    done = _keygen("sign", "-n", NAMESPACE, "-f", str(key.absolute()), message=message)
    if not done.is_yes or not done.output.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        raise _refused(key, _said(done))
    # Checked as a stranger would check it, before the signature is handed out.
    fingerprint = _fingerprint(message, done.output)
    if fingerprint is None:
        raise SealError(
            "ssh-keygen made a signature that it does not accept itself",
            required="a key whose signatures can be verified",
            where=Where(file=key),
        )
    return Signature(done.output, fingerprint)


def examine_signature(message: bytes, signature: Path, signers: Path | None, *, at: str) -> SealResult:
    """What a signature is worth. `at` is when the ledger says it was made: a key may have expired since."""
    try:
        fingerprint = _fingerprint(message, signature.read_bytes())
    except SealError as error:
        return SealResult(state="unchecked", says=error.found)
    if fingerprint is None:
        return SealResult(state="broken", says="is not a signature of this lock as a registration")
    by = f"signed by key {fingerprint}"
    if signers is None or not signers.is_file():
        return SealResult(state="unvouched", says=f"{by}, which nobody here vouches for")
    # By the ledger's clock, which the registrant owns: an expiry or a revocation is only as good as that.
    then = f"verify-time={datetime.fromisoformat(at).astimezone(UTC):%Y%m%d%H%M%S}Z"
    named = _keygen("find-principals", "-s", str(signature.absolute()), "-f", str(signers.absolute()), "-O", then)
    principals = named.output.decode("utf-8", "replace").splitlines() if named.is_yes else []
    # A key may be listed under several names: the first that verifies is shown.
    for principal in principals:
        words = ("-n", NAMESPACE, "-f", str(signers.absolute()), "-I", principal, "-s", str(signature.absolute()))
        verified = _keygen("verify", *words, "-O", then, message=message)
        if verified.is_yes:
            shown = "".join(sign for sign in principal if sign.isprintable())
            return SealResult(state="holds", says=f"signed by {shown}, key {fingerprint}")
        named = verified
    why = "" if not principals and _said(named).rstrip(".") == "No principal matched" else f" ({_said(named)})"
    return SealResult(state="unvouched", says=f"{by}, which {signers.name} does not vouch for{why}")


def _fingerprint(message: bytes, signature: bytes) -> str | None:
    """The key of a sound signature of these bytes; none when it is not one."""
    with tempfile.TemporaryDirectory(prefix="ablate-seal-") as folder:
        path = Path(folder) / "signature"
        path.write_bytes(signature)
        done = _keygen("check-novalidate", "-n", NAMESPACE, "-s", str(path), message=message)
    match = _FINGERPRINT.search(done.output.decode("utf-8", "replace"))
    return match.group(1) if done.is_yes and match else None


def _keygen(action: str, *words: str, message: bytes = b"") -> Answer:
    return ask(_KEYGEN, "-Y", action, *words, data=message, seconds=TIMEOUT_S)


def _refused(key: Path, complaint: str) -> SealError:
    where = Where(file=key)
    # By the words of OpenSSH, which LC_ALL=C keeps in English (`prereg.program`).
    if "passphrase" in complaint:
        return SealError(
            "the key is protected by a passphrase, and this verb does not ask for it",
            required="the key in an agent, or a key without a passphrase",
            fix=f"ssh-add {key}",
            where=where,
        )
    if "too open" in complaint:
        return SealError(
            "others may read this private key, and ssh-keygen does not use such a key",
            required="a private key that only you can read",
            fix=f"chmod 600 {key}",
            where=where,
        )
    return SealError(
        f"ssh-keygen cannot sign with this key: {complaint or 'it does not say why'}",
        required="a private ssh key of a known type, or the .pub file of a key that the agent holds",
        fix="ssh-keygen -t ed25519 -f KEY",
        where=where,
    )


def _said(done: Answer) -> str:
    """What the program complained of."""
    return "; ".join(part for part in done.complaint.split("; ") if "Signing data" not in part)
