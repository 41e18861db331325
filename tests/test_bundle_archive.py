"""Claims about a bundle's bytes: one way to write them, every one accounted for, and nothing hostile gets further."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.verification.bundle import archive
from ablate.verification.bundle.archive import (
    Slot,
    Source,
    UnsoundError,
    begins_a_bundle,
    contents,
    is_safe,
    measure,
    read_archive,
    write_archive,
)

FILES = {"MANIFEST.json": b"{}", "data/a.txt": b"one", "data/b/c.txt": b"", "studies/x.yaml": b"two\n" * 9}


def packed(files: dict[str, bytes]) -> bytes:
    """The archive of some files, in the order given."""
    stream = io.BytesIO()
    write_archive(stream, [(source, measure(source)) for source in (Source(n, d) for n, d in files.items())])
    return stream.getvalue()


def read(data: bytes) -> tuple[Slot, ...]:
    return read_archive(io.BytesIO(data))


@dataclass(frozen=True)
class Raw:
    """A member of an archive made by hand, any of its fields a lie."""

    name: bytes
    data: bytes = b"x"
    flags: int = 0
    method: int = 0
    extra: bytes = b""
    size: int | None = None
    crc32: int | None = None
    attributes: int = 0o100644 << 16
    offset: int | None = None
    comment: bytes = b""
    listed: bytes | None = None
    before: bytes = b""


def by_hand(*members: Raw, comment: bytes = b"") -> bytes:
    """A zip archive such as any program may write, the manifest before the members given."""
    body, listing = b"", b""
    for one in (Raw(b"MANIFEST.json", b"{}"), *members):
        body += one.before
        offset = len(body) if one.offset is None else one.offset
        size = len(one.data) if one.size is None else one.size
        crc32 = zlib.crc32(one.data) if one.crc32 is None else one.crc32
        fields = (10, one.flags, one.method, 0, 33, crc32, size, size, len(one.name), len(one.extra))
        body += struct.pack("<4sHHHHHIIIHH", b"PK\3\4", *fields) + one.name + one.extra + one.data
        name = one.listed or one.name
        named = (*fields[:8], len(name), 0, len(one.comment), 0, 0, one.attributes, offset)
        listing += struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 788, *named) + name + one.comment
    end = (0, 0, len(members) + 1, len(members) + 1, len(listing), len(body), len(comment))
    return body + listing + struct.pack("<4sHHHHIIH", b"PK\5\6", *end) + comment


def test_any_zip_program_opens_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(packed(FILES))) as opened:
        assert opened.testzip() is None
        assert {name: opened.read(name) for name in opened.namelist()} == FILES
        assert {one.date_time for one in opened.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_the_same_files_give_the_same_bytes_wherever_they_come_from(tmp_path: Path) -> None:
    stream = io.BytesIO()
    sources = []
    for number, (name, data) in enumerate(FILES.items()):
        path = tmp_path / str(number)
        path.write_bytes(data)
        sources.append(Source(name, path))
    write_archive(stream, [(source, measure(source)) for source in sources])
    assert stream.getvalue() == packed(FILES)


def test_what_is_read_is_what_was_written() -> None:
    data = packed(FILES)
    slots = read(data)
    assert [slot.name for slot in slots] == list(FILES)
    assert {slot.name: b"".join(contents(io.BytesIO(data), slot)) for slot in slots} == FILES


def test_archives_made_by_hand_here_are_like_ours_where_they_do_not_lie() -> None:
    assert by_hand(Raw(b"a"), Raw(b"b", b"")) == packed({"MANIFEST.json": b"{}", "a": b"x", "b": b""})


ATTACKS: dict[str, tuple[bytes, str]] = {
    "a way up": (by_hand(Raw(b"../evil")), "not a name"),
    "a way up inside": (by_hand(Raw(b"a/../../evil")), "not a name"),
    "the root": (by_hand(Raw(b"/etc/evil")), "not a name"),
    "a drive": (by_hand(Raw(b"C:/evil")), "not a name"),
    "a drive's own folder": (by_hand(Raw(b"C:evil")), "not a name"),
    "a share": (by_hand(Raw(b"//host/evil")), "not a name"),
    "backslashes": (by_hand(Raw(b"..\\evil")), "not a name"),
    "a NUL": (by_hand(Raw(b"good\0/../evil")), "not a name"),
    "an end of line": (by_hand(Raw(b"good\nevil")), "not a name"),
    "an escape for the terminal": (by_hand(Raw(b"\x1b[2Jgood")), "not a name"),
    "this folder": (by_hand(Raw(b"./evil")), "not a name"),
    "nothing between slashes": (by_hand(Raw(b"a//evil")), "not a name"),
    "no name": (by_hand(Raw(b"")), "not a name"),
    "a folder": (by_hand(Raw(b"a/", b"")), "not a name"),
    "a hidden file": (by_hand(Raw(b".bashrc")), "not a name"),
    "an option": (by_hand(Raw(b"-rf")), "not a name"),
    "a device of Windows": (by_hand(Raw(b"data/NUL")), "not a name"),
    "a device with an ending": (by_hand(Raw(b"studies/aux.json")), "not a name"),
    "a device before a blank": (by_hand(Raw(b"com1 .txt/a")), "not a name"),
    "a blank at the end": (by_hand(Raw(b"evil ")), "not a name"),
    "a stream of a file": (by_hand(Raw(b"a:hidden")), "not a name"),
    "a dot at the end": (by_hand(Raw(b"evil.")), "not a name"),
    "letters beyond ASCII": (by_hand(Raw("évil".encode())), "not a name"),
    "a long name": (by_hand(Raw(b"a/" * 300 + b"a")), "not a name"),
    "a long part": (by_hand(Raw(b"a" * 256)), "not a name"),
    "one name twice": (by_hand(Raw(b"a", b"1"), Raw(b"a", b"2")), "the place of another"),
    "a second manifest": (by_hand(Raw(b"MANIFEST.json", b"[]")), "the place of another"),
    "names that differ by capitals": (by_hand(Raw(b"A"), Raw(b"a")), "the place of another"),
    "a file that is a folder too": (by_hand(Raw(b"a"), Raw(b"a/b")), "the place of another"),
    "out of order": (by_hand(Raw(b"b"), Raw(b"a")), "out of order"),
    "a link": (by_hand(Raw(b"a", b"/etc/passwd", attributes=0o120777 << 16)), "the entry of 'a'"),
    "a device": (by_hand(Raw(b"a", b"", attributes=0o060666 << 16)), "the entry of 'a'"),
    "a folder's attribute": (by_hand(Raw(b"a", b"", attributes=0o40755 << 16 | 16)), "the entry of 'a'"),
    "a program": (by_hand(Raw(b"a", attributes=0o104755 << 16)), "the entry of 'a'"),
    "encryption": (by_hand(Raw(b"a", flags=1)), "is encrypted"),
    "sizes after the data": (by_hand(Raw(b"a", flags=8)), "flags"),
    "compression": (by_hand(Raw(b"a", zlib.compress(bytes(10**7))[2:-4], method=8)), "is compressed"),
    "a method nobody knows": (by_hand(Raw(b"a", method=99)), "is compressed"),
    "sizes of the 64-bit form": (by_hand(Raw(b"a", size=0xFFFFFFFF, extra=b"\1\0\x10\0" + bytes(16))), "extension"),
    "an extra field": (by_hand(Raw(b"a", extra=b"up\0\0")), "carries a field"),
    "a size beyond the file": (by_hand(Raw(b"a", size=10**6)), "longer than the file"),
    "a size that swallows the rest": (by_hand(Raw(b"a", size=60), Raw(b"b")), "checksum"),
    "a wrong checksum": (by_hand(Raw(b"a", crc32=1)), "checksum"),
    "members that overlap": (by_hand(Raw(b"a"), Raw(b"b", offset=45)), "the entry of 'b'"),
    "another name in the directory": (by_hand(Raw(b"a", listed=b"../evil")), "the entry of 'a'"),
    "a remark on a member": (by_hand(Raw(b"a", comment=b"hello")), "the entry of 'a'"),
    "a remark on the archive": (by_hand(Raw(b"a"), comment=b"hello"), "the end of the directory"),
    "bytes between members": (by_hand(Raw(b"a", before=b"hidden")), "the entry of 'MANIFEST.json'"),
    "bytes after the end": (by_hand(Raw(b"a")) + b"hidden", "6 bytes follow"),
    "a second archive after the end": (by_hand(Raw(b"a")) + by_hand(Raw(b"a", b"other")), "follow"),
    "bytes before the beginning": (b"MZ hidden" + by_hand(Raw(b"a")), "the end of the directory|directory|cut off"),
    "another first member": (packed({"a": b"x", "b": b"y"}), "first member"),
    "no end": (by_hand(Raw(b"a"))[:-22], "cut off"),
    "nothing": (b"", "cut off"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_archive_that_we_did_not_write_is_refused_and_says_why(attack: str) -> None:
    data, said = ATTACKS[attack]
    with pytest.raises(UnsoundError, match=said) as raised:
        read(data)
    assert str(raised.value).isprintable(), "a name from outside must not reach the terminal as it is"


def test_python_zipfile_would_have_read_what_is_refused_here() -> None:
    # Why the headers are not left to it: it reads on as if nothing were wrong.
    for attack in ("bytes before the beginning", "bytes between members", "a second archive after the end"):
        with zipfile.ZipFile(io.BytesIO(ATTACKS[attack][0])) as opened:
            assert opened.testzip() is None, attack


def test_an_archive_cut_off_anywhere_is_refused() -> None:
    data = packed(FILES)
    for size in range(len(data)):
        with pytest.raises(UnsoundError):
            read(data[:size])


@settings(max_examples=60, deadline=None)
@given(
    files=st.dictionaries(
        st.from_regex(r"[a-z]{1,3}/[a-z]{1,3}\.x", fullmatch=True), st.binary(max_size=40), max_size=4
    ),
    place=st.floats(0, 1, exclude_max=True),
    change=st.integers(1, 255),
)
def test_one_changed_byte_anywhere_is_refused(files: dict[str, bytes], place: float, change: int) -> None:
    ordered = {"MANIFEST.json": b"{}"} | {name: files[name] for name in sorted(files)}
    data = bytearray(packed(ordered))
    assert [slot.name for slot in read(bytes(data))] == list(ordered)
    data[int(place * len(data))] ^= change
    # A changed byte of contents and its checksum are two changes; the manifest's hashes are for those.
    with pytest.raises(UnsoundError):
        read(bytes(data))


def test_limits_hold_while_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    data = packed(FILES)
    monkeypatch.setattr(archive, "MOST_MEMBERS", len(FILES))
    assert len(read(data)) == len(FILES)
    monkeypatch.setattr(archive, "MOST_MEMBERS", len(FILES) - 1)
    with pytest.raises(UnsoundError, match="more than 3 members"):
        read(data)
    monkeypatch.setattr(archive, "LARGEST_BYTES", len(data) - 1)
    with pytest.raises(UnsoundError, match="at most"):
        read(data)


def test_contents_that_change_between_two_readings_are_found() -> None:
    data = packed(FILES)
    slot = read(data)[1]
    with pytest.raises(UnsoundError, match="changed while it was read"):
        list(contents(io.BytesIO(data), replace(slot, sha256="0" * 64)))
    source = Source("a", b"now")
    with pytest.raises(UnsoundError, match="changed while it was read"):
        write_archive(io.BytesIO(), [(source, measure(Source("a", b"old")))])


def test_only_a_zip_archive_that_begins_with_a_manifest_claims_to_be_a_bundle() -> None:
    def claims(data: bytes) -> bool:
        return begins_a_bundle(io.BytesIO(data))

    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as opened:
        opened.writestr("notes.txt", "hello")
    assert claims(packed(FILES))
    assert not any(map(claims, (b"", b"PK", b"study: tiny\n" * 9, other.getvalue(), packed({"a": b""}))))


def test_names_of_every_file_of_a_house_are_safe() -> None:
    names: list[Any] = [
        "studies/embnorm.lock.json",
        "studies/my-study_2.v1.1a2b3c4d.2.sig",
        "data/runs/s/0a1b2c3d/high-none-wide/2147483647/metrics.parquet",
        "my studies/x.yaml",
        "studies/console.com10.auxiliary.yaml",
    ]
    assert all(map(is_safe, names))
