"""Words of validation errors: pydantic's, put in the words of the study format (`spec_error`).

Pydantic names Python types. A study's author wants the most useful fault: a misspelt field before the field it left
missing. Lines are added by `prereg.study.load`, which alone knows the text.

To say a kind of fault in other words: a row of `_KINDS` (what a value must be) or `_BOUNDS`, by pydantic's name for it;
of YAML itself a row of `_YAML`. `python tests/error_examples.py docs/errors.md` shows the messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from prereg.errors import ClaimError, FieldPath, SpecError, StudyFileError, Where, nearest
from prereg.frozen import BRANCH, field_texts
from prereg.study.claim import parse_claim
from prereg.study.command import words_of
from prereg.study.removed import REMOVED, removed_error

Fault = dict[str, Any]

_KINDS = {
    "string_type": "text (in quotes, if it looks like a number)",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list, in square brackets",
    "list_type": "a list, in square brackets",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "finite_number": "a finite number",
    "string_pattern_mismatch": "a name: letters, digits and underscores, beginning with a letter, its parts joined by "
    "'-' or '.'",
}
_BOUNDS = {
    "greater_than": ("gt", "more than {}"),
    "greater_than_equal": ("ge", "at least {}"),
    "less_than": ("lt", "less than {}"),
    "less_than_equal": ("le", "at most {}"),
    "too_long": ("max_length", "at most {} items"),
    "too_short": ("min_length", "at least {} items"),
    "string_too_long": ("max_length", "at most {} characters"),
    "string_too_short": ("min_length", "at least {} characters"),
}


M = TypeVar("M", bound=BaseModel)


def read_model(model: type[M], document: Any, *, form: str = "the study format", within: FieldPath = ()) -> M:
    """A model from plain data. Raises `SpecError` naming the field, which lies `within` another."""
    try:
        return model.model_validate_json(json.dumps(document, allow_nan=False))
    except ValidationError as error:
        fault = spec_error(error, model, form=form)
        raise (fault.at(field=(*within, *fault.where.field)) if within else fault) from None


def spec_error(error: ValidationError, model: type[BaseModel], *, form: str = "the study format") -> SpecError:
    """The faults of a validation error of `model`, over data that should have the `form`: the most useful first, the
    others after it."""
    # One error a path: a value that fits no branch of a union is a fault of every branch.
    faults: list[Fault] = [{**fault} for fault in error.errors(include_url=False) if not _echo(fault)]
    errors: dict[FieldPath, SpecError] = {}
    of_removed = {path[:-1] for path in map(_path, faults) if len(path) > 1 and path in REMOVED}
    # Misspelt fields come first, so that a field which they leave missing is told from one that nobody wrote.
    for chosen in sorted(faults, key=_usefulness):
        path = _path(chosen)
        # Next to a removed field, what its form demanded or allowed is no fault of its own.
        if path[:-1] in of_removed and path not in REMOVED and chosen["type"] in ("missing", "extra_forbidden"):
            continue
        misspelt = (fault.fix for place, fault in errors.items() if place[:-1] == path[:-1])
        if chosen["type"] == "missing" and f"did you mean '{path[-1]}'?" in misspelt:
            continue  # it is there, under another name
        # `claim: 3` without `smallest`: two errors for one mistake, since the claim may hold the margin.
        if (
            path[-1:] == ("smallest",)
            and chosen["type"] == "missing"
            and not isinstance(chosen["input"].get("claim", ""), str)
        ):
            continue
        errors.setdefault(path, _error(chosen, model=model, form=form))
    first, *others = errors.values()
    return first.followed_by(others)


def _error(chosen: Fault, *, model: type[BaseModel], form: str) -> SpecError:
    """One fault, at the path that a user knows."""
    path = _path(chosen)
    if chosen["type"] == "extra_forbidden":
        if removed := removed_error(path, path):
            return removed
        fields = fields_at(model, path[:-1])
        # `layers` next to `model` was meant to be in it.
        below = [field for field in fields if path[-1] in fields_at(model, (*path[:-1], field))]
        return SpecError(
            f"unknown field '{path[-1]}'",
            required=f"a field of {form}",
            fix=f"{below[0]}: {{{path[-1]}: ...}}" if len(below) == 1 else nearest(str(path[-1]), fields),
            where=Where(field=path),
        )
    if chosen["type"] == "missing":
        last = path[-1]
        if last == "smallest":
            return _no_smallest(path, chosen["input"])
        absent = f"'{last}' is missing" if isinstance(last, str) else f"item {last + 1} of the list is missing"
        return SpecError(absent, required=_documented(model, path), where=Where(field=path))
    required, fix = _required(chosen)
    # A text that is none of a branch's words may have been meant as another branch; the mark of the branch says so.
    of_branch = str(next(reversed(chosen["loc"]), ""))
    if of_branch.startswith(BRANCH) and ", " in of_branch:
        required += f"; {of_branch.partition(', ')[2]}"
    return SpecError(_found(chosen), required=required, fix=fix, where=Where(field=path))


def _no_smallest(path: FieldPath, hypothesis: Any) -> SpecError:
    """What is wrong with a claim that was to say it; that it is missing, where nothing is."""
    claim = hypothesis.get("claim")
    by = ""
    if isinstance(claim, str):
        try:
            verb = parse_claim(claim, baseline="baseline").plain_verb
        except ClaimError as error:
            return error.at(field=(*path[:-1], "claim"))
        by = "; or, in the claim, by at least D" if verb in ("lowers", "raises") else ""
    return SpecError(
        "'smallest' is missing",
        required="the smallest difference that matters, in the metric's own unit",
        fix=f"smallest: D, with your number for D{by}",
        where=Where(field=path),
    )


_LEVELS = "two spaces for each level"
# What PyYAML says and, after a line break, the line it says it of, as a pattern -> what is meant, what is required,
# what to type. The first that fits decides.
_YAML = (
    (r"character '\\t'", "a tab where the line begins", "spaces: YAML takes no tab there", _LEVELS),
    (
        r"mapping values are not allowed.*\n.*: .*: ",
        "a second ': ' in one value",
        "quotes round a text that holds ': '",
        'title: "Dropout: does it help?"',
    ),
    (
        r"mapping values are not allowed",
        "a field below a line that has a value already",
        "fields of one block indented by the same number of spaces",
        _LEVELS,
    ),
    (
        r"quoted scalar",
        "a quote that is not closed",
        "a second quote of the same kind",
        "the quote after the value too, or no quotes",
    ),
    (r"parsing a flow mapping", "a '{' that is not closed, or a missing comma", "a '}' and commas", "{a: 1, b: 2}"),
    (r"parsing a flow sequence", "a '[' that is not closed, or a missing comma", "a ']' and commas", "[1, 2, 3]"),
    (r"could not find expected ':'", "a line without a colon", "field: value", ""),
    (r"that cannot start any token", "a value that begins with a sign of YAML's own", "quotes round it", '"VALUE"'),
    (r"found '[]}]'", "a bracket that closes nothing", "an opening bracket before it, or quotes round the value", ""),
    (
        r"expected <block end>.*\n.*: *[\"']",
        "text after a closing quote",
        "quotes round the whole value; inside single quotes, two of them for one",
        "",
    ),
    (
        r"expected <block end>|expected the node content",
        "a line whose indentation fits no line above it",
        "fields of one block indented by the same number of spaces",
        _LEVELS,
    ),
)


def yaml_error(error: yaml.MarkedYAMLError, text: str) -> StudyFileError:
    """What is wrong with a text that is no YAML, at its line, with the words that the line holds."""
    problem = f"{error.context or ''} {error.problem or ''}"
    # PyYAML finds an open quote or bracket at the end of the file, and keeps in its context where it was opened.
    opened = error.context_mark if re.search("quoted|flow|expected ':'", problem) else None
    mark = opened or error.problem_mark
    line = None if mark is None else mark.line + 1
    shown = "" if line is None or line > text.count("\n") + 1 else text.split("\n")[line - 1].strip()
    # With the line after the problem: some patterns look at what the line holds.
    for pattern, meant, required, fix in _YAML:
        if re.search(pattern, f"{problem}\n{shown}"):
            what = f"{meant}: {shown[:60]}" if shown else meant
            return StudyFileError(f"not YAML: {what}", required=required, fix=fix, where=Where(line=line))
    return StudyFileError(
        f"not YAML: {error.problem or error.context}", required="one YAML mapping", where=Where(line=line)
    )


def fields_at(model: type[BaseModel], path: Sequence[str | int]) -> tuple[str, ...]:
    """Names of the fields that the format knows at a path of a document.

    >>> from prereg.study.training import Training
    >>> fields_at(Training, ("optim",))[:3]
    ('name', 'lr', 'betas')
    """
    fields = (field for below in _models_at(model, path) for field in below.model_fields.items())
    return tuple(dict.fromkeys(field.alias or name for name, field in fields))


def _echo(fault: Mapping[str, Any]) -> bool:
    """Whether a list is called too short only because an item of it is faulty, which is reported by itself."""
    return bool(fault["type"] == "too_short" and len(fault["input"]) >= fault["ctx"]["min_length"])


def _usefulness(fault: Fault) -> int:
    return {"extra_forbidden": 0, "missing": 2}.get(fault["type"], 1)


def _path(fault: Fault) -> FieldPath:
    """The fault's location as a user knows it: without the branches of unions, and pydantic's mark of a faulty key."""
    return tuple(part for part in fault["loc"] if not str(part).startswith((BRANCH, "[key]")))


def _found(fault: Fault) -> str:
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"].args[0])
    shown = json.dumps(fault["input"], ensure_ascii=False, default=str)
    return f"found {shown if len(shown) <= 80 else shown[:77] + '...'}"


def _required(fault: Fault) -> tuple[str, str]:
    """(what is required, what to try) in the words of the format."""
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "value_error":  # of a model's own check: what was found, and as far as it says, required and try
        args = [*map(str, context["error"].args), "", ""]
        return args[1], args[2]
    if kind == "literal_error":
        # pydantic lists them in one text: "'a', 'b' or 'c'".
        choices = [word.strip().strip("'") for word in context["expected"].replace(" or ", ", ").split(",")]
        fix = nearest(fault["input"], choices) if isinstance(fault["input"], str) else ""
        return context["expected"], fix if fix.startswith("did") else ""
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return words.format(context[key]), ""
    if context.get("pattern") == r"\S":
        return "some text", ""
    return _KINDS.get(kind, str(fault["msg"])), _typed(fault)


def _typed(fault: Fault) -> str:
    """The value without its unit, or in brackets, where that is all that is wrong with it; else nothing."""
    kind, value, field = fault["type"], fault["input"], next(reversed(_path(fault)), "")
    if kind in ("float_type", "int_type") and isinstance(value, str) and isinstance(field, str):
        number = re.match(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?(?=\s)", value)
        return f"{field}: {number[0]}" if number else ""
    if field == "command" and isinstance(value, str):
        return f"command: {words_of(value)}"
    if kind in ("tuple_type", "list_type") and not isinstance(value, (dict, list)):
        return "seeds: fresh 5" if field == "seeds" else f"[{json.dumps(value, default=str)}]"
    return ""


def _documented(model: type[BaseModel], path: FieldPath) -> str:
    """The documentation of the field at a path, as far as there is one."""
    for parent in _models_at(model, path[:-1]):
        if text := field_texts(parent).get(str(path[-1])):
            return " ".join(text.split())
    return ""


def _models_at(model: type[BaseModel], path: Sequence[str | int]) -> list[type[BaseModel]]:
    """The models that a value at a path of a document may be of, every branch of a union included."""
    annotations: list[Any] = [model]
    for part in path:
        annotations = [below for annotation in annotations for below in _below(annotation, part)]
    return [member for annotation in annotations for member in _members(annotation) if _is_model(member)]


def _below(annotation: Any, part: str | int) -> Iterable[Any]:
    for member in _members(annotation):
        if _is_model(member):
            field = member.model_fields.get(str(part))
            if field is not None:
                yield field.annotation
        else:
            # The value of a mapping, the items of a tuple: whatever is in the brackets.
            yield from get_args(member)


def _members(annotation: Any) -> list[Any]:
    """The types a value may have: the annotation itself, the members of a union, what is under Annotated."""
    if hasattr(annotation, "__metadata__"):
        return _members(annotation.__origin__)
    if _is_model(annotation) or getattr(annotation, "__origin__", None) in (dict, tuple, list):
        return [annotation]
    return [inner for member in get_args(annotation) for inner in _members(member)]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
