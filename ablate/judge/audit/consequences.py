"""What every check looks at, what its failure means for admissibility, and why. One table for code, report and docs.

A check is made where it is asked (`admissible`, `matching`, `view`, `touched`, `own_checks`, `headroom`); here it is
declared. Checks that are named below as listed only when they fail are left out of a verdict in which they held: a
verdict that was given earlier keeps its bytes, and the table may grow. Nothing here looks at evidence.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ablate.judge.audit.amendments import RESTS_ON_NOTHING_AMENDED
from ablate.judge.audit.headroom import HEADROOM
from ablate.judge.audit.history import AFTER, BEGUN, ELSEWHERE, FORWARD, REMOVED
from ablate.judge.audit.lost_pairs import SAME_AT_WORST
from ablate.judge.audit.pairs import TOKENIZER, VALIDATED
from ablate.judge.audit.runs import CEILING, LIMITS
from ablate.judge.audit.stability import CURVE
from ablate.judge.audit.user_checks import OWN
from ablate.judge.verdict import Check, Severity
from prereg.registry.amendments import TOUCHES
from prereg.registry.disk import write_whole

MEANS: dict[Severity, str] = {
    "inadmissible": "no verdict",
    "deviation": "listed next to the verdict",
    "note": "remark",
}
"""What a failed check means for the verdict, in words."""
_APART = ", for all variants"


@dataclass(frozen=True)
class Declared:
    """One check."""

    name: str
    """Its name; of checks that a study brings, what their names begin with."""
    looks_at: str
    """What it looks at."""
    consequence: tuple[Severity, ...]
    """What a failure means; the gravest first where it depends on what was found."""
    why: str
    """Why it means that, and what it depends on."""


DECLARED: tuple[Declared, ...] = (
    Declared(
        "registered before any run",
        "the ledger's entries of the registration and of its runs",
        ("inadmissible",),
        "a promise made after the fact is none",
    ),
    Declared(
        "the ledger and the registration are intact",
        "the chain of hashes, and the chain of the study's registrations",
        ("inadmissible",),
        "what was promised and done cannot be known otherwise",
    ),
    Declared(
        "no amendment after outcomes were read",
        "`amended` entries after a decision, a look or a peek",
        ("inadmissible", "deviation"),
        "no verdict if it changed the rule or what is admissible; otherwise what it touched is exploratory",
    ),
    Declared(
        "no amendment after runs started",
        "`amended` entries after a run was started",
        ("inadmissible", "deviation"),
        "the same: nothing in the ledger shows that nobody read the records of a run by hand",
    ),
    Declared(
        RESTS_ON_NOTHING_AMENDED,
        "the rule, over every outcome of what amendments touched",
        ("inadmissible",),
        "an outcome may have chosen the test that it passed",
    ),
    Declared(
        "the design could reach every verdict",
        "an override in the registration",
        ("deviation",),
        "accepted on record before any run; some verdict could never happen",
    ),
    Declared(
        "no look before the last run ended",
        "`peeked` entries before the last planned run was sealed, or recorded afterwards; in a sequential study, all",
        ("inadmissible",),
        "seeds are fixed, but what was seen can end a study, retry a run or move an amendment, and not all of that "
        "shows; a sequential study pays alpha for every look, and this one was not paid for",
    ),
    Declared(
        AFTER,
        "`sealed` and `imported` entries after the first `decided` entry of the registration",
        ("inadmissible",),
        "listed only when it fails; with the findings known, training again is a choice; the same outcome is none",
    ),
    Declared(
        ELSEWHERE,
        "outcome hashes that another study of the ledger had sealed before",
        ("deviation", "note"),
        "listed only when it fails; a deviation where they were sealed before this registration: they may have chosen "
        "its claim, and reading them by hand leaves no trace; a remark where later, for the verdicts then share runs",
    ),
    Declared(
        FORWARD,
        "the times of this study's entries",
        ("deviation",),
        "listed only when it fails; the chain proves the order, and a clock that was set back can hide when a look was",
    ),
    Declared(
        BEGUN,
        "the times in run.json against the registration's entry; of imports, see below",
        ("deviation",),
        "listed only when it fails; such a run may have been known before the promise",
    ),
    Declared(
        "every planned run is present",
        "planned variants and seeds without an ended run",
        ("inadmissible",),
        "seeds left out may have been chosen; no contrast is shown",
    ),
    Declared(
        "no run failed",
        "runs that ended in an error",
        ("inadmissible",),
        "a failure of machine or code is no outcome; run it again",
    ),
    Declared(
        "every seal matches",
        "files against the hashes in run.json, and values against its outcome_sha256, derived from them again",
        ("inadmissible",),
        "the numbers were changed",
    ),
    Declared(
        "every sealed run is in the ledger",
        "hashes on disk against `sealed` entries",
        ("inadmissible",),
        "a run outside the ledger may be one of many",
    ),
    Declared(
        "no run outside the plan",
        "run folders that no plan names",
        ("inadmissible",),
        "extra seeds or arms allow a choice among them",
    ),
    Declared(
        "every run was made under this registration",
        "the registration that each run names",
        ("inadmissible",),
        "runs of an earlier registration answered another promise",
    ),
    Declared(
        "every configuration is the registered one",
        "each run's configuration",
        ("inadmissible",),
        "another arm was trained",
    ),
    Declared(
        "every run consumed its tokens",
        "tokens and steps of finished runs",
        ("inadmissible",),
        "arms had other budgets",
    ),
    Declared(
        LIMITS,
        "measured memory and time of each run against the budget",
        ("deviation",),
        "listed only where limits were promised; they are about cost, so the run went on and its pair counts",
    ),
    Declared(
        "every run states what its pair shares",
        "hashes of weights, batches, dropout, corpus, tokenizer",
        ("inadmissible",),
        "a pair that cannot be checked is none",
    ),
    Declared(
        "the trainer's code is registered",
        "whether any file of a user's own trainer is pinned in the registration",
        ("deviation",),
        "a command whose files nobody pinned may change from run to run, and that would not show",
    ),
    Declared(
        "every run used the registered code",
        "the hash of the trainer's files, of its code and its data, as each run found them",
        ("inadmissible",),
        "another code answers another question",
    ),
    Declared(
        "device and library versions are known",
        "whether the trainer states them",
        ("note",),
        "of a user's own trainer they are the user's promise",
    ),
    Declared(
        "every run was made here",
        "`imported` entries of runs that name this registration",
        ("deviation",),
        "listed only where runs were imported; that they were made after the promise is their maker's word",
    ),
    Declared(
        "pairs are matched",
        "whether the trainer states such hashes at all",
        ("note",),
        "of a user's own trainer it is the user's promise",
    ),
    Declared(
        "pairs start from the same weights",
        "initial bytes of every shared parameter",
        ("inadmissible",),
        "the difference would hold the initial weights too",
    ),
    Declared(
        "pairs read the same batches",
        "chained hashes of the batches",
        ("inadmissible",),
        "the difference would hold the order of data too",
    ),
    Declared(
        "pairs drew the same dropout",
        "chained hashes of the dropout keys",
        ("inadmissible",),
        "the difference would hold the masks too",
    ),
    Declared(
        "pairs used the same tokenizer", "hashes of the tokenizer", ("inadmissible",), "losses are not comparable"
    ),
    *(
        Declared(
            name + _APART,
            "arms whose configurations promise no equality",
            ("note",),
            "such arms share the seed, not all that it fixes",
        )
        for name in (
            "pairs start from the same weights",
            "pairs read the same batches",
            "pairs drew the same dropout",
            "pairs used the same tokenizer",
        )
    ),
    Declared(
        "every run read the registered corpus",
        "the corpus hash of each run",
        ("inadmissible",),
        "another text was learned",
    ),
    Declared(
        TOKENIZER,
        "the tokenizer hash of each run, where tokenizers were registered",
        ("inadmissible",),
        "the text was cut into other tokens; byte pairs are trained and registered by hash",
    ),
    Declared(
        VALIDATED,
        "the corpora of the arms that a claim about a validation metric names",
        ("deviation",),
        "listed only when it fails; a difference of losses is then one of texts too, as it was registered",
    ),
    Declared(
        "every run used the same code",
        "hash of every module that a run executes",
        ("inadmissible",),
        "arms and seeds would differ in code too",
    ),
    Declared(
        "every run was made at the same commit",
        "git commits of the tool's source tree",
        ("note",),
        "listed only when it fails; the hash of the source decides, not the commit",
    ),
    Declared(
        "every run used the same device class",
        "the device of each run",
        ("inadmissible",),
        "arithmetic differs between devices, and with it pairs",
    ),
    Declared(
        "pairs were trained in the same layout",
        "whether the runs of a seed were trained by themselves, spread over devices or in a cohort",
        ("deviation",),
        "listed only when it fails; each adds in another order, and rounding differs",
    ),
    Declared(
        "every run used the same library versions",
        "Python, torch and numpy of each run",
        ("deviation",),
        "arithmetic may differ, mostly by rounding",
    ),
    Declared(
        "every run took the same path through attention",
        "which of equal computations each run took, as its machine measured them",
        ("deviation",),
        "listed only when it fails; they differ by rounding, and pairs then differ by it too",
    ),
    Declared(
        "every run used the same processor and platform",
        "processor and system of each run",
        ("note",),
        "rounding may differ",
    ),
    Declared(
        "the tool's source tree was clean",
        "uncommitted changes, by git, in the modules that a run executes",
        ("note",),
        "the hash of the source names the code all the same",
    ),
    Declared(
        "every run was made in one go",
        "attempts, resumptions and `failed` entries of each run",
        ("deviation", "note"),
        "a remark where numerics are deterministic, since resuming is then exact",
    ),
    Declared(
        REMOVED,
        "`started` entries of runs without a seal, a failure or a resumption of their own",
        ("inadmissible", "deviation"),
        "listed only when it fails; metrics can be read while a run lives, and a start removed for them is a choice; "
        "no verdict above `analysis.most_lost_starts`, or without it above one start that need not give the same bits",
    ),
    Declared(
        "no sealed run was trained again",
        "several `sealed` entries of one run, and the outcomes that they name",
        ("inadmissible", "note"),
        "no verdict where the outcomes differ, since one of them may have been chosen; a remark where they agree",
    ),
    Declared(
        "every seal was reported by the run that made it",
        "`sealed` entries that a later `ablate run` took in, marked `recovered`",
        ("deviation",),
        "listed only where there are some; a crash leaves such runs, and a folder copied by hand looks the same",
    ),
    Declared(
        "every finished run has every claimed metric",
        "values where the claims read them",
        ("inadmissible",),
        "pairs would be left out in silence",
    ),
    Declared(
        f"every finished run has its {CURVE} at every step",
        "the curve that `stable` reads",
        ("inadmissible",),
        "a spike could hide in the hole",
    ),
    Declared(
        "every run was asked by the same harness",
        "version, tasks, prompts, requests and precision in each run's record",
        ("deviation",),
        "two ways of asking are two measures",
    ),
    Declared(
        "every run answered the registered tasks",
        "the tasks' hash and the number of items in each run's record",
        ("inadmissible",),
        "other tasks would be another measure",
    ),
    Declared(
        "every finished run scored the same items",
        "tasks, items and texts under every arm and seed",
        ("inadmissible", "deviation"),
        "arms would differ in items too; a deviation where no claim is about items",
    ),
    Declared(
        "every item is sealed with its run",
        "the items hash in each run's record",
        ("inadmissible", "deviation"),
        "scores outside the seal could be changed; a deviation where no claim is about items",
    ),
    Declared(
        "every recorded mean is that of its items",
        "metrics against the scores they average",
        ("inadmissible", "deviation"),
        "one of the two is wrong; a deviation where no claim is about items",
    ),
    Declared(
        "no pair was left out for divergence",
        "diverged runs under exclude_pair",
        ("deviation",),
        "listed only where a run diverged; the rest are the luckier seeds",
    ),
    Declared(
        CEILING,
        "the value at which diverged runs are scored, against those of finished runs",
        ("inadmissible",),
        "listed only when it fails and a run diverged; diverging would be an improvement",
    ),
    Declared(
        SAME_AT_WORST,
        "the rule, over every outcome that lost pairs leave open",
        ("inadmissible",),
        "listed only where pairs were left out; without it the luckier seeds decide alone",
    ),
    Declared(
        HEADROOM,
        "the baseline's values of every claimed metric",
        ("deviation",),
        "listed only when it fails; at floor or ceiling a metric shows no difference, and a guardrail holds for free",
    ),
    Declared(
        "every look was taken in its turn",
        "`looked` entries of a sequential study",
        ("inadmissible",),
        "levels are spent look by look",
    ),
    Declared(
        "no look was taken twice on different evidence",
        "the evidence that each look saw",
        ("inadmissible",),
        "a second look at other data is a look more",
    ),
    Declared(
        "no seed was added after the verdict",
        "runs sealed after the look that ended the study",
        ("inadmissible",),
        "seeds added after a verdict undo its error rate",
    ),
    Declared(
        "no seed was trained before the look it follows",
        "runs sealed before their look",
        ("deviation",),
        "levels are spent as if the look had come in time",
    ),
    Declared(
        OWN,
        "whatever the study's own check looks at",
        ("inadmissible", "deviation", "note"),
        "as registered; always no verdict when its code is not the registered code, or it was not run",
    ),
)
"""Every check there is, in the order in which a reader would ask."""


def declared(check: Check) -> Declared:
    """The declaration of a check."""
    for row in DECLARED:
        if check.name == row.name or (row.name == OWN and check.name.startswith(OWN)):
            return row
    # A verdict is not withheld because a table lacks a row; the tests find the row that is missing.
    return Declared(check.name, check.required, (check.severity,), "")


def consequence_of(check: Check) -> str:
    """What this failed check means for the verdict."""
    return MEANS[check.severity]


def rows() -> list[tuple[str, str, str, str]]:
    """The table in words: check, what it looks at, consequence, why."""
    return [
        (
            f"{row.name}NAME" if row.name == OWN else row.name,
            row.looks_at,
            " or ".join(MEANS[one] for one in row.consequence),
            row.why,
        )
        for row in DECLARED
    ]


def checks_page() -> str:
    """docs/checks.md: every check, and what an amendment of each field touches."""
    checks = _table(("check", "what it looks at", "when it fails", "why"), rows())
    fields = [(", ".join(f"`{field}`" for field in row.fields), row.said, row.why) for row in TOUCHES]
    return _PAGE.format(checks=checks, fields=_table(("field", "what is touched", "why"), fields))


def _table(heads: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [heads, ("---",) * len(heads), *lines])


_PAGE = """# Checks of the evidence

Generated by `python -m ablate.judge.audit.consequences docs/checks.md`; do not edit. Every check of the evidence, and
what its failure means. `ablate check --admissibility` prints this table; the report takes consequence and reason
from it.

{checks}

# Amendments

The ledger keeps the reason, the differences field by field, what was known by then, and the registration that is
replaced. After evidence (runs started, or outcomes read), what the change touched is exploratory in every later
table, and stays so. `ablate check --amendments` prints this table:

{fields}

Any other field touches everything and the verdict. Under Holm, an untouched hypothesis is touched too if its
outcome would differ with the touched p values of its role at 0 or at 1. The verdict is given if it is the same for
every outcome of what was touched (exactly, by the rule's diagrams). Otherwise there is none, and the report says on
what it would have rested. Runs lie under the hash of their registration, so those of an earlier one never enter.
"""


if __name__ == "__main__":
    write_whole(Path(sys.argv[1]), checks_page().encode())
