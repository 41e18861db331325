"""A worker's end of the pipes to its scheduler: orders in, messages out, whichever trainer carries the orders out."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from ablate.runner.messages import Message


class Pipes:
    """Standard input and output of this process. Made once, before anything is printed."""

    def __init__(self) -> None:
        # Libraries may print; the protocol keeps the real standard output to itself.
        self._channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self.stop = threading.Event()
        """Set the moment the scheduler says stop, whatever the process is at."""
        self._arrived = threading.Condition()
        self._noted = threading.Event()
        self._waiting: list[dict[str, Any]] = []

    def say(self, message: Message) -> None:
        """One line to the scheduler. A run that has begun waits here until the ledger holds its start."""
        begun = message.event == "begun"
        if begun:
            self._noted.clear()
            message = message.model_copy(update={"waits": True})
        self._channel.write(message.model_dump_json() + "\n")
        self._channel.flush()
        if begun:
            self._noted.wait()

    def orders(self, abandoned: Callable[[], None]) -> Iterator[dict[str, Any]]:
        """Says that the process is ready, and gives every order up to the one that ends them.

        `abandoned` is called in a thread of its own once the scheduler is gone; it must not return.
        """
        threading.Thread(target=self._listen, args=(sys.stdin, abandoned), daemon=True).start()
        self.say(Message(event="ready"))
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: bool(self._waiting))
                order = self._waiting.pop(0)
            if order["do"] == "stop":
                return
            yield order

    def _listen(self, lines: TextIO, abandoned: Callable[[], None]) -> None:
        for line in lines:
            order = json.loads(line)
            if order["do"] == "noted":
                self._noted.set()
                continue
            with self._arrived:
                if order["do"] == "stop":
                    self.stop.set()
                self._waiting.append(order)
                self._arrived.notify()
        abandoned()
