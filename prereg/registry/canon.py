"""Canonical bytes (RFC 8785) and sha256: the same content always has the same hash.

Three traps. RFC 8785 writes `1.0` as `1`, so a value read back may be an int. It refuses integers from
2^53 on, and NaN and infinities: they raise. And it writes the float 1e17 as `100000000000000000`, which
`json.loads` takes for an integer that canonical JSON cannot hold: read canonical bytes with `from_canonical`.
"""

from __future__ import annotations

import hashlib
import json
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

import rfc8785


def canonical_bytes(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value. NaN, infinities and integers beyond 2^53 raise.

    >>> canonical_bytes({"b": 1.0, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    return _text(value).encode("utf-8")


def _text(value: Any) -> str:
    """Canonical JSON of everyday values, in a third of the time that `rfc8785` takes; it writes, or refuses, others."""
    kind = type(value)
    if kind is dict and all(type(key) is str for key in value):
        # Keys are ordered by their UTF-16 units. Python orders by code points, which is the same for ASCII.
        keys = sorted(value, key=None if all(map(str.isascii, value)) else _utf16)
        return "{" + ",".join([f"{encode_basestring(key)}:{_text(value[key])}" for key in keys]) + "}"
    if kind is list or kind is tuple:
        return "[" + ",".join(map(_text, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    kind = type(value)
    if kind is str:
        # json escapes what RFC 8785 escapes: quotes, backslashes and what lies before the space.
        return encode_basestring(value)
    if kind is int and abs(value) < 2**53:
        return repr(value)
    # A float between 1e-4 and 1e16 has the same digits in ECMAScript, where 1.0 is 1; others may have an exponent.
    if kind is float and 1e-4 <= abs(value) < 1e16:
        return repr(value).removesuffix(".0")
    if value is None or kind is bool:
        return _LITERALS[value]
    return rfc8785.dumps(value).decode("utf-8")


_LITERALS: dict[bool | None, str] = {None: "null", True: "true", False: "false"}


def _utf16(key: str) -> bytes:
    return key.encode("utf-16be")


def from_canonical(data: bytes) -> Any:
    """The value of canonical bytes, such that `canonical_bytes` of it gives the same bytes again.

    >>> from_canonical(b'{"a":1}'), from_canonical(b"9007199254740992")
    ({'a': 1}, 9007199254740992.0)
    """
    return _DECODER.decode(data.decode("utf-8"))


def _number(text: str) -> int | float:
    value = int(text)
    # An integer from 2^53 on can only be a float that RFC 8785 wrote without a fraction: see the head of this
    # module.
    return value if abs(value) < 2**53 else float(text)


_DECODER = json.JSONDecoder(parse_int=_number)


def sha256_bytes(data: bytes) -> str:
    """Hex sha256.

    >>> sha256_bytes(b"")[:16]
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(data).hexdigest()


def sha256_of(value: Any) -> str:
    """Hex sha256 of the canonical bytes of a JSON value.

    >>> sha256_of({"b": 1.0, "a": 2}) == sha256_of({"a": 2, "b": 1})
    True
    """
    return sha256_bytes(canonical_bytes(value))


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file, read in pieces.

    >>> _ = Path("file").write_bytes(b"abc")
    >>> sha256_file(Path("file")) == sha256_bytes(b"abc")
    True
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
