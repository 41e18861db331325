"""Claims about how a bundle is packed: one way to write it, many ways to read it, and nothing hostile gets further."""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate.verification.bundle import archive as archive_module
from ablate.verification.bundle import container
from ablate.verification.bundle.archive import Source, UnsoundError, is_safe, measure, write_archive
from ablate.verification.bundle.container import Packing, is_bundle, opened
from prereg.errors import StudyFileError

FILES = {"MANIFEST.json": b"{}", "data/a.txt": b"one", "data/b/c.txt": b"", "studies/x.yaml": b"two\n" * 9}


def packed(files: dict[str, bytes]) -> bytes:
    """The archive of some files, in the order given."""
    stream = io.BytesIO()
    write_archive(stream, [(source, measure(source)) for source in (Source(n, d) for n, d in files.items())])
    return stream.getvalue()


def packing(data: bytes, folder: Path) -> Packing:
    """Where the files of an archive lie, or why they do not."""
    path = folder / "x.zip"
    path.write_bytes(data)
    with opened(path) as bundle:
        return bundle.packing()


def read(data: bytes, folder: Path) -> dict[str, bytes]:
    """The files of an archive."""
    path = folder / "x.zip"
    path.write_bytes(data)
    with opened(path) as bundle:
        return {name: b"".join(member.pieces()) for name, member in bundle.packing().members.items()}


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
    packed: int | None = None
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
        packed = size if one.packed is None else one.packed
        crc32 = zlib.crc32(one.data) if one.crc32 is None else one.crc32
        fields = (20, one.flags, one.method, 0, 33, crc32, packed, size, len(one.name), len(one.extra))
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


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    assert read(packed(FILES), tmp_path) == FILES


def test_archives_made_by_hand_here_are_like_ours_where_they_do_not_lie() -> None:
    assert by_hand(Raw(b"a"), Raw(b"b", b"")) == packed({"MANIFEST.json": b"{}", "a": b"x", "b": b""})


