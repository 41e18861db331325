"""Fork of the built-in trainer from the process that makes its run: what is loaded there is loaded once.

To import torch costs seconds, more than a small run takes. `ablate.gpt.main.load_inputs` has loaded it, and the texts;
the fork has its own session, output, environment and folder, as if it had been started as `python -m ablate.gpt`.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import torch

from ablate.gpt.main import main
from ablate.runner.child import Process


def start_forked(words: Sequence[str], home: Path, environment: Mapping[str, str]) -> Process:
    """A fork that makes the run of an environment. `words` are those that would start it: `python -m ablate.gpt`.

    For a process of Linux that has started no thread of torch and touched no accelerator.
    """
    assert tuple(words[-2:]) == ("-m", "ablate.gpt"), words
    out_here, out_there = os.pipe()
    error_here, error_there = os.pipe()
    begun_here, begun_there = os.pipe()
    # What a buffer holds at the fork would be printed twice, by this process and by the fork.
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        _become_trainer(words, (out_there, error_there, begun_there), home, environment)
    for descriptor in (out_there, error_there, begun_there):
        os.close(descriptor)
    # Wait until it has a group of its own: before that, killpg on its pid would miss it.
    os.read(begun_here, 1)
    os.close(begun_here)
    return Process(pid, os.fdopen(out_here, "rb", buffering=0), os.fdopen(error_here, "rb", buffering=0))


def _become_trainer(
    words: Sequence[str], pipes: tuple[int, int, int], home: Path, environment: Mapping[str, str]
) -> NoReturn:
    """What a process is when it begins; then the run. Never returns: the frames above are another process' business.

    Where CUDA was initialised before the fork, which no fork can use, it starts over as what `words` say.
    """
    status = 1
    out, error, begun = pipes
    try:
        os.setsid()
        # Handlers and wakeup pipe are the maker's: a signal to the trainer would be written into the maker's pipe.
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        os.write(begun, b"1")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(error, 2)
        # Locks and sockets of the process that was forked: held here they would outlive it.
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (as long as the process)
        sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
        # CUDA_VISIBLE_DEVICES counts only if it is set before the first use of CUDA, which a fork has yet to make.
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(home)
        if torch.cuda._is_in_bad_fork():
            # A process that we are forked from has queried CUDA, if only for the number of devices.
            os.execv(sys.executable, [*words])  # noqa: S606
        status = main(environment)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # exit handlers and unread buffers are the maker's, and not to be run twice
