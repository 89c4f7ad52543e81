"""``warploom tune tir M N K``: tune one matrix product."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from warploom.meta_schedule.estimates import estimate_target
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.tune import tune_tir
from warploom.meta_schedule.workloads import matmul
from warploom.target.tvm_target import cuda_target, default_target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    for name in ("m", "n", "k"):
        parser.add_argument(name, type=int)
    parser.add_argument("--dtype", default="float16", help="of the operands (default: float16)")
    parser.add_argument("--out-dtype", default="", help="of the result (default: by --dtype)")
    parser.add_argument("--trials", type=int, default=32, help="at most (default: 32)")
    parser.add_argument("--work-dir", type=Path, default=Path("warploom-tuning"))
    parser.add_argument("--target", help="h100, h200, ... (default: this machine's GPU)")
    parser.add_argument(
        "--estimate", action="store_true", help="ask the analytic model; no GPU is needed"
    )
    parser.add_argument("--workers", type=int, help="compiling processes (default: all CPUs)")
    parser.add_argument("--device", type=int, action="append", default=[], help="repeatable")
    parser.add_argument("--seed", type=int)


def main(arguments: Sequence[str]) -> int:
    """Tune, and print the best knobs; the exit status is 1 if no candidate succeeded."""
    parser = argparse.ArgumentParser(
        prog="warploom tune tir",
        description="Tune C[M, N] = A[M, K] B[N, K]^T, or go on with an earlier search.",
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    target = cuda_target(options.target) if options.target else default_target()[0]
    if options.estimate:
        target = estimate_target(target)
    func = matmul(options.m, options.n, options.k, options.dtype, options.out_dtype)
    tune_tir(
        func,
        target,
        options.work_dir,
        options.trials,
        devices=options.device or (0,),
        max_workers=options.workers,
        seed=options.seed,
    )
    # Late: importing it for --help would import TVM.
    from warploom.gemm.recognition import recognise

    records = Lookup.of_folders([options.work_dir], options.estimate)
    best = records.best(recognise(func).problem, str(target.attrs["arch"]))
    if best is None:
        print("No candidate succeeded.")
        return 1
    kind = "estimated" if options.estimate else "measured"
    print(f"{best.record.seconds * 1e6:.2f} us {kind}: {best.knobs}")
    return 0
