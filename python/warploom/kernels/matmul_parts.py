"""What both generated matmuls do the same way: load a stage, multiply it, store a tile, tell."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import Var

from warploom.kernels.barrier_log import CONSUMER, RoleLog
from warploom.kernels.load import load_tile
from warploom.kernels.matmul_spec import MatmulSpec
from warploom.layout.fragment import wgmma_accumulator
from warploom.target.swizzle import Major
from warploom.target.tensor_map import TensorMap
from warploom.target.wgmma import WGMMA_M

#: Columns of C that are rounded at a time: few registers beside the sums.
_CHUNK_COLUMNS = 64


def shapes(
    spec: MatmulSpec, m: int | Var, n: int, k: int
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Shapes of A and B in global memory."""
    a = (k, m) if spec.layout[0] == "T" else (m, k)
    return a, (k, n) if spec.layout[1] == "N" else (n, k)


def load_stage(
    spec: MatmulSpec, rings: tuple[Any, Any], stage: Any, matrices: tuple[Any, Any],
    start: tuple[Any, Any], step: Any, barrier: Any,
) -> None:  # fmt: skip
    """Emit the copies of one stage.

    Parameters
    ----------
    rings, matrices : (Buffer, Buffer)
        A and B in shared and in global memory.
    start : (Expr, Expr)
        First row and first column of the tile of C.
    step : Expr
        Which tile of K.
    barrier : Expr
        Address of the mbarrier that counts the bytes.
    """
    for ring, tile, matrix, first in zip(
        rings, (spec.a_tile, spec.b_tile), matrices, start, strict=True
    ):
        options = _tensor_map(spec, tile, matrix).copy_options | {"prefetch_tensormap": True}
        load_tile(ring, tile, stage, matrix, (first, step * spec.tile[2]), barrier, **options)


def _tensor_map(spec: MatmulSpec, tile: Any, matrix: Any) -> TensorMap:
    """The map of one operand: a box is a column of swizzle atoms."""
    shape = tuple(None if isinstance(one, Var) else int(one) for one in matrix.shape)
    box = (tile.shape[0], tile.atom_columns)
    return TensorMap(
        tile.dtype, shape, box, tile.swizzle, spec.l2_promotion, spec.oob_fill
    )


def multiply(
    spec: MatmulSpec, acc: Any, rings: tuple[Any, Any], stage: Any, first: Any, step: Any
) -> None:
    """Emit the products of one stage for the rows from ``first`` on, as a group of their own."""
    a, b = rings
    rows = slice(first, first + spec.consumer_rows)
    a_transposed = spec.a_tile.major is Major.MN
    T.evaluate(T.ptx.wgmma.fence.sync.aligned())
    Tx.wg.gemm_async(
        acc[:, :],
        a[stage, :, rows] if a_transposed else a[stage, rows, :],
        b[stage, :, :],
        transA=a_transposed,
        transB=spec.b_tile.major is Major.MN,
        accum=step != 0,
    )
    T.evaluate(T.ptx.wgmma.commit_group.sync.aligned())


def wait_mmas(groups: int) -> None:
    """Emit the wait until at most so many groups are under way."""
    T.evaluate(T.ptx.wgmma.wait_group.sync.aligned(groups))


def store(spec: MatmulSpec, c: Any, acc: Any, row: Any, column: Any) -> None:
    """Emit the store of one warpgroup's sums, rounded; what lies outside of C is left out."""
    rows, columns = spec.consumer_rows, spec.tile[1]
    for m in range(0, rows, WGMMA_M):
        for n in range(0, columns, _CHUNK_COLUMNS):
            width = min(_CHUNK_COLUMNS, columns - n)
            chunk = acc[m : m + WGMMA_M, n : n + width]
            if spec.out_dtype != spec.accumulator:
                layout = wgmma_accumulator(WGMMA_M, width)
                rounded = T.alloc_buffer(
                    (WGMMA_M, width), spec.out_dtype, scope="local", layout=layout
                )
                Tx.wg.cast(rounded[:, :], chunk)
                chunk = rounded[:, :]
            target = c[row + m : row + m + WGMMA_M, column + n : column + n + width]
            Tx.wg.copy(target, chunk)


def consumer_log(
    spec: MatmulSpec, tile: tuple[Any, Any], consumer: Any, warp: Any, lane: Any
) -> RoleLog:
    """The log of one thread of one multiplying warpgroup.

    Parameters
    ----------
    tile : (Expr, Expr)
        The tile that this CTA computes.
    consumer, warp, lane : Expr
        Which multiplying warpgroup this thread is in, which warp of it, and which thread of that.
    """
    log = spec.log
    if log is None:
        return RoleLog(None, CONSUMER, tile)
    own = T.And(warp == log.thread // 32, lane == log.thread % 32)
    chosen = own if spec.consumers == 1 else T.And(consumer == log.consumer, own)
    return RoleLog(log, CONSUMER, tile, chosen)
