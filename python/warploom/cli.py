"""The command ``warploom``: each subcommand is the ``main(arguments)`` of a module."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from warploom._version import __version__
from warploom.errors import WarploomError


@dataclass(frozen=True)
class Command:
    """A subcommand.

    Attributes
    ----------
    words : tuple of str
        What the user types: one word, or a group and a word.
    module : str
        Module with ``main(arguments: list[str]) -> int``, the exit status. It parses its own
        arguments and is imported only when it runs.
    help : str
        One line.
    """

    words: tuple[str, ...]
    module: str
    help: str

    def __post_init__(self) -> None:
        assert 1 <= len(self.words) <= 2 and all(self.words)


COMMANDS = (
    Command(("doctor",), "warploom.doctor", "check that this installation can work"),
    Command(("demo",), "warploom.demo", "compile and run a GEMM, and check its result"),
    Command(("inspect", "layout"), "warploom.layout.inspect", "print a layout"),
    Command(("inspect", "cubin"), "warploom.compiler.inspect", "report on compiled kernels"),
)

_GROUPS = {"inspect": "look into what warploom makes"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="warploom", description="Tensor cores of Hopper for TIRx programs of Apache TVM."
    )
    parser.add_argument("--version", action="version", version=f"warploom {__version__}")
    top = parser.add_subparsers(metavar="COMMAND", required=True)
    groups = {}
    for command in COMMANDS:
        parent = top
        if len(command.words) == 2:
            group = command.words[0]
            if group not in groups:
                node = top.add_parser(group, help=_GROUPS[group], description=_GROUPS[group])
                groups[group] = node.add_subparsers(metavar="WHAT", required=True)
            parent = groups[group]
        # The module parses the rest, --help included, so that it is imported only if needed.
        leaf = parent.add_parser(command.words[-1], help=command.help, add_help=False)
        leaf.set_defaults(command=command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.

    Returns
    -------
    int
        The exit status of the command; 2 if it raised a :class:`WarploomError`, whose message
        is then the one line on standard error.
    """
    options, rest = _parser().parse_known_args(arguments)
    try:
        return importlib.import_module(options.command.module).main(rest)
    except WarploomError as error:
        print(f"warploom: {error}", file=sys.stderr)
        return 2
