"""Programs print and parse back; what warploom adds to the builder leaves stock calls alone."""

from __future__ import annotations

import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.script.builder import tirx as builder
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom import printed_forms


def products(scaled: bool, transposed: bool, accumulate: bool):
    @T.prim_func
    def func():
        T.device_entry()
        T.cta_id([1])
        A = T.alloc_buffer((64, 64), "float8_e4m3fn", scope="shared")
        B = T.alloc_buffer((64, 64), "float8_e4m3fn", scope="shared")
        S = T.alloc_buffer((64, 2), "float8_e8m0fnu", scope="shared")
        C = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        if scaled:
            Tx.cta.gemm_async(C, A, B, S, S, transposed, False, accumulate)
        else:
            Tx.cta.gemm_async(
                C, A, B, transA=transposed, accum=accumulate, dispatch="wgmma", hint=3
            )

    return func


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
def test_gemm_async_survives_printing(scaled, transposed, accumulate):
    func = products(scaled, transposed, accumulate)
    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)


def test_an_accum_that_is_an_expression_survives_printing():
    @T.prim_func
    def func():
        T.device_entry()
        T.cta_id([1])
        A = T.alloc_buffer((64, 64), "float16", scope="shared")
        C = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        for k in range(4):
            Tx.cta.gemm_async(C, A, A, accum=k > 0)
            Tx.gemm_async(C, A, A, accum=T.Or(k > 0, k == 2))

    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)


def _unary(name, *rest, **options):
    return lambda out, x, y, row: getattr(Tx.cta, name)(out, x, *rest, **options)


def _binary(name):
    return lambda out, x, y, row: getattr(Tx.cta, name)(out, x, y)


def _reduction(name, axes, accum):
    return lambda out, x, y, row: getattr(Tx.cta, name)(row, x, axes=axes, accum=accum)


_AFFINE = ("sqrt", "exp", "exp2", "log2")
_BINARY = ("add", "sub", "mul", "fdiv", "maximum", "minimum")
PRIMITIVES = {
    "zero": lambda out, x, y, row: Tx.cta.zero(out),
    "fill": lambda out, x, y, row: Tx.cta.fill(out, T.float32(1)),
    "fill number": lambda out, x, y, row: Tx.cta.fill(out, 1.5),
    "memset": lambda out, x, y, row: Tx.cta.memset(out, T.float32(1)),
    "fma": lambda out, x, y, row: Tx.cta.fma(out, x, y, T.float32(1)),
    "select": lambda out, x, y, row: Tx.cta.select(out, x, y, lambda i, j: i > j),
    "select number": lambda out, x, y, row: Tx.cta.select(out, x, 0.0, lambda i, j: i + j < 9),
    **{n: _unary(n) for n in (*printed_forms.IN_PLACE, *_AFFINE, "reciprocal")},
    **{f"{n} scale": _unary(n, scale=2.0) for n in _AFFINE},
    **{f"{n} bias": _unary(n, T.float32(1)) for n in _AFFINE},
    **{n: _binary(n) for n in _BINARY},
    **{f"{n} number": _unary(n, 2.0) for n in _BINARY},
    **{f"{n} integer": _unary(n, 2) for n in _BINARY},
    "fill integer": lambda out, x, y, row: Tx.cta.fill(out, -3),
    **{n: _reduction(n, (1,), False) for n in ("sum", "max", "min")},
    **{f"{n} accum": _reduction(n, -2, True) for n in ("sum", "max", "min")},
}


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", PRIMITIVES)
@pytest.mark.some(20)
def test_primitive_survives_printing(name, in_place):
    call = PRIMITIVES[name]

    @T.prim_func
    def func():
        T.device_entry()
        T.cta_id([1])
        out = T.alloc_buffer((16, 16), "float32", scope="fragment")
        x = T.alloc_buffer((16, 16), "float32", scope="fragment")
        y = T.alloc_buffer((16, 16), "float32", scope="fragment")
        row = T.alloc_buffer((16,), "float32", scope="fragment")
        call(x if in_place else out, x, y, row)

    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "float16"])
def test_integers_are_expressions_of_the_destinations_dtype(dtype):
    constant = getattr(T, dtype if "int" in dtype else "int32")

    @T.prim_func
    def func():
        T.device_entry()
        T.cta_id([1])
        x = T.alloc_buffer((16, 16), dtype, scope="fragment")
        Tx.cta.maximum(x, x, constant(3))

    @T.prim_func
    def plain():
        T.device_entry()
        T.cta_id([1])
        x = T.alloc_buffer((16, 16), dtype, scope="fragment")
        Tx.cta.maximum(x, x, 3)

    plain = plain.with_attr("global_symbol", "func")
    assert tvm_ffi.structural_equal(func, plain)
    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)


def test_a_missing_source_of_an_expression_is_still_refused():
    tile = tvm.tirx.decl_buffer((64, 64), "float16", scope="shared")
    for options in [{"dtype": "float32"}, {"src": None}, {"dst": tile}]:
        with pytest.raises(TypeError, match="expects `src` to be a Buffer"):
            Tx.cast(*([] if "dst" in options else [tile]), **options)


def stock_and_ours(*arguments, **options) -> list[TilePrimitiveCall]:
    """The statements that the stock builder and ours make of one call."""
    calls = []
    for function in (builder.gemm_async._fn.__wrapped__, builder.gemm_async._fn):
        with tvm.script.ir_builder.IRBuilder() as frame, builder_function():
            function(*arguments, scope=builder._normalize_scope("cta"), **options)
        calls.append(frame.get().body)
    return calls


def builder_function():
    from tvm.tirx.script import builder as script

    return script.prim_func(is_private=True)


def test_stock_calls_are_unchanged():
    tile = tvm.tirx.decl_buffer((64, 64), "float16", scope="shared")
    scale = tvm.tirx.decl_buffer((64, 2), "float8_e8m0fnu", scope="shared")
    flag = tvm.tirx.Var("k", "int32") > 0
    for arguments, options in [
        ((tile, tile, tile), {}),
        ((tile, tile, tile), {"transB": True, "accum": flag}),
        ((tile, tile, tile, None, None, True, False, flag), {}),
        ((tile, tile, tile, scale, scale, False, True), {"accum": True}),
        ((tile, tile, tile), {"SFA": scale, "SFB": scale}),
        ((), {"C": tile, "A": tile, "B": tile, "accum": flag}),
        ((tile, tile, tile[0:32, 0:64], scale[0:64, 0:2], scale[:, :]), {"dispatch": "tcgen05"}),
    ]:
        stock, ours = stock_and_ours(*arguments, **options)
        assert isinstance(stock, TilePrimitiveCall) and tvm_ffi.structural_equal(
            stock, ours, map_free_vars=True
        )


def test_stock_errors_are_unchanged():
    tile = tvm.tirx.decl_buffer((64, 64), "float16", scope="shared")
    for arguments in [(tile, tile, tile, tile), (tile, tile, tile, None, tile)]:
        with pytest.raises(ValueError, match="SFA and SFB must both"):
            stock_and_ours(*arguments)
