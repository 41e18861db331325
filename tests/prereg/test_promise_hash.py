"""The hash of a promise: the same meaning, however it is written, has the same hash; no two meanings share one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import rfc8785
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from prereg_samples import COMMAND, EMBNORM, NORMPLACE, PIN

from prereg.registry.canon import canonical_bytes, from_canonical, sha256_bytes, sha256_file, sha256_of
from prereg.registry.registration import promise_sha256
from prereg.study.load import load_study
from prereg.study.spec import Study, study_from_document
from prereg.yaml_reader import parse_yaml

CORPUS = PIN.model_dump(mode="json")
DOCUMENTS = [parse_yaml(text.encode(), {}) for text in (EMBNORM, NORMPLACE, COMMAND)]


def promise(study: Study) -> str:
    return promise_sha256({"study": study.model_dump(mode="json"), "corpus": CORPUS})


def meaning(study: Study) -> str:
    """What a study says, without canonical JSON: its resolved JSON with sorted keys, and the order of its factors."""
    whole = study.model_dump(mode="json")
    return json.dumps([same_number(whole), list(whole["factors"])], sort_keys=True)


def same_number(value: Any) -> Any:
    """1.0 and 1 are one number; true and 1 are two things."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {name: same_number(one) for name, one in value.items()}
    return [same_number(one) for one in value] if isinstance(value, list | tuple) else value


PROMISED = {document["study"]: promise(study_from_document(document)) for document in DOCUMENTS}


# --- Writing a document down in other words. ----------------------------------------------------------------------

PLAIN = "abcdefghijklmnopqrstuvwxyz"


def written(value: Any, rng: random.Random, *, depth: int = 0, flow: bool = False, path: tuple[str, ...] = ()) -> str:
    """A value as YAML, with keys, spaces, quotes, comments and styles as the dice fall. Ends without a line break."""
    if isinstance(value, dict) and value:
        items = list(value.items())
        if path != ("factors",):  # the order of factors names the arms: it is part of the meaning
            rng.shuffle(items)
        if flow or rng.random() < 0.3:
            inner = (
                f"{key(name, rng)}:{space(rng)}{written(item, rng, flow=True, path=(*path, name))}"
                for name, item in items
            )
            return "{" + pad(rng) + ("," + space(rng)).join(inner) + pad(rng) + "}"
        lines = []
        for name, item in items:
            if rng.random() < 0.1:
                lines.append(
                    " " * rng.randrange(9) + "# " + "".join(rng.choice(PLAIN + ":-{}[]#'\"&*!") for _ in range(9))
                )
            if rng.random() < 0.1:
                lines.append(" " * rng.randrange(5))
            indent, below = "  " * depth, written(item, rng, depth=depth + 1, path=(*path, name))
            nested = below.startswith("\n")
            lines.append(
                f"{indent}{key(name, rng)}:" + (below if nested else space(rng) + below) + comment(rng, nested)
            )
        return ("\n" if depth else "") + "\n".join(lines)
    if isinstance(value, list) and value:
        if flow or depth == 0 or rng.random() < 0.5:
            return (
                "[" + pad(rng) + ("," + space(rng)).join(written(one, rng, flow=True) for one in value) + pad(rng) + "]"
            )
        indent = "  " * depth
        return "\n" + "\n".join(f"{indent}- {written(one, rng, depth=depth + 1, flow=True)}" for one in value)
    return scalar(value, rng)


def key(name: str, rng: random.Random) -> str:
    return rng.choice((name, name, quoted(name, rng)))


def scalar(value: Any, rng: random.Random) -> str:
    if isinstance(value, str):
        return quoted(value, rng)
    if isinstance(value, float):
        # All of these are the same double, and read as a float or, where it is whole, as the whole number it equals.
        return rng.choice((repr(value), f"{value!r}", f"{value:.17e}", f"+{value:.17g}" if value >= 0 else repr(value)))
    if value is None:
        return rng.choice(("null", "~", "Null"))
    if isinstance(value, bool):
        return rng.choice((str(value), str(value).lower(), str(value).upper()))
    return (
        rng.choice((str(value), f"+{value}", f"0{value}"))
        if isinstance(value, int) and value > 0
        else json.dumps(value)
    )


