"""Claims about bundles: whole, the same bytes each time, checked with nothing else, and no forgery of a part stands."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import House, tiny_document
from test_cli import ablate

import ablate as api
from ablate.judge.verdict import Decision
from ablate.runner.progress import PlainWatcher
from ablate.verification import evidence, manifest, rejudge
from ablate.verification.archive import write_archive
from ablate.verification.bundle import Bundled, write_bundle
from ablate.verification.manifest import bundle_manifest_bytes
from ablate.verification.result import BundleFacts, Verification
from ablate.verification.verify import verify_target
from ablate.workspace import Workspace, require_registered
from prereg.errors import EvidenceError, RegistrationError, StudyFileError, UnsupportedError
from prereg.registry.canon import canonical_bytes, sha256_bytes, sha256_of

Files = dict[str, bytes]
NO_PAGES: Mapping[str, bytes] = {}
SLICE = "studies/ledger.slice.jsonl"
QUIET = PlainWatcher(io.StringIO())


@pytest.fixture(scope="module")
def decided(trained: House, tmp_path_factory: pytest.TempPathFactory) -> House:
    """The tiny study, run and decided, in a house with another study."""
    made = trained.copy(tmp_path_factory.mktemp("decided") / "house")
    api.register(made.write(tiny_document(study="neighbour", seeds=[11, 12, 13])))
    api.decide(made.study)
    return made


@pytest.fixture(scope="module")
def bundle(decided: House) -> Path:
    """Its bundle."""
    return bundled(decided.path / "studies" / "tiny.yaml", out=decided.path.parent / "tiny.ablate.zip").path


@pytest.fixture
def registered(house: House) -> Path:
    """A study that is registered and no more."""
    study = house.write()
    api.register(study)
    return study


def checked(path: Path, pages: Mapping[str, bytes] = NO_PAGES) -> Verification:
    """The check without the seconds that drawing a report again takes; one test below takes them."""
    return verify_target(path, reports_of=lambda *_: pages)


def bundled(study: Path, *, out: Path, **options: bool) -> Bundled:
    """A bundle of a study, checked in the same way before it is left behind."""
    case = Workspace().open(study)
    return write_bundle(case.root, require_registered(case), out, check=checked, **options)


def files_of(path: Path) -> Files:
    with zipfile.ZipFile(path) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def unguided(files: Files) -> Files:
    """Files without what explains them."""
    return {name: data for name, data in files.items() if name != "README.txt" and not name.startswith("figures/")}


def forged(path: Path, files: Files, **changes: Any) -> Path:
    """A bundle written anew around changed files: the manifest, its hash and every checksum are right again."""
    manifest = json.loads(files["MANIFEST.json"])
    rest = {name: files[name] for name in sorted(files) if name != "MANIFEST.json"}
    fields = {key: manifest[key] for key in ("study", "registration", "ledger", "left_out", "made_with")} | changes
    members = {name: {"sha256": sha256_bytes(data), "size_bytes": len(data)} for name, data in rest.items()}
    rest["MANIFEST.json"] = bundle_manifest_bytes(members=members, **fields)
    with path.open("wb") as stream:
        write_archive(stream, rest)
    return path


def rechained(data: bytes, change: Callable[[dict[str, Any]], None]) -> tuple[bytes, str]:
    """A ledger with changed entries, every hash after them made right again; and its new head."""
    lines, previous = [], None
    renamed: dict[str, str] = {}
    for line in data.splitlines():
        entry = json.loads(line)
        before = entry["sha256"]
        if "body" in entry:
            change(entry)
            if entry["event"] == "reported":  # pages name the decision they tell by its hash
                entry["body"]["decision"] = renamed[entry["body"]["decision"]]
        if previous is not None:
            entry["previous"] = previous
        if "body" in entry:
            entry["sha256"] = sha256_of({key: value for key, value in entry.items() if key != "sha256"})
        previous = renamed[before] = entry["sha256"]
        lines.append(canonical_bytes(entry) + b"\n")
    assert previous is not None
    return b"".join(lines), previous


def faults(found: Verification) -> str:
    return "; ".join(fault for item in found.items for fault in item.faults)


def notes(found: Verification) -> str:
    return "; ".join(item.note or item.unchecked for item in found.items)


def facts(found: Verification) -> BundleFacts:
    assert found.bundle is not None, faults(found)
    return found.bundle


def test_a_bundle_stands_and_its_verdict_is_judged_again_to_the_same_bytes(bundle: Path) -> None:
    found = checked(bundle)
    assert found.intact, faults(found)
    said = {item.what: item.note for item in found.items}
    assert said["verdict judged again"].endswith("the same bytes")
    assert said["sealed records"] == "6 of 6 sealed runs hold"
    assert {item.what for item in found.unchecked} == {"entries of other studies", "final weights", "corpus 'tiny'"}
    assert all(item.fix for item in found.unchecked), "what to type so that it can be checked"
    assert facts(found).sha256 == sha256_bytes(bundle.read_bytes())
    assert facts(found).contents_sha256 == json.loads(files_of(bundle)["MANIFEST.json"])["sha256"]


def test_it_holds_what_the_house_holds_and_says_what_it_lacks(decided: House, bundle: Path) -> None:
    files, house = files_of(bundle), decided.snapshot()
    assert all(house[name] == data for name, data in unguided(files).items() if name not in ("MANIFEST.json", SLICE))
    assert sum(name.endswith(("run.json", "metrics.parquet")) for name in files) == 12
    assert {"reports/tiny/verdict.json", "reports/tiny/report.md", "reports/tiny/report.html"} < set(files)
    assert not any("weights" in name or "corpora" in name for name in files)
    said = " ".join(f"{one.what}: {one.why}" for one in facts(checked(bundle)).left_out)
    assert "weights of 6 runs" in said and "the corpus 'tiny'" in said and "of other studies (1 entry)" in said
    assert not any(str(decided.path).encode() in data for data in files.values()), "no path of the machine"


def test_a_reader_without_the_tool_finds_the_verdict_the_command_and_the_figures(bundle: Path) -> None:
    files = files_of(bundle)
    text = files["README.txt"].decode()
    told = " ".join(text.split())
    assert "keep none" in text and "ablate verify FOLDER-OR-FILE" in text and "n = 3" in told
    decision = Decision.model_validate_json(files["reports/tiny/verdict.json"])
    assert decision.findings
    for finding in decision.findings:
        assert f"- {finding.hypothesis}, {finding.outcome}: {finding.claim} (n = {finding.n})" in told
    assert max(map(len, text.splitlines())) <= 80
    assert json.loads(files["MANIFEST.json"])["ledger"]["head"] in text
    for name in files:
        assert name in told or name.startswith(("data/runs/", "figures/")), name
    figures = [data for name, data in files.items() if name.startswith("figures/")]
    assert len(figures) >= 3
    for data in figures:
        assert ElementTree.fromstring(data).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - our own drawing
        assert data.strip() in files["reports/tiny/report.html"]


@pytest.mark.parametrize("part", ["README.txt", "figures/figure-01.svg"])
def test_a_guide_that_says_something_else_is_found_by_writing_it_again(part: str, bundle: Path, tmp_path: Path) -> None:
    files = files_of(bundle)
    changed = files | {part: files[part].replace(b"layernorm", b"rmsnorm").replace(b"keep", b"drop") + b" "}
    assert f"{part}: not what the other files say" in faults(checked(forged(tmp_path / "f.zip", changed)))
    other = json.loads(files["MANIFEST.json"])["made_with"] | {"version": "0.0.1"}
    found = checked(forged(tmp_path / "g.zip", changed, made_with=other))
    assert found.intact and "as another version writes it" in notes(found) and part in notes(found)
    assert "README and figures" in {item.what for item in found.unchecked}


def test_other_studies_are_links_unless_asked_for(decided: House, bundle: Path, tmp_path: Path) -> None:
    assert not any(b"neighbour" in data for data in files_of(bundle).values())
    whole = bundled(decided.path / "studies" / "tiny.yaml", out=tmp_path / "w.ablate.zip", whole_ledger=True)
    ledger = files_of(whole.path)["studies/ledger.jsonl"]
    assert ledger == (decided.path / "studies" / "ledger.jsonl").read_bytes()
    assert whole.check.intact and whole.check.head == checked(bundle).head
    assert "1 entry withheld but for links" in notes(checked(bundle)) and "withheld" not in notes(whole.check)


def test_what_made_a_bundle_is_known_by_its_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = manifest.code_of_this_tool()
    (tmp_path / "prereg").mkdir()
    (tmp_path / "prereg" / "text.py").write_text("x = 1\n")
    monkeypatch.setattr(manifest, "SOURCE", tmp_path)
    first = manifest.code_of_this_tool()
    (tmp_path / "prereg" / "text.py").write_text("x = 2\n")
    assert len({before, first, manifest.code_of_this_tool(), sha256_of({})}) == 4


def test_the_same_study_gives_the_same_bytes_and_weights_only_when_asked(
    decided: House, bundle: Path, tmp_path: Path
) -> None:
    study = decided.path / "studies" / "tiny.yaml"
    again = bundled(study, out=tmp_path / "again.ablate.zip")
    assert again.path.read_bytes() == bundle.read_bytes()
    assert not bundled(study, out=again.path).written
    heavy = bundled(study, out=tmp_path / "heavy.ablate.zip", weights=True)
    assert sum(name.endswith("weights.safetensors") for name in files_of(heavy.path)) == 6


ALONE = """
import socket, sys
def refuse(*_, **__): raise AssertionError("the network was asked")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
sys.argv = ["ablate", "verify", *sys.argv[1:]]
from ablate import cli
try:
    cli.main()
