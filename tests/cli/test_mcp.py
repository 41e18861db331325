"""`ablate mcp`: every tool, called by the client of the official SDK over standard input and output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
import yaml
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from test_cli import ablate
from test_propose import TRAINER, document

from ablate.cli.options import Exit

ROOT = Path(__file__).parent.parent.parent
CAMPAIGN = "campaigns/night.yaml"


class Agent:
    """A client that is connected."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What a tool answers."""
        result = await self.session.call_tool(tool, arguments)
        assert isinstance(result, types.CallToolResult) and not result.is_error, result
        return self._facts(result)

    async def refused(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The first mistake of a call that is refused."""
        result = await self.session.call_tool(tool, arguments)
        assert isinstance(result, types.CallToolResult) and result.is_error, result
        facts = self._facts(result)
        assert facts["exit_code"] == 2
        first: dict[str, Any] = facts["errors"][0]
        return first

    @staticmethod
    def _facts(result: types.CallToolResult) -> dict[str, Any]:
        (content,) = result.content
        assert isinstance(content, types.TextContent)
        facts: dict[str, Any] = json.loads(content.text)
        assert result.structured_content == facts
        return facts

    async def settled(self, **arguments: Any) -> dict[str, Any]:
        """The end of a proposal, waited for."""
        facts = await self.call("propose", **arguments)
        while facts["answer"] == "running":
            facts = await self.call("decide", wait_s=60.0)
        return facts

    async def resource(self, address: str) -> str:
        result = await self.session.read_resource(address)
        (contents,) = result.contents  # type: ignore[union-attr]
        assert isinstance(contents, types.TextResourceContents)
        return contents.text


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("campaigns", "studies"):
        (tmp_path / folder).mkdir()
    (tmp_path / CAMPAIGN).write_text(yaml.safe_dump(document(), sort_keys=False), encoding="utf-8")
    (tmp_path / "train.py").write_text(TRAINER, encoding="utf-8")
    return tmp_path


@asynccontextmanager
async def connected(project: Path, name: str = "night agent") -> AsyncIterator[Agent]:
    """A server of the campaign, and a client of it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "ablate", "mcp", CAMPAIGN, "--jobs", "1"], cwd=project, env=environment
    )
    async with stdio_client(server) as (reads, writes):
        client = types.Implementation(name=name, version="3")
        async with ClientSession(reads, writes, client_info=client) as session:
            await session.initialize()
            yield Agent(session)


def talk(project: Path, what: Callable[[Agent], Awaitable[None]]) -> None:
    """Say something to a server of its own."""

    async def main() -> None:
        async with connected(project) as agent:
            await what(agent)

    anyio.run(main)


