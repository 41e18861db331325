"""The report's claims: what every page must say, what it must never show, and that it stays inert."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest
from evidence_factory import make_evidence, small_study
from report_samples import ENDINGS, Ending, told, told_of

from ablate.reporting import charts, forest, html, markdown
from ablate.reporting.blocks import Figure, Table
from ablate.reporting.context import ReportContext
from ablate.reporting.document import compose
from ablate.reporting.sections import curves
from prereg import text as words

SUITE_TIMES = {"speed/measure_loss_s": 30.0, "speed/measure_calibration_s": 60.0}
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Every tag with its attributes, the text, and a check that tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open[-5:])
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


@pytest.fixture(scope="module")
def pages() -> dict[Ending, str]:
    """The HTML of every ending, drawn once."""
    return {ending: html.render_html(told(ending)) for ending in ENDINGS}


def titled(title: str) -> ReportContext:
    """A study with another title, and without drawings, which take time."""
    whole = told("incomplete", title=title)
    return replace(whole, decision=whole.decision.model_copy(update={"title": title}))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_fetched_and_nothing_runs(pages: dict[Ending, str], ending: Ending) -> None:
    page = Page(pages[ending])
    assert not {name for name, _ in page.tags} & {"script", "iframe", "link", "object", "embed", "img", "base", "form"}
    for _, attributes in page.tags:
        assert "src" not in attributes and "srcset" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "@import" not in pages[ending]
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", pages[ending]))


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_page_is_one_well_formed_document_with_language_and_title(pages: dict[Ending, str], ending: Ending) -> None:
    page = Page(pages[ending])
    assert pages[ending].startswith("<!DOCTYPE html>")
    assert ("html", {"lang": "en"}) in page.tags
    assert page.count("title") >= 1 and page.count("h1") == 1 and page.count("main") == 1
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    targets = {attributes["href"] for name, attributes in page.tags if name == "a"}
    assert targets == {f"#{section.id}" for section in compose(told(ending)).sections}


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_table_has_a_caption_and_scopes_and_every_drawing_a_name(
    pages: dict[Ending, str], ending: Ending
) -> None:
    page = Page(pages[ending])
    assert page.count("caption") == page.count("table") > 0
    assert all(attributes.get("scope") in ("col", "row") for name, attributes in page.tags if name == "th")
    assert all(
        attributes.get("role") == "img" and attributes.get("aria-label")
        for name, attributes in page.tags
        if name == "svg"
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_page_and_markdown_tell_the_same_verdict_reasons_and_hashes(pages: dict[Ending, str], ending: Ending) -> None:
    whole = told(ending)
    page, text = Page(pages[ending]).text, markdown.render_markdown(whole)
    decision = whole.decision
    for needed in (
        decision.because,
        decision.registration,
        decision.evidence,
        whole.ledger_head,
        decision.verdict or ("Unfinished" if ending == "incomplete" else "No verdict"),
    ):
        assert needed in page and needed in text, needed
    for check in decision.checks:
        assert check.passed or (check.found in page and check.found in text)


@pytest.mark.slow
def test_no_p_value_is_zero_anywhere(pages: dict[Ending, str]) -> None:
    for ending in ENDINGS:
        text = Page(pages[ending]).text + markdown.render_markdown(told(ending))
        assert not re.search(r"\bp\s*=\s*0?\.?0+(?![\d.])", text)


def test_an_incomplete_study_shows_nothing_that_separates_the_arms(pages: dict[Ending, str]) -> None:
    whole = told("incomplete")
    page = Page(pages["incomplete"])
    assert page.count("svg") == 0
    shown = page.text + markdown.render_markdown(whole)
    blocks = [block for section in compose(whole).sections for block in section.blocks]
    assert not [block for block in blocks if isinstance(block, Figure)]
    captions = " ".join(block.caption for block in blocks if isinstance(block, Table))
    for hidden in ("Findings", "Values", "Stability", "Pairs"):
        assert hidden not in captions
    for value in whole.evidence.metrics["value"]:
        if value != round(value):
            assert f"{value:.4f}" not in shown
    assert "while planned runs are missing" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "title", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }} & </title>"]
)
def test_a_title_stays_inert(title: str) -> None:
    rendered = html.render_html(titled(title))
    page = Page(rendered)
    assert page.count("script") == 0 and page.count("img") == 0
    assert title in page.text
    assert "<script" not in markdown.render_markdown(titled(title)) and "<img" not in markdown.render_markdown(
        titled(title)
    )


def test_a_question_with_markup_stays_inert_and_text() -> None:
    rendered = markdown.render_markdown(told(question="a | b <b>bold</b> `code` [x](y) *z*\n\n# no heading"))
    assert "# no heading" not in rendered.splitlines()
    assert "a \\| b &lt;b>bold&lt;/b> \\`code\\`" in rendered


@pytest.mark.parametrize("ending", ENDINGS)
def test_markdown_tables_are_well_formed(ending: Ending) -> None:
    lines = markdown.render_markdown(told(ending)).splitlines()
    widths: list[int] = []
    tables = 0
    for line in [*lines, ""]:
        if line.startswith("|"):
            assert line.endswith("|")
            widths.append(len(re.findall(r"(?<!\\)\|", line)))
        elif widths:
            assert len(set(widths)) == 1 and len(widths) >= 3, (widths, line)
            tables, widths = tables + 1, []
    assert tables >= 6


def test_markdown_escapes_what_would_be_markup_and_leaves_the_rest() -> None:
    assert markdown.escape("gain_ln: p < .05") == "gain_ln: p < .05"
    assert markdown.escape("_x_ <b> a|b") == "\\_x\\_ &lt;b> a\\|b"
    assert markdown.escape("1. no list") == "1\\. no list"
    assert markdown.escape("# no heading") == "\\# no heading"
    assert markdown.escape("[a](b)") == "[a]\\(b)"


def test_a_pair_that_does_not_match_is_counted() -> None:
    whole = told()
    runs = list(whole.evidence.runs)
    at = next(at for at, run in enumerate(runs) if (run.variant, run.seed) == ("layernorm", 2))
    changed = {**(runs[at].must_match or {}), "batches": "other", "initial/wte": "other"}
    runs[at] = runs[at].model_copy(update={"must_match": changed})
    text = markdown.render_markdown(replace(whole, evidence=replace(whole.evidence, runs=tuple(runs))))
    line = next(line for line in text.splitlines() if line.startswith("| layernorm |") and " of 95" in line)
    assert "94 of 95" in line and "4 of 5" in line


@pytest.mark.slow
def test_a_finding_without_an_estimate_is_told_without_numbers() -> None:
    whole = told()
    bare = whole.decision.findings[0].model_copy(
        update={
            "estimate": None,
            "simultaneous": None,
            "p_support": None,
            "p_refute": None,
            "p_support_adjusted": None,
            "p_refute_adjusted": None,
            "effects": (),
            "also": (),
            "pairs": (),
            "n": 0,
            "outcome": "inconclusive",
        }
    )
    decision = whole.decision.model_copy(update={"findings": (bare, *whole.decision.findings[1:])})
    page = Page(html.render_html(replace(whole, decision=decision))).text
    assert "no estimate, n = 0" in page and "no test" in page


def test_a_report_of_another_registration_is_our_own_mistake() -> None:
    whole = told()
    with pytest.raises(AssertionError):
        compose(replace(whole, decision=whole.decision.model_copy(update={"registration": "0" * 64})))


def test_the_price_of_the_costliest_suite_is_told_where_it_was_recorded_and_nowhere_else() -> None:
    whole = told()
    plain = markdown.render_markdown(whole)
    assert "most of it" not in plain
    frame = whole.evidence.metrics
    last = frame[frame["metric"] == "val/loss"].groupby(["variant", "seed"], sort=False).tail(1)
    runs = len(last)
    timed = [last.assign(metric=name, value=seconds) for name, seconds in SUITE_TIMES.items()]
    priced = markdown.render_markdown(
        replace(whole, evidence=replace(whole.evidence, metrics=pd.concat([frame, *timed])))
    )
    assert f"(most of it: calibration {words.duration(runs * 60.0)})" in priced
    assert "speed/measure" not in priced


@pytest.mark.slow
def test_markdown_draws_nothing_and_so_makes_no_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = told("decided")
    expected = markdown.render_markdown(whole)

    def made(*_: object, **__: object) -> None:
        raise AssertionError("a chart that nobody draws")

    monkeypatch.setattr(forest, "forest", made)
    monkeypatch.setattr(charts, "paired", made)
    monkeypatch.setattr(curves, "lines", made)
    assert "Figure (drawn in report.html)" in expected
    assert markdown.render_markdown(whole) == expected
    with pytest.raises(AssertionError, match="nobody draws"):
        html.render_html(whole)


@pytest.mark.slow
def test_several_adopting_lines_show_the_tie_breakers() -> None:
    shifts = {"val/loss": {"layernorm": -0.08, "rmsnorm": -0.08}}
    told = told_of(make_evidence(small_study(), effects=shifts, sd=0.002))
    assert told.decision.tie_breakers
    assert "Tie-breaking metrics" in markdown.render_markdown(told) and "speed/tokens_per_s" in html.render_html(told)


@pytest.mark.parametrize(
    "left_out",
    [(("rmsnorm", 3),), tuple((arm, seed) for arm in ("none", "layernorm", "rmsnorm") for seed in range(1, 6))],
)
def test_missing_runs_draw_nothing_and_show_no_finding(left_out: tuple[tuple[str, int], ...]) -> None:
    told = told_of(make_evidence(small_study(), left_out=left_out))
    page, text = html.render_html(told), markdown.render_markdown(told)
    assert "<svg" not in page and "Paired t," not in text and "## Curves" not in text
