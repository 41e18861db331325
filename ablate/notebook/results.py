"""Results in a notebook, of a decision or a judged table: frames, figures, and the first screen as HTML.

Nothing is computed here. Findings are the judge's, frames have the columns of the CSV files, figures are those of the
report, and what the report may not show is refused with the reason that `ablate decide` gives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from prereg.errors import EvidenceError, nearest

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from ablate.judge.verdict import Decision, Finding
    from ablate.reporting.context import ReportContext
    from ablate.reporting.document import Document
    from ablate.reporting.exports.figures import Drawing
    from ablate.runner.local import Summary
    from prereg.registry.ledger_entry import DecidedEntry, EarlierClaims
    from prereg.registry.looks import Look
    from prereg.registry.registration import Registration
    from prereg.study.spec import Study


@dataclass(frozen=True, repr=False)
class Ran:
    """What a call of `run` did."""

    registration: Registration
    registered_now: bool
    summary: Summary
    look: Look | None = None
    """The look that the trained seeds lead up to; none for a fixed number of seeds."""

    def __repr__(self) -> str:
        done = f"sealed={self.summary.sealed}, planned={self.summary.planned}, failed={len(self.summary.failed)}"
        return f"Ran(study={self.registration.study.study!r}, {done})"


class Results(ABC):
    """Frames and figures of findings. `Decided` and `JudgedFrame` say whose, and what may be shown of them."""

    @property
    @abstractmethod
    def _study(self) -> Study: ...

    @property
    @abstractmethod
    def status(self) -> str:
        """decided, decided_with_deviations, inconclusive, inadmissible, continue or unfinished; of a table of results,
        exploratory."""

    @abstractmethod
    def _require_findings(self) -> tuple[Finding, ...]: ...

    @abstractmethod
    def _first_screen(self) -> Document: ...

    def _whole(self) -> Document:
        return self._first_screen()

    @property
    def findings(self) -> pd.DataFrame:
        """A row for each hypothesis: outcome, difference, interval, p, n, test and margin. Raises `EvidenceError` where
        no contrast may be shown."""
        from ablate.reporting.exports.frames import findings_frame

        return findings_frame(self._study.study, self.status, self._require_findings())

    def pairs(self, of: str | None = None) -> pd.DataFrame:
        """A row for each pair of each hypothesis, or of those of one hypothesis or metric: left, right and difference.

        A difference is the claim's left side minus its right side, variant minus baseline. Raises `EvidenceError` where
        no contrast may be shown, for a name that is neither, and for a test without pairs.
        """
        from ablate.reporting.exports.frames import pairs_frame

        # Refused here and not at each figure: which figures there are says something of the evidence too.
        return pairs_frame(self._study, self.status, self._require_findings(), of)

    @property
    def figures(self) -> tuple[str, ...]:
        """The names that `figure` takes; `ablate report --as figures` names its files so."""
        return tuple(self._drawings)

    def figure(self, name: str) -> alt.LayerChart:
        """A figure of the report as an altair chart, with its caption. Raises `EvidenceError` for an unknown name,
        which lists the known ones, and where no contrast may be shown."""
        from ablate.reporting.context import not_to_be_used
        from ablate.reporting.exports.figures import chart

        if name not in self._drawings:
            names = self.figures
            raise EvidenceError(
                f"no figure is named '{name}'", required=f"one of {', '.join(names)}", fix=nearest(name, names)
            )
        # A figure leaves the notebook by itself: of evidence that is inadmissible it says so within its frame.
        return chart(self._drawings[name], warning=not_to_be_used() if self.status == "inadmissible" else "")

    @cached_property
    def _drawings(self) -> dict[str, Drawing]:
        from ablate.reporting.exports.figures import drawings

        self._require_findings()
        # A narrow panel is the same figure again, for a phone.
        return {drawing.stem: drawing for drawing in drawings(self._whole()) if drawing.panel.shape != "narrow"}

    def _repr_html_(self) -> str:
        from ablate.reporting.html import first_screen

        return first_screen(self._first_screen())

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        from ablate.reporting.terminal import show_document

        text = StringIO()
        # A string has no terminal to ask for its width.
        show_document(Console(file=text, width=80), self._first_screen())
        return text.getvalue().rstrip("\n")


@dataclass(frozen=True, repr=False)
class Decided(Results):
    """A decision and where it was written. In a notebook it shows itself; `print` it elsewhere."""

    decision: Decision
    """The judge's, as in verdict.json."""
    registration: Registration
    head: str
    """The ledger's, after everything that this call appended."""
    verdict_path: Path | None = None
    markdown_path: Path | None = None
    html_path: Path | None = None
    exported: tuple[Path, ...] = ()
    """The files of forms other than the two pages."""
    earlier: tuple[DecidedEntry, ...] = ()
    """Decisions of the same registration before this one."""
    evidence_path: Path | None = None
    """The committed evidence that was judged, because no sealed run is in `data/runs`."""
    context: ReportContext | None = field(default=None, compare=False)
    """What the report tells, of a decision whose records are here."""

    def __repr__(self) -> str:
        return f"Decided(study={self.decision.study!r}, status={self.status!r}, verdict={self.verdict!r})"

    @property
    def verdict(self) -> str | None:
        """The registered words of the verdict; none where it is unfinished, continues or is inadmissible."""
        return self.decision.verdict

    @property
    def status(self) -> str:
        """decided, inconclusive, inadmissible, continue or unfinished."""
        return self.decision.status

    @property
    def headline(self) -> str:
        """The verdict in a sentence, with size, interval, n and margin of what it rests on; or why there is none."""
        from ablate.reporting.headline import headline_of

        decision = self.decision.labelled(self.registration.study.labels)
        return headline_of(decision, self.registration).sentence

    @property
    def runs(self) -> pd.DataFrame:
        """A row for each sealed run, with the final values of the claimed metrics, missing where it diverged. Raises
        `EvidenceError` where no contrast may be shown, and where the records are not here."""
        from ablate.reporting.exports.frames import runs_frame

        return runs_frame(self._require_context())

    def curves(self, metric: str | None = None) -> pd.DataFrame:
        """Every recorded value by arm, seed and step, of one metric or of those of the claims and val/loss. Raises
        `EvidenceError` as `runs` does, and for a metric that no run recorded."""
        from ablate.reporting.exports.frames import curves_frame

        return curves_frame(self._require_context(), metric)

    @property
    def _study(self) -> Study:
        return self.registration.study

    def _require_findings(self) -> tuple[Finding, ...]:
        if self.decision.findings:
            return self.decision.findings
        study = self.decision.study
        # Missing runs can be made; of anything else `verify` says what is wrong.
        going = self.status in ("unfinished", "continue")
        raise EvidenceError(
            f"'{study}' shows no contrast: {self.decision.because}",
            required="a study whose planned runs have ended as promised",
            fix=f'ablate.run("studies/{study}.yaml")' if going else f"ablate verify studies/{study}.yaml",
        )

    def _require_context(self) -> ReportContext:
        self._require_findings()
        if self.context is None:
            raise EvidenceError(
                f"the sealed records of '{self.decision.study}' are not on this disk",
                required="the sealed records, or the committed evidence",
                fix="restore them from a backup; .findings and .pairs() need none",
            )
        return self.context

    def _whole(self) -> Document:
        from ablate.reporting.document import compose

        return compose(self._require_context())  # the whole report, of which the first screen is a part

    def _first_screen(self) -> Document:
        from ablate.reporting.document import decision_document

        return decision_document(
            self.decision, self.registration, earlier=self.earlier, claimed_before=self.claimed_before
        )

    @property
    def claimed_before(self) -> EarlierClaims | None:
        """Earlier studies that claimed the same, by the ledger's entry of the decision; none where it names none."""
        return None if self.context is None else self.context.claimed_before
