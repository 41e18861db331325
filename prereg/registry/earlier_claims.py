"""Earlier claims: which studies of this ledger had claimed the same before a study did, and how each ended.

A claim that is registered again and again, until it holds, errs more often than any of its registrations says. Nothing
is refused; it is counted. Two studies claim the same where some claim of each

- is about the same metric, whatever its verb, direction, margin and test, and
- compares arms that differ in a setting in common, whatever its values and the names of the arms,

and the studies have the same trainer (the built-in one, or a script of the same path or bytes) or data of the same
bytes in common. So other seeds, a comment, another value or a field that nothing reads leave them the same.

    locks ─▶ `promised_claims` ─▶ `earlier_claims`, a pure function of these and the ledger's entries ─▶ EarlierClaims
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any

from pydantic import JsonValue, ValidationError

from prereg.errors import StudyError
from prereg.registry.history import past_registrations
from prereg.registry.ledger_entry import (
    ConfirmingEntry,
    DecidedEntry,
    EarlierClaim,
    EarlierClaims,
    Entry,
    LookedEntry,
    PeekedEntry,
    PromiseEntry,
    ProposedEntry,
    StagedEntry,
)
from prereg.registry.ledger_graph import Descent, is_merged, places
from prereg.registry.paths import Root
from prereg.study.claim import Claim
from prereg.study.command import filled, texts_of
from prereg.study.spec import Study
from prereg.study.training import Training
from prereg.text import listed

_NEVER = "never decided"
_ENDED_BY_OUTCOME = {"keep": "kept", "drop": "dropped", "out_of_budget": "out of budget"}
_MOST_NAMED = 12
"""Studies that an entry names, the newest; all are counted."""
_STARTERS = re.compile(r"(python[\d.]*|bash|sh|env|uv|run|torchrun|accelerate|launch)")
"""Words of a command that say nothing of which trainer it starts."""
_SCRIPTS = (".py", ".sh")
_OWN = dict.fromkeys(("seed", "variant", "python", "run_dir"), "") | {"root": "."}


@dataclass(frozen=True)
class ClaimShape:
    """What of a claim stays when its wording, values and names of arms change."""

    hypothesis: str
    """Its name in its study."""
    metric: str
    """The metric."""
    settings: frozenset[str]
    """Dotted paths of the settings in which its two sides differ; empty where it has one side."""

    def is_same_as(self, other_claim: ClaimShape) -> bool:
        """Return true where both are about one metric and arms that differ in a setting in common."""
        if self.metric != other_claim.metric:
            return False
        return bool(self.settings & other_claim.settings) or self.settings == other_claim.settings


@dataclass(frozen=True)
class PromisedClaims:
    """The claims of one registration of a study, and what they are made with."""

    study: str
    claims: tuple[ClaimShape, ...]
    trainers: frozenset[str]
    """Names of its trainer, any of which makes another the same: paths of scripts, and hashes of their bytes."""
    data: frozenset[str]
    """sha256 of every corpus and data file."""
    campaign: str | None = None
    """The campaign that it carries out a part of; none of other studies."""
    is_known: bool = True
    """Whether its lock is here, so that claims and trainer are known."""

    def has_trainer_or_data_of(self, other_promise: PromisedClaims) -> bool:
        """Return true where both have a trainer or data in common."""
        return bool(self.trainers & other_promise.trainers or self.data & other_promise.data)


def same_claims_before(
    promises: Sequence[PromisedClaims], study: str, *, ended_before: Collection[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Return earlier study -> its hypotheses that claim the same as the newest registration of a study does.

    `promises` are those of a ledger, in its order. A registration counts as earlier where it came before the first one
    of this study that made the claim, or where its study is among those that had `ended_before` this one: of studies
    that are registered together, the one that is decided last knows how the others ended. Parts of one campaign, whose
    error is bounded together, do not count for one another.
    """
    own = [(place, promise) for place, promise in enumerate(promises) if promise.study == study]
    if not own:
        return {}
    newest = own[-1][1]
    hypotheses: dict[str, dict[str, None]] = defaultdict(dict)
    for claim in newest.claims:
        began = next(place for place, promise in own if any(map(claim.is_same_as, promise.claims)))
        for place, other_promise in enumerate(promises):
            is_earlier = place < began or other_promise.study in ended_before
            of_one_campaign = newest.campaign is not None and other_promise.campaign == newest.campaign
            if other_promise.study == study or not is_earlier or of_one_campaign:
                continue
            if not newest.has_trainer_or_data_of(other_promise):
                continue
            same = (other_claim.hypothesis for other_claim in other_promise.claims if claim.is_same_as(other_claim))
            if names := dict.fromkeys(same):
                hypotheses[other_promise.study].update(names)
    first_place = {promise.study: place for place, promise in reversed([*enumerate(promises)])}
    return {name: tuple(hypotheses[name]) for name in sorted(hypotheses, key=lambda name: first_place[name])}


