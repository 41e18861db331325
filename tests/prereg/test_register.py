"""Registration: what it freezes, what counts as unchanged, and what a crash or an edit leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_samples import enter
from own_trainer import OwnHouse
from prereg_samples import AT, COMMAND, EMBNORM, NORMPLACE, PIN, changed, house_with, load_text
from quiet import QUIET

import ablate as api
from ablate.runner.options import RunOptions
from ablate.verification.verify import verify_target
from ablate.workspace import Workspace
from prereg.errors import LedgerError, RegistrationError, StudyError
from prereg.registry import register as registering
from prereg.registry.canon import sha256_bytes, sha256_file
from prereg.registry.history import differing_fields, require_unchanged
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Difference, Entry, RegisteredEntry, SameRuns
from prereg.registry.paths import Root
from prereg.registry.register import amend_study, register_study
from prereg.registry.registration import Pins, Registration, load_registration, promise_sha256
from prereg.study.load import Loaded
from prereg.study.spec import Study, study_from_document
from prereg.verification import verify_registration

LATER = "2026-02-03T04:05:06+00:00"
TOOL = {"ablate": "1.0.0"}


def do(root: Root, loaded: Loaded, **given_: Any) -> tuple[Registration, Entry]:
    return register_study(
        root, loaded, **({"pins": Pins(corpus=PIN), "design": {"power": 0.8}, "tool": TOOL, "at": AT} | given_)
    )


def redo(root: Root, loaded: Loaded, **given_: Any) -> tuple[Registration, Entry]:
    return amend_study(
        root,
        loaded,
        **(
            {
                "pins": Pins(corpus=PIN),
                "design": None,
                "tool": TOOL,
                "at": LATER,
                "evidence": "none",
                "reason": "a slip of the pen",
            }
            | given_
        ),
    )


def promise(study: Study) -> str:
    return promise_sha256({"study": study.model_dump(mode="json"), "corpus": None})


def test_a_registration_freezes_the_resolved_study_and_the_ledger_names_its_bytes(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    registration, entry = do(root, loaded)
    assert registration == load_registration(root, "embnorm")
    assert registration.study == loaded.study
    assert registration.source_sha256 == sha256_file(loaded.path)
    assert registration.lock_sha256 == sha256_file(root.lock("embnorm"))
    assert (entry.event, entry.study, entry.registration) == ("registered", "embnorm", registration.sha256)
    assert entry.stated == {
        "lock_sha256": registration.lock_sha256,
        "source_sha256": registration.source_sha256,
        "file": "studies/embnorm.yaml",
    }
    assert verify_registration(root, "embnorm") == []


def test_a_default_that_has_changed_since_changes_no_registered_study(tmp_path: Path) -> None:
    # A file that says nothing of spikes, registered when that meant a limit of 6.
    root, loaded = house_with(tmp_path, NORMPLACE, "normplace")
    assert loaded.study.stable.loss_spike.false_alarms == 0.01
    earlier = {"loss_spike": {"above": 6.0, "window": 20}, "diverged": {"loss_above": 2.0}}
    meant = study_from_document(loaded.study.model_dump(mode="json") | {"stable": earlier})
    registration, _ = do(root, replace(loaded, study=meant))
    assert registration.study.stable.loss_spike.above == 6.0
    require_unchanged(registration, loaded)
    assert do(root, loaded)[0] == registration
    assert Workspace().open(loaded.path).study == registration.study
    with pytest.raises(RegistrationError, match="nothing differs"):
        redo(root, loaded)
    # Other bytes are read as they are now, and the difference is named.
    edited = load_text(loaded.path.parent, NORMPLACE + "# a remark\n", "normplace")
    with pytest.raises(RegistrationError, match=r"stable\.loss_spike\.above \(registered 6\.0"):
        require_unchanged(registration, edited)


def test_the_lock_is_for_people_too_and_holds_every_default(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path, NORMPLACE, "normplace")
    do(root, loaded)
    text = root.lock("normplace").read_text()
    assert text.endswith("}\n")
    document = json.loads(text)
    assert "lock_sha256" not in document
    assert document["study"]["base"]["optim"]["clip"] == 1.0
    assert document["design"] == {"power": 0.8}
    assert (root.studies / ".gitattributes").read_bytes() == (
        b"*.lock.json -text\nledger.jsonl -text merge=union\n*.yaml -text\n*.registration.md -text\n"
        b"*.sig -text\n*.tsr binary\n"
    )
    assert ".ledger.lock" in (root.studies / ".gitignore").read_text()
    assert sorted(p.name for p in root.studies.iterdir()) == [
        ".gitattributes",
        ".gitignore",
        ".ledger.lock",
        "ledger.jsonl",
        "normplace.lock.json",
        "normplace.yaml",
    ]


def test_the_users_own_git_files_are_left_alone(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    (root.studies / ".gitattributes").write_text("# mine\n")
    do(root, loaded)
    assert (root.studies / ".gitattributes").read_text() == "# mine\n"


def test_an_unregistered_study_has_no_registration(tmp_path: Path) -> None:
    root, _ = house_with(tmp_path)
    assert load_registration(root, "embnorm") is None
    assert verify_registration(root, "embnorm") == ["ledger.jsonl: no entry registers 'embnorm'"]


def test_registering_again_changes_nothing(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    first = do(root, loaded)
    before = {path: path.read_bytes() for path in root.studies.iterdir()}
    assert do(root, loaded, at=LATER, tool={}, design=None) == first
    comment = load_text(root.studies, "# a comment\n" + EMBNORM)
    assert do(root, comment, at=LATER) == first
    before[loaded.path] = comment.source_bytes
    assert {path: path.read_bytes() for path in root.studies.iterdir()} == before


def test_a_changed_study_is_refused_with_its_fields_and_both_ways_on(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    registration, _ = do(root, loaded)
    now = load_text(root.studies, changed(changed(EMBNORM, "4, 5]", "4, 5, 6]"), "alpha: 0.05", "alpha: 0.1"))
    for attempt in (lambda: require_unchanged(registration, now), lambda: do(root, now)):
        with pytest.raises(RegistrationError) as caught:
            attempt()
        assert "seeds (registered [1, 2, 3, 4, 5], now [1, 2, 3, 4, 5, 6])" in caught.value.found
        assert "analysis.alpha (registered 0.05, now 0.1)" in caught.value.found
        assert "ablate amend" in caught.value.fix
        assert "copy the file under another name, embnorm_2.yaml, with study: embnorm_2 and seeds: fresh 5" in (
            caught.value.fix
        )
    other = load_text(root.studies, changed(EMBNORM, "alpha: 0.05", "alpha: 0.1"))
    with pytest.raises(RegistrationError) as caught:
        require_unchanged(registration, other)
    assert "under another name" in caught.value.fix and "fresh" not in caught.value.fix
    require_unchanged(registration, loaded)


def test_another_corpus_under_the_same_name_is_a_change(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    do(root, loaded)
    with pytest.raises(RegistrationError, match=r"corpus\.sha256"):
        do(root, loaded, pins=Pins(corpus=PIN.model_copy(update={"sha256": "cd" * 32})))


def test_differing_fields_are_named_one_by_one(tmp_path: Path) -> None:
    old = load_text(tmp_path, EMBNORM).study
    new = load_text(
        tmp_path,
        changed(
            changed(EMBNORM, 'stable(none)"', 'stable(rmsnorm)"'),
            "rmsnorm:   {model.emb",
            "rmsnorm:   {model.layers: 4, model.emb",
        ),
    ).study
    assert [(d.field, d.registered, d.now) for d in differing_fields(old, new)] == [
        ("variants.rmsnorm.model.layers", "(absent)", 4),
        (
            "decision[0].when",
            "refuted(harm_ln) and refuted(harm_rms) and stable(none)",
            "refuted(harm_ln) and refuted(harm_rms) and stable(rmsnorm)",
        ),
    ]
    assert differing_fields(old, old) == []


def test_true_in_place_of_one_is_a_difference(tmp_path: Path) -> None:
    old = load_text(tmp_path, COMMAND, "own").study
    new = load_text(tmp_path, changed(COMMAND, "lr: 1}", "lr: true}"), "own").study
    assert [d.field for d in differing_fields(old, new)] == ["base.optim.lr"]


def test_the_order_of_the_factors_is_part_of_the_promise() -> None:
    # Both factors have levels x and y: swapped, every arm keeps its name and changes its meaning.
    def study(*order: str) -> Study:
        factors = {
            "a": {"x": {"model.layers": 2}, "y": {"model.layers": 3}},
            "b": {"x": {"optim.warmup": 0}, "y": {"optim.warmup": 9}},
        }
        return study_from_document(
            {
                "study": "s",
                "title": "t",
                "baseline": "x-x",
                "seeds": [1, 2],
                "factors": {key: factors[key] for key in order},
                "hypotheses": {"h": {"claim": "x-y lowers val/loss", "smallest": 0.1}},
                "decision": [{"verdict": "v"}],
            }
        )

    one, other = study("a", "b"), study("b", "a")
    assert one.arms["x-y"].overrides != other.arms["x-y"].overrides
    assert promise(one) != promise(other)
    assert [d.field for d in differing_fields(one, other)] == ["factors"]


def test_an_amendment_is_on_the_record(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    first, _ = do(root, loaded)
    now = load_text(root.studies, changed(EMBNORM, "4, 5]", "4, 5, 6]"))
    second, entry = redo(root, now)
    assert (second.previous, second.reason, second.registered_at) == (first.sha256, "a slip of the pen", LATER)
    assert second == load_registration(root, "embnorm")
    assert entry.event == "amended"
    assert entry.amends == first.sha256
    assert entry.evidence == "none"
    assert entry.reason == "a slip of the pen"
    assert entry.differences == (Difference(field="seeds", registered=[1, 2, 3, 4, 5], now=[1, 2, 3, 4, 5, 6]),)
    assert verify_registration(root, "embnorm") == []
    assert do(root, now) == (second, entry)


def test_an_amendment_needs_a_registration_a_reason_and_a_difference(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    with pytest.raises(RegistrationError, match="is not registered"):
        redo(root, loaded)
    do(root, loaded)
    with pytest.raises(RegistrationError, match="nothing differs"):
        redo(root, loaded)
    with pytest.raises(RegistrationError, match="without a reason"):
        redo(root, load_text(root.studies, changed(EMBNORM, "4, 5]", "4, 5, 6]")), reason="  ")
    assert len(Ledger(root.ledger).entries()) == 1


@pytest.mark.parametrize(
    ("events", "stated", "recorded"),
    [
        ([], "none", "none"),
        ([], "runs started", "runs started"),
        (["started"], "none", "runs started"),
        (["sealed"], "outcomes read", "outcomes read"),
        (["started", "peeked"], "none", "outcomes read"),
        (["decided", "started"], "runs started", "outcomes read"),
    ],
)
def test_an_amendment_never_claims_to_know_less_than_the_ledger_shows(
    tmp_path: Path, events: list[Any], stated: str, recorded: str
) -> None:
    root, loaded = house_with(tmp_path)
    registration, _ = do(root, loaded)
    ledger = Ledger(root.ledger)
    for event in events:
        run = {"variant": "none", "seed": 1} if event in ("started", "sealed") else {}
        enter(ledger, event, run, study="embnorm", registration=registration.sha256, at=AT)
    enter(ledger, "peeked", {}, study="another", registration="c" * 64, at=AT)
    _, entry = redo(root, load_text(root.studies, changed(EMBNORM, "4, 5]", "4, 5, 6]")), evidence=stated)
    assert entry.evidence == recorded


def test_a_lock_that_the_ledger_does_not_name_is_no_registration(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    do(root, loaded)
    lock = root.lock("embnorm").read_bytes()
    root.ledger.unlink()
    (fault,) = verify_registration(root, "embnorm")
    assert fault.startswith("embnorm.lock.json: no entry of ledger.jsonl names it: its entries are on another branch")
    # Nor does another take its place: what the ledger held of it may be on another branch.
    for refused in (lambda: load_registration(root, "embnorm"), lambda: do(root, loaded, at=LATER)):
        with pytest.raises(RegistrationError, match=r"no entry of ledger\.jsonl registers 'embnorm'") as error:
            refused()
        assert error.value.fix.startswith("git show BRANCH:./studies/ledger.jsonl | grep -vxFf studies/ledger.jsonl")
    assert root.lock("embnorm").read_bytes() == lock
    assert not root.ledger.exists()


class CrashError(Exception):
    """The machine stops here."""


def crash(*_: object, **__: object) -> None:
    raise CrashError


@pytest.mark.parametrize("before", ["the ledger", "the move"])
def test_a_crash_while_registering_can_be_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    root, loaded = house_with(tmp_path)
    with monkeypatch.context() as patched:
        if before == "the ledger":
            patched.setattr(Ledger, "append", crash)
        else:
            patched.setattr(registering, "move", crash)
        with pytest.raises(CrashError):
            do(root, loaded)
    registered = load_registration(root, "embnorm")
    assert (registered is None) == (before == "the ledger")
    registration, entry = do(root, loaded, at=LATER)
    assert registration.registered_at == entry.at == (LATER if before == "the ledger" else AT)
    assert len(Ledger(root.ledger).entries()) == 1
    assert verify_registration(root, "embnorm") == []


@pytest.mark.parametrize("before", ["the ledger", "the move"])
def test_a_crash_while_amending_keeps_the_old_promise_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    root, loaded = house_with(tmp_path)
    first, _ = do(root, loaded)
    now = load_text(root.studies, changed(EMBNORM, "4, 5]", "4, 5, 6]"))
    with monkeypatch.context() as patched:
        if before == "the ledger":
            patched.setattr(Ledger, "append", crash)
        else:
            patched.setattr(registering, "move", crash)
        with pytest.raises(CrashError):
            redo(root, now)
    registered = load_registration(root, "embnorm")
    assert registered is not None
    if before == "the ledger":
        assert registered == first
        assert redo(root, now)[0].previous == first.sha256
    else:
        assert registered.previous == first.sha256
        assert verify_registration(root, "embnorm") != []  # the lock still lies beside its place
        assert do(root, now)[0] == registered
    assert verify_registration(root, "embnorm") == []
    assert len(Ledger(root.ledger).entries()) == 2


def test_an_edited_lock_is_refused_and_named(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    do(root, loaded)
    lock = root.lock("embnorm")
    good = lock.read_text()
    for bad, found in (
        (changed(good, '"smallest": 0.02', '"smallest": 0.01'), "does not match its content"),
        (changed(good, '"power": 0.8', '"power": 0.9'), "differ from those the ledger names"),
        (good[:-2], "cannot be read"),
        ("[]", "cannot be read"),
        ("{}", "cannot be read"),
        (changed(good, '"power": 0.8', '"power": NaN'), "cannot be read"),
        (changed(good, '"alpha": 0.05', '"alpha": "x"'), "cannot be read"),
    ):
        lock.write_text(bad)
        with pytest.raises(RegistrationError, match=r"cannot be read|hash in the lock|bytes differ"):
            load_registration(root, "embnorm")
        faults = verify_registration(root, "embnorm")
        assert faults, found
        assert all(fault.startswith("embnorm.lock.json: ") for fault in faults)
        assert any(found in fault for fault in faults), (found, faults)
    lock.unlink()
    with pytest.raises(RegistrationError, match="its lock is missing"):
        load_registration(root, "embnorm")
    assert verify_registration(root, "embnorm")[0].startswith("embnorm.lock.json: missing")


def test_verifying_tells_every_fault_and_its_file(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    do(root, loaded)
    enter(Ledger(root.ledger), "started", {}, study="x", registration="0" * 64, at=AT)
    loaded.path.write_bytes(b"# edited\n" + loaded.source_bytes)
    root.ledger.write_bytes(root.ledger.read_bytes().replace(b'"started"', b'"sealed"'))
    root.lock("embnorm").write_bytes(root.lock("embnorm").read_bytes() + b"\n")
    assert [fault.split(":")[0] for fault in verify_registration(root, "embnorm")] == [
        "ledger.jsonl, line 2",
        "embnorm.yaml",
        "embnorm.lock.json",
    ]
    loaded.path.unlink()
    assert any(fault.startswith("embnorm.yaml: missing") for fault in verify_registration(root, "embnorm"))


def test_a_damaged_ledger_still_shows_its_registration_and_takes_no_new_one(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    registration, _ = do(root, loaded)
    enter(Ledger(root.ledger), "started", {}, study="embnorm", registration=registration.sha256, at=AT)
    root.ledger.write_bytes(root.ledger.read_bytes().replace(b'"started"', b'"sealed"'))
    assert load_registration(root, "embnorm") == registration
    other = load_text(root.studies, NORMPLACE, "normplace")
    with pytest.raises(LedgerError, match="line 2"):
        do(root, other)
    assert {path.name for path in root.studies.iterdir() if "normplace" in path.name} == {"normplace.yaml"}
    with pytest.raises(LedgerError, match="line 2"):
        redo(root, load_text(root.studies, changed(EMBNORM, "4, 5]", "4, 5, 6]")))


def test_a_field_that_a_later_version_adds_does_not_break_an_old_hash(tmp_path: Path) -> None:
    # An old lock lacks the field; its hash is taken over what it holds, and the default is filled in after.
    root, loaded = house_with(tmp_path)
    do(root, loaded)
    document = json.loads(root.lock("embnorm").read_text())
    del document["study"]["base"]["model"]["dropout"]
    document["sha256"] = promise_sha256(document)
    data = (json.dumps(document) + "\n").encode()
    root.lock("embnorm").write_bytes(data)
    root.ledger.unlink()
    entry = RegisteredEntry(
        study="embnorm",
        registration=document["sha256"],
        at=AT,
        lock_sha256=sha256_bytes(data),
        source_sha256=document["source_sha256"],
        file="studies/embnorm.yaml",
    )
    Ledger(root.ledger).append(entry)
    registration = load_registration(root, "embnorm")
    assert registration is not None
    require_unchanged(registration, loaded)
    assert verify_registration(root, "embnorm") == []


def test_a_study_outside_the_root_is_not_registered(tmp_path: Path) -> None:
    root, _ = house_with(tmp_path / "house")
    with pytest.raises(RegistrationError, match="lies outside"):
        do(root, load_text(tmp_path, EMBNORM))
    assert not root.ledger.exists()


@pytest.mark.slow
def test_processes_that_register_at_once_make_one_registration(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path)
    program = (
        "import sys\nfrom pathlib import Path\nfrom prereg.study.load import load_study\n"
        "from prereg.registry.register import register_study\nfrom prereg.registry.registration import Pins\n"
        "from prereg.registry.paths import Root\n"
        "r, _ = register_study(Root(Path(sys.argv[1])), load_study(Path(sys.argv[2])), pins=Pins(), design=None,"
        f" tool={{}}, at='{AT}')\nprint(r.sha256)\n"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(root.path), str(loaded.path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    said = {process.communicate(timeout=150)[0] for process in running}
    assert len(said) == 1
    assert len(Ledger(root.ledger).entries()) == 1
    assert verify_registration(root, "embnorm") == []


EDITS = st.sampled_from(
    [
        (("seeds",), [1, 2, 3]),
        (("seeds",), [5, 4, 3, 2, 1]),
        (("title",), "Another"),
        (("baseline",), "rmsnorm"),
        (("base", "model", "layers"), 4),
        (("base", "optim", "lr"), 1e-4),
        (("base", "optim", "lr"), 1e-3),
        (("base", "model", "tie_embeddings"), False),
        (("analysis", "alpha"), 0.01),
        (("analysis", "test"), "sign_flip"),
        (("analysis", "also"), []),
        (("measure", "every"), 50),
        (("hypotheses", "gain_ln", "smallest"), 0.03),
        (("hypotheses", "gain_ln", "role"), "secondary"),
        (("hypotheses", "harm_ln", "smallest"), 0.03),
        (("stable", "loss_spike", "above"), 5.0),
        (("tie_breakers",), []),
        (("variants", "layernorm"), {"model.layers": 2}),
        (("decision",), [{"verdict": "a", "when": "supported(gain_ln)"}, {"verdict": "b"}]),
        (("decision",), [{"verdict": "b", "when": "supported(gain_ln)"}, {"verdict": "a"}]),
    ]
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(EDITS, max_size=3), st.lists(EDITS, max_size=3))
def test_studies_that_mean_different_things_never_share_a_hash(one: list[Any], other: list[Any]) -> None:
    from prereg.yaml_reader import parse_yaml

    def edited(edits: list[Any]) -> Study | None:
        document: Any = parse_yaml(EMBNORM.encode(), {})
        for path, value in edits:
            place = document
            for part in path[:-1]:
                place = place[part]
            place[path[-1]] = value
        try:
            return study_from_document(document)
        except StudyError:
            return None

    a, b = edited(one), edited(other)
    if a is not None and b is not None:
        assert (promise(a) == promise(b)) == (a == b)
        assert (differing_fields(a, b) == []) == (a == b)


@pytest.mark.slow
def test_a_study_with_the_seeds_of_another_says_so_in_ledger_and_report(own_house: OwnHouse) -> None:
    own_house.register()
    own_house.register(study="follow", seeds=[3, 4, 5])
    follow = own_house.path / "studies" / "follow.yaml"
    entries = Ledger(Root(own_house.path).ledger).entries()
    (registered,) = [entry for entry in entries if entry.study == "follow" and entry.event == "registered"]
    assert registered.same_runs_as == {"own": SameRuns(arms=("slow", "fast"), seeds=(3,), known="registered")}
    assert next(entry for entry in entries if entry.study == "own").same_runs_as == {}
    api.run(follow, RunOptions(), workspace=api.Workspace(console=QUIET))
    api.decide(follow)
    page = (own_house.path / "reports" / "follow" / "report.md").read_text(encoding="utf-8")
    assert "the same seeds as own (slow and fast, seeds 3), which was registered by then" in page
    assert verify_target(follow).intact
