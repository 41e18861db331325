"""Claims about how a bundle is packed: one way to write it, and whatever is not that is refused."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import struct
import subprocess
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate.verification import archive
from ablate.verification.archive import is_bundle, is_safe, unpacked, write_archive
from ablate.verification.manifest import LedgerPart, UnsoundError, bundle_manifest_bytes, this_tool
from prereg.errors import StudyFileError

LEDGER = "0"
FILES = {"0": b"", "data/a.txt": b"one", "data/b/c.txt": b"", "studies/x.yaml": b"two\n" * 9}
AGAIN = "zipped by another program: unpack it, and type: ablate verify FOLDER"


def listing(files: Mapping[str, bytes]) -> bytes:
    """A manifest that lists these files and is right about each."""
    ledger = LedgerPart(file=LEDGER, head="0" * 64, n_entries=0, n_withheld=0)
    members = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)} for name, data in files.items()
    }
    about = {"study": "x", "registration": "0" * 64, "left_out": [], "made_with": this_tool()}
    return bundle_manifest_bytes(ledger=ledger, members=members, **about)


def packed(files: Mapping[str, bytes]) -> bytes:
    """The archive of some files and their manifest."""
    stream = io.BytesIO()
    write_archive(stream, {"MANIFEST.json": listing(files), **files})
    return stream.getvalue()


def read(data: bytes, folder: Path) -> dict[str, bytes]:
    """The files of an archive but its manifest, or why there are none."""
    path = folder / "x.zip"
    path.write_bytes(data)
    return files_in(path)


def files_in(path: Path) -> dict[str, bytes]:
    with unpacked(path) as found:
        here = {file.relative_to(found.folder).as_posix(): file for file in found.folder.rglob("*") if file.is_file()}
        return {name: file.read_bytes() for name, file in here.items() if name != "MANIFEST.json"}


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
    held: bytes | None = None
    """What the manifest says of its contents."""


def by_hand(*members: Raw, comment: bytes = b"", count: int | None = None) -> bytes:
    """A zip archive such as any program may write, with a manifest that lists the members given: what is refused of it
    is refused for nothing but its packing."""
    listed = {
        (one.listed or one.name).partition(b"\0")[0].decode(): one.data if one.held is None else one.held
        for one in members
    }
    body, directory = b"", b""
    whole = (Raw(b"MANIFEST.json", listing({LEDGER: b""} | listed)), Raw(LEDGER.encode(), b""), *members)
    for one in whole:
        body += one.before
        offset = len(body) if one.offset is None else one.offset
        size = len(one.data) if one.size is None else one.size
        packed = size if one.packed is None else one.packed
        crc32 = zlib.crc32(one.data) if one.crc32 is None else one.crc32
        fields = (20, one.flags, one.method, 0, 33, crc32, packed, size, len(one.name), len(one.extra))
        body += struct.pack("<4sHHHHHIIIHH", b"PK\3\4", *fields) + one.name + one.extra + one.data
        name = one.listed or one.name
        named = (*fields[:8], len(name), 0, len(one.comment), 0, 0, one.attributes, offset)
        directory += struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 788, *named) + name + one.comment
    n = len(whole) if count is None else count
    end = (0, 0, n, n, len(directory), len(body), len(comment))
    return body + directory + struct.pack("<4sHHHHIIH", b"PK\5\6", *end) + comment


def test_any_zip_program_opens_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(packed(FILES))) as opened:
        assert opened.testzip() is None
        assert {name: opened.read(name) for name in opened.namelist()[1:]} == FILES
        assert {one.date_time for one in opened.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert opened.namelist() == ["MANIFEST.json", *sorted(FILES)]


def test_the_same_files_give_the_same_bytes_wherever_they_come_from(tmp_path: Path) -> None:
    held: dict[str, Path | bytes] = {"MANIFEST.json": listing(FILES)}
    for number, (name, data) in enumerate(reversed(FILES.items())):
        held[name] = tmp_path / str(number)
        (tmp_path / str(number)).write_bytes(data)
    stream = io.BytesIO()
    write_archive(stream, held)
    assert stream.getvalue() == packed(FILES)


def test_these_are_the_bytes_that_a_bundle_has_for_ever() -> None:
    # By Python 3.8 to 3.13. A version whose `zipfile` wrote others would refuse every bundle that was written before.
    stream = io.BytesIO()
    write_archive(stream, {"MANIFEST.json": b"{}", "a b/c.txt": b"x" * 70_000})
    known = "399d80fe9099968ccb71938f37a32c787ebd40f1488eb6d2f0289dff1a31b057"
    assert hashlib.sha256(stream.getvalue()).hexdigest() == known


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    assert read(packed(FILES), tmp_path) == FILES


def test_archives_made_by_hand_here_are_like_ours_where_they_do_not_lie() -> None:
    assert by_hand(Raw(b"a"), Raw(b"b", b"")) == packed({"0": b"", "a": b"x", "b": b""})


BOMB = zlib.compress(bytes(10**7), 9)[2:-4]
END = 22
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
    "a folder that leads up": (by_hand(Raw(b"../", b"")), "is a folder"),
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
    "names that differ by capitals": (by_hand(Raw(b"A"), Raw(b"a")), "the place of another"),
    "a file that is a folder too": (by_hand(Raw(b"a"), Raw(b"A/b")), "a file, and a folder"),
    "a link": (by_hand(Raw(b"a", b"/etc/passwd", attributes=0o120777 << 16)), "not stored as a plain file"),
    "a device": (by_hand(Raw(b"a", b"", attributes=0o060666 << 16)), "not stored as a plain file"),
    "a program": (by_hand(Raw(b"a", b"", attributes=0o100755 << 16)), "not stored as a plain file"),
    "a folder's attribute": (by_hand(Raw(b"a", b"", attributes=0o40755 << 16 | 16)), "not stored as a plain file"),
    "a folder with contents": (by_hand(Raw(b"a/", b"x")), "is a folder"),
    "encryption": (by_hand(Raw(b"a", flags=1)), "compressed or encrypted"),
    "a patch": (by_hand(Raw(b"a", flags=32)), "compressed or encrypted"),
    "a method nobody knows": (by_hand(Raw(b"a", method=99)), "compressed or encrypted"),
    "a bomb": (by_hand(Raw(b"a", BOMB, method=8, packed=len(BOMB), size=100)), "compressed or encrypted"),
    "two sizes": (by_hand(Raw(b"a", packed=1, size=2)), "compressed or encrypted"),
    "sizes of the 64-bit form": (by_hand(Raw(b"a", size=0xFFFFFFFF, extra=b"\1\0\x10\0" + bytes(16))), "overlap"),
    "a second name": (by_hand(Raw(b"a", extra=b"\x75\x70\6\0\1" + bytes(4) + b"b")), AGAIN),
    "a field of another program": (by_hand(Raw(b"a", extra=b"UT\5\0\1" + bytes(4))), AGAIN),
    "sizes after the data that are not there": (by_hand(Raw(b"a", flags=8)), "compressed or encrypted"),
    "a size beyond the file": (by_hand(Raw(b"a", size=10**6)), "overlap"),
    "a size that swallows the rest": (by_hand(Raw(b"a", size=60), Raw(b"b")), "overlap"),
    "members that overlap": (by_hand(Raw(b"a"), Raw(b"b", offset=45)), "overlap"),
    "two names of one member": (by_hand(Raw(b"a"), Raw(b"b", offset=0)), "overlap"),
    "another name in the directory": (by_hand(Raw(b"a", listed=b"b")), "not the file that the manifest lists"),
    "a wrong checksum": (by_hand(Raw(b"a", crc32=1)), "not the file that the manifest lists"),
    "other bytes": (by_hand(Raw(b"a", held=b"y")), "not the file that the manifest lists"),
    "fewer bytes": (by_hand(Raw(b"a", held=b"xx")), "another size"),
    "bytes between members": (by_hand(Raw(b"a", before=b"hidden")), AGAIN),
    "a member that no entry names": (by_hand(Raw(b"a", before=b"PK\3\4" + bytes(26) + b"x")), AGAIN),
    "a remark of a member": (by_hand(Raw(b"a", comment=b"hidden")), AGAIN),
    "bytes after the end": (by_hand(Raw(b"a")) + b"hidden", "does not end as"),
    "a remark": (by_hand(Raw(b"a"), comment=b"hidden"), "does not end as"),
    "an archive in the remark of another": (by_hand(comment=by_hand(Raw(b"a"))), AGAIN),
    "a second archive after the end": (by_hand(Raw(b"a")) + by_hand(Raw(b"a", b"other")), AGAIN),
    "no end": (by_hand(Raw(b"a"))[:-END], "does not end as"),
    "half a directory": (by_hand(Raw(b"a"))[:-END] + by_hand(Raw(b"ab"))[-END:], "damaged|manifest|zipped by another"),
    "another number of members": (by_hand(Raw(b"a"), count=2), AGAIN),
    "more members than there may be": (by_hand(Raw(b"a"), count=20_001), "more than 20,000 files"),
    "a directory too long for its members": (by_hand(Raw(b"a", comment=b"x" * 9999)), "a directory that is too long"),
    "an older date": (by_hand(Raw(b"a")).replace(struct.pack("<HH", 0, 33), struct.pack("<HH", 0, 34)), AGAIN),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_archive_that_could_be_taken_for_another_is_refused_and_says_why(attack: str, tmp_path: Path) -> None:
    data, said = ATTACKS[attack]
    with pytest.raises((UnsoundError, StudyFileError), match=said) as raised:
        read(data, tmp_path)
    assert str(raised.value).isprintable(), "a name from outside must not reach the terminal as it is"
    assert [path.name for path in tmp_path.iterdir()] == ["x.zip"]


@pytest.mark.parametrize("data", [b"", b"PK", b"study: tiny\n" * 9, b"MZ" + packed(FILES)])
def test_what_does_not_begin_as_an_archive_is_no_bundle(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(StudyFileError, match="not a bundle"):
        read(data, tmp_path)


def test_an_archive_without_a_manifest_is_no_bundle(tmp_path: Path) -> None:
    stream = io.BytesIO()
    write_archive(stream, {"a": b""})
    with pytest.raises(StudyFileError, match="not a bundle"):
        read(stream.getvalue(), tmp_path)


def laid_out(folder: Path) -> Path:
    for name, data in {"MANIFEST.json": listing(FILES), **FILES}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def zipped(**how: Any) -> bytes:
    """The files as Python's own zipfile packs them: later dates, and whatever `how` says."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", **how) as opened:
        for name, data in {"MANIFEST.json": listing(FILES), **FILES}.items():
            opened.writestr(name, data)
    return stream.getvalue()


