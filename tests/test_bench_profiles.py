"""What a step waits for adds up: every operator is counted once, and our kernels by their own names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import House, tiny_document

from ablate.training.kernels.library import Kernels
from benchmarks.profiles import OWN, PRODUCTS, as_markdown, measure_here, measure_profile


# Once in a process of its own, as the benchmark measures it.
@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "measure"), [("float32", measure_profile), ("bfloat16", measure_here)])
def test_the_operators_and_what_lies_between_them_are_the_whole(
    house: House, dtype: str, measure: Callable[[Path, str], dict[str, Any]]
) -> None:
    path: Path = house.write(tiny_document())
    found = measure(path, dtype)
    for part in ("step", "evaluation"):
        told = found[part]
        named = {row["name"]: row for row in told["operators"]}
        assert any(name in PRODUCTS for name in named)
        # The dearest twelve and the rest: no share is negative, and no operator is counted twice.
        assert all(row["ms"] >= 0 for row in named.values())
        assert sum(row["share"] for row in named.values()) <= 1.0 + 1e-3
        assert 0 < told["products_ms"] < told["ms_timed"]
        assert told["gflops_in_products"] > 0
    assert f"{dtype}, a step: {found['step']['ms']} ms" in as_markdown([found])


def test_kernels_of_ours_are_left_as_they_were(house: House) -> None:
    before = {name: getattr(Kernels, name) for name in OWN}
    measure_here(house.write(tiny_document()), "float32")
    assert {name: getattr(Kernels, name) for name in OWN} == before
