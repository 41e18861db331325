"""Token ids in shards: taken in, verified, read where they lie, over the borders of files; never trusted unread."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import House
from hypothesis import given, settings
from hypothesis import strategies as st
from test_data_study import QUIET, document

import ablate as api
from ablate import cli
from ablate.data import shards as shards_module
from ablate.data.batches import Batches
from ablate.data.corpora import Library
from ablate.data.reading import read_corpus
from ablate.data.shards import StoredTokens, open_shards, take_in
from ablate.evaluation.loss import windows
from ablate.records.gather import gather
from ablate.verification.pins import pin_items
from ablate.workspace import Workspace
from prereg.errors import CorpusError, StudyError
from prereg.study.corpora import Stored, read_manifest
from prereg.study.training import Data

VOCABULARY = 40


def ids(n: int, seed: int = 0) -> np.ndarray:
    """Ids with some structure to learn."""
    return (np.cumsum(np.random.default_rng(seed).integers(0, 3, n)) % VOCABULARY).astype(np.int64)


def store(folder: Path, *sizes: int, stored: Stored = "uint16", seed: int = 0) -> np.ndarray:
    """Shards of the given sizes; returns their concatenation."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = ids(sum(sizes), seed)
    for number, part in enumerate(np.split(whole, np.cumsum(sizes)[:-1])):
        (folder / f"part_{number:04d}.bin").write_bytes(part.astype("<u2" if stored == "uint16" else "<u4").tobytes())
    return whole


def held(arrays: list[np.ndarray]) -> StoredTokens:
    return StoredTokens(
        tuple(array.astype("<u2") for array in arrays),
        np.cumsum([len(array) for array in arrays]),
        VOCABULARY,
        0,
        sum(map(len, arrays)),
    )


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.data())
def test_a_slice_is_that_of_the_concatenation_wherever_files_end(sizes: list[int], data: st.DataObject) -> None:
    whole = ids(sum(sizes))
    tokens = held(np.split(whole, np.cumsum(sizes)[:-1]))
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    assert tokens[start:stop].tolist() == whole[start:stop].tolist()
    part = tokens.part(start, stop)
    assert len(part) == stop - start
    assert part[0 : len(part)].tolist() == whole[start:stop].tolist()


@pytest.mark.parametrize("stored", ["uint16", "uint32"])
def test_batches_and_windows_are_those_of_the_same_ids_in_memory(tmp_path: Path, stored: Stored) -> None:
    whole = store(tmp_path / "s", 50, 3, 70, stored=stored)
    manifest = take_in("mine", tmp_path / "s", tmp_path / "cache", vocabulary=VOCABULARY, stored=stored)
    tokens = open_shards(manifest, tmp_path / "cache")["train"]
    for step in range(1, 30):
        stored_batch = Batches(tokens, context=8, batch=4, seed=1).at(step)
        in_memory = Batches(whole, context=8, batch=4, seed=1).at(step)
        assert stored_batch[2] == in_memory[2]
        assert stored_batch[0].dtype == in_memory[0].dtype
    for one, other in zip(windows(tokens, 7), windows(whole, 7), strict=True):
        assert [part.tolist() for part in one] == [part.tolist() for part in other]


