"""Timestamps by a real authority on loopback: made, stored, checked without a network, and every bad reply."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from seal_samples import Authority, Server, serving

from prereg.errors import SealError, UnreachableError
from prereg.seals import rfc3161

LOCK = b'{\n  "study": "tiny"\n}\n'
SHA256 = hashlib.sha256(LOCK).hexdigest()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tsa") / "one")


@pytest.fixture
def server(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with serving(Server(authority)) as found:
        yield found


def test_a_timestamp_holds_for_whom_the_reader_vouches(server: Server, authority: Authority) -> None:
    stamped = rfc3161.stamp(LOCK, server.address)
    assert abs((datetime.now(UTC) - datetime.fromisoformat(stamped.time)).total_seconds()) < 60
    found = rfc3161.examine(stamped.data, SHA256, authority.roots)
    assert (found.state, found.says) == ("holds", f"timestamped at {stamped.time} by CN=Test Authority")


def test_openssl_itself_accepts_the_file(server: Server, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "reply").write_bytes(rfc3161.stamp(LOCK, server.address).data)
    (tmp_path / "lock").write_bytes(LOCK)
    words = ["openssl", "ts", "-verify", "-data", "lock", "-in", "reply", "-CAfile", authority.roots]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Verification: OK" in done.stdout + done.stderr


def test_without_roots_a_stranger_s_timestamp_is_told_and_is_no_fault(server: Server, tmp_path: Path) -> None:
    stamped = rfc3161.stamp(LOCK, server.address)
    for roots in (None, tmp_path / "none.pem"):
        found = rfc3161.examine(stamped.data, SHA256, roots)
        assert found.state == "unvouched"
        assert found.says.endswith("by CN=Test Authority, whose certificate nobody here vouches for")


def test_another_authority_s_root_does_not_vouch(server: Server, tmp_path: Path) -> None:
    stamped = rfc3161.stamp(LOCK, server.address)
    other = Authority(tmp_path / "other", "Other Authority")
    found = rfc3161.examine(stamped.data, SHA256, other.roots)
    assert found.state == "unvouched"
    assert found.says.endswith("certificate root.pem does not vouch for (unable to get local issuer certificate)")


def test_a_namesake_with_its_own_keys_does_not_pass_for_the_authority(authority: Authority, tmp_path: Path) -> None:
    namesake = Authority(tmp_path / "namesake")
    with serving(Server(namesake)) as server:
        stamped = rfc3161.stamp(LOCK, server.address)
    assert rfc3161.examine(stamped.data, SHA256, namesake.roots).state == "holds"
    assert rfc3161.examine(stamped.data, SHA256, authority.roots).state != "holds"


def test_a_timestamp_of_other_bytes_is_broken(server: Server, authority: Authority) -> None:
    stamped = rfc3161.stamp(LOCK, server.address)
    other = hashlib.sha256(LOCK + b" ").hexdigest()
    for roots in (None, authority.roots):
        assert rfc3161.examine(stamped.data, other, roots).state == "broken"


def test_no_changed_byte_of_what_is_signed_passes(server: Server, authority: Authority) -> None:
    whole = rfc3161.stamp(LOCK, server.address).data
    place = whole.index(hashlib.sha256(LOCK).digest())
    # From the imprint onwards: serial number, time, nonce. Their change breaks the signature, or it puts
    # the time outside the certificate's life, and then nobody vouches for it.
    states = []
    for offset in range(place, place + 70):
        changed = whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :]
        found = rfc3161.examine(changed, SHA256, authority.roots)
        states.append(found.state)
        if found.state == "unvouched":
            assert "expired" in found.says or "not yet valid" in found.says, found.says
    assert set(states) == {"broken", "unvouched"}
    assert states.count("unvouched") <= 14  # the digits of the time
    for spoilt in (b"", b"<html>", whole[:-1], whole + b"x"):
        assert rfc3161.examine(spoilt, SHA256, None).state == "broken"


def test_roots_that_are_no_certificates_are_the_reader_s_mistake(server: Server, tmp_path: Path) -> None:
    stamped = rfc3161.stamp(LOCK, server.address)
    roots = tmp_path / "roots.pem"
    for text in ("", "rubbish", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        roots.write_text(text)
        with pytest.raises(SealError, match="no certificates"):
            rfc3161.examine(stamped.data, SHA256, roots)


def test_the_answer_to_another_question_is_refused(server: Server) -> None:
    rfc3161.stamp(LOCK, server.address)
    server.mood = "replay"  # the same bytes, and so the same hash; only the number sent along differs
    with pytest.raises(SealError, match="answer to another question"):
        rfc3161.stamp(LOCK, server.address)


def test_the_timestamp_of_another_message_is_refused(server: Server) -> None:
    rfc3161.stamp(b"something else", server.address)
    server.mood = "replay"
    with pytest.raises(SealError, match="timestamp of other bytes"):
        rfc3161.stamp(LOCK, server.address)


@pytest.mark.parametrize(
    ("mood", "says"),
    [
        ("refuses", "says rejection: Message digest algorithm is not supported"),
        ("page", "is not a timestamp"),
        ("huge", "more than 262,144 bytes"),
        ("404", "refuses: HTTP 404"),
        ("elsewhere", "sends us elsewhere, to 'http://127.0.0.1:1/other'"),
    ],
)
def test_a_reply_that_is_no_timestamp_is_refused_in_words(mood: str, says: str, server: Server) -> None:
    server.mood = mood
    with pytest.raises(SealError) as caught:
        rfc3161.stamp(LOCK, server.address)
    assert says in caught.value.found
    assert not isinstance(caught.value, UnreachableError)


def test_without_the_extra_it_says_what_to_install_and_checks_the_hash_only() -> None:
    code = (
        "import sys\nsys.modules['rfc3161_client'] = None\n"
        "from prereg.errors import SealError\nfrom prereg.seals import rfc3161\n"
        "print(rfc3161.examine(b'x', '00' * 32, None).state)\n"
        "try:\n    rfc3161.stamp(b'x', 'http://127.0.0.1:1')\n"
        "except SealError as error:\n    print(error.fix)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["unchecked", "pip install 'ablate-prereg[seal]'"]