finally:
    print("torch" in sys.modules)
"""


@pytest.mark.slow
def test_it_is_checked_elsewhere_with_no_house_no_corpus_no_network_and_no_torch(bundle: Path, tmp_path: Path) -> None:
    for folder in ("home", "here", "tmp", "given"):
        (tmp_path / folder).mkdir()
    copy = tmp_path / "given" / "supplement.bin"
    copy.write_bytes(bundle.read_bytes())
    copy.chmod(0o444)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(copy)],
        cwd=tmp_path / "here",
        env={
            "HOME": str(tmp_path / "home"),
            "TMPDIR": str(tmp_path / "tmp"),
            "PATH": "",
            "COLUMNS": "80",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "reports written again" in " ".join(done.stdout.split())
    assert (
        "3 items not checked:" in done.stdout
        and "as it was frozen" in done.stdout
        and done.stdout.splitlines()[-1] == "False"
    )
    # A path and a command are never broken: what is copied from there must be whole.
    prose = [line for line in done.stdout.splitlines() if not line.startswith("next:") and len(line.split()) > 1]
    assert max(len(line.rstrip()) for line in prose) <= 80
    assert list((tmp_path / "tmp").iterdir()) == [], "what was unpacked is gone"
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("page", ["report.md", "report.html"])
def test_a_report_that_tells_something_else_is_found_by_telling_it_again(
    page: str, bundle: Path, tmp_path: Path
) -> None:
    files = files_of(bundle)
    pages = {name: files[f"reports/tiny/{name}"] for name in ("report.md", "report.html")}
    said = checked(bundle, pages)
    assert said.intact and "report.md the same bytes; report.html the same bytes" in notes(said)
    lie = pages[page].replace(b"keep none", b"adopt layernorm", 1)
    assert lie != pages[page]
    lied = files | {f"reports/tiny/{page}": lie}
    plain = forged(tmp_path / "e.zip", lied)
    assert f"{page} is not what was written" in faults(checked(plain, pages)), "the ledger holds its hash"

    def change(entry: dict[str, Any]) -> None:
        if entry["event"] == "reported":
            entry["body"][page] = sha256_bytes(lie)

    lied[SLICE], head = rechained(files[SLICE], change)
    ledger = json.loads(files["MANIFEST.json"])["ledger"] | {"head": head}
    path = forged(tmp_path / "f.zip", lied, ledger=ledger)
    assert f"{page} is not what the decision gives here: {page} has another text" in faults(checked(path, pages))
    other = json.loads(files["MANIFEST.json"])["made_with"] | {"version": "0.0.1"}
    said = checked(forged(path, lied, ledger=ledger, made_with=other), pages)
    assert said.intact and "has another text" in notes(said) and "ablate 0.0.1" in notes(said)


def rewritten(files: Files, verdict: bytes, **body: str) -> tuple[Files, dict[str, Any]]:
    """A verdict put in the place of another, and a ledger written anew to say that it was always there."""

    def change(entry: dict[str, Any]) -> None:
        if entry["event"] == "decided":
            entry["body"]["verdict_sha256"] = sha256_bytes(verdict)
            entry["body"] |= {"verdict": json.loads(verdict)["verdict"], **body}

    ledger, head = rechained(files[SLICE], change)
    old = json.loads(files["MANIFEST.json"])["ledger"]
    return files | {SLICE: ledger, "reports/tiny/verdict.json": verdict}, old | {"head": head}


def test_a_made_up_verdict_with_a_ledger_to_match_is_found_by_judging_again(bundle: Path, tmp_path: Path) -> None:
    files = files_of(bundle)
    lie = files["reports/tiny/verdict.json"].replace(b'"verdict": "keep none"', b'"verdict": "adopt layernorm"')
    files, ledger = rewritten(unguided(files), lie)
    found = checked(forged(tmp_path / "f.zip", files, ledger=ledger))
    assert [item.what for item in found.items if item.faults] == ["verdict judged again"]
    assert 'verdict is "adopt layernorm", and "keep none" when judged here' in faults(found)
    other = json.loads(files["MANIFEST.json"])["made_with"] | {"version": "0.0.1", "code": "f" * 64}
    found = checked(forged(tmp_path / "g.zip", files, ledger=ledger, made_with=other))
    assert not found.intact, "the ledger says which code decided, and it is this one"


def test_a_verdict_of_other_code_is_judged_differently(bundle: Path, tmp_path: Path) -> None:
    files = unguided(files_of(bundle))
    lie = files["reports/tiny/verdict.json"].replace(b'"verdict": "keep none"', b'"verdict": "adopt layernorm"')
    files, ledger = rewritten(files, lie, code="f" * 64)
    found = checked(forged(tmp_path / "f.zip", files, ledger=ledger))
    assert found.intact and found.judged_differently, faults(found)


def test_whoever_writes_the_whole_anew_shows_in_the_head_alone(bundle: Path, tmp_path: Path) -> None:
    files = files_of(bundle)

    def earlier(entry: dict[str, Any]) -> None:
        entry["at"] = entry["at"].replace("20", "19", 1)

    data, head = rechained(files[SLICE], earlier)
    ledger = json.loads(files["MANIFEST.json"])["ledger"] | {"head": head}
    dated = ("report.md", "report.html", "registration.md")  # these tell dates, and a liar would write them anew too
    files = {name: held for name, held in unguided(files).items() if not name.endswith(dated)} | {SLICE: data}
    found, honest = checked(forged(tmp_path / "f.zip", files, ledger=ledger)), checked(bundle)
    assert found.intact, "the limit that the docs state: no check of a bundle alone can see this"
    assert found.head != honest.head and facts(found).sha256 != facts(honest).sha256


def test_an_entry_of_the_study_itself_can_be_hidden_as_a_link_and_is_counted(bundle: Path, tmp_path: Path) -> None:
    files = files_of(bundle)
    entries = [json.loads(line) for line in files[SLICE].splitlines()]
    hidden = [
        {key: entry[key] for key in ("index", "joins", "previous", "sha256")}
        if entry.get("event") == "finished"
        else entry
        for entry in entries
    ]
    assert hidden != entries
    files[SLICE] = b"".join(canonical_bytes(entry) + b"\n" for entry in hidden)
    ledger = json.loads(files["MANIFEST.json"])["ledger"] | {"n_withheld": 2}
    found = checked(forged(tmp_path / "f.zip", files, ledger=ledger))
    assert found.intact, "the limit that the docs state: a link's content cannot be checked"
    assert "2 entries withheld but for links; that these are of others is not shown" in notes(found)
    assert "entries of other studies" in {item.what for item in found.unchecked}


def test_a_ledger_cut_short_does_not_fit_its_manifest(bundle: Path, tmp_path: Path) -> None:
    files = files_of(bundle)
    files[SLICE] = b"".join(files[SLICE].splitlines(keepends=True)[:-1])
    found = checked(forged(tmp_path / "f.zip", files))
    assert "head or number of entries are not those of the manifest" in faults(found)


@pytest.mark.parametrize("place", ["../../../../outside", "/outside", "a\\b", ".."])
def test_a_ledger_that_names_a_place_outside_is_refused_before_anything_there_is_read(
    place: str, registered: Path, tmp_path: Path
) -> None:
    files = files_of(bundled(registered, out=tmp_path / "b.zip").path)
    ledger = "studies/ledger.jsonl"
    files[ledger], head = rechained(files[ledger], lambda entry: entry["body"].update(file=place, variant=place))
    part = json.loads(files["MANIFEST.json"])["ledger"] | {"head": head}
    found = checked(forged(tmp_path / "f.zip", files, ledger=part))
    assert faults(found) == "entry 0 names a place that no study has"


def test_a_table_that_would_fill_the_memory_is_not_read(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(evidence, "MOST_ROWS", 100)
    assert "and 100 are the most" in faults(checked(bundle))


def test_records_that_make_the_judge_stumble_are_a_fault_and_no_bug_of_ours(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: object) -> None:
        raise ZeroDivisionError("by a stranger's number")

    monkeypatch.setattr(rejudge, "decide", stumble)
    assert "cannot be judged: ZeroDivisionError" in faults(checked(bundle))


def zipped_again(files: Files, path: Path, *, inside: str = "") -> Path:
    """Files as another program packs them: deflated, the other way round, with today's date."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(f"{inside}{name}", data)
    return path


