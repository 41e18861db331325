"""One paper of several studies: what it takes from verdicts and prose, what it refuses, and that it compiles."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from own_trainer import OwnHouse, own_document
from test_cli import ablate
from test_latex import assert_clean, compile_latex

import ablate as api
from ablate.cli.options import Exit
from ablate.reporting.latex.prose import prose
from ablate.reporting.latex.references import WORKS, works_of
from ablate.reporting.latex.render import Style
from prereg.errors import SpecError, StudyFileError

PLAN = """
title: Two small studies & what 100% of them say
authors: [A. Writer, B. Reader]
studies: [own, second]
figures:
  second: [Pairs]
"""
PROSE = {
    "abstract": "# Abstract\n\nOne step is larger.\n<!-- a note\nof two lines -->\n",
    "introduction": "# Introduction\n\nWe ask `lr`, as Xiong et al. (2020) do. Here [[own.gain]].\n\n"
    "## Why\n\n- [[own]]\n- a second\n  line\n\n| A | n: |\n|---|---:|\n| x_y | 1 |\n",
    "related": "# Related work\n\nPre-norm (Xiong et al. 2020; Some Workshop 2022) needs less warmup.\n",
    "methods": "# Methods\n\nBoth studies read one corpus.\n",
    "discussion": "# Discussion\n\nIn the second study [[second.gain]]; [[second.same]].\n",
    "recommendation": "# Recommendation\n\nOf the first: [[own]].\n",
}
OF_THE_PAPER = """@inproceedings{xiong2020,
  author = {Xiong, Ruibin and others},
  title = {On layer normalization in the Transformer architecture},
  year = {2020},
  booktitle = {ICML},
  cited = {Xiong et al. 2020; Xiong et al. (2020)},
}
@article{workshop2022,
  author = {{Some Workshop, Inc.}},
  title = {A large model},
  year = {2022},
  journal = {arXiv},
  cited = {Some Workshop 2022},
}
"""
SECOND = own_document(
    study="second",
    title="Does a still larger step help?",
    base={"lr": 0.15, "steps": 4},
    variants={"slow": {}, "fast": {"lr": 0.55}},
    seeds=[11, 12, 13, 14],
    hypotheses={
        "gain": {"claim": "fast lowers val/loss", "smallest": 0.05},
        "same": {"claim": "fast does_not_change val/loss", "smallest": 0.001, "role": "secondary"},
        "aside": {"claim": "fast lowers val/loss", "smallest": 0.2, "role": "exploratory"},
    },
)


@pytest.fixture(scope="module")
def two_studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A house of two decided studies and a paper of them."""
    made = OwnHouse(tmp_path_factory.mktemp("paper") / "house")
    for document in (own_document(), SECOND):
        made.make_runs(made.register(document))
        api.decide(made.path / "studies" / f"{document['study']}.yaml")
    folder = made.path / "reports" / "paper"
    folder.mkdir()
    for name, text in {
        "paper.yaml": PLAN,
        "works.bib": OF_THE_PAPER,
        **{f"{n}.md": t for n, t in PROSE.items()},
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    return made.path


@pytest.fixture
def folder(two_studies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The paper's folder in a copy of that house, seen from the house."""
    shutil.copytree(two_studies, tmp_path / "house")
    monkeypatch.chdir(tmp_path / "house")
    return Path("reports/paper")


def written(folder: Path) -> str:
    """The paper, written."""
    api.write_paper(folder)
    return (folder / "paper.tex").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_paper_of_two_studies_compiles_without_a_warning(folder: Path) -> None:
    files = api.write_paper(folder)
    assert {path.suffix for path in files} == {".tex", ".bib", ".pdf"} and all(path.stat().st_size for path in files)
    log = compile_latex(folder, "paper.tex")
    assert_clean(log)
    (pages,) = re.findall(r"Output written on paper\.pdf \((\d+)", log)
    assert 3 <= int(pages) <= 6


@pytest.mark.slow
def test_its_numbers_are_those_of_the_verdicts(folder: Path) -> None:
    page = written(folder)
    for name in ("own", "second"):
        decided = api.results(f"studies/{name}.yaml")
        # Each hash can be verified: it is whole, whatever places to break it has.
        whole = page.replace(r"\allowbreak{}", "")
        for sha256 in (decided.decision.registration, decided.decision.evidence, decided.registration.source_sha256):
            assert sha256 in whole, name
        assert f"{name}: " in page and str(decided.verdict) in page
    assert "1 to 3 (3 for each arm, 6 runs)" in page and "11 to 14 (4 for each arm, 8 runs)" in page
    # In the prose, in the results and in the table of claims, the same difference with its interval.
    assert page.count("0.2988 nats/token, 95\\% CI 0.2973 to 0.3003") == 2
    assert "Line 1 of 2 held: take fast, when" in page
    assert r"$-$0.2988 & {}[$-$0.3003,~$-$0.2973] (95\%)" in page
    # No verdict rests on an exploratory claim.
    assert "aside" not in page and "1 supported, 1 refuted" in page


@pytest.mark.slow
def test_what_most_studies_share_is_said_once_and_settings_are_in_the_appendix(folder: Path) -> None:
    body, appendix = written(folder).split(r"\appendix")
    assert body.count("It holds its error rate when these differences are close to normal") == 1
    assert "It holds its error rate" not in appendix
    for setting in ("lr set to 0.1;", "lr set to 0.15;"):
        assert setting in appendix and setting not in body
    # Each study's results say where.
    assert [title.count("Appendix A.2") for title in body.split("own: ")[-1].split("second: ")[-2:]] == [0, 1]


@pytest.mark.slow
def test_prose_names_works_and_a_chosen_figure_is_drawn(folder: Path) -> None:
    page = written(folder)
    assert r"\ablatecitet{xiong2020}{Xiong et al. (2020)}" in page and r"\bibitem{xiong2020}" in page
    assert "Some Workshop, Inc. (2022). A large model." in page, "an organisation is not taken apart"
    assert "@inproceedings{xiong2020," in (folder / "references.bib").read_text(encoding="utf-8")
    drawn = {path.name for path in (folder / "figures").iterdir()}
    assert set(re.findall(r"figures/([\w-]+\.pdf)", page)) == drawn
    assert any(name.startswith("second-") for name in drawn) and "forest-1.pdf" in drawn


@pytest.mark.slow
def test_a_clone_without_runs_writes_the_same_paper_from_committed_evidence(folder: Path) -> None:
    page = written(folder)
    for name in ("own", "second"):
        api.bundle(f"studies/{name}.yaml", evidence=True)
    shutil.rmtree("data/runs")
    shutil.rmtree(folder / "figures")
    assert written(folder) == page and any((folder / "figures").iterdir())


@pytest.mark.slow
def test_one_message_refuses_every_study_without_a_verdict_that_verifies(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = Path("reports/second/verdict.json")
    verdict.write_text(verdict.read_text().replace("take fast", "take slow"))
    plan = folder / "paper.yaml"
    plan.write_text(plan.read_text().replace("[own, second]", "[own, second, third]"))
    Path("studies/third.yaml").write_text(yaml.safe_dump(own_document(study="third", seeds=[21, 22, 23])))
    assert ablate(monkeypatch, "paper") == Exit.MISTAKE
    error = capsys.readouterr().err
    assert error.count("error:") == 1 and "'own'" not in error
    assert "'second': " in error and "'third': 'third' is not registered" in error
    assert "ablate decide studies/second.yaml" in error
    assert not (folder / "paper.tex").exists() and not (folder / "figures").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("paper.yaml", "second:", "secnd:", "paper.yaml:6 figures.secnd: 'secnd' is no study of this paper"),
        ("paper.yaml", "[Pairs]", "[Piars]", "did you mean 'Pairs'?"),
        ("paper.yaml", "title:", "titel:", "did you mean 'title'?"),
        ("paper.yaml", "[own, second]", "[own, own]", "a study twice"),
        ("discussion.md", "second.gain", "second.gian", "discussion.md:3: 'second.gian' is neither"),
        ("works.bib", "  year = {2020},\n", "", "the work 'xiong2020' has no year"),
    ],
)
def test_a_mistake_names_its_file_and_writes_nothing(file: str, old: str, new: str, message: str, folder: Path) -> None:
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(SpecError) as raised:
        api.write_paper(folder)
    assert message in raised.value.text() and file in raised.value.text()
    assert not (folder / "paper.tex").exists()


def test_a_folder_without_a_plan_or_without_prose_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(StudyFileError, match=r"no plan of a paper") as raised:
        api.write_paper(tmp_path)
    assert "ablate paper FOLDER" in raised.value.text()
    (tmp_path / "paper.yaml").write_text("title: T\nstudies: [own]\n")
    (tmp_path / "abstract.md").write_text("# Abstract\n")
    with pytest.raises(StudyFileError) as raised:
        api.write_paper(tmp_path)
    assert raised.value.found.startswith("introduction.md, related.md") and "abstract.md," not in raised.value.found


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("# T\n\na **bold** word", 3, "emphasis"),
        ("# T\n\nan _italic_ word", 3, "emphasis"),
        ("# T\n\nplain\nsee [here](https://x)", 4, "a link"),
        ("# T\n\n```\ncode\n```", 3, "a block of code"),
        ("# T\n\n1. first", 3, "a numbered list"),
        ("# T\n\n### Third", 3, "a heading of the third level"),
        ("<!-- two\nlines -->\n# T\n\n# T", 5, "a second heading"),
        ("text first", 1, "begins with other text"),
        ("## Sub", 1, "begins with other text"),
        ("", 1, "is empty"),
        ("# T\n\n| a | b |\n| c | d |", 3, "a table"),
        ("# T\n\n[[own.gane]]", 3, "did you mean 'own.gain'?"),
    ],
)
def test_markdown_that_would_be_lost_is_refused_with_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(SpecError) as raised:
        prose("introduction", text, {"own.gain": "x", "own": "y"})
    assert raised.value.where.line == line and what in raised.value.text()


