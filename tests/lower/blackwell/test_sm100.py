"""Tile programs on Blackwell: right and free of races on the emulator, and assembled unspilled."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.control_programs import CONTROL
from tests.shared.lowered_programs import check, hinted, local_memory
from tests.shared.sampling import sampled
from tests.shared.tensor_memory_order import assert_lifetime_is_fenced
from tests.shared.tile_programs.case import poisoned, precision, random_values, wide
from tests.shared.tile_programs.sparse import few_bits
from warploom import language as wl
from warploom import programs
from warploom.errors import Decline, TileProgramError
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.target import SM100A, cuda_target

ARCH = SM100A.name
#: Name -> the program for a number of stages: tiles of 64, 128 and 256 rows.
PROGRAMS = {
    **{
        f"gemm {layout}": partial(
            tile_programs.gemm, 256, 200, 192, (128, 64, 64), layout=layout, out_dtype="float16"
        )
        for layout in ("NT", "NN", "TN", "TT")
    },
    "gemm 64 rows": partial(tile_programs.gemm, 136, 72, 96, (64, 24, 32), layout="TT"),
    "gemm 256 rows": partial(
        tile_programs.gemm, 300, 136, 128, (256, 64, 64), out_dtype="bfloat16", symbolic=True
    ),
    "gemm 24 columns": partial(tile_programs.gemm, 136, 72, 96, (64, 24, 32), layout="NN"),
    "gemm 8 columns": partial(tile_programs.gemm, 128, 72, 96, (64, 8, 32), layout="TN"),
    "gemm 256 columns": partial(tile_programs.gemm, 128, 256, 64, (128, 256, 32), "bfloat16"),
    "gemm float8": partial(
        tile_programs.gemm, 256, 256, 256, (128, 128, 128), "float8_e4m3fn", "bfloat16"
    ),
    "gemm int8": partial(tile_programs.gemm, 256, 128, 256, (128, 64, 128), "int8"),
    "gemm uint8": partial(tile_programs.gemm, 100, 96, 128, (64, 48, 64), "uint8"),
    "gemm ragged": partial(
        tile_programs.gemm, 200, 136, 72, (128, 128, 64), symbolic=True, out_dtype="float16"
    ),
    **{
        f"epilogue {kind}, {rows} rows": partial(tile_programs.epilogue, kind, tile=(rows, 64, 64))
        for kind, rows in zip(tile_programs.EPILOGUES, itertools.cycle((128, 64)), strict=False)
    },
    "two outputs": lambda stages: tile_programs.two_outputs(),
    "two outputs, 128 rows": lambda stages: tile_programs.two_outputs(tile=(128, 128, 64)),
    "row sums": lambda stages: tile_programs.row_sums(),
    "row sums, 128 rows": lambda stages: tile_programs.row_sums(tile=(128, 64, 32)),
    "dequantised int8": partial(tile_programs.dequantised, 8, tile=(128, 64, 64)),
    "dequantised int4": partial(tile_programs.dequantised, 4, tile=(64, 64, 64)),
    "dequantised fragment": partial(
        tile_programs.dequantised, 4, tile=(16, 128, 64), through="fragment"
    ),
    "block scaled": tile_programs.block_scaled,
    "block scaled, 128 rows": partial(tile_programs.block_scaled, 200, tile=(128, 128, 128)),
    "grouped": tile_programs.grouped,
    "grouped, 128 rows": partial(tile_programs.grouped, (200, 0, 128, 1), tile=(128, 64, 32)),
    "swiglu": tile_programs.swiglu,
    "swiglu, 128 rows": partial(tile_programs.swiglu, 200, 136, tile=(128, 64, 32)),
    "swiglu side by side": partial(tile_programs.side_by_side, tile=(64, 24, 32)),
    "attention, 128 rows": partial(tile_programs.attention, 200, tile=(128, 64)),
    "attention": partial(tile_programs.attention, 100),
    "attention causal": partial(tile_programs.attention, 200, 128, tile=(128, 64), causal=True),
    "attention, 256 rows": partial(tile_programs.attention, 300, tile=(256, 64), causal=True),
}


def of_package(case: tile_programs.Case, func: tvm.tirx.PrimFunc) -> tile_programs.Case:
    """A case for a program of the package that computes the same."""
    return dataclasses.replace(case, func=func)


PROGRAMS |= {
    "package attention": lambda stages: of_package(
        tile_programs.attention(200, 64, tile=(128, 64), causal=True),
        programs.attention(
            200, 64, 2, 1, causal=True, tile=(128, 64), stages=stages, arch=ARCH
        ),
    ),
    "package gemm quantised": partial(tile_programs.packed, tile=(16, 128, 128)),
}
STAGES = (1, 2, 3)
#: CTAs of a grid that walk over several tiles each; None is a grid of all SMs.
GRIDS = (None, 1, 3)
CONFIGURATIONS = list(itertools.product(PROGRAMS, STAGES, GRIDS))
#: Random programs in every run, and where asked for.
SAMPLE, ALL = 6, 2000


def check_program(rng, name: str, stages: int) -> None:
    check(PROGRAMS[name](stages=stages), rng, arch=ARCH)


@pytest.mark.parametrize("number, name", sampled(enumerate(PROGRAMS), 2))
@pytest.mark.some(5)
def test_programs_are_right_and_free_of_races(rng, grid_of, number, name):
    grid_of(GRIDS[(number + 1) % len(GRIDS)])
    check_program(rng, name, STAGES[number // len(GRIDS) % len(STAGES)])


@pytest.mark.slow
@pytest.mark.parametrize("name, stages, ctas", CONFIGURATIONS)
@pytest.mark.some(2)
def test_programs_in_every_configuration(rng, grid_of, name, stages, ctas):
    grid_of(ctas)
    check_program(rng, name, stages)


@pytest.mark.parametrize("trips", [1, 2, 3, 4, 7])
@pytest.mark.some(2)
def test_trip_counts_around_the_number_of_stages(rng, grid_of, trips):
    """Phases of rings and of accumulators carry over from tile to tile."""
    grid_of(2)
    case = tile_programs.gemm(300, 72, 32 * trips, (64, 24, 32), stages=3, out_dtype="float16")
    check(case, rng, arch=ARCH)


@pytest.mark.parametrize("warpgroups", [1, 2])
def test_warpgroups_share_128_rows_as_the_hint_says(rng, warpgroups):
    case = tile_programs.gemm(256, 64, 64, (128, 64, 32), stages=2)
    check(case, rng, arch=ARCH, consumers=warpgroups)


@pytest.mark.parametrize("cluster", [None, (2, 1), (1, 2)])
@pytest.mark.parametrize("name", ["gemm 256 rows", "attention, 128 rows"])
@pytest.mark.some(3)
def test_tensor_memory_is_fenced_at_both_ends_of_its_life(name, cluster):
    program = hinted(PROGRAMS[name](stages=2).func, cluster=cluster)
    assert_lifetime_is_fenced(lower(program, ARCH).script())


def check_random(seed: int) -> None:
    rng = np.random.default_rng(seed)
    check(tile_programs.random_program(rng), rng, arch=ARCH)


@pytest.mark.parametrize("seed", range(SAMPLE))
@pytest.mark.some(3)
def test_random_programs(grid_of, seed):
    grid_of(GRIDS[seed % len(GRIDS)])
    check_random(seed)


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, ALL, ALL // 20))
def test_two_thousand_random_programs(grid_of, start):
    for seed in range(20_000 + start, 20_000 + start + ALL // 20):
        grid_of(1 + seed % 4)
        check_random(seed)


# -- what ptxas makes of them ------------------------------------------------------------------


SPILL_SAMPLE = ("gemm 256 rows", "gemm 256 columns", "block scaled, 128 rows", "attention causal")


@pytest.mark.parametrize(
    "name",
    [n if n in SPILL_SAMPLE else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS],
)
@pytest.mark.some(2)
def test_nothing_spills(machine_code, name):
    assert local_memory(PROGRAMS[name](stages=2).func, ARCH) == (0, 0, 0)


# -- decisions and refusals --------------------------------------------------------------------


def decisions(func: tvm.tirx.PrimFunc, name: str) -> list[str]:
    (step,) = (step for step in lower_trace(func, ARCH) if step.name == name)
    return list(step.decisions)


def test_accumulators_have_two_sets_where_nothing_flows_back():
    found = decisions(tile_programs.attention(tile=(128, 64)).func, "SpecializeWarps")
    assert "tensor memory: S in 2 x 1 x 64 columns" in found
    assert "tensor memory: acc in 1 x 1 x 64 columns" in found
    assert "tensor memory: 256 columns allocated" in found
    assert "tile barriers: P from the threads to the tensor core and back" in found


def test_an_accumulator_has_one_set_where_two_do_not_fit():
    narrow = tile_programs.swiglu(tile=(128, 128, 32)).func
    wide = tile_programs.swiglu(tile=(128, 256, 32), stages=2).func
    assert "tensor memory: up in 2 x 1 x 128 columns" in decisions(narrow, "SpecializeWarps")
    assert "tensor memory: up in 1 x 1 x 256 columns" in decisions(wide, "SpecializeWarps")


def test_an_accumulator_is_released_before_its_tile_is_stored():
    func = tile_programs.gemm(128, 128, 64, (128, 128, 64), out_dtype="float16").func
    lines = lower(func, ARCH).script().splitlines()
    given_back = max(i for i, line in enumerate(lines) if "acc_free" in line and "arrive" in line)
    stores = [i for i, line in enumerate(lines) if "copy_async(C[" in line]
    assert len(stores) == 2 and given_back < stores[1]


def test_the_architecture_is_that_of_the_target():
    func = tile_programs.gemm().func
    with cuda_target(ARCH):
        assert "tcgen05" in lower(func).script()
    assert "tcgen05" not in lower(func).script()
    assert "tcgen05" in lower(func.with_attr("target", cuda_target(ARCH))).script()


def product(rows: int, columns: int, dtype: str = "float32") -> tvm.tirx.PrimFunc:
    """An MMA of one step into an accumulator of a shape."""

    @T.prim_func
    def func(A: T.Buffer((rows, 64), "float16"), B: T.Buffer((columns, 64), "float16"),
             C: T.Buffer((rows, columns), dtype)):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((rows, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((columns, 64), "float16", scope="shared")
        acc = T.alloc_buffer((rows, columns), dtype, scope="accumulator")
        for k in wl.pipelined(1, 1):
            Tx.cta.copy_async(A_s, A[0:rows, k * 64 : k * 64 + 64])
            Tx.cta.copy_async(B_s, B[0:columns, k * 64 : k * 64 + 64])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.copy(C[0:rows, 0:columns], acc)

    return func


@pytest.mark.parametrize(
    "program, sentence",
    [
        (lambda: product(192, 64), "acc.* 192; tensor memory holds 64 or 128 for each of at most"),
        (lambda: product(128, 64, "float16"), "float16; tensor memory is read in 32-bit"),
        (lambda: tile_programs.swiglu(tile=(256, 256, 32), stages=1).func, "has 512"),
        (lambda: product(128, 8), "N = 8 is not legal for kind f16 with M = 128"),
    ],
)
def test_what_cannot_be_lowered_is_declined_with_the_reason(program, sentence):
    with pytest.raises(Decline, match=sentence):
        lower(program(), ARCH)


def moved(first: int) -> tvm.tirx.PrimFunc:
    """An MMA whose columns from ``first`` on take the place of the first 64."""

    @T.prim_func
    def func(A: T.Buffer((128, 64), "float16"), B: T.Buffer((128, 64), "float16"),
             C: T.Buffer((128, 128), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((128, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((128, 64), "float16", scope="shared")
        acc = T.alloc_buffer((128, 128), "float32", scope="accumulator")
        for k in wl.pipelined(1, 1):
            Tx.cta.copy_async(A_s, A[0:128, k * 64 : k * 64 + 64])
            Tx.cta.copy_async(B_s, B[0:128, k * 64 : k * 64 + 64])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        for y, x in T.grid(128, 64):
            acc[y, x] = acc[y, x + first] - acc[y, x]
        Tx.cta.copy(C, acc)

    return func


def test_parts_of_an_accumulator_may_be_changed_that_are_apart(rng):
    def arguments(rng):
        return [*(random_values(rng, (128, 64), "float16") for _ in range(2)),
                poisoned((128, 128), "float32")]  # fmt: skip

    def expected(args):
        left, right = np.split(wide(args[0]) @ wide(args[1]).T, 2, 1)
        return {2: np.concatenate([right - left, right], 1)}

    check(tile_programs.Case(moved(64), arguments, expected, precision("float32")), rng, arch=ARCH)
    with pytest.raises(TileProgramError, match=r"reads acc\[y, x \+ 32\], an element that"):
        lower(moved(32), ARCH)


@pytest.mark.parametrize("read", [False, True])
def test_elements_that_a_branch_does_not_store_keep_their_values(read, rng):
    """Stores under a condition change those elements of an accumulator, and no other."""

    @T.prim_func
    def program(A: T.Buffer((128, 64), "float16"), B: T.Buffer((64, 64), "float16"),
                V: T.Buffer((64,), "float32"), C: T.Buffer((128, 64), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((128, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        acc = T.alloc_buffer((128, 64), "float32", scope="accumulator")
        for k in wl.pipelined(1, 1):
            Tx.cta.copy_async(A_s, A[0:128, k * 64 : k * 64 + 64])
            Tx.cta.copy_async(B_s, B[0:64, k * 64 : k * 64 + 64])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        for y, x in T.grid(128, 64):
            if (y + x) % 3 == 0:
                acc[y, x] = (V[x] + acc[y, x]) if read else V[x]
        Tx.cta.copy(C, acc)

    def arguments(rng):
        shapes = [((128, 64), "float16"), ((64, 64), "float16"), ((64,), "float32")]
        return [*(random_values(rng, *one) for one in shapes), poisoned((128, 64), "float32")]

    def expected(args):
        result, values = wide(args[0]) @ wide(args[1]).T, wide(args[2])
        y, x = np.indices(result.shape)
        return {3: np.where((y + x) % 3 == 0, values + read * result, result)}

    check(tile_programs.Case(program, arguments, expected, precision("float32")), rng, arch=ARCH)


@T.prim_func
def views(A: T.Buffer((128, 64), "float16"), B: T.Buffer((64, 64), "float16"),
          V: T.Buffer((64,), "float32"), C: T.Buffer((128, 64), "float32")):  # fmt: skip
    """An MMA whose threads read and write global memory in other shapes."""
    T.device_entry()
    T.cta_id([1])
    A_s = T.alloc_buffer((128, 64), "float16", scope="shared")
    B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
    acc = T.alloc_buffer((128, 64), "float32", scope="accumulator")
    V_view = T.decl_buffer((4, 16), "float32", data=V.data)
    C_view = T.decl_buffer((64, 2, 64), "float32", data=C.data)
    for k in wl.pipelined(1, 1):
        Tx.cta.copy_async(A_s, A[0:128, k * 64 : k * 64 + 64])
        Tx.cta.copy_async(B_s, B[0:64, k * 64 : k * 64 + 64])
        Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
    for y, x in T.grid(128, 64):
        C_view[y // 2, y % 2, x] = acc[y, x] + V_view[x // 16, x % 16]


@pytest.mark.parametrize("arch", ["sm_90a", ARCH])
def test_threads_use_views_that_the_program_declares(arch, rng):
    def arguments(rng):
        shapes = [((128, 64), "float16"), ((64, 64), "float16"), ((64,), "float32")]
        return [*(random_values(rng, *one) for one in shapes), poisoned((128, 64), "float32")]

    def expected(args):
        return {3: wide(args[0]) @ wide(args[1]).T + wide(args[2])}

    check(tile_programs.Case(views, arguments, expected, precision("float32")), rng, arch=arch)


def test_an_architecture_without_lowering_is_declined():
    with pytest.raises(Decline, match="no lowering of tile programs for sm_80; compile for sm_90a"):
        lower(tile_programs.gemm().func, "sm_80")


def test_a_hint_that_blackwell_does_not_follow_is_in_the_record():
    func = hinted(tile_programs.gemm().func, specialise=False)
    assert any("specialise: not followed" in line for line in decisions(func, "SpecializeWarps"))


#: Programs that have no lowering, and why.
DECLINED = {"from_tile": "from the tile", "in_place": "Threads change the tile A_s"}


@pytest.mark.parametrize("name", [name for name in CONTROL if name not in DECLINED])
@pytest.mark.some(3)
def test_control_flow(name, rng):
    check(CONTROL[name](3), rng, arch=ARCH)


@pytest.mark.parametrize("name", DECLINED)
def test_control_flow_that_is_declined(name):
    with pytest.raises(Decline, match=DECLINED[name]):
        lower(CONTROL[name]().func, ARCH)


@pytest.mark.parametrize(
    "size, tile, hints",
    [
        ((100, 72, 100), (64, 72, 32), {}),
        ((130, 64, 96), (128, 64, 32), {"stages": 2}),
        ((256, 64, 64), (128, 64, 32), {"cluster": (2, 1)}),
        ((64, 32, 40), (64, 32, 8), {}),
    ],
)
@pytest.mark.some(2)
def test_float32_operands_are_multiplied_as_tf32(size, tile, hints, rng):
    case = tile_programs.gemm(*size, tile, "float32")

    def arguments(rng):
        return [few_bits(one) for one in case.arguments(rng)]

    check(dataclasses.replace(case, arguments=arguments), rng, arch=ARCH, **hints)


@pytest.mark.parametrize("first", [0, 16, 48, 64, 80])
@pytest.mark.some(2)
def test_parts_of_tiles_begin_anywhere_in_an_atom(first, rng):
    last = first + 64

    @T.prim_func
    def program(A: T.Buffer((128, 192), "float16"), B: T.Buffer((32, 192), "float16"),
                C: T.Buffer((128, 32), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s, B_s = wl.load(A[0:128, 0:192]), wl.load(B[0:32, 0:192])
        acc = wl.gemm(A_s[0:128, first:last], B_s[0:32, first:last])
        wl.store(C, (0, 0), acc)

    def expected(arguments):
        a, b = (one[:, first:last].astype(np.float64) for one in arguments[:2])
        return {2: a @ b.T}

    case = tile_programs.gemm(128, 32, 192, (128, 32, 64))
    check(dataclasses.replace(case, func=program, expected=expected), rng, arch=ARCH)
