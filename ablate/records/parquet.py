"""Parquet reader, the only one: only where what a file decodes to is known to be small.

A few bytes of Parquet can hold any number of rows, and one page can unpack to two gigabytes. What its metadata admits
is judged before anything is decoded. But metadata can lie, so the columns that are wanted are then decoded in bounded
memory, with texts as a dictionary and its indices, whose lengths are added up.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from prereg.registry.disk import open_regular

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MOST_ROWS = 20_000_000
"""Rows of one file."""
MOST_DECODED = 2**30
"""Bytes that the columns of one file take when they are decoded."""
LONGEST_TEXT = 4096
_SPARE = 2**28
"""Bytes that decoding may take besides its result: many times what pages of a usual size do."""
_LARGEST_FOOTER = 16 * 2**20
_PLAIN_TYPES = {"BYTE_ARRAY", "INT32", "INT64", "FLOAT", "DOUBLE", "BOOLEAN"}
_REPEATING = "DELTA_BYTE_ARRAY"
"""The encoding of texts by what they share with the one before: a few bytes can stand for any length."""


class TableError(ValueError):
    """What is wrong with a table, to follow the name of its file."""


def read_parquet(source: Path | bytes, columns: Sequence[str], *, most_rows: int = MOST_ROWS) -> pa.Table:
    """The named columns, all flat and of plain numbers or texts; texts come as dictionaries.

    Raises `TableError`, with the limit, for anything that is not such a table or not small.

        >>> import pyarrow as pa
        >>> import pyarrow.parquet as pq
        >>> sink = pa.BufferOutputStream()
        >>> pq.write_table(pa.table({"step": [1, 2], "value": [2.5, 2.25]}), sink)
        >>> read_parquet(sink.getvalue().to_pybytes(), ["value"])["value"].to_pylist()
        [2.5, 2.25]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    # Before anything is decoded: what the metadata admits.
    file, texts = _opened(source, columns, most_rows)
    n_rows = file.metadata.num_rows
    try:
        # Twice the result, which pyarrow puts together from its batches; no column takes more than 8 bytes a row.
        with bounded_memory(_SPARE + 16 * n_rows * len(columns)):
            table = file.read(columns=list(columns), use_threads=False)
        table.validate(full=True)  # texts that are not UTF-8, places outside a dictionary
    except pa.ArrowMemoryError:
        raise TableError(f"takes more than {_SPARE:,} bytes to decode a part of, which are the most") from None
    except (OSError, pa.ArrowException, ValueError) as error:
        raise TableError(f"cannot be decoded: {str(error)[:200]}") from None
    if table.num_rows != n_rows:
        raise TableError("does not hold the rows that it says")
    # Afterwards: how many bytes the texts of all rows would take as Python strings. The dictionary does not say, since
    # one long text and a million indices are a few bytes here and gigabytes there.
    decoded = 8 * n_rows * (len(columns) - len(texts))
    for chunk in (chunk for name in texts for chunk in table[name].chunks):
        lengths = pc.binary_length(chunk.dictionary)
        longest = pc.max(lengths).as_py() or 0
        if longest > LONGEST_TEXT:
            raise TableError(f"has a text of {longest:,} bytes, and {LONGEST_TEXT:,} are the most")
        decoded += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    if decoded > MOST_DECODED:
        raise TableError(f"decodes to more than {MOST_DECODED:,} bytes, which are the most")
    return table


@contextmanager
def bounded_memory(most: int) -> Iterator[None]:
    """Let this process take `most` bytes more and none beyond them, where the system (Linux) keeps such a limit.

    `RLIMIT_DATA` and not `RLIMIT_AS`: libraries reserve addresses that they never use.
    """
    status = Path("/proc/self/status")
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        yield
        return
    if not status.is_file():  # macOS
        yield
        return
    (used,) = (int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmData:"))
    # `used` is what the interpreter holds already. The soft limit alone is lowered, so that it can be raised again.
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [used + most, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def columns_of_parquet(source: Path | bytes) -> list[str]:
    """The names of the columns. Raises `TableError`."""
    return list(_opened(source, (), MOST_ROWS)[0].schema_arrow.names)


def _opened(source: Path | bytes, columns: Sequence[str], most_rows: int) -> tuple[pq.ParquetFile, list[str]]:
    """The file and the columns of text among the wanted ones, once its metadata admits nothing that is not small."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        data = source if isinstance(source, bytes) else _mapped(source)
        # The layout of the end: footer, its length in 4 bytes (little-endian), "PAR1" (parquet-format, "File
        # format").
        if len(data) < 12 or data[-4:] != b"PAR1" or int.from_bytes(data[-8:-4], "little") > _LARGEST_FOOTER:
            raise TableError("is not a Parquet file")
        # Opened twice: which columns are texts is in the metadata, and the reader must know it to keep them encoded.
        texts = _texts(pq.ParquetFile(pa.BufferReader(pa.py_buffer(data))), columns, most_rows)
        return pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)), read_dictionary=texts), texts
    except (OSError, pa.ArrowException, ValueError, LookupError, TypeError, RecursionError, OverflowError) as error:
        raise error if isinstance(error, TableError) else TableError("is not a Parquet file") from None


def _texts(file: pq.ParquetFile, columns: Sequence[str], most_rows: int) -> list[str]:
    """The columns of text among the wanted ones. Raises `TableError` for what the metadata does not admit."""
    # By leaf column: a list or a struct has leaves whose path is not a plain name.
    places = {file.schema.column(at).path: at for at in range(file.metadata.num_columns)}
    if file.metadata.num_rows > most_rows:
        raise TableError(f"holds {file.metadata.num_rows:,} rows, and {most_rows:,} are the most")
    lacking = [name for name in columns if name not in places]
    if lacking:
        raise TableError(f"has no column {', '.join(lacking)}")
    texts, decoded = [], 0
    for name in columns:
        column = file.schema.column(places[name])
        # No lists (repetition) and no structs (definition levels above the one of a null): a cell is one value.
        if column.physical_type not in _PLAIN_TYPES or column.max_repetition_level or column.max_definition_level > 1:
            raise TableError(f"has the type {column.physical_type} in column {name}, and no plain number or text")
        if column.physical_type == "BYTE_ARRAY":
            texts.append(name)
        for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
            chunk = group.column(places[name])
            decoded += chunk.total_uncompressed_size
            # total_uncompressed_size counts what is encoded, and this encoding can unfold a few bytes into
            # gigabytes.
            if _REPEATING in chunk.encodings:
                raise TableError(f"has texts in an encoding that is not read here ({_REPEATING})")
    if decoded > MOST_DECODED:
        raise TableError(f"decodes to more than {MOST_DECODED:,} bytes, which are the most")
    return texts


def _mapped(path: Path) -> bytes | mmap.mmap:
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
