"""Canonical bytes and hashes: the same content, the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prereg.registry.canon import canonical_bytes, from_canonical, sha256_bytes, sha256_file, sha256_of

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
