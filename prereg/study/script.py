"""What a Python training script says of itself: its options, the metrics that it names, how it is configured.

Read from the syntax tree alone; nothing is imported or executed. What the text does not say plainly (an option made in
a loop, a name that is computed) is not here, so a caller may conclude something from what is there, and nothing from
what is not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from pydantic import JsonValue

if TYPE_CHECKING:
    from prereg.registry.paths import Root

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
    shares_generator: bool = False
    """Whether a `DataLoader` shuffles by torch's global generator, which everything else draws from too."""
    states_matches: bool = False
    """Whether it states by `must_match` what the runs of a seed share."""

    def option(self, *names: str) -> Option | None:
        """The option that is read under one of the names."""
        return next((one for name in names for one in self.options if one.dest == name), None)

    def __or__(self, other: Script) -> Script:
        return Script(
            options=self.options + other.options,
            reads=self.reads | other.reads,
            logged=tuple(dict.fromkeys(self.logged + other.logged)),
            logs_others=self.logs_others or other.logs_others,
            headers=tuple(dict.fromkeys(self.headers + other.headers)),
            tables=tuple(dict.fromkeys(self.tables + other.tables)),
            modules=self.modules + other.modules,
            shares_generator=self.shares_generator or other.shares_generator,
            states_matches=self.states_matches or other.states_matches,
        )


def script_in(root: Root, words: Sequence[str]) -> tuple[str, Script] | None:
    """The Python script that a command starts, as a path from the root, and what it shows with the modules that it
    imports from its folder and the root; none where no word is such a file, or one is no Python that can be read."""
    from prereg.study.command import script_of

    for word in words:
        path = script_of(root.path, word)
        if path is None or path.suffix != ".py":
            continue
        with suppress(SyntaxError, ValueError, OSError, RecursionError):
            folders = (path.parent, root.path, root.path / "src")
            return path.relative_to(root.path).as_posix(), read_script(path, folders)
        return None
    return None