def how_ended(
    entries: Iterable[Entry], study: str, hypotheses: Sequence[str], proposals: Mapping[tuple[str, int], str]
) -> EarlierClaim:
    """Return how a study ended by these entries: by the outcomes of some of its hypotheses, where the ledger has them.

    `proposals` has the study of each proposal, by campaign and number.
    """
    ended, verdict = _NEVER, None
    for entry in entries:
        if isinstance(entry, StagedEntry) and proposals.get((entry.study, entry.number)) == study:
            ended = _ENDED_BY_OUTCOME.get(entry.outcome, ended)
        elif entry.study != study:
            continue
        elif isinstance(entry, DecidedEntry):
            outcomes = dict.fromkeys(entry.outcomes[name] for name in hypotheses if name in entry.outcomes)
            ended = listed(outcomes) if outcomes else "decided"
            if entry.status == "inadmissible":
                ended = "inadmissible"
            verdict = entry.verdict
        elif isinstance(entry, (LookedEntry, PeekedEntry)) and ended == _NEVER:
            ended = "looked at, never decided"
    # Where the outcome is known, it says more than the words of a verdict.
    return EarlierClaim(study=study, ended=ended, verdict=verdict if ended == "decided" else None)


def earlier_claims(
    promised_by_entry: Mapping[str, PromisedClaims], entries: Sequence[Entry], study: str
) -> EarlierClaims:
    """Return the studies that claimed the same as a study before it, and how each ended, by these entries of a ledger.

    `promised_by_entry` has the claims of every registration among them (`promised_claims`).
    """
    place = places(entries)
    in_order = sorted(entries, key=lambda entry: place[entry.sha256])
    promises = [promised_by_entry[entry.sha256] for entry in in_order if isinstance(entry, PromiseEntry)]
    proposals = {(entry.study, entry.number): entry.run_as for entry in in_order if isinstance(entry, ProposedEntry)}
    before = same_claims_before(promises, study, ended_before=_ended_before(in_order, study, proposals))
    first = next((at for at, promise in enumerate(promises) if promise.study == study), len(promises))
    unknown = dict.fromkeys(
        promise.study for promise in promises[:first] if not promise.is_known and promise.study not in before
    )
    ended = [how_ended(in_order, name, hypotheses, proposals) for name, hypotheses in before.items()]
    return EarlierClaims(
        n=len(ended),
        ended=dict(Counter(claim.ended for claim in ended)),
        studies=tuple(ended[-_MOST_NAMED:]),
        unknown=tuple(unknown)[-_MOST_NAMED:],
    )


def _ended_before(entries: Iterable[Entry], study: str, proposals: Mapping[tuple[str, int], str]) -> set[str]:
    """The studies of which something was shown before anything was of this one."""
    shown = set[str]()
    for entry in entries:
        if isinstance(entry, StagedEntry) and entry.outcome != "next_stage":
            shown.add(proposals.get((entry.study, entry.number), ""))
        elif isinstance(entry, (DecidedEntry, LookedEntry, PeekedEntry)):
            if entry.study == study:
                break
            shown.add(entry.study)
    return shown


def entries_before(entries: Sequence[Entry], entry: Entry) -> tuple[Entry, ...]:
    """Return the entries that whoever appended an entry had."""
    if not is_merged(entries):
        return tuple(earlier for earlier in entries if earlier.index < entry.index)
    descent = Descent(entries)
    return tuple(
        earlier
        for earlier in entries
        if earlier.sha256 != entry.sha256 and descent.follows(entry.sha256, earlier.sha256)
    )


