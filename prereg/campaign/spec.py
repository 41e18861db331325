"""`Campaign`, its fields: what is promised of many changes that are tried in a row, before the first is proposed.

A campaign starts from one configuration or commit. Each proposal changes the best so far and is compared with it on
seeds of its own, in stages; a change that is kept becomes the next best. `error` holds over the whole campaign, and
what a false keep is follows from these fields alone: a keep of a change whose true gain is zero or less, or that truly
worsens a guardrail by its margin or more (`ablate.judge.campaign`).

`prereg.campaign.load` reads the file. How runs are made is said in `start`, by the fields of a study, and checked by
the study itself (`probe`).

To add a field: its line and docstring here, what else it must fit in `Campaign`, and a row of `REFUSED` in
tests/prereg/test_campaign_file.py.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from prereg.errors import FieldPath, SpecError, Where, field_error, nearest
from prereg.frozen import FrozenModel, branch, chosen_by, once
from prereg.metrics.catalogue import Better
from prereg.study.analysis import Alpha, Read, Scale
from prereg.study.fields import StudyFields
from prereg.study.measure import Assumption, Name
from prereg.study.spec import Study, study_from_document
from prereg.text import compact

MOST_PROPOSALS: Final = 10_000
MOST_STAGES: Final = 5
"""Each further stage saves fewer runs than the one before."""
MOST_SEEDS: Final = 64
START: Final = (
    "trainer",
    "base",
    "command",
    "working_directory",
    "code",
    "data",
    "metrics",
    "labels",
    "measure",
    "stable",
    "checks",
)
"""The fields of a study that `start` may have: how runs are made and what is recorded of them."""
BEST: Final = "best"
"""The arm that a proposal is compared with."""
PROPOSAL: Final = "proposal"


class Guardrail(FrozenModel):
    """A metric that a change must not worsen by its margin or more."""

    metric: str
    """Its name."""
    margin: Annotated[float, Field(gt=0.0)]
    """A change is kept only where it is shown that the metric worsens by less than this, in the metric's own unit on
    the scale: at the level of the gain, so that the campaign's error covers the guardrails too."""
    better: Better | None = None
    """Which way the metric improves; needed for a metric that neither this tool nor `start.metrics.declare` defines."""
    scale: Scale = "raw"
    """Scale on which differences are taken: raw, natural logarithm, or log10."""
    read: Read = "final"
    """Where on its curve the metric is read, as in a hypothesis of a study."""


class Stages(FrozenModel):
    """How many seeds a proposal gets, and when it ends early."""

    seeds: tuple[Annotated[int, Field(ge=2, le=MOST_SEEDS)], ...] = Field(min_length=1, max_length=MOST_STAGES)
    """Pairs of runs after each stage, ascending. A stage adds seeds to those before; a change may be kept at any."""
    spending: Literal["obrien_fleming", "pocock"] = "obrien_fleming"
    """Lan-DeMets spending function of the level of one proposal over its stages. obrien_fleming leaves nearly all of it
    to the last one; pocock keeps large gains earlier, and takes three seeds for its first stage, because a t statistic
    of two pairs at such a level asks for a mean of a thousand SDs, which only rounded values give."""
    futility: tuple[Annotated[float, Field(gt=0.0, le=1.0)], ...] = ()
    """For each stage but the last: the change is dropped where the one-sided p of this stage, of the gain against zero
    or of a guardrail against its margin, is larger. 1 never drops. Left out, .5 at each: a mean that points the wrong
    way. It costs no error, because it can only drop: levels are those of stages without it."""

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        # `new_seeds` subtracts neighbours: a stage that adds no seed would be a second test of the same pairs.
        if list(self.seeds) != sorted(set(self.seeds)):
            raise field_error(
                ("stages", "seeds"),
                f"stages of {list(self.seeds)} seeds",
                "numbers of seeds that ascend: each stage adds to the one before",
                f"seeds: {sorted(set(self.seeds))}",
            )
        if self.futility and len(self.futility) != len(self.seeds) - 1:
            raise field_error(
                ("stages", "futility"),
                f"{len(self.futility)} limits for {len(self.seeds)} stages",
                "one for each stage but the last, at which every change ends",
                f"futility: {[0.5] * (len(self.seeds) - 1)}",
            )
        # Under obrien_fleming a first stage of two seeds is allowed: its level is so small that it can only
        # drop.
        if self.spending == "pocock" and self.seeds[0] < 3:
            raise field_error(
                ("stages", "seeds"),
                f"a first stage of {self.seeds[0]} seeds, which may keep a change under spending: pocock",
                "three seeds or more at a stage that may keep",
                "spending: obrien_fleming, which keeps none at two seeds",
            )
        return self

    @property
    def limits(self) -> tuple[float, ...]:
        """The largest p of each stage at which a change goes on; 1 for the last."""
        return (*(self.futility or (0.5,) * (len(self.seeds) - 1)), 1.0)

    @property
    def new_seeds(self) -> tuple[int, ...]:
        """Seeds that each stage adds."""
        return tuple(n - before for n, before in zip(self.seeds, (0, *self.seeds), strict=False))


