"""Metrics: the catalogue of all, with name, unit, which way is better, suite, reference and definition.

The trainer writes these names, claims are checked against them, the judge reads the direction of `does_not_worsen`
here, and reports take their units from here. A metric is defined once, in the table below.

To add a metric: a row of `_TABLE` under its suite, and its value in the module of `ablate/evaluation` that computes the
suite; `python -m docs.generator` writes it into docs/metrics.md. To add a suite: also a row of `SUITES` and its name in
`Suite`. Readers: `METRICS` (curves), `TASK_METRICS`, `ITEM_METRICS` (means over items), `declaration_of` (any of them),
`task_of`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from prereg.errors import FieldPath, SpecError, field_error

Better = Literal["lower", "higher", "neither"]
Suite = Literal["loss", "calibration", "activations", "gradients", "speed", "length", "cost"]


@dataclass(frozen=True)
class SuiteDeclaration:
    """What a suite looks at, and what it costs."""

    about: str
    cost: str
    only_at_end: bool = False
    """Whether it can only be measured at a run's last step."""


SUITES: Final[dict[str, SuiteDeclaration]] = {
    "loss": SuiteDeclaration("how well the model predicts", "one forward pass over the whole validation split"),
    "calibration": SuiteDeclaration(
        "whether its probabilities mean what they say",
        "one forward pass over the whole validation split, and 17 softmaxes per token on half of it, 4 on the rest",
    ),
    "activations": SuiteDeclaration(
        "what flows inside", "one forward pass over the first 16 validation windows, with everything between kept"
    ),
    "gradients": SuiteDeclaration("how large gradients are", "one gradient norm per block per step"),
    "speed": SuiteDeclaration("how long training and measuring take", "nothing: clocks are read anyway"),
    "length": SuiteDeclaration(
        "what happens beyond the context length that was trained",
        "one forward pass over the whole validation split, in windows of twice the context",
    ),
    "cost": SuiteDeclaration(
        "what a trained model costs to use, and training in arithmetic and memory",
        "the registered number of forward passes over one batch, and four matrix products",
        only_at_end=True,
    ),
}
"""Every suite; a study names those it wants, at every evaluation (`suites`) or at the last step alone (`at_end`)."""

TOKEN_CLASSES: Final = ("alphabetic", "numeric", "punctuation", "whitespace", "end_of_document", "other")
"""Classes of tokens by their text. A token's class is that of its first character that is no white space: a letter or
mark, a number, or anything else; white space where it has no other character, end of document where it has no text, and
other where it is a piece of a character."""

TEMPERATURES: Final = {"050": 0.5, "071": 0.5**0.5, "141": 2.0**0.5, "200": 2.0}
"""Ending of the metric's name -> temperature at which the loss is computed."""

_CLASSES = {kind: kind.replace("_", " ") for kind in TOKEN_CLASSES}
_EACH: Final[dict[str, dict[str, str]]] = {
    "CLASS": _CLASSES,
    "TOKENS": {kind: f"{label} tokens" for kind, label in _CLASSES.items()}
    | {"end_of_document": "end-of-document tokens", "other": "tokens that are pieces of a character"},
    "TEMPERATURE": {ending: f"{temperature:.4g}" for ending, temperature in TEMPERATURES.items()},
    "SUITE": {suite: suite for suite in SUITES if suite not in ("gradients", "speed")},
}
"""Word in a row's name that makes it one row for each of these -> part of the name -> what the definition says."""

_OVER = "over the positions of the first 16 validation windows"
_COSINE = "mean cosine of two different positions of a window, mean over the first 16 validation windows"
_BEFORE = "what the embedding norm is given (the same where there is none)"
_MOMENT = "root of the mean of Adam's bias-corrected second moments"

