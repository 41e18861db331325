"""Metrics of a study's own, executed: registered code only, on a copy of the model at rest, one number back.

A metric is a plain function of one argument, a `View`. It sees a copy of the model and of the validation text: what it
does to them changes no run. It sees no hypothesis, no other run and no training text. Its module is loaded again for
every evaluation, so that nothing is carried from one to the next, and a run that is resumed gives the same.

    returns a finite number            recorded
    returns NaN or an infinity         not recorded, as of any metric
    raises, or returns anything else   the run fails, and says so
    takes longer than its `limit_s`    is interrupted, and the run fails; a call of C is late when it has ended
    its source is not the registered   not executed, and the run fails

It must give the same number for the same view: it is part of what a rerun is compared by. Its seconds are recorded.
What it prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import copy
import numbers
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.data.batches import Tokens, whole
from ablate.evaluation.loss import windows
from ablate.gpt.model import GPT
from prereg.errors import EvidenceError, StudyError
from prereg.metrics.user_code import CheckPin, Overdue, at_most, loading, read_registered
from prereg.study.measure import OwnMetric


@dataclass(frozen=True)
class View:
    """What a study's own metric may look at."""

    model: GPT
    """A copy of the model as it is evaluated, at rest; `model(tokens)` gives logits, `model.config` its shape."""
    tokens: np.ndarray
    """Token ids of the validation split; they cannot be written to."""
    pieces: tuple[bytes, ...]
    """The bytes of every entry of the vocabulary; empty where the corpus is stored as ids and nobody said them."""
    step: int
    """Optimiser steps taken so far."""
    read: Tokens
    """The validation split as the trainer's own metrics read it."""

    def predictions(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(inputs, targets, float32 logits) of every validation window, in the order and size that val/loss takes."""
        for inputs, targets in windows(self.read, self.model.config.context, self.model.device):
            yield inputs, targets, self.model(inputs).float()

    def losses(self) -> np.ndarray:
        """Cross-entropy in nats of every validation token but the first, in order; their mean is val/loss."""
        parts = [
            F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), reduction="none").double()
            for _, targets, logits in self.predictions()
        ]
        return np.asarray(torch.cat(parts).cpu().numpy())


@dataclass(frozen=True)
class MetricSource:
    """The registered code of one own metric, read and compared with its pin."""

    metric: OwnMetric
    path: Path
    content: bytes


def registered_sources(
    metrics: tuple[OwnMetric, ...], pins: Mapping[str, CheckPin], folder: Path
) -> tuple[MetricSource, ...]:
    """The code of every own metric; `EvidenceError` where it is not what was registered. Nothing of it is executed."""
    sources = []
    for metric in metrics:
        try:
            sources.append(MetricSource(metric, *read_registered(metric, folder, pins)))
        except StudyError as error:
            raise EvidenceError(
                f"the metric {metric.name} is not the registered code: {error.found}",
                required="the code that was registered; nothing of it was executed",
                fix=f"restore it in {folder}, or: ablate amend STUDY --reason ...",
            ) from None
    return tuple(sources)


def measure_own(
    sources: tuple[MetricSource, ...],
    model: GPT,
    tokens: Tokens,
    pieces: list[bytes] | None,
    step: int,
) -> dict[str, float]:
    """The value of every own metric."""
    values = {}
    for source in sources:
        text = whole(tokens)
        text.flags.writeable = False
        # A copy for every metric: what one does to the model or the text must not reach the next, nor the
        # training.
        view = View(copy.deepcopy(model).eval(), text, tuple(pieces or ()), step, _copied(tokens))
        # A metric that draws random numbers must not move the dropout masks of the steps that follow.
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            values[source.metric.name] = _value(source, view)
    return values


def _copied(tokens: Tokens) -> Tokens:
    return tokens.copy() if isinstance(tokens, np.ndarray) else tokens  # what lies in files cannot be written to


def _value(source: MetricSource, view: View) -> float:
    module, function = source.metric.entry_point.split(":")
    limit_s = source.metric.limit_s
    try:
        with contextlib.redirect_stdout(sys.stderr), loading(module, source.path, source.content) as load:
            # To load it may take as long as to call it.
            value = at_most(limit_s, lambda: getattr(load(), function)(view))
    except Overdue:
        raise EvidenceError(
            f"the metric {source.metric.name} took longer than its limit of {limit_s:g} s, and was ended",
            required=f"a number from {source.metric.entry_point} within its limit_s",
            fix=f"make it faster, or register a larger limit_s of {source.metric.name}",
        ) from None
    except (Exception, SystemExit) as error:
        # Not swallowed: whatever a user's code raises is reported as the reason why the run failed.
        raise EvidenceError(
            f"the metric {source.metric.name} raised {type(error).__name__}: {error}",
            required=f"a number from {source.metric.entry_point}",
        ) from error
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    # bool is a number to Python, and a metric that returns True has most likely forgotten to count.
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise EvidenceError(
            f"the metric {source.metric.name} returned {type(value).__name__}",
            required=f"one number from {source.metric.entry_point}",
        )
    return float(value)
