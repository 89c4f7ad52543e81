"""Options that several benchmarks have, as parents of their parsers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from warploom.command_line import duration, input_file, natural, output_folder, positive
from warploom.gemm_shape import EPILOGUES, LAYOUTS, RESULT_DTYPE, GemmShape
from warploom_bench.suite import load_suite, suite_names
from warploom_bench.unseen import FORM


def timing_options(files: str) -> argparse.ArgumentParser:
    """How long entries are timed, the folder in which ``files`` are written, and the baseline."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--rounds", type=positive, default=15, help="burst samples (default: 15)")
    parser.add_argument("--burst-only", action="store_true", help="leave out sustained load")
    parser.add_argument(
        "--minutes", type=duration, help="begin no shape after so much time (default: all of them)"
    )
    parser.add_argument("--out", type=output_folder, help=f"folder for {files}")
    parser.add_argument(
        "--resume", action="store_true",
        help="go on with a run of the same arguments that was interrupted (with --out)",
    )  # fmt: skip
    parser.add_argument(
        "--baseline", type=input_file,
        help="JSON of an earlier run, whose ratios must be reached again",
    )  # fmt: skip
    parser.add_argument(
        "--tolerance", type=float, default=0.03,
        help="how much a ratio may be below the baseline (default: %(default)s)",
    )  # fmt: skip
    return parser


def kernel_options() -> argparse.ArgumentParser:
    """Where compiled kernels are kept."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--kernels", type=Path, help="folder of compiled kernels; those it lacks are put into it"
    )
    parser.add_argument(
        "--compile-only", action="store_true",
        help="fill that folder, also for a machine without TVM, and measure nothing",
    )  # fmt: skip
    parser.add_argument("--workers", type=positive, help="compiling processes (default: all CPUs)")
    return parser


def suite_options(suite: str) -> argparse.ArgumentParser:
    """Which GEMMs are measured; by default all of ``suite``."""
    parser = argparse.ArgumentParser(add_help=False)
    known = ", ".join(suite_names())
    parser.add_argument(
        "--suite", default=suite,
        help=f"{known}, {FORM} (random shapes), or a JSON file (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--group", action="append", default=[], help="only this group; repeatable")
    return parser


def gemm_options() -> argparse.ArgumentParser:
    """Return the options that hold for all GEMMs of a JSON file of ``[M, N, K]`` lists."""
    parser = argparse.ArgumentParser(add_help=False)
    for name, allowed, usual in (
        ("dtype", sorted(RESULT_DTYPE), "float16"), ("layout", LAYOUTS, "NT"),
        ("epilogue", EPILOGUES, "none"),
    ):  # fmt: skip
        parser.add_argument(
            f"--{name}", action="append", choices=allowed,
            help=f"of files without it; repeatable (default: {usual})",
        )  # fmt: skip
    return parser


def kinds_of(options: argparse.Namespace) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """The dtypes, layouts and epilogues that :func:`gemm_options` ask for."""
    return options.dtype or ("float16",), options.layout or ("NT",), options.epilogue or ("none",)


def wanted_shapes(options: argparse.Namespace) -> list[GemmShape]:
    """The GEMMs that :func:`suite_options` and :func:`gemm_options` ask for."""
    dtypes, layouts, epilogues = kinds_of(options)
    return load_suite(options.suite, dtypes, options.group, layouts, epilogues)


def compiling_options() -> argparse.ArgumentParser:
    """Return the options for building and running candidates: processes and devices."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--workers", type=positive, help="compiling processes (default: all CPUs)")
    parser.add_argument(
        "--device", type=natural, action="append", default=[], help="GPU; repeatable (default: 0)"
    )
    return parser
