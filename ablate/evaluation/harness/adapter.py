"""Adapter of our model to the harness: text in, log-likelihoods out. Always in float32, never sampled.

**Bits.** A sequence's log-likelihood must not depend on what it is scored with, nor on how many are taken at once. So
sequences of equal length go together (nothing is padded), and a batch of whatever size goes through the model in passes
of the same number of rows, filled up with a repeated one: matrix kernels are chosen by shape, and with another number
of rows the last bits of short sequences differ.

**Contexts.** The continuation's tokens are those that follow the context's when both are written together, with blanks
at the context's end counted to the continuation, as the harness' own adapters do; where one token would span both, each
is written by itself. Where there is no context, a line break replaces one. What is longer than the model's context
loses its beginning, and is counted; a continuation that is itself longer is scored in windows, each of its tokens once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ablate.evaluation.harness.pins import Tokenizer, prefix_of
from prereg.errors import UnsupportedError

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM


Kind = tuple[tuple[int, ...], int]
"""What makes two passes the same to the model: the tokens, and how many of the last are scored."""


@dataclass(frozen=True)
class Standing:
    """How far the evaluation of one model is."""

    shots: int
    """Examples in the prompts of the current requests."""
    requests: int
    """Requests answered, of all groups so far."""
    of: int
    """Requests in all."""
    seconds: float
    """Since the first of them."""
    seconds_left: float | None
    """About how long the rest takes; none before there is a speed to go by."""


class Course:
    """Counts requests while groups are evaluated, and reports progress."""

    def __init__(
        self, shots: Sequence[int], context: int, report: Callable[[Standing], None], clock: Callable[[], float]
    ) -> None:
        """`shots` of every group, in the order of evaluation."""
        self._shots, self._context, self._report, self._clock = tuple(shots), context, report, clock
        self._began = clock()
        self._group = -1
        self._answered = self._before = self._of = 0
        self._open: dict[int, int] = {}
        self._requests: dict[Kind, list[int]] = {}
        # In tokens read by the model, to which the time of a pass is about proportional.
        self._done = self._left = self._to_come = 0.0

    def next_group(self) -> None:
        """The next group begins."""
        self._group += 1
        self._before += self._answered
        self._answered = 0

    def expect(self, n_requests: int, windows: Iterable[tuple[int, Kind]]) -> None:
        """The requests of this group, each with the windows it is scored in."""
        self._open, by_kind = defaultdict(int), defaultdict(list)
        for request, kind in windows:
            self._open[request] += 1
            by_kind[kind].append(request)
        # Requests with the same tokens share one pass: time is counted by kinds, progress by requests.
        self._requests = dict(by_kind)
        lengths = [len(tokens) for tokens, _ in self._requests]
        self._left = float(sum(lengths))
        shots, later = self._shots[self._group], self._shots[self._group + 1 :]
        # A prompt of k examples is about (1 + k) items long, at most as long as the context: scaled from this
        # group's.
        self._to_come = sum(
            min(length * (1 + n_examples) / (1 + shots), self._context + 1.0)
            for n_examples in later
            for length in lengths
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
            for request in self._requests[kind]:
                self._open[request] -= 1
                self._answered += self._open[request] == 0
        self._say()

    def _say(self) -> None:
        seconds = self._clock() - self._began
        # Tokens left times seconds per token so far.
        left = (self._left + self._to_come) * seconds / self._done if self._done else None
        self._report(Standing(self._shots[self._group], self._before + self._answered, self._of, seconds, left))


ROWS = 16
"""Rows of a forward pass, always: with another number, the last bits may differ."""
MOST_LOGITS = 2**25
"""Logits held at once; a large vocabulary is scored with fewer rows."""


class Stopped(Exception):  # noqa: N818 (no error: the scheduler's wish)
    """The scheduler wants the worker to stop; nothing of the answers so far is kept."""


@dataclass(frozen=True)
class Window:
    """One forward pass of one sequence: what the model reads, and how many of the last tokens are scored."""

    request: int
    tokens: tuple[int, ...]
    """Inputs and, as the last of them, the last target."""
    scored: int

    @property
    def kind(self) -> Kind:
        """Windows of one kind have one answer."""
        return self.tokens, self.scored


class Scorer:
    """Log-likelihoods of texts under a model at rest. Changes nothing in it.

    `batch` sequences are taken at once, and whether to stop is checked before each batch; no bit of an answer depends
    on it. `course` counts what was scored.
    """

    def __init__(
        self,
        model: nn.Module,
        context: int,
        tokenizer: Tokenizer,
        *,
        batch: int = ROWS,
        stop: Callable[[], bool] = lambda: False,
        course: Course | None = None,
    ) -> None:
        assert batch >= 1, batch
        self.model, self.context, self.tokenizer, self.stop = model, context, tokenizer, stop
        self.batch, self.course = batch, course
        self.prefix = self._tokens(prefix_of(tokenizer))
        # Decided by vocabulary and context alone, never by `batch`: every pass of a study has this one shape.
        self.rows = max(1, min(ROWS, MOST_LOGITS // (tokenizer.size * context)))
        self.truncated = 0
        """Requests so far whose beginning the model did not see."""

    def encoded(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """(tokens of the context, tokens that are scored)."""
        # Blanks belong to the word after them in most tokenizers (" the" is one token): moved over, the cut
        # falls between tokens.
        stripped = context.rstrip()
        continuation, context = context[len(stripped) :] + continuation, stripped
        if not context:
            return self.prefix, self._tokens(continuation)
        before, together = self._tokens(context), self._tokens(context + continuation)
        if together[: len(before)] == before:
            return before, together[len(before) :]
        # A token of the whole text spans both parts: cut there, it would be scored with neither or only in
        # part.
        return before, self._tokens(continuation)

    def _tokens(self, text: str) -> list[int]:
        return [int(token) for token in self.tokenizer.encode(text)]

    def loglikelihoods(self, requests: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """(log-likelihood in nats, whether it is what the model would say) of continuations given contexts."""
        windows = []
        for number, (context, continuation) in enumerate(requests):
            before, scored = self.encoded(context, continuation)
            windows += list(self._windows(number, before, scored))
        return self._scored(windows, len(requests))

    def rolling(self, texts: Sequence[str]) -> list[float]:
        """Log-likelihood of whole texts, every token predicted exactly once, in windows of the model's context."""
        windows = []
        for number, text in enumerate(texts):
            tokens = self._tokens(text)
            windows += list(self._windows(number, self.prefix, tokens, counted=False))
        return [score for score, _ in self._scored(windows, len(texts))]

    def _windows(self, number: int, before: list[int], scored: list[int], *, counted: bool = True) -> Iterator[Window]:
        if counted and len(before) + len(scored) - 1 > self.context:
            self.truncated += 1
        # The first window holds as much context as its continuation leaves space for, and at least one token
        # of it.
        done = min(len(scored), self.context)
        # context + 1 tokens: the model reads all but the last, and each is predicted from those before it.
        tokens = (before + scored[:done])[-(self.context + 1) :]
        yield Window(number, tuple(tokens), done)
        tokens_in_all = before + scored
        while done < len(scored):
            more = min(len(scored) - done, self.context)
            end = len(before) + done + more
            yield Window(number, tuple(tokens_in_all[max(0, end - self.context - 1) : end]), more)
            done += more

    def _scored(self, windows: list[Window], n_requests: int) -> list[tuple[float, bool]]:
        """Sums over each request's windows. The same tokens are scored once, however many requests have them."""
        kinds: dict[Kind, tuple[float, bool]] = {}
        lengths: dict[int, list[Kind]] = {}
        for window in windows:
            # An empty continuation has nothing to score: its log-likelihood is the empty sum, 0.
            if window.scored and window.kind not in kinds:
                kinds[window.kind] = (0.0, True)
                lengths.setdefault(len(window.tokens), []).append(window.kind)
        if self.course is not None:
            self.course.expect(n_requests, [(window.request, window.kind) for window in windows if window.scored])
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode():
                # A batch holds sequences of one length: nothing is padded, and no score depends on its neighbours.
                for length in sorted(lengths):
                    for start in range(0, len(lengths[length]), self.batch):
                        if self.stop():
                            raise Stopped
                        batch = lengths[length][start : start + self.batch]
                        kinds.update(zip(batch, self._answers(batch), strict=True))
                        if self.course is not None:
                            self.course.scored(batch)
        finally:
            self.model.train(was_training)
        # A request longer than the context is several windows: log-probabilities add, and all must be greedy.
        sums, greedy = [0.0] * n_requests, [True] * n_requests
        for window in windows:
            score, best = kinds.get(window.kind, (0.0, True))
            sums[window.request] += score
            greedy[window.request] = greedy[window.request] and best
        return list(zip(sums, greedy, strict=True))

    def _answers(self, batch: list[Kind]) -> list[tuple[float, bool]]:
        """Of sequences of one length, in passes of the same shape however many they are."""
        passes = (batch[start : start + self.rows] for start in range(0, len(batch), self.rows))
        return [answer for some in passes for answer in self._pass(some)]

    def _pass(self, some: list[Kind]) -> list[tuple[float, bool]]:
        # Rows are filled up with the last sequence; their answers are dropped by the enumeration below.
        filled = [tokens for tokens, _ in some] + [some[-1][0]] * (self.rows - len(some))
        device = next(self.model.parameters()).device
        tokens = torch.tensor(filled, dtype=torch.int64, device=device)
        # In float32 whatever the study trains in: in bfloat16, log-probabilities of different choices would often tie.
        with torch.autocast(device.type, enabled=False):
            logits: Tensor = self.model(tokens[:, :-1])
        assert logits.dtype == torch.float32, logits.dtype
        targets = tokens[:, 1:]
        # (rows, time): the log-probability of each token that follows, of which only the last `scored` are
        # summed.
        chosen = torch.log_softmax(logits, dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1).double()
        right = logits.argmax(dim=-1) == targets
        return [
            (float(chosen[row, -scored:].sum()), bool(right[row, -scored:].all()))
            for row, (_, scored) in enumerate(some)
        ]


def as_lm(scorer: Scorer) -> LM:
    """The scorer in the clothes that the harness knows. `load_harness` comes first."""
    from lm_eval.api import model as harness

    # Defined in the function: its base exists only after the harness, an optional extra, has been imported.
    class Adapter(harness.LM):  # type: ignore[misc]  # the harness has no types
        """Answers by log-likelihood; refuses to generate."""

        def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
            return scorer.loglikelihoods([_pair(request) for request in requests])

        def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
            return scorer.rolling([str(request.args[0]) for request in requests])

        def generate_until(self, requests: list[Instance]) -> list[str]:
            # Sampling needs a random state and a stopping rule, neither of which a registration fixes.
            raise UnsupportedError(
                "a task asks the model to generate text",
                required="tasks that are answered by the likelihood of given choices, so that nothing is sampled",
                fix="tasks with output_type: multiple_choice",
            )

    adapter: LM = Adapter()
    return adapter


def _pair(request: Any) -> tuple[str, str]:
    context, continuation = request.args
    return str(context), str(continuation)
