"""A repository of studies whose decisions are written by hand: what `ablate ledger` is tested on."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ledger_samples import enter
from prereg_samples import EMBNORM, PIN, changed, load_text

from prereg.registry.canon import sha256_bytes
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.register import amend_study, register_study
from prereg.registry.registration import Pins, load_registration


def day(number: int) -> str:
    return f"2026-01-{number:02d}T00:00:00+00:00"


def named(name: str, text: str) -> str:
    return changed(text, "study: embnorm", f"study: {name}")


def registers(root: Root, name: str) -> None:
    loaded = load_text(root.studies, named(name, EMBNORM), name)
    register_study(root, loaded, pins=Pins(corpus=PIN), design=None, tool={}, at=day(1))


def amends(root: Root, name: str, text: str) -> None:
    loaded = load_text(root.studies, named(name, text), name)
    amend_study(root, loaded, pins=Pins(corpus=PIN), design=None, tool={}, at=day(2), reason="r", evidence="none")


def decides(root: Root, name: str, p: Mapping[str, float | None]) -> None:
    """Write a decision into the ledger, and its verdict file; the smallest p values are called supported."""
    registration = load_registration(root, name)
    assert registration is not None
    findings = [
        {
            "hypothesis": hypothesis,
            "outcome": "supported" if value is not None and value < 0.01 else "inconclusive",
            "n": 5,
            "family": 2,
            "p_support": value,
            "p_support_adjusted": None if value is None else min(1.0, 2 * value),
            "estimate": None if value is None else {"method": "paired_t"},
        }
        for hypothesis, value in p.items()
    ]
    verdict = json.dumps({"findings": findings, "on": 3}).encode()
    body = {"status": "decided", "verdict": "v", "verdict_sha256": sha256_bytes(verdict), "evidence": "e"}
    enter(Ledger(root.ledger), "decided", body, study=name, registration=registration.sha256, at=day(3))
    folder = root.report(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "verdict.json").write_bytes(verdict)


P = {"gain_ln": 0.0001, "gain_rms": 0.2, "harm_ln": 0.004, "harm_rms": None}
"""p of support by hypothesis; the last has no test."""
