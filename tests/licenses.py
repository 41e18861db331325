"""Writes docs/licenses.md: every package that ablate needs at run time, with its version and licence.

    python tests/licenses.py

Reads the metadata of the packages installed under this interpreter, which constraints.txt pins.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licenses.md"
CUDA = ("nvidia-", "cuda-", "triton")
"""What only the CUDA build of torch needs: named in the page's text, so that the page is the same for either build."""

TEXT = """# Licences

ablate is under Apache-2.0. This page lists every package it needs at run time, directly or through another package,
with the version that `constraints.txt` pins and the licence that its metadata state. None is part of the wheel: pip
installs each from its own distribution. The column *for* names the extras that need it; packages of the core are needed
by all. Written by `python tests/licenses.py` on Linux with Python 3.11.

pingouin is GPL-3.0: whoever only runs ablate, or publishes its verdicts and reports, has no obligation from it; whoever
passes on ablate together with pingouin (an image, an installer) must pass on that whole under GPL-3.0's terms.

On Linux the CUDA build of torch also brings the CUDA libraries of NVIDIA (`nvidia-*`, under NVIDIA's own terms) and
triton (MIT); the CPU build brings neither.

"""


def project() -> dict[str, list[str]]:
    """Requirements of pyproject.toml: those of the core under "core", those of each extra but dev under its name."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: needs for name, needs in table["optional-dependencies"].items() if name != "dev"}
    return {"core": table["dependencies"], **extras}


def closure(requirements: Iterable[str], without: tuple[str, ...] = ()) -> dict[str, Distribution]:
    """All installed distributions that these requirements need, by canonical name, but for names that begin so.

    Raises `PackageNotFoundError` where one is not installed.
    """
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    left = [Requirement(one) for one in requirements]
    while left:
        need = left.pop()
        name = canonicalize_name(need.name)
        if name.startswith(without):
            continue
        found[name] = distribution(name)
        for extra in ("", *need.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            below = [Requirement(one) for one in found[name].requires or ()]
            left += [one for one in below if one.marker is None or one.marker.evaluate({"extra": extra})]
    return dict(sorted(found.items()))


def pinned() -> dict[str, str]:
    """The versions of constraints.txt, by canonical name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def licence(of: Distribution) -> str:
    """The licence that a distribution's metadata state: as an expression, else by classifiers, else in words."""
    stated = of.metadata.get("License-Expression")
    if stated:
        return str(stated)
    kinds = [one.rpartition(" :: ")[2] for one in of.metadata.get_all("Classifier") or () if one.startswith("License")]
    kinds = [one for one in kinds if one != "OSI Approved"]
    line = (of.metadata.get("License") or "").strip().split("\n")[0]
    return ", ".join(dict.fromkeys(kinds)) or (line if 0 < len(line) < 60 else "not stated in its metadata")


def page() -> str:
    """The page as it should be."""
    pins, users = pinned(), dict[str, list[str]]()
    all_of: dict[str, Distribution] = {}
    for part, needs in project().items():
        for name, one in closure(needs, CUDA).items():
            all_of[name] = one
            users.setdefault(name, []).append(part)
    rows = ["| package | version | licence | for |", "|---|---|---|---|"]
    for name, one in sorted(all_of.items()):
        whom = "core" if "core" in users[name] else ", ".join(users[name])
        rows.append(f"| {name} | {pins.get(name, 'not pinned')} | {licence(one)} | {whom} |")
    return TEXT + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
