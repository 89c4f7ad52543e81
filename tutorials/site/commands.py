"""Pages of the commands, made from their parsers."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

from warploom.cli import COMMANDS


class _Found(BaseException):
    """A command has made its parser; it is no ``Exception``, which commands report."""

    def __init__(self, parser: argparse.ArgumentParser):
        self.parser = parser


def parser_of(main: Callable[[list[str]], int]) -> argparse.ArgumentParser:
    """The parser of a command, which ends at the moment when it would parse.

    Raises
    ------
    LookupError
        If the command parses nothing.
    """

    def parse(self: argparse.ArgumentParser, *_: object, **__: object) -> None:
        raise _Found(self)

    with (
        mock.patch.object(argparse.ArgumentParser, "parse_args", parse),
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", parse),
    ):
        try:
            main(["--help"])
        except _Found as found:
            return found.parser
    raise LookupError(f"{main} has parsed no arguments")


def parsers() -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """(command, what it is for, its parser) of every command but the benchmarks."""
    for command in COMMANDS:
        if command.module is not None:
            main = importlib.import_module(command.module).main
            yield " ".join(command.words), command.help, parser_of(main)


def benchmarks() -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """The same of every benchmark."""
    from warploom_bench.__main__ import COMMANDS as BENCH

    for name, module in BENCH.items():
        found = parser_of(importlib.import_module(module).main)
        yield f"bench {name}", (found.description or "").strip(), found


def pages() -> dict[str, str]:
    """Markdown of the pages, by their names."""
    main, bench = list(parsers()), list(benchmarks())
    rows = [f"| [`warploom {name}`](#warploom-{slug(name)}) | {_cell(about)} |"
            for name, about, _ in main]  # fmt: skip
    rows.append("| [`warploom bench WHAT`](bench.md) | measure kernels against libraries |")
    index = [
        "# Commands",
        "",
        "Exit status: 0, or 2 after an error, which is one sentence on standard error. "
        "`TVM_BACKTRACE=1` shows the traceback of it as well.",
        "",
        "| command | what it does |",
        "|---|---|",
        *rows,
        "",
        *(section(*each) for each in main),
        "```{toctree}\n:hidden:\n\nbench\n```",
    ]
    described = [
        "# Benchmarks",
        "",
        "`warploom bench WHAT` measures on a GPU; the exit status is 3 where a benchmark "
        "cannot run. The package `warploom_bench` has them.",
        "",
        *(section(*each) for each in bench),
    ]
    return {"commands/index": "\n".join(index), "commands/bench": "\n".join(described)}


def slug(name: str) -> str:
    """A name as part of an anchor."""
    return name.replace(" ", "-")


def section(name: str, about: str, parser: argparse.ArgumentParser, level: int = 2) -> str:
    """A section of a parser: what it does, how it is called, tables of its arguments."""
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    text = [f"{'#' * level} `warploom {name}`", ""]
    described = (parser.description or about).strip()
    text += [_prose(described), "", "```text", _wrapped(usage), "```", ""]
    groups: Sequence[argparse.Action] = parser._actions
    plain = [
        action
        for action in groups
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        and action.help != argparse.SUPPRESS
    ]
    if plain:
        text += ["| argument | meaning |", "|---|---|"]
        text += [f"| {_argument(action)} | {_meaning(action, parser)} |" for action in plain]
        text.append("")
    for action in groups:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            for word, inner in action.choices.items():
                text.append(section(f"{name} {word}", helps.get(word, ""), inner, level + 1))
    return "\n".join(text)


def _argument(action: argparse.Action) -> str:
    metavar = action.metavar
    if isinstance(metavar, tuple):
        metavar = " ".join(metavar)
    if metavar is None and action.choices is not None:
        metavar = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return f"`{_cell(metavar or action.dest)}`"
    value = "" if action.nargs == 0 else f" {_cell(metavar or action.dest.upper())}"
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def _meaning(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    if not action.help:
        return ""
    return _prose(_cell(parser._get_formatter()._expand_help(action)))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _prose(text: str) -> str:
    """Help as Markdown: one backtick where docstrings have two, and no HTML or mathematics."""
    text = text.replace("``", "`")
    parts = text.split("`")
    for index in range(0, len(parts), 2):
        for sign in "*_<[$":
            parts[index] = parts[index].replace(sign, f"\\{sign}")
    return "`".join(parts)


def _wrapped(text: str, width: int = 96) -> str:
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + len(word) >= width:
            lines.append(line)
            line = "   "
        line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])
