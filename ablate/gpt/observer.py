"""Observer of a model while it is trained: suites, and what measuring took."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from ablate.evaluation.suites import (
    evaluate,
    measure_cost,
    second_moments,
    steps_to_level,
)
from ablate.gpt.device import Peak
from ablate.gpt.inputs import Text
from ablate.gpt.model import GPT
from ablate.gpt.trainer import Trainer
from prereg.registry.plan import RunSpec

Curve = list[tuple[int, float]]


class Observer:
    """Evaluates the model of one run. Weights and moments stay as they are."""

    def __init__(self, spec: RunSpec, text: Text, trainer: Trainer, peak: Peak) -> None:
        self.spec, self.text, self.trainer, self.peak = spec, text, trainer, peak

    def evaluate(self, recorded: Callable[[str], Curve]) -> dict[str, float]:
        """Every metric that is due at this step. `recorded` gives the values that a metric has had so far, by step."""
        progress, measure = self.trainer.progress, self.spec.measure
        last = progress.step == self.spec.config.budget.steps
        suites = measure.due(last=last)
        started = time.perf_counter()
        values: dict[str, float] = {}
        if "gradients" in suites:
            # Before the averaged weights are swapped in: moments belong to the weights that are trained.
            values = second_moments(self.trainer.model, self.trainer.optimizers)
            if progress.step:
                values["speed/measure_gradients_s"] = time.perf_counter() - started
        # In the registered arithmetic, so that train and validation loss are of one model.
        with self.trainer.arithmetic(), self.trainer.evaluated() as model:
            values |= evaluate(
                model,
                self.text.split.validation,
                self.text.tokenizer.byte_lengths(),
                suites,
                classes=self.text.classes,
                calibration=measure.calibration,
                clock=time.perf_counter,
            )
            if "cost" in suites:
                values |= self._measured_cost(model)
        # A level can be reached only at a step that is measured: the curve is that of the evaluations.
        if measure.loss_level is not None:
            curve = [*recorded("val/loss"), (progress.step, values["val/loss"])]
            values["val/steps_to_level"] = steps_to_level(curve, measure.loss_level)
        # In the trainer's progress, which a checkpoint keeps: a resumed run goes on counting.
        progress.eval_s += time.perf_counter() - started
        # Called even where nobody records them: the call starts the next mean.
        norms = self.trainer.grad_norms()
        if "gradients" in suites:
            values |= norms
        # Times are measured anyway and dropped here, so that a study that records none has no row that differs from
        # run to run.
        if "speed" not in suites:
            values = {name: value for name, value in values.items() if not name.startswith("speed/")}
        elif progress.step:
            values["speed/tokens_per_s"] = progress.tokens / progress.train_s
            values["speed/eval_s"] = progress.eval_s
        return values

    def _measured_cost(self, model: GPT) -> dict[str, float]:
        """The suite of the whole run, at its end."""
        started = time.perf_counter()
        progress = self.trainer.progress
        model.eval()
        with torch.inference_mode():
            values = measure_cost(
                model,
                self.text.split.validation,
                self.spec.measure.inference,
                trained_tokens_per_s=progress.tokens / progress.train_s,
                peak_bytes=self.peak.read_bytes() if self.peak.since == "run" else None,
                clock=time.perf_counter,
            )
        model.train()
        values["speed/measure_cost_s"] = time.perf_counter() - started
        return values
