"""A server of runs that dies takes no run with it, and servers that all do so are told, not lost."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from own_trainer import OwnHouse

import ablate
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from prereg.errors import RunError
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import RunStartedEntry

pytestmark = pytest.mark.usefixtures("no_reports")

DIES = """
import os, sys
if sys.argv[:1] == ["-m"] and "ablate.runner.pool" in sys.orig_argv:
    deaths = open(os.environ["DEATHS"], "a+")
    deaths.seek(0)
    if len(deaths.read()) < int(os.environ["DEATHS_AT_MOST"]):
        deaths.write("x")
        deaths.close()
        print("no room", file=sys.stderr, flush=True)
        os._exit(7)
"""


def dying(place: Path, monkeypatch: pytest.MonkeyPatch, deaths: int) -> Path:
    """The first so many servers die at once. The file that counts them."""
    (place / "sitecustomize.py").write_text(DIES)
    monkeypatch.setenv("PYTHONPATH", str(place))
    monkeypatch.setenv("DEATHS", str(place / "deaths"))
    monkeypatch.setenv("DEATHS_AT_MOST", str(deaths))
    return place / "deaths"


@pytest.mark.slow
@pytest.mark.cold
def test_a_server_that_dies_is_replaced_and_no_start_is_entered_twice(
    own_house: OwnHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_house.register()
    counted, stream = dying(tmp_path, monkeypatch, 2), StringIO()
    assert ablate.run(
        own_house.study, RunOptions(slots=1), workspace=ablate.Workspace(console=PlainWatcher(stream))
    ).summary.complete
    assert counted.read_text() == "xx"
    assert stream.getvalue().count("the server of runs died (exit 7); starting another") == 2
    entries = Ledger(own_house.path / "studies" / "ledger.jsonl").entries()
    assert sum(isinstance(entry, RunStartedEntry) for entry in entries) == 6
    assert ablate.decide(own_house.study).decision.status == "decided"


@pytest.mark.cold
def test_servers_that_never_start_end_the_call_and_say_where_to_look(
    own_house: OwnHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_house.register()
    counted = dying(tmp_path, monkeypatch, 99)
    with pytest.raises(RunError, match=r"the server of runs died 3 times in a row .*exit 7") as caught:
        ablate.run(own_house.study, RunOptions(slots=1), workspace=ablate.Workspace(console=PlainWatcher(StringIO())))
    assert counted.read_text() == "xxx" and "server.log" in caught.value.fix
    (log,) = own_house.path.glob("data/runs/*/*/server.log")
    assert "no room" in log.read_text()
