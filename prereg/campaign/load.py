"""Loading a campaign file to a `Campaign`, with every mistake named by file, line and field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from prereg.campaign.spec import Campaign
from prereg.errors import FieldPath, StudyError
from prereg.study.faults import read_model
from prereg.study.load import read_text_file
from prereg.yaml_reader import Lines, file_error, line_of, parse_yaml

FORM = "the campaign format"
_FIRST = "campaign: NAME"


@dataclass(frozen=True)
class LoadedCampaign:
    """A campaign and the exact bytes it was read from."""

    campaign: Campaign
    source_bytes: bytes
    path: Path
    lines: Lines = field(default_factory=dict)
    """The line of every path of the document, from 1."""

    def line(self, path: FieldPath) -> int | None:
        """The line of a field, or of its nearest ancestor that the file holds."""
        return line_of(path, self.lines)


def is_campaign(path: Path) -> bool:
    """Whether a file is written as a campaign: by its field `campaign`. Raises `StudyError` for a file that cannot be
    read, or is no YAML."""
    lines: Lines = {}
    try:
        return "campaign" in parse_yaml(read_text_file(path), lines)
    except StudyError as error:
        raise error.at(file=path, line=error.where.line or line_of(error.where.field, lines)) from None


def load_campaign(path: Path) -> LoadedCampaign:
    """Read a campaign file. Raises a child of `StudyError` placed at file, line and field.

    >>> text = '''
    ... campaign: night
    ... title: Which changes of the step help?
    ... start:
    ...   trainer: command
    ...   command: ["{python}", train.py, "--lr={lr}", "--seed={seed}"]
    ...   base: {lr: 0.1}
    ... metric: val/loss
    ... smallest: 0.002
    ... stages: {seeds: [2, 4, 8]}
    ... budget: {proposals: 100, runs: 800}
    ... error: {any_false_keep: 0.05}
    ... '''
    >>> _ = Path("night.yaml").write_text(text)
    >>> load_campaign(Path("night.yaml")).campaign.stages.new_seeds
    (2, 2, 4)
    """
    source = read_text_file(path)
    lines: Lines = {}
    try:
        document = parse_yaml(source, lines, first=_FIRST)
        # Before the model, which would answer a study with a list of missing fields.
        if "study" in document and "campaign" not in document:
            raise file_error(
                "a study, not a campaign", "the path of a campaign file", f"ablate check {path}", field=("study",)
            )
        campaign = campaign_from_document(document)
        if campaign.campaign != path.stem:
            raise file_error(
                f"campaign '{campaign.campaign}' lies in a file named '{path.name}'",
                "the campaign's id is its file's name",
                f"campaign: {path.stem}",
                field=("campaign",),
            )
    except StudyError as error:
        # The others in the order of the file, after the mistake that was found first.
        first, *others = (
            fault.at(file=path, line=fault.where.line or line_of(fault.where.field, lines))
            for fault in (error, *error.others)
        )
        raise first.followed_by(sorted(others, key=lambda fault: fault.where.line or 0)) from None
    return LoadedCampaign(campaign, source, path, lines)


def campaign_from_document(document: Mapping[str, JsonValue]) -> Campaign:
    """A campaign from plain data. Raises `SpecError` naming the field."""
    return read_model(Campaign, dict(document), form=FORM)
