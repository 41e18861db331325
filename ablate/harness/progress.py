"""How far a model has been asked, and about how long the rest will take. Counts and seconds only, never an answer.

The harness hands over one group of requests after another, a group being all tasks under one number of shots and one
prompt, and every group asks as many. Within a group, seconds go by the tokens that pass through the model, short
sequences first, so time is told by tokens and not by requests. Of groups to come it is guessed that a prompt with more
examples is longer in proportion, up to the model's context.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Kind = tuple[tuple[int, ...], int]
"""What makes two passes the same to the model: the tokens, and how many of the last are scored. Asked once."""


@dataclass(frozen=True)
class Standing:
    """Where the asking of one model stands."""

    shots: int
    """Examples in the prompts that are being asked."""
    requests: int
    """Requests answered, of all groups so far."""
    of: int
    """Requests in all."""
    seconds: float
    """Since the first of them."""
    seconds_left: float | None
    """About how long the rest takes; none before there is a speed to go by."""


class Course:
    """Keeps count while groups are asked, and tells how they stand."""

    def __init__(
        self, shots: Sequence[int], context: int, tell: Callable[[Standing], None], clock: Callable[[], float]
    ) -> None:
        """`shots` of every group, in the order in which they are asked."""
        self._shots, self._context, self._tell, self._clock = tuple(shots), context, tell, clock
        self._began = clock()
        self._group = -1
        self._answered = self._before = self._of = 0
        self._open: dict[int, int] = {}
        self._asking: dict[Kind, list[int]] = {}
        self._done = self._left = self._to_come = 0.0

    def next_group(self) -> None:
        """The next group begins."""
        self._group += 1
        self._before += self._answered
        self._answered = 0

    def expect(self, n_requests: int, windows: Iterable[tuple[int, Kind]]) -> None:
        """The requests of this group, each with the windows it is scored in."""
        self._open, asking = defaultdict(int), defaultdict(list)
        for request, kind in windows:
            self._open[request] += 1
            asking[kind].append(request)
        self._asking = dict(asking)
        lengths = [len(tokens) for tokens, _ in self._asking]
        self._left = float(sum(lengths))
        shots, later = self._shots[self._group], self._shots[self._group + 1 :]
        self._to_come = sum(
            min(length * (1 + other) / (1 + shots), self._context + 1.0) for other in later for length in lengths
        )
        self._of = self._before + n_requests * (1 + len(later))
        self._answered = n_requests - len(self._open)  # one of no tokens is answered unasked
        self._say()

    def scored(self, kinds: Iterable[Kind]) -> None:
        """These windows have their answers."""
        for kind in kinds:
            tokens = float(len(kind[0]))
            self._done += tokens
            self._left -= tokens
            for request in self._asking[kind]:
                self._open[request] -= 1
                self._answered += self._open[request] == 0
        self._say()

    def _say(self) -> None:
        seconds = self._clock() - self._began
        left = (self._left + self._to_come) * seconds / self._done if self._done else None
        self._tell(Standing(self._shots[self._group], self._before + self._answered, self._of, seconds, left))