# name | unit | better | reference (none where the definition is plain arithmetic) | definition. A line that is indented
# goes on with the one before. An N in the name is a number from 0: of a block, a bin, a prompt, of shots.
_TABLE: Final = f"""
suite loss
train/loss | nats/token | lower | | mean cross-entropy of the step's own batch, before the update, with dropout as
    trained
val/loss | nats/token | lower | | mean cross-entropy over every token of the validation split, in disjoint windows of
    the context length
val/perplexity | | lower | Jelinek et al. 1977 | exp(val/loss)
val/bits_per_byte | bits/byte | lower | | summed cross-entropy over the validation split / ln 2 / bytes of its UTF-8
    text
val/accuracy | share | higher | | share of validation tokens that are the most probable next token (ties: lowest id)
val/macro_accuracy | share | higher | | mean of the accuracies of the token classes that occur among the validation
    targets, every class alike
val/accuracy_TOKENS | share | higher | | val/accuracy over the validation targets that are TOKENS; not recorded where
    none are
val/loss_first_quarter | nats/token | lower | | val/loss over the first quarter of the positions of every window
    (context // 4 of them, at least one)
val/loss_last_quarter | nats/token | lower | | val/loss over the last quarter of the positions of the context (as many
    as in the first), in every window that reaches there
val/steps_to_level | steps | lower | | steps to the first evaluation at which val/loss is at or below
    measure.loss_level, a straight line drawn from the evaluation before; the run's own steps so far while it has not
    been there, so a run that never comes there counts its whole length
suite calibration
calibration/ece | share | lower | Naeini et al. 2015; Guo et al. 2017 | expected calibration error: sum over
    measure.calibration.bins equal-width bins of the largest probability, (n_bin / n) x |accuracy - mean confidence|;
    bins are open below and closed above, the first closed on both sides; an empty bin adds nothing
calibration/brier | | lower | Brier 1950 | mean over tokens of the squared distance between the predicted distribution
    and the token's indicator, summed over the vocabulary (0 to 2)
calibration/loss_tTEMPERATURE | nats/token | lower | Guo et al. 2017 | val/loss with logits divided by TEMPERATURE
calibration/temperature | | neither | Guo et al. 2017 | temperature from 1/4 to 4 with the least loss on the first half
    of the validation split, by 17 temperatures in steps of 2^(1/4) and cubic interpolation of the loss between them; a
    value at an end says that the best lies beyond it
calibration/bin_share_N | share | neither | | share of the tokens in the equal-width bin N (from 0)
calibration/bin_confidence_N | share | neither | DeGroot and Fienberg 1983 | mean confidence in the equal-width bin N
    (from 0): the reliability curve's abscissa; not recorded for an empty bin
calibration/bin_accuracy_N | share | neither | DeGroot and Fienberg 1983 | accuracy in the equal-width bin N (from 0):
    the reliability curve's ordinate; not recorded for an empty bin
suite activations
embedding/norm | | neither | | mean over validation positions (first 16 windows) of the L2 norm of the first block's
    input
embedding/norm_sd | | neither | | standard deviation {_OVER} of the L2 norm of the first block's input
embedding/norm_CLASS | | neither | | embedding/norm over the positions that hold tokens of the class CLASS; not recorded
    where there are none
embedding/norm_before | | neither | Dettmers et al. 2022 | mean {_OVER} of the L2 norm of {_BEFORE}
embedding/norm_before_sd | | neither | | standard deviation {_OVER} of the L2 norm of {_BEFORE}
embedding/cosine | | neither | Ethayarajh 2019 | of the first block's input: {_COSINE}; 1 is oversmoothed
embedding/cosine_before | | neither | Ethayarajh 2019 | of {_BEFORE}: {_COSINE}
embedding/table_norm | | neither | | mean L2 norm of the rows of the token embedding table
logits/rms | | neither | | root mean square of the logits, {_OVER} and the vocabulary
logits/sd | | neither | | mean {_OVER} of the standard deviation of a position's logits over the vocabulary
logits/largest | | neither | | largest absolute logit, {_OVER}
logits/log_z | | neither | Chowdhery et al. 2022 | mean {_OVER} of the logarithm of the softmax' normaliser: how far the
    logits have drifted
residual/norm_N | | neither | | mean {_OVER} of the L2 norm of what block N (from 0) gives
residual/cosine_N | | neither | Shi et al. 2022 | of what block N (from 0) gives: {_COSINE}; 1 is oversmoothed
embedding/norm_p05 | | neither | | 5th percentile {_OVER} of the L2 norm of the first block's input (linear between
    values)
embedding/norm_p50 | | neither | | median {_OVER} of the L2 norm of the first block's input
embedding/norm_p95 | | neither | | 95th percentile {_OVER} of the L2 norm of the first block's input (linear between
    values)
logits/size_p50 | | neither | | median absolute logit, {_OVER} and the vocabulary: mean over windows of each one's
    median
logits/size_p99 | | neither | | 99th percentile of the absolute logits, {_OVER} and the vocabulary: mean over windows of
    each one's (linear between values)
suite gradients
train/grad_norm | | neither | | global L2 norm of the gradient of the step's own batch, before clipping; of every step
grad/norm | | neither | | global L2 norm of the gradient before clipping, mean over the steps since the last evaluation
adam/second_moment | | neither | Kingma and Ba 2015 | {_MOMENT}, over all parameters that have one (with Muon, those
    outside the blocks' matrices; none with SGD)
adam/largest_second_moment | | neither | Kingma and Ba 2015 | root of the largest of Adam's bias-corrected second
    moments
grad/layer_N | | neither | | L2 norm of the gradient of block N (from 0) before clipping, mean over the steps since the
    last evaluation
grad/first_layer_N | | neither | | L2 norm of the gradient of block N (from 0) at the first step, before clipping and
    before any weight has moved
adam/second_moment_N | | neither | Kingma and Ba 2015 | {_MOMENT}, over block N (from 0)
suite speed
speed/tokens_per_s | tokens/s | higher | | training tokens consumed / seconds in training steps, evaluation left out
speed/eval_s | s | lower | | seconds spent in evaluation so far
speed/measure_SUITE_s | s | lower | | seconds of the suite SUITE in this evaluation
speed/measure_gradients_s | s | lower | | seconds of the suite gradients in this evaluation; the norms taken in every
    step are part of the step
suite length
length/loss_beyond | nats/token | lower | Press et al. 2022 | mean cross-entropy over the positions from the context
    length to twice it, in disjoint windows of twice the context; not for learned positions, which end there
length/brittleness | nats/token | lower | Press et al. 2022 | length/loss_beyond minus the mean cross-entropy over the
    last quarter of the context in the same windows
suite cost
cost/inference_tokens_per_s | tokens/s | higher | | tokens of one forward pass over measure.inference.batch windows of
    measure.inference.length / median seconds of measure.inference.repeats passes, after one that is not counted
cost/peak_memory | bytes | lower | | largest resident memory of the process that trained, since the run began or was
    taken up, libraries and what earlier runs of the process left behind included; recorded where the system lets a
    process start that count anew (Linux)
cost/flops_per_token | FLOP/token | lower | Chowdhery et al. 2022, appendix B | arithmetic of training on one token,
    forward and backward: 6 x weights that take part in products (looking up an embedding multiplies nothing) + 12 x
    layers x heads x head size x context (`prereg.size`)
cost/flops_per_s | FLOP/s | higher | | cost/flops_per_token x training tokens consumed / seconds in training steps
cost/mfu | share | higher | Chowdhery et al. 2022 | cost/flops_per_s / the fastest of three products of two 1024 x 1024
    matrices in the registered arithmetic, timed in the same process right after training: a limit that was measured,
    not a maker's figure
suite items
harness/accuracy | share | higher | | share of the items of all tasks that are answered correctly
harness/macro_accuracy | share | higher | | mean over tasks of the share of a task's items that are answered correctly
harness/accuracy_shots_N | share | higher | | share of the items of all tasks that are answered correctly with N
    examples in the prompt
harness/macro_accuracy_shots_N | share | higher | | mean over tasks of the share of a task's items that are answered
    correctly with N examples in the prompt
suite tasks
harness/macro_accuracy_median_prompt | share | higher | | median over the prompts of a task pack of the macro accuracy
    under that prompt alone
harness/macro_accuracy_spread_prompt | share | neither | | largest minus smallest macro accuracy over the prompts of a
    task pack
harness/ece | share | lower | | expected calibration error over all askings (Guo et al. 2017; 15 bins of equal width):
    the probability of the answer, a softmax over the choices' log-likelihoods, against the share of right answers
harness/ece_normalised | share | lower | | harness/ece, the same with every log-likelihood divided by the number of
    characters of its choice
harness/brier | | lower | | mean over all askings of the squared distance between the softmax over the choices'
    log-likelihoods and the right answer, summed over choices (Brier 1950): 0 to 2, and 0.5 for even odds between two
    choices
harness/brier_normalised | | lower | | harness/brier, the same with every log-likelihood divided by the number of
    characters of its choice
harness/truncated | | neither | | requests (a prompt with one choice) longer than the model's context, whose beginning
    was not seen
harness/unencodable | | neither | | items left out, for every variant alike, because the tokenizer has no token for some
    character of theirs
harness/macro_accuracy_prompt_N | share | higher | | macro accuracy under prompt N of the task pack alone (from 0)
"""

