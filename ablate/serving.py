"""A campaign for coding agents: `ablate mcp`, the Model Context Protocol on standard input and output.

Every tool is a command of this package in a process of its own: what it answers and refuses is what the command line
answers and refuses, nothing that it prints or breaks reaches the protocol, and training goes on while other calls are
answered. Of a proposal that has not ended the commands themselves show nothing but health, so no tool can.

    propose, confirm -> a child process -> its answer, or "running" once `wait_s` is over
    decide           -> waits for the child, or starts one that goes on with the open proposal

A server that ends stops its child as Ctrl-C does; one that is killed leaves it. Either way the ledger has what was
begun, and the next call goes on with it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final, Literal

import anyio
import mcp_types as types
from anyio.abc import Process, TaskGroup
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ablate.cli.options import Exit
from ablate.reporting.wording import phrase

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from ablate.campaigning import CampaignContext

_QUICK_S: Final = 120.0
"""Seconds that a command may take which trains nothing."""
_STOPPING_S: Final = 10.0
"""Seconds that a child has to save its runs once the server ends."""


class ToolArguments(BaseModel):
    """What one tool takes; its docstring is what an agent reads of it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: ClassVar[str]


class _Waiting(ToolArguments):
    wait_s: float = Field(
        45.0, ge=0.0, le=600.0, description="Seconds to wait for the end; then the answer is `running`, with health."
    )


class Describe(ToolArguments):
    """What this campaign promises: metric, smallest gain, guardrails, stages, what is left of the budget, the settings
    that can change with their values at the start, and the best so far. Call it first."""

    name = "describe"


class Propose(_Waiting):
    """Propose one change of the present best. It goes on record with its reason and fresh seeds, and is trained against
    the best; nothing of its results is shown before it has ended: keep, drop or out_of_budget. One at a time. With
    `give_up` and nothing else, ends the open proposal as a drop, unseen."""

    name = "propose"
    settings: dict[str, str | int | float | bool | list[Any] | None] = Field(
        default={}, description="Values by dotted path, such as {'optim.lr': 0.003}. Paths: see describe."
    )
    commit: str | None = Field(None, min_length=1, description="A commit whose code takes the place of the best one's.")
    why: str | None = Field(None, min_length=1, description="Why it may help, in words; it stays in the ledger.")
    again: str | None = Field(
        None, min_length=1, description="Why to try once more what was proposed before; it counts as another proposal."
    )
    give_up: str | None = Field(None, min_length=1, description="Why the open proposal is ended as a drop, unseen.")


class Status(ToolArguments):
    """Health of what is open: how many runs are done, at work or failed, and why one failed. No result."""

    name = "status"


class Decide(_Waiting):
    """Wait for the end of the open proposal, going on with its runs if need be, and answer it; where none is open,
    answer the last one again."""

    name = "decide"


class History(ToolArguments):
    """Every proposal so far: change, reason, seeds, how it ended, and the estimated gain of those that ended. A kept
    estimate is too large in the mean; `confirm` measures the sum."""

    name = "history"


class Confirm(_Waiting):
    """Compare the best with the start on fresh seeds: the honest total gain with its interval. A best is confirmed
    once; the same call answers again."""

    name = "confirm"
    seeds: int | None = Field(None, ge=2, description="Pairs of runs; left out, as many as the campaign needs.")
    again: str | None = Field(None, min_length=1, description="Why to confirm once more what was confirmed before.")


TOOLS: Final[tuple[type[ToolArguments], ...]] = (Describe, Propose, Status, Decide, History, Confirm)
"""All tools, in the order in which an agent reads them."""
_HISTORY: Final = ("proposals", "confirmations")
"""What `ablate check` says of a campaign that is a tool of its own."""


class RefusedError(Exception):
    """A call that cannot be answered: mistakes as the command line says them, in parts."""

    def __init__(self, *mistakes: Mapping[str, str], exit_code: int = Exit.MISTAKE) -> None:
        self.mistakes, self.exit_code = mistakes, exit_code
        super().__init__(mistakes)


