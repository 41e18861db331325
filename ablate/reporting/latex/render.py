"""LaTeX renderer of blocks (paragraphs, lists, tables, figures), text escaped by `prereg.escape.latex`.

Adds nothing; `prereg.escape` escapes all.

Widths of columns are estimated from their characters, so that nothing runs over the margin and one run of pdflatex
gives the page. What is written needs `preamble.tex`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import assert_never

from ablate.reporting.blocks import Block, Facts, Figure, Paragraph, Section, Table
from ablate.reporting.latex.references import CITED
from prereg.escape import curly, latex
from prereg.text import MINUS

_CODE = re.compile(r"(`[^`]+`)")
_HASH = r"\b[0-9a-f]{12,64}\b"
_STATISTIC = re.compile(r"(?<![\w.-])([pt]|n|df)(?= (?:[=<>]|to (?:support|refute)))")
INTERVAL_OR_WORD = re.compile(r"\[[^\]\s]+, [^\]\s]+\]|[<>] \S+|\S+")
COMPARISON_OR_WORD = re.compile(r"[<>] \S+|\S+")
_BOUNDS = re.compile(r"(\[[^\]\s]+,) ([^\]\s]+\])")
_COMPARED = re.compile(r"(\$[<>]\$|=) (?=[.\d])")
_TOKEN = re.compile(r"\\(?:[a-zA-Z]+|[^a-zA-Z])(?:\{[^{}]*\})?|\$[^$]*\$|.(?:\{\})?", re.DOTALL)
_BREAK_AFTER = ("/", r"\_", ".", ":", "=", ",", "-", r"\textbackslash{}")
_LONG, _LONGEST, _PIECE, _TYPED = 14, 30, 8, 8
"""A word of more characters than `_LONG`, in typewriter `_TYPED`, may be broken after a sign; a run of letters within
it if it is longer than any word that LaTeX hyphenates, in typewriter if it is long; and then into pieces."""


@dataclass(frozen=True)
class Style:
    """How one document is written."""

    names: frozenset[str] = frozenset()
    """Arms, metrics and hypotheses: those with a sign that no word has are set in typewriter."""
    line: float = 345.0
    """Points of a line, for which the columns of tables are planned; as LaTeX's own page of 10 pt has."""

    def text(self, plain: str) -> str:
        """One line of running text."""
        parts = (
            part if part[:1] == "`" else curly(part).replace(" - ", f" {MINUS} ")
            for part in _CODE.split(" ".join(plain.split()))
        )
        set_text = "".join(self._part(at, part) for at, part in enumerate(self._marked.split("".join(parts))))
        return _COMPARED.sub(r"\1~", set_text)

    def cell(self, plain: str, *, tied: bool = True) -> str:
        """The same for a cell of a table; in it a `tied` interval stays on one line."""
        set_text = self.text(plain).replace("$<$~.", "$<$.").replace("$>$~.", "$>$.")
        set_text = _BOUNDS.sub(r"\1~\2", set_text) if tied else set_text
        return (
            f"{{}}{set_text}" if set_text[:1] in ("[", "*") else set_text
        )  # after \\ they would be read as its options

    def is_typewriter(self, word: str) -> bool:
        """Whether a word is set in typewriter, as a whole or as the beginning of a longer name."""
        return not word.isalpha() and any(name.startswith(word) for name in self.names)

    def _part(self, at: int, part: str) -> str:
        if at % 2 == 0:
            pieces = enumerate(_STATISTIC.split(part))
            return "".join(rf"\textit{{{piece}}}" if odd % 2 else breakable(latex(piece)) for odd, piece in pieces)
        if part in CITED:
            return rf"\ablatecite{'t' * part.endswith(')')}{{{CITED[part]}}}{{{latex(part)}}}"
        return rf"\texttt{{{breakable(latex(part.strip('`')), _TYPED, _LONG)}}}"

    @cached_property
    def _marked(self) -> re.Pattern[str]:
        """Code, hashes, cited works and names; the longest first: one may begin another."""
        # A word of letters alone needs no typewriter; with a sign in it, it is a name.
        special = sorted((name for name in self.names if not name.isalpha()), key=len, reverse=True)
        names = [rf"(?<![\w/.-]){re.escape(name)}(?![\w/-])" for name in special]
        works = [re.escape(words) for words in sorted(CITED, key=len, reverse=True)]
        return re.compile("(" + "|".join([r"`[^`]+`", _HASH, *works, *names]) + ")")


