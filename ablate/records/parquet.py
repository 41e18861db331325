"""Parquet that strangers wrote, opened only where what it decodes to is known to be small.

A few bytes of Parquet can hold any number of rows, and one page can unpack to two gigabytes. What the footer says of
sizes is its maker's word, so every page's own header is read before a page is decoded: those are the sizes that a
decoder allocates. Then texts are read once, as a dictionary and its indices, and their lengths added up.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
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
_LARGEST_PAGE = 32 * 2**20
_LARGEST_FOOTER = 16 * 2**20
_LARGEST_HEADER = 64 * 2**10
_BATCH = 2**16

_PLAIN_TYPES = {"BYTE_ARRAY": 0, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8, "BOOLEAN": 1}
"""Physical type of a column -> bytes of a value; of text, what its lengths say."""
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
_PLACES = (2, 8)
"""The encodings of values by their places in a dictionary."""
_REPEATING = 7
"""The encoding of texts by what they share with the one before: a few bytes can stand for any length."""


class TableError(ValueError):
    """What is wrong with a table, to follow the name of its file."""


def open_bounded(source: Path | bytes, columns: Sequence[str], *, most_rows: int = MOST_ROWS) -> pq.ParquetFile:
    """The file, once the named columns are known to be flat, plain and small; texts come as dictionaries.

    Raises `TableError`, with the limit, before more than one page is decoded at a time. The caller closes the file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        data = _mapped(source)
        if len(data) < 12 or data[-4:] != b"PAR1" or int.from_bytes(data[-8:-4], "little") > _LARGEST_FOOTER:
            raise TableError("is not a Parquet file")
        texts = _texts(pq.ParquetFile(pa.BufferReader(pa.py_buffer(data))), columns, most_rows)
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)), read_dictionary=texts)
        left = MOST_DECODED - file.metadata.num_rows * 8 * (len(columns) - len(texts))
        groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
        # No text is longer than the page that holds all different ones: of ours, as a rule, enough to know.
        longest = max((_check_pages(data, group, set(columns), texts) for group in groups), default=0)
        if longest > LONGEST_TEXT or longest * file.metadata.num_rows * len(texts) > left:
            _check_texts(file, texts, left)
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


def _check_pages(data: bytes | mmap.mmap, group: pq.RowGroupMetaData, wanted: set[str], texts: list[str]) -> int:
    """Every page of the wanted columns, by its own header: its size, its encoding, and as many values as rows.

    Returns the size of the largest page of texts that is no list of places in a dictionary.
    """
    view, largest = memoryview(data), 0
    for at in range(group.num_columns):
        column = group.column(at)
        if column.path_in_schema not in wanted:
            continue
        place = column.data_page_offset
        if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < place:
            place = column.dictionary_page_offset
        values, decoded = 0, 0
        while values < group.num_rows:
            header, length = _struct(view[place : place + _LARGEST_HEADER], 0)
            decoded += header[2]
            if not 0 <= header[2] <= _LARGEST_PAGE or header[3] < 0:
                raise TableError(f"has a page of {header[2]:,} bytes, and {_LARGEST_PAGE:,} are the most")
            if decoded > MOST_DECODED:
                raise TableError(f"decodes to more than {MOST_DECODED:,} bytes, which are the most")
            page = header.get({_DATA: 5, _DATA_2: 8}.get(header[1], 0))
            if page is not None:
                if page[2 if header[1] == _DATA else 4] == _REPEATING or page[1] < 0:
                    raise TableError("has texts in an encoding that is not read here (DELTA_BYTE_ARRAY)")
                values += page[1]
                listed = page[2 if header[1] == _DATA else 4] in _PLACES
            elif header[1] == _DICTIONARY and header[7][1] * _PLAIN_TYPES[column.physical_type] > _LARGEST_PAGE:
                raise TableError(f"has a dictionary of {header[7][1]:,} values")
            if column.path_in_schema in texts and not (page is not None and listed):
                largest = max(largest, header[2], header[3])
            place += length + header[3]
        if values != group.num_rows:
            raise TableError("does not hold the rows that it says")
    return largest


def _check_texts(file: pq.ParquetFile, texts: list[str], left: int) -> None:
    """The lengths of all texts, as often as they occur, against the bytes that are left."""
    import pyarrow.compute as pc

    for batch in file.iter_batches(_BATCH, columns=texts) if texts else ():
        for column in batch.columns:
            lengths = pc.binary_length(column.dictionary)
            longest = pc.max(lengths).as_py() or 0
            if longest > LONGEST_TEXT:
                raise TableError(f"has a text of {longest:,} bytes, and {LONGEST_TEXT:,} are the most")
            left -= pc.sum(lengths.take(column.indices)).as_py() or 0
        if left < 0:
            raise TableError(f"decodes to more than {MOST_DECODED:,} bytes, which are the most")


def _struct(data: memoryview, at: int) -> tuple[dict[int, Any], int]:
    """A struct in Thrift's compact protocol by the numbers of its fields, and where it ends."""
    found: dict[int, Any] = {}
    number = 0
    while (head := data[at]) != 0:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _number(data, at)
        found[number], at = _value(head & 15, data, at)
    return found, at + 1


def _value(kind: int, data: memoryview, at: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        return _number(data, at)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        length, at = _varint(data, at)
        return None, at + length
    if kind == 12:
        return _struct(data, at)
    raise TableError("is not a Parquet file")


def _number(data: memoryview, at: int) -> tuple[int, int]:
    found, at = _varint(data, at)
    return (found >> 1) ^ -(found & 1), at


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 127) << shift
        shift += 7
        if byte < 128 or shift > 63:
            return found, at