def read_script(path: Path, folders: Sequence[Path] = ()) -> Script:
    """What a script shows, with the modules below the folders that it imports, directly or not.

    Raises `SyntaxError` or `ValueError` where it, or one of them, is no Python, `OSError` where it cannot be read.
    """
    pending, scripts, known = [path], [], {path}
    while pending:
        shown = parse_script(pending.pop().read_bytes())
        scripts.append(shown)
        for module in shown.modules:
            parts = module.split(".")
            # `import a.b` runs a/__init__.py and a/b.py; which of the two holds a name is not told by the text.
            stems = [PurePosixPath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
            leaves = [leaf for stem in stems for leaf in (f"{stem}.py", f"{stem}/__init__.py")]
            for place in (folder / leaf for folder in folders for leaf in leaves):
                if place not in known and len(known) < _MOST_MODULES and place.is_file():
                    known.add(place)
                    pending.append(place)
    return reduce(Script.__or__, scripts)


def parse_script(source: bytes) -> Script:
    """What the text of one file shows. Raises `SyntaxError` or `ValueError` where it is no Python."""
    nodes = list(ast.walk(ast.parse(source)))
    strings = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    found = Script(
        options=tuple(_options(calls)),
        headers=tuple(dict.fromkeys(_headers(calls, nodes))),
        tables=tuple(dict.fromkeys(text for text in strings if _is_table(text))),
        modules=tuple(dict.fromkeys(_modules(nodes))),
        shares_generator=any(map(_shuffles_by_global_generator, calls)),
        states_matches=b"must_match" in source,
    )
    return _with_ablate(found, nodes, calls, strings)


def _is_table(text: str) -> bool:
    return text.endswith(_TABLES) and text not in _TABLES and len(text.split()) == 1 and len(text) < 200


def _shuffles_by_global_generator(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    options = {keyword.arg: keyword.value for keyword in call.keywords}
    # `**options` may hold a generator.
    return name == "DataLoader" and _literal(options.get("shuffle")) is True and not {"generator", None} & set(options)


def _modules(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import is looked for in the same folders.
            base = node.module or ""
            yield from (".".join(filter(None, (base, one.name))) for one in node.names)


def _literal(node: ast.expr | None) -> JsonValue:
    """The value that an expression writes out; none for any other."""
    if node is None:
        return None
    with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        value = ast.literal_eval(node)
        if isinstance(value, (str, int, float, bool)):
            return value
    return None


def _strings(node: ast.expr) -> tuple[str, ...]:
    """The texts of a list or tuple of nothing but texts; empty for anything else."""
    items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else ()
    texts = tuple(item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str))
    return texts if len(texts) == len(items) else ()


def _options(calls: Sequence[ast.Call]) -> Iterator[Option]:
    for call in sorted(calls, key=lambda one: (one.lineno, one.col_offset)):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "add_argument":
            continue
        names = [name for name in map(_literal, call.args) if isinstance(name, str) and re.match(r"--?[A-Za-z]", name)]
        if not names:
            continue  # a positional argument, or a computed name
        given = {one.arg: one.value for one in call.keywords}
        # argparse takes the first long name, else the first.
        name = next((one for one in names if one.startswith("--")), names[0])
        dest = _literal(given.get("dest")) or name.lstrip("-").replace("-", "_")
        default, action = _literal(given.get("default")), _literal(given.get("action"))
        kind: Kind = "text"
        if action in ("store_true", "store_false"):
            kind, default = "flag", action == "store_false"
        elif "action" in given or "nargs" in given:
            continue  # BooleanOptionalAction, append, lists: no one word with one value hands these over
        elif isinstance(given.get("type"), ast.Name) and given["type"].id in ("int", "float"):  # type: ignore[attr-defined]  # isinstance says that it is a Name
            kind = "number"
        choices = given.get("choices")
        listed = choices.elts if isinstance(choices, (ast.List, ast.Tuple)) else []
        values = tuple(value for value in map(_literal, listed) if value is not None)
        yield Option(name, str(dest), kind, default, values, _literal(given.get("required")) is True)


def _headers(calls: Sequence[ast.Call], nodes: Sequence[ast.AST]) -> Iterator[tuple[str, ...]]:
    """Lists of texts that are written as the header of a table: a row of a writer of `csv`, the fields of a DictWriter,
    a line of names joined by commas."""
    lists = {
        node.targets[0].id: _strings(node.value)
        for node in nodes
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }

    def texts(node: ast.expr) -> tuple[str, ...]:
        return lists.get(node.id, ()) if isinstance(node, ast.Name) else _strings(node)

    for call in calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        fields: ast.expr | None = None
        if name == "writerow" and call.args:
            fields = call.args[0]
        elif name == "DictWriter":
            fields = next((one.value for one in call.keywords if one.arg == "fieldnames"), None)
            fields = call.args[1] if fields is None and len(call.args) > 1 else fields
        if fields is not None and len(texts(fields)) > 1:
            yield texts(fields)
        line = _literal(call.args[0]) if call.args and name in ("write", "print") else None
        if isinstance(line, str) and re.fullmatch(r"[A-Za-z_][\w/.-]*(,[A-Za-z_][\w/.-]*)+\n?", line):
            yield tuple(line.strip().split(","))


def _with_ablate(found: Script, nodes: Sequence[ast.AST], calls: Sequence[ast.Call], strings: list[str]) -> Script:
    """The script, with what it takes from ablate by functions or the environment, and what it records by `log`."""
    own: dict[str, str] = {}  # name in the script -> name in ablate
    modules: set[str] = set()  # names of the module itself
    others = False
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {one.asname or one.name for one in node.names if one.name == "ablate"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ablate":
            own |= {one.asname or one.name: one.name for one in node.names}
            others = others or node.module not in ("ablate", "ablate.client")  # such as the callback of transformers
    used = set(own.values()) | {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
    }
    reads = {_CONFIGURES[name] for name in used if name in _CONFIGURES}
    for text in strings:
        for variable in re.findall(r"ABLATE_?[A-Z_]*", text):
            if variable not in _SAYS_NOTHING:
                reads.add(_ENVIRONMENT.get(variable, "all"))
    logged: list[str] = []
    for call in calls:
        by_name = isinstance(call.func, ast.Name) and own.get(call.func.id) == "log"
        by_module = isinstance(call.func, ast.Attribute) and call.func.attr == "log"
        by_module = by_module and isinstance(call.func.value, ast.Name) and call.func.value.id in modules  # type: ignore[attr-defined]  # by_module says that it is an Attribute
        if not by_name and not by_module:
            continue
        names, computed = _keys(call.args[1] if len(call.args) > 1 else None, nodes)
        logged += names
        others = others or computed
    return replace(found, reads=frozenset(reads), logged=tuple(dict.fromkeys(logged)), logs_others=others)


def _keys(metrics: ast.expr | None, nodes: Sequence[ast.AST]) -> tuple[list[str], bool]:
    """The names in the metrics of one call of `log`, and whether there may be others: of a dictionary written in the
    call, or of a variable by what is assigned to it anywhere in the file."""
    if isinstance(metrics, ast.Dict):
        keys = [_literal(key) for key in metrics.keys]
        return [key for key in keys if isinstance(key, str)], not all(isinstance(key, str) for key in keys)
    if not isinstance(metrics, ast.Name):
        return [], True
    found: list[str] = []
    computed = assigned = False
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Name) and target.id == metrics.id and isinstance(node, ast.Assign):
                names, more = _keys(node.value, ()) if isinstance(node.value, ast.Dict) else ([], True)
                found, computed, assigned = [*found, *names], computed or more, True
            elif isinstance(target, ast.Subscript) and getattr(target.value, "id", None) == metrics.id:
                name = _literal(target.slice)
                found += [name] if isinstance(name, str) else []
                computed = computed or not isinstance(name, str)
        # row.update(...), row |= ..., add(row): what they add is not followed.
        given = node.args if isinstance(node, ast.Call) else []
        uses = [getattr(node, "value", None), *given] if isinstance(node, (ast.Attribute, ast.Call)) else []
        uses += [node.target] if isinstance(node, ast.AugAssign) else []
        if any(getattr(use, "id", None) == metrics.id and use is not metrics for use in uses):
            computed = True
    return found, computed or not assigned