class CampaignBudget(FrozenModel):
    """What a campaign may take."""

    proposals: Annotated[int, Field(ge=1, le=MOST_PROPOSALS)]
    """No more proposals than this. The error is spent evenly over them, so a number far above what will be proposed
    costs power: what is not proposed is not spent."""
    runs: Annotated[int, Field(ge=4)]
    """No more runs than this, of both sides: a stage of n new seeds takes 2 n, because the best is trained on them
    too."""


class AnyFalseKeep(FrozenModel):
    """The chance of one false keep or more in the whole campaign."""

    any_false_keep: Alpha
    """At most this. Each proposal has an even share of it (alpha spending)."""


class FalseDiscoveryRate(FrozenModel):
    """The expected share of false ones among the kept changes."""

    false_discovery_rate: Annotated[float, Field(gt=0.0, le=0.25)]
    """At most this, at whatever proposal the campaign ends (LOND). The level of a proposal grows with the keeps before
    it."""


Error = Annotated[
    Annotated[AnyFalseKeep, branch("AnyFalseKeep")] | Annotated[FalseDiscoveryRate, branch("FalseDiscoveryRate")],
    chosen_by(AnyFalseKeep, FalseDiscoveryRate, text="a mapping"),
]


class CampaignAssumptions(FrozenModel):
    """Assumptions for `ablate design`; no decision uses them."""

    metrics: dict[str, Assumption] = Field(default_factory=dict)
    """By metric: `sd` of one arm over seeds and `correlation` of two arms over shared ones, on the registered scale."""
    useful: tuple[Annotated[float, Field(ge=0.0, le=1.0)], ...] = (0.0, 0.05, 0.2)
    """Shares of useful changes among the proposals, one scenario each."""
    gain: Annotated[float, Field(gt=0.0)] | None = None
    """True gain of a useful change. The others have none, which is where most false keeps are. Left out, twice
    `smallest`."""
    seconds_per_run: Annotated[float, Field(gt=0.0)] | None = None
    """Time of one run, for the cost."""


