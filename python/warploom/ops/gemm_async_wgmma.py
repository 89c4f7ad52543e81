"""``gemm_async`` on Hopper: D = A x B (+ D) with ``wgmma.mma_async``.

The call ``Tx.wg.gemm_async(D, A, B, transA=, transB=, accum=)`` becomes the instructions of one
warpgroup, ``Tx.cta.gemm_async`` those of all active warpgroups, each computing its share of the
rows. As with upstream's tcgen05 variant only the multiplications are issued: the caller writes
``wgmma.fence`` before, ``commit_group`` and ``wait_group`` after, and so decides how many groups
are in flight. ``wait=True`` adds all three, for kernels that want no overlap.

Rules: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import PrimFunc
from tvm.tirx.layout import S, TileLayout
from tvm.tirx.operator.tile_primitive import DispatchContext, fail
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import IllegalCombination
from warploom.intrin.wgmma import instruction
from warploom.ops.schedule import Schedule
from warploom.ops.wgmma_operands import (
    Accumulator,
    RegisterOperand,
    SharedOperand,
    WarpgroupSpan,
    read_accumulator,
    read_register_a,
    read_shared,
)
from warploom.target.swizzle import Major
from warploom.target.wgmma import WGMMA_M, WgmmaKind, wgmma_kind

#: Bits of a shared address that a descriptor holds (PTX ISA, "Matrix Descriptor Format"). Those
#: above them are not zero: in a cluster they name the block, and would spill into the strides.
_ADDRESS_MASK = 0x3FFFF
#: Keyword arguments of ``gemm_async`` that this variant understands, with their defaults.
OPTIONS = {"wait": False, "negate_a": False, "negate_b": False, "satfinite": False}


@dataclass(frozen=True)
class WgmmaPlan:
    """Everything that decides which instructions are issued."""

    kind: WgmmaKind
    span: WarpgroupSpan
    d: Accumulator
    a: SharedOperand | RegisterOperand
    b: SharedOperand
    accum: Any
    negate: tuple[bool, bool]
    satfinite: bool
    wait: bool

    def __post_init__(self) -> None:
        assert self.a.mn == self.d.m * (1 if self.a_in_registers else self.span.count)
        assert self.b.mn == self.d.n and self.a.k == self.b.k and self.b.k % self.kind.k == 0

    @property
    def a_in_registers(self) -> bool:
        return isinstance(self.a, RegisterOperand)

    @property
    def widths(self) -> tuple[int, ...]:
        """N of the instructions that cover one 64-row block."""
        return self.kind.split_n(self.d.n, self.b.matrix.mn_align)

    @property
    def immediates(self) -> list[int]:
        """``imm-scale-a/b`` and ``imm-trans-a/b``, as far as the instruction has them."""
        values = [-1 if negate else 1 for negate in self.negate] if self.kind.negate else []
        if self.kind.transpose:
            shared = [self.b] if self.a_in_registers else [self.a, self.b]
            values += [int(operand.matrix.major is Major.MN) for operand in shared]
        return values


def full_warpgroups(call: TilePrimitiveCall, context: DispatchContext) -> tuple[bool, str | None]:
    """Predicate: the call runs on whole warpgroups."""
    if context.scope_kind not in ("warpgroup", "cta"):
        return False, (
            f"wgmma needs whole warpgroups, the call has scope '{context.scope_kind}'; write "
            "Tx.wg.gemm_async or Tx.cta.gemm_async"
        )
    axis = "wid_in_wg" if context.scope_kind == "warpgroup" else "warpid"
    lanes, warps = (context.intra.get(name) for name in ("laneid", axis))
    if lanes is None or warps is None or int(lanes[0]) != 32:
        return (
            False,
            "wgmma needs all 32 lanes of its warps, a branch around the call excludes some",
        )
    if int(warps[0]) % 4 or int(warps[1]) % 4:
        return False, (
            f"wgmma needs whole warpgroups of 4 aligned warps, the call runs on {int(warps[0])} "
            f"warps from warp {int(warps[1])} on"
        )
    return True, None


def is_sm90a(call: TilePrimitiveCall, context: DispatchContext) -> tuple[bool, str | None]:
    """Predicate: the target has wgmma."""
    arch = str(context.target.attrs.get("arch", ""))
    return arch == "sm_90a", (
        f"wgmma needs arch sm_90a, the target says '{arch}'; "
        "use warploom.target.cuda_target('h100')"
    )


def _span(context: DispatchContext) -> WarpgroupSpan:
    if context.scope_kind == "warpgroup":
        return WarpgroupSpan(1, 0)
    extent, first = (int(v) for v in context.intra["warpid"][:2])
    return WarpgroupSpan(extent // 4, first if extent > 4 else 0)


def _options(call: TilePrimitiveCall) -> dict[str, bool]:
    given = {str(name): bool(value) for name, value in call.config.items()}
    unknown = sorted(given.keys() - OPTIONS.keys())
    if unknown:
        fail(f"wgmma: unknown option {unknown[0]!r}; allowed are {', '.join(OPTIONS)}.")
    return OPTIONS | given


def plan(call: TilePrimitiveCall, context: DispatchContext) -> WgmmaPlan:
    """Check the call and collect what its emission needs; declines through ``fail``."""
    if len(call.args) != 6:
        fail("wgmma: Hopper has no block-scaled product; drop SFA and SFB and scale D instead.")
    analyzer = Analyzer()
    for var, extent in context.var_range_map.items():
        analyzer.bind(var, extent)
    d_region, a_region, b_region, trans_a, trans_b, accum = call.args
    options = _options(call)
    span = _span(context)
    dtypes = [str(region.source.dtype) for region in (a_region, b_region, d_region)]
    try:
        kind = wgmma_kind(*dtypes)
    except IllegalCombination as error:
        fail(str(error))
    d = read_accumulator(d_region, span, analyzer)
    if not b_region.source.scope().startswith("shared"):
        fail(f"wgmma: B must be in shared memory, got scope '{b_region.source.scope()}'.")
    b = read_shared(b_region, bool(int(trans_b)), "B", kind, analyzer)
    a_scope = a_region.source.scope()
    if a_scope == "local":
        a = read_register_a(a_region, bool(int(trans_a)), kind, span, analyzer)
    elif a_scope.startswith("shared"):
        a = read_shared(a_region, bool(int(trans_a)), "A", kind, analyzer)
    else:
        fail(f"wgmma: A must be in registers or shared memory, got scope '{a_scope}'.")
    _check_shapes(kind, span, d, a, b)
    _check_options(kind, options)
    negate = (options["negate_a"], options["negate_b"])
    return WgmmaPlan(kind, span, d, a, b, accum, negate, options["satfinite"], options["wait"])


def _check_shapes(
    kind: WgmmaKind,
    span: WarpgroupSpan,
    d: Accumulator,
    a: SharedOperand | RegisterOperand,
    b: SharedOperand,
) -> None:
    rows = d.m * span.count
    if (a.mn, b.mn) != (rows, d.n) or a.k != b.k:
        fail(
            f"wgmma: shapes disagree: D is {rows} x {d.n} (M x N), A {a.mn} x {a.k} (M x K), "
            f"B {b.mn} x {b.k} (N x K)."
        )
    if b.k % kind.k or not b.k:
        fail(
            f"wgmma: K = {b.k} is not a positive multiple of {kind.k}, the K of one {kind.a} "
            "instruction; pad K with zeros."
        )
    if isinstance(a, SharedOperand) and WGMMA_M % a.matrix.mn_align:
        fail(f"wgmma: A's swizzle atoms of {a.matrix.mn_align} rows do not divide 64.")
    try:
        kind.split_n(d.n, b.matrix.mn_align)
    except IllegalCombination as error:
        fail(str(error))


def _check_options(kind: WgmmaKind, options: dict[str, bool]) -> None:
    if (options["negate_a"] or options["negate_b"]) and not kind.negate:
        fail(f"wgmma: negate_a and negate_b exist for floating point only, A is {kind.a}.")
    if options["satfinite"] and kind.d != "int32":
        fail(f"wgmma: satfinite exists for integers only, A is {kind.a}.")


def _issue(plan: WgmmaPlan, d: Any, a: Any, b_base: Any, warpgroup: Any) -> None:
    """Emit the multiplications: K outermost, so that consecutive instructions are independent.

    Parameters
    ----------
    d : registers of D
    a : address of A's buffer in shared memory, or registers of the fragment
    b_base : address of B's buffer in shared memory
    warpgroup : index of this warpgroup among those of the call
    """
    kind, analyzer = plan.kind, Analyzer()

    def descriptor(operand: SharedOperand, base: Any, mn: Any, k: int) -> Any:
        chunk = T.cast(operand.chunk(analyzer, mn, k), "uint32")
        start = T.cast(((base & T.uint32(_ADDRESS_MASK)) >> T.uint32(4)) + chunk, "uint64")
        return tvm.tirx.IntImm("uint64", operand.matrix.descriptor) + start

    for step in range(plan.b.k // kind.k):
        k = step * kind.k
        accumulate = T.ptx.pred(1 if step else T.cast(plan.accum, "bool"))
        for block in range(plan.d.m // WGMMA_M):
            if plan.a_in_registers:
                first = plan.a.first_register(kind, block, step)
                a_operand = [a[first + i] for i in range(kind.a_registers)]
            else:
                row = warpgroup * plan.d.m + block * WGMMA_M
                a_operand = [descriptor(plan.a, a, row, k)]
            column = 0
            for width in plan.widths:
                first = plan.d.first_register(kind, block, column)
                registers = [d[first + i] for i in range(kind.d_registers(width))]
                b_operand = descriptor(plan.b, b_base, column, k)
                emit = instruction(kind, width, plan.satfinite)
                T.evaluate(emit(*registers, *a_operand, b_operand, accumulate, *plan.immediates))
                column += width


def _shared_address(buffer: Any) -> Any:
    return T.cuda.cvta_generic_to_shared(buffer.ptr_to([0] * len(buffer.shape)))


def _registers(buffer: Any, dtype: str = "uint32") -> Any:
    """The thread's part of a register tile, as the 32-bit registers that instructions name."""
    count = 1
    for it in buffer.layout.shard:
        count *= 1 if it.axis.is_thread() else int(it.extent)
    flat = buffer.local(count, layout=TileLayout(S[(count,)]))
    return flat if str(buffer.dtype) == dtype else flat.view(dtype)


