"""What somebody wants to run, in words: `1.3B x 50B tokens x 5 seeds on 64 H100`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from prereg.errors import StudyError
from prereg.study.training import Training

REQUIRED = "parts joined by ' x ': a size, N tokens, N seeds; then 'on N DEVICE'. What is left out is the study's own"
EXAMPLE = '--scale "1.3B x 50B tokens x 5 seeds on 64 H100"'
CONTEXT = 2048
VOCABULARY = 50257


@dataclass(frozen=True)
class Shape:
    """The shape of a model and its batch in sequences."""

    layers: int
    width: int
    heads: int
    batch: int


SHAPES: dict[str, Shape] = {
    "125M": Shape(12, 768, 12, 256),
    "350M": Shape(24, 1024, 16, 256),
    "760M": Shape(24, 1536, 16, 256),
    "1.3B": Shape(24, 2048, 16, 512),
    "2.7B": Shape(32, 2560, 32, 512),
    "6.7B": Shape(32, 4096, 32, 1024),
    "13B": Shape(40, 5120, 40, 1024),
}
"""Brown et al. 2020, table 2.1, with context 2,048 and GPT-2's vocabulary. Two rows there do not multiply out: 1.3B has
16 heads here, and 13B a width of 5,120, so that heads x their size is the width."""
REPLACED = ("model.layers", "model.width", "model.heads", "model.head_size", "model.feed_width", "model.context")
"""Fields that a shape sets; an arm that sets one of them is not of that shape."""


@dataclass(frozen=True)
class ScaleTarget:
    """As requested; what was left out is none."""

    devices: int
    device: str
    size: str | None = None
    tokens: int | None = None
    seeds: int | None = None

    @classmethod
    def of(cls, text: str) -> ScaleTarget:
        """Read the words."""
        found = re.fullmatch(r"\s*(?:(?P<what>.+?)\s+)?on\s+(?P<devices>[\d,]+)\s+(?P<device>\S.*?)\s*", text)
        if found is None:
            raise _refused(text, "it does not end in 'on N DEVICE'")
        size: str | None = None
        tokens: int | None = None
        seeds: int | None = None
        for part in re.split(r"\s+[x\u00d7]\s+", found["what"] or ""):
            if not part.strip():
                continue
            given = re.fullmatch(r"(?P<number>[\d.,]+)\s*(?P<unit>[KMBT]?)(?:\s+(?P<word>[a-z]+))?", part.strip())
            word = given["word"] if given is not None else ""
            if given is not None and word in (None, "parameters") and size is None:
                size = _size(text, given["number"] + given["unit"])
            elif given is not None and word == "tokens" and tokens is None:
                tokens = _count(text, given["number"], given["unit"])
            elif given is not None and word in ("seed", "seeds") and seeds is None:
                seeds = _count(text, given["number"], given["unit"])
            else:
                raise _refused(text, f"'{part.strip()}' is not understood, or said twice")
        return cls(_count(text, found["devices"], ""), found["device"], size, tokens, seeds)


def shaped(config: Training, size: str) -> Training:
    """A configuration with the shape of a size; everything else is the study's."""
    shape = SHAPES[size]
    model = {
        "layers": shape.layers,
        "width": shape.width,
        "heads": shape.heads,
        "head_size": None,
        "feed_width": None,
        "context": CONTEXT,
    }
    tree = config.model_dump(mode="json")
    tree["model"] |= model
    tree["budget"] = {"steps": config.budget.steps, "batch": shape.batch}
    return Training.model_validate_json(json.dumps(tree))


def _size(text: str, named: str) -> str:
    if named not in SHAPES:
        raise StudyError(
            f"no model of the size {named} is known, in --scale '{text}'",
            required=f"one of {', '.join(SHAPES)}, or no size, for the study's own model",
            fix=EXAMPLE,
        )
    return named


def _count(text: str, number: str, unit: str) -> int:
    try:
        value = Decimal(number.replace(",", "")) * 10 ** {"": 0, "K": 3, "M": 6, "B": 9, "T": 12}[unit]
    except InvalidOperation:
        value = Decimal(0)
    if value < 1 or value != int(value):
        raise _refused(text, f"{number}{unit} is not a whole number above zero")
    return int(value)


def _refused(text: str, why: str) -> StudyError:
    return StudyError(f"--scale '{text}' cannot be read: {why}", required=REQUIRED, fix=EXAMPLE)
