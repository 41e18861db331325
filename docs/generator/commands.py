"""docs/reference/options.md: every command with its arguments and options, as `--help` says them."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from ablate import cli
from docs.generator.markdown import NOTE, code, sentence, table

_HEAD = """# Options of every command

{note}

What `ablate COMMAND --help` says, for all commands. [Commands](../commands.md) has one line on each, and [exit
codes](exit-codes.md) what their endings mean. `ablate --version` prints the version. A *repeatable* option may be
given several times.

"""
_KINDS = {int: "integer", float: "number", str: "text", Path: "path"}


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by the words that call it, in the order of `ablate --help`."""
    yield from _below(typer.main.get_command(cli.app), ())


def _below(group: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _below(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


def options_page() -> str:
    """The whole page."""
    return _HEAD.format(note=NOTE) + "\n".join(_section(name, command) for name, command in commands())


def _section(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    usage = " ".join([f"ablate {name}", *map(_usage, arguments), *["[OPTIONS]"] * bool(options)])
    about, _, example = (command.help or "").partition("Example:")
    paragraphs = "\n\n".join(sentence(part) for part in about.split("\n\n") if part.strip())
    shown = f"```sh\n{example.strip()}\n```\n" if example else ""
    rows = [
        *((code(_usage(one)), _value(one), _default(one), sentence(one.help or "")) for one in arguments),
        *((_names(one), _value(one), _default(one), _meaning(one)) for one in options),
    ]
    listed = "\n" + table(("argument or option", "value", "default", "meaning"), rows) if rows else ""
    return f"## ablate {name}\n\n```text\n{usage}\n```\n\n{paragraphs}\n\n{shown}{listed}"


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _names(option: Any) -> str:
    return ", ".join(map(code, [*option.opts, *option.secondary_opts]))


def _value(parameter: Any) -> str:
    """What follows the option, with its bounds; a flag takes nothing."""
    kind = parameter.type_descriptor.annotation
    if kind is bool:
        return ""
    kinds = [*typing.get_args(kind), kind]
    word = next((_KINDS[one] for one in kinds if one in _KINDS), "text")
    if parameter.param_type_name == "option" and parameter.metavar:
        word = code(parameter.metavar)
    bounds = [f"{sign} {end:g}" for sign, end in (("≥", parameter.min), ("≤", parameter.max)) if end is not None]
    return " ".join([word, " and ".join(bounds)]).strip()


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    return "" if parameter.default in (None, False, ()) else code(str(parameter.default))


def _meaning(option: Any) -> str:
    text = sentence(option.help or "")
    return f"{text} *Repeatable.*" if option.multiple and "repeatable" not in text else text