class Campaign(FrozenModel):
    """Many changes, tried in a row, with one error rate.

    Raises `SpecError` for fields that make no campaign (`campaign_from_document`, for plain data).
    """

    campaign: Name
    """The campaign's id; equals the file's name without its ending."""
    title: str
    """One line for people."""
    question: str = ""
    """What is looked for, in a sentence or two."""
    start: dict[str, JsonValue]
    """What the first proposal is compared with, and how every run is made: fields of a study (trainer, base with its
    commit, command, code, data, metrics, measure, stable, ...)."""
    metric: str
    """What is to be improved."""
    better: Better | None = None
    """Which way it improves; needed for a metric that neither this tool nor `start.metrics.declare` defines."""
    scale: Scale = "raw"
    """Scale on which differences are taken: raw, natural logarithm, or log10."""
    read: Read = "final"
    """Where on its curve the metric is read, as in a hypothesis of a study."""
    smallest: Annotated[float, Field(ge=0.0)]
    """The smallest gain worth keeping, in the metric's own unit on the scale: a change is kept only where its estimated
    gain is at least this, and shown to be above zero."""
    guardrails: Annotated[tuple[Guardrail, ...], once("guardrail", "each metric once", attrgetter("metric"))] = ()
    """Metrics that no kept change may worsen by a margin."""
    stages: Stages
    """How many seeds a proposal gets, and when it ends early."""
    budget: CampaignBudget
    """What the campaign may take."""
    error: Error
    """What is bounded over the whole campaign: `{any_false_keep: 0.05}` or `{false_discovery_rate: 0.1}`."""
    assume: CampaignAssumptions = CampaignAssumptions()
    """Assumptions for the design."""

    @field_validator("start")
    @classmethod
    def _fields_of_runs(cls, start: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for field in start:
            if field in START:
                continue
            # Two refusals: a field that the campaign sets itself, and one that no study has.
            if field in StudyFields.model_fields:
                raise field_error(
                    ("start", field),
                    f"'{field}' in start",
                    "what makes a run; arms, seeds, claims and tests follow from the campaign",
                    f"leave {field} out",
                )
            raise field_error(("start", field), f"unknown field '{field}'", "a field of a study", nearest(field, START))
        return start

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        # 1. The start alone, by every rule of a study.
        study = self.probe
        # 2. Of every metric that decides it is known which way it improves, and nothing contradicts that.
        for place, metric, better in self._measured:
            if (better or declared_better(study, metric)) == "neither":
                raise field_error(
                    place,
                    f"which way '{metric}' improves is not known",
                    "better, of a metric that nothing defines",
                    "better: lower",
                )
            if better not in (None, "neither", declared_better(study, metric)) and (
                declared_better(study, metric) != "neither"
            ):
                raise field_error(
                    (*place[:-1], "better"),
                    f"better is '{better}', and {metric} is defined as one whose better is "
                    f"'{declared_better(study, metric)}'",
                    "what the metric's definition says",
                    "leave better out",
                )
        # 3. Guardrails are other metrics, and the budget pays for one proposal's first stage.
        for at, guardrail in enumerate(self.guardrails):
            if guardrail.metric == self.metric:
                raise field_error(
                    ("guardrails", at, "metric"),
                    f"'{guardrail.metric}' is the metric to be improved",
                    "a metric other than that: a gain above zero is no harm already",
                    "leave the guardrail out",
                )
        least = 2 * self.stages.seeds[0]
        if self.budget.runs < least:
            raise field_error(
                ("budget", "runs"),
                f"{self.budget.runs} runs, and the first stage of one proposal takes {least}",
                f"at least {least}: both sides are trained on each seed",
                f"runs: {self.budget.proposals * 2 * self.stages.seeds[-1]}   (all stages of every proposal)",
            )
        # 4. Assumptions are about metrics that decide: one about a misspelt name would be left unused in silence.
        for metric in self.assume.metrics:
            if metric not in (self.metric, *(guardrail.metric for guardrail in self.guardrails)):
                raise field_error(
                    ("assume", "metrics", metric),
                    f"'{metric}' is neither the metric nor a guardrail",
                    "assumptions about metrics that decide",
                    nearest(metric, [self.metric, *(guardrail.metric for guardrail in self.guardrails)]),
                )
        return self

    @property
    def _measured(self) -> tuple[tuple[FieldPath, str, Better | None], ...]:
        """(where it is written, metric, its better) of everything that decides."""
        guardrails = (
            (("guardrails", at, "metric"), each.metric, each.better) for at, each in enumerate(self.guardrails)
        )
        return ((("metric",), self.metric, self.better), *guardrails)

    @property
    def probe(self) -> Study:
        """The start alone as a study whose claims read what the campaign reads. Raises `SpecError` at the field of the
        campaign that does not fit: so every rule of a study about its trainer, code and metrics holds here too."""
        claimed = [(self.metric, self.scale, self.read), *((g.metric, g.scale, g.read) for g in self.guardrails)]
        document: dict[str, Any] = {
            **self.start,
            "study": self.campaign,
            "title": self.title,
            "variants": {BEST: {}},
            "baseline": BEST,
            "seeds": [1, 2],
            # A claim with a constant, because only such a claim needs no second arm; the constant is of no matter.
            "hypotheses": {
                f"of{at}": {
                    "claim": f"{BEST} lowers {metric} below 1",
                    "smallest": 0.0,
                    "scale": scale,
                    "read": read if isinstance(read, str) else read.model_dump(mode="json"),
                }
                for at, (metric, scale, read) in enumerate(claimed)
            },
            "decision": [
                {"verdict": "none", "when": " and ".join(f"supported(of{at})" for at in range(len(claimed)))},
                {"verdict": "other"},
            ],
        }
        try:
            return study_from_document(document)
        except SpecError as error:
            raise self._placed(error) from None

    def _placed(self, error: SpecError) -> SpecError:
        """An error of the probe at the field of the campaign that it comes from."""

        def field_of(path: FieldPath) -> FieldPath:
            # of0 is the metric, of1 the first guardrail: the order of `claimed` in `probe`.
            if path[:1] == ("hypotheses",) and len(path) > 1 and str(path[1]).startswith("of"):
                number, rest = int(str(path[1])[2:]), path[2:]
                at: FieldPath = () if number == 0 else ("guardrails", number - 1)
                return (*at, *(rest if rest[:1] in (("scale",), ("read",)) else ("metric",)))
            return ("start", *path) if path and path[0] in START else path

        first, *others = (
            SpecError(each.found, required=each.required, fix=each.fix, where=Where(field=field_of(each.where.field)))
            for each in (error, *error.others)
        )
        return first.followed_by(others)

    def lower_is_better(self, metric: str) -> bool:
        """Whether a lower value of the metric, or of a guardrail, is an improvement."""
        better = {name: better for _, name, better in self._measured}[metric] or declared_better(self.probe, metric)
        return better == "lower"

    @property
    def n_runs_of_proposal(self) -> int:
        """Runs of a proposal that ends at the last stage."""
        return 2 * self.stages.seeds[-1]

    @property
    def error_rate(self) -> float:
        """The level that is bounded over the campaign."""
        error = self.error
        return error.any_false_keep if isinstance(error, AnyFalseKeep) else error.false_discovery_rate

    @property
    def error_words(self) -> str:
        """What is bounded, as a sentence says it."""
        what = "the chance of any false keep" if isinstance(self.error, AnyFalseKeep) else "the false discovery rate"
        return f"{what} at most {compact(self.error_rate)}"


def declared_better(study: Study, metric: str) -> Better:
    """Which way a metric improves by its declaration; `neither` of one that nothing declares."""
    declared = study.declaration(metric)
    return "neither" if declared is None else declared.better
