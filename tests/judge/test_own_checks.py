"""Claims about own checks: registered code only, never before the decision, and a fault of it is a failure."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import pytest
from evidence_factory import make_evidence, small_study
from prereg_samples import AT, EMBNORM, PIN, load_text
from pydantic import ValidationError

from ablate.judge.audit.user_checks import OWN, Records, run_own_checks
from ablate.judge.decide import decide
from ablate.judge.verdict import Check, Decision
from ablate.records.evidence import Evidence
from prereg.errors import EvidenceError, RegistrationError, SpecError
from prereg.metrics.user_code import pin_checks
from prereg.registry.amendments import affected
from prereg.registry.history import require_unchanged
from prereg.registry.paths import Root
from prereg.registry.register import amend_study, register_study
from prereg.registry.registration import Pins, Registration, load_registration
from prereg.study.measure import OwnCheck
from prereg.verification import verify_registration

HELD = "def look(records):\n    return len(records.runs) == 15, f'{len(records.metrics)} rows'\n"
GAIN = {"val/loss": {"layernorm": -0.06}}


def made(folder: Path, code: str, *, consequence: str = "inadmissible", **also: float) -> tuple[Registration, Evidence]:
    """A study with one check of its own, registered with the code that lies in the folder."""
    (folder / "mine.py").write_text(code, encoding="utf-8")
    checks = [{"name": "looked", "entry_point": "mine:look", "consequence": consequence, **also}]
    registration, evidence = make_evidence(small_study(checks=checks), effects=GAIN, sd=0.002)
    pins = pin_checks(registration.study, folder)
    return registration.model_copy(update={"own_checks": pins}), evidence


def judged(folder: Path, registration: Registration, evidence: Evidence) -> tuple[Decision, Check]:
    found = decide(registration, evidence, partial(run_own_checks, registration, folder=folder))
    return found, next(check for check in found.checks if check.name == OWN + "looked")


def test_a_check_that_holds_says_so_and_the_verdict_stands(tmp_path: Path) -> None:
    found, check = judged(tmp_path, *made(tmp_path, HELD))
    assert found.verdict == "adopt layernorm" and check.passed
    assert check.found.endswith(" rows") and check.required == "what mine:look asks"


@pytest.mark.parametrize(
    ("consequence", "status"),
    [("inadmissible", "inadmissible"), ("deviation", "decided_with_deviations"), ("note", "decided")],
)
def test_a_check_that_fails_has_its_registered_consequence(tmp_path: Path, consequence: str, status: str) -> None:
    code = "def look(records):\n    return False, 'too  many\\ncooks'\n"
    found, check = judged(tmp_path, *made(tmp_path, code, consequence=consequence))
    assert (found.status, check.passed, check.severity, check.found) == (status, False, consequence, "too many cooks")
    assert (OWN + "looked" in found.because) == (status == "inadmissible")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    raise ValueError('no such column')\n", "raised ValueError: no such column"),
        ("    raise SystemExit(0)\n", "raised SystemExit: 0"),
        ("    return None\n", "returned NoneType, and a check returns a bool"),
        ("    return 1\n", "returned int, and a check returns a bool"),
        ("    return (True, 3)\n", "returned tuple, and a check returns a bool"),
        ("    return (True, 'a', 'b')\n", "returned tuple, and a check returns a bool"),
        ("    return False\n", "failed"),
        ("    return False, 'x' * 1000\n", "x" * 297 + "..."),
    ],
)
def test_whatever_is_not_a_clear_yes_has_failed(tmp_path: Path, body: str, said: str) -> None:
    _, check = judged(tmp_path, *made(tmp_path, f"def look(records):\n{body}"))
    assert not check.passed and check.found.startswith(said)


@pytest.mark.parametrize(
    "code",
    [
        "def look(records):\n    while True: pass\n",
        "import time\ntime.sleep(60)\ndef look(records):\n    return True\n",
        "import time\ndef look(records):\n    try: time.sleep(60)\n    except BaseException: return True\n",
    ],
)
def test_a_check_that_does_not_end_is_interrupted_and_has_neither_held_nor_failed(tmp_path: Path, code: str) -> None:
    registration, evidence = made(tmp_path, code, consequence="note", limit_s=0.2)
    began = time.monotonic()
    with pytest.raises(EvidenceError, match=r"the check looked took longer than its limit of 0\.2 s") as refused:
        judged(tmp_path, registration, evidence)
    assert time.monotonic() - began < 30.0
    assert refused.value.required and "limit_s of looked" in refused.value.fix
    assert "mine" not in sys.modules


def test_a_limit_of_a_check_is_written() -> None:
    plain, strict = (OwnCheck(name="looked", entry_point="mine:look", **given) for given in ({}, {"limit_s": 5.0}))
    assert plain.limit_s == 3600.0
    assert strict.model_dump(mode="json")["limit_s"] == 5.0
    assert OwnCheck.model_validate_json(strict.model_dump_json()) == strict
    for wrong in (0.0, -1.0, 604_801.0):
        with pytest.raises(ValidationError):
            OwnCheck(name="looked", entry_point="mine:look", limit_s=wrong)


def test_a_module_that_cannot_be_loaded_has_failed_too(tmp_path: Path) -> None:
    _, check = judged(tmp_path, *made(tmp_path, "import no_such_module_anywhere\n" + HELD))
    assert not check.passed and "ModuleNotFoundError" in check.found


def test_numpys_bool_is_a_bool(tmp_path: Path) -> None:
    code = "def look(records):\n    return (records.metrics['value'] < 1e9).all()\n"
    assert judged(tmp_path, *made(tmp_path, code))[1].passed


def test_a_check_sees_copies_and_what_it_prints_spoils_no_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "def look(records):\n    print('hello')\n    records.metrics['value'] = 0.0\n    return True\n"
    registration, evidence = made(tmp_path, code)
    before = evidence.metrics.copy()
    found, _ = judged(tmp_path, registration, evidence)
    assert before.equals(evidence.metrics) and found.verdict == "adopt layernorm"
    said = capsys.readouterr()
    assert said.out == "" and "hello" in said.err
    assert set(Records.__dataclass_fields__) == {"metrics", "runs", "planned"}


def test_code_that_is_not_the_registered_code_is_not_executed(tmp_path: Path) -> None:
    registration, evidence = made(tmp_path, HELD, consequence="note")
    trap = tmp_path / "executed"
    (tmp_path / "mine.py").write_text(f"open({str(trap)!r}, 'w').close()\n" + HELD, encoding="utf-8")
    found, check = judged(tmp_path, registration, evidence)
    assert (found.status, check.severity) == ("inadmissible", "inadmissible") and not trap.exists()
    assert check.found == "it is not the registered code: mine.py has changed"
    (tmp_path / "mine.py").unlink()
    assert "no module 'mine'" in judged(tmp_path, registration, evidence)[1].found


def test_a_check_that_nobody_ran_is_a_promise_not_kept(tmp_path: Path) -> None:
    registration, evidence = made(tmp_path, HELD, consequence="note")
    found = decide(registration, evidence)
    assert found.status == "inadmissible" and "it was not run" in found.because
    lacking = {"left_out": (("rmsnorm", 5),)}
    unfinished = make_evidence(registration.study, **lacking)[1]  # type: ignore[arg-type]
    assert not [c for c in judged_checks(tmp_path, registration, unfinished) if c.name.startswith(OWN)]


def judged_checks(folder: Path, registration: Registration, evidence: Evidence) -> tuple[Check, ...]:
    return decide(registration, evidence, partial(run_own_checks, registration, folder=folder)).checks


def test_a_look_that_settles_nothing_does_not_say_what_a_check_said(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def look(records):\n    return True, 'layernorm is better'\n")
    study = small_study(
        checks=[{"name": "looked", "entry_point": "mine:look"}],
        seeds=list(range(1, 9)),
        stopping={"looks": [4, 8]},
    )
    later = tuple((arm, seed) for arm in study.arms for seed in range(5, 9))
    registration, evidence = make_evidence(study, sd=0.05, left_out=later)
    registration = registration.model_copy(update={"own_checks": pin_checks(study, tmp_path)})
    found, check = judged(tmp_path, registration, evidence)
    assert found.status == "continue" and check.found == "held"


def test_nothing_is_executed_and_no_package_imported_to_find_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "lab"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "audit.py").write_text("raise RuntimeError('imported')\ndef look(records):\n    return True\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    study = small_study(checks=[{"name": "looked", "entry_point": "lab.audit:look"}])
    pin = pin_checks(study, tmp_path)["looked"]
    assert pin.size_bytes == (package / "audit.py").stat().st_size


def test_a_module_of_a_package_is_run_with_its_relatives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "lab2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "limits.py").write_text("MOST = 15\n")
    (package / "audit.py").write_text(
        "from .limits import MOST\ndef look(records):\n    return len(records.runs) == MOST\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    study = small_study(checks=[{"name": "looked", "entry_point": "lab2.audit:look"}])
    registration, evidence = make_evidence(study)
    registration = registration.model_copy(update={"own_checks": pin_checks(study, tmp_path)})
    assert judged(tmp_path, registration, evidence)[1].passed


@pytest.mark.parametrize(
    ("code", "entry_point", "said"),
    [
        (HELD, "yours:look", "no module 'yours'"),
        (HELD, "mine:see", "defines no function 'see'"),
        ("from os.path import exists as look\n", "mine:look", "defines no function 'look'"),
        ("def look(:\n", "mine:look", "cannot be read as Python"),
        (HELD, "json.nowhere:look", "no module 'json.nowhere'"),
        (HELD, "sys:exit", "no module 'sys'"),
    ],
)
def test_code_that_cannot_be_found_is_a_mistake_with_its_field(
    tmp_path: Path, code: str, entry_point: str, said: str
) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(SpecError, match=said) as caught:
        pin_checks(small_study(checks=[{"name": "looked", "entry_point": entry_point}]), tmp_path)
    assert caught.value.where.field == ("checks", 0, "entry_point")


def test_the_code_is_part_of_the_promise(tmp_path: Path) -> None:
    text = EMBNORM + "checks: [{name: looked, entry_point: 'mine:look'}]\n"
    root, studies = Root(tmp_path), tmp_path / "studies"
    studies.mkdir()
    (studies / "mine.py").write_text(HELD)
    loaded = load_text(studies, text)
    first, _ = register_study(root, loaded, pins=Pins(corpus=PIN), design=None, tool={}, at=AT)
    assert first.own_checks["looked"].entry_point == "mine:look"
    again = load_registration(root, "embnorm")
    assert again == first and verify_registration(root, "embnorm") == []
    require_unchanged(first, loaded)
    (studies / "mine.py").write_text(HELD + "# another\n")
    with pytest.raises(RegistrationError, match=r"own_checks\.looked\.sha256"):
        require_unchanged(first, loaded)
    with pytest.raises(RegistrationError, match=r"own_checks\.looked\.sha256"):
        register_study(root, loaded, pins=Pins(corpus=PIN), design=None, tool={}, at=AT)
    assert "the check 'looked' is not the registered code: mine.py has changed" in verify_registration(root, "embnorm")
    second, entry = amend_study(
        root,
        loaded,
        pins=Pins(corpus=PIN),
        design=None,
        tool={},
        at=AT,
        reason="a better check",
        evidence="runs started",
    )
    assert second.sha256 != first.sha256 and verify_registration(root, "embnorm") == []
    fields = [one.field for one in entry.differences]
    assert fields == ["own_checks.looked.sha256", "own_checks.looked.size_bytes"]
    from prereg.registry.amendments import amendments_of

    assert affected(second.study, amendments_of([entry])).verdict