OURS = Path(__file__).resolve().parents[2] / "reports" / "paper"


@pytest.mark.parametrize("name", PROSE)
def test_the_prose_of_our_paper_is_carried_over_and_asks_for_claims_that_there_are(name: str) -> None:
    studies = yaml.safe_load((OURS / "paper.yaml").read_text(encoding="utf-8"))["studies"]
    asked = {}
    for study in studies:
        document = yaml.safe_load((OURS.parents[1] / "studies" / f"{study}.yaml").read_text(encoding="utf-8"))
        asked |= {study: "a verdict", **{f"{study}.{claim}": "a finding" for claim in document["hypotheses"]}}
    style = Style(works={**WORKS, **works_of((OURS / "works.bib").read_text(encoding="utf-8"))})
    parts = prose(name, (OURS / f"{name}.md").read_text(encoding="utf-8"), asked)
    text = " ".join(getattr(content, "text", "") for part in parts for content in part.blocks)
    # A work that a text names has an entry: what is left of names and years is no citation.
    left = re.sub(r"\\ablatecitet?\{\w+\}\{[^}]*\}", "", style.text(text))
    assert not re.findall(r"[A-Z][a-z]+ (?:et al\. |and [A-Z][a-z]+ )?\(?(?:19|20)\d\d\b", left)


def test_names_with_underscores_code_and_signs_are_plain_text() -> None:
    (section,) = prose("methods", "# T\nval_loss and `a * b`, p < .05, 3 # 4\n", {})
    assert section.title == "T" and section.blocks[0].text == "val_loss and `a * b`, p < .05, 3 # 4"  # type: ignore[union-attr]


def test_an_entry_that_cannot_be_read_is_no_silent_gap() -> None:
    assert [*works_of(OF_THE_PAPER)] == ["workshop2022", "xiong2020"]
    with pytest.raises(SpecError, match="1 of 3 entries cannot be read"):
        works_of(OF_THE_PAPER + "@book{ville1939, author = {Ville, Jean}}\n")
    with pytest.raises(SpecError, match="given twice"):
        works_of(OF_THE_PAPER + "\n" + OF_THE_PAPER)
