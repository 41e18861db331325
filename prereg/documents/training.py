"""Training configuration in words: which fields are said, what each arm changes; fields: `prereg/study/training.py`.

The words of a field are in `templates/training.txt`; a field that has none there is said by its path and value, as are
those of a user's own trainer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from prereg.commits.pins import CodeChanges, CommitPin
from prereg.documents.sentences import field_in_words, fields_with_words
from prereg.escape import quoted
from prereg.registry.registration import CorpusPin, Pins
from prereg.study.arms import COMMIT, Arm
from prereg.study.spec import Study
from prereg.study.training import Training
from prereg.text import counted, listed

Config = Training | dict[str, JsonValue]

_UNSAID: dict[str, Any] = {
    "model.head_size": None,
    "model.final_norm": "block",
    "model.qk_norm": False,
    "model.feed_width": None,
    "model.bias": True,
    "model.residual_scale": "none",
    "model.init": "gpt2",
    "optim.warmup_from": 0.0,
    "optim.decay": 0.2,
    "optim.ema": 0.0,
    "budget.tokens": None,
    "budget.max_wall_s": None,
    "budget.micro_batch": None,
    "numerics.recompute": "none",
    "numerics.compile": False,
}
"""Fields with the defaults that nobody asks about: a base is described by them only where it has another value."""
_MAPPINGS = ("data.tokenizer", "model.init")
"""Fields whose value may be a mapping."""


@dataclass(frozen=True)
class Parts:
    """A base in words, a list for each of its sections."""

    model: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    optim: list[str] = field(default_factory=list)
    budget: list[str] = field(default_factory=list)
    numerics: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ArmFacts:
    """An arm as templates read it."""

    label: str
    is_baseline: bool
    changes: list[str]
    """What it has in place of the base, in words."""
    notes: list[str]
    """Its id where a label hides it, that it is the baseline, and why a design has it."""


@dataclass(frozen=True)
class CommitFacts:
    """A commit of arms."""

    arms: list[str]
    """The arms that are judged and start from it."""
    name: str
    """As the study writes it."""
    pin: CommitPin
    changes: CodeChanges | None
    """What differs from the baseline's commit; none of that itself, and of one with the same files."""

    @property
    def against(self) -> str:
        """The baseline's commit, as the study writes it."""
        return "" if self.changes is None else self.changes.against


@dataclass(frozen=True)
class FactorFacts:
    """A factor: its name, and (level, what it changes) of each level, quoted."""

    name: str
    levels: list[tuple[str, str]]


def commits_of(study: Study, pins: Pins | None) -> list[CommitFacts]:
    """Every commit of an arm that is judged, as it was pinned; none of a draft, and where arms are no commits."""
    if pins is None:
        return []
    arms_by_name: dict[str, list[str]] = {}
    for arm in study.arms:
        if arm in study.commits:
            arms_by_name.setdefault(study.commits[arm], []).append(study.labels.arm(arm))
    return [
        CommitFacts(arms, name, pins.commits[name], pins.code_changes.get(name)) for name, arms in arms_by_name.items()
    ]


def _commit(name: JsonValue, pins: Pins | None) -> str:
    pin = None if pins is None else pins.commits.get(str(name))
    return f"the code of commit {name}" + (f" ({pin.short})" if pin is not None else "")


def _of_own(path: str, value: JsonValue, pins: Pins | None) -> str:
    return _commit(value, pins) if path == COMMIT else _path_and_value(path, value)


def base_parts(
    study: Study, corpus: CorpusPin | None, without: Set[str] = frozenset(), pins: Pins | None = None
) -> Parts | list[str]:
    """The base in words but for the fields that are left out; of a user's own trainer, a list of paths and values."""
    if not isinstance(study.base, Training):
        return [_of_own(path, value, pins) for path, value in leaves(study.base).items() if path not in without]
    # 1. Field by field, those with words first, in the order of the templates.
    at, parts = leaves(study.base), Parts()
    with_words = [path for path in fields_with_words() if path in at]
    for path in (*with_words, *(path for path in at if path not in with_words)):
        value = at[path]
        if path in without or not _is_described(path, at):
            continue
        momentum = path == "optim.betas" and "optim.eps" in without and at["optim.name"] == "sgd"
        getattr(parts, path.partition(".")[0]).append(
            words(path, value, momentum=True) if momentum else words(path, value)
        )
    # 2. What the fields alone do not say: that each arm has its own corpus, or how long the one is.
    if "data.corpus" in without:
        parts.data.insert(0, "corpus of its arm")
    if corpus is not None and corpus.name == study.base.data.corpus:
        name = quoted(corpus.name)
        parts.data[0] = parts.data[0].replace(name, f"{name} ({extent(corpus)})", 1)
    return parts


