"""A study at scale: every number with how it comes about, and no number that nobody measured or assumed.

Time follows from a share of the device's peak (MFU, Chowdhery et al. 2022): measured on recorded runs of the same kind
of device, or assumed by the user, and then printed as an assumption. With neither there is no time, only FLOPs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from ablate.scale.target import Device, MemoryPart, Shard, activations, keeps_scores, state_parts
from prereg.errors import StudyError
from prereg.study.sizes import flops_per_token, parameters
from prereg.study.training import Training
from prereg.text import counted, listed

FILLED = 0.9
"""Share of a device's memory that the sum of the parts may take; the rest is the allocator's and the libraries'."""
MACHINE = 8
"""Devices of one machine, at most: `ablate run` spreads a run within one."""
REFERENCES = (
    "Brown et al. 2020, table 2.1: shapes and batches of models by their size",
    "Chowdhery et al. 2022, app. B: FLOPs per token 6 N + 12 L h s, N weights that are multiplied; MFU",
    "Korthikanti et al. 2022: activations; s context, b micro-batch, h width, a heads, L layers, v vocabulary",
    "Rajbhandari et al. 2020: weights, gradients and moments cut over the devices; P parameters",
)


@dataclass(frozen=True)
class Line:
    """One number, or none where nothing is known, and how it comes about."""

    key: str
    name: str
    value: float | None
    unit: str
    how: str


@dataclass(frozen=True)
class Section:
    """Lines that belong together."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class ScalePlan:
    """The whole plan."""

    title: str
    sections: tuple[Section, ...]
    notes: tuple[str, ...]

    def value(self, key: str) -> float | None:
        """The number of a line."""
        return next(line.value for section in self.sections for line in section.lines if line.key == key)


@dataclass(frozen=True)
class Measured:
    """What recorded runs reached on one device."""

    device: str
    n_runs: int
    flops_per_s: float
    low: float
    high: float


@dataclass(frozen=True)
class Request:
    """What is to be planned."""

    study: str
    arms: Mapping[str, Training]
    """Each arm's configuration, at the size that was requested."""
    vocabulary: int
    vocabulary_from: str
    n_seeds: int
    tokens: int | None
    """Tokens per run; none: each arm's own budget."""
    devices: int
    device: Device
    devices_per_run: int | None = None
    shard: Shard | None = None
    mfu: float | None = None
    price: float | None = None
    measured: Measured | None = None
    micro_batch: int | None = None
    runs: Mapping[str, int] = field(default_factory=dict)
    """Arm -> its runs, where arms have different numbers of seeds, or a pilot."""
    open_steps: tuple[str, ...] = ()
    """Arms of a path whose parts are not known yet: planned with the parts in the order of the file."""

    def runs_of(self, arm: str) -> int:
        """Runs of one arm."""
        return self.runs.get(arm, self.n_seeds)

    @property
    def n_runs(self) -> int:
        """Runs of all arms."""
        return sum(self.runs_of(arm) for arm in self.arms)

    @property
    def extent(self) -> str:
        """How the number of runs comes about."""
        if self.runs:
            return " + ".join(f"{self.runs_of(arm)} of {arm}" for arm in self.arms)
        return f"{counted(len(self.arms), 'arm')} x {counted(self.n_seeds, 'seed')}"


@dataclass(frozen=True)
class Layout:
    """How a run is laid over devices, and what each of them then holds."""

    devices: int
    shard: Shard
    micro_batch: int
    micro_batch_from: str
    state: tuple[MemoryPart, ...]
    kept: dict[str, MemoryPart]
    """recompute -> activations."""
    recompute: str

    @property
    def bytes(self) -> float:
        return self.with_recompute(self.recompute)

    def with_recompute(self, recompute: str) -> float:
        """What a device holds at most, with or without recomputation."""
        return sum(part.size_bytes for part in self.state) + self.kept[recompute].size_bytes


def plan_scale(request: Request) -> ScalePlan:
    """Size, memory, time and cost of a study."""
    heaviest = max(request.arms, key=lambda arm: parameters(request.arms[arm].model, request.vocabulary))
    layout = _layout(request, request.arms[heaviest])
    speed = _Speed.of(request, request.arms[heaviest])
    sections = (
        _run_section(request, heaviest),
        _memory_section(request, layout),
        _time_section(request, layout, speed),
    )
    title = f"'{request.study}' on {request.devices} x {request.device.name}"
    return ScalePlan(title, sections, (*_notes(request, heaviest, layout, speed), *REFERENCES))


def _tokens(request: Request, config: Training) -> int:
    return request.tokens if request.tokens is not None else config.tokens


