"""Limits of memory for strangers' files, which are decoded in a process of their own.

A few bytes of Parquet, gzip or JSON can decode to any number of bytes, and what a file says of its own size can be a
lie. So a file from elsewhere (of an import, or in a bundle) is decoded by a child process under `RLIMIT_DATA`. What it
decodes to then has a limit whatever the file says, and a decoder that crashes takes nothing of ours with it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import JsonValue

from prereg import errors
from prereg.errors import EvidenceError, StudyError, Where

MOST_MEMORY = 2**30
"""Bytes that a child may take beyond its interpreter and libraries."""
LONGEST_S = 600.0
"""Seconds after which a child is killed."""
_STEADY = {
    # Allocators and thread pools that reserve addresses ahead of need would use up the limit before any data comes.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def in_limited_process(
    function: Callable[..., bytes],
    *arguments: JsonValue,
    memory_bytes: int = MOST_MEMORY,
    timeout_s: float = LONGEST_S,
) -> bytes:
    """`function(*arguments)`, called in a child process with `memory_bytes` of memory and `timeout_s` seconds.

    `function` is a function of a module (no lambda, no method), found again by its name in the child. Arguments are
    JSON values, such as a path as text, and the result is bytes: nothing is pickled. What the function prints goes to
    our standard error. Its module is imported before the limit is set, so that libraries do not count; what the
    function itself imports does.

        table = in_limited_process(decoded_table, str(path))     # Arrow IPC bytes, say
        facts = json.loads(in_limited_process(check, str(path), memory_bytes=2**31))

    Raises every `StudyError` of the function as it was raised there, with its file and line; and `EvidenceError` where
    it needs more memory or time, or its decoder crashes. Any other exception is our bug: `RuntimeError` with the
    child's traceback. The limit is kept by Linux; on macOS and Windows the child has none, and is a process apart.
    """
    # By name and JSON: a pickle from a process that has read a stranger's file could run anything here.
    name = f"{function.__module__}:{function.__qualname__}"
    try:
        child = subprocess.run(
            # -P: a folder where the command was typed may hold a stranger's json.py.
            [sys.executable, "-P", "-m", __name__, name, str(memory_bytes)],
            input=json.dumps(arguments).encode(),
            capture_output=True,
            env=os.environ | _STEADY,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EvidenceError(
            f"not decoded within {timeout_s:,.0f} s", required="a file that can be read in that time"
        ) from None

    # One line of JSON, then the result: so that bytes of any kind need no second encoding.
    header, _, result = child.stdout.partition(b"\n")
    outcome = json.loads(header) if header.startswith(b"{") else {}
    # In order: a result, the function's own StudyError, memory or a crash; what is left is a bug of ours.
    if child.returncode == 0:
        sys.stderr.write(child.stderr.decode(errors="replace"))
        return result
    if "error" in outcome:
        raise _error_of(outcome["error"])
    # A C++ library that finds no memory may abort, and a faulty file may crash its decoder: both die by a signal.
    if outcome.get("out_of_memory") or child.returncode < 0:
        raise EvidenceError(
            f"takes more than {memory_bytes / 2**20:,.0f} MiB to decode, or cannot be decoded",
            required="a file of the size that it says",
        )
    raise RuntimeError(f"{name} failed in its process:\n{child.stderr.decode(errors='replace')}")


def _error_of(fields: dict[str, JsonValue]) -> StudyError:
    """The error that a child raised."""
    kind = getattr(errors, str(fields["kind"]), StudyError)  # the caller handles it by its class
    file, line, field = fields["file"], fields["line"], fields["field"]
    where = Where(
        file=Path(file) if isinstance(file, str) else None,
        line=line if isinstance(line, int) else None,
        field=tuple(part for part in field if isinstance(part, (str, int))) if isinstance(field, list) else (),
    )
    fault, required, fix = (str(fields[part]) for part in ("found", "required", "fix"))
    error: StudyError = kind(fault, required=required, fix=fix, where=where)
    return error


def _fields_of(error: StudyError) -> dict[str, JsonValue]:
    return {
        "kind": type(error).__name__,
        "found": error.found,
        "required": error.required,
        "fix": error.fix,
        "file": None if error.where.file is None else str(error.where.file),
        "line": error.where.line,
        "field": list(error.where.field),
    }


@contextmanager
def bounded_memory(most: int) -> Iterator[None]:
    """Let this process take `most` bytes more and none beyond them, where the system (Linux) keeps such a limit.

    `RLIMIT_DATA` and not `RLIMIT_AS`: libraries reserve addresses that they never use.
    """
    status = Path("/proc/self/status")
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        yield
        return
    if not status.is_file():  # macOS
        yield
        return
    (used,) = (int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmData:"))
    # `used` is what the interpreter holds already. The soft limit alone is lowered, so that it can be raised again.
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [used + most, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def main() -> int:
    """Serve one call: arguments by standard input, a line of JSON and then the result by standard output."""
    name, most = sys.argv[1:]
    arguments = json.load(sys.stdin)
    # What the function or a library prints must not get into the result.
    # The result has a descriptor of its own; 1 points at standard error from here on, for C libraries too.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    # Imported before the limit: the libraries' own memory is not what the file costs.
    module, _, attribute = name.partition(":")
    function: Callable[..., bytes] = getattr(importlib.import_module(module), attribute)
    header: dict[str, JsonValue] = {}
    result = b""
    try:
        with bounded_memory(int(most)):
            result = function(*arguments)
    except StudyError as error:
        header = {"error": _fields_of(error)}
    except MemoryError:  # of Arrow too
        header = {"out_of_memory": True}
    with channel:
        channel.write(json.dumps(header).encode() + b"\n")
        channel.write(result)
    return 1 if header else 0


if __name__ == "__main__":
    raise SystemExit(main())
