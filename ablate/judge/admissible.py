"""Is the evidence what was promised? Asked before any inference, and answered with every check, passed ones too.

A failed check of severity `inadmissible` means that no verdict is given; a `deviation` is listed beside the verdict;
a `note` is a remark. Nothing here looks at a metric's value. Whether runs of one seed form pairs is asked in
`ablate.judge.matching`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable

from pydantic import ValidationError

from ablate.judge.asked import check_asked
from ablate.judge.item_scores import check_items
from ablate.judge.limits import check_limits
from ablate.judge.matching import check_matching, listed
from ablate.judge.readings import read_values, reading_of
from ablate.judge.stability import CURVE
from ablate.judge.verdict import Check, Severity
from ablate.records.evidence import Evidence
from ablate.records.run_record import RunRecord
from prereg.amendments import amendments_of, chain_faults, touched
from prereg.canon import sha256_of
from prereg.command import code_sha256
from prereg.divergence import unasked_arms
from prereg.ledger import SEALS, Entry
from prereg.registration import Registration
from prereg.spec import Study
from prereg.training import Training

Cell = tuple[str, int]
_GRAVEST: Severity = "inadmissible"


def audit(registration: Registration, evidence: Evidence) -> tuple[Check, ...]:
    """Every check of the evidence, in the order in which a reader would ask."""
    study = registration.study
    ended = [run for run in evidence.runs if run.status in ("done", "diverged")]
    return (
        _registered_first(registration, evidence.ledger),
        _none(
            "the ledger and the registration are intact",
            [*evidence.ledger_faults, *chain_faults(evidence.ledger)],
            "an unbroken chain and an unchanged registration",
        ),
        *_amendments(study, evidence.ledger),
        *_overridden(registration),
        _none(
            "no look before the last run ended",
            _early(registration, evidence),
            "no look at outcomes while runs are missing",
        ),
        _present(evidence),
        _none(
            "no run failed",
            [_said(run) + (f" ({run.error})" if run.error else "") for run in evidence.runs if run.status == "failed"],
            "every planned run done, or diverged",
        ),
        _none("every seal matches", evidence.broken, "files whose sha256 is the one in their run.json"),
        _bound_to_ledger(registration, evidence, ended),
        _none(
            "no run outside the plan",
            [
                *evidence.extra,
                *(_said(run) for run in evidence.runs if (run.variant, run.seed) not in set(evidence.planned)),
            ],
            "no seed added, no run that no plan names",
        ),
        _none(
            "every run was made under this registration",
            [
                *(
                    _said(run)
                    for run in evidence.runs
                    if (run.registration, run.study) != (registration.sha256, study.study)
                ),
                *_unbound(registration, evidence),
            ],
            registration.sha256,
        ),
        *_made_elsewhere(registration, evidence),
        _none(
            "every configuration is the registered one",
            [
                _said(run)
                for run in evidence.runs
                if run.variant in study.arms and _resolved_sha256(study, run) != _config_sha256(study, run.variant)
            ],
            "the configuration that the registration resolves for the variant",
        ),
        *(_gpt_checks(registration, ended) if study.trainer == "gpt" else _command_checks(registration, ended)),
        *_provenance(ended, stated=study.trainer == "gpt"),
        *_starts(registration, evidence),
        _trained_again(registration, evidence.ledger),
        *_taken_in(registration, evidence.ledger),
        *_measured(study, evidence),
        *check_asked(registration, ended),
        *check_items(study, evidence),
        *_left_out(study, ended),
    )


def admissible(checks: Iterable[Check]) -> bool:
    """Whether a verdict may be given."""
    return all(check.passed or check.severity != "inadmissible" for check in checks)


def _imports(registration: Registration, evidence: Evidence) -> dict[Cell, Entry]:
    """The runs whose last seal says that they were brought from elsewhere."""
    last = {
        _cell(entry): entry
        for entry in evidence.ledger
        if entry.event in SEALS and entry.registration == registration.sha256
    }
    return {cell: entry for cell, entry in last.items() if entry.event == "imported"}


def _unbound(registration: Registration, evidence: Evidence) -> list[str]:
    loose = [cell for cell, entry in _imports(registration, evidence).items() if entry.body.get("bound") is not True]
    said = [f"{variant} seed {seed}" for variant, seed in loose]
    return [f"{len(said)} imported without a binding, and exploratory only{listed(said)}"] if said else []


def _made_elsewhere(registration: Registration, evidence: Evidence) -> tuple[Check, ...]:
    """Bound imports count, and are told: that they were made after the promise rests on more than this ledger."""
    bound = {cell: e for cell, e in _imports(registration, evidence).items() if e.body.get("bound") is True}
    if not bound:
        return ()
    notes = list(dict.fromkeys(str(entry.body.get("note")) for entry in bound.values()))
    cells = [f"{variant} seed {seed}" for variant, seed in bound]
    return (
        Check(
            name="every run was made here",
            passed=False,
            severity="deviation",
            found=f"{len(bound)} of {len(evidence.runs)} runs were made elsewhere and imported{listed(cells)}. Note"
            + listed(notes)
            + ". They name this registration; that they were made after it is their maker's word",
            required="runs whose start this ledger recorded",
        ),
    )


def _registered_first(registration: Registration, ledger: tuple[Entry, ...]) -> Check:
    mine = [entry for entry in ledger if entry.registration == registration.sha256]
    promised = [entry.index for entry in mine if entry.event in ("registered", "amended")]
    ran = [entry.index for entry in mine if entry.event in ("started", "sealed", "failed", "finished", "imported")]
    passed = bool(promised) and (not ran or min(promised) < min(ran))
    found = (
        "the registration is not in the ledger"
        if not promised
        else f"registered as entry {min(promised)}, " + (f"first run as entry {min(ran)}" if ran else "no run yet")
    )
    return Check(
        name="registered before any run",
        passed=passed,
        severity="inadmissible",
        found=found,
        required="the registration's entry before the first run's",
    )


def _overridden(registration: Registration) -> tuple[Check, ...]:
    """A study that was registered although some verdict can never happen says so before anything else it says."""
    override = registration.override
    if override is None:
        return ()
    return (
        Check(
            name="the design could reach every verdict",
            passed=False,
            severity="deviation",
            found=f"underpowered, and accepted before any run: {override.obstacle}. Reason given: {override.reason}",
            required="data that could lead to every verdict",
        ),
    )


def _amendments(study: Study, ledger: tuple[Entry, ...]) -> tuple[Check, ...]:
    """An amendment after evidence may have been chosen by it: what it touched is exploratory, see `judge.touched`.

    Here only a change of what the verdict is made of forbids it; that such amendments happened is a deviation.
    """
    made = amendments_of(ledger)
    checks = []
    for state, name, required, severity in (
        ("outcomes read", "no amendment after outcomes were read", "amendments before any outcome is read", _GRAVEST),
        ("runs started", "no amendment after runs started", "amendments before any run", "deviation"),
    ):
        late = [one for one in made if one.evidence == state]
        spoilt = touched(study, late).verdict
        said = [f"entry {one.index} ({one.reason})" for one in late]
        check = _none(name, said, required, severity)
        if late:
            # Of the check that held, the weight is what it always was: verdicts keep their bytes.
            check = check.model_copy(update={"severity": _GRAVEST if spoilt else "deviation"})
        if spoilt:
            check = check.model_copy(update={"found": f"{check.found}; changed: {'; '.join(spoilt)}"})
        checks.append(check)
    return tuple(checks)


def _early(registration: Registration, evidence: Evidence) -> list[str]:
    """Peeks before the last planned run was sealed, under whatever registration; of a sequential study, all peeks."""
    waiting, found = set(evidence.planned), []
    for entry in evidence.ledger:
        if entry.event == "sealed" and entry.registration == registration.sha256:
            waiting.discard(_cell(entry))
        elif entry.event == "peeked" and (waiting or registration.study.stopping != "fixed"):
            found.append(f"entry {entry.index}, at {entry.at}")
    return found


def _present(evidence: Evidence) -> Check:
    lacking = [f"{variant} seed {seed}" for variant, seed in evidence.missing]
    total = len(evidence.planned)
    return Check(
        name="every planned run is present",
        passed=not lacking,
        severity="inadmissible",
        found=f"{total - len(lacking)} of {total} planned runs ended" + listed(lacking),
        required="every planned run done, or diverged",
    )


def _bound_to_ledger(registration: Registration, evidence: Evidence, ended: list[RunRecord]) -> Check:
    """The last `sealed` entry of every run names the very hashes that lie on disk.

    The hash of run.json itself needs the file: whoever gathered the evidence compared it and named it `broken`.
    """
    last = {
        _cell(entry): entry
        for entry in evidence.ledger
        if entry.event in SEALS and entry.registration == registration.sha256
    }
    wrong = []
    for run in ended:
        entry = last.get((run.variant, run.seed))
        if entry is None:
            wrong.append(f"{_said(run)} is not in the ledger")
        elif [entry.body.get(key) for key in ("status", "metrics_sha256", "outcome_sha256", "items_sha256")] != [
            run.status,
            run.metrics_sha256,
            run.outcome_sha256,
            run.items_sha256,
        ] or not entry.body.get("run_sha256"):
            wrong.append(f"{_said(run)} is not what the ledger sealed")
    return _none(
        "every sealed run is in the ledger",
        wrong,
        "a sealed entry with the same hashes for every ended run",
        found=f"{len(ended) - len(wrong)} of {len(ended)} runs match",
    )


def _gpt_checks(registration: Registration, ended: list[RunRecord]) -> tuple[Check, ...]:
    study = registration.study
    wrong = []
    for run in (run for run in ended if run.status == "done" and run.variant in study.arms):
        config = study.training(run.variant)
        if (run.tokens, run.steps) != (config.tokens, config.budget.steps):
            wrong.append(
                f"{_said(run)}: {run.tokens} tokens in {run.steps} steps, "
                f"planned {config.tokens} in {config.budget.steps}"
            )
    return (
        _none("every run consumed its tokens", wrong, "the planned tokens and steps in every finished run"),
        *check_limits(study, ended),
        *check_matching(registration, ended),
    )


def _command_checks(registration: Registration, ended: list[RunRecord]) -> tuple[Check, ...]:
    scripts = registration.scripts or ()
    wanted = code_sha256(scripts)
    return (
        Check(
            name="the trainer's code is registered",
            passed=bool(scripts),
            severity="deviation",
            found=f"{len(scripts)} files" + listed([f"{pin.path} ({pin.sha256[:12]})" for pin in scripts])
            if scripts
            else "no word of the command names a file under the root, and there is no code:",
            required="the files of the code, so that every run is known to have used the same",
        ),
        _none(
            "every run used the registered code",
            [_said(run) for run in ended if run.provenance.code != wanted],
            f"the registered files, together {wanted[:12]}",
        ),
        Check(
            name="pairs are matched",
            passed=False,
            severity="note",
            found="a user's own trainer states no hashes of weights, batches or dropout",
            required="that one seed fixes the same randomness for every variant is the trainer's promise",
        ),
        Check(
            name="device and library versions are known",
            passed=False,
            severity="note",
            found="a user's own trainer does not state them; what its files import is pinned only if code: names it",
            required="one device and one set of libraries for all runs is the trainer's promise",
        ),
    )


def _provenance(ended: list[RunRecord], *, stated: bool) -> tuple[Check, ...]:
    asked: tuple[tuple[str, Severity, Callable[[RunRecord], str]], ...] = (
        ("every run used the same code", "inadmissible", lambda run: run.provenance.code),
        ("every run used the same device class", "inadmissible", lambda run: run.provenance.device),
        (
            "every run used the same library versions",
            "deviation",
            lambda run: ", ".join(
                (f"python {run.provenance.python}", f"torch {run.provenance.torch}", f"numpy {run.provenance.numpy}")
            ),
        ),
        ("every run took the same path through attention", "deviation", lambda run: run.provenance.paths),
        (
            "every run used the same processor and platform",
            "note",
            lambda run: f"{run.provenance.platform}, {run.provenance.processor}",
        ),
    )
    checks = []
    for name, severity, ask in asked:
        if not stated and ("device" in name or "library" in name):
            continue
        kinds: dict[str, int] = defaultdict(int)
        for run in ended:
            kinds[ask(run)] += 1
        if name == "every run took the same path through attention" and len(kinds) <= 1:
            continue
        counted = [f"{kind if len(kind) < 64 else kind[:12]} ({count} runs)" for kind, count in sorted(kinds.items())]
        checks.append(
            Check(
                name=name,
                passed=len(kinds) <= 1,
                severity=severity,
                found=f"{len(kinds)} over {len(ended)} runs" + listed(counted),
                required="one",
            )
        )
        if name == "every run used the same code":
            checks += _commits(ended)
    if not stated:
        return tuple(checks)
    dirty = [_said(run) for run in ended if run.provenance.dirty]
    return (*checks, _none("the tool's source tree was clean", dirty, "no uncommitted change", "note"))


def _commits(ended: list[RunRecord]) -> list[Check]:
    """A remark where the source tree moved on between runs; the hash of what can move a number is asked on its own."""
    commits = sorted({run.provenance.commit or "no commit" for run in ended})
    if len(commits) < 2:
        return []
    return [_none("every run was made at the same commit", [commit[:12] for commit in commits], "one", "note")]


def _starts(registration: Registration, evidence: Evidence) -> tuple[Check, ...]:
    """Runs that took more than one attempt. Resumption is exact where numerics are, and a deviation where not."""
    study = registration.study
    failures: dict[Cell, int] = defaultdict(int)
    for entry in evidence.ledger:
        if entry.event == "failed" and entry.registration == registration.sha256:
            failures[_cell(entry)] += 1
    found = []
    exact = study.trainer == "gpt"
    for run in evidence.runs:
        failed = failures.get((run.variant, run.seed), 0)
        if run.attempts > 1 or run.resumed_from or failed:
            resumed = f", resumed from step {', '.join(map(str, run.resumed_from))}" if run.resumed_from else ""
            mishaps = f" ({'; '.join(run.mishaps)})" if run.mishaps else ""
            attempts = f"{run.attempts} attempts{resumed}" + (f", {failed} failed" if failed else "")
            found.append(f"{_said(run)}: {attempts}{mishaps}")
            exact = exact and run.variant in study.arms and _deterministic(study, run.variant)
    return (_none("every run was made in one go", found, "one attempt a run", "note" if exact else "deviation"),)


def _taken_in(registration: Registration, ledger: tuple[Entry, ...]) -> tuple[Check, ...]:
    """Runs whose seal no process of ours reported: what a crash leaves, and what a copied folder looks like."""
    found = [
        f"{entry.body.get('variant')} seed {entry.body.get('seed')}"
        for entry in ledger
        if entry.event == "sealed" and entry.registration == registration.sha256 and entry.body.get("recovered")
    ]
    name, required = "every seal was reported by the run that made it", "a seal in the ledger the moment a run ends"
    return (_none(name, found, required, "deviation"),) if found else ()


def _trained_again(registration: Registration, ledger: tuple[Entry, ...]) -> Check:
    """A sealed run that was trained again: the same outcome proves the run, another one might have been chosen."""
    outcomes: dict[Cell, list[object]] = defaultdict(list)
    for entry in ledger:
        if entry.event in SEALS and entry.registration == registration.sha256:
            outcomes[_cell(entry)].append(entry.body.get("outcome_sha256"))
    again = {cell: found for cell, found in outcomes.items() if len(found) > 1}
    other = [f"{variant} seed {seed}" for (variant, seed), found in again.items() if len(set(map(str, found))) > 1]
    same = [f"{variant} seed {seed}" for (variant, seed), found in again.items() if len(set(map(str, found))) == 1]
    found = f"{len(other)} with another outcome" + listed(other) if other else "none"
    if same:
        found += f"; reproduced to the last bit: {'; '.join(same)}"
    return Check(
        name="no sealed run was trained again",
        passed=not again,
        severity="deviation" if other else "note",
        found=found,
        required="each run sealed once",
    )


def _left_out(study: Study, ended: list[RunRecord]) -> tuple[Check, ...]:
    """Pairs that divergence took away. They are the worst seeds of their arm, so the rest alone may not decide.

    Leaving them out is honest only where the stability rule takes over: where the decision asks `stable` of the arm.
    """
    diverged = [run for run in ended if run.status == "diverged"]
    if study.on_divergence != "exclude_pair" or not diverged:
        return ()
    arms = unasked_arms(study)
    unasked = [_said(run) for run in diverged if run.variant in arms]
    return (
        _none("no pair was left out for divergence", [_said(run) for run in diverged], "every seed in", "deviation"),
        _none(
            "the decision asks whether a diverged arm is stable",
            unasked,
            "stable(ARM) in the decision, or on_divergence: rank, for every arm that may diverge",
        ),
    )


def _measured(study: Study, evidence: Evidence) -> tuple[Check, ...]:
    """Finished runs without a claimed metric would leave their pairs out in silence."""
    done = [run for run in evidence.runs if run.status == "done"]
    lacking = []
    for reading, name in {reading_of(study, name): name for name in study.hypotheses}.items():
        found = read_values(study, name, evidence)
        lacking += [f"{reading} of {_said(run)}" for run in done if (run.variant, run.seed) not in found]
    checks = [_none("every finished run has every claimed metric", lacking, "a value where the claim reads it")]
    if any("stable(" in (line.when or "").replace(" ", "") for line in study.decision):
        rows = evidence.curve(CURVE)
        steps = {cell: set(group) for cell, group in rows.groupby(["variant", "seed"])["step"]}
        holed = [
            _said(run)
            for run in done
            if steps.get((run.variant, run.seed), set()) - {0} != set(range(1, run.steps + 1))
        ]
        name = f"every finished run has its {CURVE} at every step"
        checks.append(_none(name, holed, "the curve that the stability rule reads, without a hole"))
    return tuple(checks)


def _none(
    name: str, faults: Iterable[str], required: str, severity: Severity = "inadmissible", *, found: str = ""
) -> Check:
    """A check that passes when there is nothing to list."""
    items = list(faults)
    said = f"{found}{listed(items)}" if found else (f"{len(items)}{listed(items)}" if items else "none against it")
    return Check(name=name, passed=not items, severity=severity, found=said, required=required)


def _config_sha256(study: Study, variant: str) -> str:
    config = study.arms[variant].config
    return sha256_of(config.model_dump(mode="json") if isinstance(config, Training) else config)


def _resolved_sha256(study: Study, run: RunRecord) -> str:
    """Of a run's configuration with every field that this version knows; an earlier one wrote fewer."""
    if study.trainer != "gpt":
        return sha256_of(run.config)
    try:
        return sha256_of(Training.model_validate_json(json.dumps(run.config)).model_dump(mode="json"))
    except ValidationError:
        return sha256_of(run.config)


def _deterministic(study: Study, variant: str) -> bool:
    config = study.arms[variant].config
    return isinstance(config, Training) and config.numerics.deterministic


def _cell(entry: Entry) -> Cell:
    return str(entry.body.get("variant")), int(str(entry.body.get("seed")))


def _said(run: RunRecord) -> str:
    return f"{run.variant} seed {run.seed}"
