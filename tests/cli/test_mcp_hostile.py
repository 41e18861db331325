"""`ablate mcp` among faults: lines that are no call, values that no command takes, damage, kills, two servers, and what
an open proposal must not show."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
import test_mcp
from test_mcp import CAMPAIGN, ROOT, Agent, connected, ledger, talk
from test_propose import TRAINER

project = test_mcp.project  # the fixture
INITIALIZE = {
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
UNTIL_ENDED_S = 120.0


class Pipe:
    """A server, and its standard streams without the client of the SDK."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._number = 100

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a request of the protocol."""
        self._number += 1
        body = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.write(json.dumps(body).encode())
        answer = self.read()
        assert answer["id"] == self._number, answer
        return answer

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What a tool answers."""
        facts: dict[str, Any] = self.request("tools/call", name=tool, arguments=arguments)["result"][
            "structuredContent"
        ]
        return facts


@contextmanager
def piped(project: Path, *before: str) -> Iterator[Pipe]:
    """A server by its pipes, killed at the end if it still lives; `before` are words of a program that starts it."""
    words = [*before, sys.executable, "-m", "ablate", "mcp", CAMPAIGN, "--jobs", "1"]
    process = subprocess.Popen(
        words,
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield Pipe(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def shaken(pipe: Pipe) -> Pipe:
    """The same after the handshake."""
    pipe.request(**INITIALIZE["params"], method="initialize")  # type: ignore[arg-type]
    pipe.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
    return pipe


def with_gate(project: Path, before: str = "", waiting: str = "True") -> Path:
    """Make runs wait for a file, where `waiting` is true in the trainer; returns its path."""
    gate = project / "go"
    waits = f"{before}\nwhile {waiting} and not os.path.exists({str(gate)!r}):\n    time.sleep(0.05)\n"
    source = TRAINER.replace("import json,", "import time, json,").replace("seed = ", f"{waits}seed = ", 1)
    (project / "train.py").write_text(source, encoding="utf-8")
    return gate


def processes_in(project: Path) -> list[int]:
    """Processes whose working folder is in the project."""
    process_ids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cwd").readlink().is_relative_to(project):
                process_ids.append(int(folder.name))
        except OSError:
            continue
    return process_ids


async def ended(agent: Agent) -> dict[str, Any]:
    """The end of the open proposal."""
    answer = await agent.call("decide", wait_s=UNTIL_ENDED_S)
    while answer["answer"] == "running":
        answer = await agent.call("decide", wait_s=UNTIL_ENDED_S)
    return answer


def events(project: Path) -> Counter[str]:
    return Counter(entry["event"] for entry in ledger(project))


# Line -> the number that its answer has, and its code.
NO_CALLS: dict[bytes, tuple[int | None, int]] = {
    b"{": (None, types.PARSE_ERROR),
    b"": (None, types.PARSE_ERROR),
    b"\xff\xfe\x00": (None, types.PARSE_ERROR),
    b"[" * 100_000: (None, types.PARSE_ERROR),
    b"[]": (None, types.INVALID_REQUEST),
    b"null": (None, types.INVALID_REQUEST),
    b'{"jsonrpc": "1.0", "id": 1, "method": "tools/list"}': (1, types.INVALID_REQUEST),
    b'{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": []}': (2, types.INVALID_REQUEST),
    # Half a character, which JSON can write and no text holds: the client waits for the answer to 3.
    b'{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "\\ud800"}}': (3, types.PARSE_ERROR),
    b'{"jsonrpc": "2.0", "id": 4, "method": "tools/burn"}': (4, types.METHOD_NOT_FOUND),
    b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": 5}}': (5, types.INVALID_PARAMS),
    b'{"jsonrpc": "2.0", "id": 6, "method": "tools/call"}': (6, types.INVALID_PARAMS),
    b'{"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": {}}': (7, types.INVALID_PARAMS),
}


@pytest.mark.slow
def test_a_line_that_is_no_call_gets_an_error_and_the_next_call_its_answer(project: Path) -> None:
    with piped(project) as pipe:
        # Before the handshake too.
        pipe.write(b"not json")
        assert pipe.read()["error"]["code"] == types.PARSE_ERROR
        shaken(pipe)
        for line, (number, code) in NO_CALLS.items():
            pipe.write(line)
            answer = pipe.read()
            assert (answer["id"], answer["error"]["code"]) == (number, code), line[:80]
        assert pipe.call("describe")["campaign"] == "night"
        # An answer to nothing, and the end of a call that was never made, are no calls either: they get no answer.
        pipe.write(b'{"jsonrpc": "2.0", "id": 8, "result": {}}')
        pipe.write(b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}')
        assert pipe.call("status")["open"] is None
        # The end of standard input is the end of the server.
        assert pipe.process.stdin is not None
        pipe.process.stdin.close()
        assert pipe.process.wait(timeout=60) == 0


# Tool, arguments -> how the first mistake begins.
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("Describe", {}, "no tool 'Describe'"),
    ("propose --give-up x", {}, "no tool 'propose --give-up x'"),
    ("describe", {"campaign": "../other.yaml"}, "campaign: no such argument"),
    ("propose", {"settings": ["gain"], "why": "x"}, "settings: ['gain']"),
    ("propose", {"settings": {"gain": {"more": 1}}, "why": "x"}, "settings.gain: {'more': 1}"),
    ("propose", {"settings": {"gain=0.3,speed": 1}, "why": "x"}, "settings.gain=0.3,speed: "),
    ("propose", {"settings": {"": 1}, "why": "x"}, "settings.: "),
    ("propose", {"settings": {"gain": 0.3}, "why": 3}, "why: 3"),
    ("propose", {"settings": {"gain": 0.3}, "why": ""}, "why: ''"),
    ("propose", {"settings": {"gain": 0.3}, "why": " "}, "a proposal without a reason"),
    ("propose", {"settings": {"gain": 0.3}, "why": "a\0b"}, "why: 'a\\x00b'"),
    ("propose", {"settings": {"gain": 0.3}, "why": "x" * 1_000_000}, "why: 'xxx"),
    ("propose", {"settings": {"gain": 0.3}}, "a proposal without a reason"),
    ("propose", {"settings": {"--jobs": 9}, "why": "x"}, "'--jobs' is not a field of the base"),
    ("propose", {"why": "--set=gain=0.3"}, "no change is named"),
    ("propose", {"commit": "--output=x", "why": "x"}, f"{CAMPAIGN}:"),
    ("propose", {"give_up": "--set=gain=0.3"}, "no proposal of 'night' is open"),
    ("decide", {"wait_s": "3"}, "wait_s: '3'"),
    ("decide", {"wait_s": 1e9}, "wait_s: 1000000000.0"),
    ("decide", {"wait_s": True}, "wait_s: True"),
    ("decide", {}, "no change is named"),
    ("confirm", {"seeds": 1}, "seeds: 1"),
    ("confirm", {"seeds": 2.5}, "seeds: 2.5"),
    ("confirm", {}, f"{CAMPAIGN}: 'night' has kept no change"),
    ("history", {"wait_s": 1}, "wait_s: no such argument"),
]


@pytest.mark.slow
def test_what_no_command_takes_is_refused_with_its_parts_and_nothing_is_begun(project: Path) -> None:
    async def stumbles(agent: Agent) -> None:
        for tool, arguments, found in WRONG:
            mistake = await agent.refused(tool, **arguments)
            assert mistake["found"].startswith(found), (tool, str(arguments)[:80], mistake)
            assert mistake["required"] and len(json.dumps(mistake)) < 1000
        assert (await agent.call("history"))["proposals"] == []

    talk(project, stumbles)
    assert not list(project.glob("studies/night-*")) and not (project / "data").exists()


@pytest.mark.slow
def test_damage_and_a_full_disk_are_named_by_every_call_and_repaired_under_way(project: Path) -> None:
    async def night(agent: Agent) -> None:
        assert (await agent.settled(settings={"gain": 0.3}, why='- it\'s a "reason"\n--jobs=9'))["answer"] == "keep"
        path = project / "studies" / "ledger.jsonl"
        held = path.read_bytes()
        path.write_bytes(held.replace(b'"keep"', b'"drop"'))
        for tool, arguments in (("describe", {}), ("status", {}), ("history", {}), ("decide", {}), ("confirm", {}),
                                ("propose", {"settings": {"gain": 0.5}, "why": "x"})):  # fmt: skip
            mistake = await agent.refused(tool, **arguments)
            assert "ledger.jsonl" in mistake["found"] and "restore" in mistake["try"], tool
        # Nothing can be read of it, and the campaign's own file can.
        addresses = [str(resource.uri) for resource in (await agent.session.list_resources()).resources]
        assert addresses == ["ablate://campaign"]
        path.write_bytes(held)
        (project / CAMPAIGN).rename(project / "away.yaml")
        assert CAMPAIGN in (await agent.refused("describe"))["found"]
        (project / "away.yaml").rename(project / CAMPAIGN)
        (entry,) = (await agent.call("history"))["proposals"]
        assert (entry["end"], entry["why"]) == ("keep", '- it\'s a "reason"\n--jobs=9')

    talk(project, night)
    # A disk that takes 4 KiB: the answer of a tool fits, and the files of a proposal do not.
    full = project / "full.py"
    limit = "import os, resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))\n"
    full.write_text(f"{limit}os.execv(sys.argv[1], sys.argv[1:])\n", encoding="utf-8")
    before = events(project)
    with piped(project, sys.executable, str(full)) as pipe:
        shaken(pipe)
        refused = pipe.call("propose", settings={"gain": 0.6}, why="x", wait_s=60)
        assert refused["errors"][0]["required"] == "a disk with room", refused
        assert pipe.call("status")["open"] is None
    assert events(project) == before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_is_killed_loses_nothing_and_another_goes_on(project: Path, number: signal.Signals) -> None:
    gate = with_gate(project)

    async def goes_on(agent: Agent) -> None:
        with piped(project) as pipe:
            shaken(pipe)
            assert pipe.call("propose", settings={"gain": 0.3}, why="x", wait_s=0)["answer"] == "running"
            while not (health := pipe.call("status")).get("runs", {}).get("running"):
                time.sleep(0.1)
            # Two servers: what one of them carries out the other waits for, and neither begins another.
            waiting = await agent.call("decide", wait_s=0)
            assert (waiting["answer"], waiting["working"], waiting["open"]) == ("running", True, health["open"])
            busy = await agent.refused("propose", settings={"gain": 0.4}, why="x")
            assert "proposal 1 has not ended" in busy["found"]
            assert "is being run by another process" in (await agent.refused("propose", give_up="x"))["found"]
            pipe.process.send_signal(number)
            pipe.process.wait(timeout=60)
        if number == signal.SIGTERM:
            assert pipe.process.returncode == 130
            # Its child has stopped the runs, and nothing is left but the other server.
            assert len(processes_in(project)) == 1
            assert not (await agent.call("status"))["working"]
        gate.touch()
        answer = await ended(agent)
        assert (answer["answer"], answer["number"]) == ("keep", 1)

    talk(project, goes_on)
    assert [events(project)[event] for event in ("opened", "proposed", "registered", "sealed")] == [1, 1, 1, 6]
    assert [entry["body"]["outcome"] for entry in ledger(project) if entry["event"] == "staged"] == ["keep"]
    words = [sys.executable, "-m", "ablate", "verify", CAMPAIGN, "--quiet"]
    assert subprocess.run(words, cwd=project, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode == 0


@pytest.mark.slow
def test_what_a_trainer_prints_is_shown_after_the_end_and_a_proposal_at_work_is_given_up(project: Path) -> None:
    # The first run of the proposal prints its loss and fails, and the second waits for ever.
    begun = f"gain > 0.0 and open({str(project / 'begun')!r}, 'a').write('r')"
    first = (
        f"if {begun} and os.path.getsize({str(project / 'begun')!r}) == 1:\n    sys.exit(f'loss {{3.0 - gain:.4f}}')"
    )
    with_gate(project, first, waiting="gain > 0.0")

    async def gives_up(agent: Agent) -> None:
        answers = [await agent.call("propose", settings={"gain": 0.3}, why="x", wait_s=0)]
        while not answers[-1].get("failed"):
            answers.append(await agent.call("status"))
        answers += [await agent.call("decide", wait_s=0), await agent.call("describe"), await agent.call("history")]
        addresses = [str(resource.uri) for resource in (await agent.session.list_resources()).resources]
        read = [json.dumps(answers), *[await agent.resource(address) for address in addresses]]
        assert "exit status 1" in read[0] and not [text for text in read if "2.7000" in text]
        dropped = await agent.call("propose", give_up="it fails", wait_s=UNTIL_ENDED_S)
        assert (dropped["answer"], dropped["decision"]) == ("drop", None)
        assert "loss 2.7000" in dropped["failed"][0]["error"]
        status = await agent.call("status")
        assert (status["working"], status["open"]) == (False, None)

    talk(project, gives_up)
    assert events(project)["staged"] == 1


@pytest.mark.slow
def test_of_a_confirmation_at_work_there_is_health_alone(project: Path) -> None:
    source = TRAINER.replace("import json,", "import time, json,")
    waits = f"""
open({str(project / "runs")!r}, "a").write("r")
while os.path.getsize({str(project / "runs")!r}) > 9 and not os.path.exists({str(project / "go")!r}):
    time.sleep(0.05)
"""
    # Six runs of the proposal, and three of the confirmation; the fourth waits.
    (project / "train.py").write_text(source.replace("seed = ", f"{waits}seed = ", 1), encoding="utf-8")

    async def night(agent: Agent) -> None:
        assert (await agent.settled(settings={"gain": 0.3}, why="x"))["answer"] == "keep"
        answers = [await agent.call("confirm", seeds=3, wait_s=0)]
        while answers[-1].get("runs", {}).get("done", 0) < 3:
            answers.append(await agent.call("status"))
        assert answers[-1]["open"] == {"kind": "confirmation", "number": 1, "study": "night-confirm1"}
        answers.append(await agent.call("confirm", seeds=3, wait_s=0))
        assert "`confirm` is at work" in (await agent.refused("propose", settings={"gain": 0.5}, why="x"))["found"]
        answers += [await agent.call("history"), await agent.call("describe")]
        addresses = [str(resource.uri) for resource in (await agent.session.list_resources()).resources]
        assert "ablate://report/night-confirm1" not in addresses
        read = [json.dumps(answers), *[await agent.resource(address) for address in addresses]]
        rows = [
            json.loads(row)
            for file in project.glob("data/runs/night-confirm1/**/metrics.jsonl")
            for row in file.read_text(encoding="utf-8").splitlines()
        ]
        values = {repr(row["value"])[:7] for row in rows if row["metric"] == "val/loss"}
        assert len(values) == 3 and not [value for value in values if any(value in text for text in read)]
        (project / "go").touch()
        answer = await agent.call("confirm", seeds=3, wait_s=UNTIL_ENDED_S)
        assert (answer["answer"], (await agent.call("status"))["open"]) == ("confirmed", None)

    talk(project, night)


@pytest.mark.slow
def test_a_client_with_a_name_that_no_command_takes_can_propose(project: Path) -> None:
    name = "\0--set=gain=9 " + "x" * 300_000

    async def main() -> None:
        async with connected(project, name) as agent:
            assert (await agent.settled(settings={"gain": 0.3}, why="x"))["answer"] == "keep"

    anyio.run(main)
    (entry,) = [entry["body"] for entry in ledger(project) if entry["event"] == "proposed"]
    assert len(entry["by"]) <= 200 and "--set=gain=9 xxx" in entry["by"] and "\0" not in entry["by"]
