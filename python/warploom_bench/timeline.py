"""``python -m warploom_bench profile``: the cost of recording a timeline.

Kernels that record compete with the same kernels that do not, interleaved in one run: a GEMM of
4096 x 4096 x 4096, one of 8192 x 8192 x 8192, and attention. Ratios are speeds relative to the
kernel that does not record. Exit status: 0 if every result is right and the default recording
slows no kernel down by more than 3 %, 1 if a result is wrong, 2 if one is slower.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.tirx import PrimFunc

from warploom.command_line import Parser, positive
from warploom.gemm_shape import GemmShape
from warploom.profile import Instrumented, Recording, Timeline, instrument
from warploom_bench import operands as ops
from warploom_bench.attention import ALLOWED_ERROR, AttentionShape, check_attention
from warploom_bench.check import Deviation
from warploom_bench.compete import compare_competitors
from warploom_bench.options import timing_options
from warploom_bench.report import Comparison
from warploom_bench.run import run

#: Speed that a kernel keeps when it records.
TARGET = 0.97
#: Names of the competitors; the ratio refers to the second.
RECORDS, PLAIN, RECORDS_ALL = "records", "records nothing", "records all CTAs to the end"
#: More CTAs and spans than there are.
_EVERYTHING = Recording(ctas=148, capacity=8192)


@dataclass(frozen=True)
class Measured:
    """A comparison, and the timeline of the last launch that recorded."""

    comparison: Comparison
    timeline: Timeline


@dataclass(frozen=True)
class AttentionOperands:
    """An input set of attention, and its result."""

    q: Any
    k: Any
    v: Any
    c: Any


def compare_gemm(torch: Any, shape: GemmShape, rounds: int, burst_only: bool) -> Measured:
    """A GEMM."""
    from warploom.decide import Config
    from warploom.programs import gemm

    sets = [ops.make_operands(torch, shape, seed) for seed in range(ops.input_sets(shape))]

    def check(operands: ops.Operands) -> Deviation:
        return ops.check(torch, shape, operands)

    func = gemm(Config(cluster_m=2), shape.n, shape.k, shape.m)
    kernels = _Kernels(func, lambda o: (o.a, o.b, o.c))
    return kernels.compare(torch, shape, sets, check, ops.allowed_error(shape), rounds, burst_only)


def compare_attention(
    torch: Any, shape: AttentionShape, rounds: int, burst_only: bool
) -> Measured:
    """Attention of a shape."""
    from warploom.programs import attention

    generator = torch.Generator(device="cuda").manual_seed(0)
    extents = (1, shape.heads, shape.tokens, shape.head_dim)

    def normal() -> Any:
        values = torch.randn(extents, device="cuda", generator=generator)
        return values.to(getattr(torch, shape.dtype))

    sets = [AttentionOperands(*(normal() for _ in range(4))) for _ in range(2)]

    def check(operands: AttentionOperands) -> Deviation:
        return check_attention(torch, shape, operands.q, operands.k, operands.v, operands.c)

    func = attention(
        shape.tokens, shape.head_dim, shape.heads, causal=shape.causal, tile=shape.tile
    )
    kernels = _Kernels(func, lambda o: (o.q, o.k, o.v, o.c))
    allowed = ALLOWED_ERROR[shape.dtype]
    return kernels.compare(torch, shape, sets, check, allowed, rounds, burst_only)


class _Kernels:
    """A program, compiled with and without recording."""

    def __init__(self, func: PrimFunc, arguments: Callable[[Any], tuple[Any, ...]]) -> None:
        self.arguments = arguments
        self.plain = _compile(func)
        self.recording = instrument(func)
        self.everything = instrument(func, _EVERYTHING)

    def compare(self, torch: Any, shape: Any, *details: Any) -> Measured:
        """Check and time them; ``details`` are the others of :func:`compare_competitors`."""
        competitors: dict[str, Callable[[Any], object]] = {}
        records: dict[str, Any] = {}
        for name, kernel in ((RECORDS, self.recording), (RECORDS_ALL, self.everything)):
            records[name] = tvm.runtime.tensor(kernel.records(), tvm.cuda(0))
            competitors[name] = self._competitor(kernel, records[name])
        run = self.plain
        plain = {PLAIN: lambda operands: run(*self.arguments(operands))}
        ordered = {RECORDS: competitors[RECORDS], **plain, RECORDS_ALL: competitors[RECORDS_ALL]}
        comparison = compare_competitors(torch, shape, ordered, *details)
        return Measured(comparison, self.recording.timeline(records[RECORDS], emulated=False))

    def _competitor(self, kernel: Instrumented, records: Any) -> Callable[[Any], object]:
        run = _compile(kernel.func)
        return lambda operands: run(*self.arguments(operands), records)


def _compile(func: PrimFunc) -> Callable[..., object]:
    from warploom.target import default_target

    target, _ = default_target()
    return tvm.compile(tvm.IRModule({"main": func}), target, tir_pipeline="warploom")["main"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--size", type=positive, action="append", help="of GEMMs; default: 4096, 8192"
    )
    parser.add_argument(
        "--tokens", type=positive, default=16384, help="of attention (default: 16384)"
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = Parser(
        prog="warploom bench profile",
        description=__doc__,
        parents=[timing_options("profile.json, .md and .png")],
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    shapes: list[GemmShape | AttentionShape] = [
        GemmShape("products", size, size, size, "float16", TARGET)
        for size in options.size or (4096, 8192)
    ]
    for causal in (False, True):
        shape = AttentionShape("attention", options.tokens, 128, 16, causal)
        shapes.append(dataclasses.replace(shape, target=TARGET))

    def compare_one(torch: Any, shape: GemmShape | AttentionShape, _: Any) -> Comparison:
        compare = compare_gemm if isinstance(shape, GemmShape) else compare_attention
        measured = compare(torch, shape, options.rounds, options.burst_only)
        print(measured.timeline.summary(), flush=True)
        return measured.comparison

    return run("profile", arguments, options, shapes, compare_one)
