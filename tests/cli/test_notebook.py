"""examples/notebook.ipynb runs from top to bottom in a kernel, and what it displays are results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


def test_the_committed_notebook_holds_no_outputs() -> None:
    import json

    cells = json.loads(NOTEBOOK.read_bytes())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 10 and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # those of the kernel's libraries are theirs
def test_the_notebook_runs_and_shows_design_verdict_frames_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=250, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown: dict[str, dict[str, Any]] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type in ("execute_result", "display_data"):
                shown[cell.source] = output.data
    by_start = {source.splitlines()[-1].strip(): data for source, data in shown.items()}
    assert "Design, before any data" in by_start["ablate.design(study)"]["text/html"]
    assert by_start["ran.summary.complete"]["text/plain"] == "True"
    assert by_start['health.count("done"), len(health.runs)']["text/plain"] == "(10, 10)"
    screen = by_start["decided"]
    assert "adopt the higher rate" in screen["text/html"] and "<svg" in screen["text/html"]
    assert screen["text/plain"].startswith("Decided(study='higher_rate', status='decided'")
    assert by_start["decided.verdict, decided.status"]["text/plain"] == "('adopt the higher rate', 'decided')"
    tables = [data["text/html"] for data in shown.values() if "dataframe" in data.get("text/html", "")]
    assert len(tables) == 4 and all("NaN" not in table for table in tables)
    chart = by_start['decided.figure("val-loss-by-step")']
    assert any("vega" in kind or "vega-lite" in str(text) for kind, text in chart.items())
    assert (
        "Exploratory"
        in by_start['ablate.judge_frame(table, "dropout lowers valid_loss by at least 0.02")']["text/html"]
    )
    assert sorted(one.name for one in tmp_path.glob("*/studies/*.lock.json")) == ["higher_rate.lock.json"]
    assert not (NOTEBOOK.parent / "data").exists()
