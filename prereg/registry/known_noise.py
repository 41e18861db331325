"""Known noise (`assume: {sd: known from STUDY}`): which sealed runs of another study have the setup of this one's arms.

A setup is what a seal's recipe is made of, apart from the seed: the configuration of the arm, its command, the bytes of
its code and data, the tokenizer. So a run of the other study is one of an arm here exactly where that arm would have
had the recipe under the run's seed, whatever the arms are called. Versions of libraries, the hardware, and the built-in
trainer's own version are in no recipe: that the spread is the same there is what the registered F test looks at.

Which runs count is no choice: all that the study has sealed of these setups. Their values are read, and their spread is
computed, by `ablate.judge.known_noise`; `noise_faults` finds whatever else was registered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from prereg.errors import RegistrationError, Where
from prereg.registry.ledger_entry import AmendedEntry, Entry, SealedEntry
from prereg.registry.plan import plan, recipe_sha256, recipes_of
from prereg.registry.registration import KnownNoise, Pins, Registration
from prereg.study.load import Loaded

Cell = tuple[str, int]
LEVEL = 0.1
"""At which a larger spread is found, over all hypotheses together: a false alarm costs a remark, and no verdict."""


def seals_of(entries: Iterable[Entry], study: str, registration: str) -> tuple[SealedEntry, ...]:
    """The seals of finished runs of a registration, made there and not imported: of each run the newest."""
    newest = {
        entry.cell: entry
        for entry in entries
        if isinstance(entry, SealedEntry) and (entry.study, entry.registration) == (study, registration)
    }
    return tuple(seal for seal in newest.values() if seal.status == "done")


def cells_of_same_setup(registration: Registration, seals: Iterable[SealedEntry]) -> dict[str, Cell]:
    """sha256 of a seal -> the arm here of whose setup its run is, and its seed; other runs are not among them."""
    spec_by_arm = {spec.variant: spec for spec in plan(registration)}
    cells: dict[str, Cell] = {}
    for seal in seals:
        for arm, spec in spec_by_arm.items():
            if recipe_sha256(spec.model_copy(update={"seed": seal.seed})) == seal.recipe_sha256:
                cells[seal.sha256] = (arm, seal.seed)
                break
    return cells


def require_known_noise(loaded: Loaded, pins: Pins) -> None:
    """Raise `RegistrationError` where the study names a spread that nobody has computed: values of runs are read by
    ablate alone, and a tool that registers without it cannot keep that promise."""
    source = loaded.study.assume.known_from
    if source is not None and pins.noise is None:
        raise RegistrationError(
            f"assume.sd is '{loaded.study.assume.sd}', and the spread of those runs was not computed",
            required="a registration by ablate, which reads the sealed runs of that study",
            fix=f"ablate register {loaded.path}; or assume.metrics, with the SD that is believed",
            where=Where(file=loaded.path, line=loaded.line(("assume", "sd"))),
        )


def noise_faults(registration: Registration, own: Iterable[Entry], before: Sequence[Entry]) -> Iterator[str]:
    """What is wrong with the runs of a spread that a registration calls known, a clause each.

    Parameters
    ----------
    own : iterable of Entry
        The ledger's entries of this study.
    before : sequence of Entry
        Entries of other studies from before this registration, in the order of the ledger.
    """
    noise, source = registration.noise, registration.study.assume.known_from
    if noise is None or noise.study != source or source == registration.study.study:
        yield f"the lock has the spread of {_quoted(noise)}, and assume.sd names '{source or 'nothing'}'"
        return
    # 1. Each run that it names was sealed before, with the setup of this study, and is none of this study's own.
    seals = {seal.sha256: seal for seal in seals_of(before, noise.study, noise.registration)}
    cells, mine = cells_of_same_setup(registration, seals.values()), set(recipes_of(registration).values())
    times = Counter(run.seal for run in noise.runs)
    for run in noise.runs:
        name = f"{run.variant} seed {run.seed} of '{noise.study}'"
        if run.seal not in seals:
            yield f"{name} was not sealed before this registration"
        elif cells.get(run.seal) != (run.variant, run.seed):
            yield f"{name} has another setup"
        elif seals[run.seal].recipe_sha256 in mine:
            yield f"{name} is a run of this study too"
    # 2. All such runs, each once: a choice among them would choose the spread.
    yield from (f"{n} times the same run of '{noise.study}'" for n in times.values() if n > 1)
    for seal, (arm, seed) in cells.items():
        if seal not in times:
            yield f"{arm} seed {seed} of '{noise.study}' is left out"
    if {spread.hypothesis for spread in noise.spreads} != set(registration.study.hypotheses):
        yield "its hypotheses are not those of the study"
    # 3. Named before the study's own runs could say which prior suits them.
    for entry in own:
        if isinstance(entry, AmendedEntry) and entry.after_evidence:
            named = any(change.field.startswith("assume.sd") for change in entry.differences)
            if named:
                yield f"it was named by an amendment after runs of this study had started (entry {entry.index})"


def _quoted(noise: KnownNoise | None) -> str:
    return "no study" if noise is None else f"'{noise.study}'"
