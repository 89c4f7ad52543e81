"""``python -m warploom_bench WHAT ...``: one of :data:`COMMANDS`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from warploom import emulator
from warploom.command_help import listing
from warploom.command_line import guarded
from warploom.errors import WarploomError
from warploom_bench.benchmarks import BENCHMARKS, groups

#: Name of a command -> the module with ``main(arguments)``.
COMMANDS = {name: each.module for name, each in BENCHMARKS.items()}
#: Commands that run on the emulator: they measure nothing, or refuse to measure by themselves.
_ON_EMULATOR = frozenset({"hit-rate", "model"})
#: Exit status where nothing was measured.
EXIT_NOT_RUN = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark and return its exit status; 3 if it could not run."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] in ([], ["-h"], ["--help"]):
        print("usage: warploom bench WHAT [ARGUMENT ...]\n")
        print(listing(groups()))
        print("\n`warploom bench WHAT --help` explains a benchmark.")
        return 0 if arguments else EXIT_NOT_RUN
    if arguments[0] not in COMMANDS:
        mistake = f"unknown benchmark {arguments[0]!r}"
        print(f"warploom bench: {mistake}; allowed are {', '.join(COMMANDS)}", file=sys.stderr)
        return EXIT_NOT_RUN

    def run() -> int:
        explained = {"-h", "--help"} & {*arguments}
        emulated = not explained and importlib.util.find_spec("tvm") and emulator.is_enabled()
        if emulated and arguments[0] not in _ON_EMULATOR:
            raise WarploomError(
                "tvm.cuda(0) is an emulated device, whose times mean nothing; unset "
                "WARPLOOM_EMULATOR to measure a GPU."
            )
        return importlib.import_module(COMMANDS[arguments[0]]).main(arguments[1:])

    return guarded("warploom bench", run, failed=EXIT_NOT_RUN)


if __name__ == "__main__":
    sys.exit(main())
