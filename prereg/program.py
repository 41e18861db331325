"""Subprocesses for `git`, `ssh-keygen` and `openssl`: `ask` calls a program, with limits of time and size.

No shell, no terminal to ask in, no configuration of the machine where it could change an answer. An answer has a limit
of time and of size.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from dataclasses import dataclass, field
from tempfile import TemporaryFile

from prereg.errors import SealError


class NoAnswerError(SealError):
    """A program is not here, is too slow, or says too much: nothing is known of the seal."""


@dataclass(frozen=True)
class Program:
    """A program, and how it is called."""

    name: str
    """As it is found on the path."""
    install: str
    """What to install where it is missing."""
    required: str
    """The version that is needed."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that are set for it."""
    without: str = "(?!)"
    """A pattern of variables that it must not see."""
    own_session: bool = False
    """Whether it gets a session of its own: in ours it would open /dev/tty and wait there for a passphrase."""


@dataclass(frozen=True)
class Answer:
    """What a program said."""

    code: int
    output: bytes
    complaint: str
    """Its standard error on one line, without characters that cannot be seen."""

    @property
    def is_yes(self) -> bool:
        return self.code == 0


LARGEST_BYTES = 2**28
"""Bytes of an answer that are read."""


def ask(program: Program, *words: str, data: bytes = b"", seconds: float) -> Answer:
    """Call a program with bytes on its standard input. Raises `NoAnswerError` where it is not here, cannot be started,
    is too slow, or says more than `LARGEST_BYTES`."""
    path = shutil.which(program.name)
    if path is None:
        raise NoAnswerError(f"{program.name} is not on this machine", required=program.required, fix=program.install)
    environment = {name: value for name, value in os.environ.items() if not re.fullmatch(program.without, name)}
    # English complaints, whatever the user's language: some are told apart by their words.
    environment |= program.environment | {"LC_ALL": "C"}
    late = threading.Event()
    # Files, not pipes: a program that writes before it has read everything waits for nobody.
    with TemporaryFile() as standard_input, TemporaryFile() as complaint:
        standard_input.write(data)
        standard_input.seek(0)
        try:
            process = subprocess.Popen(
                [path, *words],
                stdin=standard_input,
                stdout=subprocess.PIPE,
                stderr=complaint,
                env=environment,
                start_new_session=program.own_session,
            )
        except OSError as error:  # no memory, or more words than the system takes
            raise NoAnswerError(f"{program.name} cannot be started: {error.strerror}") from None
        with process:

            def stop() -> None:
                late.set()
                process.kill()

            timer = threading.Timer(seconds, stop)
            timer.start()
            try:
                assert process.stdout is not None
                # One byte more than the limit shows that there is more.
                output = process.stdout.read(LARGEST_BYTES + 1)
                if len(output) > LARGEST_BYTES:
                    raise NoAnswerError(f"{program.name} has more to say than {LARGEST_BYTES // 2**20} MiB")
                process.wait()
            finally:
                timer.cancel()
                process.kill()
        if late.is_set():
            raise NoAnswerError(
                f"{program.name} did not answer within {seconds:g} s",
                required="an answer without a prompt; a hardware key needs a touch",
            )
        complaint.seek(0)
        lines = (line.strip() for line in complaint.read().decode("utf-8", "replace").splitlines())
        complaints = "; ".join(line for line in lines if line.strip("@ "))
    return Answer(process.returncode, output, "".join(sign for sign in complaints if sign.isprintable()))
