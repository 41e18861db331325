"""Corpora: found, verified, fetched, or refused with one message that says everything."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ablate.data.corpora import KNOWN, Library, Manifest
from prereg.errors import CorpusError
from prereg.registry.canon import sha256_bytes
from prereg.study.corpora import TextFile, of_two

TEXT = b"to be or not to be\n"


@pytest.fixture
def server() -> Iterator[str]:
    """A real server on loopback that serves TEXT at /good and something else at /bad."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = {"/good": TEXT, "/bad": b"something else\n"}.get(self.path)
            self.send_response(200 if body else 404)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def library(tmp_path: Path, address: str | None = None) -> Library:
    manifest = Manifest("pinned", sha256_bytes(TEXT), len(TEXT), address, "none")
    whole = Library.of(
        tmp_path / "own", {"XDG_CACHE_HOME": str(tmp_path / "cache"), "ABLATE_CORPORA": str(tmp_path / "listed")}
    )
    return replace(whole, known={"pinned": manifest})


def place(folder: Path, text: bytes) -> None:
    (folder / "pinned").mkdir(parents=True)
    (folder / "pinned" / "input.txt").write_bytes(text)


def test_the_search_path_is_listed_then_own_then_cache(tmp_path: Path) -> None:
    lib = library(tmp_path)
    assert lib.folders == (tmp_path / "listed", tmp_path / "own", tmp_path / "cache" / "ablate" / "corpora")
    for folder in reversed(lib.folders):
        place(folder, TEXT)
        assert lib.find("pinned").found == str(folder / "pinned" / "input.txt")


def test_a_corpus_with_the_wrong_text_is_refused_by_its_hash(tmp_path: Path) -> None:
    lib = library(tmp_path)
    place(lib.own, b"something else")
    with pytest.raises(CorpusError) as caught:
        lib.find("pinned")
    assert sha256_bytes(b"something else") in caught.value.found
    assert sha256_bytes(TEXT) in caught.value.required


def test_a_missing_corpus_says_where_it_looked_what_it_tried_and_what_to_type(tmp_path: Path) -> None:
    lib = library(tmp_path, "http://127.0.0.1:9/nothing")  # the discard port: refused at once
    with pytest.raises(CorpusError) as caught:
        lib.find("pinned")
    message = caught.value.text()
    for folder in lib.folders:
        assert str(folder) in message
    assert "http://127.0.0.1:9/nothing" in message
    assert "refused" in message
    assert "ablate corpus add pinned FILE" in message


def test_a_download_is_verified_and_kept(tmp_path: Path, server: str) -> None:
    lib = library(tmp_path, f"{server}/good")
    assert lib.find("pinned").text == TEXT.decode()
    assert lib.find("pinned", download=False).found == str(lib.own / "pinned" / "input.txt")


@pytest.mark.parametrize(("path", "reason"), [("bad", "is not pinned: its sha256 is"), ("gone", "404")])
def test_a_wrong_or_missing_download_leaves_nothing_behind(tmp_path: Path, server: str, path: str, reason: str) -> None:
    lib = library(tmp_path, f"{server}/{path}")
    with pytest.raises(CorpusError, match=reason):
        lib.find("pinned")
    assert not lib.own.exists()


def test_a_text_of_ones_own_is_found_again_under_its_name(tmp_path: Path) -> None:
    lib = library(tmp_path)
    file = tmp_path / "mine.txt"
    file.write_bytes("äöü\n".encode())
    lib.add("mine", file, licence="mine")
    assert lib.find("mine").text == "äöü\n"
    assert "mine" in lib.names()
    file.write_bytes(b"another text\n")
    with pytest.raises(CorpusError, match="already here with another text"):
        lib.add("mine", file)