BOMB = zlib.compress(bytes(10**7), 9)[2:-4]
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
    "a folder that leads up": (by_hand(Raw(b"../", b"")), "not a name"),
    "litter that leads up": (by_hand(Raw(b"../__MACOSX/evil")), "not a name"),
    "a hidden file": (by_hand(Raw(b".bashrc")), "not a name"),
    "an option": (by_hand(Raw(b"-rf")), "not a name"),
    "a device of Windows": (by_hand(Raw(b"data/NUL")), "not a name"),
    "a device with an ending": (by_hand(Raw(b"studies/aux.json")), "not a name"),
    "a device before a blank": (by_hand(Raw(b"com1 .txt/a")), "not a name"),
    "a blank at the end": (by_hand(Raw(b"evil ")), "not a name"),
    "a stream of a file": (by_hand(Raw(b"a:hidden")), "not a name"),
    "a dot at the end": (by_hand(Raw(b"evil.")), "not a name"),
    "letters beyond ASCII": (by_hand(Raw("évil".encode(), flags=0x800)), "not a name"),
    "a long name": (by_hand(Raw(b"a/" * 300 + b"a")), "not a name"),
    "a long part": (by_hand(Raw(b"a" * 256)), "not a name"),
    "one name twice": (by_hand(Raw(b"a", b"1"), Raw(b"a", b"2")), "the place of another"),
    "a second manifest": (by_hand(Raw(b"MANIFEST.json", b"[]")), "the place of another"),
    "two bundles": (packed({"a/MANIFEST.json": b"{}", "b/MANIFEST.json": b"{}"}), "outside the bundle's folder"),
    "a file next to the bundle's folder": (packed({"a/MANIFEST.json": b"{}", "b.txt": b""}), "outside the bundle's"),
    "names that differ by capitals": (by_hand(Raw(b"A"), Raw(b"a")), "the place of another"),
    "a file that is a folder too": (by_hand(Raw(b"a"), Raw(b"A/b")), "a file, and a folder"),
    "a link": (by_hand(Raw(b"a", b"/etc/passwd", attributes=0o120777 << 16)), "'a' is a symbolic link"),
    "a device": (by_hand(Raw(b"a", b"", attributes=0o060666 << 16)), "'a' is no plain file"),
    "a folder's attribute": (by_hand(Raw(b"a", b"", attributes=0o40755 << 16 | 16)), "is not named as one"),
    "a folder with contents": (by_hand(Raw(b"a/", b"x")), "a folder with contents"),
    "encryption": (by_hand(Raw(b"a", flags=1)), "is encrypted"),
    "a patch": (by_hand(Raw(b"a", flags=32)), "flags"),
    "a method nobody knows": (by_hand(Raw(b"a", method=99)), "by method 99: zip it again"),
    "two sizes": (by_hand(Raw(b"a", packed=1, size=2)), "has two sizes"),
    "sizes of the 64-bit form": (by_hand(Raw(b"a", size=0xFFFFFFFF, extra=b"\1\0\x10\0" + bytes(16))), "64-bit"),
    "a second name": (by_hand(Raw(b"a", extra=b"\x75\x70\6\0\1" + bytes(4) + b"b")), "a second name"),
    "sizes after the data that are not there": (by_hand(Raw(b"a", flags=8)), "overlap, or there are bytes"),
    "a size beyond the file": (by_hand(Raw(b"a", size=10**6)), "overlap, or there are bytes"),
    "a size that swallows the rest": (by_hand(Raw(b"a", size=60), Raw(b"b")), "overlap, or there are bytes"),
    "members that overlap": (by_hand(Raw(b"a"), Raw(b"b", offset=45)), "overlap|damaged"),
    "another name in the directory": (by_hand(Raw(b"a", listed=b"b")), "differs from its entry"),
    "bytes between members": (by_hand(Raw(b"a", before=b"hidden")), "overlap, or there are bytes"),
    "bytes after the end": (by_hand(Raw(b"a")) + b"hidden", "bytes follow its end"),
    "an archive in the remark of another": (by_hand(comment=by_hand(Raw(b"a"))), "does not lie where"),
    "a second archive after the end": (by_hand(Raw(b"a")) + by_hand(Raw(b"a", b"other")), "does not lie where"),
    "no end": (by_hand(Raw(b"a"))[:-22], "cut off"),
    "half a directory": (by_hand(Raw(b"a"))[:-22] + by_hand(Raw(b"ab"))[-22:], "does not lie where"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_archive_that_could_be_taken_for_another_is_refused_and_says_why(attack: str, tmp_path: Path) -> None:
    data, said = ATTACKS[attack]
    with pytest.raises(UnsoundError, match=said) as raised:
        packing(data, tmp_path)
    assert str(raised.value).isprintable(), "a name from outside must not reach the terminal as it is"


UNPACKING: dict[str, tuple[Raw, str]] = {
    "a wrong checksum": (Raw(b"a", crc32=1), "checksum"),
    "a bomb": (Raw(b"a", BOMB, method=8, packed=len(BOMB), size=100), "expands beyond the size"),
    "a shorter text": (Raw(b"a", BOMB, method=8, packed=len(BOMB), size=10**8), "size and checksum"),
    "no deflated bytes": (Raw(b"a", b"\xff" * 9, method=8), "cannot be decompressed"),
    "a text cut off": (Raw(b"a", BOMB[:-9], method=8, packed=len(BOMB) - 9, size=10**8), "cut off"),
    "bytes after a text": (Raw(b"a", BOMB + b"x", method=8, packed=len(BOMB) + 1, size=10**8), "goes on after its end"),
}


@pytest.mark.parametrize("attack", UNPACKING)
def test_contents_that_are_not_what_their_header_says_are_refused(attack: str, tmp_path: Path) -> None:
    member, said = UNPACKING[attack]
    with pytest.raises(UnsoundError, match=said):
        read(by_hand(member), tmp_path)


@pytest.mark.parametrize("data", [b"", b"PK", b"study: tiny\n" * 9, packed({"a": b""}), b"MZ" + packed(FILES)])
def test_what_does_not_begin_as_an_archive_or_has_no_manifest_is_no_bundle(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(StudyFileError, match="not a bundle"):
        packing(data, tmp_path)


def zipped(folder: Path, **how: Any) -> bytes:
    """The files, as Python's own zipfile packs them: later dates, and whatever `how` says."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", **how) as opened_file:
        for name in reversed(FILES):
            opened_file.writestr(name, FILES[name])
    return stream.getvalue()


class Unseekable(io.BytesIO):
    """A stream on which no size can be written afterwards."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise OSError

    seek = None  # type: ignore[assignment]


def streamed() -> bytes:
    """The files, as they are packed into a pipe: sizes after the data, as macOS and Java write them."""
    stream = Unseekable()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as opened_file:
        for name, data in FILES.items():
            opened_file.writestr(name, data)
    return stream.getvalue()


def test_other_orders_dates_and_compressions_hold_the_same_files(tmp_path: Path) -> None:
    ways = [zipped(tmp_path), zipped(tmp_path, compression=zipfile.ZIP_DEFLATED), streamed()]
    assert [way.count(b"PK\7\x08") for way in ways] == [0, 0, 4]
    for way in ways:
        assert read(way, tmp_path) == FILES
    with pytest.raises(UnsoundError, match="method 12: zip it again with the usual compression"):
        read(zipped(tmp_path, compression=zipfile.ZIP_BZIP2), tmp_path)


INFO_ZIP = {
    "as it is": ["-r", "x.zip", "."],
    "a folder around it, and folders of their own": ["-r", "x.zip", "given"],
    "without folders": ["-r", "-D", "x.zip", "given"],
    "the other way round": ["x.zip", "-@"],
    "with a remark": ["-r", "-z", "x.zip", "given"],
    "stored": ["-r", "-0", "x.zip", "given"],
    "tried hard": ["-r", "-9", "x.zip", "given"],
}


@pytest.mark.skipif(shutil.which("zip") is None, reason="no zip program is here")
@pytest.mark.parametrize("way", INFO_ZIP)
def test_what_the_zip_program_makes_of_them_holds_the_same_files(way: str, tmp_path: Path) -> None:
    for name, data in FILES.items():
        path = tmp_path / "given" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "given" / ".DS_Store").write_bytes(b"litter")
    words = {"the other way round": "\n".join(f"given/{name}" for name in reversed(FILES))}.get(way, "A remark.\n.\n")
    words_of = tmp_path / "given" if way == "as it is" else tmp_path
    done = subprocess.run(
        ["zip", "-q", *INFO_ZIP[way]], cwd=words_of, input=words, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    data = (words_of / "x.zip").read_bytes()
    assert read(data, tmp_path) == FILES
    found = packing(data, tmp_path)
    assert found.inside == ("" if way == "as it is" else "given")
    assert {name.rpartition("/")[2] for name in found.ignored} == (set() if "other way" in way else {".DS_Store"})


def test_a_folder_holds_the_same_files_and_no_link(tmp_path: Path) -> None:
    folder = tmp_path / "given"
    for name, data in FILES.items():
        (folder / "bundle" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "bundle" / name).write_bytes(data)
    (folder / "__MACOSX").mkdir()
    (folder / "__MACOSX" / "._bundle").write_bytes(b"litter")
    assert is_bundle(folder) and is_bundle(folder / "bundle") and not is_bundle(tmp_path)
    with opened(folder) as bundle:
        found = bundle.packing()
    assert {name: b"".join(member.pieces()) for name, member in found.members.items()} == FILES
    assert (found.inside, found.ignored) == ("bundle", ("__MACOSX/._bundle",))
    for link in (folder / "bundle" / "data" / "more", folder / "bundle" / "studies" / "y.yaml"):
        link.symlink_to(tmp_path)
        with opened(folder) as bundle, pytest.raises(UnsoundError, match="is a symbolic link"):
            bundle.packing()
        link.unlink()
    os.mkfifo(folder / "bundle" / "data" / "pipe")
    with opened(folder) as bundle, pytest.raises(UnsoundError, match="no plain file"):
        bundle.packing()


def test_python_zipfile_would_have_read_what_is_refused_here() -> None:
    # Why the headers are not left to it: it reads on as if nothing were wrong, and another program reads other files.
    for attack in ("bytes between members", "a second archive after the end", "a second name"):
        with zipfile.ZipFile(io.BytesIO(ATTACKS[attack][0])) as opened_file:
            assert opened_file.testzip() is None, attack


def test_an_archive_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    data = packed(FILES)
    for size in range(0, len(data), 5):
        with pytest.raises((UnsoundError, StudyFileError)):
            packing(data[:size], tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.dictionaries(
        st.from_regex(r"[a-z]{1,3}/[a-z]{1,3}\.x", fullmatch=True), st.binary(max_size=40), max_size=4
    ),
    place=st.floats(0, 1, exclude_max=True),
    change=st.integers(1, 255),
)
def test_one_changed_byte_anywhere_is_refused_or_changes_no_file(
    files: dict[str, bytes], place: float, change: int, tmp_path: Path
) -> None:
    held = {"MANIFEST.json": b"{}"} | {name: files[name] for name in sorted(files)}
    data = bytearray(packed(held))
    assert read(bytes(data), tmp_path) == held
    data[int(place * len(data))] ^= change
    # Dates and attributes may be other ones; of a folder named otherwise the manifest knows nothing.
    try:
        found = read(bytes(data), tmp_path)
    except (UnsoundError, StudyFileError):
        return
    assert found == held


def test_limits_hold_while_reading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = packed(FILES)
    monkeypatch.setattr(container, "MOST_MEMBERS", len(FILES))
    assert len(packing(data, tmp_path).members) == len(FILES)
    monkeypatch.setattr(container, "MOST_MEMBERS", len(FILES) - 1)
    with pytest.raises(UnsoundError, match="more than 3 files"):
        packing(data, tmp_path)
    monkeypatch.setattr(archive_module, "LARGEST_BYTES", len(data) - 1)
    with pytest.raises(UnsoundError, match="at most"):
        packing(data, tmp_path)


def test_contents_that_change_between_two_readings_are_found() -> None:
    source = Source("a", b"now")
    with pytest.raises(UnsoundError, match="changed while it was read"):
        write_archive(io.BytesIO(), [(source, measure(Source("a", b"old")))])


def test_names_of_every_file_of_a_house_are_safe() -> None:
    names: list[Any] = [
        "studies/embnorm.lock.json",
        "studies/my-study_2.v1.1a2b3c4d.2.sig",
        "data/runs/s/0a1b2c3d/high-none-wide/2147483647/metrics.parquet",
        "my studies/x.yaml",
        "studies/console.com10.auxiliary.yaml",
    ]
    assert all(map(is_safe, names))
