"""Feeds generated input to the loader and the rule parser, in a process with little memory; run by test_fuzz.

    python tests/fuzzing.py KIND N SEED

Prints one JSON line: how many inputs were taken and refused, the longest time for one, the longest message, and
the first input that did anything but load or raise a `StudyError`. Everything follows from the seed.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from prereg_samples import COMMAND, EMBNORM

from prereg.errors import StudyError
from prereg.rule.condition import parse_condition
from prereg.rule.rule import DecisionLine, Rule
from prereg.study.load import load_study
from prereg.study.spec import study_from_document
from prereg.yaml_reader import parse_yaml

MEMORY_BYTES = 512 * 1024**2

TINY = """\
study: any
title: T
base: {model: {layers: 1, width: 16, heads: 2, context: 16}, data: {corpus: toy}, budget: {steps: 30, batch: 8}}
baseline: a
variants: {a: {}, b: {model.embedding_norm: layernorm}}
seeds: [1, 2, 3]
hypotheses:
  h: {claim: b lowers val/loss, smallest: 0.05, role: primary}
  k: {claim: b changes val/accuracy, smallest: 1}
analysis: {test: paired_t, alpha: 0.05, correct: holm}
decision:
  - {verdict: yes it is, when: "supported(h) and not refuted(k)"}
  - {verdict: "no", when: refuted(h)}
  - {verdict: open}
