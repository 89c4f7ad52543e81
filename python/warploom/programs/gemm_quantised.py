"""C = X Wᵀ with weights of 4 or 8 bits: dequantised in registers, on their way into the GEMM.

The weights are operand A, which the tensor core reads from registers, so that C is computed as the
transpose of W Xᵀ: that suits few rows of X, where reading the weights takes the time. Weights are
stored without sign, as w + 2**(bits - 1), in words of 32 bits, and have one scale for each group
along K. :mod:`warploom.layout.weight_order` makes such words of a matrix.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom import language as wl
from warploom.decide.config import Config
from warploom.decide.families.quantised import QuantisedProblem
from warploom.decide.selector import choose
from warploom.errors import IllegalCombination
from warploom.kernels.kernel_name import named
from warploom.kernels.signature import row_count
from warploom.layout.weight_order import WEIGHT_ORDERS
from warploom.ops.copy_strided import CACHE_HINT
from warploom.target import SM90A
from warploom.target.dtypes import with_dtype_names
from warploom.tile.annotations import SIZES
from warploom.tile.choices import POLICIES


@with_dtype_names
@named
def gemm_quantised(
    n: int,
    k: int,
    m: int | None = None,
    bits: int = 4,
    group: int = 128,
    dtype: str = "float16",
    order: str = "fragments",
    tile: tuple[int, int, int] | None = None,
    stages: int | None = None,
    weights_policy: str | None = None,
    arch: str = SM90A.name,
    **hints: Any,
) -> PrimFunc:
    """The tile program of a GEMM with packed weights.

    Parameters
    ----------
    n, k : int
        Columns of C, a multiple of 8, and the extent of K, a multiple of ``tile[2]``.
    m : int, optional
        Rows of X and C; without it the kernel takes any number, and is made for up to 16.
    bits : int
        Of a weight: 4 or 8.
    group : int
        Weights along K that share a scale; ``tile[2]`` is a multiple of it, or it of ``tile[2]``.
    dtype : str
        Of X, the scales and C, and of the weights in the GEMM: ``"float16"``, ``"bfloat16"``.
    order : str
        Of the weights in a row, a key of :data:`~warploom.layout.weight_order.WEIGHT_ORDERS`.
    tile : (int, int, int), optional
        Rows of X (a multiple of 8), rows of W (of 64), and K of one step. Without it tile, stages
        and hints are those of :func:`warploom.decide.choose`.
    stages : int, optional
        Steps that are loaded ahead.
    weights_policy : str, optional
        The L2 eviction policy of W, as ``cache_hint=`` of copies takes it; by default as chosen, if
        the tile is left to the program too.
    arch : str
        What tile, stages and hints are chosen for: ``"sm_90a"`` or ``"sm_100a"``.
    **hints
        Those of :func:`warploom.tile.hints`.

    Returns
    -------
    PrimFunc
        ``matmul(X, W, Scale, C)``: X is ``(m, k)``, W uint32 ``(n, k * bits / 32)``, Scale
        ``(k / group, n)``, C ``(m, n)``.

    Raises
    ------
    IllegalCombination
        If a size, the group or the bits are none of those.

    Examples
    --------
    >>> program = programs.gemm_quantised(4096, 4096, m=16, bits=4, group=128)
    """
    if bits not in (4, 8) or order not in WEIGHT_ORDERS:
        raise IllegalCombination(
            f"weights of {bits} bits in the order {order!r}: there are kernels for 4 and 8 bits "
            f"and the orders {', '.join(map(repr, WEIGHT_ORDERS))}."
        )
    if tile is None:
        own = options_of(choose(QuantisedProblem(m, n, k, bits, arch, group, dtype, order)))
        tile, own_stages, own_policy = (
            own.pop(name) for name in ("tile", "stages", "weights_policy")
        )
        stages, weights_policy = stages or own_stages, weights_policy or own_policy
        hints = {**own, **hints}
    rows, (bm, bn, bk) = row_count(m), tile
    _check(n, k, bk, group)
    packed, groups = bk * bits // 32, max(1, bk // group)
    place = WEIGHT_ORDERS[order]
    of_weights = {CACHE_HINT: weights_policy} if weights_policy else {}
    if hints.get("persistent") is not False:
        hints = {"raster": "rows", **hints}

    @T.prim_func
    def matmul(x: T.handle, w: T.handle, s: T.handle, c: T.handle):
        X = T.match_buffer(x, (rows, k), dtype, align=16)
        W = T.match_buffer(w, (n, k * bits // 32), "uint32", align=16)
        Scale = T.match_buffer(s, (k // group, n), dtype, align=16)
        C = T.match_buffer(c, (rows, n), dtype, align=16)
        T.device_entry()
        wl.hints(**hints)
        j, i = T.cta_id([-(-n // bn), T.truncdiv(rows + (bm - 1), bm)])
        X_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        W_s = T.alloc_buffer((bn, packed), "uint32", scope="shared")
        S_s = T.alloc_buffer((groups, bn), dtype, scope="shared")
        W_f = T.alloc_buffer((bn, bk), dtype, scope="fragment")
        acc = T.alloc_buffer((bn, bm), "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), dtype, scope="fragment")
        for step in wl.pipelined(k // bk, stages):
            first: T.let = step * bk // group
            Tx.cta.copy_async(X_s, X[i * bm : i * bm + bm, step * bk : step * bk + bk])
            Tx.cta.copy_async(
                W_s, W[j * bn : j * bn + bn, step * packed : step * packed + packed], **of_weights
            )
            Tx.cta.copy_async(S_s, Scale[first : first + groups, j * bn : j * bn + bn])
            for y, z in T.grid(bn, bk):
                at = T.meta_var(place(z, bits))
                field: T.let = W_s[y, at[0]] >> T.cast(at[1], "uint32") & T.uint32(2**bits - 1)
                weight: T.let = T.cast(field, "int32") - 2 ** (bits - 1)
                W_f[y, z] = T.cast(weight, dtype) * S_s[z // group, y]
            Tx.cta.gemm_async(acc, W_f, X_s, accum=step > 0)
        for y, z in T.grid(bm, bn):
            out[y, z] = T.cast(acc[z, y], dtype)
        Tx.cta.copy(C[i * bm : i * bm + bm, j * bn : j * bn + bn], out)

    # One row is a symbol of the program; :func:`~warploom.kernels.signature.row_count` says why.
    return matmul.with_attr(SIZES, {"m": 1}) if m == 1 else matmul


def options_of(config: Config) -> dict[str, Any]:
    """A config as the arguments of :func:`gemm_quantised` that it stands for."""
    return {
        **config.hints(usual=False), "tile": (config.tile_m, config.tile_n, config.tile_k),
        "stages": config.stages, "weights_policy": POLICIES[config.l2_policy][1],
    }  # fmt: skip


def _check(n: int, k: int, depth: int, group: int) -> None:
    if n % 8 or k % depth or k % group:
        raise IllegalCombination(
            f"n {n} must be a multiple of 8, and k {k} of the {depth} of a step and of the group "
            f"{group}; pad the weights."
        )
    if depth % group and group % depth:
        raise IllegalCombination(
            f"group {group} and tile[2] {depth}: one must be a multiple of the other, so "
            "choose another tile."
        )
