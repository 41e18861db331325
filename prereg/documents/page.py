"""The registration as a page that can be read without the tool: `studies/NAME.registration.md`, next to the lock.

It follows from the lock and from the ledger's entries of this registration, byte for byte, so that `ablate verify` can
tell a page that was edited. What a study or the ledger brings is shown unchanged, and is no markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from prereg.documents import analysis_plan, measures
from prereg.documents.claims import refutation, statements, support
from prereg.documents.configuration import arm_sentences, base_sentences, factor_sentences
from prereg.documents.designs import design_sentences, pairing
from prereg.documents.procedures import at_level, power_test
from prereg.documents.source import (
    Source,
    amendments,
    beliefs,
    cost,
    false_adoption,
    frozen_design,
    override,
    power_rows,
    registered_source,
    scenario_rows,
    status,
    versions,
)
from prereg.errors import RegistrationError, Where
from prereg.escape import markdown_sentence
from prereg.registry.disk import write_whole
from prereg.registry.paths import Root
from prereg.study.designs.per_task import said_once
from prereg.study.spec import Study
from prereg.text import counted, listed, moment


@dataclass(frozen=True)
class Bullets:
    """Lines of a list."""

    lines: Sequence[str]
    named: bool = False
    """Whether each begins with a name of the study format, in bold."""


@dataclass(frozen=True)
class Table:
    """A table of the page."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = str | Bullets | Table


def markdown(source: Source) -> str:
    """The page."""
    state = "stands in its file" if source.draft else "was registered"
    parts = [status(source), f"# {markdown_sentence(source.study.title)}", f"The study as it {state}."]
    for title, blocks in _blocks(source).items():
        parts += [f"## {title}", *map(_shown, blocks)]
    return "\n\n".join([*parts, "---", _footer(source)]) + "\n"


def sections(source: Source) -> dict[str, str]:
    """Title -> text of every section that has something to say."""
    text = _blocks(source)
    return {title: "\n\n".join(_shown(block) for block in text[title]) for title in text}


def _blocks(source: Source) -> dict[str, list[Block]]:
    study = source.study
    lines: dict[str, list[Block]] = {
        "Question": [study.question.strip()],
        "Arms": _arms(study),
        "Hypotheses": _hypotheses(study),
        "Data and training": _training(source),
        "Seeds and stopping": [
            analysis_plan.sample_size(study),
            pairing(study),
            f"{analysis_plan.starting(study)} {analysis_plan.stopping(study)}",
        ],
        "Tests and error rates": [
            analysis_plan.deciding_test(study),
            analysis_plan.secondary_tests(study),
            analysis_plan.families(study),
            analysis_plan.estimand(study),
        ],
        "Decision": [
            "The list is read from the top; the first line that holds is the verdict.",
            Table(
                ("Line", "If", "Verdict"),
                [(str(n), *row) for n, row in enumerate(analysis_plan.decision_rows(study), start=1)],
            ),
            analysis_plan.tie_breakers(study),
        ],
        "Divergence, stability, missing runs": [
            analysis_plan.exclusions(study),
            analysis_plan.stability(study),
            analysis_plan.missing(study),
        ],
        "What this design could find": _design(source),
        "Record": _record(source),
        "Amendments": _amendments(source),
    }
    return {title: kept for title, blocks in lines.items() if (kept := [block for block in blocks if block])}


def _arms(study: Study) -> list[Block]:
    arms = Bullets(arm_sentences(study))
    if study.components is not None:
        return [design_sentences(study), f"There are {len(study.arms)} arms:", arms]
    if not study.factors:
        return [f"Claims compare with the baseline unless they say otherwise. There are {len(study.arms)} arms:", arms]
    named = f"The {len(study.arms)} arms are all combinations, named by their levels in the order of the factors:"
    return [Bullets(factor_sentences(study)), named, arms]


def _hypotheses(study: Study) -> list[Block]:
    rows = []
    for label, name in said_once(study).items():
        first, second = support(study, name), refutation(study, name)
        refuted = (second.null, second.alternative, second.sided) if second else ("no data can refute it", "–", "–")
        rows.append((label, first.null, first.alternative, first.sided, *refuted))
    of_a_null = ("in favour of", "test")
    heads = ("Hypothesis", "Supported by rejecting", *of_a_null, "Refuted by rejecting", *of_a_null)
    return [
        Bullets(statements(study, mark="**"), named=True),
        "δ is the mean, over seeds, of the left side of a claim minus its right side.",
        Table(heads, rows),
        analysis_plan.two_questions(study),
        analysis_plan.when_both(study),
        Bullets(analysis_plan.plain_outcomes(study)),
    ]


def _tokenizers(source: Source) -> str:
    """The trained tokenizers, by hash: nothing else says which merges were registered."""
    data = source.registration.data if source.registration else None
    if data is None:
        return ""
    hashes = list(dict.fromkeys(data.tokenizers.values()))
    if len(hashes) == 1:
        return f"The definition of the tokenizer has the sha256 `{hashes[0]}`."
    each = [f"`{sha256}` ({listed([a for a, h in data.tokenizers.items() if h == sha256])})" for sha256 in hashes]
    return f"The definitions of the arms' tokenizers have the sha256 {listed(each)}."