def quoted(text: str, rng: random.Random) -> str:
    if rng.random() < 0.5 and "\n" not in text:
        return "'" + text.replace("'", "''") + "'"
    return json.dumps(text, ensure_ascii=rng.random() < 0.5)


def space(rng: random.Random) -> str:
    return " " * rng.randrange(1, 4)


def pad(rng: random.Random) -> str:
    return " " * rng.randrange(3)


def comment(rng: random.Random, nested: bool) -> str:
    return "" if nested or rng.random() < 0.8 else f"  # {rng.choice(('a note', 'x: 1', '- y', '[', '!!set', '&a'))}"


# --- Changing what a study says. ----------------------------------------------------------------------------------


def varied(rng: random.Random) -> Study:
    """One of very many studies; two draws may mean the same."""
    document = json.loads(json.dumps(DOCUMENTS[2]))
    document["title"] = rng.choice(("A", "B", "A ", "\u00e9", "1", "", "a\nb", "\U0001f600"))
    document["question"] = rng.choice(("", "why", "why?", "null"))
    document["seeds"] = rng.sample(range(rng.choice((4, 40, 2**31))), rng.randrange(2, 5))
    document["base"] = {"optim": {"lr": rng.choice((1, 2, 1.5, 0.1, 1e-3, 1e17, -0.0, 0, "1", True, None, [1]))}}
    if rng.random() < 0.5:
        document["base"]["x"] = rng.choice(
            (1, 1.25, "1", "", None, False, [], {}, [[]], {"a": None}, [1, 2], [2, 1], "\u00e9")
        )
    document["variants"]["fast"] = {"optim.lr": rng.choice((7, 8, 7.5, "7"))}
    gain = document["hypotheses"]["gain"]
    gain["smallest"] = rng.choice((0.1, 0.2, 0.10000000000000002, 1, 0))
    gain["role"] = rng.choice(("primary", "secondary", "guardrail"))
    gain["claim"] = rng.choice(
        ("fast lowers dev/loss", "fast raises dev/loss", "fast lowers dev/loss2", "slow raises a than fast")
    )
    if rng.random() < 0.5:
        gain["scale"] = rng.choice(("raw", "log"))
    if rng.random() < 0.5:
        document["analysis"] = {"alpha": rng.choice((0.05, 0.01)), "test": rng.choice(("paired_t", "sign_flip"))}
    document["decision"][0]["verdict"] = rng.choice(("fast", "fast ", "slow", "it"))
    return study_from_document(document)


def collisions(n: int, seed: int) -> int:
    """Pairs of different meaning among n studies; the hash tells these apart, and no others."""
    rng = random.Random(seed)  # noqa: S311
    by_hash: dict[str, str] = {}
    by_meaning: dict[str, str] = {}
    for _ in range(n):
        study = varied(rng)
        if rng.random() < 0.2:  # the same again, through its own JSON and with the keys turned round
            again = study_from_document(turned(json.loads(study.model_dump_json())))
            assert (promise(again), meaning(again)) == (promise(study), meaning(study))
        hashed, meant = promise(study), meaning(study)
        assert by_hash.setdefault(hashed, meant) == meant
        assert by_meaning.setdefault(meant, hashed) == hashed
    return len(by_meaning) * (len(by_meaning) - 1) // 2


def turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: turned(value[name]) for name in reversed(value)}
    return [turned(one) for one in value] if isinstance(value, list) else value


# --- The claims. --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", DOCUMENTS, ids=["variants", "factors", "command"])
def test_a_plain_dump_has_the_hash_of_the_study_it_was_made_from(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / f"{document['study']}.yaml"
    path.write_text(json.dumps(document))
    assert promise(load_study(path).study) == promise(study_from_document(document))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=st.sampled_from(DOCUMENTS), seed=st.integers(0, 2**32))
def test_order_space_comments_quotes_and_style_do_not_move_the_hash(
    document: dict[str, Any], seed: int, tmp_path: Path
) -> None:
    rewrite(document, seed, tmp_path)


def rewrite(document: dict[str, Any], seed: int, folder: Path) -> None:
    text = written(document, random.Random(seed)) + "\n"  # noqa: S311
    path = folder / f"{document['study']}.yaml"
    path.write_text(text, encoding="utf-8")
    assert promise(load_study(path).study) == PROMISED[document["study"]], text