def gemm_async_wgmma(call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    """The op schedule: a prim_func that issues the instructions of ``call``."""
    p = plan(TilePrimitiveCall.downcast(call), context)
    d_buffer, a_buffer, b_buffer = p.d.buffer, p.a.buffer, p.b.buffer

    def warpgroup() -> Any:
        if p.span.count == 1:
            return 0
        # TVM can infer the extent of this id from any others that the kernel declares.
        return T.truncdiv(T.thread_id(), 128) - p.span.first_warp // 4

    def fence() -> None:
        if p.wait:
            T.evaluate(T.ptx.wgmma.fence.sync.aligned())

    def commit_and_wait() -> None:
        if p.wait:
            T.evaluate(T.ptx.wgmma.commit_group.sync.aligned())
            T.evaluate(T.ptx.wgmma.wait_group.sync.aligned(0))

    def a_operand() -> Any:
        return _registers(a_buffer) if p.a_in_registers else _shared_address(a_buffer)

    def d_registers() -> Any:
        return _registers(d_buffer, "float32" if p.kind.d == "float32" else "uint32")

    @T.prim_func(check_well_formed=False)
    def impl():
        d = T.meta_var(d_registers())
        a = T.meta_var(a_operand())
        b_base = T.meta_var(_shared_address(b_buffer))
        fence()
        _issue(p, d, a, b_base, warpgroup())
        commit_and_wait()

    return impl


SCHEDULES = (
    Schedule(
        op="gemm_async",
        variant="wgmma",
        priority=20,
        when=(("full_warpgroups", full_warpgroups), ("sm_90a", is_sm90a)),
        impl=gemm_async_wgmma,
    ),
)
