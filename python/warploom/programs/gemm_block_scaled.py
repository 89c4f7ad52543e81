"""C = A Bᵀ of 8-bit floats with a scale for each block of 128 along K, as DeepSeek's models have.

The tensor core multiplies one block of K into an accumulator of its own; threads add it to their
sums in float32, times the scales, while the MMA of the next block, or of the other warpgroup,
runs. Sums are therefore more precise than those of the tensor core, which keeps some 13 fractional
bits of a sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom import language as wl
from warploom.decide.config import Config
from warploom.decide.families.block_scaled import BlockScaledProblem
from warploom.decide.price.block_scaled import BLOCK, MOST_ROWS, bands_of
from warploom.decide.selector import choose
from warploom.errors import IllegalCombination
from warploom.kernels.kernel_name import named
from warploom.kernels.signature import row_count
from warploom.ops.copy_strided import CACHE_HINT
from warploom.target import SM90A
from warploom.target.dtypes import is_float8, with_dtype_names
from warploom.tile.annotations import SIZES
from warploom.tile.choices import POLICIES

#: Orders of the dimensions of A's scales.
SCALE_LAYOUTS = ("MK", "KM")


@with_dtype_names
@named
def gemm_block_scaled(
    n: int,
    k: int,
    m: int | None = None,
    dtype: str = "float8_e4m3fn",
    out_dtype: str = "bfloat16",
    scale_layout: str = "MK",
    tile: tuple[int, int, int] | None = None,
    stages: int | None = None,
    scales_ahead: bool | None = None,
    weights_policy: str | None = None,
    arch: str = SM90A.name,
    **hints: Any,
) -> PrimFunc:
    """The tile program of a GEMM whose blocks of K have scales.

    Parameters
    ----------
    n, k : int
        Columns of C, a multiple of 8, and the extent of K, a multiple of 16. The last
        blocks may be incomplete.
    m : int, optional
        Rows of A and C; without it the kernel takes any number, and is made for many.
    dtype : str
        Of A and B: an 8-bit float.
    out_dtype : str
        Of C: ``"float16"`` or ``"bfloat16"``.
    scale_layout : str
        ``"MK"`` for ScaleA of ``(m, ceil(k / 128))``, ``"KM"`` for its transpose, which is what
        ``cutlass.groupwise_scaled_gemm_e4m3fn_e4m3fn`` of TVM takes.
    tile : (int, int, int), optional
        Rows of A and of B, and K of one step: 128, or 256 for two accumulators, used alternately.
        By default tile, stages and hints are those of
        :func:`warploom.decide.choose`.
    stages : int, optional
        Steps that are loaded ahead.
    scales_ahead : bool, optional
        Whether threads load the scales of a step one step before; by default for many rows, if
        the tile is left to the program too.
    weights_policy : str, optional
        The L2 eviction policy of B, as ``cache_hint=`` of copies takes it; by default
        ``"evict_first"`` for few rows, if the tile is left to the program too.
    arch : str
        What tile, stages and hints are chosen for: ``"sm_90a"`` or ``"sm_100a"``.
    **hints
        Those of :func:`warploom.tile.hints`.

    Returns
    -------
    PrimFunc
        ``matmul(A, B, ScaleA, ScaleB, C)``: A ``(m, k)``, B ``(n, k)``, C ``(m, n)``; scales are
        float32, ScaleB is ``(ceil(n / 128), ceil(k / 128))``. Element (i, j) of C is the sum over
        blocks b of K of ``ScaleA[i, b] * ScaleB[j // 128, b]`` times the matmul of the blocks.

    Raises
    ------
    IllegalCombination
        If a dtype, a size, the layout or K of a step is none of those.

    Examples
    --------
    >>> program = programs.gemm_block_scaled(7168, 2048, m=4096)
    >>> [param.name for param in program.params]
    ['A', 'B', 'ScaleA', 'ScaleB', 'C']
    """
    check_block_scaled(n, k, dtype, out_dtype, scale_layout)
    own: dict[str, Any] = {}
    if tile is None:
        own = options_of(choose(BlockScaledProblem(m, n, k, arch, dtype, out_dtype)))
        tile, own_stages = own.pop("tile"), own.pop("stages")
        stages = stages or own_stages
    chosen = {"scales_ahead": scales_ahead, "weights_policy": weights_policy}
    own |= {name: value for name, value in chosen.items() if value is not None}
    ahead, policy = own.pop("scales_ahead", False), own.pop("weights_policy", None)
    hints = {**own, **hints}
    if hints.get("persistent") is not False:
        hints = {"raster": "grouped", **hints}
    step = _Step.of_tile(tile)
    return _program(n, k, m, dtype, out_dtype, scale_layout, step, stages, ahead, policy, hints)


def options_of(config: Config) -> dict[str, Any]:
    """A config as the arguments of :func:`gemm_block_scaled` that it stands for."""
    return {
        **config.hints(usual=False), "tile": (config.tile_m, config.tile_n, config.tile_k),
        "stages": config.stages, "cluster": (config.cluster_m, config.cluster_n),
        "scales_ahead": config.scales_ahead, "weights_policy": POLICIES[config.l2_policy][1],
    }  # fmt: skip


@dataclass(frozen=True)
class _Step:
    """A step of K, in MMA blocks: each a band of rows of the tile and a block of K.

    Attributes
    ----------
    tile : (int, int, int)
        Rows of A and of B, and K.
    each, bands : int
        Blocks of K, and bands of rows; one of them is 1.
    """

    tile: tuple[int, int, int]
    each: int
    bands: int

    @classmethod
    def of_tile(cls, tile: tuple[int, int, int]) -> _Step:
        """The step of a tile.

        Raises
        ------
        IllegalCombination
            If registers cannot hold the accumulators of such a step.
        """
        bm, _, bk = tile
        if bk not in (BLOCK, 2 * BLOCK):
            raise IllegalCombination(
                f"tile {tile} has steps of {bk} along K; they are one or two blocks, {BLOCK} or "
                f"{2 * BLOCK}."
            )
        # A warpgroup has registers for accumulators of 64 rows: of more, one half after the other.
        each, bands = bk // BLOCK, bands_of(bm)
        if bands * each > 2 or bm % (64 * bands):
            raise IllegalCombination(
                f"tile {tile}: of more than {MOST_ROWS} rows there must be a multiple of 128, in "
                f"steps of {BLOCK}."
            )
        return cls(tile, each, bands)


def _tiles(
    name: str, count: int, shape: tuple[int, ...], scope: str, dtype: str = "float32"
) -> list[Any]:
    """A tile for each of two blocks of a step, which may be the same tile."""
    names = [name, f"next_{name}"][:count]
    made = [IRBuilder.name(each, T.alloc_buffer(shape, dtype, scope=scope)) for each in names]
    return [made[0], made[-1]]


def _program(
    n: int, k: int, m: int | None, dtype: str, out_dtype: str, scale_layout: str,
    shape: _Step, stages: int | None, ahead: bool, policy: str | None, hints: dict[str, Any],
) -> PrimFunc:  # fmt: skip
    """The program, of choices that are made."""
    rows, (bm, bn, bk) = row_count(m), shape.tile
    each, bands, blocks = shape.each, shape.bands, -(-k // BLOCK)
    band, mma_blocks = bm // bands, bands * each
    of_weights = {CACHE_HINT: policy} if policy else {}
    # Columns of a tile that never lie in two blocks of N.
    together = math.gcd(bn, BLOCK)
    by_rows = scale_layout == "MK"

    def of_a(scale: Any, row: Any, block: Any) -> Any:
        return scale[row, block] if by_rows else scale[block, row]

    def of_b(scale: Any, column: Any, block: Any) -> Any:
        # The minimum spares a guard of every element.
        return scale[T.min(T.truncdiv(column, BLOCK), -(-n // BLOCK) - 1), block]

    @T.prim_func
    def matmul(a: T.handle, b: T.handle, sa: T.handle, sb: T.handle, c: T.handle):
        A = T.match_buffer(a, (rows, k), dtype, align=16)
        B = T.match_buffer(b, (n, k), dtype, align=16)
        ScaleA = T.match_buffer(sa, (rows, blocks) if by_rows else (blocks, rows), "float32")
        ScaleB = T.match_buffer(sb, (-(-n // BLOCK), blocks), "float32")
        C = T.match_buffer(c, (rows, n), out_dtype, align=16)
        T.device_entry()
        wl.hints(**hints)
        i, j = T.cta_id([T.truncdiv(rows + (bm - 1), bm), -(-n // bn)])
        A_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        B_s = T.alloc_buffer((bn, bk), dtype, scope="shared")
        part = T.meta_var(_tiles("part", each, (band, bn), "accumulator"))
        total = T.meta_var(_tiles("total", bands, (band, bn), "fragment"))
        out = T.meta_var(_tiles("out", bands, (band, bn), "fragment", out_dtype))
        of_rows = T.meta_var(_tiles("of_rows", mma_blocks, (band,), "fragment"))
        of_columns = T.meta_var(_tiles("of_columns", each, (bn,), "fragment"))
        if ahead:
            next_of_rows = T.meta_var(_tiles("rows_ahead", mma_blocks, (band,), "fragment"))
            next_of_columns = T.meta_var(_tiles("columns_ahead", each, (bn,), "fragment"))

        @T.inline
        def multiply(number):
            row, column = T.meta_var((number * band % bm, number * BLOCK % bk))
            Tx.cta.gemm_async(
                part[number],
                A_s[row : row + band, column : column + BLOCK],
                B_s[0:bn, column : column + BLOCK],
            )

        @T.inline
        def load_scales(to_rows, to_columns, number, step):
            # Behind the last block, operands are zero and any scale will do.
            block = T.meta_var(T.min(step * each + number * (each - 1), blocks - 1))
            for y in T.serial(band):
                to_rows[number][y] = of_a(ScaleA, i * bm + number * band % bm + y, block)
            for x in T.serial(bn):
                to_columns[number][x] = of_b(ScaleB, j * bn + x // together * together, block)

        @T.inline
        def take_scales(number):
            for y in T.serial(band):
                of_rows[number][y] = next_of_rows[number][y]
            for x in T.serial(bn):
                of_columns[number][x] = next_of_columns[number][x]

        @T.inline
        def add(b):
            for y, x in T.grid(band, bn):
                total[b][y, x] += part[b][y, x] * (of_rows[b][y] * of_columns[b][x])

        Tx.cta.zero(total[0])
        if bands > 1:
            Tx.cta.zero(total[1])
        if ahead:
            load_scales(of_rows, of_columns, 0, 0)
            if mma_blocks > 1:
                load_scales(of_rows, of_columns, 1, 0)
        for step in wl.pipelined(-(-k // bk), stages):
            Tx.cta.copy_async(A_s, A[i * bm : i * bm + bm, step * bk : step * bk + bk])
            Tx.cta.copy_async(
                B_s, B[j * bn : j * bn + bn, step * bk : step * bk + bk], **of_weights
            )
            if ahead:
                load_scales(next_of_rows, next_of_columns, 0, step + 1)
                if mma_blocks > 1:
                    load_scales(next_of_rows, next_of_columns, 1, step + 1)
            multiply(0)
            if not ahead:
                load_scales(of_rows, of_columns, 0, step)
            if each > 1:
                multiply(1)
            if mma_blocks > 1 and not ahead:
                load_scales(of_rows, of_columns, 1, step)
            add(0)
            if bands > 1:
                multiply(1)
            if mma_blocks > 1:
                add(1)
            if ahead:
                take_scales(0)
                if mma_blocks > 1:
                    take_scales(1)
        Tx.cta.cast(out[0], total[0])
        Tx.cta.copy(C[i * bm : i * bm + band, j * bn : j * bn + bn], out[0])
        if bands > 1:
            Tx.cta.cast(out[1], total[1])
            Tx.cta.copy(C[i * bm + band : i * bm + bm, j * bn : j * bn + bn], out[1])

    return matmul.with_attr(SIZES, {"m": 1}) if m == 1 else matmul


def check_block_scaled(n: int, k: int, dtype: str, out_dtype: str, scale_layout: str) -> None:
    """Check the arguments of a program with block scales.

    Raises
    ------
    IllegalCombination
        If a dtype, a size or the layout is none of those that it takes.
    """
    if not is_float8(dtype):
        raise IllegalCombination(f"dtype is {dtype!r}; block scales are for 8-bit floats.")
    if out_dtype not in ("float16", "bfloat16"):
        raise IllegalCombination(f"out_dtype is {out_dtype!r}; it must be float16 or bfloat16.")
    if n % 8 or k % 16:
        raise IllegalCombination(
            f"n {n} must be a multiple of 8 and k {k} of 16: TMA wants rows of 16-byte multiples, "
            "so pad them."
        )
    if scale_layout not in SCALE_LAYOUTS:
        raise IllegalCombination(
            f"scale_layout is {scale_layout!r}; it must be one of "
            f"{', '.join(map(repr, SCALE_LAYOUTS))}."
        )