def test_rewritings_differ_in_their_bytes() -> None:
    texts = {written(DOCUMENTS[0], random.Random(seed)) for seed in range(50)}  # noqa: S311
    assert len(texts) == 50
    assert any("{" in text for text in texts)
    assert {yaml.safe_load(text.replace("0o", ""))["study"] for text in texts} == {"embnorm"}


def test_studies_share_a_hash_only_with_their_meaning() -> None:
    assert collisions(160, seed=1) > 10_000


def test_the_order_of_factors_names_arms_and_moves_the_hash() -> None:
    document = json.loads(json.dumps(DOCUMENTS[1]))
    document["hypotheses"] = {"h": {"claim": "a raises val/loss than b", "smallest": 1}}
    document["factors"] = {"x": {"a": {}, "b": {"model.layers": 2}}, "y": {"c": {}, "d": {"optim.warmup": 5}}}
    document["hypotheses"]["h"]["claim"] = "(a-c - b-d) raises val/loss than (a-d - b-c)"
    document["baseline"] = "a-c"
    document["decision"] = [{"verdict": "v", "when": "supported(h)"}, {"verdict": "w"}]
    first = study_from_document(document)
    document["factors"] = dict(reversed(document["factors"].items()))
    document["baseline"] = "c-a"
    document["hypotheses"]["h"]["claim"] = "(c-a - d-b) raises val/loss than (d-a - c-b)"
    second = study_from_document(document)
    assert promise(first) != promise(second)
    # The factors alone: the same claims and baseline cannot stand under both orders, so the hash is asked directly.
    whole = first.model_dump(mode="json")
    turned_round = whole | {"factors": dict(reversed(whole["factors"].items()))}
    hashes = [promise_sha256({"study": one, "corpus": CORPUS}) for one in (whole, turned_round)]
    assert hashes[0] != hashes[1]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def test_the_example_of_rfc_8785_comes_out_as_printed_there() -> None:
    # RFC 8785, section 3.2.2 and 3.2.3 (input and serialised output)
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"\u002f",
        "literals": [None, True, False],
    }
    assert canonical_bytes(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_a_whole_float_is_written_as_an_integer() -> None:
    assert canonical_bytes([1.0, -0.0, 1e3]) == b"[1,0,1000]"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 2**53, -(2**53)])
def test_what_json_cannot_carry_raises(value: float) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical_bytes({"a": value})


@given(JSON)
@example([1e-5, 1e-4, 0.1, 1e15, 1e16, 1e21, -0.0, -2.0, 2**53 - 1])
@example({"\ue000": 1, "\U00010000": 2, "a": "\x7f\x00\u2028"})
def test_canonical_bytes_are_those_of_the_library(value: object) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)


@pytest.mark.parametrize("value", [{1: 2}, {"a": {None: 1}}, {"\ud800": 1}, "\ud800", {1}, b"", 2.5j])
def test_what_json_cannot_say_raises(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical_bytes(value)


@given(JSON)
def test_canonical_bytes_are_a_fixed_point_of_reading(value: object) -> None:
    data = canonical_bytes(value)
    assert canonical_bytes(from_canonical(data)) == data


def test_a_large_float_is_read_back_as_one() -> None:
    assert canonical_bytes(1e17) == b"100000000000000000"
    assert type(from_canonical(b"100000000000000000")) is float
    assert type(from_canonical(b"9007199254740991")) is int


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=6))
def test_the_order_of_keys_does_not_matter(value: dict[str, object]) -> None:
    assert sha256_of(dict(reversed(list(value.items())))) == sha256_of(value)


@given(JSON, JSON)
def test_different_content_has_different_bytes(a: object, b: object) -> None:
    # true == 1 in Python; in JSON they differ, and json.dumps tells them apart.
    same = json.dumps(_whole(a), sort_keys=True) == json.dumps(_whole(b), sort_keys=True)
    assert (canonical_bytes(a) == canonical_bytes(b)) == same


def _whole(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        # Beyond 2^53 a float is compared by its shortest digits, which is how both are written.
        return int(value) if abs(value) < 2**53 else value
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return {key: _whole(item) for key, item in value.items()} if isinstance(value, dict) else value


def test_hashes_are_plain_sha256(tmp_path: Path) -> None:
    # FIPS 180-2, appendix B.1
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_bytes(b"abc") == abc
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_file(tmp_path / "abc") == abc
    assert sha256_of("abc") == sha256_bytes(b'"abc"')
