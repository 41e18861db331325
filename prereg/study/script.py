"""Python training script, read as text: its options, the metrics that it names, how it is configured.

Read from the syntax tree alone; nothing is imported or executed. What the text does not say plainly (an option made in
a loop, a name that is computed) is not here, so a caller may conclude something from what is there, and nothing from
what is not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import reduce
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import JsonValue

SEED_NAMES = ("seed", "random_seed", "rng_seed", "random_state")
"""What people call the option that holds the seed."""
_TABLES = (".csv", ".jsonl")
_CONFIGURES = {"config": "config", "seed": "seed", "*": "all"}
"""What is imported from `ablate` -> which values of a run the script reads by it."""
_ENVIRONMENT = {"ABLATE_CONFIG": "config", "ABLATE_VARIANT": "config", "ABLATE_SEED": "seed"}
_SAYS_NOTHING = ("ABLATE_RUN_DIR", "ABLATE_METRICS", "ABLATE_ROOT", "ABLATE_REGISTRATION", "ABLATE_ATTEMPT")
_MOST_MODULES = 100

Kind = Literal["number", "flag", "text"]


@dataclass(frozen=True)
class Option:
    """One `add_argument` of the script."""

    name: str
    """As it is typed: --batch-norm."""
    dest: str
    """As the script reads it: batch_norm."""
    kind: Kind
    """A flag stands without a value."""
    default: JsonValue = None
    """None where the text does not say it."""
    choices: tuple[JsonValue, ...] = ()
    required: bool = False


@dataclass(frozen=True)
class Script:
    """What one script, with the modules next to it that it imports, shows without being run."""

    options: tuple[Option, ...] = ()
    reads: frozenset[str] = frozenset()
    """Which values of a run it takes without the command: config, seed, or all where that cannot be told."""
    logged: tuple[str, ...] = ()
    """Metrics that calls of ablate's `log` name."""
    logs_others: bool = False
    """Whether such a call may record metrics whose names are not written there."""
    headers: tuple[tuple[str, ...], ...] = ()
    """Headers of tables, as far as they are written out."""
    tables: tuple[str, ...] = ()
    """Paths of CSV and JSON lines files, as the text has them."""
    modules: tuple[str, ...] = ()
    """What it imports."""

    def option(self, *names: str) -> Option | None:
        """The option that is read under one of the names."""
        return next((option for name in names for option in self.options if option.dest == name), None)

    def __or__(self, module: Script) -> Script:
        """The script together with a module that it imports."""

        def both(name: str) -> Any:
            ours, theirs = getattr(self, name), getattr(module, name)
            if isinstance(ours, tuple):
                return tuple(dict.fromkeys(ours + theirs))
            return ours | theirs  # of sets and of booleans

        return Script(**{each.name: both(each.name) for each in fields(Script)})


