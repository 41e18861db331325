"""References: the works that a report cites in words, as BibTeX and as a list.

A report names a method with author and year where it says what was done. What is cited is what its text names, so
a method that was not used is not among its references. The works are those of `templates/references.bib`, whose field
`cited` holds the words by which a text cites them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from prereg.errors import SpecError, Where
from prereg.escape import latex

_CITATION = re.compile(r"\\ablatecitet?\{(\w+)\}")


_ENTRY = re.compile(r"@(\w+)\{(\w+),\n(.*?)\n\}", re.DOTALL)
_FIELD = re.compile(r"^  (\w+) = \{(.*)\},$", re.MULTILINE)


@dataclass(frozen=True)
class Work:
    """One work of the literature."""

    kind: str
    """Its kind of entry in BibTeX."""
    fields: Mapping[str, str]
    """Of its entry, in plain text."""
    cited: tuple[str, ...]
    """How texts of ours cite it."""


Works = Mapping[str, Work]
"""Key of BibTeX -> work, in the order of the list of references."""


def _place(source: Mapping[str, str]) -> str:
    """Where a work appeared; empty where it does not say."""
    preprint = f"arXiv:{source['eprint']}" if "eprint" in source else ""
    return source.get("journal") or source.get("booktitle") or source.get("publisher") or preprint


def works_of(bib: str) -> Works:
    """The works of a file like ours. Raises `SpecError`, with its line, for an entry that no list of references can
    be made from."""
    works = {}
    for entry in _ENTRY.finditer(bib):
        kind, key, body = entry.groups()
        # A pattern for files written as ours are, a field a line; what it does not match is counted below and
        # refused.
        fields = dict(_FIELD.findall(body))
        lacking = [name for name in ("author", "title", "year", "cited") if not fields.get(name)]
        lacking += [] if _place(fields) else ["journal, booktitle, publisher or eprint"]
        if lacking or key in works:
            raise SpecError(
                f"the work '{key}' has no {lacking[0]}" if lacking else f"the key '{key}' is given twice",
                required="a key of its own, author, title, year, where it appeared, and in `cited` how texts cite it",
                fix="cited = {Holm 1979; Holm (1979)},",
                where=Where(line=bib.count("\n", 0, entry.start()) + 1),
            )
        works[key] = Work(kind, fields, tuple(fields.pop("cited").split("; ")))
    if len(works) != (begun := len(re.findall(r"^@", bib, re.MULTILINE))):
        raise SpecError(
            f"{begun - len(works)} of {begun} entries cannot be read",
            required="@KIND{KEY, on a line, fields on lines as `  NAME = {TEXT},`, and } on a line",
        )
    return dict(sorted(works.items()))


WORKS = works_of((Path(__file__).parents[1] / "templates" / "references.bib").read_text(encoding="utf-8"))
"""Those that sentences of ours name."""


def citations(works: Works) -> Mapping[str, str]:
    """How a text cites a work -> its key."""
    # A work may be cited in several ways, as Holm 1979 and Holm (1979).
    return {words: key for key, work in works.items() for words in work.cited}


CITED = citations(WORKS)


def keys_in(*pages: str, works: Works = WORKS) -> tuple[str, ...]:
    """The keys that LaTeX pages cite, in the order of the list of references.

    >>> keys_in(r"Corrected by Holm \\ablatecite{holm1979}.")
    ('holm1979',)
    """
    cited = {key for page in pages for key in _CITATION.findall(page)}
    return tuple(key for key in works if key in cited)


def bibtex(keys: Iterable[str], works: Works = WORKS) -> str:
    """The entries of a references.bib."""
    return "\n".join(_entry(key, works[key]) for key in keys)


def _entry(key: str, work: Work) -> str:
    lines = []
    for name, value in work.fields.items():
        text = latex(value)
        # Capitals within a title are those of names, which a style must not make small.
        lines.append(f"  {name} = {{{_kept(text) if name == 'title' else text}}},")
    return "\n".join([f"@{work.kind}{{{key},", *lines, "}\n"])


def _kept(title: str) -> str:
    first, space, rest = title.partition(" ")
    # The first word of a title keeps its capital in any style.
    return first + space + re.sub(r"(?<![\\\w{])([A-Z]\w*)", r"{\1}", rest)


def list_of_references(keys: Iterable[str], works: Works = WORKS) -> str:
    """The same as a list that a page brings with itself, so that it needs no run of bibtex."""
    items = [rf"\bibitem{{{key}}} {_line(works[key])}" for key in keys]
    return (
        "\n".join([r"\begin{thebibliography}{99}", r"\raggedright", *items, r"\end{thebibliography}"]) if items else ""
    )


def _line(work: Work) -> str:
    source = work.fields
    number = f"({source['number']})" if "number" in source else ""
    numbers = [f"{source['volume']}{number}"] if "volume" in source else []
    numbers += [source["pages"]] if "pages" in source else []
    place = ", ".join([rf"\emph{{{latex(_place(source))}}}", *map(latex, numbers)])
    return f"{latex(_authors(source['author']))} ({source['year']}). {latex(source['title'])}. {place}."


def _authors(author: str) -> str:
    # "Holm, Sture" to "Sture Holm"; an organisation is in braces, so that BibTeX does not take it apart.
    names = [
        name[1:-1] if name.startswith("{") else " ".join(reversed(name.split(", "))) for name in author.split(" and ")
    ]
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
