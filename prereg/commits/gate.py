"""Gate of commits: the rule that a study of `base` and `head` needs, and its name; `ablate gate`: `ablate/gating.py`.

Such a study has two arms, `base` and `head`, and a rule with four verdicts: `equivalent`, `better`, `worse` and
`inconclusive`. Each of the first three must rest on a claim that says so:

    equivalent   `head does_not_change METRIC` is supported: any difference is below its margin (two one-sided tests)
    better       `head lowers METRIC` is supported, where lower is better; or base is shown to be worse
    worse        `base lowers METRIC than head` is supported; or `head does_not_worsen METRIC` is refuted

To add a verdict: its word in `VERDICTS`, what it may rest on in `_grounds`, its exit code in `ablate.cli.gate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from prereg.errors import SpecError, field_error
from prereg.rule.condition import OUTCOMES, Outcome
from prereg.study.spec import Study
from prereg.text import listed

BASE, HEAD = "base", "head"
VERDICTS: Final = ("equivalent", "better", "worse", "inconclusive")
_FIX = {
    "equivalent": "same: {claim: head does_not_change val/loss, smallest: 0.02}, and supported(same)",
    "better": "better: {claim: head lowers val/loss, smallest: 0.02, role: secondary}, and supported(better)",
    "worse": "worse: {claim: base lowers val/loss than head, smallest: 0.02, role: guardrail}, and supported(worse)",
}
_SHORT = 7
"""Digits of a hash in the name of a study."""


def require_gate(study: Study) -> None:
    """Refuse a study that is no comparison of two commits, or whose verdicts do not say what its claims show.

    Raises `SpecError` at the field.
    """
    # 1. Two arms, base and head, and nothing that would make others of them.
    arms = tuple(study.arms)
    if sorted(arms) != [BASE, HEAD] or study.factors or study.tune is not None:
        raise field_error(
            ("variants",),
            f"the arms are {listed(arms)}" + (", tuned" if study.tune is not None else ""),
            "two arms, base and head, as variants",
            "variants: {base: {commit: main}, head: {commit: HEAD}}",
        )
    # An arm that names no commit is a configuration: two commits put in its place would change code and settings alike.
    for arm in (BASE, HEAD):
        if arm not in study.commits:
            raise field_error(
                ("variants", arm),
                f"the arm {arm} is no commit",
                "two arms that are commits, of the same settings or of settings that the change needs",
                "variants: {base: {commit: main}, head: {commit: HEAD}}",
            )
    if study.baseline != BASE:
        raise field_error(("baseline",), f"baseline is '{study.baseline}'", "the arm base", "baseline: base")
    # 2. Verdicts that an exit code follows from.
    for at, line in enumerate(study.decision):
        if line.verdict not in VERDICTS:
            raise field_error(
                ("decision", at, "verdict"),
                f"a verdict '{line.verdict}'",
                f"one of {listed(VERDICTS, last='or')}: an exit code follows from it",
            )
    # 3. Each verdict rests on a claim that says so: with all its grounds impossible, the rule must not reach it.
    for verdict, grounds in _grounds(study).items():
        without = {
            name: tuple(outcome for outcome in OUTCOMES if (name, outcome) not in grounds) for name in study.hypotheses
        }
        if verdict in study.rule.verdicts(without, {}):
            raise _groundless(study, verdict)


def _grounds(study: Study) -> dict[str, set[tuple[str, Outcome]]]:
    """Verdict -> the outcomes of claims of which it needs one."""
    grounds: dict[str, set[tuple[str, Outcome]]] = {verdict: set() for verdict in VERDICTS[:-1]}
    for name, claim in study.claims.items():
        # A claim about one arm, or against a constant, compares no commits.
        if set(claim.weights) != {BASE, HEAD}:
            continue
        if claim.kind.supported == "margins":
            grounds["equivalent"].add((name, "supported"))
            continue
        # Of each outcome, which way it moves the left side: the claimed way; of a refuted claim of no harm to worse.
        outcome: Outcome = "refuted" if claim.kind.is_absence else "supported"
        left_towards = claim.kind.direction(claim.better)
        is_improvement = left_towards == {"lower": -1, "higher": 1}.get(claim.better)
        if left_towards and claim.better != "neither":
            head_gains = is_improvement == (claim.weights[HEAD] > 0)
            grounds["better" if head_gains else "worse"].add((name, outcome))
    return grounds


def _groundless(study: Study, verdict: str) -> SpecError:
    at = next(at for at, line in enumerate(study.decision) if line.verdict == verdict)
    return field_error(
        ("decision", at, "verdict") if study.decision[at].when is None else ("decision", at, "when"),
        f"the rule can say '{verdict}' where no claim shows it",
        {
            "equivalent": "a supported claim that head does not change a metric (two one-sided tests)",
            "better": "a supported claim that head improves a metric, or a refuted one that base does not worsen it",
            "worse": "a supported claim that base is better than head, or a refuted one that head does not worsen it",
        }[verdict],
        _FIX[verdict],
    )


def commit_in_name(commit: str) -> str:
    """A commit as the name of a study holds it.

    >>> commit_in_name("0123456789abcdef0123456789abcdef01234567")
    '0123456'
    """
    return commit[:_SHORT]


def name_of(study: str, base: str, head: str, attempt: int = 1) -> str:
    """Return the name of the study that compares two arms, given by the hashes of what their runs start from.

    >>> name_of("harmless", "1a2b3c4d5e", "5d6e7f8a9b"), name_of("harmless", "1a2b3c4d5e", "5d6e7f8a9b", 2)
    ('harmless-1a2b3c4-5d6e7f8', 'harmless-1a2b3c4-5d6e7f8-2')
    """
    return f"{study}-{commit_in_name(base)}-{commit_in_name(head)}" + (f"-{attempt}" if attempt > 1 else "")


def attempt_of(name: str, base: str, head: str) -> tuple[str, int] | None:
    """Return the study and the attempt in the name of a comparison of two hashes; none of any other name.

    >>> name = name_of("width", "0" * 40, "1" * 40, attempt=2)
    >>> attempt_of(name, "0" * 40, "1" * 40), attempt_of("other", "0" * 40, "1" * 40)
    (('width', 2), None)
    """
    parts = re.fullmatch(rf"(.+)-{commit_in_name(base)}-{commit_in_name(head)}(?:-([0-9]+))?", name)
    return None if parts is None else (parts[1], int(parts[2] or 1))


def is_name_of(name: str) -> bool:
    """Return true of a name that `ablate gate` gives: that of its study, two short hashes, and perhaps an attempt.

    >>> is_name_of("harmless-1a2b3c4-5d6e7f8-2"), is_name_of("harmless")
    (True, False)
    """
    return re.fullmatch(r".+-[0-9a-f]{7}-[0-9a-f]{7}(-[0-9]+)?", name) is not None


def fresh_seeds(document: Mapping[str, Any]) -> int | None:
    """Return N of a gate's `seeds: fresh N`; none where it lists its seeds.

    >>> fresh_seeds({"seeds": "fresh 8"}), fresh_seeds({"seeds": [1, 2, 3]})
    (8, None)
    """
    seeds = document["seeds"]
    fresh = re.fullmatch(r"fresh ([1-9][0-9]{0,3})", seeds) if isinstance(seeds, str) else None
    return None if fresh is None else int(fresh[1])


def comparison(
    document: Mapping[str, Any], *, name: str, base: str, head: str, seeds: Iterable[int] | None = None, why: str = ""
) -> dict[str, Any]:
    """Return the plain data of a gate's study for two commits, given by their full hashes.

    `seeds` take the place of `seeds: fresh N`; without them the document's own stay. `why` is the reason of a further
    attempt, which becomes its question.
    """
    # 1. Name, title and question of a study of its own: each pair of contents is registered by itself.
    written = dict(document) | {
        "study": name,
        "title": f"{document['title']} ({commit_in_name(base)} to {commit_in_name(head)})",
    }
    if why:
        written["question"] = why
    # 2. The two commits in place of those that the file writes, by full hashes: a branch moves.
    common = {key: value for key, value in dict(document.get("base") or {}).items() if key != "commit"}
    if "base" in document:
        written["base"] = common
    written["variants"] = {
        arm: {**(overrides or {}), "commit": {BASE: base, HEAD: head}[arm]}
        for arm, overrides in document["variants"].items()
    }
    # 3. Its seeds, which no file can know beforehand.
    if seeds is not None:
        written["seeds"] = list(seeds)
    return written
