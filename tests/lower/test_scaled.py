"""MMAs with scales, lowered both ways: right, free of races, and by instructions where there are.

Blackwell multiplies by scales in tensor memory where an instruction fits; else, and on Hopper,
threads dequantise the operands.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.lowered_programs import check, hinted, local_memory, run
from tests.shared.tile_programs.scaled import FORMATS, ORDERS, scaled
from warploom import language as wl
from warploom.decide.price.read import read as price
from warploom.errors import Decline, LoweringWarning
from warploom.lower.lowerings import SCALED, lower
from warploom.lower.trace import lower_trace
from warploom.target import SM90A, SM100A, cuda_target
from warploom.tile.read import read
from warploom.tile.statement import Mma, walk

ARCHS = (SM90A.name, SM100A.name)
KINDS = {"mxfp8": "mxf8f6f4", "mxfp8 e5m2": "mxf8f6f4", "mxfp4": "mxf4", "nvfp4": "mxf4nvf4"}


def decisions(func: tvm.tirx.PrimFunc, arch: str) -> str:
    """All decisions of the passes."""
    return "\n".join(line for step in lower_trace(func, arch) for line in step.decisions)


def ptx_of(func: tvm.tirx.PrimFunc, arch: str) -> str:
    return tvm.compile(
        tvm.IRModule({"main": func}), cuda_target(arch), tir_pipeline="warploom"
    ).mod.imports[0].inspect_source("ptx")  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.some(6)
def test_ragged_matrices(rng, arch, name, order):
    """Of two tiles in each direction, the last of them not full, in K too."""
    check(scaled(name, 150, 130, 160, (128, 128, 128), order, out_dtype="bfloat16"), rng, arch)


@pytest.mark.parametrize("trips", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.some(5)
def test_trip_counts_around_the_number_of_stages(rng, arch, order, trips):
    check(scaled("nvfp4", 100, 32, 64 * trips, (128, 32, 64), order, stages=3), rng, arch)


@pytest.mark.parametrize(
    "tile", [(64, 64, 64), (128, 8, 32), (128, 24, 64), (16, 64, 32), (256, 32, 32), (128, 96, 160)]
)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.some(5)
def test_tiles_of_other_sizes(rng, arch, tile):
    check(scaled("mxfp8", 300, 100, 200, tile), rng, arch)


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.some(2)
def test_blocks_of_256_rows(rng, arch, name):
    tile = (256, 128, 64 if name == "nvfp4" else 128)
    check(scaled(name, 256, 256, 128, tile, "blocks", stages=1), rng, arch)


@pytest.mark.parametrize(
    "hints",
    [{"cluster": (2, 1)}, {"cluster": (1, 2)}, {"split_k": 2}, {"stream_k": True},
     {"persistent": False}, {"consumers": 2}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.some(5)
def test_hints(rng, arch, order, hints):
    check(scaled("mxfp4", 256, 256, 256, (128, 128, 128), order, stages=2), rng, arch, **hints)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.some(1)
def test_the_short_form_and_unknown_rows(rng, arch):
    check(scaled("mxfp8", 130, 64, 256, short=True, symbolic=True), rng, arch)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.some(2)
def test_scales_of_their_own_dtype_are_copied_by_threads(rng, arch, order):
    """Tensor maps have no such elements; those outside of the matrix are no NaN."""
    case = scaled("mxfp4", 130, 72, 160, (128, 128, 128), order, scale_dtype="float8_e8m0fnu")
    check(case, rng, arch)


@pytest.mark.parametrize("dtype", ["int16", "bool", "float8_e8m0fnu"])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.some(2)
def test_copies_of_dtypes_without_tensor_maps(rng, arch, dtype):
    @T.prim_func
    def copied(A: T.Buffer((128, 64), dtype), C: T.Buffer((128, 64), dtype)):
        T.device_entry()
        i = T.cta_id([2])
        A_s = wl.load(A, (i, 0), (64, 64))
        Tx.cta.copy(C[i * 64 : i * 64 + 64, 0:64], A_s)

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a = rng.integers(0, 2, (128, 64)).astype(kind)
    c = np.zeros((128, 64), kind)
    c.view(np.uint8)[:] = 77 if dtype != "bool" else 0
    found = run(lower(copied, arch), [a, c], arch)[1]
    assert found.tobytes() == a.tobytes()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "uint8"])
def test_accumulators_that_must_lie_in_tensor_memory(rng, dtype):
    """And operands whose regions have a leading dimension."""
    name = "mxfp8" if dtype == "float8_e4m3fn" else "mxfp4"
    row = FORMATS[name]
    width = 128 // row.packed

    @T.prim_func
    def product(
        A: T.Buffer((1, 128, width), dtype), SA: T.Buffer((1, 128, 4), "uint8"),
        B: T.Buffer((1, 32, width), dtype), SB: T.Buffer((1, 32, 4), "uint8"),
        C: T.Buffer((128, 32), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s, B_s = wl.load(A, (0, 0, 0), A.shape), wl.load(B, (0, 0, 0), B.shape)
        SA_s, SB_s = wl.load(SA, (0, 0, 0), SA.shape), wl.load(SB, (0, 0, 0), SB.shape)
        acc = T.alloc_buffer((128, 32), "float32", scope="tmem")
        Tx.cta.gemm_async(acc, A_s, B_s, SFA=SA_s, SFB=SB_s)
        out = T.alloc_buffer((128, 32), "float32", scope="fragment")
        Tx.cta.copy(out, acc)
        Tx.cta.copy(C, out)

    a, b = row.operand(rng, 128, 128), row.operand(rng, 32, 128)
    sa, sb = row.scales(rng, 128, 128), row.scales(rng, 32, 128)
    c = np.full((128, 32), np.nan, np.float32)
    arguments = [a[None], sa[None], b[None], sb[None], c]
    found = run(lower(product, SM100A.name), arguments, SM100A.name)[4]
    expected = row.values(a, sa) @ row.values(b, sb).T
    np.testing.assert_allclose(found, expected, rtol=0, atol=4e-6 * np.abs(expected).max())


# --- what the passes choose ---


@pytest.mark.parametrize("name", FORMATS)
def test_blackwell_multiplies_by_scales_in_tensor_memory(name):
    case = scaled(name, 128, 64, 256, (128, 64, 128), "blocks")
    said = decisions(case.func, SM100A.name)
    assert f"kind {KINDS[name]}" in said and "dequantised" not in said
    assert "tensor memory: scales in" in said
    source = ptx_of(case.func, SM100A.name)
    vector = 64 // FORMATS[name].block if FORMATS[name].packed == 2 else 1
    assert f"kind::{KINDS[name]}.block_scale.scale_vec::{vector}X" in source
    assert "tcgen05.cp.cta_group::1.32x128b.warpx4" in source


@pytest.mark.parametrize(
    ("tile", "hints", "reason"),
    [
        ((64, 64, 128), {}, "64 rows and scales; an instruction with scales has 128 for each of 1"),
        ((128, 64, 128), {"consumers": 2}, "128 rows and scales; .* has 128 for each of 2"),
        ((128, 64, 32), {}, "K = 32; an instruction of nvfp4 has 64, so give the tiles a multiple"),
        ((128, 12, 64), {}, "N = 12 is not legal"),
    ],
)
def test_blackwell_dequantises_where_no_instruction_fits(tile, hints, reason):
    func = hinted(scaled("nvfp4", 128, 64, 256, tile).func, **hints)
    if tile[1] % 8 == 0:
        told = rf"by tensor memory, for {SCALED} .*{reason}.*\.$"
        with pytest.warns(LoweringWarning, match=told):
            lower(func, SM100A.name)
        said = decisions(func, SM100A.name)
        assert "dequantised into A_s_wide, bfloat16" in said
    else:
        with pytest.raises(Decline) as caught:
            lower(func, SM100A.name)
        said = str(caught.value)
    assert re.search(f"{SCALED}.*{reason}", said), said


def test_no_pairs_of_ctas_multiply_by_scales():
    func = hinted(scaled("mxfp8", 256, 128, 256, (128, 128, 128), "blocks").func, cluster=(2, 1))
    said = decisions(func, SM100A.name)
    assert "pairs: none, for the MMA into total has scales, which lie in the tensor memory" in said


def test_hopper_dequantises():
    said = decisions(scaled("mxfp8", 128, 64, 256, order="blocks").func, SM90A.name)
    assert "operand A_s: mxfp8, dequantised into A_s_wide, bfloat16" in said
    assert "operand B_s_wide: 2 copies, which iterations over step alternate" in said
    assert "a warp loads" in said or "loading warp" in said


def test_tensor_memory_has_room_for_scales_beside_accumulators():
    """Two accumulators of 256 columns leave none: the result then has one place."""
    case = scaled("mxfp8", 128, 256, 128, (128, 256, 128), "blocks")
    said = decisions(case.func, SM100A.name)
    assert "tensor memory: total in 1 x 1 x 256 columns" in said
    assert "tensor memory: scales in 12 columns" in said


def test_scaled_programs_have_the_price_of_dequantised_operands():
    work = price(scaled("mxfp8", 4096, 4096, 4096, (128, 128, 128), "blocks").func)
    assert [mma.kind.a for mma in work.mmas] == ["bfloat16"]
    assert work.nest != price(tile_programs.gemm(4096, 4096, 4096, (128, 128, 128)).func).nest


def test_effects_have_the_scales():
    program = read(scaled().func)
    (mma,) = (one for one in walk(program.block) if isinstance(one, Mma))
    assert [region.source.name for region in mma.scales] == ["SA_s", "SB_s"]
    assert {tile.name for tile in mma.effects.reads} == {"A_s", "B_s", "SA_s", "SB_s", "total"}


@pytest.mark.parametrize("arch", ARCHS)
def test_mmas_share_what_is_made_of_their_common_operand(rng, arch):
    """Other tiles of the same shape and dtype are not taken for it."""

    @T.prim_func
    def products(
        A: T.Buffer((128, 64), "uint8"), SA: T.Buffer((128, 4), "uint8"),
        B: T.Buffer((2, 32, 64), "uint8"), SB: T.Buffer((2, 32, 4), "uint8"),
        C: T.Buffer((2, 128, 32), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s, SA_s = wl.load(A, (0, 0), A.shape), wl.load(SA, (0, 0), SA.shape)
        B_s, SB_s = wl.load(B[0, 0:32, 0:64]), wl.load(SB[0, 0:32, 0:4])
        B2_s, SB2_s = wl.load(B[1, 0:32, 0:64]), wl.load(SB[1, 0:32, 0:4])
        first = wl.gemm(A_s, B_s, scale_a=SA_s, scale_b=SB_s)
        second = wl.gemm(A_s, B2_s, scale_a=SA_s, scale_b=SB2_s)
        Tx.cta.copy(C[0, 0:128, 0:32], first)
        Tx.cta.copy(C[1, 0:128, 0:32], second)

    said = decisions(products, arch)
    made = "by threads into" if arch == SM100A.name else "dequantised into"
    assert len({line for line in said.splitlines() if made in line}) == 3
    row = FORMATS["mxfp4"]
    a, b = row.operand(rng, 128, 128), row.operand(rng, 64, 128)
    sa, sb = row.scales(rng, 128, 128), row.scales(rng, 64, 128)
    c = np.full((2, 128, 32), np.nan, np.float32)
    shaped = [a, sa, b.reshape(2, 32, 64), sb.reshape(2, 32, 4), c]
    found = run(lower(products, arch), shaped, arch)[4]
    expected = row.values(a, sa) @ row.values(b, sb).reshape(2, 32, 128).transpose(0, 2, 1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=4e-6 * np.abs(expected).max())


# --- assembled ---


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.some(2)
def test_kernels_of_usual_tiles_assemble_without_spills(arch, name):
    case = scaled(name, 4096, 4096, 4096, (128, 128, 128), "blocks", out_dtype="bfloat16")
    assert local_memory(case.func, arch) == (0, 0, 0)


# --- random programs ---


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.some(6)
def test_random_programs(seed, arch):
    rng = np.random.default_rng(seed)
    check(tile_programs.random_program(rng, scaled=True), rng, arch)


def test_random_programs_are_diverse():
    scripts = [
        tile_programs.random_program(np.random.default_rng(seed), scaled=True).func.script()
        for seed in range(30)
    ]
    for feature in ("32, 16)", "e5m2", '"float8_e4m3fn"', "B2_s", "steps: T.int32", '("m"',
                    "T.cta.max", "R_s"):  # fmt: skip
        found = sum(feature in script for script in scripts)
        assert 0 < found < len(scripts), f"{feature!r} is in {found} of {len(scripts)} programs"
