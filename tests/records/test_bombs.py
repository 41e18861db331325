"""A small file that decodes to a large one is refused before it is decoded, in a process that stays small."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from own_trainer import OwnHouse
from test_bundle import files_of, forged, rechained
from test_escape import rows_of

import ablate as api
from ablate.records.evidence import METRIC_COLUMNS
from ablate.records.parquet import TableError, read_parquet
from ablate.records.rows import lines_of
from ablate.records.tables import read_table
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_bytes

MOST_MIB = 500
_ROWS = 2**20

MEASURED = """
import sys
kind, *places = sys.argv[1:]
from pathlib import Path
from prereg.errors import StudyError
try:
    if kind == "import":
        from ablate.records.tables import read_table
        read_table(Path(places[0]))
    elif kind == "verify":
        import ablate as api
        from ablate.verification.verify import verify_target
        found = verify_target(Path(places[0]), reports_of=lambda *_: {})
        print("; ".join(fault for item in found.items for fault in item.faults))
    else:
        import ablate as api
        print("; ".join(check.found for check in api.decide(Path(places[0])).decision.checks if not check.passed))
except StudyError as error:
    print(error.text())
# Not ru_maxrss: across fork and exec it keeps the peak of the process that started this one.
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def small(kind: str, place: Path) -> str:
    """What the process says, once its peak of memory is known to have been small."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, kind, str(place)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    *said, peak = done.stdout.splitlines()
    assert int(peak) < MOST_MIB * 1024, (peak, said)
    return "\n".join(said)


def tidy(n: int, **columns: Any) -> dict[str, Any]:
    """One row, n times: a few bytes in a file."""
    row = {"variant": "slow", "seed": 1, "step": 1, "metric": "val/loss", "value": 1.5} | columns
    return {
        name: pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([v])) for name, v in row.items()
    }


def written(path: Path, columns: dict[str, Any], times: int = 1, **options: Any) -> Path:
    plain = {
        name: data.cast(data.type.value_type) if name in ("seed", "step", "value") else data
        for name, data in columns.items()
    }
    table = pa.table(plain)
    with pq.ParquetWriter(path, table.schema, compression="zstd", **options) as writer:
        for _ in range(times):
            writer.write_table(table)
    return path


def rows_bomb(path: Path, times: int) -> Path:
    """Many rows, all alike."""
    return written(path, tidy(_ROWS), times)


def liar(path: Path) -> Path:
    """One text of 600 MiB, where the metadata says 1,000 bytes."""

    def varint(number: int, length: int = 0) -> bytes:
        """As metadata of Parquet write twice the number, padded to a length."""
        at, parts = 2 * number, []
        while at or len(parts) < length:
            at, low = at >> 7, at & 127
            parts.append(low | 128)
        return bytes([*parts[:-1], parts[-1] & 127])

    row = tidy(1, metric="a" * (600 * 2**20))
    data = written(path, row, use_dictionary=False, write_statistics=False).read_bytes()
    group = pq.ParquetFile(path).metadata.row_group(0)
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[begin:]
    for size in (group.total_byte_size, max(group.column(at).total_uncompressed_size for at in range(5))):
        true = varint(size)
        assert true in footer
        footer = footer.replace(true, varint(1000, len(true)))
    path.write_bytes(data[:begin] + footer)
    return path


def bombs(folder: Path) -> dict[str, tuple[Path, str]]:
    long = "a" * (3 * 2**20)
    listed = pa.table({**{k: v for k, v in tidy(1).items() if k != "value"}, "value": pa.array([[[1.5] * 9]])})
    pq.write_table(listed, folder / "nested.parquet")
    page = tidy(1, metric="a" * (40 * 2**20))
    return {
        "rows": (rows_bomb(folder / "rows.parquet", 25), "26,214,400 rows"),
        "a long text in every row": (written(folder / "text.parquet", tidy(190_000, metric=long)), "a text of"),
        "texts in every row": (
            written(folder / "texts.parquet", tidy(190_000, **{"metric": "m" * 4000, "variant": "v" * 4000})),
            "decodes to more",
        ),
        "a page": (written(folder / "page.parquet", page, use_dictionary=False), "a text of"),
        "a lie": (liar(folder / "lie.parquet"), "bytes to decode a part of|a text of"),  # where memory is free already
        "nested": (folder / "nested.parquet", "no column value|no plain number"),
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    return bombs(tmp_path_factory.mktemp("bombs"))


@pytest.mark.slow
def test_an_import_is_refused_before_it_is_decoded(made: dict[str, tuple[Path, str]]) -> None:
    for name, (path, said) in made.items():
        assert path.stat().st_size < 2**20, name
        with pytest.raises(EvidenceError, match=said):
            read_table(path)
    assert "26,214,400 rows" in small("import", made["rows"][0])
    assert "a text of" in small("import", made["a long text in every row"][0])
    assert "bytes to decode a part of" in small("import", made["a lie"][0])


def test_texts_that_repeat_what_stood_before_are_not_read(tmp_path: Path) -> None:
    plain = {"metric": pa.array([f"m{'x' * 999}"] * 5), "value": pa.array([1.5] * 5)}
    pq.write_table(
        pa.table(plain), tmp_path / "a.parquet", use_dictionary=False, column_encoding={"metric": "DELTA_BYTE_ARRAY"}
    )
    with pytest.raises(TableError, match="DELTA_BYTE_ARRAY"):
        read_parquet(tmp_path / "a.parquet", ("metric", "value"))
    assert read_parquet(tmp_path / "a.parquet", ("value",)).to_pydict() == {"value": [1.5] * 5}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False},
        {"data_page_version": "2.0"},
        {"compression": "snappy"},
        {"compression": "none"},
        {"write_statistics": False},
        {"data_page_size": 100},
    ],
    ids=str,
)
def test_an_honest_table_is_read_whole(tmp_path: Path, options: dict[str, Any]) -> None:
    n = 3000
    columns = {
        "variant": [f"v{at % 3}" for at in range(n)],
        "seed": [at % 5 for at in range(n)],
        "step": list(range(n)),
        "metric": ["val/loss"] * n,
        "value": [at / 7 for at in range(n)],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=700, **options)
    found = read_table(tmp_path / "a.parquet")
    assert sum(map(len, found.values())) == n
    assert sorted(row.value for rows in found.values() for row in rows) == sorted(columns["value"])


def test_every_cut_and_most_changed_bytes_are_refused_and_none_is_a_bug(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", tidy(9))
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :]):
            with suppress(TableError):
                assert len(read_parquet(data, METRIC_COLUMNS).to_pylist()) <= 9


def test_lines_are_not_split_all_at_once() -> None:
    assert (
        list(lines_of(b"a\n\nb")) == [b"a", b"", b"b"] and list(lines_of(b"a\n")) == [b"a"] and not list(lines_of(b""))
    )
    assert next(iter(lines_of(b"\n" * 9))) == b""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> OwnHouse:
    """A study whose runs were imported, decided."""
    house = OwnHouse(tmp_path_factory.mktemp("bombed") / "house")
    house.register()
    api.import_runs(house.study, rows_of(house), note="ours", exploratory=True)
    api.decide(house.study)
    return house


@pytest.mark.slow
def test_a_bundle_and_a_decision_stay_small(house: OwnHouse, tmp_path: Path) -> None:
    whole = api.bundle(house.study, out=tmp_path / "own.ablate.zip").path
    files = files_of(whole)
    name = next(one for one in files if one.endswith("slow/1/metrics.parquet"))
    bomb = rows_bomb(tmp_path / "bomb.parquet", 25).read_bytes()
    run = json.loads(files[name.replace("metrics.parquet", "run.json")]) | {"metrics_sha256": sha256_bytes(bomb)}
    record = json.dumps(run, indent=2).encode() + b"\n"

    def bound(entry: dict[str, Any]) -> None:
        if (entry["body"].get("variant"), entry["body"].get("seed")) == ("slow", 1):
            entry["body"] |= {"metrics_sha256": sha256_bytes(bomb), "run_sha256": sha256_bytes(record)}

    manifest = json.loads(files["MANIFEST.json"])
    ledger = manifest["ledger"]["file"]
    data, head = rechained(files[ledger], bound)
    changed = files | {name: bomb, name.replace("metrics.parquet", "run.json"): record, ledger: data}
    path = forged(tmp_path / "bomb.zip", changed, ledger=manifest["ledger"] | {"head": head})
    assert path.stat().st_size < 2**22
    assert "26,214,400 rows" in small("verify", path)

    folder = house.run_folder("slow", 1)
    (folder / "metrics.parquet").write_bytes(bomb)
    (folder / "run.json").write_bytes(record)
    assert "26,214,400 rows" in small("decide", house.study)
