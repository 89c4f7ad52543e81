"""``warploom tune tir M N K``: tune one GEMM."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import tvm
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.command_line import Parser, natural, output_folder, positive, require_gpu
from warploom.decide.draws import draws
from warploom.decide.problem import GemmProblem
from warploom.errors import WarploomError
from warploom.gemm.recognition import recognise
from warploom.meta_schedule import journal
from warploom.meta_schedule.estimates import estimate_target
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.tune import tune_tir
from warploom.meta_schedule.workloads import matmul
from warploom.target.tvm_target import cuda_target, default_target, target_from_device
from warploom.target.wgmma import WGMMA_KINDS

#: Dtypes of operands, and of results.
DTYPES = tuple(dict.fromkeys(kind.a for kind in WGMMA_KINDS))
OUT_DTYPES = (*DTYPES, "int32")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    for name in ("m", "n", "k"):
        parser.add_argument(name, type=positive)
    parser.add_argument(
        "--dtype", choices=DTYPES, default="float16", help="of the operands (default: float16)"
    )
    parser.add_argument(
        "--out-dtype", choices=OUT_DTYPES, default="", help="of the result (default: by --dtype)"
    )
    parser.add_argument("--trials", type=positive, default=32, help="at most (default: 32)")
    parser.add_argument("--work-dir", type=output_folder, default=Path("warploom-tuning"))
    parser.add_argument("--target", help="h100, h200, ... (default: this machine's GPU)")
    parser.add_argument(
        "--estimate", action="store_true", help="ask the analytic model; no GPU is needed"
    )
    parser.add_argument("--workers", type=positive, help="compiling processes (default: all CPUs)")
    parser.add_argument("--device", type=natural, action="append", default=[], help="repeatable")
    parser.add_argument("--seed", type=natural)


def main(arguments: Sequence[str]) -> int:
    """Tune, and print the best config; the exit status is 1 if no candidate succeeded."""
    parser = Parser(
        prog="warploom tune tir",
        description="Tune C[M, N] = A[M, K] B[N, K]^T, or go on with an earlier search.",
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    target = cuda_target(options.target) if options.target else default_target()[0]
    func = matmul(options.m, options.n, options.k, options.dtype, options.out_dtype)
    problem = _problem(func)
    if options.estimate:
        target = estimate_target(target)
    else:
        _require_devices(options.device or (0,), target)
    tune_tir(
        func,
        target,
        options.work_dir,
        options.trials,
        devices=options.device or (0,),
        max_workers=options.workers,
        seed=options.seed,
    )
    records = Lookup.of_folders([options.work_dir], options.estimate)
    best = records.best(problem, str(target.attrs["arch"]))
    if best is None:
        print(f"No candidate succeeded; {options.work_dir / journal.NAME} has the reason of each.")
        return 1
    kind = "estimated" if options.estimate else "measured"
    print(f"{best.record.seconds * 1e6:.2f} us {kind}: {best.config}")
    return 0


def _problem(func: PrimFunc) -> GemmProblem:
    """The GEMM to tune.

    Raises
    ------
    WarploomError
        If there is no kernel for it whose config could be tuned.
    """
    try:
        problem = recognise(func).problem
        draws(problem)
    except WarploomError as reason:
        raise WarploomError(f"No kernel of warploom computes this GEMM: {reason}") from reason
    return problem


def _require_devices(devices: Sequence[int], target: Target) -> None:
    """Refuse to measure without the GPUs of the target."""
    require_gpu("--estimate asks the analytic model instead")
    wanted = str(target.attrs["arch"])
    for number in devices:
        device = tvm.cuda(number)
        if not device.exist:
            raise WarploomError(f"There is no GPU {number}; leave --device out to use GPU 0.")
        arch = str(target_from_device(device).attrs["arch"])
        if arch != wanted:
            raise WarploomError(
                f"GPU {number} is {arch} and the target {wanted}; leave --target out, or add "
                "--estimate."
            )
