"""``gemm_async`` with scales: what it means, and what is refused, with the rule and the fix."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.tile_programs.scaled import FORMATS, ORDERS
from warploom import language as wl
from warploom.errors import IllegalCombination, TileProgramError
from warploom.lower.lowerings import lower
from warploom.target.scaled_formats import SCALED_FORMATS, scaled_format


def interpret(case: tile_programs.Case, rng: np.random.Generator) -> None:
    arguments = case.arguments(rng)
    expected = case.expected([np.copy(one) for one in arguments])[4]
    wl.interpret(case.func, arguments)
    np.testing.assert_allclose(arguments[4], expected, rtol=0, atol=2**-22 * np.abs(expected).max())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", FORMATS)
def test_it_is_the_matmul_of_elements_times_scales(rng, name, order):
    """With ragged rows and columns, and a K that is no multiple of the tile's."""
    interpret(tile_programs.scaled(name, 150, 130, 416, (128, 128, 128), order), rng)


@pytest.mark.parametrize("tile", [(128, 64, 32), (64, 24, 64), (16, 16, 96)])
def test_scales_in_rows_have_any_number(rng, tile):
    interpret(tile_programs.scaled("mxfp8", 40, 40, 200, tile), rng)


def test_blocks_of_256_rows(rng):
    interpret(tile_programs.scaled("nvfp4", 256, 256, 128, (256, 256, 64), "blocks"), rng)


def test_the_last_block_may_have_more_scales_than_the_tile(rng):
    interpret(tile_programs.scaled("mxfp8", 40, 40, 32, (64, 64, 32), "blocks"), rng)


def test_scales_may_have_their_own_dtype(rng):
    case = tile_programs.scaled("mxfp4", scale_dtype="float8_e8m0fnu")
    interpret(case, rng)


def test_the_short_form(rng):
    interpret(tile_programs.scaled("nvfp4", short=True), rng)


@pytest.mark.parametrize("order", ORDERS)
def test_programs_survive_printing(order):
    func = tile_programs.scaled("mxfp4", order=order).func
    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)


