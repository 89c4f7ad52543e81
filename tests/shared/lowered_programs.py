"""Runs lowered tile programs on the emulator, checked, and measures their errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm.ir.transform import Pass
from tvm.tirx import PrimFunc

from tests.shared.tile_programs import Case
from warploom import emulator
from warploom.compiler import ptxas_log
from warploom.compiler.invoke import compile_request, current_request
from warploom.lower.lowerings import LOWERINGS, TENSOR_MEMORY, WARP_SPECIALISED, lower
from warploom.lower.tvm_passes import CheckProgram, tile_pass
from warploom.target import cuda_target
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.read import read

PREFERRED = {"sm_90a": WARP_SPECIALISED, "sm_100a": TENSOR_MEMORY}


def hinted(func: PrimFunc, **changes: Any) -> PrimFunc:
    """A tile program with other hints."""
    program = read(func)
    return program.replace(hints=dataclasses.replace(program.hints, **changes)).to_func()


def exact(arguments: list[Any]) -> list[Any]:
    """The arguments, float8 ones of so few bits that their sums are exact.

    The tensor core adds float8 products in a precision of its own, which is not what these tests
    are about.
    """

    def few_bits(value: Any) -> Any:
        kind = str(value.dtype) if isinstance(value, np.ndarray) else ""
        if "float8" not in kind or kind == "float8_e8m0fnu":  # a power of two, and never zero
            return value
        wide = np.clip(value.astype(np.float32), -2, 2)
        return (np.rint(wide * 2) / 2).astype(value.dtype)

    return [few_bits(value) for value in arguments]


def run(func: PrimFunc, arguments: list[Any], arch: str = "sm_90a") -> list[Any]:
    """The arguments after a lowered program has run; races and deadlocks are errors."""
    kernel = func.with_attr("global_symbol", "main")
    outputs = iter(emulator.run(kernel, arguments, checks=True, arch=arch).outputs)
    return [next(outputs) if isinstance(a, np.ndarray) else a for a in arguments]


def last_cta_first(
    func: PrimFunc, arch: str = "sm_90a", lowering: str | None = None, behind: str = "ChooseGrid"
) -> PrimFunc:
    """The kernel of a program, whose CTAs have the opposite numbers behind a pass.

    The emulator starts CTAs in the order of their numbers. Those that share a tile then wait.
    """

    def opposite(program: TileProgram) -> TileProgram:
        (count,) = program.id("cta").extents
        table = {program.var("cta"): count - 1 - program.var("cta")}
        return program.replace(body=tuple(ir.substitute(one, table) for one in program.body))

    added = {behind: tile_pass("OppositeNumbers", opposite)}
    return lower_by(lowering or PREFERRED[arch], func, arch, added=added)


def lower_by(
    lowering: str, func: PrimFunc, arch: str,
    replaced: Mapping[str, Pass] | None = None, added: Mapping[str, Pass] | None = None,
) -> PrimFunc:  # fmt: skip
    """The kernel by one lowering, with other passes in place of its own, or behind them."""
    mod = CheckProgram(arch)(tvm.IRModule({"main": func}))
    for factory in LOWERINGS[lowering]:
        name = factory.__name__
        mod = (replaced or {}).get(name, factory())(mod)
        if added and name in added:
            mod = added[name](mod)
    return mod["main"]


def program_before(name: str, func: PrimFunc, arch: str) -> TileProgram:
    """A program as the pass of that name finds it."""
    mod = CheckProgram(arch)(tvm.IRModule({"main": func}))
    for factory in LOWERINGS[PREFERRED[arch]]:
        if factory.__name__ == name:
            return read(mod["main"])
        mod = factory()(mod)
    raise AssertionError(f"no pass {name}")


def worst_error(case: Case, before: list[Any], after: list[Any]) -> float:
    """The largest error of any output, as a fraction of what is allowed."""
    worst = 0.0
    for index, expected in case.expected(before).items():
        got = after[index].astype(np.float64)
        # The tensor core sums in float32; order and truncation cost a few of its last bits.
        allowed = (case.tolerance + 4e-6) * np.abs(expected).max(initial=0.0)
        error = np.abs(got - expected).max(initial=0.0)
        # max() of Python would drop a NaN.
        worst = np.maximum(worst, error / allowed if allowed else float(error != 0))
    return float(worst)


def check(case: Case, rng: np.random.Generator, arch: str = "sm_90a", **hints: Any) -> None:
    """Lower, run and compare."""
    arguments = exact(case.arguments(rng))
    copies = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]
    after = run(lower(hinted(case.func, **hints), arch), copies, arch)
    worst = worst_error(case, arguments, after)
    assert worst <= 1, f"{worst} of the allowed error"


def local_memory(func: PrimFunc, arch: str) -> tuple[int, int, int]:
    """Most bytes of stack, spill stores and spill loads of a kernel of a lowered program."""
    target = cuda_target(arch)
    module = tvm.IRModule({"main": lower(func, arch)})
    source = tvm.compile(module, target, tir_pipeline="tirx").mod.imports[0].inspect_source()
    with target:
        output = compile_request(current_request(source, "cubin"))
    bytes_ = [
        (one.frame_bytes, one.spill_store_bytes, one.spill_load_bytes)
        for one in ptxas_log.parse(output.log).kernels
    ]
    return max(bytes_)


def after_passes(func: PrimFunc, *passes: Any) -> TileProgram:
    """A program after passes."""
    program = read(func)
    for one in passes:
        program = one(program)
    return program
