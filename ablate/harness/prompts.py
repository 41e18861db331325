"""Prompts: fixed texts with two places, `{query}` and `{options}`. One item may be asked under several.

A choice follows the filled-in prompt, and its log-likelihood there is its score. How much an answer depends on the
wording is told by several wordings of the same task (Sanh et al. 2022 give each task of T0 a handful, and report the
median and the spread over them).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ablate.harness.documents import Item
from prereg.errors import CorpusError, Where

PLAIN: Mapping[str, str] = {"plain": "{query}"}
"""The item as it stands."""

THREE: Mapping[str, str] = {
    "bare": "",
    "quoted": "Here is a sentence of good English: ",
    "chosen": "Which of these is good English?\n{options}\nAnswer: ",
}
"""Over minimal pairs: the sentence alone, the sentence announced, the sentence chosen from the two."""

BETWEEN = "\n"
"""What stands between an example and what follows it."""
_LONGEST = 4000


def filled(prompt: str, item: Item) -> str:
    """The text before the choice. Only the two places are filled; no other brace means anything."""
    # In one pass over the prompt: a query that holds "{options}" must not be filled in turn.
    head, *rest = prompt.split("{query}")
    options = "\n".join(item.choices)
    return item.query.join(part.replace("{options}", options) for part in (head, *rest))


def read_prompts(path: Path) -> Mapping[str, str]:
    """A folder's own prompts, or the plain one."""
    if not path.is_file():
        return dict(PLAIN)
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict) or not found:
            raise ValueError("no object of names and texts")
        for name, text in found.items():
            if (
                not isinstance(text, str)
                or len(text) > _LONGEST
                or not name.replace("_", "").replace("-", "").isalnum()
            ):
                raise ValueError(f"'{name}' is no prompt")
    except (OSError, ValueError) as error:
        raise CorpusError(
            f"{path} holds no prompts ({error})",
            required='{"NAME": "text with {query} and {options}"}, names of letters, digits, - and _',
            where=Where(field=("measure", "harness", "tasks")),
        ) from error
    return found
