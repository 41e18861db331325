"""`ablate new`: new studies from the templates that the package carries, or from a script (`from_script.py`).

To add a template: `templates/NAME.yaml`, whose first line says what it is for, with `NAME` where the study's name goes;
next to it NAME.py.txt or NAME.csv, if it needs a script or a table. tests/cli/test_new.py makes a study of each.
The template `campaign` is one of a campaign, in `campaigns/`; with it comes `AGENTS.md` for coding agents.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.workspace import HERE, Workspace
from prereg.errors import RegistrationError, StudyError, UnsupportedError, field_error, nearest
from prereg.registry.disk import create_whole, write_whole
from prereg.registry.paths import Root, resolved

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

DEFAULT = "gpt"
SCHEMA = "study.schema.json"
_FOLDER = files("ablate") / "templates"
_SCRIPT, _TABLE, _AGENTS = "train.py", "results.csv", "AGENTS.md"
CAMPAIGN = "campaign"
"""The template that is no study's."""
_SCRIPTS = {CAMPAIGN: "commits"}
"""Template -> the template whose script it shares."""
_IGNORED = """# What ablate makes again, or hands on as a bundle. Commit studies/ and reports/.
runs/
try/
corpora/
cache/
tokenizers/
"""


@dataclass(frozen=True)
class Created:
    """What `new` wrote: the study first."""

    files: tuple[Path, ...]
    next: tuple[str, ...]
    """Commands to type next."""
    notes: tuple[str, ...] = ()
    """What to know first."""

    @property
    def study(self) -> Path:
        return self.files[0]


def templates() -> dict[str, str]:
    """Name -> what it is for, the default one first.

    >>> list(ablate.templates())[:3]
    ['gpt', 'campaign', 'command']
    """
    texts = {_stem(file): file.read_text(encoding="utf-8") for file in _FOLDER.iterdir() if file.name.endswith(".yaml")}
    names = sorted(texts, key=lambda name: (name != DEFAULT, name))
    return {name: texts[name].split("\n", 1)[0].removeprefix("# ") for name in names}


def new(
    name: str,
    template: str = DEFAULT,
    *,
    title: str | None = None,
    script: str | Path | None = None,
    metrics: str | Path | None = None,
    arms: Sequence[str] = (),
    workspace: Workspace = HERE,
) -> Created:
    """Write `studies/NAME.yaml` from a template, with the script or table that it needs, and the schema for editors.

    Of the template `campaign`, `campaigns/NAME.yaml`, and `AGENTS.md` in the root unless one is there.

    With a `script`, the study is made from the text of that training script, of `arms` as NAME=VALUE of one of its
    options and of the columns of `metrics`, a table that it wrote; the script is neither run nor changed.

    Also `data/.gitignore`, which keeps runs and corpora out of git, unless one is there. The
    root is the one given, else the nearest folder upward that holds `studies/`, else the current folder. Raises
    `StudyError` for an unknown template, for a name or title that makes no study, and where a file would be replaced;
    nothing is written then.

    >>> ablate.new("warmup", "sequential").study.name
    'warmup.yaml'
    """
    purposes = templates()
    if template not in purposes:
        raise UnsupportedError(
            f"no template is named '{template}'",
            required="one of " + ", ".join(purposes),
            fix=nearest(template, purposes),
        )
    home = _home(workspace)
    if script is None and (metrics is not None or arms):
        raise UnsupportedError("--metrics or --set without --script", required="the script that they are of")
    if script is None:
        text = _rendered(name, template, title)
    else:
        from ablate.from_script import study_of_script

        table = None if metrics is None else Path(metrics)
        body = study_of_script(name, Path(script), home, metrics=table, arms=arms, title=title)
        text, template = _required_valid(f"# yaml-language-server: $schema={SCHEMA}\n{body}", name), ""
    # Everything that will be written, before any of it: a name that is taken leaves nothing behind.
    study = home / ("campaigns" if template == CAMPAIGN else "studies") / f"{name}.yaml"
    parts = {study: text.encode()}
    for ending, place in ((".py.txt", _SCRIPT), (".csv", _TABLE)):  # a .py would be a module
        part = _FOLDER / f"{_SCRIPTS.get(template, template)}{ending}"
        if part.is_file():
            parts[study.with_suffix("") / place] = part.read_bytes()
    folders = [path.parent for path in parts if path.parent != study.parent and not path.parent.is_dir()]
    # A link that leads nowhere is a name that is taken too.
    present = next((path for path in (*parts, *folders) if os.path.lexists(path)), None)
    if present is not None:
        raise RegistrationError(
            f"{present} exists already",
            required="a name that is free: nothing is replaced",
            fix=f"ablate new {name}_2 " + (f"--template {template}" if script is None else f"--script {script}"),
        )
    for path, data in parts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        create_whole(path, data)
    (home / "studies").mkdir(exist_ok=True)
    others = (*_ignore_data(home), *_write_schema(home / "studies" / SCHEMA), *_for_agents(home, name, template))
    return Created((*parts, *others), _next_steps(template, study), tuple(_notes(name, template, home, script)))