def _run_section(request: Request, arm: str) -> Section:
    config, vocabulary = request.arms[arm], request.vocabulary
    tokens, each = _tokens(request, config), flops_per_token(config.model, request.vocabulary)
    step = config.budget.batch * config.model.context
    model = config.model
    shape = f"{model.layers} layers, width {model.width:,}, vocabulary {vocabulary:,} ({request.vocabulary_from})"
    return Section(
        f"One run of arm '{arm}'",
        (
            Line("parameters", "parameters P", parameters(model, vocabulary), "", shape),
            Line("tokens", "tokens", tokens, "", "requested" if request.tokens is not None else "the study's budget"),
            Line("tokens_per_step", "tokens a step", step, "", f"batch {config.budget.batch:,} x {model.context:,}"),
            Line("steps", "steps", -(-tokens // step), "", "tokens / tokens a step"),
            Line("flops_per_token", "FLOPs per token", each, "", "6 N + 12 L h s, forward and backward"),
            Line("flops_per_run", "FLOPs per run", each * tokens, "", "FLOPs per token x tokens"),
        ),
    )


def _memory_section(request: Request, layout: Layout) -> Section:
    parts = (*layout.state, *layout.kept.values())
    lines = [Line(part.key, part.name, part.size_bytes, "B", part.how) for part in parts]
    lines += [
        Line(
            f"memory_{recompute}",
            f"sum, recompute: {recompute}",
            layout.with_recompute(recompute),
            "B",
            "as planned" if recompute == layout.recompute else "for comparison",
        )
        for recompute in ("none", "blocks")
    ]
    has = request.device.memory_bytes
    if has is not None:
        share = layout.bytes / has
        verdict = "fits" if share <= FILLED else f"does not fit: at most {FILLED:.0%} may be filled"
        lines.append(Line("memory_share", f"share of {has / 1e9:.0f} GB", share, "%", verdict))
    how = "one device" if layout.devices == 1 else f"each of {layout.devices} devices ({layout.shard})"
    return Section(f"Memory of {how}, micro-batch {layout.micro_batch:,} ({layout.micro_batch_from})", tuple(lines))


def _time_section(request: Request, layout: Layout, speed: _Speed) -> Section:
    costs = {
        arm: flops_per_token(config.model, request.vocabulary) * _tokens(request, config)
        for arm, config in request.arms.items()
    }
    flops = sum(cost * request.runs_of(arm) for arm, cost in costs.items())
    runs = request.n_runs
    at_once = max(1, request.devices // layout.devices)
    rounds = -(-runs // at_once)
    config = request.arms[max(costs, key=lambda arm: costs[arm])]
    each = flops_per_token(config.model, request.vocabulary)
    rate = speed.flops_per_s
    per_device = None if rate is None else rate / each
    run_hours = None if per_device is None else _tokens(request, config) / (per_device * layout.devices) / 3600
    device_hours = None if rate is None else flops / rate / 3600
    lines = [
        Line("peak_flops_per_s", "peak of a device", speed.peak, "FLOP/s", speed.peak_from),
        Line("mfu", "MFU", speed.mfu, "%", speed.mfu_from),
        Line("tokens_per_s", "tokens/s of a device", per_device, "", speed.tokens_from),
        Line("run_hours", "hours of a run", run_hours, "", f"tokens / tokens/s / {counted(layout.devices, 'device')}"),
        Line("runs", "runs", runs, "", request.extent),
        Line("device_hours", "device-hours", device_hours, "", "FLOPs of all runs / FLOP/s"),
        Line(
            "wall_hours",
            "hours until all are done",
            None if run_hours is None else run_hours * rounds,
            "",
            f"{counted(rounds, 'round')} of at most {at_once} runs side by side",
        ),
    ]
    if request.price is not None:
        cost = None if device_hours is None else device_hours * request.price
        lines.append(Line("cost", "cost", cost, "", f"device-hours x {request.price:g} (--price)"))
    each_arm = {name: parameters(arm.model, request.vocabulary) for name, arm in request.arms.items()}
    kept = sum(count * request.runs_of(name) for name, count in each_arm.items()) * 4
    lines.append(Line("disk", "sealed weights on disk", kept, "B", "4 P x runs"))
    return Section("Time and cost, training alone", tuple(lines))


def _layout(request: Request, config: Training) -> Layout:
    """As requested; otherwise the one that fits with which all runs end soonest, on the fewest devices, uncut."""
    shards: tuple[Shard, ...] = (request.shard,) if request.shard is not None else ("ddp", "fsdp")
    per_run = [request.devices_per_run] if request.devices_per_run is not None else _divisors(request, config)
    tried = [_laid(request, config, devices, shard) for devices in per_run for shard in shards]
    has = request.device.memory_bytes
    fitting = [layout for layout in tried if has is None or layout.bytes <= FILLED * has]
    if not fitting:
        return min(tried, key=lambda layout: layout.bytes)
    runs = request.n_runs

    def duration(layout: Layout) -> Fraction:
        return Fraction(-(-runs // (request.devices // layout.devices)), layout.devices)

    return min(fitting, key=lambda layout: (duration(layout), layout.devices, shards.index(layout.shard)))


def _divisors(request: Request, config: Training) -> list[int]:
    """Numbers of one machine's devices that the devices split into, and the batch over."""
    least = min(request.devices, config.budget.batch, MACHINE)
    return [n for n in range(1, least + 1) if request.devices % n == 0 and config.budget.batch % n == 0]


def _laid(request: Request, config: Training, devices: int, shard: Shard) -> Layout:
    if config.budget.batch % devices:
        raise StudyError(
            f"a batch of {config.budget.batch} sequences does not divide over {devices} devices",
            required="--devices-per-run that divides the batch",
            fix="another --devices-per-run",
        )
    mine = config.budget.batch // devices
    state = state_parts(config, request.vocabulary, devices, shard)
    recompute = config.numerics.recompute

    def kept(micro_batch: int) -> dict[str, MemoryPart]:
        return {how: activations(config, request.vocabulary, micro_batch, how) for how in ("none", "blocks")}

    given = request.micro_batch or config.budget.micro_batch
    if given is not None:
        if mine % given:
            raise StudyError(
                f"micro-batches of {given} do not divide the {mine} sequences of a device",
                required="a micro-batch that divides the batch / --devices-per-run",
                fix="another --micro-batch",
            )
        said = "--micro-batch" if request.micro_batch else "the study's"
        return Layout(devices, shard, given, said, state, kept(given), recompute)
    has = request.device.memory_bytes
    sizes = [n for n in range(mine, 0, -1) if mine % n == 0]
    room = None if has is None else FILLED * has - sum(part.size_bytes for part in state)
    fitting = (n for n in sizes if room is None or kept(n)[recompute].size_bytes <= room)
    chosen = next(fitting, 1)
    said = "all of its sequences" if chosen == mine else "the largest that fits; set budget.micro_batch"
    return Layout(devices, shard, chosen, said, state, kept(chosen), recompute)


@dataclass(frozen=True)
class _Speed:
    """What a device reaches, and whose word that is."""

    flops_per_s: float | None
    peak: float | None
    peak_from: str
    mfu: float | None
    mfu_from: str
    tokens_from: str

    @classmethod
    def of(cls, request: Request, config: Training) -> _Speed:
        dtype = config.numerics.dtype
        tflops = request.device.tflops.get(dtype)
        peak = None if tflops is None else tflops * 1e12
        peak_from = f"{dtype}, dense: {request.device.source}" if peak is not None else request.device.source
        seen = request.measured
        if request.mfu is not None:
            if peak is None:
                raise StudyError(
                    f"--mfu is a share of a peak, and none is known of '{request.device.name}'",
                    required="a device with a stated peak, or its peak",
                    fix="--peak-tflops N",
                )
            return cls(
                peak * request.mfu, peak, peak_from, request.mfu, "ASSUMED, by --mfu", "peak x MFU / FLOPs per token"
            )
        if seen is not None:
            text = f"measured: {counted(seen.n_runs, 'run')} on {seen.device}"
            mfu = None if peak is None else seen.flops_per_s / peak
            return cls(seen.flops_per_s, peak, peak_from, mfu, text, "measured FLOP/s / FLOPs per token")
        return cls(None, peak, peak_from, None, "not known: no run of this device, no --mfu", "needs an MFU")


def _notes(request: Request, heaviest: str, layout: Layout, speed: _Speed) -> tuple[str, ...]:
    notes = []
    if request.open_steps:
        steps = listed(request.open_steps)
        notes.append(f"The parts of {steps} are chosen by a pilot: planned as if taken in the order of the file.")
    seen = request.measured
    if seen is not None:
        notes.append(
            f"Measured on {seen.device}: {seen.flops_per_s / 1e12:.4g} TFLOP/s a device, the mean of "
            f"{counted(seen.n_runs, 'run')} from {seen.low / 1e12:.4g} to {seen.high / 1e12:.4g}, "
            "tokens x FLOPs per token / seconds in training steps."
        )
    if seen is not None and speed.mfu is not None and request.mfu is None:
        notes.append("A measured MFU is that of the recorded runs; larger matrices usually reach more.")
    if request.mfu is not None:
        notes.append(f"The MFU of {request.mfu:g} is an assumption: nothing here measured it.")
    if layout.devices > 1:
        notes.append("Time between devices is not modelled: an MFU below that of one device has to cover it.")
    if layout.devices > 1:
        notes.append("The built-in trainer makes a run on one device; a trainer of your own may start torchrun.")
    if keeps_scores(request.arms[heaviest]):
        notes.append("Attention is counted with its scores: it is fused only in float32 without dropout.")
    if len(request.arms) > 1:
        notes.append(f"Memory is that of the heaviest arm, '{heaviest}'; FLOPs are summed over all arms.")
    notes.append("Evaluation, checkpoints and start-up are not counted.")
    return tuple(notes)
