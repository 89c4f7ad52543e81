"""Products of groups of rows, each with weights of its own: the experts of a mixture.

How many rows a group has is known on the device alone; :mod:`warploom.programs.group_slots` finds
the rows of a tile.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom import language as wl
from warploom.decide.config import Config
from warploom.decide.families.grouped import choose_grouped_by_rows
from warploom.decide.families.grouped_problem import GroupedProblem
from warploom.decide.machines import arch_for, machine_for
from warploom.decide.price.grouped import side_by_side
from warploom.errors import IllegalCombination
from warploom.kernels.kernel_name import named
from warploom.kernels.signature import row_count
from warploom.ops.copy_strided import CACHE_HINT
from warploom.programs.group_slots import Slot, band_and_hints, check_groups, slots
from warploom.target.dtypes import bits_of, with_dtype_names
from warploom.tile.annotations import SIZES
from warploom.tile.choices import POLICIES


@with_dtype_names
@named
def gemm_grouped(
    groups: int,
    n: int,
    k: int,
    m: int | None = None,
    dtype: str = "float16",
    out_dtype: str | None = None,
    indptr_dtype: str = "int32",
    tile: tuple[int, int, int] | None = None,
    stages: int | None = None,
    weights_policy: str | None = None,
    arch: str | None = None,
    **hints: Any,
) -> PrimFunc:
    """The tile program of a GEMM with other weights for each group of rows.

    Parameters
    ----------
    groups, n, k : int
        Weights, and their rows and columns; rows of X, W and C are multiples of 16 bytes.
    m : int, optional
        Rows of X and C, of all groups together; without it the function takes any number, and may
        have a kernel for few rows beside that for many.
    dtype, out_dtype : str
        Of X and W, and of C, the same if left out.
    indptr_dtype : str
        Of Indptr: ``"int32"`` or ``"int64"``.
    tile : (int, int, int), optional
        Rows of X, rows of W, and K of one step. Without it tile, stages, policy and hints are those
        of :func:`warploom.decide.choose`. Tiles of 8, 16 or 32 rows are computed as their
        transpose, for groups of few rows.
    stages : int, optional
        Steps that are loaded ahead.
    weights_policy : str, optional
        The L2 eviction policy of W: ``"evict_first"`` where each weight is read once.
    arch : str, optional
        What tile, stages and hints are chosen for: ``"sm_90a"`` or ``"sm_100a"``; by default that
        of the current target, and without a target the former.
    **hints
        Those of :func:`warploom.tile.hints`; ``group``: tiles of rows of a band, see
        :mod:`~warploom.programs.group_slots`.

    Returns
    -------
    PrimFunc
        ``matmul(X, W, Indptr, C)``: X is ``(m, k)``, W ``(groups, n, k)``, C ``(m, n)``. Indptr,
        ``(groups + 1,)`` and ascending from 0, has the first row of each group and the end of the
        last. Groups may be empty; rows of C behind the last are left alone.

    Raises
    ------
    IllegalCombination
        If there is no group, a row is no multiple of 16 bytes, or Indptr has another dtype.

    Examples
    --------
    >>> program = programs.gemm_grouped(8, 4096, 1024, dtype="bfloat16")
    >>> executable = tvm.compile(
    ...     tvm.IRModule({"main": program}), target, tir_pipeline="warploom"
    ... )  # doctest: +SKIP
    """
    out_dtype = out_dtype or dtype
    check_groups(groups, indptr_dtype)
    _check(n, k, dtype, out_dtype)
    if tile is None:
        problem = GroupedProblem(groups, m, n, k, dtype, out_dtype, arch or arch_for())
        given = {"stages": stages, "weights_policy": weights_policy, **hints}
        given = {name: value for name, value in given.items() if value is not None}
        choices = [
            (limit, _Tiling(**{**options_of(config), **given}))
            for limit, config in choose_grouped_by_rows(problem, machine_for())
        ]
    else:
        choices = [(None, _Tiling(tile, stages, weights_policy, **hints))]
    (limit, few), (_, many) = choices if len(choices) == 2 else ((None, None), *choices)
    rows = row_count(m)

    @T.inline
    def kernel(X, W, Indptr, C, of, needed):
        """A tiling's kernel; ``needed`` is whether it computes, and not the one beside it."""
        bm, bn, bk = T.meta_var(of.tile)
        across, width = T.meta_var(of.side_by_side(n))
        wl.hints(**of.hints)
        number, beside = T.cta_id([T.Select(needed, slots(rows, groups, bm) * across, 0), width])
        X_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        W_s = T.alloc_buffer((bn, bk), dtype, scope="shared")
        acc = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), out_dtype, scope="fragment")
        slot = Slot(Indptr, groups, bm, across, of.band)
        slot.find(number)
        g, row, count = slot.group, slot.row, slot.count
        j: T.let = slot.column * width + beside
        if count > 0:
            for step in wl.pipelined(-(-k // bk), of.stages):
                Tx.cta.copy_async(X_s, X[row : row + bm, step * bk : step * bk + bk])
                Tx.cta.copy_async(
                    W_s, W[g, j * bn : j * bn + bn, step * bk : step * bk + bk], **of.weights
                )
                Tx.cta.gemm_async(acc, X_s, W_s, accum=step > 0)
            Tx.cta.cast(out, acc)
            slot.store(C, out, j * bn)

    @T.prim_func
    def matmul(x: T.handle, w: T.handle, p: T.handle, c: T.handle):
        X = T.match_buffer(x, (rows, k), dtype, align=16)
        W = T.match_buffer(w, (groups, n, k), dtype, align=16)
        Indptr = T.match_buffer(p, (groups + 1,), indptr_dtype)
        C = T.match_buffer(c, (rows, n), out_dtype, align=16)
        if few is None:
            T.device_entry()
            kernel(X, W, Indptr, C, many, rows > 0)
        else:
            with wl.kernel():
                kernel(X, W, Indptr, C, few, T.And(rows > 0, rows <= limit))
            with wl.kernel():
                kernel(X, W, Indptr, C, many, rows > limit)

    return matmul.with_attr(SIZES, {"m": 1}) if m == 1 else matmul


def options_of(config: Config) -> dict[str, Any]:
    """A config as the arguments of :func:`gemm_grouped` that it stands for."""
    return {
        **config.hints(usual=False), "tile": (config.tile_m, config.tile_n, config.tile_k),
        "stages": config.stages, "weights_policy": POLICIES[config.l2_policy][1],
    }  # fmt: skip


class _Tiling:
    """Tile, stages and hints of a kernel; ``group`` among the hints are the tiles of a band."""

    def __init__(
        self, tile: tuple[int, int, int], stages: int | None, weights_policy: str | None,
        **hints: Any,
    ) -> None:  # fmt: skip
        self.tile, self.stages = tile, stages
        self.weights = {CACHE_HINT: weights_policy} if weights_policy else {}
        self.wide = hints.get("cluster", (1, 1))[1]
        self.band, self.hints = band_and_hints(hints)

    def side_by_side(self, n: int) -> tuple[int, int]:
        """Clusters side by side that ``n`` columns take, and the CTAs of each."""
        return side_by_side(n, self.tile[1], self.wide)


def _check(n: int, k: int, dtype: str, out_dtype: str) -> None:
    for name, count, of in (("k", k, dtype), ("n", n, out_dtype)):
        if count * bits_of(of) % 128:
            raise IllegalCombination(
                f"{name} {count} of {of} are rows of {count * bits_of(of) / 8:g} bytes; TMA wants "
                "multiples of 16, so pad them."
            )
