"""``python -m warploom.bench WHAT ...``: one of :data:`BENCHMARKS`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from warploom import emulator
from warploom.command_line import guarded
from warploom.errors import WarploomError

#: What to measure -> the module with ``main(arguments)``.
BENCHMARKS = {
    "goals": "warploom.bench.goals",
    "headline": "warploom.bench.headline",
    "gemm": "warploom.bench.gemm",
    "attention": "warploom.bench.attention",
    "dequant": "warploom.bench.dequant",
    "block-scaled": "warploom.bench.block_scaled",
    "grouped": "warploom.bench.grouped",
    "convolution": "warploom.bench.convolution",
    "relax": "warploom.bench.relax_block",
    "ladder": "warploom.bench.ladder",
    "generated": "warploom.bench.generated",
    "compile": "warploom.bench.compile_time",
    "cold": "warploom.bench.cold_start",
    "launch": "warploom.bench.launch",
    "exhaustive": "warploom.bench.exhaustive",
    "tuning": "warploom.bench.tuning",
    "model": "warploom.bench.model_error",
    "soak": "warploom.bench.soak",
    "profile": "warploom.bench.timeline",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark and return its exit status; 3 if it could not run."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] in (["-h"], ["--help"]):
        print(f"usage: warploom bench {{{','.join(BENCHMARKS)}}} [--help] ...", file=sys.stderr)
        return 0
    if not arguments or arguments[0] not in BENCHMARKS:
        what = f"unknown benchmark {arguments[0]!r}" if arguments else "no benchmark is named"
        print(f"warploom bench: {what}; allowed are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 3

    def run() -> int:
        if importlib.util.find_spec("tvm") and emulator.is_enabled():
            raise WarploomError(
                "tvm.cuda(0) is an emulated device, whose times mean nothing; unset "
                "WARPLOOM_EMULATOR to measure a GPU."
            )
        return importlib.import_module(BENCHMARKS[arguments[0]]).main(arguments[1:])

    return guarded("warploom bench", run, failed=3)


if __name__ == "__main__":
    sys.exit(main())
