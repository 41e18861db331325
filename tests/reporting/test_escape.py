"""What a stranger writes is shown and does nothing: no control reaches a terminal, no markup a document."""

from __future__ import annotations

import ast
import json
import re
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from own_trainer import OwnHouse, own_document
from test_bundle import files_of, forged, rechained

import ablate as api
from ablate import cli
from prereg import yaml_reader
from prereg.documents.page import keep_page
from prereg.errors import StudyError, Where
from prereg.escape import json_visible, markdown_line, markdown_sentence, visible
from prereg.registry.paths import Root

ROOT = Path(__file__).resolve().parents[2]
UNSEEN = "\x1b[2J\x1b]0;owned\x07\x9b31m\x00\x7f\u202eeslaf\u2066\u200b\u2028\ufeff"
EVIL = f"Fine.{UNSEEN}\nFORGED everything stands\n# FORGED\n<script>alert(1)</script> [a](javascript:x) ![b](http://x)"
ORDINARY = (
    "Über größere Modelle, naïve façade; 模型的损失降低了 (日本語, 한국어); ∀ε>0: |δ| ≤ 0.02 ± ½, α→β, “quoted”, 🙂 ⚠️, "
    "न्यूरल, עברית, C:\\path, a  b, 5 % of 3 × 4"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def is_clean(text: str) -> bool:
    """Whether every character but ends of lines can be seen, and no line is one that a stranger began."""
    seen = all(one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for one in text)
    return seen and not any(line.startswith(("FORGED", "# FORGED")) for line in text.splitlines())


def prose(text: str) -> str:
    """A page without what stands as code: nothing is interpreted in it."""
    return re.sub("`[^`\\n]+`", "", text)


def test_what_cannot_be_seen_is_written_out_and_the_rest_is_unchanged() -> None:
    assert visible(ORDINARY) == ORDINARY and visible(ORDINARY, lines=True) == ORDINARY
    assert visible("\x1b[2J") == "\\x1b[2J" and visible("a\x9bb\u202ec") == "a\\x9bb\\u202ec"
    assert visible("\U000e0041\ud800\u3164") == "\\U000e0041\\ud800\\u3164"
    assert visible("one\r\ntwo\tthree\n") == "one two three "
    assert visible("one\r\ntwo\tthree\rfour", lines=True) == "one\ntwo\tthree\\x0dfour"
    assert is_clean(visible(EVIL))


def test_json_says_the_same_with_every_character_in_sight() -> None:
    plain = {"a": EVIL, "b": ORDINARY, "\u202e": "\U000e0041"}
    for indent in (None, 2):
        text = json.dumps(plain, indent=indent, ensure_ascii=False)
        assert json.loads(json_visible(text)) == plain and is_clean(json_visible(text))
        assert ORDINARY[:20] in json_visible(text)


def test_markdown_shows_what_was_written() -> None:
    for escape in (markdown_line, markdown_sentence):
        told = escape(EVIL)
        assert is_clean(told) and "\n" not in told
        assert "<script" not in told and "](" not in told
        assert (
            escape("Layer norm (ε = 1e-5) lowers val/loss by ≥ 2 %") == "Layer norm (ε = 1e-5) lowers val/loss by ≥ 2 %"
        )
    assert markdown_sentence("run `train.py <x> *` *now*") == "run `train.py <x> *` \\*now\\*"
    assert markdown_sentence("a ` <b> `") == "a ` <b> `" and "<b" not in markdown_sentence("a ` <b>")
    assert markdown_sentence("---") == "\\---" and markdown_sentence("====") == "\\===="
    assert markdown_sentence("# a") == "\\# a" and markdown_sentence("1. If", numbered=True) == "1. If"


def test_no_part_of_a_message_begins_a_line_of_ours() -> None:
    error = StudyError(EVIL, required=EVIL, fix=EVIL, where=Where(file=Path(f"a{UNSEEN}\nFORGED")))
    assert is_clean(error.text()) and is_clean(str(error))
    assert [line for line in error.text().splitlines() if not line.startswith("    ")] == [
        error.text().splitlines()[0],
        *(line for line in error.text().splitlines() if line.startswith(("  required: ", "  try:      "))),
    ]
    assert StudyError(ORDINARY).text() == ORDINARY


def test_nothing_prints_past_the_functions_that_escape() -> None:
    """`print`, rich's `Text` and a console's `print` of words stand where texts are escaped, and nowhere else."""
    free = {
        "ablate/client.py",  # in the user's own script, outside a study
        "ablate/cli/command.py",
        "ablate/cli/options.py",
        "ablate/reporting/terminal.py",
        "ablate/runner/progress.py",
        "ablate/cli/__init__.py",
    }
    for pattern in ("ablate/cli/*.py", "ablate/reporting/**/*.py", "ablate/*.py"):
        for path in ROOT.glob(pattern):
            name = path.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or name in free:
                    continue
                called = ast.unparse(node.func)
                words = any(isinstance(given, ast.Constant | ast.JoinedStr) for given in node.args)
                ours = all(isinstance(given, ast.Constant) for given in node.args)
                assert called != "Text" or ours, (name, node.lineno)
                assert not (called.endswith("console.print") and words), (name, node.lineno)
                assert called != "print" or name == "ablate/cli/proof.py", (name, node.lineno)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> OwnHouse:
    """A study by somebody whose tool checked no text: registered, its runs imported, decided."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_reader, "check_text", lambda *_, **__: None)
        house = OwnHouse(tmp_path_factory.mktemp("hostile") / "house")
        house.register(**hostile_changes())
        api.import_runs(house.study, rows_of(house), note=EVIL, exploratory=True)
        api.decide(house.study)
        keep_page(Root(house.path.resolve()), "own")
    return house


def hostile_changes() -> dict[str, Any]:
    lines = [{"verdict": EVIL, "when": "supported(gain)"}, {"verdict": f"no {EVIL}"}]
    base = {"lr": 0.1, "steps": 4, f"key{UNSEEN}": EVIL}
    return {
        "title": EVIL,
        "question": f"{UNSEEN} what <script>?\n====\n# H\n- [a](javascript:x)",
        "decision": lines,
        "base": base,
        "command": ["{python}", "train.py", EVIL],
    }


def rows_of(house: OwnHouse, cells: int = 6) -> Path:
    """Rows of the first runs of the plan."""
    lines = []
    for seed, variant in [(seed, variant) for seed in (1, 2, 3) for variant in ("slow", "fast")][:cells]:
        for step in range(5):
            value = 3.0 - step / 10 - 0.3 * (variant == "fast") + seed / 100
            for metric in ("train/loss", "val/loss"):
                lines.append({"variant": variant, "seed": seed, "step": step, "metric": metric, "value": value})
    path = house.path / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a verb; what it said on both streams, colours taken off where rich had a terminal."""
    monkeypatch.setattr(yaml_reader, "check_text", lambda *_, **__: None)
    monkeypatch.setenv("COLUMNS", "1000")

    def run(*words: str | Path, colours: bool = False) -> str:
        monkeypatch.setenv("FORCE_COLOR", "1") if colours else monkeypatch.delenv("FORCE_COLOR", raising=False)
        monkeypatch.setattr(sys, "argv", ["ablate", *map(str, words)])
        with pytest.raises(SystemExit):
            cli.main()
        out, err = capsys.readouterr()
        return _COLOUR.sub("", out + err) if colours else out + err

    return run


VERBS = ("check", "status", "verify", "ledger", "decide", "report", "register", "run")


@pytest.mark.slow
@pytest.mark.parametrize("colours", [False, True], ids=["plain", "terminal"])
def test_no_verb_hands_a_control_on(hostile: OwnHouse, say: Callable[..., str], colours: bool) -> None:
    for verb in VERBS:
        said = say(verb, hostile.study, colours=colours)
        assert is_clean(said), (verb, said)
        assert verb not in ("check", "ledger") or "\\x1b[2J" in said, (verb, said)
    assert is_clean(say("status", hostile.study, "--results", "--reason", EVIL, colours=colours))
    for verb in ("verify", "ledger", "status", "decide"):
        said = say(verb, hostile.study, "--json", colours=colours)
        assert is_clean(said) and json.loads(said), (verb, said)
    for form in ("osf", "markdown"):
        said = say("plan", hostile.study, "--as", form, colours=colours)
        assert is_clean(said), [line for line in said.splitlines() if not is_clean(line)]
        assert "<script" not in prose(said) and "](" not in prose(said), form
        told = json.loads(say("plan", hostile.study, "--as", form, "--json", colours=colours))
        # On one line, as every text that a sentence takes in: a line separator is a blank there.
        assert form != "osf" or " ".join(UNSEEN.split()) in told["research_questions"]


def test_no_page_hands_markup_or_a_control_on(hostile: OwnHouse) -> None:
    pages = [hostile.path / "reports" / "own" / name for name in ("report.md", "report.html")]
    for page in (*pages, hostile.path / "studies" / "own.registration.md"):
        text = page.read_text(encoding="utf-8")
        assert is_clean(text.replace("FORGED", "")) and "\\x1b[2J" in text, page
        assert page.suffix == ".html" or not re.search("^(# )?FORGED|^=+$|^# H|^- \\[a", text, re.MULTILINE), page
        assert not re.search("<(script|img|a [^>]*javascript)", prose(text)), page
        assert page.suffix == ".html" or "](" not in prose(text), page


def test_a_reason_of_an_amendment_or_a_look_does_nothing(
    own_house: OwnHouse, say: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own_house.register()
    api.import_runs(own_house.study, rows_of(own_house, 2), note="ours", exploratory=True)
    assert is_clean(say("status", own_house.study, "--results", "--reason", EVIL))
    own_house.write(own_document(title="Another", assume={"seconds_per_run": 1}))
    assert is_clean(say("amend", own_house.study, "--reason", EVIL, "--yes"))
    for verb in ("ledger", "verify", "status"):
        said = say(verb, own_house.study)
        assert is_clean(said), said
    page = (own_house.path / "studies" / "own.registration.md").read_text(encoding="utf-8")
    assert is_clean(page) and "\\x1b[2J" in page and "<script" not in page


@pytest.mark.slow
def test_a_failing_bundle_cannot_clear_the_screen_and_say_that_it_stands(
    hostile: OwnHouse, say: Callable[..., str], tmp_path: Path
) -> None:
    whole = tmp_path / "own.ablate.zip"
    assert is_clean(say("bundle", hostile.study, "--out", whole))
    for colours in (False, True):
        assert is_clean(say("verify", whole, colours=colours))
        assert is_clean(say("verify", whole, "--json", colours=colours))
    files = files_of(whole)
    manifest = json.loads(files["MANIFEST.json"])
    made = manifest["made_with"] | {"version": EVIL, "code": EVIL, "platform": EVIL, "libraries": {EVIL: EVIL}}
    left_out = [{"what": EVIL, "why": EVIL}]
    slice_name = manifest["ledger"]["file"]
    data, head = rechained(files[slice_name], lambda entry: entry["body"].update(note=EVIL, reason=EVIL, verdict=EVIL))
    ledger = manifest["ledger"] | {"head": head}
    false = forged(tmp_path / "false.zip", files | {slice_name: data}, made_with=made, left_out=left_out, ledger=ledger)
    changed = files | {"reports/own/verdict.json": files["reports/own/verdict.json"].replace(b"slow", b"fast")}
    other = forged(tmp_path / "other.zip", changed, made_with=made, left_out=left_out)
    for path in (false, other):
        for colours in (False, True):
            said = say("verify", path, colours=colours)
            assert is_clean(said) and "\\x1b[2J" in "".join(said.split()), said  # a table breaks long words
            assert "CHANGED" in said or path == false, said
        assert is_clean(say("verify", path, "--json"))


@pytest.mark.slow
def test_a_metric_of_an_import_has_a_name_that_can_be_seen(own_house: OwnHouse, say: Callable[..., str]) -> None:
    own_house.register()
    for name in ("val/loss\u200b", "val\u202e/loss", "val/\u3164loss", "a\x1bb", "a\x9bb"):
        rows = rows_of(own_house)
        rows.write_text(rows.read_text().replace('"val/loss"', json.dumps(name)))
        said = say("import", own_house.study, rows, "--note", EVIL, "--exploratory")
        assert "which is not a name" in said and is_clean(said), (name, said)
    rows = rows_of(own_house)
    rows.write_text(rows.read_text().replace('"fast"', json.dumps(EVIL)))
    said = say("import", own_house.study, rows, "--note", EVIL, "--exploratory")
    assert "is no variant" in said and is_clean(said), said
