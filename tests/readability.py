"""How the code reads, in five numbers: python tests/readability.py [FOLDER ...] (default: prereg and ablate).

Measured as docs/decisions.md compares admired codebases with this one. The last number, public names with several
homes, is zero but for a short list, and tests/docs/test_house.py holds it there; nothing else here decides whether a
test passes.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

FILLERS = frozenset(
    [
        "found",
        "one",
        "said",
        "known",
        "kept",
        "whole",
        "told",
        "asked",
        "seen",
        "given",
        "wanted",
        "other",
        "stands",
        "thing",
        "things",
    ]
)
"""Names that say nothing of what they hold."""
LONG = 20
"""Lines from which on a function should say why somewhere in it."""
DIRECTIVE = re.compile(r"#\s*(noqa|type:|pragma|!)")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def comment_lines(source: str) -> set[int]:
    """The lines that hold a comment, without directives to tools."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string)}


def bound_names(function: Function) -> Iterator[str]:
    """Names that a function binds: parameters, assignments, loops."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def public(tree: ast.Module) -> Iterator[Function | ast.ClassDef]:
    """Public functions and classes of a module."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def names_with_several_homes(modules: Iterable[Path]) -> dict[str, list[Path]]:
    """Name -> the modules that have a public function or class of that name, of names that several have."""
    homes: dict[str, list[Path]] = defaultdict(list)
    for path in modules:
        for name in {node.name for node in public(ast.parse(path.read_text(encoding="utf-8")))}:
            homes[name].append(path)
    return {name: paths for name, paths in sorted(homes.items()) if len(paths) > 1}


def share(part: int, of: int) -> str:
    """A share in percent, and of how many."""
    return f"{100 * part / max(1, of):.1f}% of {of:,}"


def measure(folders: list[Path]) -> dict[str, str]:
    """The five numbers over all modules of some folders, in words."""
    modules = sorted(path for folder in folders for path in folder.rglob("*.py"))
    n_lines = n_comments = n_long = n_long_commented = n_bound = n_fillers = n_functions = n_examples = 0
    for path in modules:
        source = path.read_text(encoding="utf-8")
        tree, comments = ast.parse(source), comment_lines(source)
        n_lines += source.count("\n")
        n_comments += len(comments)
        for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
            lines = range(function.lineno, (function.end_lineno or function.lineno) + 1)
            if len(lines) >= LONG:
                n_long += 1
                n_long_commented += not comments.isdisjoint(lines)
            names = list(bound_names(function))
            n_bound += len(names)
            n_fillers += sum(name in FILLERS for name in names)
        for node in public(tree):
            if isinstance(node, Function):
                n_functions += 1
                n_examples += ">>>" in (ast.get_docstring(node) or "")
    several = names_with_several_homes(modules)
    return {
        "lines in modules": f"{n_lines:,} in {len(modules)}",
        "comments per 1,000 lines": f"{1000 * n_comments / n_lines:.1f} ({n_comments})",
        f"functions of {LONG} or more lines with a comment": share(n_long_commented, n_long),
        "names bound in functions that are fillers": share(n_fillers, n_bound),
        "public functions with an example": share(n_examples, n_functions),
        "public names with several homes": f"{len(several)}: {', '.join(several)}",
    }


if __name__ == "__main__":
    for what, value in measure([Path(name) for name in sys.argv[1:] or ["prereg", "ablate"]]).items():
        print(f"{what}: {value}")