def test_add_refuses_a_wrong_text_for_a_pinned_name_and_text_that_is_not_utf8(tmp_path: Path) -> None:
    lib = library(tmp_path)
    file = tmp_path / "wrong.txt"
    file.write_bytes(b"wrong")
    with pytest.raises(CorpusError, match="is not pinned"):
        lib.add("pinned", file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(CorpusError, match="not UTF-8 at byte 0"):
        lib.add("other", file)
    with pytest.raises(CorpusError, match="cannot name a corpus"):
        lib.add("../escape", file)


def test_an_unknown_name_gets_the_nearest_known_one(tmp_path: Path) -> None:
    with pytest.raises(CorpusError) as caught:
        Library.of(tmp_path, {}).find("tinyshakspeare")
    assert "did you mean 'tinyshakespeare'?" in caught.value.fix


def test_tinyshakespeare_here_is_the_pinned_text(shakespeare: Path) -> None:
    corpus = Library.of(shakespeare / "none").find("tinyshakespeare", download=False)
    assert len(set(corpus.text)) == 65
    assert corpus.manifest.size_bytes == len(corpus.text.encode()) == KNOWN["tinyshakespeare"].size_bytes


def two_files(tmp_path: Path) -> tuple[Path, Path]:
    train, held_out = tmp_path / "train.txt", tmp_path / "held.txt"
    train.write_bytes("größer\n".encode())
    held_out.write_bytes(b"smaller\n")
    return train, held_out


def test_a_text_with_a_validation_text_of_its_own_is_found_again_whole(tmp_path: Path) -> None:
    lib = library(tmp_path)
    train, held_out = two_files(tmp_path)
    manifest = lib.add("pair", train, held_out=held_out)
    found = lib.find("pair")
    assert (found.text, found.held_out) == ("größer\n", "smaller\n")
    assert lib.manifest("pair") == manifest
    assert manifest.own_validation and not lib.manifest("toy").own_validation
    assert manifest.size_bytes == 9 + 8
    # Either file changes what the name means.
    swapped = lib.add("swapped", held_out, held_out=train)
    assert len({manifest.sha256, swapped.sha256, lib.add("alone", train).sha256}) == 3


def test_each_file_of_a_corpus_is_checked_by_its_own_hash(tmp_path: Path) -> None:
    lib = library(tmp_path)
    train, held_out = two_files(tmp_path)
    lib.add("pair", train, held_out=held_out)
    (lib.own / "pair" / "validation.txt").write_bytes(b"another\n")
    with pytest.raises(CorpusError) as caught:
        lib.find("pair")
    assert sha256_bytes(b"another\n") in caught.value.found
    assert sha256_bytes(b"smaller\n") in caught.value.required
    (lib.own / "pair" / "validation.txt").unlink()
    with pytest.raises(CorpusError, match="is not here") as caught:
        lib.find("pair")
    assert "ablate corpus add pair input.txt --validation validation.txt" in caught.value.fix


def test_a_download_of_two_files_is_kept_only_when_both_are_right(tmp_path: Path, server: str) -> None:
    good, bad = (
        of_two(
            "pinned",
            (
                TextFile("a.txt", sha256_bytes(TEXT), len(TEXT), f"{server}/good"),
                TextFile("b.txt", sha256_bytes(second), len(second), f"{server}/{path}"),
            ),
            "none",
        )
        for second, path in ((b"something else\n", "bad"), (TEXT, "bad"))
    )
    lib = replace(library(tmp_path), known={"pinned": bad})
    with pytest.raises(CorpusError, match="is not pinned: its sha256 is"):
        lib.find("pinned")
    assert not lib.own.exists()
    lib = replace(lib, known={"pinned": good})
    assert lib.find("pinned").held_out == "something else\n"
    assert lib.find("pinned", download=False).found == str(lib.own / "pinned" / "a.txt")


def test_a_pinned_name_of_two_files_wants_both(tmp_path: Path) -> None:
    lib = Library.of(tmp_path, {})
    train, held_out = two_files(tmp_path)
    with pytest.raises(CorpusError, match="is 2 files, and 1 were given") as caught:
        lib.add("wikitext-2-heldout", train)
    assert "--validation valid.txt" in caught.value.fix
    with pytest.raises(CorpusError, match="is not wikitext-2-heldout"):
        lib.add("wikitext-2-heldout", train, held_out=held_out)
    assert list(tmp_path.glob("*/manifest.json")) == []


def test_wikitext_2_and_its_stand_in_share_the_validation_text_and_not_the_training_text() -> None:
    whole, stand_in = KNOWN["wikitext-2"], KNOWN["wikitext-2-heldout"]
    assert whole.texts[1] == stand_in.texts[1]
    assert whole.texts[0].sha256 != stand_in.texts[0].sha256
    assert whole.sha256 != stand_in.sha256
    assert all(one.address is not None and one.address.endswith(one.name) for one in whole.texts)


def test_wikitext_2_heldout_here_is_the_pinned_pair(shakespeare: Path) -> None:
    if not (shakespeare / "wikitext-2-heldout").is_dir():
        pytest.skip("wikitext-2-heldout is not beside tinyshakespeare")
    corpus = Library.of(shakespeare / "none").find("wikitext-2-heldout", download=False)
    assert corpus.held_out is not None
    assert (len(corpus.text.encode()), len(corpus.held_out.encode())) == (1_256_449, 1_121_681)
    assert corpus.manifest.own_validation
