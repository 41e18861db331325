"""The agent: proposes what proposals.py lists, one after another, to `ablate mcp` over standard input and output.

    python examples/agent/agent.py            # 21 minutes of two shared cores; needs the extra `mcp`

It sees what any agent sees over the Model Context Protocol, and runs nothing itself. Now and then it tries what an
impatient agent would: another proposal, a confirmation or a look at results while one is open, a dropped change in
other words, a kept one once more. Every call and its answer go into reports/agent-night/transcript.jsonl, a line each.
An agent that was interrupted reads the history and goes on where that ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp_types import Implementation
from proposals import BEST, in_order

ROOT = Path(__file__).resolve().parents[2]
CAMPAIGN = ROOT / "campaigns" / "agent-night.yaml"
TRANSCRIPT = ROOT / "reports" / "agent-night" / "transcript.jsonl"
PATIENCE_S = 120.0
"""Seconds that a call waits before it answers `running`."""


@dataclass
class Agent:
    """A connection, and the transcript of what is said over it."""

    client: Client
    root: Path
    transcript: Path

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer of a tool; a refusal is an answer with `errors`."""
        began = time.monotonic()
        result = await self.client.call_tool(tool, arguments, read_timeout_seconds=900.0)
        answer = dict(result.structured_content)
        self.note(began, tool, arguments, answer)
        return answer

    async def read(self, uri: str) -> None:
        """Try to read a resource."""
        began = time.monotonic()
        try:
            result = await self.client.read_resource(uri)
            answer: dict[str, Any] = {"contents": [getattr(each, "text", "") for each in result.contents]}
        except MCPError as error:
            answer = {"errors": [{"found": error.error.message}]}
        self.note(began, "resources/read", {"uri": uri}, answer)

    def note(self, began: float, tool: str, arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Add a line to the transcript."""
        line = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - began, 1),
            # Processes that want a core, of all that this machine does: what the times have to be read with.
            "load": round(os.getloadavg()[0], 1),
            "tool": tool,
            "arguments": arguments,
            "answer": answer,
        }
        # Where the repository lies on this machine is nobody's business.
        text = json.dumps(line, ensure_ascii=False).replace(f"{self.root}{os.sep}", "")
        with self.transcript.open("a", encoding="utf-8") as lines:
            lines.write(text + "\n")
        outcome = answer.get("answer") or ("refused" if "errors" in answer else "answered")
        print(f"{line['at']} {tool} {json.dumps(arguments, ensure_ascii=False)}: {outcome}", flush=True)

    async def until_it_ends(self, tool: str, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer that a call which was answered `running` has in the end."""
        while answer.get("answer") == "running":
            answer = await self.call(tool, wait_s=PATIENCE_S)
        return answer

    async def tries_its_luck(self, number: int, following: Mapping[str, Any]) -> None:
        """While a proposal is open: the next one, a confirmation, a look at what there is."""
        # Before its study is registered there is nothing to look at.
        while "runs" not in await self.call("status"):
            await asyncio.sleep(2.0)
        await self.call("propose", settings=following, why="to save time", wait_s=0.0)
        await self.call("confirm", wait_s=0.0)
        await self.call("history")
        await self.read(f"ablate://report/{CAMPAIGN.stem}-p{number}")

    async def campaign(self) -> None:
        """All proposals, and the confirmation."""
        described = await self.call("describe")
        # Before the first proposal there is no best but the start.
        best = described["best"] or {"settings": {}}
        betas = best["settings"].get("optim.betas", described["settings"]["optim"]["betas"])
        had = await self.call("history")
        done = len(had["proposals"])
        # What an interruption left open goes on before anything else.
        if done and had["proposals"][-1]["end"] is None:
            await self.until_it_ends("decide", await self.call("decide", wait_s=PATIENCE_S))
        proposals = in_order()
        changes = [dict(each.change) for each in proposals]
        outcomes = [each["end"] for each in had["proposals"]]
        for at in range(done, len(proposals)):
            settings = changes[at]
            if BEST in (values := settings.get("optim.betas", [])):
                settings["optim.betas"] = [betas[0] if value == BEST else value for value in values]
            is_first = at == 0
            answer = await self.call(
                "propose", settings=settings, why=proposals[at].why, wait_s=0.0 if is_first else PATIENCE_S
            )
            if is_first:
                await self.tries_its_luck(1, changes[1])
            answer = await self.until_it_ends("decide", answer)
            if answer.get("answer") in ("inadmissible", "unfinished"):
                answer = await self.call("propose", give_up=f"it ended as {answer['answer']}", wait_s=PATIENCE_S)
            if answer.get("answer") not in ("keep", "drop"):
                print(f"the agent stops: {json.dumps(answer)}", file=sys.stderr)
                return
            outcomes.append(answer["answer"])
            betas = answer["best"]["settings"].get("optim.betas", betas)
            # The first that was dropped, and the first that was kept, in other words: a whole number for a float, and a
            # setting that is what it was.
            if outcomes.count(answer["answer"]) == 1:
                reworded = {p: int(v) if isinstance(v, float) and v.is_integer() else v for p, v in settings.items()}
                reworded["model.layers"] = 2
                await self.call("propose", settings=reworded, why="another idea", wait_s=PATIENCE_S)
        await self.call("history")
        await self.until_it_ends("confirm", await self.call("confirm", wait_s=PATIENCE_S))
        await self.call("describe")


async def main() -> None:
    """Connect to the campaign's server, and go through the proposals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository (for a rehearsal: a copy)")
    parser.add_argument("--jobs", default="2", help="runs at once")
    options = parser.parse_args()
    root = options.root.resolve()
    transcript = root / TRANSCRIPT.relative_to(ROOT)
    transcript.parent.mkdir(parents=True, exist_ok=True)
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "ablate", "mcp", str(CAMPAIGN.relative_to(ROOT)), "--jobs", options.jobs],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    async with Client(server, client_info=Implementation(name="agent-night", version="1")) as client:
        agent = Agent(client, root, transcript)
        await agent.campaign()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    agent.note(time.monotonic(), "disconnect", {}, {"processor_s": round(used.ru_utime + used.ru_stime)})


if __name__ == "__main__":
    asyncio.run(main())
