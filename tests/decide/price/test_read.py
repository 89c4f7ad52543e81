"""Any tile program has a price, or a reason why it has none."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.lower.passes.test_squeeze_vectors import scaled
from tests.shared import gemm_functions, tile_programs
from tests.shared.tile_programs import orchestrated
from tests.shared.tutorial_names import tutorial_names
from warploom import cuda_target
from warploom import language as wl
from warploom.decide.config import Config
from warploom.decide.price.model import price
from warploom.decide.price.program import price_program
from warploom.decide.price.read import read
from warploom.errors import Decline
from warploom.gemm import recognise
from warploom.gemm.generate import tile_program
from warploom.lower.lowerings import lower
from warploom.programs import (
    attention,
    conv2d,
    gemm,
    gemm_block_scaled,
    gemm_grouped,
    gemm_grouped_block_scaled,
    gemm_quantised,
)

#: Time of a tile of 128 queries and 128 keys in that of one of 192 and 80, three warpgroups, by
#: tokens: 32 heads of 128 elements (one H200, 2026-11-24).
_TALL_TO_WIDE = {
    2048: 0.945 / 0.873, 3072: 0.947 / 0.978, 4096: 0.953 / 0.877, 6144: 0.955 / 1.003,
    8192: 0.985 / 1.024, 12288: 0.938 / 1.017,
}  # fmt: skip
#: Microseconds of attention by heads, tokens and elements of a head: tiles of 128, at 1980 MHz
#: (one H200, 2026-11-21 and 2026-11-23).
_ATTENTION = {
    (16, 4096, 64): 167.9, (16, 16384, 64): 2394.3, (16, 4096, 128): 218.8,
    (16, 8192, 128): 842.7, (16, 16384, 128): 3302.1,
}  # fmt: skip


@pytest.mark.parametrize("tokens", _TALL_TO_WIDE)
def test_tiles_of_attention_are_ranked_as_measured(tokens: int) -> None:
    wide, tall = (
        price_program(attention(tokens, 128, 32, tile=tile)).total
        for tile in ((128, 128), (192, 80))
    )
    print(f"{tall / wide:.3f}, measured {_TALL_TO_WIDE[tokens]:.3f}")
    assert (tall > wide) == (_TALL_TO_WIDE[tokens] > 1)
    assert tall / wide == pytest.approx(_TALL_TO_WIDE[tokens], rel=0.06)


@pytest.mark.parametrize("case", _ATTENTION, ids=str)
def test_attention_takes_as_long_as_measured(case: tuple[int, int, int]) -> None:
    heads, tokens, elements = case
    found = price_program(attention(tokens, elements, heads, tile=(128, 128))).total
    print(f"{found:.1f} us, measured {_ATTENTION[case]}")
    assert found == pytest.approx(_ATTENTION[case], rel=0.1)


def test_steps_of_causal_attention_are_counted() -> None:
    tokens, tile = 2048, 128
    blocks = tokens // tile
    causal = read(attention(tokens, 128, 4, causal=True, tile=(tile, tile)))
    assert read(attention(tokens, 128, 4, tile=(tile, tile))).steps == blocks
    assert causal.steps == pytest.approx(sum(range(1, blocks + 1)) / blocks, rel=0.07)


_PROGRAMS = {
    "gemm": lambda: gemm(Config(), 4096, 4096, 4096),
    "gemm of any rows": lambda: gemm(Config(), 4096, 4096),
    "quantised": lambda: gemm_quantised(4096, 4096, 16),
    "grouped": lambda: gemm_grouped(8, 4096, 2048, 4096),
    "block scales": lambda: gemm_block_scaled(4096, 7168, 4096),
    "grouped, block scales": lambda: gemm_grouped_block_scaled(8, 4096, 2048),
    "convolution": lambda: conv2d(8, 56, 56, 64, 64, (3, 3)),
    "attention": lambda: attention(4096, 128, 16),
    "attention of any tokens": lambda: attention(None, 64, 16, tokens_first=True),
}


@pytest.mark.parametrize("name", _PROGRAMS)
def test_programs_of_the_package_have_a_price(name: str) -> None:
    work = read(_PROGRAMS[name]())
    print(work)
    assert work.steps > 1 and work.mmas and work.epilogue
    assert all(load.rows > 0 and load.row_bytes > 0 and load.total > 0 for load in work.loads)
    assert 1 < price(work).total < 1e5


def test_programs_of_tutorials_have_a_price() -> None:
    make = tutorial_names("ladder_hopper/v11_tile_program.py")["tile_program"]
    found = price_program(make(4096, 4096, 4096)).total
    assert found == pytest.approx(4096**3 / (2048 * 132 * 1980), rel=0.4)


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_have_a_price(seed: int) -> None:
    case = tile_programs.random_program(np.random.default_rng(seed))
    if "while" in case.func.script():
        with pytest.raises(Decline, match="A while loop has tile statements"):
            read(case.func)
    else:
        assert price(read(case.func)).total > 0


def test_nested_and_other_programs_have_a_price() -> None:
    for make in (tile_programs.block_scaled, tile_programs.swiglu, tile_programs.row_sums):
        assert price(read(make().func)).total > 0


def test_mmas_with_a_sparse_operand_take_less_time() -> None:
    """Half of the multiplications; B comes from shared memory as often as before."""
    tile, tile_of_dense = (128, 256, 128), (128, 256, 64)
    sparse = read(tile_programs.sparse_gemm(4096, 4096, 4096, tile).func)
    dense = read(tile_programs.gemm(4096, 4096, 4096, tile_of_dense).func)
    assert [mma.depth for mma in sparse.mmas] == [128] and sparse.mmas[0].kind.sparse
    assert 2 * sparse.steps == dense.steps
    assert 0.5 < price(sparse).total / price(dense).total < 0.9


def test_loads_whose_barriers_the_author_handles_count() -> None:
    by_hand = read(orchestrated.ring_by_hand().func)
    assert by_hand.steps == 5 and not by_hand.persistent
    assert [load.times for load in by_hand.loads] == [0.6, 0.4, 0.4]
    resident = read(orchestrated.resident_operand().func)
    assert resident.steps == 9 and [load.times for load in resident.prologue] == [3.0]
    assert [tile.times for tile in resident.epilogue] == [3.0]


def test_tiles_of_one_row_are_vectors() -> None:
    work = read(scaled().func)
    assert work.consumers == 1 and work.epilogue


def _copy(rows: int, columns: int, after: bool = False) -> object:
    @T.prim_func
    def copied(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (rows, columns), "float16", align=16)
        B = T.match_buffer(b, (rows, columns), "float16", align=16)
        T.device_entry()
        i = T.cta_id([rows // 64])
        A_s = T.alloc_buffer((64, columns), "float16", scope="shared")
        Tx.cta.copy_async(A_s, A[i * 64 : i * 64 + 64, 0:columns])
        Tx.cta.copy(B[i * 64 : i * 64 + 64, 0:columns], A_s)

    return copied


def test_rows_by_index_are_the_rows_of_a_tile() -> None:
    """Gathered rows are requested one by one, as those of a box are; scattered ones are stored."""
    case = tile_programs.rows_by_index("a", scatters=True, tile=(64, 64, 64), steps=3)
    work = read(case.func)
    gathered, other = sorted(work.loads, key=lambda load: load.tma)
    assert (gathered.rows, gathered.row_bytes, gathered.tma) == (64, 128.0, False)
    assert gathered.along[0] and (other.rows, other.row_bytes, other.tma) == (64, 128.0, True)
    assert gathered.tile_bytes == 3 * 64 * 128
    (stored,) = work.epilogue
    assert (stored.rows, stored.columns) == (64, 64)
    # As the loop of copies that the statement stands for.
    alike = tile_programs.rows_by_index(
        "a", scatters=True, tile=(64, 64, 64), steps=3, primitive=True
    )
    assert read(alike.func) == work


def test_a_program_without_a_loop_is_priced_by_its_bytes() -> None:
    work = read(_copy(8192, 256))
    assert [load.total for load in work.loads] == [8192 * 256 * 2]
    assert [tile.elements for tile in work.epilogue] == [8192 * 256]
    less, more = (price_program(_copy(rows, 1024)).total for rows in (65536, 131072))
    roofline = 4 * 65536 * 1024 / 4.8e6
    assert roofline < less < 2 * roofline and 1.7 < more / less < 2.1


def test_sizes_of_the_launch_can_be_given() -> None:
    program = tile_program(
        recognise(gemm_functions.matmul(None, 1024, 1024).func), Config(128, 128)
    )
    few, many = (price_program(program, sizes={"m": rows}).total for rows in (128, 16384))
    assert many > 5 * few
    assert price_program(program).total == price_program(program, sizes={"m": 4096}).total


def test_targets_and_hints_matter() -> None:
    program = _PROGRAMS["gemm"]()
    times = [price_program(program, name).total for name in ("h200", "h100-pcie", "h20", "h100-1g")]
    assert times == sorted(times) and times[0] < times[-1]
    assert price_program(program, cuda_target("h20")).total == times[2]
    shallow = replace(Config(128, 128), stages=2)
    gemm_of = recognise(gemm_functions.matmul(4096, 4096, 4096).func)
    assert (
        price_program(tile_program(gemm_of, shallow)).total
        > price_program(tile_program(gemm_of, Config(128, 128))).total
    )


def test_reasons_name_what_has_no_price() -> None:
    with pytest.raises(Decline, match="no measured constants of sm_100a"):
        price_program(_PROGRAMS["gemm"](), "b200")
    by_hand = tutorial_names("14_first_kernel.py")["matmul"]
    with pytest.raises(Decline, match="defines ids of threads"):
        price_program(by_hand)
    with pytest.raises(Decline, match="defines ids of threads"):
        price_program(lower(_PROGRAMS["gemm"]()))


def test_a_loop_that_memory_bounds_has_no_price() -> None:
    @T.prim_func
    def ragged(n: T.handle, a: T.handle, b: T.handle):
        Count = T.match_buffer(n, (4,), "int32")
        A = T.match_buffer(a, (256, 64), "float16", align=16)
        B = T.match_buffer(b, (256, 64), "float16", align=16)
        T.device_entry()
        i = T.cta_id([4])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        for _step in wl.pipelined(Count[i], 2):
            Tx.cta.copy_async(A_s, A[i * 64 : i * 64 + 64, 0:64])
            Tx.cta.copy(B[i * 64 : i * 64 + 64, 0:64], A_s)

    with pytest.raises(Decline, match=r"loop over _step has .*Count"):
        read(ragged)


def test_reading_is_the_same_each_time() -> None:
    program = _PROGRAMS["attention"]()
    assert read(program) == read(program)
    assert math.isfinite(price(read(program)).total)
