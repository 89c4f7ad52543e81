"""The command ``warploom``: each subcommand is the ``main(arguments)`` of a module.

``warploom NAME`` of a NAME that is not in the table runs ``main`` of ``warploom_NAME.__main__``, as
git does with ``git-NAME``: warploom imports no such package, and finds it by its name, which an
installed package has and one on ``PYTHONPATH`` as well. (An entry point exists only where something
is installed.) So the benchmarks are the package ``warploom_bench``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from warploom import plugin
from warploom._version import __version__
from warploom.command_line import Parser, guarded
from warploom.errors import ToolchainError


@dataclass(frozen=True)
class Command:
    """A subcommand.

    Attributes
    ----------
    words : tuple of str
        The words that the user types: one word, or a group and a word.
    module : str or None
        Module with ``main(arguments: list[str]) -> int``, the exit status. It parses its own
        arguments and is imported only when it runs. None: that of the package ``warploom_WORD``.
    help : str
        One line.
    register : bool
        Whether warploom is registered with TVM first, which fails on a wrong version of TVM.
    """

    words: tuple[str, ...]
    module: str | None
    help: str
    register: bool = True

    def __post_init__(self) -> None:
        assert 1 <= len(self.words) <= 2 and all(self.words)
        assert self.module is not None or len(self.words) == 1

    def main(self, arguments: list[str]) -> int:
        """Import the module, run its ``main`` and return its exit status.

        Raises
        ------
        ToolchainError
            If the command is that of a package that is not installed.
        """
        module = self.module
        if module is None:
            package = _package_of(self.words[0])
            if package is None:
                name = f"warploom_{self.words[0]}"
                raise ToolchainError(
                    f"`warploom {self.words[0]}` is the package {name}, which is not on sys.path; "
                    "the wheel of warploom has it: pip install --force-reinstall --no-deps "
                    "warploom. In a checkout, put its folder python/ on PYTHONPATH"
                )
            module = f"{package}.__main__"
        return importlib.import_module(module).main(arguments)


COMMANDS = (
    Command(("doctor",), "warploom.doctor", "check that this machine can compile", register=False),
    Command(("demo",), "warploom.demo", "compile and run a GEMM, and check its result"),
    Command(("bench",), None, "measure kernels against cuBLAS", register=False),
    Command(("profile",), "warploom.profile.command", "record the timeline of a kernel"),
    Command(("emulate",), "warploom.emulator.command", "run a script on the emulator"),
    Command(("tune", "tir"), "warploom.meta_schedule.command", "tune a GEMM"),
    Command(
        ("tune", "program"), "warploom.meta_schedule.programs.command",
        "tune a tile program of one's own",
    ),
    Command(("tune", "plot"), "warploom.meta_schedule.plot", "draw how a search went"),
    Command(("tune", "db"), "warploom.meta_schedule.db_command", "databases of tuning records"),
    Command(("tutorials", "export"), "warploom.tutorials.export", "notebooks of the tutorials"),
    Command(("inspect", "layout"), "warploom.layout.inspect", "print a layout"),
    Command(("inspect", "program"), "warploom.diagram.command", "roles and memory of a kernel"),
    Command(("inspect", "choices"), "warploom.decide.inspect", "what can be chosen for a kernel"),
    Command(("inspect", "cubin"), "warploom.compiler.inspect", "report on compiled kernels"),
    Command(
        ("inspect", "relax"), "warploom.relax.inspect_command", "where the time of a model goes"
    ),
)


def _package_of(word: str) -> str | None:
    """The package whose command ``warploom WORD`` is, if there is one."""
    package = f"warploom_{word.replace('-', '_')}"
    if package.isidentifier() and importlib.util.find_spec(package) is not None:
        return package
    return None


def _parser() -> Parser:
    """Only for options before a command; each command parses its own arguments."""
    width = max(len(" ".join(command.words)) for command in COMMANDS)
    lines = [f"  {' '.join(command.words):{width}}  {command.help}" for command in COMMANDS]
    parser = Parser(
        prog="warploom",
        usage="warploom [--help] [--version] COMMAND [ARGUMENT ...]",
        description="Tensor cores of Hopper for TIRx programs of Apache TVM.",
        epilog="\n".join(["commands:", *lines, "", "`warploom COMMAND --help` explains one."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"warploom {__version__}")
    parser.add_argument("command", nargs="+", help=argparse.SUPPRESS)
    return parser


def _select(arguments: list[str]) -> tuple[Command, list[str]]:
    for command in COMMANDS:
        length = len(command.words)
        if tuple(arguments[:length]) == command.words:
            return command, arguments[length:]
    if arguments and _package_of(arguments[0]) is not None:
        word = arguments[0]
        return Command((word,), None, f"of another package, warploom_{word}"), arguments[1:]
    parser = _parser()
    words = parser.parse_args(arguments).command
    known = ", ".join(" ".join(command.words) for command in COMMANDS)
    parser.error(f"unknown command '{' '.join(words)}'; allowed are {known}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.

    Returns
    -------
    int
        The exit status of the command; 2 after an error, which is said in one sentence on
        standard error (``TVM_BACKTRACE=1`` shows its traceback).
    """
    command, rest = _select(list(sys.argv[1:] if arguments is None else arguments))

    def run() -> int:
        if command.register:
            plugin.register()
        return command.main(rest)

    return guarded("warploom", run)
