"""A campaign for coding agents: `ablate mcp`, the Model Context Protocol on standard input and output.

Every tool is a command of this package: what it answers and refuses is what the command line answers and refuses. One
that trains is a process of its own, so that nothing that it prints or breaks reaches the protocol, and other calls are
answered meanwhile. Of a proposal that has not ended the commands themselves show nothing but health, so no tool can.

    propose, confirm -> a child process -> its answer, or "running" once `wait_s` is over
    decide           -> waits for the child, or starts one that goes on with the open proposal

A server that ends stops its child as Ctrl-C does; one that is killed leaves it. Either way the ledger has what was
begun, and the next call goes on with it, once no other process is at work on it.

What is no call is answered too: a line that is no JSON-RPC with an error of the protocol, wrong arguments with an error
of the tool. Standard output is the protocol's alone: `stdio_server` leads everything else that is written there away.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import anyio
import anyio.to_thread
import mcp_types as types
from anyio.abc import Process, TaskGroup
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ablate.cli.campaigns import check_one_campaign
from ablate.cli.command import as_plain_data
from ablate.cli.options import Exit, mistake_of_disk
from ablate.reporting.wording import phrase
from ablate.study_status import status as status_of
from prereg.errors import StudyError
from prereg.escape import visible

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from ablate.campaigning import CampaignContext
    from ablate.study_status import StudyHealth

_STOPPING_S: Final = 10.0
"""Seconds that a child has to save its runs once it is stopped."""
_ASKING_S: Final = 1.0
"""Seconds between two looks at a process that is not this server's."""
_LONGEST_NAME: Final = 200
_ENDS_OF_STDERR: Final = "; stderr ends: "
"""What `ablate.runner.process` puts between how a run failed and what its trainer printed last."""

Text = Annotated[str, Field(min_length=1, max_length=4000, pattern=r"^[^\x00]+$")]
"""Words that become one argument of a command."""
DottedPath = Annotated[str, Field(max_length=_LONGEST_NAME, pattern=r"^[^=\x00]+$")]
"""A path without `=`, which ends it on the command line."""


