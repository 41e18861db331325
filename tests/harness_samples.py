"""A made-up task pack in the words of the tiny corpus, and a study that is judged over its items."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conftest import House, tiny_document

from ablate.data.tokenizers import CharTokenizer
from ablate.gpt.model import GPT, initialise
from prereg.study.training import Model

TASKS = "tasks/made-up"
N_TASKS = 3
N_ITEMS = 14
LETTERS = "\n .acefhilmnoprst"

# In the letters of the tiny corpus, which knows neither "dog" nor "barn".
NOUNS = ("cat", "mat", "rain", "plain", "hat", "pen", "sea")
VERBS = {
    "order": ("sat on the", "on the sat"),
    "article": ("ran to the", "ran the to"),
    "end": ("fell on a", "fell a on"),
}
STRANGE = {"sentence_good": "the dog barked.", "sentence_bad": "the barked dog."}


def pairs(task: str) -> list[dict[str, str]]:
    """Minimal pairs of words in order and out of order."""
    good, bad = VERBS[task]
    found = [(f"the {a} {good} {b}.", f"the {a} {bad} {b}.") for a in NOUNS for b in NOUNS if a != b]
    return [{"sentence_good": right, "sentence_bad": wrong} for right, wrong in found]


def write_pack(
    root: Path,
    folder: str = TASKS,
    *,
    n: int = N_ITEMS,
    prompts: Mapping[str, object] | None = None,
    strange: bool = False,
) -> Path:
    """Three tasks of minimal pairs as JSON lines; with `strange`, an item of the first has letters nobody knows."""
    path = root / folder
    path.mkdir(parents=True, exist_ok=True)
    for task in VERBS:
        found = pairs(task)[:n]
        if strange and task == "article":
            found[2] = STRANGE
        lines = "".join(json.dumps(pair) + "\n" for pair in found)
        (path / f"{task}.jsonl").write_text(lines, encoding="utf-8")
    if prompts is not None:
        (path / "prompts.json").write_text(json.dumps(prompts), encoding="utf-8")
    return path


def tokenizer() -> CharTokenizer:
    """One that can write the made-up pack."""
    return CharTokenizer.of(LETTERS)


def tiny_model(context: int = 32, seed: int = 1, **changes: Any) -> GPT:
    """A model at its first weights."""
    config = Model(**({"layers": 1, "width": 16, "heads": 2, "context": context} | changes))
    model = GPT(config, tokenizer().size)
    initialise(model, seed)
    return model


def items_document(**changes: Any) -> dict[str, Any]:
    """The tiny study, judged over seeds and items of the made-up pack."""
    base = tiny_document()["base"] | {"model": {"layers": 1, "width": 16, "heads": 2, "context": 32}}
    document = tiny_document(
        base=base | {"budget": {"steps": 8, "batch": 4}},
        seeds=[1, 2],
        measure={"every": 8, "suites": ["loss"], "harness": {"tasks": TASKS, "items_per_task": 6, "shots": [0, 2]}},
        hypotheses={"gain": {"claim": "layernorm raises harness/accuracy", "smallest": 0.02}},
        analysis={"test": "items", "estimand": "new_seeds_and_items"},
    )
    return document | changes


def items_house(house: House, **changes: Any) -> Path:
    """A house with the pack and the study."""
    write_pack(house.path)
    return house.write(items_document(**changes))
