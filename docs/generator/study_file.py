"""docs/reference/study-file.md: every field of a study file."""

from __future__ import annotations

from docs.generator.fields import Fields
from docs.generator.markdown import NOTE
from prereg.documents.published import json_schema
from prereg.study.spec import Study

_HEAD = """# The study file

{note}

Every field of `studies/NAME.yaml`, with the values it takes, its default and its meaning. What the file leaves out
takes its default, and the registration stores it. A field that is not listed here is refused.
`ablate check --schema study` prints the same as a JSON schema, for an editor. In headings `NAME` stands for a
name that you choose, and `[]` for each entry of a list.

[Which design fits which question](../designs.md) shows whole studies, and [claims and the decision rule](rule.md) the
language of `claim` and `when`.

## The whole file

"""


def study_file_page() -> str:
    """The whole page."""
    schema = json_schema()
    needed = {name for name, field in Study.model_fields.items() if field.is_required()} - {*schema["required"]}
    unless = {("", name): "required, unless `components` writes it" for name in needed}
    unless["Hypothesis", "smallest"] = "required, unless the claim says it"
    return _HEAD.format(note=NOTE) + Fields(schema, unless=unless).page()
