"""LaTeX of a report: what compiles, what numbers it says, and that nothing a study brings is read as a command."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from evidence_factory import make_evidence
from own_trainer import own_document
from report_samples import document, factorial, told, told_of
from snapshot import assert_snapshot

from ablate.judge.verdict import Check
from ablate.reporting.blocks import Paragraph, Section, Table, columns
from ablate.reporting.context import ReportContext
from ablate.reporting.document import compose
from ablate.reporting.exports import figures
from ablate.reporting.latex import references
from ablate.reporting.latex.number_macros import number_macros
from ablate.reporting.latex.paper import Paper, methods, paper, results_in_prose, standalone
from ablate.reporting.latex.references import CITED, WORKS, bibtex, keys_in
from ablate.reporting.latex.render import Style, block, latex_paragraphs, latex_sections
from ablate.reporting.view import FindingView
from prereg.escape import latex
from prereg.study.spec import study_from_document

ROOT = Path(__file__).resolve().parents[2]
ODD = "100% of $5 & #1_b {x} ~ ^ \\end{document} − × ± ≥ ′ é ß \"q\" 'r' a--b <|> \u202eevil \x1b[31mred 中文 αΩ Ο [x]"
MOST_OVERFULL_PT = 5.0


def written(context: ReportContext) -> Paper:
    return paper(context, compose(context))


@cache
def embnorm() -> Paper:
    return written(told())


def compile_latex(folder: Path, page: str) -> str:
    """The log of two runs of pdflatex over a page that must compile."""
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not here (Debian: texlive-latex-recommended, lmodern)")
    for _ in range(2):
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-file-line-error", page]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-3000:]
    return (folder / page).with_suffix(".log").read_text(encoding="utf-8", errors="replace").replace("\n", " \n")


def assert_clean(log: str) -> None:
    """No warning, no undefined reference, and nothing that runs over the margin by more than a few points."""
    assert not re.findall(r"^!.*|.*(?:LaTeX|Package \w+|Font) Warning.*", log, re.MULTILINE)
    wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt", log)]
    assert max(wide, default=0.0) <= MOST_OVERFULL_PT, wide


def write(made: Paper, folder: Path) -> None:
    """The files of a paper, and one that takes in every part."""
    (folder / "figures").mkdir(parents=True)
    for name, text in made.texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    for one in made.drawings:
        (folder / f"figures/{one.stem}.pdf").write_bytes(figures.draw_panel(one.panel, "pdf"))
    parts = [name.removesuffix(".tex") for name in made.texts if name.endswith(".tex")]
    taken = "\n".join(rf"\input{{{name}}}" for name in parts if name not in ("report", "preamble"))
    whole = "\\documentclass{article}\\input{preamble}\\begin{document}\n" + taken + "\n\\end{document}\n"
    (folder / "whole.tex").write_text(whole, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["embnorm", "odd", "factorial"])
def test_the_page_and_every_part_compile_without_a_warning(kind: str, tmp_path: Path) -> None:
    context = {
        "embnorm": told,
        "odd": lambda: told(title=f"{ODD} {'Averylongword' * 12}", question=f"{ODD} {'x' * 200}"),
        "factorial": lambda: told_of(make_evidence(factorial())),
    }[kind]()
    write(written(context), tmp_path / "latex")
    for page in ("report.tex", "whole.tex"):
        assert_clean(compile_latex(tmp_path / "latex", page))
    shown = subprocess.run(["pdftotext", "report.pdf", "-"], cwd=tmp_path / "latex", capture_output=True, check=False)
    if shown.returncode == 0 and kind == "embnorm":
        text = " ".join(shown.stdout.decode().split())
        for finding in context.decision.findings:
            assert FindingView(finding, context.study).difference.replace("−", "-")[:6] in text.replace("−", "-"), (
                finding.hypothesis
            )


@pytest.mark.slow
def test_any_text_of_a_study_compiles_in_every_place(tmp_path: Path) -> None:
    style = Style(frozenset({"val/loss", "gain_ln"}), 455.0)
    table = Table(ODD, columns(ODD, "n:"), (("[x] " + ODD, "1"), ("*", "2"), ("a" * 300, "3")), ODD, frozenset({1}))
    body = latex_sections([Section("x", ODD, (Paragraph(ODD), Paragraph(ODD, "warning"), table))], style, {})
    names = [chr(code) for code in range(0x20, 0x2600) if chr(code).isprintable()]
    body += "\n\n" + block(Paragraph(" ".join(names)), style, {})
    (tmp_path / "page.tex").write_text(standalone(style.text(ODD), "", body, head=_preamble()), encoding="utf-8")
    log = compile_latex(tmp_path, "page.tex")
    assert "Missing character" not in log
    assert_clean(log)


def _preamble() -> str:
    return embnorm().texts["preamble.tex"]


def test_the_parts_of_a_study_are_as_they_were_read() -> None:
    texts = embnorm().texts
    shown = ("results.tex", "methods.tex", "table-findings.tex", "table-arms.tex", "references.bib")
    text = "\n".join(f"%%% {name}\n{texts[name]}" for name in shown)
    # Of the machine, not of the report.
    here = r"(pingouin|scipy|statsmodels) [\d.]+\d|(largest relative difference) [\de.-]+\d"
    assert_snapshot("latex-parts.tex", re.sub(here, lambda found: f"{found[1] or found[2]} ...", text))


def test_the_results_say_the_numbers_of_the_verdict() -> None:
    context = told()
    verdict, *families = results_in_prose(context)
    assert verdict.startswith("Decided by the registered rule: adopt layernorm.")
    roles = list(dict.fromkeys(finding.role for finding in context.decision.findings))
    by_role = dict(zip(roles, families, strict=True))
    for text in families:
        assert len(re.findall(r"\.(?= [A-Za-z]|$)", text)) == 3, text
    for finding in context.decision.findings:
        sentence = by_role[finding.role]
        assert finding.estimate is not None and finding.margin is not None
        shown = FindingView(finding, context.study).bounds
        assert shown is not None and shown.low is not None
        numbers = {float(one) for one in re.findall(r"-?\d*\.\d+", sentence.replace("−", "-"))}
        size, step = abs(finding.estimate.difference or 0.0), 10.0 ** -FindingView(finding, context.study).decimals
        assert any(abs(abs(one) - size) <= 0.5001 * step for one in numbers), finding.hypothesis
        assert finding.smallest in numbers and f"n = {finding.n} pairs" in sentence and "paired t" in sentence
        assert re.search(rf"{finding.outcome}( \([\w ,]*{finding.hypothesis}|\.)", sentence), sentence
        assert re.search(r"p [=<>] ", sentence), sentence
        assert re.search(r"9\d(\.\d)?% CI", sentence), sentence


def test_results_that_are_not_to_be_used_say_so_and_missing_ones_show_none() -> None:
    assert any(text.startswith("Not to be used") for text in results_in_prose(told("inadmissible")))
    hidden = written(told("incomplete"))
    assert [*results_in_prose(told("incomplete"))][-1].startswith("Nothing that separates the arms is shown")
    assert "table-findings.tex" not in hidden.texts and "table-arms.tex" in hidden.texts


def numbered(
    context: ReportContext, folder: Path, prose: str, name: str = "numbers.tex"
) -> subprocess.CompletedProcess[str]:
    """Compile a page of prose over the numbers of a decision."""
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not here (Debian: texlive-latex-recommended, lmodern)")
    (folder / name).write_text(number_macros(context, Style()), encoding="utf-8")
    taken = "".join(rf"\input{{{path.stem}}}" for path in sorted(folder.glob("numbers*.tex")))
    page = rf"\documentclass{{article}}{taken}\begin{{document}}\message{{<}}{prose}\message{{>}}\end{{document}}"
    (folder / "page.tex").write_text(page, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False, encoding="utf-8", errors="replace")


def test_every_number_of_a_claim_is_a_macro_and_equals_the_decision() -> None:
    context = told()
    text = number_macros(context, Style())
    value = {(owner, name): tex for owner, name, tex in re.findall(r"\\ablatedefine\{(.+?)\}\{(.+?)\}\{(.*)\}", text)}
    assert value["embnorm", "verdict"] == context.decision.verdict
    for finding in context.decision.findings:
        view = FindingView(finding, context.study)
        owner = f"embnorm/{finding.hypothesis}"
        assert finding.estimate is not None and view.bounds is not None and finding.p_shown is not None
        shown = {name: tex.replace("$-$", "-").replace("{}", "") for (of, name), tex in value.items() if of == owner}
        assert float(shown["estimate"]) == pytest.approx(finding.estimate.difference, abs=0.51 * 10**-view.decimals)
        for end in ("low", "high"):
            bound = getattr(view.bounds, end)
            assert (end in shown) == (bound is not None)
            assert bound is None or float(shown[end]) == pytest.approx(bound, abs=0.51 * 10**-view.decimals)
        assert shown["n"].startswith(str(finding.n)) and shown["outcome"] == finding.outcome
        relation, p = re.fullmatch(r"(=|\$<\$)~?(\.\d+)", shown["p"]).groups()  # type: ignore[union-attr]
        assert float(p) == pytest.approx(finding.p_shown, abs=6e-4) if relation == "=" else finding.p_shown < float(p)


@pytest.mark.parametrize("status", ["inadmissible", "incomplete"])
def test_a_study_without_a_verdict_has_no_numbers(status: str) -> None:
    text = number_macros(told(status), Style())
    assert "ablateclaim{" not in text.partition("\\fi\n")[2].replace("\\newcommand", "")
    assert not re.search(r"\{(estimate|interval|p|verdict)\}\{", text)


@pytest.mark.slow
def test_prose_takes_its_numbers_by_claim_and_a_number_that_is_not_there_stops_latex(tmp_path: Path) -> None:
    context = told()
    name = context.decision.findings[0].hypothesis
    taken = rf"\ablate{{{name}}}{{estimate}} \ablate{{embnorm/{name}}}{{interval}}, $p$ \ablate{{{name}}}{{p}}"
    taken += r", \ablate{embnorm}{verdict}"
    assert numbered(context, tmp_path, rf"\section{{{taken}}} {taken}").returncode == 0
    # A number that no evidence has, and a claim that nobody registered.
    for lie in (rf"\ablate{{{name}}}{{effect}}", r"\ablate{gian}{p}"):
        failed = numbered(context, tmp_path, lie)
        assert failed.returncode != 0 and "There is no" in failed.stdout
    # Another study with a claim of the same name: the short name would be either's.
    study = context.study.model_copy(update={"study": "other"})
    other = replace(context, registration=context.registration.model_copy(update={"study": study}))
    assert (
        numbered(
            other, tmp_path, rf"\ablate{{other/{name}}}{{p}} \ablate{{embnorm/{name}}}{{p}}", "numbers-other.tex"
        ).returncode
        == 0
    )
    ambiguous = numbered(other, tmp_path, rf"\ablate{{{name}}}{{p}}", "numbers-other.tex")
    assert ambiguous.returncode != 0 and "several studies: write STUDY" in ambiguous.stdout
    # A study without a verdict lends no number.
    assert numbered(told("inadmissible"), tmp_path, rf"\ablate{{embnorm/{name}}}{{p}}").returncode != 0


def test_the_methods_are_those_of_the_trainer_and_of_where_runs_were_made() -> None:
    context = told()
    here = " ".join(methods(context))
    assert "The built-in trainer of ablate made the runs." in here and "decoder-only transformer" in here
    made = Check(
        name="every run was made here",
        passed=False,
        severity="deviation",
        found="15 of 15 runs were made elsewhere and imported. Note: node 7",
    )
    brought = replace(context, decision=context.decision.model_copy(update={"checks": (made,)}))
    assert "The built-in trainer" not in (said := " ".join(methods(brought))) and "elsewhere and imported" in said
    own = study_from_document(own_document())
    registration = context.registration.model_copy(update={"study": own, "corpus": None})
    decision = context.decision.model_copy(update={"findings": ()})
    mine = " ".join(methods(replace(context, registration=registration, decision=decision)))
    assert "the researcher's own trainer" in mine and "transformer" not in mine and "built-in" not in mine


def test_only_methods_that_were_used_are_cited() -> None:
    assert {"holm1979", "student1908"} <= set(keys_in(*embnorm().texts.values()))
    context, study = told(), study_from_document(document(analysis={"correct": "none", "test": "sign_flip"}))
    other = replace(context, registration=context.registration.model_copy(update={"study": study}))
    cited = set(keys_in(latex_paragraphs([*methods(other)], Style())))
    assert "fisher1935" in cited and not cited & {"holm1979", "student1908", "westfall2001"}
    texts = embnorm().texts
    entries = re.findall(r"^@\w+\{(\w+),", texts["references.bib"], re.MULTILINE)
    assert set(entries) == set(keys_in(*texts.values())) == set(re.findall(r"bibitem\{(\w+)", texts["report.tex"]))


def test_every_work_that_our_sentences_name_has_an_entry() -> None:
    documents, reporting = ROOT / "prereg" / "documents", ROOT / "ablate" / "reporting"
    modules = [*documents.glob("*.py"), *documents.rglob("*.txt"), *reporting.rglob("*.txt")]
    cited = re.compile(r"\b[A-Z][\w'-]+(?:(?:, | and )[A-Z][\w'-]+)*(?: et al\.| and others)? \(?(?:19|20)\d\d\b\)?")
    strings = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?\n?\s*')
    for module in modules:
        text = module.read_text(encoding="utf-8")
        if module.suffix == ".py":
            text = "".join(strings.findall(re.sub(r'"""[\s\S]*?"""', "", text)))
        else:
            text = " ".join(text.split())
        for words in cited.findall(text):
            assert any(words.strip("()") in known or known in words for known in CITED), (module.name, words)


def test_bibtex_keeps_capitals_and_accents() -> None:
    text = bibtex(["westfall2001", "hajek1962", "welch1947"])
    assert "author = {Westfall, Peter H. and Krishen, Alok}," in text
    assert r"author = {H\'{a}jek, Jaroslav}" in text and "`{Student}'s'" in text and "pages = {25--40}," in text
    assert text.count("{") == text.count("}")


def test_every_entry_of_the_bibliography_is_read() -> None:
    bib = Path(references.__file__).parents[1] / "templates" / "references.bib"
    assert len(WORKS) == bib.read_text(encoding="utf-8").count("@")
    assert all(work.fields.keys() >= {"author", "title", "year"} and work.cited for work in WORKS.values())


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        ("a_b & 5% $x$ #1 {y}", r"a\_b \& 5\% \$x\$ \#1 \{y\}"),
        ("\\input{/etc/passwd} ~ ^", r"\textbackslash{}input\{/etc/passwd\} \textasciitilde{} \textasciicircum{}"),
        ("−0.3 × 2 ± 1 ≥ 0 ′", r"$-$0.3 $\times$ 2 $\pm$ 1 $\geq$ 0 $'$"),
        ("é ñ ï ß š Ω α Α", r"\'{e} \~{n} \"{\i} \ss{} \v{s} $\Omega$ $\alpha$ $A$"),
        ("\u202e\x1b[2J", r"\textbackslash{}u202e\textbackslash{}x1b[2J"),
        ("中", r"\ablatechar{4E2D}"),
        ("--shard ,, ''", r"-{}-shard ,{}, '{}'"),
    ],
)
def test_latex_shows_what_is_written(plain: str, escaped: str) -> None:
    assert latex(plain) == escaped


def test_names_are_in_typewriter_works_are_links_and_long_words_break() -> None:
    style = Style(frozenset({"val/loss", "gain_ln", "none"}))
    assert style.text("'gain_ln' of val/loss, none, p = .03") == (
        r"`\texttt{gain\_ln}' of \texttt{val/loss}, none, \textit{p} =~.03"
    )
    assert style.text("(Holm 1979) and Lan and DeMets (1983)") == (
        r"(\ablatecite{holm1979}{Holm 1979}) and \ablatecitet{lan1983}{Lan and DeMets (1983)}"
    )
    assert style.text("sha256 " + "ab12" * 4) == r"sha256 \texttt{ab12ab12\allowbreak{}ab12ab12}"
    assert style.text("`python -c 'x' --n_layers`") == r"\texttt{python -c 'x' -{}-\allowbreak{}n\_\allowbreak{}layers}"
    assert style.text("unapproachability") == "unapproachability"  # LaTeX hyphenates it
    assert style.cell("[−0.2, +0.1]") == "{}[$-$0.2,~+0.1]"


def test_a_table_of_many_rows_breaks_over_pages_and_wide_ones_wrap() -> None:
    texts = embnorm().texts
    assert r"\begin{tabular}" in texts["table-seeds.tex"] and r"\begin{longtable}" in texts["report.tex"]
    wide = Table("c", columns("A", "B"), (("word " * 60, "word " * 60),))
    assert r"p{0." in block(wide, Style(), {}) and r"\raggedright" in block(wide, Style(), {})
