"""What was published, as files next to this module, and how a number is compared with a printed one."""

from __future__ import annotations

import csv
from math import floor, log10
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ALPHA = 0.01
"""The level of both contests, one-sided."""
SAME_DOUBLE = 10
"""Significant digits in which two programs agree on one t test: losses near 2.92 that differ by 0.001 lose four of the
sixteen digits of a double, and p several more."""


def read_rows(name: str) -> list[dict[str, str]]:
    """The rows of a file of `published/`."""
    with (FOLDER / "published" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def rounds_to(p: float, printed: str) -> bool:
    """Whether a p value, written with the digits of a printed one, is that text.

    >>> rounds_to(7.4e-31, "0.0000"), rounds_to(0.0003106, "0.0003"), rounds_to(8.148e-06, "8.15e-06")
    (True, True, True)
    """
    mantissa, _, exponent = printed.partition("e")
    decimals = len(mantissa.partition(".")[2])
    if exponent:
        decimals = min(decimals, SAME_DOUBLE - 1)
        return f"{p:.{decimals}e}" == f"{float(printed):.{decimals}e}"
    # A p of .0032015979421488247 has 17 significant digits, and a double holds 15 to 17 of them.
    decimals = min(decimals, SAME_DOUBLE - 1 - floor(log10(p)))
    return f"{p:.{decimals}f}" == f"{float(printed):.{decimals}f}"


def digits(p: float) -> str:
    """A p value with three significant digits, never 0.

    >>> digits(0.0003106), digits(7.413e-31), digits(0.9999991)
    ('0.000311', '7.41e-31', '0.9999991')
    """
    if p < 1e-4:
        return f"{p:.2e}"
    if p > 0.999:
        # As many digits as keep it apart from 1.
        return f"{p:.{-floor(log10(1 - p))}f}" if p < 1 else "1"
    return f"{p:.{2 - floor(log10(p))}f}"
