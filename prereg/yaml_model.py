"""`Study.from_yaml` and `to_yaml` (`YamlModel`): from a text or a file, and written so that it reads back the same.

`YamlModel` is the base of `prereg.study.spec.Study` and holds what a notebook calls on it. Reading and writing are the
format's own (`prereg.study.load`), which is imported where it is called because it builds on `Study`.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from prereg.errors import SpecError, StudyError, StudyFileError, Where
from prereg.frozen import FrozenModel
from prereg.registry.disk import write_whole
from prereg.yaml_reader import CORE, Lines, line_of, parse_yaml

if TYPE_CHECKING:
    from prereg.study.spec import Study


class YamlModel(FrozenModel):
    """A model that is written as YAML."""

    @classmethod
    def from_yaml(cls, source: str | Path) -> Self:
        """The study of a YAML text, or of the file at a path: a string of several lines is a text.

        Raises `StudyError`, placed at its line, for what is no study.
        """
        from prereg.study.load import load_study

        # A study has several lines, or is a mapping in braces on one: any other line is a path.
        if isinstance(source, Path) or ("\n" not in source.strip() and not source.lstrip().startswith("{")):
            return cls.model_validate(load_study(Path(source)).study)
        lines: Lines = {}
        try:
            return cls.model_validate(study_in_memory(parse_yaml(source.encode(errors="surrogatepass"), lines)))
        except StudyError as error:
            raise error.at(line=error.where.line or line_of(error.where.field, lines)) from None

    def to_yaml(self, path: str | Path | None = None, *, replace: bool = False) -> str:
        """The study as YAML without its defaults, which `from_yaml` reads as an equal study; written to a path too.

        A file that holds this study already is left as it is. Raises `StudyFileError` where the file's name is not the
        study's, where another file is in its place (unless `replace`), and for text that no study file may hold.

        >>> from prereg import Study
        >>> study = Study.from_yaml('''
        ... study: tiny
        ... title: Does a larger step help?
        ... trainer: command
        ... command: ["{python}", train.py, "--lr={lr}", "--seed={seed}"]
        ... base: {lr: 0.1}
        ... variants: {small: {}, large: {lr: 0.3}}
        ... baseline: small
        ... seeds: [1, 2, 3]
        ... hypotheses: {gain: {claim: large lowers val/loss by at least 0.02}}
        ... decision: [{verdict: take it, when: supported(gain)}, {verdict: keep it}]
        ... ''')
        >>> Study.from_yaml(study.to_yaml()) == study
        True
        >>> print(study.to_yaml().splitlines()[-3])
        decision:
        """
        from prereg.study.load import load_study

        # 1. The text, which must read back as this very study.
        document = self.model_dump(mode="json", exclude_defaults=True)
        text = yaml_text(document)
        assert self._is(type(self).from_yaml(text)), text
        if path is None:
            return text
        # 2. Its place: a study's file has the study's name, and another study is never overwritten unasked.
        place, name = Path(path), f"{document['study']}.yaml"
        if place.name != name:
            raise StudyFileError(
                f"study '{document['study']}' as '{place.name}'",
                required="the study's id as the file's name",
                fix=f'study.to_yaml("{place.with_name(name)}")',
            )
        if place.exists() and not replace:
            try:
                same = self._is(load_study(place).study)
            except StudyError:
                same = False
            if not same:
                raise StudyFileError(
                    "this file is there already and says something else",
                    required="a free name, since its comments and its study would be lost",
                    fix=f'study.to_yaml("{place}", replace=True)',
                    where=Where(file=place),
                )
            return text
        # 3. Written whole.
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text.encode())
        return text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.to_yaml())}</pre>"

    def _is(self, other: FrozenModel) -> bool:
        """Whether both have the same bytes: to Python, 1 equals 1.0, and dicts in another order are equal."""
        return self.model_dump_json() == other.model_dump_json()


def yaml_text(document: Mapping[str, Any]) -> str:
    """Plain data as YAML: no anchors, and quotes where some reader would take a text for something else.

    >>> yaml_text({"seeds": [1, 2], "title": "1e3"})
    'seeds: [1, 2]\\ntitle: "1e3"\\n'
    """
    # sort_keys=False: the order of factors names the arms. default_flow_style=None: short lists on one line.
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None
    )
    return text


def study_in_memory(document: Mapping[str, Any]) -> Study:
    """The study of plain data that lies in no file. Raises `StudyError` for what is no study, and for fresh seeds,
    which are those that other studies beside a file leave."""
    from prereg.study.spec import study_from_document

    if isinstance(document.get("seeds"), str):
        raise SpecError(
            f"seeds: {document['seeds']}, of a study that lies in no file",
            required="a list of seeds, or a file among other studies",
            fix="seeds: [1, 2, 3, 4, 5]",
            where=Where(field=("seeds",)),
        )
    try:
        return study_from_document(document)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"a value that YAML cannot hold: {error}", required="text, finite numbers, lists and mappings of text"
        ) from None


class _Dumper(yaml.SafeDumper):
    """What `yaml_text` writes by."""

    # Our own reader refuses aliases, which PyYAML writes where one object comes twice.
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # What the core schema takes for a number, a truth value or null needs quotes to stay a text.
    taken = any(pattern.fullmatch(text) for pattern, _ in CORE)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if taken else None)


_Dumper.add_representer(str, _represent_text)
