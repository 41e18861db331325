"""OpenTimestamps with a calendar on loopback: promised, completed, checked without a network."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from seal_samples import Server, merkle_root, serving

from prereg.errors import SealError, UnreachableError
from prereg.seals import ots

SHA256 = hashlib.sha256(b"a lock").hexdigest()


@pytest.fixture
def calendar(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with serving(Server()) as found:
        yield found


def test_a_new_proof_is_a_promise_and_says_so(calendar: Server) -> None:
    proof = ots.stamp(SHA256, [calendar.address])
    assert not proof.complete
    assert calendar.questions == [("/digest", bytes.fromhex(SHA256))]
    found = ots.examine(proof.data, SHA256)
    assert found.state == "incomplete"
    assert f"promised by {calendar.address}: in no Bitcoin block yet" in found.says


def test_a_promise_is_completed_once_there_is_a_block(calendar: Server) -> None:
    first = ots.stamp(SHA256, [calendar.address])
    waiting = ots.complete(first.data, [calendar.address])
    assert (waiting.data, waiting.complete) == (first.data, False)
    calendar.block = 900_123
    done = ots.complete(first.data, [calendar.address])
    assert done.complete
    found = ots.examine(done.data, SHA256)
    # Whether the block has that root is not known here, and not claimed.
    assert found.state == "unchecked"
    assert f"leads to Bitcoin block 900123; compare its merkle root, {merkle_root(SHA256)}" in found.says


def test_a_proof_of_other_bytes_is_broken(calendar: Server) -> None:
    proof = ots.stamp(SHA256, [calendar.address])
    assert ots.examine(proof.data, "00" * 32).state == "broken"


def test_a_spoilt_proof_is_broken(calendar: Server) -> None:
    whole = ots.stamp(SHA256, [calendar.address]).data
    for spoilt in (b"", b"rubbish", whole[:-1], whole + b"x", b"x" + whole[1:]):
        assert ots.examine(spoilt, SHA256).state == "broken", spoilt


def test_one_calendar_is_enough_and_the_others_are_named(calendar: Server) -> None:
    proof = ots.stamp(SHA256, ["http://127.0.0.1:9", calendar.address])
    assert len(proof.unanswered) == 1
    assert "http://127.0.0.1:9" in proof.unanswered[0]
    assert ots.examine(proof.data, SHA256).state == "incomplete"


@pytest.mark.parametrize("mood", ["503", "page", "huge", "404"])
def test_no_calendar_at_all_is_owed(mood: str, calendar: Server) -> None:
    calendar.mood = mood
    with pytest.raises(UnreachableError, match="none of 1 calendars"):
        ots.stamp(SHA256, [calendar.address])


def test_a_proof_does_not_send_us_to_a_server_of_its_choice(calendar: Server) -> None:
    proof = ots.stamp(SHA256, [calendar.address])
    asked = len(calendar.questions)
    found = ots.complete(proof.data, ["https://a.pool.opentimestamps.org"])
    assert len(calendar.questions) == asked
    assert found.data == proof.data
    assert "not a calendar that is known here" in found.unanswered[0]


def test_what_is_no_proof_cannot_be_completed() -> None:
    with pytest.raises(SealError, match="not an OpenTimestamps proof"):
        ots.complete(b"rubbish", [])


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys\nsys.modules['opentimestamps'] = None\n"
        "from prereg.errors import SealError\nfrom prereg.seals import ots\n"
        "print(ots.examine(b'x', '00' * 32).state)\n"
        "try:\n    ots.stamp('00' * 32, [])\n"
        "except SealError as error:\n    print(error.fix)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["unchecked", "pip install 'ablate-prereg[ots]'"]