def _is_described(path: str, at: Mapping[str, Any]) -> bool:
    """Whether a base is described by a field: not by one of `_UNSAID` at its default, unless something reads it."""
    # The length of the decay means something only under the schedule that decays.
    in_play = path == "optim.decay" and at["optim.schedule"] == "wsd"
    return path not in _UNSAID or at.get(path, _UNSAID[path]) != _UNSAID[path] or in_play


def kept_by_no_arm(study: Study) -> set[str]:
    """Fields whose value in the base no judged arm was trained with, and those that nothing reads."""
    configs = [leaves(arm.config) for arm in study.arms.values()]
    # A value of the base that every arm overrides was never trained with.
    unused = {path for path, value in leaves(study.base).items() if all(at.get(path) != value for at in configs)}
    if not isinstance(study.base, Training) and study.base.get(COMMIT) in study.commits.values():
        unused.discard(COMMIT)
    if isinstance(study.base, Training) and all(at["optim.name"] == "sgd" for at in configs):
        unused.add("optim.eps")  # SGD reads neither epsilon nor the second beta, and takes the first as its momentum
    return unused


def extent(corpus: CorpusPin) -> str:
    """How long a corpus is, in what it is stored as."""
    return counted(corpus.characters, "character") if corpus.tokens is None else counted(corpus.tokens, "token")


def arms_of(study: Study, pins: Pins | None = None) -> list[ArmFacts]:
    """Every arm, with what it changes in the base."""
    reasons = {} if study.components is None else study.components.reasons()
    facts = []
    for name, arm in study.arms.items():
        # What the arm writes, what the pilot chose for it, and what follows from both.
        frozen = {} if study.tune is None else study.tune.chosen.get(name, {})
        changes = [
            *_changes(study, arm.overrides, arm.config, pins),
            *(f"{change} (chosen by the pilot)" for change in _changes(study, frozen, arm.config, pins)),
            *_changes(study, _follows(study, {**arm.overrides, **frozen}, arm), arm.config, pins),
        ]
        # A registration names ids, which its rule and the ledger use, where a paper has labels alone.
        notes = [name] * (name in study.labels.arms)
        notes += [*(["the baseline"] if name == study.baseline else []), *filter(None, [reasons.get(name)])]
        facts.append(ArmFacts(study.labels.arm(name), name == study.baseline, changes, notes))
    return facts


def factors_of(study: Study, pins: Pins | None = None) -> list[FactorFacts]:
    """Every factor; none where the arms are listed one by one."""
    facts = []
    for factor, levels in study.factors.items():
        in_words = []
        for level, overrides in levels.items():
            # Any arm with this level will do: it is asked only for the values that the level's fields have
            # in it.
            arm = next(arm for arm in study.arms.values() if overrides.items() <= arm.overrides.items())
            changes = listed(_changes(study, overrides, arm.config, pins)) or "the base, unchanged"
            in_words.append((quoted(level), changes))
        facts.append(FactorFacts(factor, in_words))
    return facts


def _follows(study: Study, written: Mapping[str, JsonValue], arm: Arm) -> dict[str, JsonValue]:
    """What differs from the base and is not written, such as steps that follow from a budget in tokens."""
    before = leaves(study.base)
    return {
        path: value
        for path, value in leaves(arm.config).items()
        if value != before.get(path)
        and not any(
            path == changed or path.startswith(f"{changed}.") or changed.startswith(f"{path}.") for changed in written
        )
    }


def _changes(study: Study, overrides: Mapping[str, JsonValue], config: Config, pins: Pins | None) -> list[str]:
    """Each override in words."""
    if not isinstance(study.base, Training) or not isinstance(config, Training):
        return [_of_own(path, value, pins) for path, value in overrides.items()]
    at = leaves(config)
    # An override of a part of a mapping is said as the whole mapping.
    mapping_of = {path: next((field for field in at if path.startswith(f"{field}.")), path) for path in overrides}
    return [words(mapping_of[path], at.get(mapping_of[path], value)) for path, value in overrides.items()]


def words(path: str, value: Any, **how: Any) -> str:
    """The value of a field in words."""
    return field_in_words(path, value, **how) if path in fields_with_words() else _path_and_value(path, value)


def leaves(config: Config) -> dict[str, Any]:
    """Dotted path -> value of every field; a field that has words for a mapping is one of them.

    >>> leaves({"optim": {"lr": 0.1}, "tags": ["a"]})
    {'optim.lr': 0.1, 'tags': ['a']}
    """
    return _leaves(config.model_dump(mode="json") if isinstance(config, Training) else config)


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    by_path: dict[str, Any] = {}
    for key, value in tree.items():
        path = prefix + key
        by_path |= _leaves(value, path + ".") if isinstance(value, dict) and path not in _MAPPINGS else {path: value}
    return by_path


def _path_and_value(path: str, value: JsonValue) -> str:
    return f"{path} set to {json.dumps(value, ensure_ascii=False)}"
