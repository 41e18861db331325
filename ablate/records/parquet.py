"""Parquet that strangers wrote, opened only where what it decodes to is known to be small.

A few bytes of Parquet can hold any number of rows, and one page can unpack to two gigabytes. What its metadata admits
is judged before anything is decoded. But metadata can lie. So the columns that are wanted are then decoded once,
a batch at a time and in bounded memory, with texts as a dictionary and its indices, whose lengths are added up.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prereg.registry.disk import open_regular

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MOST_ROWS = 20_000_000
"""Rows of one file."""
MOST_DECODED = 2**30
"""Bytes that the columns of one file take when they are decoded."""
LONGEST_TEXT = 4096
_MOST_MEMORY = 2**28
"""Bytes that decoding a batch may take: many times what pages of a usual size do."""
_LARGEST_FOOTER = 16 * 2**20
_BATCH = 2**16
_PLAIN_TYPES = {"BYTE_ARRAY", "INT32", "INT64", "FLOAT", "DOUBLE", "BOOLEAN"}
_REPEATING = "DELTA_BYTE_ARRAY"
"""The encoding of texts by what they share with the one before: a few bytes can stand for any length."""


class TableError(ValueError):
    """What is wrong with a table, to follow the name of its file."""


def open_bounded(source: Path | bytes, columns: Sequence[str], *, most_rows: int = MOST_ROWS) -> pq.ParquetFile:
    """The file, once the named columns are known to be flat, plain and small; texts come as dictionaries.

    Raises `TableError`, with the limit. The caller closes the file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        data = _mapped(source)
        if len(data) < 12 or data[-4:] != b"PAR1" or int.from_bytes(data[-8:-4], "little") > _LARGEST_FOOTER:
            raise TableError("is not a Parquet file")
        texts = _texts(pq.ParquetFile(pa.BufferReader(pa.py_buffer(data))), columns, most_rows)
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)), read_dictionary=texts)
        if columns:
            _check_sizes(file, columns)
            with _bounded_memory():
                _check_values(file, columns, texts)
    except pa.ArrowMemoryError:
        raise TableError(f"takes more than {_MOST_MEMORY:,} bytes to decode a part of, which are the most") from None
    except (OSError, pa.ArrowException, ValueError, LookupError, TypeError, RecursionError, OverflowError) as error:
        raise error if isinstance(error, TableError) else TableError("is not a Parquet file") from None
    return file


def rows_of_table(file: pq.ParquetFile, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Its rows, a batch at a time. Raises `TableError` where a page is damaged."""
    import pyarrow as pa

    batches = file.iter_batches(_BATCH, columns=list(columns))
    while True:
        try:
            rows = next(batches).to_pylist()
        except StopIteration:
            return
        except (OSError, pa.ArrowException, ValueError) as error:
            raise TableError(f"cannot be decoded: {str(error)[:200]}") from None
        yield from rows


def _mapped(source: Path | bytes) -> bytes | mmap.mmap:
    if isinstance(source, bytes):
        return source
    with open_regular(source) as stream:
        size = os.fstat(stream.fileno()).st_size
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if size else b""


def _texts(file: pq.ParquetFile, columns: Sequence[str], most_rows: int) -> list[str]:
    """The columns of text among those that are wanted, all of which are flat and of a plain type."""
    names = [file.schema.column(at).path for at in range(file.metadata.num_columns)]
    lacking = [name for name in columns if name not in names]
    if lacking:
        raise TableError(f"has no column {', '.join(lacking)}")
    if file.metadata.num_rows > most_rows:
        raise TableError(f"holds {file.metadata.num_rows:,} rows, and {most_rows:,} are the most")
    texts = []
    for at, name in enumerate(names):
        if name not in columns:
            continue
        column = file.schema.column(at)
        if column.physical_type not in _PLAIN_TYPES or column.max_repetition_level or column.max_definition_level > 1:
            raise TableError(f"has the type {column.physical_type} in column {name}, and no plain number or text")
        if column.physical_type == "BYTE_ARRAY":
            texts.append(name)
    return texts


def _check_sizes(file: pq.ParquetFile, columns: Sequence[str]) -> None:
    """What the metadata admits of the wanted columns."""
    decoded = 0
    for at in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(at)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema not in columns:
                continue
            decoded += column.total_uncompressed_size
            if _REPEATING in column.encodings:
                raise TableError(f"has texts in an encoding that is not read here ({_REPEATING})")
    if decoded > MOST_DECODED:
        raise TableError(f"decodes to more than {MOST_DECODED:,} bytes, which are the most")


def _check_values(file: pq.ParquetFile, columns: Sequence[str], texts: Sequence[str]) -> None:
    """Every value once: as many rows as there should be, and the lengths of all texts, as often as they occur."""
    import pyarrow.compute as pc

    n_rows, left = 0, MOST_DECODED - file.metadata.num_rows * 8 * (len(columns) - len(texts))
    for batch in file.iter_batches(_BATCH, columns=list(columns)):
        n_rows += batch.num_rows
        for column in map(batch.column, texts):
            lengths = pc.binary_length(column.dictionary)
            longest = pc.max(lengths).as_py() or 0
            if longest > LONGEST_TEXT:
                raise TableError(f"has a text of {longest:,} bytes, and {LONGEST_TEXT:,} are the most")
            left -= pc.sum(lengths.take(column.indices)).as_py() or 0
        if left < 0:
            raise TableError(f"decodes to more than {MOST_DECODED:,} bytes, which are the most")
    if n_rows != file.metadata.num_rows:
        raise TableError("does not hold the rows that it says")


@contextmanager
def _bounded_memory() -> Iterator[None]:
    """Let this process take `_MOST_MEMORY` more and nothing beyond it, where the system (Linux) can be asked to."""
    status = Path("/proc/self/status")
    try:
        import resource
    except ImportError:  # Windows
        yield
        return
    if not status.is_file():  # macOS
        yield
        return

    (used,) = (int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmData:"))
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = used + _MOST_MEMORY
    for limit in (soft, hard):
        most = most if limit == resource.RLIM_INFINITY else min(most, limit)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
