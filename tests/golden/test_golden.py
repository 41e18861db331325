"""Small whole studies whose numbers do not move: each is registered, its runs come in, and it is decided.

A folder is a case: study.yaml; values.csv, the rows that its trainer replays or that are imported (items.csv: the score
of every item); expected.json, the numbers of each decision. `UPDATE_GOLDEN=1 pytest tests/golden` writes expected.json
anew, for a change that is meant to move a number; the difference is then reviewed by hand. Numbers are equal to the
last digit unless `CLOSE` says why not.
"""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from evidence_factory import make_evidence, with_items
from quiet import QUIET
from verdict_numbers import numbers_of

import ablate as api
from ablate.judge.decide import decide
from ablate.judge.verdict import Decision
from ablate.runner.options import RunOptions
from ablate.verification.verify import verify_target
from prereg.registry.canon import sha256_file
from prereg.registry.looks import looks_of
from prereg.registry.registration import Registration
from prereg.study.designs.per_task import with_tasks
from prereg.study.load import load_study
from prereg.study.spec import study_from_document

HERE = Path(__file__).parent
_INTEGRATED = "boundaries are integrated with numpy's exp, whose last bit is another one on a processor without AVX-512"
CLOSE = {"looks": _INTEGRATED, "looks_pocock": _INTEGRATED}
"""Case -> why its numbers need only agree to 1e-9."""
BEGAN, ENDED = "2026-01-02T06:00:00+00:00", "2026-01-02T07:00:00+00:00"
"""Of every imported run: after the registration, and before the import."""