def ledger(project: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in (project / "studies" / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    ]


@pytest.mark.slow
def test_an_agent_tries_changes_and_confirms_the_best(project: Path) -> None:
    async def night(agent: Agent) -> None:
        tools = {tool.name for tool in (await agent.session.list_tools()).tools}
        assert tools == {"describe", "propose", "status", "decide", "history", "confirm"}
        promised = await agent.call("describe")
        assert promised["settings"] == {"gain": 0.0, "speed": 1.0} and promised["proposals_left"] == 10

        kept = await agent.settled(settings={"gain": 0.5}, why="more gain")
        assert (kept["answer"], kept["exit_code"]) == ("keep", 0)
        dropped = await agent.settled(settings={"gain": 0.2}, why="less of it")
        assert (dropped["answer"], dropped["exit_code"]) == ("drop", 9)
        assert (await agent.call("decide"))["number"] == 2  # again, where none is open
        same = await agent.refused("propose", settings={"gain": 0.20}, why="in other words")
        assert "proposal 2 had this code and configuration" in same["found"] and "--again" in same["try"]

        ends = [(each["end"], each["why"]) for each in (await agent.call("history"))["proposals"]]
        assert ends == [("keep", "more gain"), ("drop", "less of it")]
        assert (await agent.call("status")) == {"working": False, "open": None, "proposals": 2}

        confirmed = await agent.call("confirm", seeds=3, wait_s=0)
        while confirmed["answer"] == "running":
            confirmed = await agent.call("confirm", seeds=3, wait_s=60.0)
        assert confirmed["answer"] == "confirmed" and confirmed["total_gain"]["n_seeds"] == 3
        assert confirmed["total_gain"]["gain"] == pytest.approx(0.5, abs=0.01)
        addresses = {str(resource.uri) for resource in (await agent.session.list_resources()).resources}
        assert {"ablate://campaign", "ablate://study/night-p1", "ablate://report/night-confirm1"} <= addresses
        assert yaml.safe_load(await agent.resource("ablate://campaign"))["campaign"] == "night"
        assert "n = 3" in await agent.resource("ablate://report/night-confirm1")

    talk(project, night)
    proposed = [entry["body"] for entry in ledger(project) if entry["event"] == "proposed"]
    assert [entry["by"] for entry in proposed] == ["night agent 3"] * 2
    (confirming,) = (entry["body"] for entry in ledger(project) if entry["event"] == "confirming")
    assert confirming["by"] == "night agent 3"


@pytest.mark.slow
def test_nothing_is_seen_of_an_open_proposal_and_another_server_goes_on_with_it(project: Path) -> None:
    # From the seventh run on they wait for a file: the first stage of three pairs is sealed, and the proposal open.
    waits = f"""
open({str(project / "runs")!r}, "a").write("r")
while os.path.getsize({str(project / "runs")!r}) > 6 and not os.path.exists({str(project / "go")!r}):
    time.sleep(0.05)
"""
    source = TRAINER.replace("import json,", "import time, json,").replace("noise = ", f"{waits}noise = ", 1)
    (project / "train.py").write_text(source, encoding="utf-8")

    async def begins(agent: Agent) -> None:
        # Shown to be a gain, and smaller than what is worth keeping: the next stage follows.
        answers = [await agent.call("propose", settings={"gain": 0.01}, why="a little more", wait_s=0.5)]
        # The seventh has begun: the first stage has ended, and the next one waits.
        while not (project / "runs").is_file() or (project / "runs").stat().st_size <= 6:
            answers.append(await agent.call("status"))
            await anyio.sleep(0.2)
        answers.append(await agent.call("decide", wait_s=0))
        assert {answer["answer"] for answer in answers if "answer" in answer} == {"running"}
        busy = await agent.refused("propose", settings={"gain": 0.7}, why="still more")
        assert "at work" in busy["found"] and busy["try"] == "decide"
        assert "at work" in (await agent.refused("confirm"))["found"]
        answers += [await agent.call("history"), await agent.call("describe"), busy]
        assert answers[-3]["proposals"][0]["end"] is None
        addresses = [str(resource.uri) for resource in (await agent.session.list_resources()).resources]
        assert addresses == ["ablate://campaign", "ablate://study/night-p1"]
        read = [json.dumps(answers), *[await agent.resource(address) for address in addresses]]
        rows = [row for file in project.glob("data/runs/**/metrics.jsonl") for row in file.read_text().splitlines()]
        values = {repr(json.loads(row)["value"])[:7] for row in rows if json.loads(row)["metric"] == "val/loss"}
        assert len(values) == 6
        assert not [value for value in values if any(value in text for text in read)]

    async def goes_on(agent: Agent) -> None:
        (project / "go").touch()
        ended = await agent.call("decide", wait_s=120.0)
        assert (ended["answer"], ended["decision"]["reason"], ended["number"]) == ("drop", "below_smallest", 1)

    talk(project, begins)  # and its end stops the runs in order
    assert [entry["body"]["outcome"] for entry in ledger(project) if entry["event"] == "staged"] == ["next_stage"]
    talk(project, goes_on)


@pytest.mark.slow
def test_a_malformed_call_is_an_error_with_its_parts_and_the_server_goes_on(project: Path) -> None:
    async def stumbles(agent: Agent) -> None:
        assert "no tool 'peek'" in (await agent.refused("peek"))["found"]
        assert (await agent.refused("describe", campaign="../other.yaml"))["found"].startswith("campaign: ")
        assert (await agent.refused("propose", settings=["gain"], why="x"))["found"].startswith("settings: ")
        assert (await agent.refused("decide", wait_s=-1.0))["found"].startswith("wait_s: ")
        assert "not a field of the base" in (await agent.refused("propose", settings={"gian": 1.0}, why="x"))["found"]
        assert "without a reason" in (await agent.refused("propose", settings={"gain": 1.0}))["found"]
        assert "no change" in (await agent.refused("propose", why="--jobs=9"))["found"]
        assert "no proposal" in (await agent.refused("propose", give_up="tired"))["found"]
        with pytest.raises(MCPError, match="no resource"):
            await agent.resource("ablate://report/../../secret")
        # A campaign that was edited by hand: each tool says so, and works again once that is undone.
        promised = (project / CAMPAIGN).read_text(encoding="utf-8")
        (project / CAMPAIGN).write_text(promised.replace("smallest: 0.05", "smallest: 0.01"), encoding="utf-8")
        refusal = await agent.refused("propose", settings={"gain": 0.5}, why="x")
        assert "smallest of 'night' changed" in refusal["found"] and "undo the change" in refusal["try"]
        (project / CAMPAIGN).write_text(promised, encoding="utf-8")
        assert (await agent.call("describe"))["proposals_left"] == 10

    talk(project, stumbles)


def test_without_the_sdk_the_command_says_what_to_install(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr("ablate.cli.campaigns.find_spec", lambda name: None)
    assert ablate(monkeypatch, "mcp", CAMPAIGN) == Exit.MISTAKE
    assert "ablate-prereg[mcp]" in capsys.readouterr().err