def test_the_validation_part_is_the_end_of_the_concatenation_or_its_own_folder(tmp_path: Path) -> None:
    library = Library.of(tmp_path / "data" / "corpora", {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    whole = store(tmp_path / "s", 60, 40)
    library.keep(take_in("end", tmp_path / "s", tmp_path / "cache", vocabulary=VOCABULARY))
    split = read_corpus(library, Data(corpus="end", tokenizer="own", validation=0.5)).split
    assert (len(split.train), len(split.validation)) == (50, 50)  # type: ignore[arg-type]
    assert split.validation[0:50].tolist() == whole[50:].tolist()  # type: ignore[index]
    train, other = store(tmp_path / "t" / "train", 30), store(tmp_path / "t" / "validation", 20, seed=1)
    library.keep(take_in("own", tmp_path / "t", tmp_path / "cache", vocabulary=VOCABULARY))
    split = read_corpus(library, Data(corpus="own", tokenizer="own", validation="own")).split
    assert split.train[0:30].tolist() == train.tolist()  # type: ignore[index]
    assert split.validation[0:20].tolist() == other.tolist()  # type: ignore[index]
    with pytest.raises(CorpusError, match="validation part of its own"):
        read_corpus(library, Data(corpus="own", tokenizer="own", validation=0.1))


def test_shards_are_no_text_and_a_text_is_no_shards(tmp_path: Path) -> None:
    library = Library.of(tmp_path / "data" / "corpora", {})
    store(tmp_path / "s", 60)
    library.keep(take_in("mine", tmp_path / "s", tmp_path / "cache", vocabulary=VOCABULARY))
    with pytest.raises(CorpusError, match="stored as token ids and has no text"):
        read_corpus(library, Data(corpus="mine"))
    with pytest.raises(CorpusError, match="'toy' is a text"):
        read_corpus(library, Data(tokenizer="own"))


def test_an_id_beyond_the_vocabulary_is_refused_when_taken_in_and_when_read(tmp_path: Path) -> None:
    store(tmp_path / "s", 60)
    with pytest.raises(CorpusError, match="holds token id") as caught:
        take_in("mine", tmp_path / "s", tmp_path / "cache", vocabulary=20)
    assert "--vocabulary" in caught.value.fix
    lied = StoredTokens((ids(60).astype("<u2"),), np.array([60]), 20, 0, 60)
    with pytest.raises(CorpusError, match="their vocabulary has 20 entries"):
        lied.windows(np.array([0, 30]), 20)


def test_what_is_no_folder_of_ids_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    with pytest.raises(CorpusError, match="holds no shards"):
        take_in("mine", folder, tmp_path / "cache", vocabulary=VOCABULARY)
    (folder / "one.bin").write_bytes(b"\0\0\0")
    with pytest.raises(CorpusError, match="has 3 bytes"):
        take_in("mine", folder, tmp_path / "cache", vocabulary=VOCABULARY)
    (folder / "one.bin").write_bytes(b"")
    with pytest.raises(CorpusError, match="has 0 bytes"):
        take_in("mine", folder, tmp_path / "cache", vocabulary=VOCABULARY)
    header = np.zeros(256, dtype="<i4")
    header[:3] = 20240520, 1, 50
    (folder / "one.bin").write_bytes(header.tobytes() + ids(50).astype("<u2").tobytes())
    with pytest.raises(CorpusError, match=r"header of llm\.c"):
        take_in("mine", folder, tmp_path / "cache", vocabulary=60_000)
    store(folder, 20)
    (folder / "one.bin").unlink()
    store(folder / "train", 20)
    with pytest.raises(CorpusError, match="next to the folders"):
        take_in("mine", folder, tmp_path / "cache", vocabulary=VOCABULARY)
    (tmp_path / "lengths.json").write_text("[1, 2]")
    with pytest.raises(CorpusError, match="not a list of 40 numbers"):
        take_in(
            "mine", folder / "train", tmp_path / "cache", vocabulary=VOCABULARY, byte_lengths=tmp_path / "lengths.json"
        )


def test_a_manifest_comes_back_as_it_was_written_and_an_edited_one_is_refused(tmp_path: Path) -> None:
    library = Library.of(tmp_path / "corpora", {})
    store(tmp_path / "s", 60, 40)
    manifest = take_in("mine", tmp_path / "s", tmp_path / "cache", vocabulary=VOCABULARY, licence="mine")
    library.keep(manifest)
    path = tmp_path / "corpora" / "mine" / "manifest.json"
    assert read_manifest(path, "mine") == manifest
    fields = json.loads(path.read_text())
    shards = fields["shards"]
    for field, value in (("vocabulary", 41), ("stored", "uint32"), ("files", shards["files"][::-1])):
        path.write_text(json.dumps(fields | {"shards": shards | {field: value}}))
        with pytest.raises(CorpusError, match="is not a corpus manifest"):
            read_manifest(path, "mine")
    escaping = shards["files"][0] | {"name": "../../escape.bin"}
    path.write_text(json.dumps(fields | {"shards": shards | {"files": [escaping]}}))
    with pytest.raises(CorpusError, match="no file name"):
        read_manifest(path, "mine")


def test_a_shard_that_changed_shrank_or_is_gone_is_refused_by_name(tmp_path: Path) -> None:
    store(tmp_path / "s", 60, 40)
    manifest = take_in("mine", tmp_path / "s", tmp_path / "cache", vocabulary=VOCABULARY)
    open_shards(manifest, tmp_path / "cache")
    second = tmp_path / "s" / "part_0001.bin"
    whole = second.read_bytes()
    second.write_bytes(bytes(reversed(whole)))
    with pytest.raises(CorpusError, match=r"part_0001\.bin has another content"):
        open_shards(manifest, tmp_path / "cache")
    second.write_bytes(whole[:-2])
    with pytest.raises(CorpusError, match=r"part_0001\.bin has 78 bytes"):
        open_shards(manifest, tmp_path / "cache")
    second.unlink()
    with pytest.raises(CorpusError, match=r"part_0001\.bin is not here"):
        open_shards(manifest, tmp_path / "cache")


def test_a_shard_is_hashed_once_and_again_whenever_the_file_system_says_it_was_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Path] = []
    real = shards_module.sha256_file

    def counted(path: Path) -> str:
        hashed.append(path)
        return real(path)

    monkeypatch.setattr(shards_module, "sha256_file", counted)
    store(tmp_path / "s", 60, 40)
    manifest = take_in("mine", tmp_path / "s", tmp_path / "cache", vocabulary=VOCABULARY)
    for _ in range(3):
        open_shards(manifest, tmp_path / "cache")
    assert hashed == []  # every byte was read when they were taken in
    for _ in range(3):
        open_shards(manifest, tmp_path / "another")
    assert len(hashed) == 2
    # The same bytes and the same time of change, written anew: the time of status change cannot be set back.
    first = tmp_path / "s" / "part_0000.bin"
    before, data = first.stat(), first.read_bytes()
    first.write_bytes(data)
    os.utime(first, ns=(before.st_atime_ns, before.st_mtime_ns))
    open_shards(manifest, tmp_path / "cache")
    assert hashed[2:] == [first]
    for note in (tmp_path / "cache" / "hashed").iterdir():
        note.write_text("{}")
    open_shards(manifest, tmp_path / "cache")
    assert len(hashed) == 5


def take(house: House, monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["ablate", "corpus", *map(str, words), "--root", str(house.path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def study_of(house: House, metric: str, **data: Any) -> Path:
    claimed = {"gain": {"claim": f"layernorm lowers {metric}", "smallest": 0.05}}
    return house.write(document({"corpus": "ids", "tokenizer": "own"} | data, hypotheses=claimed))


@pytest.mark.slow
def test_a_study_of_shards_runs_and_decides_and_verify_reads_every_byte(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = house.path / "ids"
    store(folder, 700, 900, 400)
    assert take(house, monkeypatch, "add", "ids", folder, "--vocabulary", str(VOCABULARY)) == 0
    assert "3 shards, 2,000 tokens" in capsys.readouterr().out
    assert take(house, monkeypatch, "show", "ids") == 0
    assert "bytes of each entry: not given" in capsys.readouterr().out
    assert take(house, monkeypatch, "list") == 0
    study = study_of(house, "val/loss")
    ran = api.run(study, workspace=api.Workspace(console=QUIET))
    assert ran.summary.complete, ran.summary.failed
    for path in house.path.glob("data/runs/*/*/*/*/run.json"):
        said = json.loads(path.read_text())["repetition"]["ids"]
        assert said["not_measured"] == "not measured, since ids show no lines" and said["lines"] is None
    pin = ran.registration.corpus
    assert pin is not None
    assert (pin.tokens, pin.characters) == (2000, 0)
    case = Workspace().open(study)
    assert "val/bits_per_byte" not in set(gather(case.root, ran.registration).metrics["metric"])
    assert api.decide(study).decision.status in ("decided", "inconclusive")
    assert next(pin_items(case.root, ran.registration)).note == "the registered shards"
    shard = folder / "part_0002.bin"
    shard.write_bytes(bytes(reversed(shard.read_bytes())))
    (fault,) = next(pin_items(case.root, ran.registration)).faults
    assert "are not the shards that were registered as 'ids'" in fault
    with pytest.raises(CorpusError, match="another content"):
        api.run(study, workspace=api.Workspace(console=QUIET))


@pytest.mark.slow
def test_bits_a_byte_are_claimed_only_where_the_bytes_of_an_id_are_known(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lengths = house.path / "ids", house.path / "lengths.json"
    store(folder, 1500)
    lengths.write_text(json.dumps([2] * VOCABULARY))
    assert take(house, monkeypatch, "add", "ids", folder, "--vocabulary", str(VOCABULARY)) == 0
    study = study_of(house, "val/bits_per_byte")
    before = house.snapshot()
    with pytest.raises(StudyError, match="do not say how many bytes an id is"):
        api.register(study)
    assert house.snapshot() == before
    words = ("add", "known", folder, "--vocabulary", str(VOCABULARY), "--byte-lengths", lengths)
    assert take(house, monkeypatch, *words) == 0
    ran = api.run(study_of(house, "val/bits_per_byte", corpus="known"), workspace=api.Workspace(console=QUIET))
    assert ran.summary.complete, ran.summary.failed
    rows = gather(Workspace().open(house.path / "studies" / "tiny.yaml").root, ran.registration).metrics
    final = rows[rows["step"] == rows["step"].max()].pivot_table(
        index=["variant", "seed"], columns="metric", values="value"
    )
    # Two bytes an id: bits a byte are nats / ln 2 / 2.
    assert np.allclose(final["val/bits_per_byte"], final["val/loss"] / np.log(2) / 2, rtol=1e-12)


@settings(max_examples=20)
@given(st.integers(1, 10**11))
def test_a_corpus_of_any_length_is_drawn_from_over_its_whole_length(length: int) -> None:
    starts = np.concatenate([Batches(_Endless(length + 8), 8, 16, 1).at(step)[0].numpy()[:, 0] for step in (1, 2, 3)])
    assert ((starts >= 0) & (starts < length)).all()
    if length > 10**6:
        assert starts.max() > 0.7 * length


class _Endless:
    """The id at each place is the place itself."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, where: slice) -> np.ndarray:
        return np.arange(where.start, where.stop)

    def windows(self, starts: np.ndarray, width: int) -> np.ndarray:
        return starts[:, None] + np.arange(width)