"""
OWN = COMMAND.replace("study: own", "study: any")

# What readers of YAML and of numbers stumble over: invisible, bidirectional, not composed, not text at all.
ODD_TEXTS = (
    "\u202e", "\u200f", "\u2066", "\u200b", "\ufeff", "\u0000", "\u0007", "\u0085", "\u2028", "e\u0301", "\u0344",
    "a" + "\u0323\u0301" * 20, "\ud800", "\udfff", "\U0010ffff", "\ufffe", "\u1e9b\u0323", "\t", "\r", "\n",
    "\x1b[31m",
    "<<: {a: 1}", "<<: *a", "&a ", "*a", "&a [*a, *a]", "!!python/object/apply:os.system ['true']", "!!binary aaaa",
    "!!python/name:os.system", "!!set {a}", "!!omap [a: 1]", "!<tag:yaml.org,2002:map> {}", "%YAML 1.2\n---\n", "---",
    "...", ".inf", "-.INF", ".nan", "1e999", "-1e-999", "9" * 400, "0x" + "f" * 300, "0o" + "7" * 300, "1_000", "0b1",
    "1:30:00", "2026-01-01", "~", "null", "true", "no", "[" * 40, "{" * 40, "- " * 40, "? ", "? [a]", ": ", "#",
    "|", ">", "|2-", "'", '"', '"\\ud800"', '"\\U00110000"', '"\\x00"', '"\\N"', "''", "x" * 3000, "a: a: a",
    "{a: 1, a: 2}", "[,]", "@", "`", "%", "{}", "[]", "[[]]", "{a}", "1e", "+", "-", "\\", "9007199254740993",
    "-9007199254740993",
    "1e308",
)  # fmt: skip
WORDS = (
    *("supported", "refuted", "inconclusive", "stable", "and", "or", "not", "(", ")", "h", "k", "zz", ".", ",", ";"),
    *("()", "((", "))", "!", "&&", "||", "=", "==", "\u00ac", "\u2227", "\u202e", "\x00", "Supported", "AND", "\ud800"),
    *("supported(h)", "refuted(k)", "stable(v)", "stable(h)", "supported()", "inconclusive(h)", "__import__", "lambda"),
)


def conditions(rng: random.Random, n: int) -> Iterator[str]:
    """Sentences of the grammar, some of them spoilt, and rows of words that are none."""

    def sentence(depth: int) -> str:
        kind = rng.random()
        if depth <= 0 or kind < 0.4:
            return f"{rng.choice(('supported', 'refuted', 'inconclusive'))}({rng.choice('hk')})"
        if kind < 0.5:
            return f"stable({rng.choice('vw')})"
        if kind < 0.65:
            return f"not {sentence(depth - 1)}"
        if kind < 0.75:
            return f"({sentence(depth - 1)})"
        return f"{sentence(depth - 1)} {rng.choice(('and', 'or'))} {sentence(depth - 1)}"

    for _ in range(n):
        kind = rng.random()
        if kind < 0.4:
            text = sentence(rng.randrange(7))
        elif kind < 0.7:
            text = spoilt(rng, sentence(4))
        elif kind < 0.9:
            text = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(14)))
        elif kind < 0.97:
            text = "".join(
                chr(rng.choice((rng.randrange(128), rng.randrange(0x11000)))) for _ in range(rng.randrange(40))
            )
        else:
            text = rng.choice(("(", "not ", "not(", "supported(", "h ", ")", " ", "\u0301")) * rng.choice(
                (60, 3000, 20000)
            )
        yield text


def spoilt(rng: random.Random, text: str) -> str:
    """A text with a few places cut, repeated, swapped for something odd, or filled in."""
    for _ in range(rng.randrange(1, 4)):
        at, length = rng.randrange(len(text) + 1), rng.randrange(1, 8)
        kind = rng.random()
        if kind < 0.3:
            text = text[:at] + text[at + length :]
        elif kind < 0.6:
            text = text[:at] + rng.choice(ODD_TEXTS) + text[at:]
        elif kind < 0.8:
            text = text[:at] + rng.choice(ODD_TEXTS) + text[at + length :]
        elif kind < 0.9:
            text = text[:at] + text[at : at + length] * rng.randrange(2, 5) + text[at:]
        else:
            text = text[:at] + chr(rng.randrange(0x3000)) + text[at + 1 :]
    return text


def fragments(rng: random.Random, n: int) -> Iterator[bytes]:
    """Bytes, texts and pieces of YAML that are no study."""
    for _ in range(n):
        kind = rng.random()
        if kind < 0.2:
            yield rng.randbytes(rng.randrange(60))
        elif kind < 0.4:
            text = "".join(
                chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x11000)))) for _ in range(rng.randrange(30))
            )
            yield text.encode("utf-8", "surrogatepass")
        elif kind < 0.7:
            yield "".join(rng.choice("ab:{}[]-?|>&*!%@'\"\\,#\n\t 01.e~<=") for _ in range(rng.randrange(40))).encode()
        else:
            pieces = [rng.choice(("a: ", "- ", "study: ", "\n", "  ", "{", "}", "[", "]", ", ", rng.choice(ODD_TEXTS)))]
            pieces += [
                rng.choice((rng.choice(ODD_TEXTS), "a: ", "\n", ", ", "b: 1\n")) for _ in range(rng.randrange(6))
            ]
            yield "".join(pieces).encode("utf-8", "surrogatepass")


def files(rng: random.Random, n: int) -> Iterator[bytes]:
    """Valid studies, spoilt as text or as bytes."""
    for _ in range(n):
        text = rng.choice((TINY, OWN, OWN))
        if rng.random() < 0.8:
            yield spoilt(rng, text).encode("utf-8", "surrogatepass")
        else:
            data = bytearray(text.encode())
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            yield bytes(data)


def documents(rng: random.Random, n: int) -> Iterator[dict[str, Any]]:
    """Valid studies as plain data, with values of other kinds, fields renamed, moved, dropped and doubled."""
    sources = [json.dumps(parse_yaml(text.encode(), {})) for text in (TINY, OWN, OWN, EMBNORM)]
    odd: tuple[Any, ...] = (
        None, True, False, 0, 1, -1, 2**53 - 1, -(2**53), 2**70, 0.0, -0.0, 1e-320, 1e308, 0.5, "", " ", "a",
        "h", "b",
        "none", "val/loss", "fixed", "\u202e", "e\u0301", "x" * 5000, [], [[]], {}, {"": {}}, {"a": 1},
        [1, "a", None], [{}], ["a"] * 600, {"x.y": 1}, {".": 1}, {"looks": [2, 3]},
        {"step": 10}, "b lowers val/loss than b", "(a + b) lowers val/loss", "0*a lowers x",
        "(" * 200, "supported(h)", [1, 2, 3, 3], list(range(300)), {"verdict": "v"}, [{"verdict": "v",
        "when": "supported(h)"}], "-", "~",
        ["--seed={seed}"],
    )  # fmt: skip
    for _ in range(n):
        document = json.loads(rng.choice(sources))
        for _ in range(rng.randrange(1, 4)):
            parent = document
            while True:
                keys: list[Any] = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
                if not keys:
                    break
                key = rng.choice(keys)
                if isinstance(parent[key], dict | list) and parent[key] and rng.random() < 0.75:
                    parent = parent[key]
                    continue
                kind = rng.random()
                if kind < 0.6:
                    parent[key] = json.loads(json.dumps(rng.choice(odd)))
                elif kind < 0.75:
                    del parent[key]
                elif isinstance(parent, dict):
                    parent[rng.choice((f"{key}x", "study", "a.b", "", "seeds", str(key).upper()))] = parent.pop(key)
                else:
                    parent.append(parent[key])
                break
        yield document


def rules(rng: random.Random, n: int) -> Iterator[list[DecisionLine]]:
    """Lists of conditions: what the proof is asked."""
    for _ in range(n):
        texts = list(conditions(rng, rng.randrange(5)))
        lines = [DecisionLine(verdict="v", when=text.encode("utf-8", "replace").decode()) for text in texts]
        yield [*lines, DecisionLine(verdict="otherwise")] if rng.random() < 0.8 else lines


def prove(lines: list[DecisionLine]) -> None:
    Rule.parse(lines, hypotheses=("h", "k"), variants=("v", "w"), exploratory=("x",))


def load_bytes(folder: Path) -> Callable[[bytes], None]:
    path = folder / "any.yaml"

    def load(source: bytes) -> None:
        path.write_bytes(source)
        load_study(path)

    return load


def main(kind: str, n: int, seed: int) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    rng = random.Random(seed)  # noqa: S311
    told: dict[str, Any] = {
        "kind": kind,
        "taken": 0,
        "refused": 0,
        "worst_s": 0.0,
        "longest_message": 0,
        "failed": None,
    }
    with tempfile.TemporaryDirectory() as folder:
        made: dict[str, tuple[Iterator[Any], Callable[[Any], Any]]] = {
            "conditions": (conditions(rng, n), parse_condition),
            "rules": (rules(rng, n), prove),
            "fragments": (fragments(rng, n), lambda source: parse_yaml(source, {})),
            "files": (files(rng, n), load_bytes(Path(folder))),
            "documents": (documents(rng, n), study_from_document),
        }
        inputs, take = made[kind]
        for one in inputs:
            started = time.perf_counter()
            try:
                take(one)
                told["taken"] += 1
            except StudyError as error:
                told["refused"] += 1
                told["longest_message"] = max(told["longest_message"], len(str(error)))
            except BaseException:
                told["failed"] = {"input": repr(one)[:4000], "error": traceback.format_exc()[-3000:]}
                break
            told["worst_s"] = max(told["worst_s"], time.perf_counter() - started)
    told["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return told


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