def read_script(path: Path, folders: Sequence[Path] = ()) -> Script:
    """What a script shows, with the modules below the folders that it imports, directly or not.

    Raises `SyntaxError` or `ValueError` where it, or one of them, is no Python, `OSError` where it cannot be read.
    """
    pending, scripts, queued = [path], [], {path}
    while pending:
        shown = parse_script(pending.pop().read_bytes())
        scripts.append(shown)
        for module in shown.modules:
            parts = module.split(".")
            # `import a.b` runs a/__init__.py and a/b.py; which of the two holds a name is not told by the text.
            stems = [PurePosixPath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
            leaves = [leaf for stem in stems for leaf in (f"{stem}.py", f"{stem}/__init__.py")]
            for place in (folder / leaf for folder in folders for leaf in leaves):
                if place not in queued and len(queued) < _MOST_MODULES and place.is_file():
                    queued.add(place)
                    pending.append(place)
    return reduce(Script.__or__, scripts)


def parse_script(source: bytes) -> Script:
    """What the text of one file shows. Raises `SyntaxError` or `ValueError` where it is no Python."""
    nodes = list(ast.walk(ast.parse(source)))
    strings = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    script = Script(
        options=tuple(_options(calls)),
        headers=tuple(dict.fromkeys(_headers(calls, nodes))),
        tables=tuple(dict.fromkeys(text for text in strings if _is_table(text))),
        modules=tuple(dict.fromkeys(_modules(nodes))),
    )
    return _with_ablate(script, nodes, calls, strings)


def _is_table(text: str) -> bool:
    # Not a bare ending (`path + ".csv"`), and no sentence that ends in a name.
    return text.endswith(_TABLES) and text not in _TABLES and len(text.split()) == 1 and len(text) < 200


def _modules(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import is looked for in the same folders.
            base = node.module or ""
            yield from (".".join(filter(None, (base, alias.name))) for alias in node.names)


def _literal(node: ast.expr | None) -> JsonValue:
    """The value that an expression writes out; none for any other."""
    if node is None:
        return None
    with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        value = ast.literal_eval(node)
        # `literal_eval` takes bytes, sets and complex numbers too, which no option of a command line holds.
        if isinstance(value, (str, int, float, bool)):
            return value
    return None


def _strings(node: ast.expr) -> tuple[str, ...]:
    """The texts of a list or tuple of nothing but texts; empty for anything else."""
    items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else ()
    texts = tuple(item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str))
    return texts if len(texts) == len(items) else ()


def _options(calls: Sequence[ast.Call]) -> Iterator[Option]:
    # `ast.walk` goes level by level; options are wanted in the order of the file, as `--help` has them.
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "add_argument":
            continue
        names = [name for name in map(_literal, call.args) if isinstance(name, str) and re.match(r"--?[A-Za-z]", name)]
        if not names:
            continue  # a positional argument, or a computed name
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        # argparse takes the first long name, else the first.
        name = next((name for name in names if name.startswith("--")), names[0])
        dest = _literal(keywords.get("dest")) or name.lstrip("-").replace("-", "_")
        default, action = _literal(keywords.get("default")), _literal(keywords.get("action"))
        kind: Kind = "text"
        if action in ("store_true", "store_false"):
            kind, default = "flag", action == "store_false"
        elif "action" in keywords or "nargs" in keywords:
            continue  # BooleanOptionalAction, append, lists: no one word with one value hands these over
        elif isinstance(keywords.get("type"), ast.Name) and keywords["type"].id in ("int", "float"):  # type: ignore[attr-defined]  # isinstance says that it is a Name
            kind = "number"
        choices = keywords.get("choices")
        listed = choices.elts if isinstance(choices, (ast.List, ast.Tuple)) else []
        values = tuple(value for value in map(_literal, listed) if value is not None)
        yield Option(name, str(dest), kind, default, values, _literal(keywords.get("required")) is True)


def _headers(calls: Sequence[ast.Call], nodes: Sequence[ast.AST]) -> Iterator[tuple[str, ...]]:
    """Lists of texts that are written as the header of a table: a row of a writer of `csv`, the fields of a DictWriter,
    a line of names joined by commas."""
    # FIELDS = [...] somewhere, and `writerow(FIELDS)` elsewhere.
    lists = {
        node.targets[0].id: _strings(node.value)
        for node in nodes
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }

    def texts(node: ast.expr) -> tuple[str, ...]:
        return lists.get(node.id, ()) if isinstance(node, ast.Name) else _strings(node)

    for call in calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        header: ast.expr | None = None
        if name == "writerow" and call.args:
            header = call.args[0]
        elif name == "DictWriter":
            header = next((keyword.value for keyword in call.keywords if keyword.arg == "fieldnames"), None)
            header = call.args[1] if header is None and len(call.args) > 1 else header
        if header is not None and len(texts(header)) > 1:
            yield texts(header)
        line = _literal(call.args[0]) if call.args and name in ("write", "print") else None
        if isinstance(line, str) and re.fullmatch(r"[A-Za-z_][\w/.-]*(,[A-Za-z_][\w/.-]*)+\n?", line):
            yield tuple(line.strip().split(","))


def _with_ablate(script: Script, nodes: Sequence[ast.AST], calls: Sequence[ast.Call], strings: list[str]) -> Script:
    """The script, with what it takes from ablate by functions or the environment, and what it records by `log`."""
    # Under which names the file has the module and its functions.
    name_in_ablate: dict[str, str] = {}
    names_of_module: set[str] = set()
    logs_others = False
    for node in nodes:
        if isinstance(node, ast.Import):
            names_of_module |= {alias.asname or alias.name for alias in node.names if alias.name == "ablate"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ablate":
            name_in_ablate |= {alias.asname or alias.name: alias.name for alias in node.names}
            # Such as the callback of transformers, which logs what its trainer does.
            logs_others = logs_others or node.module not in ("ablate", "ablate.client")

    # Which values of a run it reads: by a function, or by a variable of the environment.
    used = set(name_in_ablate.values()) | {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names_of_module
    }
    reads = {_CONFIGURES[name] for name in used if name in _CONFIGURES}
    for text in strings:
        for variable in re.findall(r"ABLATE_?[A-Z_]*", text):
            if variable not in _SAYS_NOTHING:
                reads.add(_ENVIRONMENT.get(variable, "all"))  # f"ABLATE_{name}" may be any of them

    # Which metrics it records.
    logged: list[str] = []
    for call in calls:
        function = call.func
        by_name = isinstance(function, ast.Name) and name_in_ablate.get(function.id) == "log"
        by_module = (
            isinstance(function, ast.Attribute)
            and function.attr == "log"
            and isinstance(function.value, ast.Name)
            and function.value.id in names_of_module
        )
        if not by_name and not by_module:
            continue
        names, computed = _keys(call.args[1] if len(call.args) > 1 else None, nodes)
        logged += names
        logs_others = logs_others or computed
    return replace(script, reads=frozenset(reads), logged=tuple(dict.fromkeys(logged)), logs_others=logs_others)


def _keys(metrics: ast.expr | None, nodes: Sequence[ast.AST]) -> tuple[list[str], bool]:
    """The names in the metrics of one call of `log`, and whether there may be others: of a dictionary written in the
    call, or of a variable by what is assigned to it anywhere in the file."""
    if isinstance(metrics, ast.Dict):
        keys = [_literal(key) for key in metrics.keys]
        return [key for key in keys if isinstance(key, str)], not all(isinstance(key, str) for key in keys)
    if not isinstance(metrics, ast.Name):
        return [], True
    written: list[str] = []
    computed = assigned = False
    for node in nodes:
        # row = {...}, and row["val/loss"] = ...
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Name) and target.id == metrics.id and isinstance(node, ast.Assign):
                names, more = _keys(node.value, ()) if isinstance(node.value, ast.Dict) else ([], True)
                written, computed, assigned = [*written, *names], computed or more, True
            elif isinstance(target, ast.Subscript) and getattr(target.value, "id", None) == metrics.id:
                name = _literal(target.slice)
                written += [name] if isinstance(name, str) else []
                computed = computed or not isinstance(name, str)
        # row.update(...), row |= ..., add(row): what they add is not followed.
        arguments = node.args if isinstance(node, ast.Call) else []
        uses = [getattr(node, "value", None), *arguments] if isinstance(node, (ast.Attribute, ast.Call)) else []
        uses += [node.target] if isinstance(node, ast.AugAssign) else []
        if any(getattr(use, "id", None) == metrics.id and use is not metrics for use in uses):
            computed = True
    return written, computed or not assigned