class Golden:
    """A house with one golden study, and a clock of its own."""

    def __init__(self, case: str, path: Path) -> None:
        self.case, self.path = case, path
        self.study = path / "studies" / f"{case}.yaml"
        self.study.parent.mkdir(parents=True)
        shutil.copy(HERE / case / "study.yaml", self.study)
        shutil.copy(HERE / case / "values.csv", path / "values.csv")
        shutil.copy(HERE / "replay.py", path / "replay.py")
        self._hours = count(3)

    def now(self) -> str:
        hour = next(self._hours)
        return f"2026-01-{2 + hour // 24:02d}T{hour % 24:02d}:00:00+00:00"

    def register(self) -> Registration:
        found, _ = api.register(self.study, workspace=api.Workspace(self.path, clock=self.now))
        # The clock goes on after the times of the runs.
        self._hours = count(8)
        return found

    def bring(
        self, registration: Registration, seeds: Collection[int] | None = None, *, exploratory: bool = False
    ) -> None:
        """Import the runs of some seeds, or all, with a manifest that binds them to the registration."""
        with (self.path / "values.csv").open(encoding="utf-8") as table:
            rows = [row for row in csv.DictReader(table) if seeds is None or int(row["seed"]) in seeds]
        source = self.path / f"import-{next(self._hours)}"
        source.mkdir()
        with (source / "metrics.csv").open("w", encoding="utf-8") as table:
            writer = csv.DictWriter(table, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        cells = sorted({(row["variant"], int(row["seed"])) for row in rows})
        times = {"started_at": BEGAN, "ended_at": ENDED}
        manifest = {
            "registration": registration.sha256,
            "runs": [{"variant": arm, "seed": seed} | times for arm, seed in cells],
            "code": {name: sha256_file(self.path / name) for name in ("replay.py", "values.csv")},
        }
        if not exploratory:
            (source / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        file = source / "metrics.csv" if exploratory else source
        api.import_runs(
            self.study,
            file,
            note="replayed",
            workspace=api.Workspace(self.path, clock=self.now),
            exploratory=exploratory,
        )

    def run(self) -> bool:
        """Whether all runs have ended well by now."""
        options, watcher = RunOptions(slots=1), QUIET
        return api.run(self.study, options, workspace=api.Workspace(self.path, console=watcher)).summary.complete

    def claims(self) -> tuple[str, ...]:
        """The names of its hypotheses."""
        return tuple(load_study(self.study).study.hypotheses)

    def decide(self) -> Decision:
        return api.decide(self.study, workspace=api.Workspace(self.path, clock=self.now)).decision


def imported(golden: Golden) -> Iterator[Decision]:
    """Registered, all runs imported, decided."""
    golden.bring(golden.register())
    yield golden.decide()


def at_looks(golden: Golden) -> Iterator[Decision]:
    """The same at each of its looks, until one settles it."""
    registration = golden.register()
    seeds, here = registration.study.seeds, 0
    for look in looks_of(registration.study):
        golden.bring(registration, seeds[here : look.n_seeds])
        here = look.n_seeds
        yield (decision := golden.decide())
        if decision.status != "continue":
            return


def tuned(golden: Golden) -> Iterator[Decision]:
    """The runs of the pilot first, which choose the settings of the arms."""
    registration = golden.register()
    golden.bring(registration, registration.study.pilot_seeds)
    golden.bring(registration, registration.study.seeds)
    yield golden.decide()


def made(golden: Golden) -> Iterator[Decision]:
    """Run by `ablate run`, as any trainer of one's own; called again where a run was killed."""
    while not golden.run():
        pass
    yield golden.decide()


def exploratory(golden: Golden) -> Iterator[Decision]:
    """Rows that do not say when they were made."""
    golden.bring(golden.register(), exploratory=True)
    yield golden.decide()


def amended(golden: Golden) -> Iterator[Decision]:
    """Runs of two seeds, then an amendment of one claim, then all runs."""
    registration = golden.register()
    golden.bring(registration, (1, 2))
    study = yaml.safe_load(golden.study.read_text(encoding="utf-8"))
    study["hypotheses"]["gain"]["smallest"] = 0.01
    golden.study.write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    registration, _ = api.amend(
        golden.study, reason="a smaller margin", workspace=api.Workspace(golden.path, clock=golden.now)
    )
    golden.bring(registration)
    yield golden.decide()


HISTORIES: dict[str, Callable[[Golden], Iterator[Decision]]] = {
    "amended": amended,
    "exploratory": exploratory,
    "looks": at_looks,
    "looks_pocock": at_looks,
    "resumed": made,
    "run": made,
    "tune": tuned,
}
"""How the runs of a case come about, where they are not imported at once."""

CASES = sorted(path.parent.name for path in HERE.glob("*/values.csv"))
OVER_ITEMS = sorted(path.parent.name for path in HERE.glob("*/items.csv"))


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_of_a_golden_study_have_not_moved(case: str, tmp_path: Path, no_reports: None) -> None:
    golden = Golden(case, tmp_path / "house")
    check(case, [numbers_of(decision) for decision in HISTORIES.get(case, imported)(golden)])


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_golden_study_is_reported_and_verified(case: str, tmp_path: Path) -> None:
    golden = Golden(case, tmp_path / "house")
    *_, decision = HISTORIES.get(case, imported)(golden)
    for name in ("report.md", "report.html"):
        page = (golden.path / "reports" / case / name).read_text(encoding="utf-8")
        missing = [one for one in (decision.verdict or decision.status, *golden.claims()) if one not in page]
        assert not missing, (name, missing)
    assert verify_target(golden.study, golden.path).intact


@pytest.mark.parametrize("case", OVER_ITEMS)
def test_the_numbers_of_a_golden_study_over_items_have_not_moved(case: str) -> None:
    """Scores of items cannot be imported, so these are judged from evidence in memory: items.csv holds every score."""
    scores: dict[tuple[str, int], list[float]] = {}
    with (HERE / case / "items.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    for row in rows:
        scores.setdefault((row["variant"], int(row["seed"])), []).append(float(row["score"]))
    tasks = [task for task, _ in dict.fromkeys((row["task"], row["item"]) for row in rows)]
    document = yaml.safe_load((HERE / case / "study.yaml").read_text(encoding="utf-8"))
    study = study_from_document(with_tasks(document, tuple(dict.fromkeys(tasks))))
    registration, evidence = make_evidence(study)
    check(case, [numbers_of(decide(registration, with_items(registration, evidence, scores, tasks=tasks)))])


def check(case: str, found: list[dict[str, Any]]) -> None:
    """Compare with expected.json, or write it."""
    found = json.loads(json.dumps(found))  # infinities and tuples as JSON has them
    place = HERE / case / "expected.json"
    if os.environ.get("UPDATE_GOLDEN"):
        place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    expected = json.loads(place.read_text(encoding="utf-8"))
    moved = list(differences(expected, found, exact=case not in CLOSE))
    assert not moved, f"{case}: {len(moved)} numbers have moved\n" + "\n".join(moved[:20])


def differences(expected: Any, found: Any, where: str = "", *, exact: bool) -> Iterator[str]:
    """Every place at which two values differ."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        for key in expected:
            yield from differences(expected[key], found[key], f"{where}.{key}", exact=exact)
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for place, (old, new) in enumerate(zip(expected, found, strict=True)):
            yield from differences(old, new, f"{where}[{place}]", exact=exact)
    elif isinstance(expected, float) and isinstance(found, float) and not exact:
        if not math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-12):
            yield f"{where}: {expected!r}, now {found!r}"
    elif expected != found or type(expected) is not type(found):
        yield f"{where}: {expected!r}, now {found!r}"