INFO_ZIP = {
    "as it is": ["-r", "x.zip", "."],
    "a folder around it, and folders of their own": ["-r", "x.zip", "given"],
    "without folders": ["-r", "-D", "x.zip", "given"],
    "with a remark": ["-r", "-z", "x.zip", "given"],
    "stored": ["-r", "-0", "-D", "-X", "x.zip", "."],
}


@pytest.mark.skipif(shutil.which("zip") is None or shutil.which("unzip") is None, reason="no zip program is here")
@pytest.mark.parametrize("way", INFO_ZIP)
def test_what_another_program_zipped_is_refused_and_checked_once_it_is_unpacked(way: str, tmp_path: Path) -> None:
    folder = laid_out(tmp_path / "given")
    inside = folder if INFO_ZIP[way][-1] == "." else tmp_path
    words = ["zip", "-q", *INFO_ZIP[way]]
    done = subprocess.run(words, cwd=inside, input="A remark.\n.\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.raises(UnsoundError, match=AGAIN):
        files_in(inside / "x.zip")
    subprocess.run(["unzip", "-q", inside / "x.zip", "-d", tmp_path / "out"], check=True, capture_output=True)
    assert files_in(tmp_path / "out") == FILES


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_other_dates_and_compressions_are_refused_with_what_to_type(compression: int, tmp_path: Path) -> None:
    with pytest.raises(UnsoundError, match=AGAIN):
        read(zipped(compression=compression), tmp_path)


def test_a_folder_holds_the_same_files_and_no_link(tmp_path: Path) -> None:
    folder = tmp_path / "given"
    bundle = laid_out(folder / "bundle")
    (folder / "__MACOSX").mkdir()
    (folder / "__MACOSX" / "._bundle").write_bytes(b"litter")
    (bundle / "data" / ".DS_Store").write_bytes(b"litter")
    assert is_bundle(folder) and is_bundle(bundle) and not is_bundle(tmp_path)
    assert files_in(folder) == files_in(bundle) == FILES
    for link in (bundle / "data" / "more", bundle / "studies" / "y.yaml", bundle / "data" / ".DS_Store.lnk"):
        link.symlink_to(tmp_path)
        with pytest.raises(UnsoundError, match="is a symbolic link"):
            files_in(folder)
        link.unlink()
    os.mkfifo(bundle / "data" / "pipe")
    with pytest.raises(UnsoundError, match="no plain file"):
        files_in(folder)


def test_python_zipfile_would_have_read_what_is_refused_here() -> None:
    # Why its reading alone is not enough: it reads on as if nothing were wrong, and another program reads other files.
    for attack in ("bytes between members", "a second archive after the end", "a second name", "a remark of a member"):
        with zipfile.ZipFile(io.BytesIO(ATTACKS[attack][0])) as opened:
            assert opened.testzip() is None, attack


def test_an_archive_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    data = packed(FILES)
    for size in range(0, len(data), 7):
        with pytest.raises((UnsoundError, StudyFileError)):
            read(data[:size], tmp_path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
def test_one_changed_byte_anywhere_is_refused(place: float, change: int, tmp_path: Path) -> None:
    data = bytearray(packed(FILES))
    data[int(place * len(data))] ^= change
    with pytest.raises((UnsoundError, StudyFileError)):
        read(bytes(data), tmp_path)


def test_limits_hold_before_anything_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data, folder = packed(FILES), laid_out(tmp_path / "given")
    monkeypatch.setattr(archive, "MOST_MEMBERS", len(FILES) + 1)
    assert read(data, tmp_path) == files_in(folder) == FILES
    monkeypatch.setattr(archive, "MOST_MEMBERS", len(FILES))
    for refused in (lambda: read(data, tmp_path), lambda: files_in(folder)):
        with pytest.raises(UnsoundError, match="more than 4 files"):
            refused()
    monkeypatch.undo()
    monkeypatch.setattr(archive, "LARGEST_TEXT", 10)
    with pytest.raises(UnsoundError, match="a text at most 10"):
        files_in(folder)
    monkeypatch.setattr(archive, "LARGEST_BYTES", len(data) - 1)
    with pytest.raises(UnsoundError, match="at most"):
        read(data, tmp_path)


def test_names_of_every_file_of_a_house_are_safe() -> None:
    names = [
        "studies/embnorm.lock.json",
        "studies/my-study_2.v1.1a2b3c4d.2.sig",
        "data/runs/s/0a1b2c3d/high-none-wide/2147483647/metrics.parquet",
        "my studies/x.yaml",
        "studies/console.com10.auxiliary.yaml",
    ]
    assert all(map(is_safe, names))