def promised_claims(root: Root, entries: Sequence[Entry]) -> dict[str, PromisedClaims]:
    """Return the sha256 of every entry that registered or amended a study -> its claims, read from the locks.

    `entries` are those of the whole ledger: an earlier registration of a study is rebuilt from its lock in force.
    """
    campaigns = {entry.run_as: entry.study for entry in entries if isinstance(entry, (ProposedEntry, ConfirmingEntry))}
    promised = [entry for entry in entries if isinstance(entry, PromiseEntry)]
    claims_by_entry: dict[str, PromisedClaims] = {}
    for name in dict.fromkeys(entry.study for entry in promised):
        for past in past_registrations(root, name, [entry for entry in promised if entry.study == name]):
            claims_by_entry[past.entry.sha256] = _promised_claims(name, campaigns.get(name), past.promise)
    return claims_by_entry


def _promised_claims(name: str, campaign: str | None, promise: Mapping[str, Any] | None) -> PromisedClaims:
    if promise is not None:
        try:
            return _claims_of(name, campaign, json.dumps(promise))
        except (StudyError, ValidationError, ValueError, TypeError, KeyError):
            pass  # a rebuilt promise that no version reads: unknown, as one whose lock is gone
    return PromisedClaims(name, (), frozenset(), frozenset(), campaign, is_known=False)


@lru_cache(maxsize=2**10)
def _claims_of(name: str, campaign: str | None, promise_json: str) -> PromisedClaims:
    promise = json.loads(promise_json)
    study = Study.model_validate_json(json.dumps(promise["study"]))
    claims = tuple(
        ClaimShape(hypothesis, claim.metric, _differing_settings(study, claim))
        for hypothesis, claim in study.claims.items()
    )
    return PromisedClaims(name, claims, frozenset(_trainers(study, promise)), frozenset(_data(promise)), campaign)


def _differing_settings(study: Study, claim: Claim) -> frozenset[str]:
    """The settings in which the two sides of a claim differ."""
    settings = {arm: _settings(study, arm) for arm in claim.named}
    if len(settings) < 2:
        return frozenset()
    names = {name for values in settings.values() for name in values}
    differing = frozenset(name for name in names if _weighs_otherwise(name, claim.weights, settings))
    if differing:
        return differing
    # Of an interaction every setting is balanced over the two sides, and what differs is within them.
    return frozenset(name for name in names if len({values.get(name) for values in settings.values()}) > 1)


def _weighs_otherwise(name: str, weights: Mapping[str, float], settings: Mapping[str, Mapping[str, str]]) -> bool:
    # Weights are those of the left side less those of the right. Per value of a setting they cancel where both sides
    # have that value equally often, as the settings of other factors do in a main effect.
    weight_by_value: dict[str | None, float] = defaultdict(float)
    for arm, weight in weights.items():
        weight_by_value[settings[arm].get(name)] += weight
    return len(weight_by_value) > 1 and any(abs(weight) > 1e-9 for weight in weight_by_value.values())


def _settings(study: Study, arm: str) -> dict[str, str]:
    """Dotted path -> value as text, of an arm; its commit is one of them."""
    config = study.arms[arm].config
    values = texts_of(config.model_dump(mode="json") if isinstance(config, Training) else config)
    commit = study.arms[arm].commit
    return values if commit is None else values | {"commit": commit}


def _trainers(study: Study, promise: Mapping[str, Any]) -> Iterator[str]:
    """Names by which a trainer is known again."""
    if study.trainer == "gpt":
        yield "the built-in trainer"
        return
    pinned: Mapping[str, JsonValue] = promise.get("scripts") or {}
    words = {
        normpath(word)
        for arm in study.arms.values()
        if isinstance(arm.config, dict)
        for word in filled(study.command, _OWN | {"variant": arm.name}, arm.config)
        if word and not word.startswith("-")
    }
    scripts = {word for word in words if word in pinned or PurePosixPath(word).suffix in _SCRIPTS}
    for word in scripts:
        yield f"script {word}"
        if word in pinned:
            yield f"sha256 {pinned[word]}"
    if not scripts:
        # A module (`-m package.train`) or a program on the path.
        plain = (word for word in study.command if "{" not in word and not word.startswith("-"))
        yield from (f"word {word}" for word in plain if not _STARTERS.fullmatch(PurePosixPath(word).name))


def _data(promise: Mapping[str, Any]) -> Iterator[str]:
    """sha256 of every corpus and data file of a promise."""
    corpora = (promise.get("data") or {}).get("corpora") or {}
    for pin in (promise.get("corpus"), *corpora.values()):
        if pin:
            yield pin["sha256"]
    yield from (promise.get("data_files") or {}).values()
