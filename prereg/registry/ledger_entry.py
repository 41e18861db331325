"""Ledger entries: one class for each event (registered, started, sealed, decided, ...), with its fields.

A line of the file is one JSON object: the fields of every entry (`HEADER`) and `body`, which holds those of its kind.
In Python they are fields of one object: `entry.study`, `entry.verdict_sha256`. Reading is strict in the fields that a
kind has, and keeps those that it does not know: a later version may write more. Which line follows which, and whether
its bytes are sound, is for `ledger_lines` to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue

from prereg.frozen import FrozenModel
from prereg.registry.canon import sha256_of
from prereg.text import counted

Event = Literal[
    "registered", "amended", "started", "breached", "sealed", "failed", "finished", "looked", "decided", "peeked",
    "imported", "attested", "reported", "reworded", "tuned", "continued", "opened", "proposed", "staged",
    "confirming",
]  # fmt: skip

HEADER = ("format", "index", "at", "event", "study", "registration", "previous", "joins", "sha256")
"""The fields that every entry has; all others are in the `body` of its line."""

REPAIRS = ("cut_back", "ended_line")
"""What an append adds to the body where it repaired what a crash had left behind."""

FIRST = "0" * 64
"""What the first entry names as the hash of the one before."""

Nonce = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
"""128 random bits, drawn by the call that wrote the entry."""

EvidenceState = Literal["none", "runs started", "outcomes read"]
"""What is known of a study's outcome, from nothing to most."""

Listed = Field(strict=False)
"""JSON has lists where a frozen value has tuples."""


class CutBack(FrozenModel):
    """The torso of an entry that an append removed."""

    bytes: int
    """Its length."""
    sha256: str
    """sha256 of its bytes."""


class EndedLine(FrozenModel):
    """A whole entry that lacked its end of line, and got it."""

    index: int
    """Its index."""


