"""One bounded exchange with a server: http or https, no redirect, a limit on time and on size.

It tells two kinds of failure apart. Nobody answers: `UnreachableError`, and the seal is pending. Somebody
answers with something else than requested: `SealError`, which the user has to look at.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.parse
import urllib.request

from prereg.errors import SealError, UnreachableError

TIMEOUT_S = 30.0
LIMIT_BYTES = 256 * 1024
"""A timestamp is about five thousand bytes."""


_HTTPS = "--timestamp https://HOST/PATH"


def require_address(address: str) -> str:
    """The address, if a seal may be requested there. Raises `SealError` before anything is sent."""
    required = "an address that begins with http:// or https://, without a user's name or password"
    try:
        parts = urllib.parse.urlsplit(address)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise SealError(f"{_shown(address)} is not an address", required=required, fix=_HTTPS) from None
    if not sound or not address.isascii() or not address.isprintable() or " " in address:
        raise SealError(f"{_shown(address)} is not an address to ask for a seal", required=required, fix=_HTTPS)
    if parts.username is not None or parts.password is not None:
        raise SealError(
            "the address holds a user's name, which the ledger would keep for ever", required=required, fix=_HTTPS
        )
    return address


def exchange(
    address: str,
    question: bytes | None,
    *,
    sends: str = "application/octet-stream",
    timeout_s: float = TIMEOUT_S,
    limit_bytes: int = LIMIT_BYTES,
) -> bytes:
    """Send bytes (or only ask, where there are none) and return the reply."""
    headers = {"User-Agent": "ablate", **({} if question is None else {"Content-Type": sends})}
    request = urllib.request.Request(require_address(address), data=question, headers=headers)  # noqa: S310
    # Only these handlers: urllib's own set would read file:// and ftp://, and follow a redirect to an address
    # that the ledger does not name.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    # The limit of urllib is one of silence: a server that sends a byte a second would hold us for ever.
    deadline = time.monotonic() + timeout_s
    try:
        with opener.open(request, timeout=timeout_s) as reply:
            data = b""
            while len(data) <= limit_bytes and (piece := reply.read1(limit_bytes + 1 - len(data))):
                data += piece
                if time.monotonic() > deadline:
                    raise TimeoutError
            # Read in pieces, a reply that breaks off looks like one that ends.
            if reply.length and len(data) <= limit_bytes:
                raise http.client.IncompleteRead(data, reply.length)
    except urllib.error.HTTPError as error:
        with error:
            raise _answered(address, error.code, error.headers.get("Location")) from None
    except (TimeoutError, urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        said = f"no whole reply within {timeout_s:g} s" if isinstance(reason, TimeoutError) else str(reason) or "closed"
        raise UnreachableError(
            f"{address} cannot be reached: {said}", required="a network, and a server that answers"
        ) from None
    if len(data) > limit_bytes:
        raise SealError(
            f"{address} sent more than {limit_bytes:,} bytes",
            required="the reply of a server for seals, which is a few thousand bytes",
        )
    return data


def _answered(address: str, code: int, elsewhere: str | None) -> SealError:
    if code >= 500 or code in (408, 429):
        return UnreachableError(f"{address} is out of order: HTTP {code}", required="a server that answers")
    if elsewhere is not None:
        return SealError(
            f"{address} sends us elsewhere, to {_shown(elsewhere)}",
            required="the address that answers itself",
            fix=f"give that address, if you trust it: {_shown(elsewhere)}",
        )
    return SealError(f"{address} refuses: HTTP {code}", required="the address of a server for seals")


def _shown(text: str) -> str:
    """Somebody else's text on one line of ours."""
    plain = "".join(sign if sign.isprintable() else "?" for sign in text)
    return f"'{plain if len(plain) <= 200 else plain[:197] + '...'}'"
