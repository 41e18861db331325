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


def _place(source: Mapping[str, str]) -> str:
    """Where a work appeared; empty where it does not say."""
    preprint = f"arXiv:{source['eprint']}" if "eprint" in source else ""
    return source.get("journal") or source.get("booktitle") or source.get("publisher") or preprint


def _read_works(bib: str) -> dict[str, Work]:
    """Return the works of our own bibliography, by key. Its pattern is for a file with one field a line."""
    works = {}
    for kind, key, body in _ENTRY.findall(bib):
        fields = dict(_FIELD.findall(body))
        # How texts cite it, as in "Holm 1979; Holm (1979)".
        cited = tuple(fields.pop("cited").split("; "))
        works[key] = Work(kind, fields, cited)
    return dict(sorted(works.items()))


WORKS = _read_works((Path(__file__).parents[1] / "templates" / "references.bib").read_text(encoding="utf-8"))
"""Key of BibTeX -> work that sentences of ours name, in the order of the list of references."""

CITED = {words: key for key, work in WORKS.items() for words in work.cited}
"""Words by which a text cites a work -> its key."""


def keys_in(*pages: str) -> tuple[str, ...]:
    """The keys that LaTeX pages cite, in the order of the list of references.

    >>> keys_in(r"Corrected by Holm \\ablatecite{holm1979}.")
    ('holm1979',)
    """
    cited = {key for page in pages for key in _CITATION.findall(page)}
    return tuple(key for key in WORKS if key in cited)


def bibtex(keys: Iterable[str]) -> str:
    """The entries of a references.bib."""
    return "\n".join(_entry(key, WORKS[key]) for key in keys)


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


def list_of_references(keys: Iterable[str]) -> str:
    """The same as a list that a page brings with itself, so that it needs no run of bibtex."""
    items = [rf"\bibitem{{{key}}} {_line(WORKS[key])}" for key in keys]
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
