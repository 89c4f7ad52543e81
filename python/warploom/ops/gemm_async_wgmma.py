"""``gemm_async`` on Hopper: D = A x B (+ D) with ``wgmma.mma_async``.

The call ``Tx.wg.gemm_async(D, A, B, transA=, transB=, accum=)`` becomes the instructions of one
warpgroup, ``Tx.cta.gemm_async`` those of all active warpgroups, each computing its share of the
rows. As with upstream's tcgen05 variant only the multiplications are issued: the caller writes
``wgmma.fence`` before, ``commit_group`` and ``wait_group`` after, and so decides how many groups
are in flight. ``wait=n`` adds all three, and leaves at most ``n`` groups, 0 to 7, pending;
``wait=True`` means 0, for kernels that want no overlap.

With ``sparse=E`` A holds half of the elements of K, and E, row-major in shared memory, says which
(:mod:`warploom.sparse`). Threads load it into registers first, so the fence is part of the call.

Rules: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import IntImm, PrimFunc
from tvm.tirx.operator.tile_primitive import DispatchContext, fail
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import IllegalCombination
from warploom.intrin.wgmma_emitter import WgmmaEmitter
from warploom.intrin.wgmma_metadata import Metadata, read_metadata
from warploom.intrin.wgmma_operands import (
    Accumulator,
    RegisterOperand,
    SharedOperand,
    WarpgroupSpan,
    read_accumulator,
    read_register_a,
    read_shared,
)
from warploom.intrin.wgmma_wait import pending_groups
from warploom.ops.schedule import Schedule
from warploom.target.wgmma import WgmmaKind, wgmma_kind

#: Keyword arguments of ``gemm_async`` that this variant understands, with their defaults.
OPTIONS = {"wait": False, "negate_a": False, "negate_b": False, "satfinite": False}


@dataclass(frozen=True)
class WgmmaPlan:
    """The instructions to issue, and their operands."""

    emitter: WgmmaEmitter
    span: WarpgroupSpan
    d: Accumulator
    a: SharedOperand | RegisterOperand
    b: SharedOperand
    metadata: Metadata | None
    accum: Any
    pending: int | None


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


def _options(call: TilePrimitiveCall) -> dict[str, Any]:
    given = {str(name): value for name, value in call.config.items()}
    unknown = sorted(given.keys() - OPTIONS.keys())
    if unknown:
        fail(f"wgmma: unknown option {unknown[0]!r}; allowed are {', '.join(OPTIONS)}.")
    for name in given.keys() - {"wait"}:
        # A bool or an IntImm; any other number would be a misunderstanding.
        if not isinstance(given[name], int | IntImm) or int(given[name]) not in (0, 1):
            fail(f"wgmma: {name} is {given[name]}; it must be True or False.")
        given[name] = bool(int(given[name]))
    return OPTIONS | given


def plan(call: TilePrimitiveCall, context: DispatchContext) -> WgmmaPlan:
    """Check the call and collect the constants of its emission; declines through ``fail``."""
    if len(call.args) not in (6, 7):
        fail("wgmma: Hopper has no block-scaled MMA; drop SFA and SFB and scale D instead.")
    try:
        return _plan(call, context)
    except IllegalCombination as error:
        fail(str(error))


def _plan(call: TilePrimitiveCall, context: DispatchContext) -> WgmmaPlan:
    analyzer = Analyzer()
    for var, extent in context.var_range_map.items():
        analyzer.bind(var, extent)
    d_region, a_region, b_region, *sparse, trans_a, trans_b, accum = call.args
    options = _options(call)
    span = _span(context)
    dtypes = [str(region.source.dtype) for region in (a_region, b_region, d_region)]
    kind = wgmma_kind(*dtypes, sparse=bool(sparse))
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
    rows = d.m * span.count
    if (a.mn, b.mn) != (rows, d.n) or a.k * kind.k != b.k * kind.a_k:
        held = "K / 2" if sparse else "K"
        fail(
            f"wgmma: shapes disagree: D is {rows} x {d.n} (M x N), A {a.mn} x {a.k} (M x {held}), "
            f"B {b.mn} x {b.k} (N x K)."
        )
    metadata = _metadata(sparse[0], kind, rows, b.k, analyzer) if sparse else None
    emitter = WgmmaEmitter(
        kind,
        d.m,
        d.n,
        b.k,
        b.matrix,
        a.matrix if isinstance(a, SharedOperand) else None,
        (options["negate_a"], options["negate_b"]),
        options["satfinite"],
    )
    return WgmmaPlan(emitter, span, d, a, b, metadata, accum, pending_groups(options["wait"]))


def _metadata(
    region: TensorRegion, kind: WgmmaKind, rows: int, k: int, analyzer: Analyzer
) -> Metadata:
    metadata = read_metadata(region, kind, analyzer)
    wanted = (rows, k // kind.k * kind.metadata_bytes)
    if (metadata.rows, metadata.columns) != wanted:
        fail(
            f"wgmma: the metadata of A is {metadata.rows} x {metadata.columns} bytes; A of {rows} "
            f"rows and K = {k} has {wanted[0]} x {wanted[1]}."
        )
    return metadata


def gemm_async_wgmma(call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    """The op schedule: a prim_func that issues the instructions of ``call``."""
    p = plan(TilePrimitiveCall.downcast(call), context)
    emitter = p.emitter

    def first_row() -> Any:
        """The first row of this warpgroup."""
        if p.span.count == 1:
            return 0
        # TVM can infer the extent of this id from any others that the kernel declares.
        return (T.truncdiv(T.thread_id(), 128) - p.span.first_warp // 4) * emitter.m

    def issue() -> None:
        row, a, metadata = first_row(), p.a, p.metadata
        if isinstance(a, SharedOperand):
            a = replace(a, mn_start=a.mn_start + row)
        if metadata is not None:
            metadata = metadata.from_row(row)
        form = emitter.rs if isinstance(a, RegisterOperand) else emitter.ss
        form(p.d, a, p.b, p.accum, wait=p.pending, metadata=metadata)

    @T.prim_func(check_well_formed=False)
    def impl():
        issue()

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
