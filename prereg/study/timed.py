"""Timed promises: claims and budgets of a study whose values depend on how busy, warm or full the machine was.

A loss is the same on a machine that slows down; seconds and tokens per second are not. Where a claim is about such a
metric, or training has a budget in seconds, runs must be made one at a time and in the registered order, so that the
machine treats all arms alike (`prereg/registry/run_order.py`; the audit looks, `ablate/judge/audit/order.py`).

What is timed: metrics of the catalogue that a repeated run does not repeat (suites `speed` and `cost`), metrics whose
unit has a time in it (`s`, `tokens/s`, `GPU-hours`), and metrics without a unit whose name says so (`train_seconds`,
`throughput`). A name is only a guess, so a unit that is declared is believed in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from prereg.metrics.catalogue import declaration_of
from prereg.study.training import Training

if TYPE_CHECKING:
    from prereg.study.spec import Study

# fmt: off
_SECONDS: Final = frozenset([
    "s", "sec", "secs", "second", "seconds", "ms", "msec", "millisecond", "milliseconds", "us", "µs", "μs",
    "microsecond", "microseconds", "ns", "nanosecond", "nanoseconds", "minute", "minutes", "hour", "hours",
])
_UNITS: Final = _SECONDS | {
    "min", "mins", "h", "hr", "hrs", "day", "days", "hz", "khz", "mhz", "ghz", "fps", "time",
}
"""Words of a unit that is a time, or a rate per time."""
_NAMES: Final = (_SECONDS - {"s", "ms", "us", "ns"}) | {
    "time", "times", "walltime", "runtime", "elapsed", "latency", "throughput", "duration", "speed", "mfu",
}
"""Words that make the name of a metric that of a time, wherever they are in it."""
_LIMITS: Final = frozenset(["budget", "limit", "max"])
_CLOCKS: Final = _NAMES | _SECONDS | {"wall"}
# fmt: on


def is_time(unit: str) -> bool:
    """Whether a unit has a time in it.

    >>> [is_time(unit) for unit in ("s", "tokens/s", "ms per step", "GPU-hours", "share", "steps", "bits/byte", "")]
    [True, True, True, True, False, False, False, False]
    """
    return not _UNITS.isdisjoint(_words(unit))


def sounds_timed(name: str) -> bool:
    """Whether the name of a metric says that it is a time, or a rate per time.

    >>> [sounds_timed(name) for name in ("train_seconds", "tokens_per_s", "speed/step_ms", "throughput", "s_per_step")]
    [True, True, True, True, True]
    >>> [sounds_timed(name) for name in ("val/loss", "dev/loss_min", "steps", "params", "loss/s1")]
    [False, False, False, False, False]
    """
    words = _words(name)
    if not _NAMES.isdisjoint(words):
        return True
    # `train_s` is a time, and so are `tokens_per_s` and `s_per_token`; `s_loss` need not be.
    ends_in_time = not _SECONDS.isdisjoint(words[-1:])
    is_per_step = "per" in words and not _SECONDS.isdisjoint(words[: words.index("per")][-1:])
    return ends_in_time or is_per_step


def is_timed(study: Study, metric: str) -> bool:
    """Whether the value of a metric depends on the state of the machine that made the run."""
    of_catalogue = declaration_of(metric)
    if of_catalogue is not None and not of_catalogue.repeatable:
        return True
    declared = study.metric(metric)
    if declared is not None and declared.unit:
        return is_time(declared.unit)
    return of_catalogue is None and sounds_timed(metric)


def timed_promises(study: Study) -> tuple[str, ...]:
    """Why the runs of a study have to be made one at a time and in order, a phrase each; empty where they need not be.

    Exploratory claims are left out: they decide nothing.
    """
    return (*_claims(study), *_choice(study), *_budgets(study))


def _claims(study: Study) -> Iterator[str]:
    deciding = [claim for name, claim in study.claims.items() if study.hypotheses[name].role != "exploratory"]
    for metric in dict.fromkeys(claim.metric for claim in deciding):
        if is_timed(study, metric):
            yield f"a claim is about {metric}"


def _choice(study: Study) -> Iterator[str]:
    if study.tune is not None and is_timed(study, study.tune.choose_by):
        yield f"the pilot chooses by {study.tune.choose_by}"


def _budgets(study: Study) -> Iterator[str]:
    """Limits in seconds: that of the built-in trainer, and settings and options of another that are named like one."""
    limits: dict[str, None] = {}
    for arm in study.trained.values():
        if isinstance(arm.config, Training):
            limits |= {} if arm.config.budget.max_wall_s is None else {"budget.max_wall_s": None}
        else:
            limits |= dict.fromkeys(key for key, value in _settings(arm.config) if _is_limit(key) and _is_number(value))
    for word in study.command:
        option = re.match(r"-{1,2}([A-Za-z][\w-]*)", word)
        if option is not None and _is_limit(option[1]):
            limits[option[0]] = None
    yield from (f"{limit} is a budget in time" for limit in limits)


def _settings(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a configuration by its dotted path."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _is_limit(path: str) -> bool:
    """Whether a setting is named like a budget in time: `max_seconds`, `time_limit`, `budget.wall_s`."""
    words = _words(path)
    return not _LIMITS.isdisjoint(words) and not _CLOCKS.isdisjoint(words)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(text: str) -> list[str]:
    """The words of a name or unit, in small letters: `trainTime_ms` is train, time, ms.

    >>> _words("trainTime_ms"), _words("tokens/s")
    (['train', 'time', 'ms'], ['tokens', 's'])
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return re.findall(r"[a-z0-9µμ]+", apart.lower())