def _for_agents(home: Path, name: str, template: str) -> tuple[Path, ...]:
    """The AGENTS.md of a campaign; none where the user has one."""
    path = home / _AGENTS
    if template != CAMPAIGN:
        return ()
    text = (_FOLDER / f"{CAMPAIGN}.{_AGENTS}.txt").read_text(encoding="utf-8").replace("NAME", name)
    return (path,) if create_whole(path, text.encode()) else ()


def _notes(name: str, template: str, home: Path, script: str | Path | None) -> Iterator[str]:
    if script is not None:
        yield f"{script} was read, not run, and is not changed; the study says what is to be filled in"
    own = next((path for path in (Path(_SCRIPT), home / _SCRIPT) if path.is_file()), None)
    if template == "command" and own is not None:
        yield f"{own} is yours and untouched: studies/{name}/{_SCRIPT} is an example next to it"
        yield f"for a study of yours:  ablate new {name}_2 --script {own}"
    packages, install = _needs(template)
    missing = next((package for package in packages if find_spec(package) is None), None)
    if missing is not None:
        yield f"ablate run will need {missing}, which is not installed:  pip install {install}"


def _needs(template: str) -> tuple[tuple[str, ...], str]:
    """The packages that the runs of a template need beyond ablate's own, and what to install."""
    from ablate.capabilities import GPT_PACKAGES

    if template == "huggingface":
        return ("torch", "transformers"), "torch transformers"
    if template in ("", "command", "commits", "import", CAMPAIGN):
        return (), ""
    return GPT_PACKAGES, "'ablate-prereg[gpt]'"


def _home(workspace: Workspace) -> Path:
    if workspace.root is not None:  # a new study may be the first of its folder
        return resolved(Path(workspace.root))
    try:
        return Root.around(Path()).path
    except StudyError:
        return Path().resolve()


def _rendered(name: str, template: str, title: str | None) -> str:
    """The template under a name and a title, read as a study so that what is written is one."""
    text = (_FOLDER / f"{template}.yaml").read_text(encoding="utf-8")
    purpose, rest = text.split("\n", 1)
    # The name in a command of a comment, and in the study's field.
    for field in ("study", "campaign"):
        rest = rest.replace(f"{field}: NAME", f"{field}: {name}", 1)
    body = rest.replace("studies/NAME", f"studies/{name}").replace("campaigns/NAME", f"campaigns/{name}")
    if title is not None:
        # JSON text is YAML text in quotes.
        body = re.sub(r"^title: .*$", lambda _: f"title: {json.dumps(title, ensure_ascii=False)}", body, flags=re.M)
    purpose = purpose.replace("studies/NAME", f"studies/{name}").replace("campaigns/NAME", f"campaigns/{name}")
    if template == CAMPAIGN:
        return _required_campaign(f"{purpose}\n{body}", name)
    return _required_valid(f"# yaml-language-server: $schema={SCHEMA}\n{purpose}\n{body}", name)


