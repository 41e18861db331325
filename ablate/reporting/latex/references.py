"""The works that a report cites in words: which there are, and those of a text as BibTeX and as a list of references.

A report names a method with author and year where it says what was done. What is cited is what its text names, so
a method that was not used is not among its references. The works are those of `templates/references.bib`, whose field
`cited` holds the words by which a text cites them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
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


def _works(bib: str) -> Iterator[tuple[str, Work]]:
    for kind, key, body in _ENTRY.findall(bib):
        fields = dict(_FIELD.findall(body))
        cited = fields.pop("cited").split("; ")
        yield key, Work(kind, fields, tuple(cited))


WORKS: Mapping[str, Work] = dict(
    _works((Path(__file__).parents[1] / "templates" / "references.bib").read_text(encoding="utf-8"))
)
"""Key of BibTeX -> work, by author."""
CITED: Mapping[str, str] = {words: key for key, work in WORKS.items() for words in work.cited}
"""How a text of ours cites a work -> its key."""


def keys_in(*pages: str) -> tuple[str, ...]:
    """The keys that LaTeX pages cite, in the order of the list of references."""
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
    return first + space + re.sub(r"(?<![\\\w{])([A-Z]\w*)", r"{\1}", rest)


def list_of_references(keys: Iterable[str]) -> str:
    """The same as a list that a page brings with itself, so that it needs no run of bibtex."""
    items = [rf"\bibitem{{{key}}} {_line(WORKS[key])}" for key in keys]
    return (
        "\n".join([r"\begin{thebibliography}{99}", r"\raggedright", *items, r"\end{thebibliography}"]) if items else ""
    )


def _line(work: Work) -> str:
    source = work.fields
    where = source.get("journal") or source.get("booktitle") or source.get("publisher") or f"arXiv:{source['eprint']}"
    number = f"({source['number']})" if "number" in source else ""
    numbers = [f"{source['volume']}{number}"] if "volume" in source else []
    numbers += [source["pages"]] if "pages" in source else []
    place = ", ".join([rf"\emph{{{latex(where)}}}", *map(latex, numbers)])
    return f"{latex(_authors(source['author']))} ({source['year']}). {latex(source['title'])}. {place}."


def _authors(author: str) -> str:
    names = [" ".join(reversed(name.split(", "))) for name in author.split(" and ")]
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
