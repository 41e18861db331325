"""Canonical bytes (RFC 8785) and sha256: the same content always has the same hash.

Two traps: RFC 8785 writes `1.0` as `1`, and refuses integers from 2^53 on. Both are properties we
want to be told about, so they are errors or documented here, never worked around in silence.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import rfc8785


def canonical_bytes(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value. NaN, infinities and integers beyond 2^53 raise."""
    return rfc8785.dumps(value)


def sha256_bytes(data: bytes) -> str:
    """Hex sha256."""
    return hashlib.sha256(data).hexdigest()


def sha256_of(value: Any) -> str:
    """Hex sha256 of the canonical bytes of a JSON value."""
    return sha256_bytes(canonical_bytes(value))


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