def breakable(escaped: str, long: int = _LONG, longest: int = _LONGEST) -> str:
    """LaTeX in which long words have places to break.

    >>> breakable("embedding/norm_after_training")
    'embedding/\\\\allowbreak{}norm_after_training'
    """
    words = escaped.split(" ")
    return " ".join("".join(_with_breaks(word, long, longest)) if len(word) > long else word for word in words)


def _with_breaks(word: str, long: int, longest: int) -> Iterator[str]:
    tokens = _TOKEN.findall(word)
    # Counted in what is printed: an escape such as \_ is one letter.
    if len(tokens) <= long:
        yield word
        return
    for is_sign, group in groupby(tokens, lambda token: token in _BREAK_AFTER):
        run = list(group)
        # A run of letters that LaTeX can hyphenate stays whole; of a hash every piece may end a line.
        size = len(run) if is_sign or len(run) <= longest else _PIECE
        yield r"\allowbreak{}".join("".join(run[at : at + size]) for at in range(0, len(run), size))
        yield r"\allowbreak{}" * is_sign


MOST_ROWS = 24
"""Rows of a table that a paper can place as one float; longer ones break over pages."""
MOST_OF_PANELS = 3
"""Rows of panels of one float: a page holds no more with their caption."""
_SIZES = {"small": 0.92, "footnotesize": 0.86, "scriptsize": 0.8}
"""How much narrower smaller letters are: less than they are lower."""
_THIN, _BROAD = frozenset(" .,:;!|'iljtfrI()[]/-"), frozenset("mwMW%@−+×±<>=∞–ABCDEFGHKNOPQRUVXYZ")
_TONES = {
    "plain": "{}",
    "trust": "{}",
    "warning": r"\textbf{{{}}}",
    "lead": r"\emph{{{}}}",
    "aside": r"{{\small {}\par}}",
}


def latex_sections(parts: Sequence[Section], style: Style, files: Mapping[str, Sequence[str]]) -> str:
    """Sections with their headings, of a page of their own; `files` are those of the panels of each figure."""
    return "\n\n".join(
        "\n\n".join(
            [rf"\section{{{_heading(part.title, style)}}}", *(block(content, style, files) for content in part.blocks)]
        )
        for part in parts
    )


def block(content: Block, style: Style, files: Mapping[str, Sequence[str]]) -> str:
    """One block where it is read."""
    match content:
        case Paragraph():
            return _TONES[content.tone].format(style.text(content.text))
        case Facts():
            kind = "description" if any(term for term, _ in content.items) else "itemize"
            terms = (rf"[{{{style.text(term)}}}]" * (kind == "description") for term, _ in content.items)
            items = (rf"\item{term} {style.text(item[1])}" for term, item in zip(terms, content.items, strict=True))
            return "\n".join([rf"\begin{{{kind}}}", *items, rf"\end{{{kind}}}"])
        case Table():
            return long_table(content, style)
        case Figure():
            return "\n\n".join(_drawn(content, style, files.get(content.name, ())))
        case _:
            assert_never(content)


def _heading(title: str, style: Style) -> str:
    """A heading; its bookmark can hold no mathematics and no command."""
    # hyperref writes headings into bookmarks, where a command is an error.
    set_text, plain = style.text(title), re.sub(r"[^A-Za-z0-9 .,:;()'-]", "", title)
    return set_text if set_text == plain else rf"\texorpdfstring{{{set_text}}}{{{plain}}}"


def latex_paragraphs(texts: Sequence[str], style: Style) -> str:
    """Running text, a paragraph for each.

    >>> print(latex_paragraphs(["A share of 5%.", "p = .03"], Style()))
    A share of 5\\%.
    <BLANKLINE>
    \\textit{p} =~.03
    """
    return "\n\n".join(map(style.text, texts))