def refused(found: str, required: str, fix: str) -> RefusedError:
    """A mistake of the call itself."""
    return RefusedError({"found": found, "required": required, "try": fix})


@dataclass
class ChildCommand:
    """One command at work."""

    verb: str
    process: Process
    out: IO[bytes]
    err: IO[bytes]
    ended: anyio.Event = field(default_factory=anyio.Event)
    printed: tuple[str, str] = "", ""
    """Its standard output and standard error, once it has ended."""

    async def watch(self) -> None:
        """Read what the process printed, and say when it has ended."""
        await self.process.wait()
        texts = []
        for stream in (self.out, self.err):
            with stream:
                stream.seek(0)
                texts.append(stream.read().decode(errors="replace"))
        self.printed = texts[0], texts[1]
        self.ended.set()

    def answer(self) -> dict[str, Any]:
        """What the command printed, with its exit code. Raises `RefusedError` for a mistake, or a crash."""
        output, errors = self.printed
        exit_code = self.process.returncode
        with suppress(ValueError):
            facts = json.loads(output)
            if isinstance(facts, dict):
                return {**facts, "exit_code": exit_code}
        # A crash of the command is ours to repair, and the server outlives it.
        crash = {"found": f"the command ended with {exit_code}", "required": "an answer", "try": errors[-400:].strip()}
        raise RefusedError(*(mistakes_of(errors) or (crash,)), exit_code=exit_code or 1)


def mistakes_of(text: str) -> tuple[dict[str, str], ...]:
    """The mistakes on standard error in parts, as the command line prints them: each part is one line.

    >>> mistakes_of("2/4 runs done\\nerror: no metric\\n  required: a name\\n  try:      metric: val/loss\\n")
    ({'found': 'no metric', 'required': 'a name', 'try': 'metric: val/loss'},)
    """
    mistakes: list[dict[str, str]] = []
    for line in text.splitlines():
        label, _, rest = line.partition(":")
        if line.startswith("error: "):
            mistakes.append({"found": rest.strip()})
        elif mistakes and label in ("  required", "  try"):
            mistakes[-1][label.strip()] = rest.strip()
    return tuple(mistakes)


