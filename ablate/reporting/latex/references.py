"""The works that a report cites in words: which there are, and those of a text as BibTeX and as a list of references.

A report names a method with author and year where it says what was done. What is cited is what its text names, so
a method that was not used is not among its references.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prereg.escape import latex

_CITATION = re.compile(r"\\ablatecitet?\{(\w+)\}")


@dataclass(frozen=True)
class Work:
    """One work of the literature."""

    kind: str
    """Its kind of entry in BibTeX."""
    author: str
    title: str
    year: int
    source: Mapping[str, str]
    """The other fields of its entry."""
    cited: tuple[str, ...]
    """How texts of ours cite it."""


def _article(author: str, title: str, year: int, where: str, cited: Iterable[str]) -> Work:
    """An article; `where` is `Journal, volume(number), pages`."""
    journal, volume, pages = where.rsplit(", ", 2)
    issue = re.fullmatch(r"(\d+)(?:\((.+)\))?", volume)
    assert issue is not None, where
    number = {} if issue[2] is None else {"number": issue[2]}
    return Work(
        "article", author, title, year, {"journal": journal, "volume": issue[1], **number, "pages": pages}, (*cited,)
    )


def _book(author: str, title: str, year: int, publisher: str, cited: str) -> Work:
    return Work("book", author, title, year, {"publisher": publisher}, (cited,))


WORKS: Mapping[str, Work] = {
    "banerjee1960": _article(
        "Banerjee, Saibal",
        "Approximate confidence interval for linear functions of means of k populations when the population variances "
        "are not equal",
        1960,
        "Sankhyā, 22(3/4), 357–358",
        ["Banerjee 1960"],
    ),
    "benjamini1995": _article(
        "Benjamini, Yoav and Hochberg, Yosef",
        "Controlling the false discovery rate: a practical and powerful approach to multiple testing",
        1995,
        "Journal of the Royal Statistical Society: Series B, 57(1), 289–300",
        ["Benjamini and Hochberg 1995"],
    ),
    "bretz2009": _article(
        "Bretz, Frank and Maurer, Willi and Brannath, Werner and Posch, Martin",
        "A graphical approach to sequentially rejective multiple test procedures",
        2009,
        "Statistics in Medicine, 28(4), 586–604",
        ["Bretz, Maurer, Brannath and Posch 2009", "Bretz et al. 2009"],
    ),
    "brier1950": _article(
        "Brier, Glenn W.",
        "Verification of forecasts expressed in terms of probability",
        1950,
        "Monthly Weather Review, 78(1), 1–3",
        ["Brier 1950"],
    ),
    "cliff1993": _article(
        "Cliff, Norman",
        "Dominance statistics: ordinal analyses to answer ordinal questions",
        1993,
        "Psychological Bulletin, 114(3), 494–509",
        ["Cliff 1993"],
    ),
    "cochran1977": _book("Cochran, William G.", "Sampling Techniques", 1977, "Wiley", "Cochran 1977"),
    "cornfield1956": _article(
        "Cornfield, Jerome and Tukey, John W.",
        "Average values of mean squares in factorials",
        1956,
        "The Annals of Mathematical Statistics, 27(4), 907–949",
        ["Cornfield and Tukey 1956"],
    ),
    "efron1979": _article(
        "Efron, Bradley",
        "Bootstrap methods: another look at the jackknife",
        1979,
        "The Annals of Statistics, 7(1), 1–26",
        ["Efron 1979"],
    ),
    "efron1987": _article(
        "Efron, Bradley",
        "Better bootstrap confidence intervals",
        1987,
        "Journal of the American Statistical Association, 82(397), 171–185",
        ["Efron 1987"],
    ),
    "efron1993": _book(
        "Efron, Bradley and Tibshirani, Robert J.",
        "An Introduction to the Bootstrap",
        1993,
        "Chapman & Hall",
        "Efron and Tibshirani 1993",
    ),
    "fisher1935": _book("Fisher, Ronald A.", "The Design of Experiments", 1935, "Oliver and Boyd", "Fisher 1935"),
    "gelman2014": _article(
        "Gelman, Andrew and Carlin, John",
        "Beyond power calculations: assessing Type S (sign) and Type M (magnitude) errors",
        2014,
        "Perspectives on Psychological Science, 9(6), 641–651",
        ["Gelman and Carlin 2014"],
    ),
    "guo2017": Work(
        "inproceedings",
        "Guo, Chuan and Pleiss, Geoff and Sun, Yu and Weinberger, Kilian Q.",
        "On calibration of modern neural networks",
        2017,
        {"booktitle": "Proceedings of the 34th International Conference on Machine Learning", "pages": "1321–1330"},
        ("Guo et al. 2017",),
    ),
    "hajek1962": _article(
        "Hájek, Jaroslav",
        "Inequalities for the generalized Student's distribution and their applications",
        1962,
        "Selected Translations in Mathematical Statistics and Probability, 2, 63–74",
        ["Hajek 1962"],
    ),
    "hedges1981": _article(
        "Hedges, Larry V.",
        "Distribution theory for Glass's estimator of effect size and related estimators",
        1981,
        "Journal of Educational Statistics, 6(2), 107–128",
        ["Hedges 1981"],
    ),
    "holm1979": _article(
        "Holm, Sture",
        "A simple sequentially rejective multiple test procedure",
        1979,
        "Scandinavian Journal of Statistics, 6(2), 65–70",
        ["Holm 1979", "Holm (1979)"],
    ),
    "jennison1989": _article(
        "Jennison, Christopher and Turnbull, Bruce W.",
        "Interim analyses: the repeated confidence interval approach",
        1989,
        "Journal of the Royal Statistical Society: Series B, 51(3), 305–361",
        ["Jennison and Turnbull 1989"],
    ),
    "lai1976": _article(
        "Lai, Tze Leung",
        "On confidence sequences",
        1976,
        "The Annals of Statistics, 4(2), 265–280",
        ["Lai 1976"],
    ),
    "lan1983": _article(
        "Lan, K. K. Gordon and DeMets, David L.",
        "Discrete sequential boundaries for clinical trials",
        1983,
        "Biometrika, 70(3), 659–663",
        ["Lan and DeMets (1983)", "Lan-DeMets (1983)"],
    ),
    "mccullagh2000": _article(
        "McCullagh, Peter",
        "Resampling and exchangeable arrays",
        2000,
        "Bernoulli, 6(2), 285–301",
        ["McCullagh 2000"],
    ),
    "owen2007": _article(
        "Owen, Art B.",
        "The pigeonhole bootstrap",
        2007,
        "The Annals of Applied Statistics, 1(2), 386–411",
        ["Owen 2007"],
    ),
    "ramdas2017": Work(
        "inproceedings",
        "Ramdas, Aaditya and Yang, Fanny and Wainwright, Martin J. and Jordan, Michael I.",
        "Online control of the false discovery rate with decaying memory",
        2017,
        {"booktitle": "Advances in Neural Information Processing Systems 30"},
        ("Ramdas and others 2017",),
    ),
    "rouder2009": _article(
        "Rouder, Jeffrey N. and Speckman, Paul L. and Sun, Dongchu and Morey, Richard D. and Iverson, Geoffrey",
        "Bayesian t tests for accepting and rejecting the null hypothesis",
        2009,
        "Psychonomic Bulletin & Review, 16(2), 225–237",
        ["Rouder et al. 2009"],
    ),
    "satterthwaite1946": _article(
        "Satterthwaite, Franklin E.",
        "An approximate distribution of estimates of variance components",
        1946,
        "Biometrics Bulletin, 2(6), 110–114",
        ["Satterthwaite (1946)"],
    ),
    "schuirmann1987": _article(
        "Schuirmann, Donald J.",
        "A comparison of the two one-sided tests procedure and the power approach for assessing the equivalence of "
        "average bioavailability",
        1987,
        "Journal of Pharmacokinetics and Biopharmaceutics, 15(6), 657–680",
        ["Schuirmann 1987"],
    ),
    "student1908": _article(
        "Student", "The probable error of a mean", 1908, "Biometrika, 6(1), 1–25", ["Student 1908"]
    ),
    "ville1939": _book(
        "Ville, Jean", "Étude critique de la notion de collectif", 1939, "Gauthier-Villars", "Ville 1939"
    ),
    "wang2023": Work(
        "misc",
        "Wang, Hongjian and Ramdas, Aaditya",
        "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance",
        2023,
        {"eprint": "2310.03722", "archiveprefix": "arXiv"},
        ("Wang and Ramdas 2023",),
    ),
    "welch1947": _article(
        "Welch, Bernard L.",
        "The generalization of ‘Student's’ problem when several different population variances are involved",
        1947,
        "Biometrika, 34(1/2), 28–35",
        ["Welch 1947"],
    ),
    "westfall1993": _book(
        "Westfall, Peter H. and Young, S. Stanley",
        "Resampling-Based Multiple Testing: Examples and Methods for p-Value Adjustment",
        1993,
        "Wiley",
        "Westfall and Young 1993",
    ),
    "whitehead1986": _article(
        "Whitehead, John",
        "On the bias of maximum likelihood estimation following a sequential test",
        1986,
        "Biometrika, 73(3), 573–581",
        ["Whitehead (1986)", "Whitehead 1986"],
    ),
    "wilcoxon1945": _article(
        "Wilcoxon, Frank",
        "Individual comparisons by ranking methods",
        1945,
        "Biometrics Bulletin, 1(6), 80–83",
        ["Wilcoxon 1945"],
    ),
}
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
    fields = {"author": work.author, "title": work.title, "year": str(work.year), **work.source}
    lines = []
    for name, value in fields.items():
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
    source = dict(work.source)
    where = source.get("journal") or source.get("booktitle") or source.get("publisher") or f"arXiv:{source['eprint']}"
    number = f"({source['number']})" if "number" in source else ""
    numbers = [f"{source['volume']}{number}"] if "volume" in source else []
    numbers += [source["pages"]] if "pages" in source else []
    place = ", ".join([rf"\emph{{{latex(where)}}}", *map(latex, numbers)])
    return f"{latex(_authors(work.author))} ({work.year}). {latex(work.title)}. {place}."


def _authors(author: str) -> str:
    names = [" ".join(reversed(name.split(", "))) for name in author.split(" and ")]
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