def float_table(table: Table, style: Style, label: str) -> str:
    """A table that a paper places, with a label; one of many rows breaks over pages where it is."""
    # A float cannot break over pages: beyond a page it would never be placed.
    if len(table.rows) > MOST_ROWS:
        return long_table(table, style, label)
    size, layout, tied = _layout(table, style)
    lines = [
        r"\begin{table}[tbp]",
        r"\centering",
        rf"\caption{{{style.text(table.caption)}}}",
        rf"\label{{{label}}}",
        rf"\{size}\setlength{{\tabcolsep}}{{{_gap(table)}pt}}%",
        rf"\begin{{tabular}}{{{layout}}}",
        r"\toprule",
        _head(table, style),
        r"\midrule",
        *_rows(table, style, tied=tied),
        r"\bottomrule",
        r"\end{tabular}",
        *([rf"\par\smallskip\raggedright\footnotesize {style.text(table.note)}"] if table.note else []),
        r"\end{table}",
    ]
    return "\n".join(lines)


def long_table(table: Table, style: Style, label: str = "") -> str:
    """A table where it is read, over as many pages as it takes."""
    size, layout, tied = _layout(table, style)
    head = [r"\toprule", _head(table, style), r"\midrule"]
    caption = []
    if table.caption:
        named = rf"\caption{{{style.text(table.caption)}}}" + (rf"\label{{{label}}}" if label else "")
        caption = [rf"{named}\\"]
    lines = [
        rf"{{\{size}\setlength{{\tabcolsep}}{{{_gap(table)}pt}}\setlength{{\LTcapwidth}}{{\linewidth}}%",
        rf"\begin{{longtable}}{{{layout}}}",
        *caption,
        *head,
        r"\endfirsthead",
        *head,
        r"\endhead",
        r"\bottomrule",
        r"\endlastfoot",
        *_rows(table, style, tied=tied),
        r"\end{longtable}",
        # It counts as a table with a caption or without one.
        *([] if table.caption else [r"\addtocounter{table}{-1}"]),
        *([rf"\noindent\footnotesize {style.text(table.note)}\par\medskip"] if table.note else []),
        "}",
    ]
    return "\n".join(lines)


def float_figure(figure: Figure, style: Style, files: Sequence[str], label: str) -> str:
    """A figure that a paper places, with a label; one of many panels is placed in parts."""
    made = []
    for at, part in enumerate(_batches(files)):
        more = " (continued)" * (at > 0)
        caption = style.text(figure.caption) if at == 0 else rf"{style.text(figure.name)}{more}."
        made.append(
            "\n".join(
                [
                    r"\begin{figure}[tbp]",
                    r"\centering",
                    part,
                    rf"\caption{{{caption}}}",
                    rf"\label{{{label}{f':{at + 1}' * (at > 0)}}}",
                    r"\end{figure}",
                ]
            )
        )
    return "\n\n".join(made)


def _drawn(figure: Figure, style: Style, files: Sequence[str]) -> Sequence[str]:
    """Panels, then the caption: a grid of them may break over pages."""
    parts = [rf"\begin{{center}}{part}\end{{center}}" for part in _batches(files)]
    caption = rf"\begin{{quote}}\small \textbf{{{style.text(figure.name)}.}} {style.text(figure.caption)}\end{{quote}}"
    return [*parts, caption]


def _batches(files: Sequence[str]) -> Sequence[str]:
    alone = len(files) == 1
    size = r"width=0.62\linewidth,height=0.7\textheight,keepaspectratio" if alone else r"width=0.485\linewidth"
    drawn = [rf"\includegraphics[{size}]{{\ablatefolder {file}}}" for file in files]
    rows = ["\\hfill\n".join(drawn[at : at + 2]) for at in range(0, len(drawn), 2)]
    return ["\n\n".join(rows[at : at + MOST_OF_PANELS]) for at in range(0, len(rows), MOST_OF_PANELS)]


def _head(table: Table, style: Style) -> str:
    cells = [rf"\textbf{{{style.text(column.name)}}}" if column.name else "" for column in table.columns]
    return " & ".join(cells) + r" \\"


def _rows(table: Table, style: Style, *, tied: bool) -> list[str]:
    lines = []
    for at, row in enumerate(table.rows):
        cells = [style.cell(cell, tied=tied) for cell in row]
        if at in table.marked:
            cells = [rf"\textbf{{{cell}}}" if cell else cell for cell in cells]
        if table.grouped and at and row[0] != table.rows[at - 1][0]:
            lines.append(r"\addlinespace")
        lines.append(" & ".join(cells) + r" \\")
    return lines


