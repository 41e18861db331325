"""Sealing a registration end to end: made, named in the ledger, checked; and no mistake changes anything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import House
from ledger_samples import enter
from prereg_samples import AT, EMBNORM, PIN, changed, load_text
from seal_samples import Authority, allow, git, registered, snapshot, ssh_key

from ablate import cli
from ablate.verification.result import Verification
from ablate.verification.seal import Sealing, attest
from ablate.verification.verify import verify_target
from ablate.workspace import HERE, StudyContext, Workspace
from prereg.errors import RegistrationError, SealError
from prereg.registry.ledger import Ledger
from prereg.registry.register import amend_study
from prereg.registry.registration import Pins, Registration
from prereg.seals import git as git_anchor
from prereg.seals import ssh, timestamp
from prereg.seals.examine import SealCheck

PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tsa") / "one")


def stamp(case: StudyContext, authority: Authority, place: Path) -> Path:
    """A timestamp of the lock, as the user got it."""
    place.write_bytes(authority.stamp(case.root.lock(case.study.study).read_bytes()))
    return place


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)  # the pinned text is made up, and the real one is not it
    # openssl, ssh-keygen and git share two cores with whatever else runs here.
    for mechanism in (git_anchor, timestamp, ssh):
        monkeypatch.setattr(mechanism, "TIMEOUT_S", PATIENCE_S)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


def sealed(case: StudyContext, registration: Registration, **asked: object) -> Sealing:
    timed = replace(case, workspace=Workspace(clock=lambda: AT))
    return attest(timed, registration, **asked)  # type: ignore[arg-type]


def verified(case: StudyContext, **trust: Path) -> Verification:
    return verify_target(case.path, case.root.path, **trust)


def check(case: StudyContext, kind: str, **trust: Path) -> SealCheck:
    found = [check for check in verified(case, **trust).seals if check.kind == kind]
    assert len(found) == 1, found
    return found[0]


def events(case: StudyContext) -> list[str]:
    return [entry.event for entry in Ledger(case.root.ledger).entries()]


@pytest.mark.slow
def test_every_seal_is_made_named_in_the_ledger_and_holds(authority: Authority, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "begin")
    case, registration = registered(tmp_path)
    key = ssh_key(tmp_path / "keys")
    allow(key, case.root.allowed_signers)
    case.root.timestamp_roots.write_bytes(authority.roots.read_bytes())
    sealing = sealed(case, registration, sign=key, timestamp=stamp(case, authority, tmp_path / "reply.tsr"))
    assert [told.kind for told in sealing.made] == ["ssh", "rfc3161", "git"]
    assert events(case) == ["registered", *["attested"] * 3]
    short = registration.lock_sha256[:8]
    for suffix in ("sig", "tsr"):
        assert (case.root.studies / f"embnorm.{short}.{suffix}").is_file()
    found = verified(case)
    assert found.intact
    states = {check.kind: check.state for check in found.seals}
    assert states == {"ssh": "holds", "git": "incomplete", "rfc3161": "holds"}
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "registered")
    assert check(case, "git").state == "holds"


def test_strangers_seals_are_no_fault_and_are_told(authority: Authority, tmp_path: Path) -> None:
    case, registration = registered(tmp_path)
    sealed(
        case, registration, sign=ssh_key(tmp_path / "keys"), timestamp=stamp(case, authority, tmp_path / "reply.tsr")
    )
    found = verified(case)
    assert found.intact
    assert all("nobody here vouches for" in check.says for check in found.seals)


def test_a_reader_brings_their_own_trust(authority: Authority, tmp_path: Path) -> None:
    case, registration = registered(tmp_path)
    key = ssh_key(tmp_path / "keys")
    sealed(case, registration, sign=key, timestamp=stamp(case, authority, tmp_path / "reply.tsr"))
    allow(key, tmp_path / "mine")
    assert check(case, "ssh", signers=tmp_path / "mine").state == "holds"
    assert check(case, "rfc3161", roots=authority.roots).state == "holds"
    # A repository that vouches for itself does not convince a reader who does not believe it.
    allow(key, case.root.allowed_signers)
    allow(ssh_key(tmp_path / "keys", "other"), tmp_path / "theirs")
    assert check(case, "ssh", signers=tmp_path / "theirs").state == "unvouched"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["sig", "tsr"])
def test_a_changed_or_missing_seal_is_a_fault_that_names_the_file(
    suffix: str, authority: Authority, tmp_path: Path
) -> None:
    case, registration = registered(tmp_path)
    sealed(
        case, registration, sign=ssh_key(tmp_path / "keys"), timestamp=stamp(case, authority, tmp_path / "reply.tsr")
    )
    path = case.root.seal("embnorm", registration.lock_sha256, f".{suffix}")
    whole = path.read_bytes()
    path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
    spoilt = verified(case)
    assert not spoilt.intact
    [fault] = [fault for item in spoilt.items for fault in item.faults]
    assert fault.startswith(f"studies/{path.name}: its bytes are not those")
    path.unlink()
    [fault] = [fault for item in verified(case).items for fault in item.faults]
    assert fault.startswith(f"studies/{path.name}: is missing")
    path.write_bytes(whole)
    assert verified(case).intact


def test_a_sound_seal_of_another_lock_is_a_fault_even_if_the_ledger_names_it(
    authority: Authority, tmp_path: Path
) -> None:
    case, registration = registered(tmp_path / "one")
    key = ssh_key(tmp_path / "keys")
    other, theirs = registered(tmp_path / "two")
    assert other.root.lock("embnorm").read_bytes() == case.root.lock("embnorm").read_bytes()
    sealed(case, registration, sign=key, timestamp=stamp(case, authority, tmp_path / "reply.tsr"))
    # The same files, put on record for a lock that they were not made for.
    text = changed(EMBNORM, "seeds: [1, 2, 3, 4, 5]", "seeds: [1, 2, 3, 4, 6]")
    loaded = load_text(other.root.studies, text)
    changed_to, _ = amend_study(
        other.root, loaded, pins=Pins(corpus=PIN), design=None, tool={}, at=AT, reason="seeds", evidence="none"
    )
    assert theirs.sha256 != changed_to.sha256
    for entry in Ledger(case.root.ledger).entries():
        if entry.event == "attested":
            file = str(entry.file)
            (other.root.path / file).write_bytes((case.root.path / file).read_bytes())
            body = {**entry.stated, "lock_sha256": changed_to.lock_sha256}
            enter(Ledger(other.root.ledger), "attested", body, study="embnorm", registration=changed_to.sha256, at=AT)
    found = verified(StudyContext(HERE, loaded.path, other.root, loaded)).seals
    assert {check.kind: check.state for check in found} == {"ssh": "broken", "rfc3161": "broken"}


NONSENSE: dict[str, tuple[dict[str, str], str]] = {
    "unknown mechanism": ({"kind": "wax"}, "this version cannot read"),
    "lock of nobody": ({"lock_sha256": "0" * 64, "file": "studies/embnorm.x.sig"}, "never registered"),
    "file elsewhere": ({"file": "../../etc/hostname"}, "names a file that is no seal of this study"),
    "file of another study": ({"file": "studies/other.sig"}, "names a file that is no seal of this study"),
    "no file": ({}, "names a file that is no seal of this study"),
}


@pytest.mark.slow
@pytest.mark.parametrize("nonsense", NONSENSE)
def test_an_entry_that_makes_no_sense_is_a_fault(nonsense: str, tmp_path: Path) -> None:
    case, registration = registered(tmp_path)
    odd, says = NONSENSE[nonsense]
    body = {"kind": "ssh", "lock_sha256": registration.lock_sha256, "by": "me", **odd}
    sha256 = registration.sha256
    enter(Ledger(case.root.ledger), "attested", dict(body), study="embnorm", registration=sha256, at=AT)
    [found] = verified(case).seals
    assert found.state == "broken"
    assert says in found.says
    assert not verified(case).intact


def test_a_seal_that_no_entry_names_is_told(tmp_path: Path) -> None:
    case, registration = registered(tmp_path)
    sealed(case, registration, sign=ssh_key(tmp_path / "keys"))
    lines = case.root.ledger.read_bytes().splitlines(keepends=True)
    case.root.ledger.write_bytes(b"".join(lines[:-1]))
    found = verified(case)
    assert found.seals == ()
    [item] = [item for item in found.unchecked if item.what.startswith("seal ")]
    assert item.what == f"seal studies/embnorm.{registration.lock_sha256[:8]}.sig"
    assert item.unchecked == "not in the ledger: left by a crash, or its end was cut off"


def test_a_timestamp_is_kept_once_and_another_beside_it(authority: Authority, tmp_path: Path) -> None:
    case, registration = registered(tmp_path)
    reply = stamp(case, authority, tmp_path / "reply.tsr")
    assert [told.kind for told in sealed(case, registration, timestamp=reply).made] == ["rfc3161"]
    again = sealed(case, registration, timestamp=reply)
    assert again.made == () and "timestamped by this file already" in again.notes[0]
    (other,) = sealed(case, registration, timestamp=stamp(case, authority, tmp_path / "other.tsr")).made
    assert other.file == f"studies/embnorm.{registration.lock_sha256[:8]}.2.tsr"
    assert len(verified(case).seals) == 2 and verified(case).intact


def test_a_seal_made_after_runs_had_begun_says_so(tmp_path: Path) -> None:
    case, registration = registered(tmp_path)
    one, two = ssh_key(tmp_path / "keys", "one"), ssh_key(tmp_path / "keys", "two")
    sealed(case, registration, sign=one)
    enter(Ledger(case.root.ledger), "started", {}, study="embnorm", registration=registration.sha256, at=AT)
    sealed(case, registration, sign=two)
    assert [check.after_runs for check in verified(case).seals] == [False, True]


NO_SEAL: dict[str, tuple[Callable[[Authority, bytes], bytes], str]] = {
    "a page": (lambda authority, lock: b"<html>hello</html>", "openssl reads no timestamp in it"),
    "a refusal": (lambda authority, lock: authority.stamp(lock, "refuses.cnf"), "openssl reads no timestamp in it"),
    "of other bytes": (lambda authority, lock: authority.stamp(lock + b" "), "a timestamp of other bytes"),
    "a changed one": (lambda authority, lock: authority.stamp(lock)[:-1] + b"!", "its signature fails"),
    "too long": (lambda authority, lock: bytes(timestamp.LARGEST_BYTES + 1), "it cannot be read as a timestamp"),
}


@pytest.mark.parametrize("case", NO_SEAL)
def test_a_file_that_is_no_timestamp_of_the_lock_is_refused_and_nothing_is_written(
    case: str, authority: Authority, tmp_path: Path
) -> None:
    context, registration = registered(tmp_path)
    context.root.timestamp_roots.write_bytes(authority.roots.read_bytes())
    made, says = NO_SEAL[case]
    reply = tmp_path.with_name(f"{tmp_path.name}.tsr")
    reply.write_bytes(made(authority, context.root.lock("embnorm").read_bytes()))
    before = snapshot(context.root)
    key = ssh_key(tmp_path.with_name(f"{tmp_path.name}-keys"))
    with pytest.raises(SealError, match=says):
        sealed(context, registration, sign=key, timestamp=reply)
    assert snapshot(context.root) == before


def test_two_people_sign_and_neither_overwrites_the_other(tmp_path: Path) -> None:
    case, registration = registered(tmp_path)
    one, two = ssh_key(tmp_path / "keys", "one"), ssh_key(tmp_path / "keys", "two")
    first = sealed(case, registration, sign=one).made
    second = sealed(case, registration, sign=two).made
    assert first[0].file != second[0].file
    again = sealed(case, registration, sign=one)
    assert again.made == ()
    assert "already" in again.notes[0]
    assert len(verified(case).seals) == 2
    assert verified(case).intact


def test_an_amendment_keeps_the_seals_of_what_it_replaces(authority: Authority, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    case, registration = registered(tmp_path)
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "registered")
    key = ssh_key(tmp_path.with_name(f"{tmp_path.name}-keys"))
    allow(key, case.root.allowed_signers)
    sealed(case, registration, sign=key, timestamp=stamp(case, authority, tmp_path / "reply.tsr"))
    text = changed(EMBNORM, "seeds: [1, 2, 3, 4, 5]", "seeds: [1, 2, 3, 4, 6]")
    loaded = load_text(case.root.studies, text)
    second, entry = amend_study(
        case.root, loaded, pins=Pins(corpus=PIN), design=None, tool={}, at=AT, reason="seeds", evidence="none"
    )
    assert entry.evidence == "none"  # a seal is no evidence
    case = StudyContext(HERE, loaded.path, case.root, loaded)
    sealed(case, second, sign=key)
    found = verified(case)
    assert found.intact, found
    told = {(check.kind, check.superseded): check.state for check in found.seals}
    # The earlier lock is found in git; a timestamp needs only its hash.
    assert told[("ssh", True)] == "holds"
    assert told[("ssh", False)] == "holds"
    assert told[("rfc3161", True)] == "unvouched"


def test_an_earlier_lock_that_is_nowhere_leaves_its_signature_unchecked(tmp_path: Path) -> None:
    case, registration = registered(tmp_path)
    sealed(case, registration, sign=ssh_key(tmp_path / "keys"))
    loaded = load_text(case.root.studies, changed(EMBNORM, "seeds: [1, 2, 3, 4, 5]", "seeds: [1, 2, 3, 4, 6]"))
    amend_study(case.root, loaded, pins=Pins(corpus=PIN), design=None, tool={}, at=AT, reason="seeds", evidence="none")
    [found] = verified(StudyContext(HERE, loaded.path, case.root, loaded)).seals
    assert (found.state, found.superseded) == ("unchecked", True)
    with pytest.raises(RegistrationError, match="not the one that was registered"):
        sealed(case, registration)


def test_an_amendment_in_the_middle_of_sealing_is_not_sealed_as_what_it_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, registration = registered(tmp_path)
    key, sign = ssh_key(tmp_path / "keys"), ssh.sign

    def slowly(message: bytes, key: Path) -> ssh.Signature:
        loaded = load_text(case.root.studies, changed(EMBNORM, "seeds: [1, 2, 3, 4, 5]", "seeds: [1, 2, 3, 4, 6]"))
        amend_study(
            case.root, loaded, pins=Pins(corpus=PIN), design=None, tool={}, at=AT, reason="seeds", evidence="none"
        )
        return sign(message, key)

    monkeypatch.setattr(ssh, "sign", slowly)
    with pytest.raises(RegistrationError, match="amended while it was being sealed"):
        sealed(case, registration, sign=key)
    assert events(case) == ["registered", "amended"]
    assert list(case.root.studies.glob("*.sig")) == []


def test_git_leaves_seals_alone_unless_the_user_wrote_the_file(tmp_path: Path) -> None:
    case, registration = registered(tmp_path)
    attributes = case.root.studies / ".gitattributes"
    sealed(case, registration, sign=ssh_key(tmp_path / "keys"))
    git(tmp_path, "init", "-q")
    for file, wanted in (("a.sig", "text: unset"), ("a.tsr", "text: unset")):
        assert git(tmp_path, "check-attr", "text", f"studies/{file}").endswith(wanted)
    attributes.write_text("# mine\n")
    sealed(case, registration, sign=ssh_key(tmp_path / "keys", "two"))
    assert attributes.read_text() == "# mine\n"


def test_a_damaged_ledger_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    case, registration = registered(tmp_path)
    case.root.ledger.write_bytes(case.root.ledger.read_bytes().replace(b"embnorm", b"embnorn"))
    before = snapshot(case.root)
    with pytest.raises(Exception, match="ledger"):
        sealed(case, registration, sign=ssh_key(tmp_path.with_name("keys")))
    assert snapshot(case.root) == before


# The verbs.


def ablate(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["ablate", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def locked(folder: Path) -> Path:
    return ssh_key(folder, passphrase="secret")


def rubbish(folder: Path) -> Path:
    path = folder / "rubbish"
    path.parent.mkdir(exist_ok=True)
    path.write_text("not a key\n")
    path.chmod(0o600)
    return path


UNFIT: dict[str, tuple[Callable[[Path], list[str | Path]], str]] = {
    "missing key": (lambda f: ["--sign", f / "none"], "no such key"),
    "key with a passphrase": (lambda f: ["--sign", locked(f)], "ssh-add"),
    "no key at all": (lambda f: ["--sign", rubbish(f)], "cannot sign with this key"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_cannot_seal_is_refused_before_registering(
    case: str, house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    study = house.write()
    before = house.snapshot()
    words, says = UNFIT[case]
    assert ablate(monkeypatch, "register", study, *words(tmp_path / "keys")) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert says in message
    assert house.snapshot() == before


def test_the_verbs_register_seal_and_verify(
    house: House,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    study, key = house.write(), ssh_key(tmp_path / "keys")
    assert ablate(monkeypatch, "seal", study, "--sign", key) == 2
    assert "not registered" in capsys.readouterr().err
    assert ablate(monkeypatch, "register", study, "--sign", key) == 0
    said = capsys.readouterr().out
    assert "registered tiny at" in said
    assert "ssh signature: SHA256:" in said
    assert "no git anchor: the study lies in no git repository" in said
    reply = tmp_path / "reply.tsr"
    assert ablate(monkeypatch, "seal", study, "--timestamp", reply) == 2
    assert "openssl ts -query -data" in capsys.readouterr().err
    reply.write_bytes(authority.stamp((house.path / "studies" / "tiny.lock.json").read_bytes()))
    assert ablate(monkeypatch, "seal", study, "--timestamp", reply) == 0
    assert "RFC 3161 timestamp: openssl ts at 20" in capsys.readouterr().out
    assert ablate(monkeypatch, "verify", study, "--roots", authority.roots) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Held by others: RFC 3161 timestamp, timestamped at 20" in said and "by an authority of root.pem" in said
    assert "not checked, seal studies/tiny." in said, "nobody vouches for the key"
    assert "To check: ablate verify TARGET --signers FILE" in said
    assert ablate(monkeypatch, "verify", study, "--roots", authority.roots, "--all") == 0
    said = capsys.readouterr().out
    assert "holds: tiny, RFC 3161 timestamp, studies/tiny." in said
    assert "No timestamp proves that nobody ran the experiment earlier." in said
    assert all(len(line) <= 80 for line in said.splitlines() if "/" not in line and "head" not in line), said
    [signature] = (house.path / "studies").glob("*.sig")
    signature.write_bytes(signature.read_bytes() + b"\n")
    assert ablate(monkeypatch, "verify", study) == 4
    assert "CHANGED seals: studies/tiny." in capsys.readouterr().out