EVERY_STEP: Final = ("train/loss", "train/grad_norm")
"""Metrics that the built-in trainer records at every step, and not only at evaluations."""

_COUNTED: Final = {"block N": "block", "bin N": "bin", "prompt N": "prompt", "N examples": "shots"}
_NUMBERED: Final = re.compile(r"(.+_)(0|[1-9][0-9]{0,3})")
OF_TASKS: Final = r"harness/accuracy(?:_shots_(?:0|[1-9][0-9]{0,3}))?"
"""Metrics that can be claimed of each task too, as METRIC/TASK: means over the scored items of that task."""
_TASK: Final = re.compile(rf"({OF_TASKS})/([A-Za-z0-9][\w.-]*)")


_COUNTED_UNITS: Final = ("share", "percent", "%", "count", "counts", "items", "steps", "bytes", "tokens", "FLOP/token")
_NO_COUNTS: Final = ("calibration/ece", "harness/ece", "harness/ece_normalised", "cost/mfu")
"""Metrics in such a unit that are computed from probabilities or from a clock."""
SHARE: Final = (0.0, 1.0)
"""The range of a share."""


@dataclass(frozen=True)
class Metric:
    """The declaration of one metric."""

    name: str
    unit: str
    better: Better
    suite: Suite | Literal["own", "items", "tasks"]
    """`items` and `tasks` are metrics of zero- and few-shot tasks: means over scored items, which seeds x items can
    judge, and the others. An *asking* is one item under one number of shots and one prompt; an item's score is the mean
    over its askings."""
    definition: str
    reference: str = ""
    """Who defined it, author and year; nothing where the definition is plain arithmetic."""

    @property
    def repeatable(self) -> bool:
        """Whether the same seed on the same machine gives the same bits (timings do not)."""
        return self.suite not in ("speed", "cost") or self.name == "cost/flops_per_token"

    @property
    def range(self) -> tuple[float, float] | None:
        """The smallest and largest value that it can have, where that is known. What is measured against a limit that
        is itself measured (cost/mfu) can pass it."""
        return SHARE if self.unit == "share" and self.suite != "cost" else None

    @property
    def is_count(self) -> bool:
        """Whether it is a count, or a share of what is counted, so that two models that differ can have one value.

        >>> METRICS["val/accuracy"].is_count, METRICS["val/loss"].is_count, METRICS["calibration/ece"].is_count
        (True, False, False)
        """
        if self.name in _NO_COUNTS or self.name.startswith("calibration/bin_confidence_"):
            return False
        return self.unit in _COUNTED_UNITS or self.name in ("harness/truncated", "harness/unencodable")

    @property
    def raw_scale(self) -> bool:
        """Whether a mean of raw differences is a sensible estimand (perplexity wants its logarithm)."""
        return self.name != "val/perplexity"

    @property
    def counted(self) -> str:
        """What the N in the name of a family counts: block, bin, prompt or shots; nothing for a single metric."""
        return next((what for words, what in _COUNTED.items() if words in self.definition), "")

    @property
    def scores(self) -> str:
        """Of a mean over items: the metric of the items table that it averages."""
        return self.name.replace("macro_", "").removesuffix(f"/{task_of(self.name)}")

    @property
    def counts_alike(self) -> Literal["items", "tasks"]:
        """Of a mean over items: what has the same weight in it. Where it is tasks (the mean over tasks of the mean over
        a task's items), a task is the unit that is sampled, and a claim over new items needs `clusters: tasks`."""
        return "tasks" if "macro_" in self.name else "items"