def _layout(table: Table, style: Style) -> tuple[str, str, bool]:
    """The size of the letters; the columns, as broad as they are where all fit, else wrapped within shares of the line;
    and whether intervals stay on one line."""
    columns = [
        [(column.name, True), *((row[at], n in table.marked) for n, row in enumerate(table.rows))]
        for at, column in enumerate(table.columns)
    ]
    room = style.line - 2 * _gap(table) * (len(columns) - 1)
    natural = [max(_width(cell, style, bold=bold) for cell, bold in cells) for cells in columns]
    # First as wide as they are: no column wraps if none has to.
    for size in ("footnotesize",) if table.folded else ("small", "footnotesize"):
        if sum(natural) * _SIZES[size] <= room:
            return size, "@{}" + "".join("r" if column.numeric else "l" for column in table.columns) + "@{}", True
    # Then the largest letters in which no word runs over its column; intervals break last.
    for size, tied in (("small", True), ("footnotesize", True), ("scriptsize", True), ("scriptsize", False)):
        least = [
            max(_width(word, style, bold=bold) for cell, bold in cells for word in _words(cell, tied))
            for cells in columns
        ]
        if sum(least) * _SIZES[size] <= room * (0.8 if size == "small" else 1.0):
            break
    # A heading may wrap before a cell has to.
    rest = [[_width(cell, style, bold=bold) for cell, bold in cells[1:]] for cells in columns]
    natural = [max([low, *cells]) * _SIZES[size] for low, cells in zip(least, rest, strict=True)]
    widths = _shared(natural, [width * _SIZES[size] for width in least], room)
    layout = "".join(
        rf">{{\ragged{'left' if column.numeric else 'right'}\arraybackslash\hspace{{0pt}}}}"
        rf"p{{{width / style.line:.4f}\linewidth}}"
        for column, width in zip(table.columns, widths, strict=True)
    )
    return size, f"@{{}}{layout}@{{}}", tied


def _gap(table: Table) -> int:
    """Points on each side of a column."""
    return 3 if len(table.columns) > 7 else 4


def _shared(natural: Sequence[float], least: Sequence[float], room: float) -> list[float]:
    """Widths that fill the room: none broader than it needs, none narrower than its longest word where that fits."""
    floor = _capped(least, room)
    # What remains once every column has its longest word goes to those that want more.
    left = room - sum(floor)
    extra = [max(0.0, needed - low) for needed, low in zip(natural, floor, strict=True)]
    # A column of sentences wants much more than one of names; by square roots neither starves.
    roots = [needed**0.5 for needed in extra]
    total = sum(roots) or 1.0
    widths = [low + left * root / total for low, root in zip(floor, roots, strict=True)]
    # What a column was given beyond its need goes to those that still wrap, in equal parts.
    spare = sum(max(0.0, width - needed) for width, needed in zip(widths, natural, strict=True))
    widths = [min(width, max(needed, low)) for width, needed, low in zip(widths, natural, floor, strict=True)]
    hungry = [needed > width + 1e-9 for needed, width in zip(natural, widths, strict=True)]
    share = spare / (sum(hungry) or 1)
    return [width + share * is_hungry for width, is_hungry in zip(widths, hungry, strict=True)]


def _capped(least: Sequence[float], room: float) -> list[float]:
    """Widths that fit into the room: where they do not, the broadest give, which are those of words that can break."""
    left = room
    for at, width in enumerate(sorted(least)):
        columns = len(least) - at
        if width * columns > left:
            return [min(width, left / columns) for width in least]
        left -= width
    return [*least]


def _words(cell: str, tied: bool) -> Sequence[str]:
    """The words of a cell as far as nothing breaks them; a `tied` interval is one."""
    pieces = (INTERVAL_OR_WORD if tied else COMPARISON_OR_WORD).findall(cell)
    return [word if word[0] in "[<>" else word[:14] for word in pieces] or [""]


def _width(text: str, style: Style, *, bold: bool) -> float:
    """Points that a text takes in ten point letters, a little too many rather than too few."""
    if " " in text:
        words = text.split(" ")
        return sum(_width(word, style, bold=bold) for word in words) + 3.6 * (len(words) - 1)
    if style.is_typewriter(text):
        return 5.3 * len(text) + 1.5
    return 1.5 + (1.25 if bold else 1.08) * sum(
        3.1 if letter in _THIN else 7.6 if letter in _BROAD else 5.3 for letter in text
    )
