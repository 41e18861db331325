"""Timestamps of a real authority, read and checked by openssl; a stranger's, a forged and an odd one are told apart."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from seal_samples import Authority

from prereg.errors import SealError
from prereg.seals.timestamp import examine_timestamp, read

LOCK = b'{\n  "study": "tiny"\n}\n'
SHA256 = hashlib.sha256(LOCK).hexdigest()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tsa") / "one")


@pytest.fixture(scope="module")
def stamped(authority: Authority) -> bytes:
    return authority.stamp(LOCK)


def test_a_timestamp_holds_for_whom_the_reader_vouches(stamped: bytes, authority: Authority) -> None:
    stamp = read(stamped)
    assert stamp.sha256 == SHA256
    found = examine_timestamp(stamped, SHA256, authority.roots)
    assert (found.state, found.says) == (
        "holds",
        f"timestamped at {stamp.time.isoformat()} by an authority of root.pem",
    )


def test_the_command_of_the_documentation_accepts_the_file(
    stamped: bytes, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "reply").write_bytes(stamped)
    (tmp_path / "lock").write_bytes(LOCK)
    words = ["openssl", "ts", "-verify", "-data", "lock", "-in", "reply", "-CAfile", authority.roots]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Verification: OK" in done.stdout + done.stderr


def test_a_stranger_s_timestamp_is_told_and_is_no_fault(stamped: bytes, tmp_path: Path) -> None:
    for roots in (None, tmp_path / "none.pem"):
        found = examine_timestamp(stamped, SHA256, roots)
        assert found.state == "unvouched" and found.says.endswith("an authority that nobody here vouches for")
    namesake = Authority(tmp_path / "namesake")
    found = examine_timestamp(stamped, SHA256, namesake.roots)
    assert found.state == "unvouched"
    assert found.says.endswith("root.pem does not vouch for (unable to get local issuer certificate)")
    assert examine_timestamp(namesake.stamp(LOCK), SHA256, namesake.roots).state == "holds"


def test_a_timestamp_of_other_bytes_is_broken(stamped: bytes, authority: Authority) -> None:
    for roots in (None, authority.roots):
        for data, lock in ((stamped, "0" * 64), (authority.stamp(LOCK, digest="sha512"), SHA256)):
            found = examine_timestamp(data, lock, roots)
            assert (found.state, found.says) == ("broken", "is a timestamp of other bytes")


def test_every_changed_byte_of_the_signed_part_is_noticed(stamped: bytes, authority: Authority) -> None:
    """The signature ends the file."""
    for at in range(len(stamped) - 60, len(stamped), 7):
        changed = stamped[:at] + bytes([stamped[at] ^ 1]) + stamped[at + 1 :]
        assert examine_timestamp(changed, SHA256, authority.roots).state != "holds", at


def test_words_around_a_timestamp_do_not_pass_for_its_time(stamped: bytes, authority: Authority) -> None:
    """The status of a reply is signed by nobody: text in it may look like what openssl prints of the signed part."""
    lie = b"x\nTST info:\nTime stamp: Jan  1 00:00:00 2020 GMT\n"
    text = bytes([0x30, len(lie) + 2, 0x0C, len(lie)]) + lie  # a PKIFreeText of one UTF8String
    status = bytes([0x30, 3 + len(text)]) + b"\x02\x01\x00" + text
    # 30 82 LLLL, then the status of a granted reply: 30 03 02 01 00; then the token.
    assert stamped[:2] == b"\x30\x82" and stamped[4:9] == b"\x30\x03\x02\x01\x00"
    rest = status + stamped[9:]
    forged = b"\x30\x82" + len(rest).to_bytes(2, "big") + rest
    assert read(forged).time == read(stamped).time
    assert (
        examine_timestamp(forged, SHA256, authority.roots).says
        == examine_timestamp(stamped, SHA256, authority.roots).says
    )


def test_what_is_no_timestamp_is_broken_and_refused(stamped: bytes, authority: Authority) -> None:
    for data in (b"", b"<html>hello</html>", stamped[:100], authority.stamp(LOCK, "refuses.cnf")):
        assert examine_timestamp(data, SHA256, authority.roots).says == "is not a timestamp"
        with pytest.raises(SealError, match="openssl reads no timestamp in it"):
            read(data)


def test_roots_that_are_none_are_a_mistake(stamped: bytes, tmp_path: Path) -> None:
    roots = tmp_path / "roots.pem"
    for text in ("", "rubbish", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        roots.write_text(text)
        with pytest.raises(SealError, match="no certificates"):
            examine_timestamp(stamped, SHA256, roots)


def test_without_openssl_a_seal_is_not_checked_and_that_is_said(
    stamped: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    found = examine_timestamp(stamped, SHA256, None)
    assert (found.state, found.says) == ("unchecked", "openssl is not on this machine")
    with pytest.raises(SealError, match="openssl is not on this machine"):
        read(stamped)


def test_a_program_that_is_too_slow_says_nothing_of_the_seal(stamped: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prereg.seals.timestamp.TIMEOUT_S", 0)
    found = examine_timestamp(stamped, SHA256, None)
    assert (found.state, found.says) == ("unchecked", "openssl did not answer within 0 s")