def _training(source: Source) -> list[Block]:
    corpus = source.registration.corpus if source.registration else None
    pinned = " ".join(
        f"The corpus {pin.name} has {counted(pin.size_bytes, 'byte')} and the sha256 `{pin.sha256}`."
        for pin in (source.registration.pinned if source.registration else ())
    )
    return [
        base_sentences(source.study, corpus),
        pinned,
        _tokenizers(source),
        measures.measured(source.study),
        measures.recorded(source.study),
        measures.pinned_tasks(source.registration.tasks if source.registration else None),
    ]


def _design(source: Source) -> list[Block]:
    study, design = source.study, frozen_design(source.registration)
    if design is None:
        frozen = "No design that can be read here was frozen" if source.registration else "No design is frozen yet"
        return [f"{frozen}.", beliefs(study, None)]
    heads = ("Hypothesis", "Found with power 80%", "Power", "Seeds for power 80%")
    simulated = scenario_rows(design)
    return [
        f"{beliefs(study, design)} {cost(design)}".strip(),
        Table(heads, power_rows(study, design)),
        f"Power is that of {power_test(study)} {at_level(study.analysis.correct)}; for a claim of no harm or no change "
        "it is the power to show it at its margin if there is no difference.",
        false_adoption(design),
        Table(("If the truth is", "Chance of each verdict ± simulation error", "Simulated studies"), simulated)
        if simulated
        else "",
    ]


def _record(source: Source) -> list[Block]:
    registration = source.registration
    if registration is None:
        return ["Not registered: no lock, no entry in the ledger."]
    rows = [
        ("Registration (study and corpus)", f"`{registration.sha256}`"),
        ("Lock file", f"`{registration.lock_sha256}`"),
        ("Study file", f"`{registration.source_sha256}`"),
        (f"Ledger entry {source.entry.index}, of {moment(source.entry.at)}", f"`{source.entry.sha256}`"),
    ]
    return [
        Table(("What", "sha256"), rows),
        versions(source),
        override(source) if registration.override is not None else "",
        "A hash shows that nothing was changed since, and the ledger in which order things were done. Neither shows "
        "that nobody ran the experiment earlier, and what was known of the data before is not said here: only whoever "
        "registered can answer that.",
    ]


def _amendments(source: Source) -> list[Block]:
    if source.registration is None:
        return []
    blocks: list[Block] = []
    first = source.entries[0]
    for entry, known, differences in amendments(source):
        reason = " ".join(str(entry.body.get("reason") or "none recorded").split())
        blocks.append(
            f"Entry {entry.index}, of {moment(entry.at)}: the registration `{str(entry.body.get('previous'))[:12]}` "
            f"became `{entry.registration[:12]}`. By then {known}. Reason given: {' '.join(reason.split())}"
        )
        blocks.append(Table(("Place in the study file", "Registered before", "Since then"), differences))
    if not blocks:
        return ["None."]
    begun = f"First registered as entry {first.index}, of {moment(first.at)}, `{first.registration[:12]}`."
    return [begun, *blocks]


def _footer(source: Source) -> str:
    if source.registration is None:
        return "Written from the study file."
    name = source.study.study
    return (
        f"Written from {name}.lock.json and ledger.jsonl; `ablate verify` checks that it says what they say. Edit the "
        "study file, not this page. What the lock leaves to the software is told as its present version does it."
    )


def _shown(block: Block) -> str:
    """A block as Markdown: what may hold a study's own words is one sentence and no markup."""
    if isinstance(block, str):
        return "\n".join(map(markdown_sentence, block.split("\n")))
    if isinstance(block, Bullets):
        return "\n".join(f"- {_bullet(line) if block.named else markdown_sentence(line)}" for line in block.lines)
    heads, *rows = ["| " + " | ".join(map(_cell, row)) + " |" for row in (block.heads, *block.rows)]
    return "\n".join([heads, "| " + " | ".join(["---"] * len(block.heads)) + " |", *rows])


def _bullet(line: str) -> str:
    name, space, rest = line.partition(" ")
    return f"{name}{space}{markdown_sentence(rest)}"


def _cell(text: str) -> str:
    return markdown_sentence(text).replace("|", "\\|")


Standing = Literal["missing", "as the lock says", "other", "of another version"]


def keep_page(root: Root, name: str) -> Path | None:
    """Write the page of a registered study unless it is written already; none where nothing is registered."""
    page = _page(root, name)
    if page is None:
        return None
    path = root.page(name)
    if not path.is_file() or path.read_bytes() != page:
        try:
            write_whole(path, page)
        except OSError as error:
            raise RegistrationError(
                f"'{name}' is registered, and its page cannot be written: {error.strerror}",
                required=f"a folder with room that can be written to: {path.parent}",
                fix=f"ablate register {root.study(name)}   (registers nothing twice, and writes the page)",
                where=Where(file=path),
            ) from None
    return path


def compare_page(root: Root, name: str) -> Standing:
    """How the page of a registered study relates to its lock.

    What another version wrote, as the lock says, is not compared: it may be in other words, or have been edited.
    """
    path, source = root.page(name), registered_source(root, name)
    assert source is not None and source.registration is not None, name
    if not path.is_file():
        return "missing"
    if path.read_bytes() == markdown(source).encode():
        return "as the lock says"
    return "other" if source.registration.tool.get("ablate") == version("ablate-prereg") else "of another version"


def _page(root: Root, name: str) -> bytes | None:
    source = registered_source(root, name)
    return None if source is None else markdown(source).encode()
