"""Design in a notebook, which shows itself as `ablate design` prints it."""

from __future__ import annotations

from ablate.judge.design.characteristics import Design
from ablate.reporting.document import Banner, Document
from ablate.reporting.html import first_screen
from ablate.reporting.summaries.study import design_section


class ShownDesign(Design):
    """What `ablate.design` returns."""

    @classmethod
    def of(cls, design: Design) -> ShownDesign:
        """The same design."""
        # Validated when it was made.
        return cls.model_construct(**{name: getattr(design, name) for name in Design.model_fields})

    def __repr__(self) -> str:
        return f"Design(study={self.study!r}, test={self.test!r}, n_seeds={self.n_seeds}, n_runs={self.n_runs})"

    def _repr_html_(self) -> str:
        section = design_section(self)
        banner = Banner("design", "Design, before any data", section.title, (), ())
        return first_screen(Document(self.study, "", banner, section.blocks, ()))