class ToolArguments(BaseModel):
    """What one tool takes; its docstring is what an agent reads of it."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
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
    settings: dict[DottedPath, str | int | float | bool | list[Any] | None] = Field(
        default={}, description="Values by dotted path, such as {'optim.lr': 0.003}. Paths: see describe."
    )
    commit: Text | None = Field(None, description="A commit whose code takes the place of the best one's.")
    why: Text | None = Field(None, description="Why it may help, in words; it stays in the ledger.")
    again: Text | None = Field(
        None, description="Why to try once more what was proposed before; it counts as another proposal."
    )
    give_up: Text | None = Field(None, description="Why the open proposal is ended as a drop, unseen.")


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
    again: Text | None = Field(None, description="Why to confirm once more what was confirmed before.")


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
        # A traceback ends with its exception, and a sentence that it is a bug.
        trace = errors.splitlines() if exit_code == Exit.BUG else []
        lines = [line for line in trace if not line.startswith((" ", "this is a bug"))]
        crash = _crash(f"the command ended with {exit_code}" + (f": {lines[-1][:400]}" if lines else ""))
        raise RefusedError(*(mistakes_of(errors) or (crash,)), exit_code=exit_code or Exit.BUG)


def _crash(found: str) -> dict[str, str]:
    """What is ours to repair. The server outlives it."""
    return {"found": found, "required": "an answer", "try": "status, then the same call again"}


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
    """The tools and resources of one campaign, for the client that is connected."""

    def __init__(self, context: CampaignContext, tasks: TaskGroup, options: Sequence[str] = ()) -> None:
        self._context, self._tasks, self._options = context, tasks, tuple(options)
        self._workspace = replace(context.workspace, root=context.root.path)
        self._starting = anyio.Lock()
        self._job: ChildCommand | None = None
        """The command that trains; one at a time."""

    async def call(self, name: str, arguments: Mapping[str, Any], client: str = "") -> dict[str, Any]:
        """What a tool answers. Raises `RefusedError` for a call that is none, or that the command refuses."""
        kind = next((tool for tool in TOOLS if tool.name == name), None)
        if kind is None:
            names = ", ".join(tool.name for tool in TOOLS)
            raise refused(f"no tool '{visible(name)[:_LONGEST_NAME]}'", f"one of {names}", "describe")
        try:
            tool = kind.model_validate(dict(arguments))
        except ValidationError as error:
            raise RefusedError(*_wrong_arguments(error)) from None
        return await self._carried_out(tool, client)

    async def _carried_out(self, tool: ToolArguments, client: str) -> dict[str, Any]:
        match tool:
            case Propose():
                train = self._train if tool.give_up is None else self._give_up
                return await train("propose", _words_of_proposal(tool, client), tool.wait_s)
            case Decide():
                return await self._train("propose", (), tool.wait_s, joins=True)
            case Confirm():
                words = (
                    *_option("--seeds", tool.seeds),
                    *_option("--again", tool.again),
                    *_option("--by", client or None),
                )
                return await self._train("confirm", words, tool.wait_s, joins=tool.again is None)
            case Status():
                return await self._health()
        facts = await self._facts()
        names = _HISTORY if isinstance(tool, History) else facts.keys() - {*_HISTORY}
        return {name: value for name, value in facts.items() if name in names}

    async def _train(self, verb: str, words: Sequence[str], wait_s: float, *, joins: bool = False) -> dict[str, Any]:
        """Start a command that trains, and wait for it; one that is at work is waited for by a call that `joins` it."""
        deadline = anyio.current_time() + wait_s
        if joins and self._at_work is None and not await self._others_have_ended(deadline):
            return {"answer": "running", **await self._health()}
        # Calls are answered side by side: two of them must not start a command each.
        async with self._starting:
            job = self._at_work
            if job is None:
                job = self._job = await self._start(verb, self._context.path, *self._options, *words)
            elif not joins or job.verb != verb:
                raise refused(
                    f"`{job.verb}` is at work",
                    "one at a time: what the next is compared with follows from its end",
                    "decide" if job.verb == "propose" else "confirm",
                )
        with anyio.move_on_at(deadline):
            await job.ended.wait()
        if not job.ended.is_set():
            return {"answer": "running", **await self._health()}
        answer = job.answer()
        return {**answer, **await self._health()} if answer["answer"] == "unfinished" else answer

    async def _give_up(self, verb: str, words: Sequence[str], wait_s: float) -> dict[str, Any]:
        """End the open proposal, and say why runs of it failed: now that it has ended, all that there is."""
        if self._at_work is not None and self._at_work.verb == verb:
            await self.stop()
        answer = await self._train(verb, words, wait_s)
        if answer["answer"] == "running":
            return answer
        return {**answer, "failed": _failures(await self._runs_of(Path(answer["study"]).stem), ended=True)}

    @property
    def _at_work(self) -> ChildCommand | None:
        return None if self._job is None or self._job.ended.is_set() else self._job

    async def _others_have_ended(self, deadline: float) -> bool:
        """Whether nobody else, such as the child of a server that was killed, is at work on what is open; waits for
        that."""
        while (await self._health())["working"]:
            if anyio.current_time() + _ASKING_S > deadline:
                return False
            await anyio.sleep(_ASKING_S)
        return True

    async def _health(self) -> dict[str, Any]:
        """What is open, a proposal or a confirmation, and how its runs are."""
        facts = await self._facts()
        health = {"working": self._at_work is not None, "open": None, "proposals": len(facts["proposals"])}
        # A proposal that is open, else the last confirmation, of which its study knows whether it has ended.
        begun = [{"kind": "proposal", **facts["open"]}] if facts["open"] is not None else []
        begun += [{"kind": "confirmation", **each} for each in facts["confirmations"][-1:] if not begun]
        for each in begun:
            try:
                status = await self._runs_of(each["study"])
            except StudyError:
                # Between its entry and its study.
                return {**health, "open": each}
            if each["kind"] == "proposal" or status.decided is None:
                return {
                    **health,
                    "working": health["working"] or status.active,
                    "open": each,
                    "runs": dict(Counter(run.state for run in status.runs)),
                    "failed": _failures(status, ended=False),
                }
        return health

    async def _facts(self) -> dict[str, Any]:
        """What `ablate check` says of the campaign, as it and the ledger are now. Raises `StudyError`."""
        result = await anyio.to_thread.run_sync(check_one_campaign, self._context.path, self._workspace)
        facts: dict[str, Any] = as_plain_data(result.facts)
        return facts

    async def _runs_of(self, study: str) -> StudyHealth:
        """What `ablate status` says of a study: progress alone. Raises `StudyError`."""
        path = self._context.root.study(study)
        return await anyio.to_thread.run_sync(partial(status_of, path, workspace=self._workspace))

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
        if (job := self._at_work) is None:
            return
        # After the second nobody waits for runs to be saved.
        for _ in range(2):
            with suppress(ProcessLookupError):
                job.process.send_signal(signal.SIGINT)
            with anyio.move_on_after(_STOPPING_S, shield=True):
                await job.ended.wait()
                return

    def resources(self) -> dict[str, Path]:
        """Texts that may be read, by address: the campaign, its studies, and the reports of those that were decided and
        of the campaign, which shows nothing of what has not ended."""
        root, name = self._context.root, self._context.campaign.campaign
        addressed = {
            "ablate://campaign": self._context.path,
            f"ablate://report/{name}": root.report(name) / "campaign.md",
        }
        for study in self._studies():
            addressed[f"ablate://study/{study}"] = root.study(study)
            # Written by a decision alone.
            addressed[f"ablate://report/{study}"] = root.report(study) / "report.md"
        return {address: path for address, path in addressed.items() if path.is_file()}

    def _studies(self) -> tuple[str, ...]:
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


def _parts(error: StudyError) -> dict[str, str]:
    """A mistake as `mistakes_of` reads it where a command printed it."""
    place = f"{error.where}: " if str(error.where) else ""
    return {"found": visible(f"{place}{error.found}"), "required": visible(error.required), "try": visible(error.fix)}


def _failures(status: StudyHealth, *, ended: bool) -> list[dict[str, Any]]:
    """The runs that failed, and how. What a trainer printed last may be a result: of what is open it is left out."""
    return [
        {
            "arm": run.variant,
            "seed": run.seed,
            "error": run.error if ended else run.error.partition(_ENDS_OF_STDERR)[0],
        }
        for run in status.runs
        if run.error is not None
    ]


def _wrong_arguments(error: ValidationError) -> Iterator[dict[str, str]]:
    """One mistake for each argument, whatever it could have been."""
    by_place: dict[str, list[Any]] = {}
    for each in error.errors():
        # A value of `settings` has a place of its own; below it are the kinds that it is not.
        by_place.setdefault(".".join(map(str, each["loc"][:2])), []).append(each)
    for place, errors in by_place.items():
        unknown = errors[0]["type"] == "extra_forbidden"
        needs = [each["msg"].removeprefix("Input should be ") for each in errors]
        yield {
            "found": f"{place}: {'no such argument' if unknown else visible(repr(errors[0]['input'])[:_LONGEST_NAME])}",
            "required": "arguments of the tool's schema" if unknown else " or ".join(needs),
            "try": "the tool's schema has all arguments",
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
    name = "" if params is None else f"{params.client_info.name} {params.client_info.version}"
    return visible(name)[:_LONGEST_NAME].strip()


@asynccontextmanager
async def _connected() -> AsyncIterator[tuple[Any, Any]]:
    """Standard input and output as messages, where a line that is none is answered with an error of the protocol. The
    SDK drops such a line, and a client would wait for its answer."""
    sends, receives = anyio.create_memory_object_stream[SessionMessage](0)
    async with stdio_server() as (reads, writes), anyio.create_task_group() as tasks:

        async def hand_on() -> None:
            async with sends:
                async for message in reads:
                    if isinstance(message, SessionMessage):
                        await sends.send(message)
                    else:
                        await writes.send(SessionMessage(_no_message(message)))

        tasks.start_soon(hand_on)
        yield receives, writes
        tasks.cancel_scope.cancel()


def _no_message(error: Exception) -> types.JSONRPCError:
    """The answer to a line that is no message, under the number of the request where it can be read."""
    number, code = None, types.PARSE_ERROR
    for each in error.errors() if isinstance(error, ValidationError) else ():
        sent = each["input"]
        if each["type"] == "json_invalid":
            # What Python reads and JSON-RPC is not: a text with half a character.
            with suppress(ValueError, RecursionError):
                sent = json.loads(sent)
        else:
            code = types.INVALID_REQUEST
        if isinstance(sent, dict) and type(sent.get("id")) in (int, str):
            number = sent["id"]
    text = "a line that is no message of JSON-RPC"
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=code, message=text))


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
                mistakes, exit_code = error.mistakes, error.exit_code
            except StudyError as error:
                mistakes, exit_code = tuple(map(_parts, (error, *error.others))), Exit.MISTAKE
            except OSError as error:
                # A full disk, a process that cannot be started: the next call may find it repaired.
                mistakes, exit_code = (_parts(mistake_of_disk(error)),), Exit.MISTAKE
            except Exception as error:  # ours to repair, and no reason to leave what is at work
                mistakes, exit_code = (_crash(repr(error)[:400]),), Exit.BUG
            return _result({"errors": [*mistakes], "exit_code": int(exit_code)}, failed=True)

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
        tasks.start_soon(_end_by_signal, campaign)
        try:
            async with _connected() as (reads, writes):
                await server.run(reads, writes, server.create_initialization_options())
        finally:
            await campaign.stop()
            tasks.cancel_scope.cancel()


async def _end_by_signal(campaign: CampaignServer) -> None:
    """Ctrl-C and SIGTERM end the server in order."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            await campaign.stop()
            # A thread waits in a read of standard input, which nothing interrupts, and the interpreter for the thread.
            os._exit(Exit.INTERRUPTED)


def _kind_of(path: Path) -> Literal["text/markdown", "application/yaml"]:
    return "text/markdown" if path.suffix == ".md" else "application/yaml"