class Entry(FrozenModel):
    """One line of the ledger. An entry that no ledger has taken yet has no index and no hash: see `Ledger.append`."""

    model_config = ConfigDict(extra="allow")
    keys: ClassVar[Mapping[str, str]] = {}
    """Field -> its name in the body of a line, where that is another one."""

    format: Literal[1] = 1
    """The version of the format."""
    index: int = -1
    """How many entries lead to it, of several branches on the longest. Until a merge, its position from 0."""
    at: str
    """When it was appended: ISO 8601 with offset, by the caller's clock. The chain proves the order, not the time."""
    event: Event
    """What happened."""
    study: str
    """The study's id."""
    registration: str
    """sha256 of the registration it happened under."""
    previous: str = ""
    """sha256 of the entry before."""
    joins: Annotated[tuple[str, ...], Listed] = ()
    """Where it is the first one after a merge: sha256 of the last entries of the other branches; else empty."""
    sha256: str = ""
    """sha256 of the canonical bytes of all other fields."""

    cut_back: CutBack | None = None
    """What its append removed, where a crash had left it."""
    ended_line: EndedLine | None = None
    """The entry before, where its append ended the line."""

    @property
    def stated(self) -> dict[str, JsonValue]:
        """What it says of its event, as the body of its line, without the repairs that its append added."""
        # Without what an append repaired: that is of the file and not of the event.
        body: dict[str, JsonValue] = self.model_dump(mode="json", exclude_defaults=True)["body"]
        return {key: value for key, value in body.items() if key not in REPAIRS}

    @model_serializer(mode="wrap")
    def _as_line(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The object of its line. A field that was not given is left out, so that what was read is written again."""
        fields = dump(self)
        # Only fields that were given: a default that a later version adds must not appear in an old line.
        body = {self.keys.get(name, name): value for name, value in fields.items()
                if name not in HEADER and name in self.model_fields_set}  # fmt: skip
        return {name: fields[name] for name in HEADER if name in fields} | {"body": body}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema of its line, whose header is whole: an append fills in what a caller leaves out."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        definition = handler.resolve_ref_schema(schema)
        header = {name: definition["properties"][name] for name in HEADER}
        for field in header.values():
            field.pop("default", None)
        body = {"type": "object", "description": "What it says of its event: the fields of its kind."}
        definition.update(properties=header | {"body": body}, required=[*HEADER, "body"])
        return schema

    @classmethod
    def what_happened(cls) -> str:
        """What the event means, for the documentation: the first line of its class."""
        return (cls.__doc__ or "").splitlines()[0].removesuffix(".")


# To add a kind of entry: its word in `Event`, a class below (its first line and the text under each field are its
# documentation), a row of `ENTRY_KINDS`, and how it reads in `ablate/reporting/templates/ledger_parts.txt`. Then
# `python -m docs.generator`. A kind whose field does not always apply gives it a default, and leaves it out then.


class ContinuedEntry(Entry):
    """This ledger begins where one of another format ended; of no study."""

    event: Literal["continued"] = "continued"
    ledger: str
    """The file of that ledger, from the root."""
    ledger_sha256: str
    """sha256 of its bytes."""
    entries: int
    """How many it has."""
    head: str
    """sha256 of its last entry."""


class Override(FrozenModel):
    """An undecidable design, registered because the user said so."""

    obstacle: str
    """What can never happen, in the words of the refusal."""
    reason: str
    """Why the user went on, in the user's words."""


class SameRuns(FrozenModel):
    """What another registered study shares with a study."""

    arms: Annotated[tuple[str, ...], Listed]
    """Arms of this study that it has too."""
    seeds: Annotated[tuple[int, ...], Listed]
    """Seeds of both."""
    known: str
    """The event of its ledger that says most of its outcome."""


class ComparedArm(FrozenModel):
    """What the runs of one arm of a comparison start from."""

    files: str
    """sha256 over the files of its commit that a run is started from."""
    config: str
    """sha256 of its configuration."""

    @property
    def sha256(self) -> str:
        """One hash over both, the same for every commit that starts the same runs."""
        return sha256_of({"files": self.files, "config": self.config})


class ComparedContents(FrozenModel):
    """What `ablate gate` compares by a study, whatever the commits are called."""

    gate: str
    """The gate's study, from which the study of this comparison was written."""
    attempt: int
    """Number of this comparison among those of the same contents by that study, from 1."""
    base: ComparedArm
    """What runs of base start from."""
    head: ComparedArm
    """What runs of head start from."""
    nonce: str | None = None
    """Drawn when the contents were fixed; the seeds follow from it. None where the gate's study lists its seeds."""


class PromiseEntry(Entry):
    """A promise: a study's first one, or one that replaces it."""

    lock_sha256: str
    """sha256 of the lock's bytes."""
    source_sha256: str
    """sha256 of the bytes of the study's file."""
    file: str
    """The study's file, from the root."""
    override: Override | None = None
    """What registration would have refused, and the reason to accept it."""
    same_runs_as: dict[str, SameRuns] = {}
    """Other registered studies with the same arms and seeds."""

    @property
    def amends(self) -> str | None:
        """sha256 of the registration that it replaces; none of a study's first one."""
        return None


class RegisteredEntry(PromiseEntry):
    """The study was registered for the first time."""

    event: Literal["registered"] = "registered"
    compared: ComparedContents | None = None
    """Of a comparison that `ablate gate` registered: what it compares, and the nonce that its seeds follow from."""


class Difference(FrozenModel):
    """One field that is not what was registered."""

    field: str
    """Its dotted path."""
    registered: JsonValue
    """The registered value; `(absent)` where there was none."""
    now: JsonValue
    """The value now."""


class AmendedEntry(PromiseEntry):
    """The registration was replaced by a changed one."""

    keys: ClassVar[Mapping[str, str]] = {"replaces": "previous"}

    event: Literal["amended"] = "amended"
    replaces: str
    """sha256 of the registration that is replaced."""
    runs_of: str = ""
    """sha256 of the registration whose runs are kept; absent where runs are made anew."""
    reason: str
    """Why, in the user's words."""
    evidence: EvidenceState
    """What was known by then: `none`, `runs started` or `outcomes read`."""
    failed_runs: int = 0
    """Runs that had failed, where they are no evidence."""
    differences: Annotated[tuple[Difference, ...], Listed]
    """Field, registered value and value now of every change."""

    @property
    def amends(self) -> str:
        return self.replaces

    @property
    def after_evidence(self) -> bool:
        """Whether anything existed that could have chosen the change."""
        return self.evidence != "none"


Word = Literal["title", "question"]
"""A field of a study on which nothing rests: it may be reworded at any time, and runs and verdict stay."""


class RewordedEntry(Entry):
    """Title or question were changed, and nothing else."""

    event: Literal["reworded"] = "reworded"
    words: dict[Word, str]
    """The new title or question."""
    reason: str
    """Why, in the user's words."""
    file: str
    """The study's file, from the root."""
    source_sha256: str
    """sha256 of the bytes of the study's file."""


class CallStartedEntry(Entry):
    """`ablate run` began to make runs."""

    event: Literal["started"] = "started"
    runs: int
    """Runs to be made."""
    of: int
    """Planned runs."""
    slots: int
    """Runs at the same time."""
    code: str
    """sha256 of the code that runs execute."""
    trained_again: int = 0
    """Runs among them that were sealed before."""


class RunEntry(Entry):
    """What happened to one run."""

    variant: str
    """Its arm."""
    seed: int
    """Its seed."""

    @property
    def cell(self) -> tuple[str, int]:
        """The run, by its arm and seed."""
        return self.variant, self.seed


class RunStartedEntry(RunEntry):
    """One run was started."""

    event: Literal["started"] = "started"
    attempt: int
    """Which start of this run."""
    recipe_sha256: str
    """sha256 over what its values follow from: configuration, code, data and seed."""
    resumed_from: int | None = None
    """The step at which it resumes."""
    left_values: bool | None = None
    """Whether the attempt before it, whose values are given up, had recorded one of a claimed metric."""
    made_with: str | None = None
    """sha256 of the code, versions and hardware that may change a bit of the result."""
    launcher: str | None = None
    """What a run that is made elsewhere was handed to, in place of `made_with`: `slurm`, `ray` or `commands`."""
    taken_over: bool = False
    """True where the attempt had been handed to a launcher before, had not begun by its record, and is made here."""


class BreachedEntry(RunEntry):
    """A run exceeded a limit of its budget; it still counts."""

    event: Literal["breached"] = "breached"
    limit: str
    """The field of the budget."""
    promised: int | float
    """Its value."""
    measured: int | float
    """What the run took."""
    metrics_sha256: str
    """sha256 of its metrics.parquet."""


Sha256 = Annotated[str, Field(min_length=1)]
"""A hash. Nothing matches an empty one: two seals without a hash would agree."""


class SealEntry(RunEntry):
    """A run that has ended was bound to its hashes."""

    status: str
    """`done` or `diverged`."""
    attempts: int
    """Times that the run was started."""
    metrics_sha256: Sha256
    """sha256 of its metrics.parquet."""
    outcome_sha256: Sha256
    """sha256 over its repeatable metrics."""
    items_sha256: Sha256 | None = None
    """sha256 of its items.parquet, where items were scored."""
    run_sha256: Sha256
    """sha256 of its run.json."""
    recipe_sha256: Sha256 | None = None
    """sha256 over what its values follow from: configuration, code, data and seed."""
    redrawn: int = 0
    """Attempts whose values of a claimed metric a resumed one replaced by others."""


class SealedEntry(SealEntry):
    """A run ended and was sealed."""

    event: Literal["sealed"] = "sealed"
    recovered: bool = False
    """True where a later `ablate run` found the run sealed and not in the ledger."""
    without_start: int = 0
    """Attempts at it of which this ledger has no start."""


class ImportedEntry(SealEntry):
    """A run made elsewhere was taken in."""

    event: Literal["imported"] = "imported"
    bound: bool
    """Whether it names this registration; other runs are exploratory."""
    note: str
    """Where it comes from, in the user's words."""
    import_sha256: str
    """sha256 over all runs of the same import."""
    replayed: bool = False
    """True where it was made before the registration."""


class FailedEntry(RunEntry):
    """A run ended in an error."""

    event: Literal["failed"] = "failed"
    error: str
    """Its last line."""
    left_values: bool
    """Whether it left a value of a claimed metric."""
    wrote_in: Annotated[tuple[str, ...], Listed] = ()
    """ARM/SEED/FILE of other runs that were written in while it was made."""
    before_start: int | None = None
    """Which start of this run it ended before the trainer's process existed, so that the start does not count."""


class FinishedEntry(Entry):
    """Every planned run is sealed."""

    event: Literal["finished"] = "finished"
    runs: int
    """How many."""


class TunedEntry(Entry):
    """A pilot's choice was frozen."""

    event: Literal["tuned"] = "tuned"
    chosen: dict[str, dict[str, JsonValue]]
    """Arm -> the setting chosen."""
    by: str
    """The metric that chose."""
    means: dict[str, float | None]
    """Run of the pilot -> mean of that metric; null where a run of it diverged."""
    pilot_runs: int
    """Runs that the choice rests on."""


class LookedEntry(Entry):
    """A planned look of a sequential study was taken."""

    event: Literal["looked"] = "looked"
    look: int
    """Which, from 1."""
    of: int
    """Planned looks."""
    seeds: int
    """Seeds that it saw."""
    evidence: str
    """sha256 over the sealed records that were read."""
    final: bool
    """Whether it ended the study."""


class PeekedEntry(Entry):
    """Somebody looked at results early."""

    event: Literal["peeked"] = "peeked"
    reason: str
    """Why, in the user's words."""
    ended: int
    """Runs that had ended."""
    planned: int
    """Planned runs."""
    evidence: str | None = None
    """sha256 over the sealed records that were read."""
    took_place: str | None = None
    """When, where the look was recorded afterwards."""


class EarlierClaim(FrozenModel):
    """An earlier study that claimed the same."""

    # Without defaults, which a line leaves out: what is read would be written again as other bytes.
    study: str
    """Its name."""
    ended: str
    """How its claims ended: `supported`, `refuted`, `inconclusive` or several of these; `inadmissible`; `decided` where
    its ledger entry has no outcomes; `kept`, `dropped` or `out of budget` of a proposal; `never decided`."""
    verdict: str | None
    """The words of its verdict, where it is `decided`."""

    @property
    def words(self) -> str:
        """Name and end.

        >>> EarlierClaim(study="a", ended="refuted", verdict=None).words
        'a: refuted'
        """
        if self.verdict is None:
            return f"{self.study}: {self.ended}"
        shown = self.verdict if len(self.verdict) <= 50 else f"{self.verdict[:47]}..."
        return f"{self.study}: '{shown}'"


class EarlierClaims(FrozenModel):
    """The studies of a ledger that claimed the same before a study did."""

    n: int
    """How many."""
    ended: dict[str, int]
    """How they ended -> how many did."""
    studies: Annotated[tuple[EarlierClaim, ...], Listed]
    """The newest of them, oldest first."""
    unknown: Annotated[tuple[str, ...], Listed]
    """Studies that were registered before, and whose lock is not here: what they claimed cannot be said."""

    @property
    def words(self) -> str:
        """One line; empty where there is nothing to say.

        >>> claims = [EarlierClaim(study=study, ended="refuted", verdict=None) for study in "ab"]
        >>> EarlierClaims(n=2, ended={"refuted": 2}, studies=tuple(claims), unknown=()).words
        'Claimed before in this repository: 2 studies (a: refuted, b: refuted)'
        """
        parts = []
        if self.n:
            if self.n == len(self.studies):
                said = ", ".join(claim.words for claim in self.studies)
            else:
                counts = ", ".join(f"{n} {ended}" for ended, n in self.ended.items())
                said = f"{counts}; the newest: {', '.join(claim.words for claim in self.studies)}"
            parts.append(f"Claimed before in this repository: {counted(self.n, 'study', 'studies')} ({said})")
        if self.unknown:
            parts.append(f"Registered before, with a lock that is gone or changed: {', '.join(self.unknown)}")
        return ". ".join(parts)


class DecidedEntry(Entry):
    """The rule was applied."""

    event: Literal["decided"] = "decided"
    status: str
    """`decided`, `decided_with_deviations`, `inconclusive` or `inadmissible`."""
    verdict: str | None
    """The registered words; null without a verdict."""
    verdict_sha256: str
    """sha256 of verdict.json."""
    code: str
    """sha256 over the sources of ablate that judged and worded it."""
    evidence: str
    """sha256 over the sealed records that were read."""
    outcomes: dict[str, str] = {}
    """Hypothesis -> `supported`, `refuted` or `inconclusive`; absent where no finding may be used, and in entries of
    earlier versions."""
    claimed_before: EarlierClaims | None = None
    """The earlier studies of this ledger that claim the same, as far as it was known then; absent where there are
    none."""


class ReportedEntry(Entry):
    """Reports of a decision were written."""

    keys: ClassVar[Mapping[str, str]] = {"report_md": "report.md", "report_html": "report.html"}

    event: Literal["reported"] = "reported"
    decision: str
    """sha256 of the entry of the decision."""
    report_md: str | None = None
    """sha256 of that page."""
    report_html: str | None = None
    """sha256 of that page."""
    published: str | None = None
    """sha256 of published figures that they showed: of reports from before 2026-11-29; nothing writes it any more."""


class GitState(FrozenModel):
    """The state of the repository around a lock."""

    clean: bool
    """Whether nothing but the study's own registration differed from the commit."""
    n_changed: int
    """How many other files differed from it, or were not in it."""
    lock: Literal["the same bytes", "other bytes", "absent"]
    """What the commit holds in place of the lock."""


class AttestedEntry(Entry):
    """A seal of the lock was made."""

    keys: ClassVar[Mapping[str, str]] = {"file_sha256": "sha256"}

    event: Literal["attested"] = "attested"
    kind: str
    """`ssh`, `rfc3161` or `git`."""
    lock_sha256: str
    """sha256 of the lock's bytes."""
    by: str
    """Fingerprint of the key, `openssl ts` of a timestamp, or hash of the commit."""
    file: str | None = None
    """The seal's file, from the root; none of a commit."""
    file_sha256: str | None = None
    """sha256 of that file."""
    time: str | None = None
    """The time that the seal states."""
    git: GitState | None = None
    """Of a commit: the state of the repository around the lock."""


class EarlierCampaign(FrozenModel):
    """A campaign of the same trainer, start or metric as another one, and how far it had come."""

    campaign: str
    """Its name."""
    proposals: int
    """How many it had begun."""
    kept: int
    """How many of them it had kept."""
    same_start: bool
    """Whether code, data and configuration of its start are the same."""
    same_trainer: bool | None = None
    """Whether its trainer is the same; absent in entries that named campaigns on the same metric alone."""
    same_metric: bool = True
    """Whether it is on the same metric; absent in entries that named no other."""
    confirmation: str | None = None
    """The verdict of its last confirmation that was decided; absent where none was."""

    @model_serializer(mode="wrap")
    def _as_given(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The fields that were given: a line of an earlier version is written again as the same bytes."""
        return {name: value for name, value in dump(self).items() if name in self.model_fields_set}

    @property
    def words(self) -> str:
        """It, how it ended, and what it shares.

        >>> EarlierCampaign(campaign="night", proposals=3, kept=0, same_start=True).words
        "'night' (3 proposals, 0 kept; the same start)"
        >>> EarlierCampaign(
        ...     campaign="day", proposals=4, kept=2, same_start=False, same_trainer=True, same_metric=False
        ... ).words
        "'day' (4 proposals, 2 kept, no confirmation; the same trainer, another start, another metric)"
        """
        end = f"{counted(self.proposals, 'proposal')}, {self.kept} kept"
        if self.confirmation is not None:
            end += f", confirmation: {self.confirmation}"
        elif self.kept:
            end += ", no confirmation"
        trainer = {True: "the same trainer, ", False: "another trainer, ", None: ""}[self.same_trainer]
        start = "the same start" if self.same_start else f"{trainer}another start"
        return f"'{self.campaign}' ({end}; {start}{'' if self.same_metric else ', another metric'})"


class OpenedEntry(Entry):
    """A campaign was registered; its entries name it as their study."""

    event: Literal["opened"] = "opened"
    file: str
    """The campaign's file, from the root."""
    source_sha256: str
    """sha256 of the bytes of that file."""
    campaign: dict[str, JsonValue]
    """All that it promises, every default filled in."""
    start_sha256: str
    """sha256 over code, data, corpora and tasks that every run of it is made with, but for those of commits."""
    start_commit: str | None = None
    """The commit that it starts from, by its full hash."""
    seeds_follow_from: Literal["nonce"] | None = None
    """`nonce`: every proposal and every confirmation has a nonce, from which its seeds follow. It is a part of the hash
    `registration`. Absent of a campaign from before there were nonces, whose seeds could be computed beforehand."""
    earlier: Annotated[tuple[EarlierCampaign, ...], Listed] = ()
    """Earlier campaigns of the same trainer, start or metric: the error that this one bounds leaves theirs out."""


class Change(FrozenModel):
    """What a proposal changes in the best before it."""

    # Without defaults, which a line leaves out: what is read would be written again as other bytes.
    commit: str | None
    """The commit whose code takes the place of the best one's, by its full hash; none where the code stays."""
    settings: dict[str, JsonValue]
    """Value by dotted path of the configuration; empty where that stays."""


class ProposedEntry(Entry):
    """A proposal of a campaign began, before its first run."""

    event: Literal["proposed"] = "proposed"
    number: int
    """Which, from 1."""
    change: Change
    """What it changes."""
    why: str
    """Why it may help, in the user's words."""
    seeds: Annotated[tuple[int, ...], Listed]
    """The seeds of all its stages, which follow from the entry before this one, from what is proposed, and from the
    nonce."""
    nonce: Nonce | None = None
    """Drawn after everything that is proposed was fixed; absent only in a campaign from before there were nonces."""
    best_sha256: str
    """sha256 of commit and settings that it is compared with."""
    content_sha256: str
    """sha256 over code and configuration that it proposes, by which the same is known again under another name."""
    run_as: str
    """The study that carries it out."""
    again: str | None = None
    """Why code and configuration that were proposed before are proposed again."""
    by: str | None = None
    """Who proposed it, as they say: a person, or a program with its version."""


class StagedEntry(Entry):
    """What became of a proposal at a stage."""

    event: Literal["staged"] = "staged"
    number: int
    """Which proposal, from 1."""
    stage: int
    """Which stage, from 1."""
    seeds: int
    """Pairs of runs that the stage sees."""
    outcome: Literal["keep", "drop", "next_stage", "out_of_budget"]
    """All but `next_stage` end the proposal."""
    evidence: str | None = None
    """sha256 over the sealed records that were read; none of a proposal that was given up."""
    decision_sha256: str | None = None
    """sha256 of the decision; none of a proposal that was given up."""
    decision: dict[str, JsonValue] | None = None
    """The decision that ended it, with its numbers; absent of a stage that another one follows."""
    deviations: Annotated[tuple[str, ...], Listed] = ()
    """What was done otherwise than registered, by the audit at its end."""
    given_up: str | None = None
    """Why it was given up without a look at its runs, which is a drop."""


class ConfirmingEntry(Entry):
    """A confirmation of a campaign began, before its first run: its best so far against its start."""

    event: Literal["confirming"] = "confirming"
    number: int
    """Which, from 1."""
    best_sha256: str
    """sha256 of commit and settings of the best that it is about."""
    seeds: Annotated[tuple[int, ...], Listed]
    """Its seeds, which follow from the entry before this one, from the best, and from the nonce."""
    nonce: Nonce | None = None
    """Drawn after the best and the number of seeds were fixed; absent only in a campaign from before there were
    nonces."""
    run_as: str
    """The study that carries it out."""
    again: str | None = None
    """Why a best that was confirmed before is confirmed again."""
    by: str | None = None
    """Who began it, as they say."""


ENTRY_KINDS: tuple[type[Entry], ...] = (
    ContinuedEntry,
    RegisteredEntry,
    AmendedEntry,
    RewordedEntry,
    CallStartedEntry,
    RunStartedEntry,
    BreachedEntry,
    SealedEntry,
    FailedEntry,
    FinishedEntry,
    ImportedEntry,
    TunedEntry,
    LookedEntry,
    PeekedEntry,
    DecidedEntry,
    ReportedEntry,
    AttestedEntry,
    OpenedEntry,
    ProposedEntry,
    StagedEntry,
    ConfirmingEntry,
)  # fmt: skip
"""Every kind of entry, in the order of the documentation."""

_BY_EVENT: Mapping[str, type[Entry]] = {str(kind.model_fields["event"].default): kind for kind in reversed(ENTRY_KINDS)}


def entry_kind(event: str, body: Mapping[str, object]) -> type[Entry]:
    """The class of an entry. Raises `ValueError` for an event that is none.

    >>> entry_kind("started", {"variant": "wide"}).__name__, entry_kind("started", {}).__name__
    ('RunStartedEntry', 'CallStartedEntry')
    """
    if event not in _BY_EVENT:
        raise ValueError(f"the event {event!r} is not known")
    # The one word that two kinds share: a call of `run`, and each run that it starts.
    return RunStartedEntry if event == "started" and "variant" in body else _BY_EVENT[event]


def entry_of(line: Any) -> Entry:
    """The entry that the JSON object of a line is. Raises `ValueError`, of which pydantic's errors are some.

    >>> entry_of({"event": "no such event"})
    Traceback (most recent call last):
    ValueError: an entry has the fields format, index, at, event, study, registration, previous, joins, sha256 and body
    """
    if not isinstance(line, dict) or line.keys() != {*HEADER, "body"} or not isinstance(line["body"], dict):
        raise ValueError(f"an entry has the fields {', '.join(HEADER)} and body")
    # The body's keys are the names of fields, but for a few (`keys`): words that the header has, or Python cannot
    # have.
    header, body = {name: line[name] for name in HEADER}, line["body"]
    kind = entry_kind(str(header["event"]), body)
    names = {key: name for name, key in kind.keys.items()}
    fields = {names.get(key, key): value for key, value in body.items()}
    # One way to write each entry: what is read is written again as the same bytes, and hides no field of the header.
    for key in body:
        field = kind.model_fields.get(str(names.get(key, key)))
        if key in kind.keys or (key in HEADER and key not in names):
            raise ValueError(f"body.{key}: not a field of this event")
        if body[key] is None and field is not None and not field.is_required():
            raise ValueError(f"body.{key}: is null, and a field that does not apply is left out")
    return kind.model_validate(header | fields)