def laid_out(files: Files, folder: Path) -> Path:
    """Files in a folder, as an archive is unpacked."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def test_it_is_checked_alike_when_it_is_unpacked(bundle: Path, tmp_path: Path) -> None:
    litter = {".DS_Store": b"x", "data/._runs": b"x"}
    folder = checked(laid_out(files_of(bundle) | litter, tmp_path / "here" / "tiny.ablate"))
    laid_out({"__MACOSX/tiny.ablate/._run.json": b"x"}, tmp_path / "here")
    outer, first = checked(tmp_path / "here"), checked(bundle)
    assert first.intact and folder.intact and outer.intact, faults(folder) + faults(outer)
    assert {facts(one).contents_sha256 for one in (folder, outer)} == {facts(first).contents_sha256}
    assert {one.head for one in (folder, outer)} == {first.head}
    assert facts(folder).sha256 == "" and first.items == folder.items == outer.items


def test_one_that_was_zipped_again_is_refused_with_what_to_type(bundle: Path, tmp_path: Path) -> None:
    for inside in ("", "tiny/"):
        again = checked(zipped_again(files_of(bundle), tmp_path / "again.zip", inside=inside))
        assert again.bundle is None
        assert "zipped by another program: unpack it, and type: ablate verify FOLDER" in faults(again)
    with zipfile.ZipFile(tmp_path / "again.zip") as archive:
        archive.extractall(tmp_path / "given")
    assert checked(tmp_path / "given").intact


@pytest.mark.parametrize(
    "kind", ["MANIFEST.json", "run.json", "metrics.parquet", "report.html", "ledger.slice.jsonl", "lock.json"]
)
def test_one_changed_byte_of_any_file_is_found_in_a_folder_and_in_an_archive(
    kind: str, bundle: Path, tmp_path: Path
) -> None:
    folder = laid_out(files_of(bundle), tmp_path / "given")
    path = next(iter(sorted(folder.rglob(f"*{kind}"))))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    said = "not the file that the manifest lists" if kind != "MANIFEST.json" else "the manifest does not have its own"
    assert said in faults(checked(folder))
    with (tmp_path / "spoilt.zip").open("wb") as stream:
        write_archive(stream, {name: folder / name for name in files_of(bundle)})
    found = checked(tmp_path / "spoilt.zip")
    assert said in faults(found) and found.bundle is None


def test_a_file_that_is_added_or_removed_is_found(bundle: Path, tmp_path: Path) -> None:
    folder = laid_out(files_of(bundle), tmp_path / "given")
    (folder / "notes.txt").write_text("mine")
    assert faults(checked(folder)) == "'notes.txt' is in the bundle and not in the manifest"
    (folder / "notes.txt").unlink()
    (folder / "studies" / "tiny.lock.json").unlink()
    assert faults(checked(folder)) == "'studies/tiny.lock.json' is in the manifest and missing from the bundle"
    (folder / "studies" / "tiny.lock.json").write_text("longer than it was" * 9999)
    assert "it has another size" in faults(checked(folder))


def test_a_registered_study_can_be_bundled_and_shows_no_contrast(
    registered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejudge, "decide", None)
    found = checked(bundled(registered, out=tmp_path / "b.ablate.zip").path)
    assert found.intact, faults(found)
    assert found.studies[0].decision is None and "verdict judged again" not in {item.what for item in found.items}
    assert any(one.what == "verdict and reports" for one in facts(found).left_out)


def test_seals_and_documents_beside_the_lock_come_along_and_those_of_others_do_not(
    registered: Path, tmp_path: Path
) -> None:
    lock = sha256_bytes((registered.parent / "tiny.lock.json").read_bytes())[:8]
    ours = [f"tiny.{lock}.sig", f"tiny.{lock}.2.tsr", "tiny.registration.md"]
    others = ["tiny.00000000.sig", "tiny.more.yaml", f"tiny2.{lock}.sig", f"tiny.{lock}.key", "notes.md"]
    for name in ours[:2] + others:
        (registered.parent / name).write_text(name)
    files = files_of(bundled(registered, out=tmp_path / "b.zip").path)
    assert {name for name in ours + others if f"studies/{name}" in files} == set(ours)


def test_a_later_form_of_bundle_is_a_mistake_that_says_so(registered: Path, tmp_path: Path) -> None:
    files = files_of(bundled(registered, out=tmp_path / "b.zip").path)
    later = forged(tmp_path / "f.zip", files, format=2)
    with pytest.raises(UnsupportedError, match="format 2"):
        checked(later)


def test_what_is_no_bundle_is_a_mistake_and_what_is_a_broken_one_is_not(
    registered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "foreign.zip"
    with zipfile.ZipFile(foreign, "w") as opened:
        opened.writestr("notes.txt", "hello")
    text = tmp_path / "text.ablate.zip"
    text.write_text("hello")
    (tmp_path / "folder").mkdir()
    for path in (foreign, text, tmp_path / "missing.ablate.zip", tmp_path / "folder"):
        assert ablate(monkeypatch, "verify", path) == 2, path
        assert "Traceback" not in capsys.readouterr().err
    out = tmp_path / "b.ablate.zip"
    assert ablate(monkeypatch, "bundle", registered, "--out", out) == 0
    assert "Contents sha256" in capsys.readouterr().out
    assert ablate(monkeypatch, "verify", out) == 0
    capsys.readouterr()
    assert ablate(monkeypatch, "verify", out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["bundle"]["study"] == "tiny"
    out.write_bytes(out.read_bytes()[:-40])
    assert ablate(monkeypatch, "verify", out) == 4
    assert "cut off" in capsys.readouterr().out


def test_a_bundle_is_refused_where_it_would_not_stand_or_would_replace_a_file(
    decided: House, registered: Path, house: House, tmp_path: Path
) -> None:
    taken = tmp_path / "taken.zip"
    taken.write_text("mine")
    with pytest.raises(StudyFileError, match="another file in the place"):
        bundled(registered, out=taken)
    assert taken.read_text() == "mine"
    with pytest.raises(RegistrationError, match="not registered"):
        bundled(house.write(tiny_document(study="unknown")), out=tmp_path / "b.zip")
    record = next(decided.path.glob("data/runs/tiny/*/none/2/metrics.parquet"))
    original = record.read_bytes()
    other = next(decided.path.glob("data/runs/tiny/*/none/1/metrics.parquet")).read_bytes()
    try:
        for changed, found in ((other, "is not what the ledger sealed"), (original + b"x", "is not a Parquet file")):
            record.write_bytes(changed)
            with pytest.raises(EvidenceError, match=found):
                bundled(decided.path / "studies" / "tiny.yaml", out=tmp_path / "b.zip")
    finally:
        record.write_bytes(original)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["taken.zip"]


@pytest.mark.slow
def test_a_sequential_study_is_bundled_at_a_look_and_at_its_end(house: House, tmp_path: Path) -> None:
    study = house.write(
        tiny_document(
            seeds=[1, 2, 3],
            stopping={"looks": [2, 3]},
            hypotheses={"gain": {"claim": "layernorm lowers val/loss", "smallest": 5.0}},
            analysis={"alpha": 0.001},
        )
    )
    api.run(study, workspace=api.Workspace(console=QUIET))
    assert api.decide(study).decision.status == "continue"
    going = bundled(study, out=tmp_path / "look.zip").check
    assert going.intact and going.studies[0].decision is None
    assert "the records of 4 runs" in {one.what for one in facts(going).left_out}
    with zipfile.ZipFile(tmp_path / "look.zip") as archive:
        assert not any("data/runs" in name for name in archive.namelist())
    api.run(study, workspace=api.Workspace(console=QUIET))
    api.decide(study)
    ended = bundled(study, out=tmp_path / "end.zip").check
    assert ended.intact and "keep none; the same bytes" in notes(ended)


def regions(path: Path) -> list[range]:
    """The bytes of an archive as ZIP means them: each member has a header, contents and an entry in the directory."""
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        members, directory = archive.infolist(), archive.start_dir
    parts = []
    for member in members:
        # The header: 30 bytes, the last four the lengths of the name and of the extra field (APPNOTE 6.3.10, 4.3.7).
        n_name, n_extra = struct.unpack_from("<HH", data, member.header_offset + 26)
        content = member.header_offset + 30 + n_name + n_extra
        parts += [range(member.header_offset, content), range(content, content + member.compress_size)]
        # The entry: 46 bytes, then name, extra field and comment (4.3.12).
        after = directory + 46 + sum(struct.unpack_from("<HHH", data, directory + 28))
        parts.append(range(directory, after))
        directory = after
    parts.append(range(directory, len(data)))
    assert sum(map(len, parts)) == len(data), "each byte lies in one region"
    return [part for part in parts if part]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("n", [1_000, pytest.param(10_000, marks=pytest.mark.simulation)])
def test_single_changed_bytes_of_every_region_and_stretch_are_all_found(n: int, bundle: Path, tmp_path: Path) -> None:
    whole, rng = bundle.read_bytes(), random.Random(20)  # noqa: S311
    # One in each nth part of the file, and three in every region: of those most have under a thousandth of the bytes.
    places = [int((part + rng.random()) * len(whole) / n) for part in range(n)]
    places += [rng.choice(region) for region in regions(bundle) for _ in range(3)]
    broken, missed = tmp_path / "broken.ablate.zip", []
    for place in places:
        change = rng.randrange(1, 256)
        data = bytearray(whole)
        data[place] ^= change
        broken.write_bytes(data)
        try:
            intact = checked(broken).intact
        except StudyFileError:
            intact = False  # not even the beginning of a bundle
        if intact:
            missed.append((place, change))
    assert missed == []
    broken.write_bytes(whole)
    assert checked(broken).intact, "and the bundle itself is sound"