def _rows() -> Iterator[Metric]:
    """Every metric of the table; a row with a word of `_EACH` in its name is one metric for each of its parts."""
    suite = ""
    # An indented line goes on with the row before it.
    for row in _TABLE.replace("\n    ", " ").strip().splitlines():
        if row.startswith("suite "):
            suite = row.removeprefix("suite ")
            continue
        name, unit, better, reference, definition = (cell.strip() for cell in row.split("|", 4))
        word = next((word for word in _EACH if word in name), "")
        for part, label in _EACH[word].items() if word else [("", "")]:
            yield Metric(
                name.replace(word, part) if word else name,
                unit,
                better,  # type: ignore[arg-type]
                suite,  # type: ignore[arg-type]
                definition.replace(word, label) if word else definition,
                reference,
            )


class Catalogue(Mapping[str, Metric]):
    """Metrics by name; a member of a family (`grad/layer_3` of `grad/layer_N`) is found by its own name, not listed.

    >>> METRICS["val/loss"].unit, METRICS["val/loss"].better
    ('nats/token', 'lower')
    >>> METRICS["grad/layer_3"].definition.split(" before ")[0]
    'L2 norm of the gradient of block 3 (from 0)'
    >>> METRICS.layer("grad/layer_3"), "grad/layer_3" in list(METRICS)
    (3, False)
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        # Families apart from the list: `grad/layer_N` is no metric that a run records.
        declared = {metric.name: metric for metric in metrics}
        self.families: tuple[Metric, ...] = tuple(metric for metric in declared.values() if metric.counted)
        self._listed = {name: metric for name, metric in declared.items() if not metric.counted}
        self._families = {family.name.removesuffix("N"): family for family in self.families}

    def __getitem__(self, name: str) -> Metric:
        if name in self._listed:
            return self._listed[name]
        # Not in the table itself: a member of a family, a task of a mean over items.
        family, number = self._member(name)
        if family is not None:
            return replace(family, name=name, definition=re.sub(r"\bN\b", number, family.definition))
        task = task_of(name)
        if task is not None:
            all_tasks = self[name.removesuffix(f"/{task}")]
            of_one = all_tasks.definition.replace("the items of all tasks", f"the items of the task {task}")
            return replace(all_tasks, name=name, definition=of_one)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    def number(self, name: str, counted: str) -> int | None:
        """The block, bin, prompt or number of shots that a metric is about; none where it is about no single one."""
        # Of a name without a task this takes `/None` from the end, where it is not.
        family, number = self._member(name.removesuffix(f"/{task_of(name)}"))
        return int(number) if family is not None and family.counted == counted else None

    def layer(self, name: str) -> int | None:
        """The block that a metric is about; none where it is about no single one.

        >>> METRICS.layer("grad/layer_3"), METRICS.layer("val/loss")
        (3, None)
        """
        return self.number(name, "block")

    def bin(self, name: str) -> int | None:
        """The bin of confidence that a metric is about; none where it is about no single one."""
        return self.number(name, "bin")

    def _member(self, name: str) -> tuple[Metric | None, str]:
        # A number has one spelling: `grad/layer_03` would be a second name of the same metric.
        numbered = _NUMBERED.fullmatch(name)
        return (self._families.get(numbered[1]), numbered[2]) if numbered else (None, "")


def task_of(name: str) -> str | None:
    """The task that a metric is about; none where it is about all of them, or of no task.

    >>> task_of("harness/accuracy/anaphor"), task_of("harness/accuracy_shots_5")
    ('anaphor', None)
    """
    parts = _TASK.fullmatch(name)
    return parts[2] if parts else None


_ALL: Final = tuple(_rows())
METRICS: Final = Catalogue(metric for metric in _ALL if metric.suite not in ("items", "tasks"))
"""What the built-in trainer writes along its curve."""
ITEM_METRICS: Final = Catalogue(metric for metric in _ALL if metric.suite == "items")
"""Means over scored items."""
TASK_METRICS: Final = Catalogue(metric for metric in _ALL if metric.suite in ("items", "tasks"))
"""Every metric of zero- and few-shot tasks, means over items or not."""
TASK_NAMES: Final = (*TASK_METRICS, *(family.name for family in TASK_METRICS.families))
"""Names of the metrics of tasks that can be claimed; families by their own."""


def declaration_of(name: str) -> Metric | None:
    """The metric of that name, of the curve or of tasks; none where the catalogue has no such metric.

    >>> declaration_of("harness/accuracy").better
    'higher'
    >>> declaration_of("val/los") is None
    True
    """
    # TASK_METRICS holds the metrics of ITEM_METRICS too.
    return METRICS.get(name) or TASK_METRICS.get(name)


def without_side(place: FieldPath, metric: str) -> SpecError:
    """The error of a field that asks for the better side of a metric which has none."""
    required = "better: lower, or better: higher"
    return field_error(place, f"nothing says which way {metric} improves", required, "better: lower")