class CampaignServer:
    """The tools and resources of one campaign, for whoever is connected."""

    def __init__(self, context: CampaignContext, tasks: TaskGroup, options: Sequence[str] = ()) -> None:
        self._context, self._tasks, self._options = context, tasks, tuple(options)
        self._starting = anyio.Lock()
        self._job: ChildCommand | None = None
        """The command that trains; one at a time."""

    async def call(self, name: str, arguments: Mapping[str, Any], client: str = "") -> dict[str, Any]:
        """What a tool answers. Raises `RefusedError` for a call that is none, or that the command refuses."""
        kind = next((tool for tool in TOOLS if tool.name == name), None)
        if kind is None:
            names = ", ".join(tool.name for tool in TOOLS)
            raise refused(f"no tool '{name}'", f"one of {names}", "describe")
        try:
            tool = kind.model_validate(dict(arguments))
        except ValidationError as error:
            raise RefusedError(*map(_wrong_argument, error.errors())) from None
        match tool:
            case Propose():
                return await self._train("propose", _words_of_proposal(tool, client), tool.wait_s)
            case Decide():
                return await self._train("propose", (), tool.wait_s, joins=True)
            case Confirm():
                words = (*_option("--seeds", tool.seeds), *_option("--again", tool.again))
                return await self._train("confirm", words, tool.wait_s, joins=tool.again is None)
            case Status():
                return await self._health()
            case History():
                facts = await self._quick("check", self._context.path)
                return {name: facts[name] for name in _HISTORY}
            case _:
                facts = await self._quick("check", self._context.path)
                return {name: value for name, value in facts.items() if name not in (*_HISTORY, "exit_code")}

    async def _train(self, verb: str, words: Sequence[str], wait_s: float, *, joins: bool = False) -> dict[str, Any]:
        """Start a command that trains, and wait for it; one that is at work is waited for by a call that `joins` it."""
        async with self._starting:
            job = self._job
            if job is None or job.ended.is_set():
                job = self._job = await self._start(verb, self._context.path, *self._options, *words)
            elif not joins or job.verb != verb:
                raise refused(
                    f"`{job.verb}` is at work",
                    "one at a time: what the next is compared with follows from its end",
                    "decide" if job.verb == "propose" else "confirm",
                )
        with anyio.move_on_after(wait_s):
            await job.ended.wait()
        return job.answer() if job.ended.is_set() else {"answer": "running", **await self._health()}

    async def _health(self) -> dict[str, Any]:
        """What is open, and how its runs are; of a confirmation too, whose study shows no more while it runs."""
        facts = await self._quick("check", self._context.path)
        open_study = facts["open"]
        working = self._job is not None and not self._job.ended.is_set()
        health = {"working": working, "open": open_study, "proposals": len(facts["proposals"])}
        if open_study is None:
            return health
        try:
            status = await self._quick("status", self._context.root.study(open_study["study"]))
        except RefusedError:
            # Between the entry of a proposal and its study.
            return health
        failed = [
            {"arm": run["variant"], "seed": run["seed"], "error": run["error"]}
            for run in status["runs"]
            if run["error"] is not None
        ]
        return {**health, "runs": dict(Counter(run["state"] for run in status["runs"])), "failed": failed}

    async def _quick(self, verb: str, path: Path) -> dict[str, Any]:
        job = await self._start(verb, path)
        with anyio.move_on_after(_QUICK_S):
            await job.ended.wait()
        if not job.ended.is_set():
            job.process.kill()
            raise refused(f"`{verb}` gave no answer in {_QUICK_S:g} s", "an answer", "the same call again")
        return job.answer()

    async def _start(self, verb: str, path: Path, *words: str) -> ChildCommand:
        command = (sys.executable, "-m", "ablate", verb, str(path), "--root", str(self._context.root.path), "--json")
        # Files in place of pipes: nobody has to read them while it works, and a killed server does not end it.
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  `ChildCommand.watch` closes them
        # A session of its own: Ctrl-C at a terminal ends the server, which stops the child in order.
        process = await anyio.open_process(
            [*command, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        job = ChildCommand(verb, process, out, err)
        self._tasks.start_soon(job.watch)
        return job

    async def stop(self) -> None:
        """Stop what is at work as Ctrl-C does: what it sealed is kept, and the next call goes on."""
        if self._job is not None and not self._job.ended.is_set():
            with suppress(ProcessLookupError):
                self._job.process.send_signal(signal.SIGINT)
            with anyio.move_on_after(_STOPPING_S, shield=True):
                await self._job.ended.wait()

    def resources(self) -> dict[str, Path]:
        """Texts that may be read, by address: the campaign, its studies, and the reports of those that were decided."""
        root = self._context.root
        addressed = {"ablate://campaign": self._context.path}
        for study in self._studies():
            addressed[f"ablate://study/{study}"] = root.study(study)
            # Written by a decision alone.
            addressed[f"ablate://report/{study}"] = root.report(study) / "report.md"
        return {address: path for address, path in addressed.items() if path.is_file()}

    def _studies(self) -> tuple[str, ...]:
        from prereg.errors import StudyError

        try:
            record = self._context.record()
        except StudyError:
            # A damaged ledger is named by every tool; the campaign's file can be read all the same.
            return ()
        return () if record is None else tuple(begun.entry.run_as for begun in record.begun)


def _words_of_proposal(tool: Propose, client: str) -> tuple[str, ...]:
    # JSON is YAML, which the command reads: a value keeps its type.
    settings = [f"--set={path}={json.dumps(value)}" for path, value in tool.settings.items()]
    texts = {"--commit": tool.commit, "--why": tool.why, "--again": tool.again, "--give-up": tool.give_up}
    by = _option("--by", client or None) if tool.give_up is None else ()
    return (*settings, *(word for name, text in texts.items() for word in _option(name, text)), *by)


def _option(name: str, value: object) -> tuple[str, ...]:
    """One word, so that a text which begins with a dash is no option."""
    return () if value is None else (f"{name}={value}",)


def _wrong_argument(error: Any) -> dict[str, str]:
    place = ".".join(map(str, error["loc"]))
    return {
        "found": f"{place}: {error['msg']}",
        "required": "arguments as the tool's schema has them",
        "try": "tools/list",
    }


def _described(kind: type[ToolArguments]) -> types.Tool:
    reads_only = kind in (Describe, Status, History)
    schema = kind.model_json_schema()
    return types.Tool(
        name=kind.name,
        description=" ".join((kind.__doc__ or "").split()),
        input_schema={name: value for name, value in schema.items() if name not in ("title", "description")},
        annotations=types.ToolAnnotations(read_only_hint=reads_only, destructive_hint=False, open_world_hint=False),
    )


def _result(facts: Mapping[str, Any], *, failed: bool = False) -> types.CallToolResult:
    text = json.dumps(facts, indent=2, ensure_ascii=False)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=dict(facts), is_error=failed
    )


def _client_of(context: ServerRequestContext[Any, Any]) -> str:
    """Name and version of the program at the other end, as it says them."""
    params = context.session.client_params
    return "" if params is None else f"{params.client_info.name} {params.client_info.version}".strip()


async def serve(context: CampaignContext, options: Sequence[str] = ()) -> None:
    """Serve one campaign until standard input ends.

    Parameters
    ----------
    options
        Words that every command which trains gets, such as `--jobs=2`.
    """
    async with anyio.create_task_group() as tasks:
        campaign = CampaignServer(context, tasks, options)

        async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
            return types.ListToolsResult(tools=[_described(kind) for kind in TOOLS])

        async def call_tool(
            request: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
        ) -> types.CallToolResult:
            try:
                return _result(await campaign.call(params.name, params.arguments or {}, _client_of(request)))
            except RefusedError as error:
                return _result({"errors": [*error.mistakes], "exit_code": int(error.exit_code)}, failed=True)
            except OSError as error:
                # A full disk, a process that cannot be started: the next call may find it repaired.
                mistake = {"found": str(error), "required": "a machine that can start a process", "try": "status"}
                return _result({"errors": [mistake], "exit_code": int(Exit.MISTAKE)}, failed=True)

        async def list_resources(_: Any, __: Any) -> types.ListResourcesResult:
            listed = [
                types.Resource(uri=address, name=address.removeprefix("ablate://"), mime_type=_kind_of(path))
                for address, path in campaign.resources().items()
            ]
            return types.ListResourcesResult(resources=listed)

        async def read_resource(_: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
            addressed = campaign.resources()
            path = addressed.get(str(params.uri))
            if path is None:
                from mcp.shared.exceptions import MCPError

                raise MCPError(types.INVALID_PARAMS, f"no resource {params.uri}: one of {', '.join(addressed)}")
            text = path.read_text(encoding="utf-8", errors="replace")
            contents = types.TextResourceContents(uri=params.uri, mime_type=_kind_of(path), text=text)
            return types.ReadResourceResult(contents=[contents])

        server = Server(
            "ablate",
            instructions=phrase("mcp.instructions", context.campaign),
            on_list_tools=list_tools,
            on_call_tool=call_tool,
            on_list_resources=list_resources,
            on_read_resource=read_resource,
        )
        try:
            async with stdio_server() as (reads, writes):
                await server.run(reads, writes, server.create_initialization_options())
        finally:
            await campaign.stop()
            tasks.cancel_scope.cancel()


def _kind_of(path: Path) -> Literal["text/markdown", "application/yaml"]:
    return "text/markdown" if path.suffix == ".md" else "application/yaml"