def test_every_code_has_its_value():
    """All of float4_e2m1fn, and all scales: 255 is NaN, 0 the smallest power of two."""
    row = FORMATS["mxfp4"]
    a = np.arange(256, dtype=np.uint8).reshape(16, 16).T.copy()
    scales = np.array([0, 1, 126, 127, 128, 200, 254, 255] * 2, np.uint8).reshape(16, 1)
    b = np.zeros((16, 16), np.uint8)
    b[:, 0] = 2  # the element 1, so that a column of A is the result
    ones = np.full((16, 1), 127, np.uint8)

    @T.prim_func
    def first_column(
        A: T.Buffer((16, 16), "uint8"), SA: T.Buffer((16, 1), "uint8"),
        B: T.Buffer((16, 16), "uint8"), SB: T.Buffer((16, 1), "uint8"),
        C: T.Buffer((16, 16), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        tiles = [wl.load(one, (0, 0), one.shape) for one in (A, SA, B, SB)]
        acc = wl.gemm(tiles[0], tiles[2], scale_a=tiles[1], scale_b=tiles[3])
        Tx.cta.copy(C, acc)

    c = np.full((16, 16), np.nan, np.float32)
    wl.interpret(first_column, [a, scales, b, ones, c])
    expected = np.repeat(row.values(a, scales)[:, :1], 16, axis=1)
    assert np.isnan(expected).any() and (expected == 2.0**-127).any()
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(c, expected.astype(np.float32))


def test_formats_prove_themselves_and_name_what_there_is():
    assert [row.name for row in SCALED_FORMATS] == ["mxfp8", "mxfp4", "nvfp4"]
    assert scaled_format("float8_e4m3fn", "float8_e5m2", "uint8", "float8_e8m0fnu").block == 32
    with pytest.raises(IllegalCombination, match=r"A of float16.*nvfp4 has operands uint8"):
        scaled_format("float16", "float16", "uint8", "uint8")


# --- what is refused ---

TILES = {
    "a": ((128, 128), "float8_e4m3fn"), "b": ((64, 128), "float8_e4m3fn"),
    "a4": ((128, 64), "uint8"), "b4": ((64, 64), "uint8"),
    "half": ((128, 128), "float16"), "deep": ((64, 64), "float8_e4m3fn"),
    "odd": ((128, 48), "float8_e4m3fn"), "odd_b": ((64, 48), "float8_e4m3fn"),
    "sa": ((128, 4), "uint8"), "sb": ((64, 4), "uint8"), "sa2": ((128, 2), "uint8"),
    "na": ((128, 8), "float8_e4m3fn"), "nb": ((64, 8), "float8_e4m3fn"),
    "na2": ((128, 4), "float8_e4m3fn"), "narrow": ((64, 2), "uint8"),
    "blocks": ((1, 1, 32, 16), "uint8"), "many": ((2, 1, 32, 16), "uint8"),
    "deep4": ((64, 32), "uint8"),
}  # fmt: skip
ANY = r"no block-scaled format has A of "
#: Operands of an MMA, and what is said of them.
REFUSED = {
    ("half", "b", "sa", "sb"): ANY + "float16, B of float8_e4m3fn.*; mxfp4 has operands uint8",
    ("a", "b", "na", "nb"): ANY + "float8_e4m3fn.* scales of float8_e4m3fn and float8_e4m3fn;",
    ("a", "b4", "sa", "sb"): ANY + "float8_e4m3fn, B of uint8",
    ("a4", "b4", "sa", "nb"): ANY + "uint8.* scales of uint8 and float8_e4m3fn;",
    ("a", "b", "sa2", "sb"): (
        r"scales sa2 have a region of extents \(128, 2\); mxfp8 has a scale for each 32 elements "
        r"along K, so an operand of \(128, 128\) elements wants \(128, 4\) in rows, or "
        r"\(1, 1, 32, 16\) in blocks"
    ),
    ("a4", "b4", "na2", "nb"): r"scales na2 .*; nvfp4 has a scale for each 16 .*wants \(128, 8\)",
    ("a", "b", "many", "sb"): r"scales many have a region of extents \(2, 1, 32, 16\)",
    ("odd", "odd_b", "sa2", "narrow"): (
        "K = 48; mxfp8 has a scale for each 32 elements, so K of a tile must be a multiple"
    ),
    ("a", "deep", "sa", "narrow"): (
        r"of A, a, \[M, K\] = \(128, 128\) and B, deep, \[N, K\] = \(64, 64\) does not fit"
    ),
    ("a4", "deep4", "sa", "narrow"): r"B, deep4, \[N, K / 2\] = \(64, 32\) does not fit",
}  # fmt: skip


def program(operands: tuple[str, ...], acc: str = "float32", scopes: tuple[str, ...] = (), **flags):
    """A program with one MMA of tiles of :data:`TILES`; ``scopes`` are those of the first ones."""

    def multiply(C):
        made = {}
        for name, scope in itertools.zip_longest(operands, scopes, fillvalue="shared"):
            made[name] = T.alloc_buffer(*TILES[name], scope=scope)
            IRBuilder.name(name, made[name])
            Tx.cta.fill(made[name], T.Cast(TILES[name][1], T.float32(1)))
        result = T.alloc_buffer((128, 64), acc, scope="accumulator")
        IRBuilder.name("acc", result)
        Tx.cta.gemm_async(result, *(made[name] for name in operands), **flags)
        out = T.alloc_buffer((128, 64), "float32", scope="fragment")
        Tx.cta.cast(out, result)
        Tx.cta.copy(C, out)

    @T.prim_func(check_well_formed=False)
    def func(C: T.Buffer((128, 64), "float32")):
        T.device_entry()
        T.cta_id([1])
        multiply(C)

    return func


LEGAL = ("a", "b", "sa", "sb")
ALSO_REFUSED = {
    r"writes acc of dtype float16 in scope accumulator; it must be an accumulator of float32": (
        partial(program, LEGAL, "float16")
    ),
    "has A, a, in scope fragment; operands and scales must be shared tiles, so copy it to one": (
        partial(program, LEGAL, scopes=("fragment",))
    ),
    "has SFA, sa, in scope fragment": (
        partial(program, LEGAL, scopes=("shared", "shared", "fragment"))
    ),
    "has transA; blocks that share a scale lie along K, which must be the last dimension of a": (
        partial(program, LEGAL, transA=True)
    ),
    "has transB; .* last dimension of b": partial(program, LEGAL, transB=True),
}


def refused(func, message: str) -> None:
    """The interpreter and both lowerings refuse a program with one sentence."""
    with pytest.raises(TileProgramError, match=message):
        wl.interpret(func, [np.zeros((128, 64), np.float32)])
    for arch in ("sm_90a", "sm_100a"):
        with pytest.raises(TileProgramError, match=message):
            lower(func, arch)


@pytest.mark.parametrize("operands", REFUSED, ids="-".join)
def test_operands_and_scales_that_do_not_fit(operands):
    refused(program(operands), REFUSED[operands])


@pytest.mark.parametrize("message", ALSO_REFUSED)
def test_places_and_orders_that_no_instruction_reads(message):
    refused(ALSO_REFUSED[message](), message)


def test_the_legal_program_of_these_is_legal():
    c = np.full((128, 64), np.nan, np.float32)
    wl.interpret(program(LEGAL), [c])
    assert np.all(c == 128 * 2.0 ** (2 * (1 - 127)))  # the bits of a scale are 1


def test_the_short_form_wants_scales_of_both():
    with pytest.raises(TileProgramError, match=r"wl\.gemm got scale_a alone; both operands have"):
        wl.gemm(None, None, scale_a=1)
    with pytest.raises(TileProgramError, match=r"wl\.gemm got scale_b alone"):
        wl.gemm(None, None, scale_b=1)
