"""TIRx programs that use nothing of warploom, and what TVM makes of them.

``python stock_programs.py SEED SHARE`` prints, as JSON, what stock TVM makes of a share of them:
warploom is not imported. ``test_stock_programs.py`` compares that with its own process.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import S, TileLayout, laneid, wg_local_layout
from tvm.tirx.layout import wid_in_wg as warp

ARCHS = ("sm_90a", "sm_100a")
FLOATS = ("float32", "float16", "bfloat16")
ROWS = 128


def fragment(columns: int) -> TileLayout:
    """The registers of a wgmma accumulator of 64 rows, as an author of stock TVM writes them."""
    shards = [4, 2, 8, columns // 8, 4, 2]
    return TileLayout(S[tuple(shards) : (1 @ warp, 2, 4 @ laneid, 4, 1 @ laneid, 1)])


def rows_of_threads(emit: Callable, dtypes: list[str], columns: int) -> Any:
    """A warpgroup whose threads hold a row each: the last tile gets ``emit`` of the others."""
    first, last = dtypes[0], dtypes[-1]

    @T.prim_func
    def program(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (ROWS, columns), first, layout=TileLayout(S[(ROWS, columns)]))
        B = T.match_buffer(b, (ROWS, columns), last, layout=TileLayout(S[(ROWS, columns)]))
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        thread = T.thread_id_in_wg([ROWS])
        x = T.alloc_buffer((ROWS, columns), first, scope="local", layout=wg_local_layout(columns))
        y = T.alloc_buffer((ROWS, columns), first, scope="local", layout=wg_local_layout(columns))
        out = T.alloc_buffer((ROWS, columns), last, scope="local", layout=wg_local_layout(columns))
        x_row = x.local(columns)
        y_row = y.local(columns)
        for i in T.serial(columns):
            x_row[i] = A[thread, i]
            y_row[i] = A[thread, columns - 1 - i]
        emit(out, x, y)
        out_row = out.local(columns)
        for i in T.serial(columns):
            B[thread, i] = out_row[i]

    return program


def tile_of_fragments(emit: Callable, dtype: str, result: str, columns: int) -> Any:
    """A warpgroup with tiles in the layout of wgmma's accumulator."""

    @T.prim_func
    def program(b: T.Buffer((64, columns), result)):
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        T.thread_id_in_wg([ROWS])
        x = T.alloc_buffer((64, columns), dtype, scope="local", layout=fragment(columns))
        out = T.alloc_buffer((64, columns), result, scope="local", layout=fragment(columns))
        for i in T.unroll(columns // 2):
            x.local(columns // 2)[i] = T.cast(i, dtype)
        emit(out, x, x)
        for i in T.unroll(columns // 2):
            b[i, 0] = out.local(columns // 2)[i]

    return program


def copies(dtype: str, rows: int, columns: int, scope: str, variant: str | None) -> Any:
    """A CTA that copies a tile from global memory and back."""

    @T.prim_func
    def program(a: T.Buffer((rows, columns), dtype), b: T.Buffer((rows, columns), dtype)):
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        T.thread_id_in_wg([ROWS])
        tile = T.alloc_buffer((rows, columns), dtype, scope=scope)
        Tx.cta.copy(tile[:, :], a[:, :], dispatch=variant)
        T.cuda.cta_sync()
        Tx.cta.copy(b[:, :], tile[:, :], dispatch=variant)

    return program


def reduction(name: str, dtype: str, columns: int) -> Any:
    """A thread that reduces its own elements."""
    reduce = getattr(Tx, name)

    @T.prim_func
    def program(a: T.Buffer((ROWS, columns), dtype), b: T.Buffer((ROWS,), dtype)):
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([ROWS])
        x = T.alloc_buffer((columns,), dtype, scope="local")
        total = T.alloc_buffer((1,), dtype, scope="local")
        for i in T.serial(columns):
            x[i] = a[thread, i]
        reduce(total[:], x[:])
        b[thread] = total[0]

    return program


def matrix_product(operand: str, result: str, variant: str | None) -> Any:
    """A warp that multiplies two matrices of registers."""
    d_layout = TileLayout(S[(2, 8, 4, 2) : (2, 4 @ laneid, 1 @ laneid, 1)])
    b_layout = TileLayout(S[(4, 2, 8) : (1 @ laneid, 1, 4 @ laneid)])

    @T.prim_func
    def program(out: T.Buffer((32, 4), result)):
        T.device_entry()
        T.cta_id([1])
        lane = T.thread_id([32])
        a = T.alloc_buffer((16, 8), operand, scope="local", layout=d_layout)
        b = T.alloc_buffer((8, 8), operand, scope="local", layout=b_layout)
        d = T.alloc_buffer((16, 8), result, scope="local", layout=d_layout)
        for i in T.unroll(4):
            a.local(4)[i] = T.cast(lane, operand)
            d.local(4)[i] = T.cast(0, result)
        for i in T.unroll(2):
            b.local(2)[i] = T.cast(lane, operand)
        Tx.warp.gemm(d, a, b, d, dispatch=variant)
        for i in T.unroll(4):
            out[lane, i] = d.local(4)[i]

    return program


def programs(seed: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names, and functions that make the programs: a fixed part, and sizes drawn from a seed."""
    draw = random.Random(seed)
    for op in ("add", "sub", "mul", "fdiv", "maximum", "minimum"):
        emit = getattr(Tx.wg, op)
        for dtype in (*FLOATS, "int32"):
            columns = draw.choice((8, 16, 24, 64))
            yield (
                f"{op} {dtype} {columns} rows",
                lambda e=emit, d=dtype, c=columns: rows_of_threads(e, [d, d], c),
            )
            yield (
                f"{op} {dtype} {columns} fragments",
                lambda e=emit, d=dtype, c=columns: tile_of_fragments(e, d, d, c),
            )
    for op in ("sqrt", "exp", "exp2", "log2", "reciprocal", "silu", "fill", "zero"):
        dtype, columns = draw.choice(FLOATS), draw.choice((8, 16, 40))

        def emit_unary(out: Any, x: Any, _: Any, op: str = op) -> None:
            primitive = getattr(Tx.wg, op)
            operands = {"fill": [T.float32(2)], "zero": []}.get(op, [x])
            primitive(out, *operands)

        yield (
            f"{op} {dtype} {columns}",
            lambda e=emit_unary, d=dtype, c=columns: rows_of_threads(e, [d, d], c),
        )
    for source in FLOATS:
        for result in (*FLOATS, "float8_e4m3fn"):
            columns = draw.choice((8, 16, 32))

            def emit_cast(out: Any, x: Any, _: Any) -> None:
                Tx.wg.cast(out, x)

            yield (
                f"cast {source} {result} {columns}",
                lambda s=source, r=result, c=columns: rows_of_threads(emit_cast, [s, r], c),
            )
            yield (
                f"cast {source} {result} {columns} fragments",
                lambda s=source, r=result, c=columns: tile_of_fragments(emit_cast, s, r, c),
            )
    for columns in (7, 16):

        def emit_fma(out: Any, x: Any, y: Any) -> None:
            Tx.wg.fma(out, x, y, x)

        yield f"fma {columns}", lambda c=columns: rows_of_threads(emit_fma, ["float32"] * 2, c)
    for dtype in ("float32", "float16", "int8"):
        for scope in ("shared", "local"):
            rows, columns = draw.choice((32, 64)), draw.choice((16, 32, 48))
            for variant in (None, "vec_128b", "gmem_smem"):
                yield (
                    f"copy {dtype} {rows} {columns} {scope} {variant}",
                    lambda d=dtype, r=rows, c=columns, s=scope, v=variant: copies(d, r, c, s, v),
                )
    for op in ("sum", "max", "min"):
        for dtype in ("float32", "float16"):
            columns = draw.choice((5, 8, 16, 32))
            yield (
                f"{op} {dtype} {columns}",
                lambda o=op, d=dtype, c=columns: reduction(o, d, c),
            )
    for operand, result in (("float16", "float32"), ("int8", "int32"), ("float16", "float16")):
        for variant in (None, "no_such_variant"):
            yield (
                f"gemm {operand} {result} {variant}",
                lambda o=operand, r=result, v=variant: matrix_product(o, r, v),
            )


def outcome(make: Callable[[], Any], arch: str) -> str:
    """The CUDA source of a program, or what its author is told instead."""
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = tvm.compile(tvm.IRModule({"main": make()}), target, tir_pipeline="tirx")
    except Exception as error:  # whatever it is, both must say the same
        return f"{type(error).__name__}: {re.sub('0x[0-9a-f]+', '0x', str(error))}"
    return str(module.mod.imports[0].inspect_source())


def outcomes(seed: int, share: float) -> dict[str, str]:
    """Of a share of all programs, on all architectures; no CUDA compiler runs."""
    every = list(programs(seed))
    chosen = random.Random(seed).sample(every, round(share * len(every)))
    os.environ["TVM_COMPILE_FORCE_FALLBACK"] = "1"
    try:
        return {f"{name} {arch}": outcome(make, arch) for name, make in chosen for arch in ARCHS}
    finally:
        del os.environ["TVM_COMPILE_FORCE_FALLBACK"]


def main() -> None:
    from tvm.backend._autoload_backends import _load_builtin_backends

    _load_builtin_backends()
    found = outcomes(int(sys.argv[1]), float(sys.argv[2]))
    assert "warploom" not in sys.modules, "these are the outcomes of stock TVM"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