def _required_campaign(text: str, name: str) -> str:
    """The text of a campaign, where it is one under its name."""
    from prereg.campaign.load import campaign_from_document
    from prereg.yaml_reader import parse_yaml

    document = parse_yaml(text.encode(), {})
    if document["campaign"] != name:
        raise field_error(
            ("campaign",), f"'{name}'", "a name: letters, digits and underscores, beginning with a letter"
        )
    campaign_from_document(document)
    return text


def _required_valid(text: str, name: str) -> str:
    """The text of a study, where it is one under its name."""
    from ablate.capabilities import require_names_of_files
    from prereg.study.spec import study_from_document
    from prereg.yaml_reader import parse_yaml

    document = parse_yaml(text.encode(), {})
    if document["study"] != name:
        raise field_error(("study",), f"'{name}'", "a name: letters, digits and underscores, beginning with a letter")
    # Such a file would be read as something else than this study.
    plain = name.removesuffix(".yaml")
    if plain != name:
        required = "a name without the ending of a study's file"
        raise field_error(("study",), f"'{name}'", required, f"ablate new {plain}")
    require_names_of_files(
        study_from_document(
            # A template that says `fresh 8` has no seeds before it is registered; any eight will do to read it.
            document | ({"seeds": [1, 2, 3, 4, 5, 6, 7, 8]} if isinstance(document["seeds"], str) else {})
        )
    )
    return text


def _ignore_data(home: Path) -> tuple[Path, ...]:
    """The .gitignore written for data/; none where the user has one, there or a line for data/ in the root's."""
    path, above = home / "data" / ".gitignore", home / ".gitignore"
    lines = above.read_text(encoding="utf-8", errors="replace").splitlines() if above.is_file() else []
    if path.exists() or any(re.match(r"/?data\b", line) for line in lines):
        return ()
    path.parent.mkdir(exist_ok=True)
    return (path,) if create_whole(path, _IGNORED.encode()) else ()


def _write_schema(path: Path) -> tuple[Path, ...]:
    """The schema for editors, where this version has another than lies there."""
    from prereg.study.schema import json_schema

    data = (json.dumps(json_schema(), ensure_ascii=False) + "\n").encode()
    if path.exists() and path.read_bytes() == data:  # untouched, so that git shows no change
        return ()
    write_whole(path, data)
    return (path,)


STEPS = ("check", "try", "design", "register", "run", "decide")
"""From a study's file to its verdict: the order of README, of docs/ and of what each command says comes next."""


def _next_steps(template: str, study: Path) -> tuple[str, ...]:
    path = _relative(study)
    if template == CAMPAIGN:
        return (
            f"ablate check {path}",
            f"ablate design {path}",
            f'ablate propose {path} --set lr=0.03 --why "the loss still falls at the end"',
        )
    if template == "import":
        rows = _relative(study.with_suffix("") / _TABLE)
        columns = "--arm-column arm --step-column epoch --column val/loss=valid_loss"
        return (
            f"ablate check {path}",
            f"ablate register {path}",
            f"ablate import {path} {rows} --exploratory --note TEXT {columns}",
            f"ablate decide {path}",
        )
    if template == "commits":
        # The example is compared as it was committed, like any script of the user's own.
        return (
            f"git add {path} {_relative(study.with_suffix('') / _SCRIPT)} && git commit",
            f"a change of the script, committed on a branch, then:  ablate gate {path} --base main --head HEAD",
        )
    return tuple(f"ablate {step} {path}" for step in STEPS)


def _relative(path: Path) -> str:
    here = Path().resolve()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _stem(file: Traversable) -> str:
    return file.name.removesuffix(".yaml")
