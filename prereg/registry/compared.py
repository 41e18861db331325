"""Comparisons that `ablate gate` registered: by what their arms start from, and the seeds that follow from a nonce.

Two commits with the same files and configuration start the same runs. So a comparison is known by these contents, and
an amended message or a rebase finds it again. The nonce of a comparison is drawn once its contents are fixed, and goes
into the entry of its registration: nobody can try changes offline until one wins on seeds that are known beforehand.

Somebody who deletes the entry, and everything that names it, can have another nonce drawn. Against that stands only a
ledger that somebody else holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prereg.commits.gate import BASE, HEAD, attempt_of, is_name_of
from prereg.commits.pins import CommitPin
from prereg.registry.canon import sha256_of
from prereg.registry.ledger_entry import ComparedArm, ComparedContents, DecidedEntry, Entry, RegisteredEntry
from prereg.registry.registration import Registration
from prereg.seeds import seeds_following
from prereg.study.spec import Study


def arm_contents(study: Study, pins: Mapping[str, CommitPin]) -> dict[str, ComparedArm]:
    """Return what the runs of base and head start from, by arm; `pins` has the commit of each arm."""
    return {arm: ComparedArm(files=pins[arm].sha256, config=sha256_of(study.arms[arm].config)) for arm in (BASE, HEAD)}


def seeds_of_comparison(nonce: str, n_seeds: int) -> tuple[int, ...]:
    """Return the seeds of a comparison, which follow from its nonce alone.

    >>> seeds_of_comparison("0" * 32, 2)
    (217874602, 1294932564)
    """
    return tuple(seeds_following(nonce, n_seeds))


def faults_of_comparison(registration: Registration, entries: Iterable[Entry]) -> Iterator[str]:
    """Yield what a comparison's registration contradicts in its own ledger entry, a clause each; nothing of others."""
    compared = compared_of(entries, registration.study.study)
    if compared is None:
        return
    study = registration.study
    pins = {arm: pin for arm in (BASE, HEAD) if (pin := registration.commit_of(arm)) is not None}
    if {*pins} != {BASE, HEAD} or {*study.arms} != {BASE, HEAD}:
        yield "the ledger says that it compares two commits, base and head, and the lock has other arms"
        return
    arms = arm_contents(study, pins)
    for arm, in_ledger in ((BASE, compared.base), (HEAD, compared.head)):
        if arms[arm] != in_ledger:
            yield f"{arm} starts from other files or another configuration than the ledger says"
    if compared.nonce is None:
        return
    if study.seeds != seeds_of_comparison(compared.nonce, study.n_seeds):
        yield "its seeds are not those that follow from the nonce in the ledger"


def compared_of(entries: Iterable[Entry], name: str) -> ComparedContents | None:
    """Return what the ledger says that a study compares; none of a study that `ablate gate` did not register."""
    registered = (entry for entry in entries if isinstance(entry, RegisteredEntry) and entry.study == name)
    return next((entry.compared for entry in registered if entry.compared is not None), None)


@dataclass(frozen=True)
class PastComparison:
    """A registered comparison, as the ledger has it."""

    name: str
    """Its study."""
    compared: ComparedContents | None
    """None of one that an earlier version named after commit hashes."""
    decision: DecidedEntry | None
    """Its last decision."""

    @property
    def ended(self) -> str:
        """How it ended, in one word or two."""
        if self.decision is None:
            return "not decided"
        if self.decision.verdict is None:
            return "without a verdict"
        return "undecided" if self.decision.verdict == "inconclusive" else self.decision.verdict


@dataclass(frozen=True)
class EarlierComparisons:
    """Comparisons before one, as far as the ledger at hand has them."""

    of_pair: tuple[str, ...] = ()
    """Studies that compared the same contents, or the same commits, oldest first."""
    of_base: tuple[tuple[str, int], ...] = ()
    """How comparisons of other heads with the same files of base ended, and how many of them did."""
    elsewhere: int = 0
    """Further comparisons by the same gate, with other files of base."""

    @property
    def n_of_base(self) -> int:
        """How many comparisons of other heads with the same files of base there were."""
        return sum(n for _, n in self.of_base)

    @property
    def is_known(self) -> bool:
        """Whether the ledger shows that it holds earlier comparisons. One without any may be a fresh checkout's."""
        return bool(self.of_pair or self.of_base or self.elsewhere)


NO_RECORD = EarlierComparisons()


class ComparisonRecord:
    """Every comparison of a ledger, in its order."""

    def __init__(self, entries: Sequence[Entry], commits: Mapping[str, str]) -> None:
        """Read the ledger; `commits` are the full hashes of base and head, by which earlier versions named studies."""
        self.commits = commits
        by_name: dict[str, PastComparison] = {}
        for entry in entries:
            if isinstance(entry, RegisteredEntry) and (entry.compared is not None or is_name_of(entry.study)):
                by_name[entry.study] = PastComparison(entry.study, entry.compared, None)
            elif isinstance(entry, DecidedEntry) and entry.study in by_name:
                by_name[entry.study] = PastComparison(entry.study, by_name[entry.study].compared, entry)
        self.comparisons = tuple(by_name.values())

    def of_pair(self, arms: Mapping[str, ComparedArm]) -> tuple[PastComparison, ...]:
        """Return the comparisons of these contents, and those of these very commits by an earlier version."""
        return tuple(past for past in self.comparisons if self._is_of_pair(past, arms))

    def by_gate(self, gate: str, arms: Mapping[str, ComparedArm]) -> tuple[PastComparison, ...]:
        """Return the comparisons of these contents by one gate, oldest first."""
        return tuple(past for past in self.of_pair(arms) if self._gate_of(past) == gate)

    def before(self, name: str, gate: str, arms: Mapping[str, ComparedArm]) -> EarlierComparisons:
        """Return what was compared before the comparison `name`, which need not be in the ledger yet."""
        names = [past.name for past in self.comparisons]
        past_ones = self.comparisons[: names.index(name)] if name in names else self.comparisons
        of_pair, of_base, elsewhere = list[str](), Counter[str](), 0
        for past in past_ones:
            if self._is_of_pair(past, arms):
                of_pair.append(past.name)
            elif past.compared is not None and past.compared.base.files == arms[BASE].files:
                of_base[past.ended] += 1
            elif past.name.startswith(f"{gate}-"):
                elsewhere += 1
        return EarlierComparisons(tuple(of_pair), tuple(sorted(of_base.items())), elsewhere)

    def _is_of_pair(self, past: PastComparison, arms: Mapping[str, ComparedArm]) -> bool:
        if past.compared is not None:
            return (past.compared.base, past.compared.head) == (arms[BASE], arms[HEAD])
        return attempt_of(past.name, self.commits[BASE], self.commits[HEAD]) is not None

    def _gate_of(self, past: PastComparison) -> str:
        if past.compared is not None:
            return past.compared.gate
        parts = attempt_of(past.name, self.commits[BASE], self.commits[HEAD])
        return "" if parts is None else parts[0]
