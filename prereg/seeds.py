"""Seeds that follow from a text, and the nonce that keeps anyone from knowing them beforehand.

Whoever knows the seeds of a comparison before its content is fixed can search for content that wins on them. So a nonce
is drawn once the content is fixed, goes on record in the entry that announces the comparison, and the seeds follow from
both: nobody could know them before, and everybody can compute them again.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator
from hashlib import sha256


def draw_nonce() -> str:
    """Return 128 random bits as 32 hexadecimal digits."""
    return secrets.token_hex(16)


def seeds_following(of: str, n_seeds: int, used: Collection[int] = ()) -> Iterator[int]:
    """Yield different seeds below 2^31 that follow from a text alone and are none of those used before.

    >>> len(set(seeds_following("a text", 5)))
    5
    """
    drawn = set(used)
    n_used = len(drawn)
    number = 0
    while len(drawn) < n_used + n_seeds:
        # 31 bits: a C int, and what NumPy and PyTorch take alike.
        seed = int.from_bytes(sha256(f"{of} {number}".encode()).digest()[:4]) >> 1
        number += 1
        if seed not in drawn:
            drawn.add(seed)
            yield seed
