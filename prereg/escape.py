"""Escaping of text that somebody else wrote, for a terminal, Markdown, LaTeX and JSON; Jinja2 escapes HTML.

Titles, reasons, notes, names and error texts come from files that others made. A control character in one of them can
clear a screen, an invisible one can hide a word, and a bidirectional one can turn a sentence round. `visible` decides
what is shown of such characters, for every renderer; ordinary text in any script comes back unchanged.
"""

from __future__ import annotations

import re
import unicodedata

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control, invisible and bidirectional characters, lone surrogates, separators of lines and paragraphs."""
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U000e0100-\U000e01ef]")
"""Characters of other categories that show nothing, not even the space that a space takes."""
_BREAK = re.compile(r"\r\n|[\n\t]")

_CODE = re.compile(r"(`[^`]+`)")
_RULE = re.compile(r"[-=_*~:| ]*[-=_*~][-=_*~:| ]*")
"""A line of these would make the line above it a heading or a table, or draw a rule."""
_NUMBER = re.compile(r"\d+\. ")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_EDGE_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_LINE_START = re.compile(r"^(\s*)([#>+-]|\d+[.)])(?=\s|$)")

_LATEX = dict(
    pair.split(" ")
    for pairs in (
        r"{ \{;} \};$ \$;& \&;# \#;% \%;_ \_;\ \textbackslash{};~ \textasciitilde{};^ \textasciicircum{}",
        r"` \textasciigrave{};< $<$;> $>$;| $|$;− $-$;× $\times$;± $\pm$;· $\cdot$;÷ $\div$;≤ $\leq$;≥ $\geq$;≠ $\neq$",
        r"≈ $\approx$;∞ $\infty$;√ $\surd$;∑ $\sum$;∈ $\in$;→ $\rightarrow$;← $\leftarrow$;↔ $\leftrightarrow$",
        r"⇒ $\Rightarrow$;′ $'$;″ $''$;° $^{\circ}$;¬ $\neg$;∆ $\Delta$;µ $\mu$;– --;— ---;‐ -;‑ -;‘ `;’ ';“ ``;” ''",
        r"… \dots{};• \textbullet{};§ \S{};© \copyright{};£ \pounds{};ß \ss{};æ \ae{};Æ \AE{};œ \oe{};Œ \OE{};ø \o{}",
        r"„ ,,;Ø \O{};ł \l{};Ł \L{};ı \i{};¿ ?`;¡ !`",
        *(f"{one} $^{{{digit}}}$" for digit, one in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")),
        *(f"{one} $_{{{digit}}}$" for digit, one in enumerate("₀₁₂₃₄₅₆₇₈₉")),
    )
    for pair in pairs.split(";")
)
"""What plain LaTeX cannot read as it is, or would read as a command."""
_ACCENTS = dict(
    zip(
        "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0323\u0327\u0328",
        "`'^~=u.\"rHvdck",
        strict=True,
    )
)
_GREEK = re.compile(r"GREEK (SMALL|CAPITAL) LETTER (\w+)")
_GREEK_SMALL = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi"
)
_GREEK_CAPITAL = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
_GREEK_NAMES = frozenset([*_GREEK_SMALL.split(), "psi", "omega", *_GREEK_CAPITAL.split()])
_LIKE_LATIN = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True))
"""Greek letters that LaTeX has no command for, because they look like Latin ones."""
_LIGATURE = re.compile("(?<=-)(?=-)|(?<=,)(?=,)|(?<=['’])(?=['’”])|(?<=‘)(?=[‘“])")
_OPENING_QUOTE = re.compile(r"(?<![^\s(\[/])([\"'])(?=\S)")


def visible(text: str, *, lines: bool = False) -> str:
    """The text with every character that cannot be seen written out: an escape character as `\\x1b`.

    A line break or a tab becomes a space, so that nobody can begin a line of ours; `lines` keeps them.

    >>> print(visible("red: \\x1b[31m, then\\na line"))
    red: \\x1b[31m, then a line
    """
    if not text.isprintable():
        broken = _BREAK.sub((lambda match: match[0][-1]) if lines else " ", text)
        text = "".join(
            _shown(character) if unicodedata.category(character) in _UNSEEN and character not in "\n\t" else character
            for character in broken
        )
    return _BLANK.sub(lambda match: _shown(match[0]), text)


def quoted(name: str) -> str:
    """A name of the user's, set apart from our words.

    >>> print(quoted("slow"))
    "slow"
    """
    return f'"{visible(name)}"'


def json_visible(text: str, encoding: str | None = None) -> str:
    """JSON with every character that cannot be seen as an escape of JSON's own: it still says the same. All but ASCII
    is escaped where the encoding of a stream cannot write it.

    >>> print(json_visible('{"name": "a\\u200bb"}'), json_visible('{"name": "é"}', encoding="ascii"))
    {"name": "a\\u200bb"} {"name": "\\u00e9"}
    """
    if text.isascii() and "\x7f" not in text:
        return text  # JSON allows no other control character within a string
    try:
        # A terminal of another encoding would fail at the first character that it lacks; an escape is the same
        # JSON.
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        text = "".join(character if character.isascii() else _in_json(character) for character in text)
    return "".join(
        _in_json(character) if character not in "\n\t\r" and visible(character) != character else character
        for character in text
    )


def markdown_line(text: str) -> str:
    """Plain text in one line that Markdown shows unchanged. Lone `_` inside words and `p < .05` need no escape.

    >>> print(markdown_line("*a* and b_c at p < .05"))
    \\*a\\* and b_c at p < .05
    """
    return _prose(_one_line(text), "`*|")


def markdown_sentence(text: str, *, numbered: bool = False) -> str:
    """The same of a line that sets words apart as `code`: they stay, and nothing in them is interpreted.

    `numbered` lets a line begin with a number and a full stop.
    """
    line = _one_line(text)
    # A backslash before it: the line stays as it is, and draws nothing.
    if _RULE.fullmatch(line):
        return f"\\{line}"
    number = match[0] if numbered and (match := _NUMBER.match(line)) else ""
    # The split keeps the code at the odd places.
    parts = _CODE.split(line.removeprefix(number))
    return number + "".join(part if at % 2 else _prose(part, "`*") for at, part in enumerate(parts))


def curly(text: str) -> str:
    """The text with straight quotes as opening and closing ones.

    >>> print(curly('the "best" of "all"'))
    the “best” of “all”
    """
    return _OPENING_QUOTE.sub(lambda match: {'"': "“", "'": "‘"}[match[1]], text).replace('"', "”")


def latex(text: str) -> str:
    """Plain text that LaTeX shows unchanged.

    pdflatex has no glyph for most scripts: a character that it cannot show becomes `\\ablatechar{CODE}`.

    >>> print(latex("50% of a_b & c"))
    50\\% of a\\_b \\& c
    """
    return "".join(_in_latex(character) for character in _LIGATURE.sub("\0", visible(text)))


def _in_latex(character: str) -> str:
    if character == "\0":  # between two characters that LaTeX would draw as one; `visible` leaves none in a text
        return "{}"
    if character in _LATEX or character.isascii():
        return _LATEX.get(character, character)
    if character in _LIKE_LATIN:
        return f"${_LIKE_LATIN[character]}$"
    # Decomposed: a letter with one mark that LaTeX has a command for; with two it has none.
    base, *marks = list(unicodedata.normalize("NFD", character))
    if base.isascii() and base.isalpha() and len(marks) == 1 and marks[0] in _ACCENTS:
        dotless = f"\\{base}" if base in "ij" else base
        return f"\\{_ACCENTS[marks[0]]}{{{dotless}}}"
    greek = _GREEK.fullmatch(unicodedata.name(character, ""))
    name = "" if greek is None else greek[2].replace("LAMDA", "LAMBDA").lower()
    name = name.capitalize() if greek is not None and greek[1] == "CAPITAL" else name
    return f"$\\{name}$" if name in _GREEK_NAMES else f"\\ablatechar{{{ord(character):04X}}}"


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def _prose(line: str, marks: str) -> str:
    # Backslashes first, before others are added; then `&`, before entities are.
    line = line.replace("\\", "\\\\").replace("&", "&amp;")
    for mark in marks:
        line = line.replace(mark, f"\\{mark}")
    line = _EDGE_UNDERSCORE.sub(r"\\_", line)
    line = _TAG.sub("&lt;", line).replace("](", "]\\(").replace("]:", "]\\:").replace("~~", "\\~\\~")
    return _LINE_START.sub(lambda match: f"{match[1]}{match[2][:-1]}\\{match[2][-1]}", line)


def _shown(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _in_json(character: str) -> str:
    # JSON escapes are UTF-16: a character beyond U+FFFF is two of them. A lone surrogate is kept as it is.
    pairs = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{pairs[at : at + 2].hex()}" for at in range(0, len(pairs), 2))
