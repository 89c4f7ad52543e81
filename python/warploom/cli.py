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
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warploom import plugin
from warploom._version import __version__
from warploom.command_help import Entry, listing
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
        One line: what it does.
    example : str
        A command line.
    group : str
        The heading that lists have it under.
    run : callable, optional
        What runs it instead of a module.
    register : bool
        Whether warploom is registered with TVM first, which fails on a wrong version of TVM.
    """

    words: tuple[str, ...]
    module: str | None
    help: str
    example: str = "warploom --help"
    group: str = "Of other packages"
    run: Callable[[list[str]], int] | None = None
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
        if self.run is not None:
            return self.run(arguments)
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


def _complete(arguments: list[str]) -> int:
    """``warploom completion``, which reads the help of all other commands."""
    from warploom import completion

    return completion.main(arguments, COMMANDS, main)


_START, _RUN, _SEE, _TUNE = "Start here", "Run and check kernels", "Look inside", "Measure and tune"

COMMANDS = (
    Command(
        ("doctor",), "warploom.doctor", "check that this machine can compile and run kernels",
        "warploom doctor", _START, register=False,
    ),
    Command(
        ("demo",), "warploom.demo", "compile and run a GEMM, and check its result",
        "warploom demo -m 512 -n 512 -k 512", _START,
    ),
    Command(
        ("tutorials", "export"), "warploom.tutorials.export",
        "write the tutorials as Jupyter notebooks", "warploom tutorials export notebooks", _START,
    ),
    Command(
        ("tutorials", "start"), "warploom.tutorials.exercises",
        "write exercises and the ladders as files with TODOs",
        "warploom tutorials start my_exercises", _START, register=False,
    ),
    Command(
        ("tutorials", "check"), "warploom.tutorials.check_command",
        "check what you have filled in, on the emulator",
        "warploom tutorials check my_exercises/exercises/01_vector_add.py", _START,
    ),
    Command(
        ("completion",), None, "print what makes a shell complete these words",
        "warploom completion bash > ~/.local/share/bash-completion/completions/warploom", _START,
        run=_complete, register=False,
    ),
    Command(
        ("emulate",), "warploom.emulator.command",
        "run a script with the emulator as its GPU, and report races and deadlocks",
        "warploom emulate --html races.html script.py", _RUN,
    ),
    Command(
        ("check",), "warploom.emulator.check_command",
        "launch a kernel of a PTX file on the emulator, and report what is wrong",
        "warploom check kernel.ptx --grid 4 --block 128 --args float32[512] int32=512", _RUN,
    ),
    Command(
        ("profile",), "warploom.profile.command",
        "record when the roles of a kernel work and wait; write a trace and a picture",
        "warploom profile gemm 512 512 512 --out gemm", _RUN,
    ),
    Command(
        ("inspect", "program"), "warploom.diagram.command",
        "show the roles, barriers, registers and memory of a kernel",
        "warploom inspect program kernels.py:gemm --svg gemm.svg", _SEE,
    ),
    Command(
        ("inspect", "layout"), "warploom.layout.inspect",
        "print or draw where the elements of a tile lie",
        "warploom inspect layout smem --swizzle 128B --svg smem.svg", _SEE,
    ),
    Command(
        ("inspect", "cubin"), "warploom.compiler.inspect",
        "report registers, spills and instructions of compiled kernels",
        "warploom inspect cubin kernels.so", _SEE,
    ),
    Command(
        ("inspect", "relax"), "warploom.relax.inspect_command",
        "show where the time of a model goes, kernel by kernel",
        "warploom inspect relax model.py:mod --svg time.svg", _SEE,
    ),
    Command(
        ("inspect", "choices"), "warploom.decide.inspect",
        "list all that can be chosen for a kernel", "warploom inspect choices", _SEE,
    ),
    Command(
        ("bench",), None, "measure kernels against libraries; lists its own words",
        "warploom bench", _TUNE, register=False,
    ),
    Command(
        ("tune", "tir"), "warploom.meta_schedule.command",
        "tune a GEMM; the same command goes on with a search that was interrupted",
        "warploom tune tir 4096 4096 4096 --trials 64 --work-dir search", _TUNE,
    ),
    Command(
        ("tune", "program"), "warploom.meta_schedule.programs.command",
        "tune a tile program of your own", "warploom tune program kernels.py:attention", _TUNE,
    ),
    Command(
        ("tune", "plot"), "warploom.meta_schedule.plot",
        "draw how a search went, and predicted against measured times",
        "warploom tune plot search", _TUNE,
    ),
    Command(
        ("tune", "db"), "warploom.meta_schedule.db_command",
        "list, check, mend and merge databases of tuning records",
        "warploom tune db inspect search", _TUNE,
    ),
)  # fmt: skip


def _package_of(word: str) -> str | None:
    """The package whose command ``warploom WORD`` is, if there is one."""
    package = f"warploom_{word.replace('-', '_')}"
    if package.isidentifier() and importlib.util.find_spec(package) is not None:
        return package
    return None


def _groups() -> dict[str, list[Entry]]:
    """The commands as lists have them."""
    groups: dict[str, list[Entry]] = {}
    for one in COMMANDS:
        sentence = one.help[0].upper() + one.help[1:] + "."
        groups.setdefault(one.group, []).append(Entry(" ".join(one.words), sentence, one.example))
    return groups


def _parser() -> Parser:
    """Only for options before a command; each command parses its own arguments."""
    parser = Parser(
        prog="warploom",
        usage="warploom [--help] [--version] COMMAND [ARGUMENT ...]",
        description="Kernels for the tensor cores of Hopper and Blackwell, in Apache TVM.",
        epilog=f"{listing(_groups())}\n\n`warploom COMMAND --help` explains a command.",
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
