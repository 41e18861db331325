"""The page of metrics says what the code declares, no more and no less."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from prereg.metrics.catalogue import METRICS, SUITES
from prereg.metrics.page import metric_page

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"


def test_the_page_is_what_the_declarations_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == metric_page(), "python -m prereg.metrics.page docs/metrics.md"


def test_one_command_writes_it(tmp_path: Path) -> None:
    out = tmp_path / "metrics.md"
    subprocess.run([sys.executable, "-m", "prereg.metrics.page", str(out)], check=True, cwd=PAGE.parents[1])
    assert out.read_bytes() == PAGE.read_bytes()


def test_every_metric_stands_on_it_once_and_every_suite_with_its_price() -> None:
    page = metric_page()
    for metric in (*METRICS.values(), *METRICS.families):
        assert page.count(f"| `{metric.name}` |") == 1, metric.name
    for suite, told in SUITES.items():
        assert f"## {suite}\n" in page and told.cost in page


def test_no_formula_breaks_its_table() -> None:
    rows = [line for line in metric_page().splitlines() if line.startswith("| `")]
    widths = {line.replace("\\|", "").count("|") for line in rows}
    assert widths == {7, 5}
