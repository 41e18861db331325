"""Numbers of a decision as LaTeX macros (`numbers.tex`), so that a number in prose cannot drift from its evidence.

`\\ablate{CLAIM}{NAME}` is a value of a claim, and `\\ablate{STUDY}{NAME}` one of the study. A value that does not
exist, and every value of a study that gives no verdict, stops LaTeX with an error instead of leaving a gap.
"""

from __future__ import annotations

from collections.abc import Iterator

from ablate.reporting.context import ReportContext
from ablate.reporting.latex.render import Style
from ablate.reporting.view import FindingView, views_of
from prereg import text as words
from prereg.escape import latex

_MACROS = r"""\ifdefined\ablate\else
\DeclareRobustCommand{\ablate}[2]{%
  \ifcsname ablate@#1@#2\endcsname \csname ablate@#1@#2\endcsname
  \else\ifcsname ablate@#1@study\endcsname \ablatenumber{\csname ablate@#1@study\endcsname/#1}{#2}%
  \else \ablatenumber{#1}{#2}\fi\fi}
\newcommand{\ablatenumber}[2]{%
  \ifcsname ablate@#1@#2\endcsname \csname ablate@#1@#2\endcsname
  \else \PackageError{ablate}{There is no '#2' of '#1'}{See the names at the head of numbers.tex.}\textbf{??}\fi}
\newcommand{\ablateclaim}[2]{%
  \def\ablatestudy{#1}%
  \ifcsname ablate@#2@study\endcsname
    \expandafter\ifx\csname ablate@#2@study\endcsname\ablatestudy\else
      \expandafter\gdef\csname ablate@#2@study\endcsname{several studies: write STUDY}\fi
  \else \expandafter\gdef\csname ablate@#2@study\endcsname{#1}\fi}
\newcommand{\ablatedefine}[3]{\expandafter\gdef\csname ablate@#1@#2\endcsname{#3}}
\fi"""


def number_macros(context: ReportContext, style: Style) -> str:
    """Return the text of numbers.tex; `context` has its labels applied, and claims go by their ids."""
    study = context.study.study
    decision = context.decision
    lines = [
        f"% Numbers of the study '{study}', decided {words.moment(context.generated_at)}: {decision.status}.",
        rf"% \ablate{{CLAIM}}{{NAME}} in prose; \ablate{{{study}/CLAIM}}{{NAME}} where two studies share a claim name.",
        "% Names of a claim: outcome, estimate, low, high, interval, level, p, n, margin, unit, test.",
        "% Names of a study: verdict, status, registration. Written anew by `ablate report --as latex`; do not edit.",
        _MACROS,
        _defined(study, "status", latex(decision.status.replace("_", " "))),
        _defined(study, "registration", latex(decision.registration[:8])),
    ]
    if decision.verdict is not None:
        lines.append(_defined(study, "verdict", style.text(decision.verdict)))
        for view in views_of(decision.findings, context.study):
            lines.append(rf"\ablateclaim{{{study}}}{{{view.name}}}")
            lines += [_defined(f"{study}/{view.name}", name, value) for name, value in _values(view, style)]
    return "\n".join(lines) + "\n"


def _values(view: FindingView, style: Style) -> Iterator[tuple[str, str]]:
    """Yield name and LaTeX of the values that a finding has; one that it lacks is left out, never written as a dash."""
    yield "outcome", latex(view.outcome)
    if view.finding.smallest:
        yield "margin", style.text(words.compact(view.finding.smallest))
    if view.estimate is None:
        return
    yield "estimate", style.text(view.amount)
    yield "n", style.text(view.n)
    yield "test", style.text(view.test)
    if view.shown_unit:
        yield "unit", style.text(view.shown_unit)
    if view.bounds is not None:
        yield "interval", style.cell(view.bracket)
        yield "level", latex(view.level)
        # An open end is no number.
        if view.bounds.low is not None:
            yield "low", style.text(view.signed(view.bounds.low))
        if view.bounds.high is not None:
            yield "high", style.text(view.signed(view.bounds.high))
    if view.p_said:
        yield "p", style.text(view.p_said)


def _defined(owner: str, name: str, value: str) -> str:
    return rf"\ablatedefine{{{owner}}}{{{name}}}{{{value}}}"
