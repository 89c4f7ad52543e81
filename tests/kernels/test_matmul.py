"""The generated matmuls: results, names, refusals, and the log of their barriers."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import event, given
from hypothesis import strategies as st

from tests.kernels.matmul_cases import FULL, QUICK, ROLES, SIMPLE, case, lower
from warploom.compiler.report import compile_report
from warploom.errors import IllegalCombination
from warploom.kernels import matmul_multistage, matmul_warp_specialised
from warploom.kernels.barrier_log import BarrierLog, RoleLog
from warploom.kernels.matmul import matmul_spec
from warploom.kernels.matmul_spec import LAYOUTS, OVERHEAD_REGISTERS, RESULTS, MatmulSpec
from warploom.target import WGMMA_KINDS, cuda_target
from warploom.target.tensor_map import L2Promotion, TensorMap

#: Kernels of one compilation.
BATCH = 8


@pytest.fixture(scope="module")
def quick():
    return lower(QUICK)


@pytest.mark.gpu
@pytest.mark.parametrize("index", range(len(QUICK)), ids=[str(one) for one in QUICK])
@pytest.mark.some(4)
def test_result(quick, index, rng):
    QUICK[index].check(quick[f"matmul_{index}"], rng)


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize("first", range(0, len(FULL), BATCH))
def test_all_results(first, rng):
    cases = FULL[first : first + BATCH]
    module = lower(cases)
    for index, one in enumerate(cases):
        one.check(module[f"matmul_{index}"], rng)


def test_names_say_what_was_generated():
    func = matmul_warp_specialised(64, 64, 64, tile=(128, 256, 64), consumers=2, stages=4)
    assert func.attrs["global_symbol"] == (
        "sm90_matmul_warp_specialised_m64_n64_k64_tile128x256x64_stages4_consumers2"
    )
    func = matmul_multistage(
        None, 64, 64, "int8", b_dtype="uint8", tile=(64, 48, 32), stages=1, ctas_per_sm=2
    )
    assert func.attrs["global_symbol"] == (
        "sm90_matmul_multistage_m_any_n64_k64_specialised0_dtype_s8_bdtype_u8_accumulator_s32"
        "_outdtype_s32_tile64x48x32_stages1_ctaspersm2"
    )
    assert "tensormap_l2_promotion=2" in func.script()
    func = matmul_multistage(None, 64, 64, l2_promotion=L2Promotion.B256)
    assert func.script().count("tensormap_l2_promotion=3") == 4  # A and B, before and in the loop
    assert len({str(one) for one in FULL}) == len(set(FULL))


def test_registers_follow_the_accumulators():
    """Where the sums need more than a launch gives, the producer pays, and nothing is spilled."""
    large = matmul_spec(ROLES, tile=(128, 256, 64), consumers=2, stages=4)
    assert large.register_split is None
    three = matmul_spec(ROLES, tile=(192, 192, 32), consumers=3, stages=2)
    assert three.launch_registers == 128 and three.needed_registers == 136
    # What the consumers leave of 4 times 128 is the producer's.
    assert three.register_split == (512 - 3 * 152, 152)


def test_large_tiles_do_not_spill():
    choices = {"tile": (128, 256, 64), "consumers": 2, "stages": 4}
    kernels = {
        "roles": matmul_warp_specialised(4096, 4096, 4096, registers=(40, 232), **choices),
        "simple": matmul_multistage(4096, 4096, 4096, **choices),
    }
    module = tvm.IRModule({k: f.with_attr("global_symbol", k) for k, f in kernels.items()})
    report = compile_report(tvm.compile(module, cuda_target("h200"), tir_pipeline="tirx"))
    assert not report.problems, "\n".join(map(str, report.problems))
    assert len(report.kernels) == 2
    for kernel in report.kernels:
        assert kernel.spill_store_bytes == kernel.spill_load_bytes == 0
        assert kernel.sass["HGMMA"] and kernel.sass["HGMMA"] % 4 == 0  # of K of one stage


@given(st.data())
def test_a_spec_that_exists_fits_the_hardware(data):
    """Anything else is refused in a sentence, never in another way."""
    draw = data.draw
    types = draw(st.sampled_from(WGMMA_KINDS))
    consumers, specialised = draw(st.sampled_from((1, 2, 3))), draw(st.booleans())
    tile = (
        64 * draw(st.sampled_from((1, 2))) * consumers + draw(st.sampled_from((0, 0, 0, 8))),
        draw(st.integers(0, 33)) * 8,
        draw(st.sampled_from((1, 2, 4))) * types.k,
    )
    layouts = sorted(LAYOUTS) if types.transpose else ["NT", "NT", "NT", "TN"]
    budgets = st.tuples(st.just(40), st.integers(10, 32).map(lambda n: 8 * n))
    try:
        spec = MatmulSpec(
            specialised, types.a, types.b, types.d, draw(st.sampled_from(RESULTS[types.d])),
            draw(st.sampled_from(layouts)), tile, draw(st.integers(1, 6)), consumers,
            draw(budgets) if specialised and draw(st.booleans()) else None,
            draw(st.sampled_from((1, 1, 2, 3))),
        )  # fmt: skip
    except IllegalCombination as refused:
        assert str(refused).endswith(".")
        return
    event("exists")
    threads, blocks = 128 * spec.warpgroups, spec.ctas_per_sm
    assert threads <= 1024 and (spec.shared_bytes + 1024) * blocks <= 228 * 1024 + 1024
    sums = tile[0] * tile[1] * (2 if types.d == "float16" else 4) // (512 * spec.consumers)
    assert sums <= spec.needed_registers - OVERHEAD_REGISTERS
    split = spec.register_split
    if split is None:
        assert sums < min(spec.launch_registers, 255)
    else:
        assert spec.specialised and sums < split[1] and not split[0] % 8 and not split[1] % 8
        assert 128 * (split[0] + spec.consumers * split[1]) * blocks <= 64 * 1024
    for operand, mn in ((spec.a_tile, tile[0]), (spec.b_tile, tile[1])):
        assert (operand.mn, operand.k) == (mn, tile[2])
        TensorMap(operand.dtype, (None, 16), (operand.shape[0], operand.atom_columns),
                  operand.swizzle)  # fmt: skip


@pytest.mark.parametrize(
    "specialised, choices, sentence",
    [
        (ROLES, {"layout": "XY"}, "layout 'XY': allowed are NT"),
        (ROLES, {"stages": 0}, "stages = 0: it must be an integer of at least 1"),
        (ROLES, {"dtype": "int8", "layout": "NN"}, "only 16-bit operands MN-major"),
        (ROLES, {"dtype": "float64"}, "no instruction for float64 x float64"),
        (ROLES, {"out_dtype": "int32"}, "sums in float32 become .*, not int32"),
        (ROLES, {"tile": (96, 64, 64)}, "96 rows a tile: 1 consumers need a multiple of 64"),
        (ROLES, {"tile": (64, 64, 24)}, "K = 24 a stage"),
        (SIMPLE, {"tile": (64, 264, 64)}, "a TMA box has at most 256 rows"),
        (SIMPLE, {"tile": (64, 60, 64)}, "which do not divide its 60 x 64"),
        (SIMPLE, {"stages": 30}, "30 stages of 32768 bytes: a CTA has 232448"),
        (SIMPLE, {"registers": (40, 232)}, "only a specialised kernel has roles"),
        (ROLES, {"registers": (20, 232)}, "setmaxnreg: 20 registers are not possible"),
        (ROLES, {"registers": (240, 232)}, "each thread starts with 232, .* only release some"),
        (
            ROLES,
            {"registers": (40, 240), "consumers": 3, "tile": (192, 64, 64)},
            "are 97280 in all, and a CTA has 65536; the computing ones would wait for ever",
        ),
        (SIMPLE, {"tile": (256, 256, 16)}, "needs 552 registers and has 255"),
        (ROLES, {"tiles": (1, 2, 3)}, "no choice 'tiles'; allowed are a_swizzle, accumulator"),
    ],
)
def test_what_cannot_be_generated(specialised, choices, sentence):
    with pytest.raises(IllegalCombination, match=sentence):
        matmul_spec(specialised, **choices)


@pytest.mark.parametrize(
    "shape, choices, sentence",
    [
        ((64, 64, 100), {}, "A has rows of 100 float16, 200 bytes; .* pad K to a multiple of 8"),
        ((64, 50, 64), {"layout": "NN"}, "B has rows of 50 float16"),
        ((None, 64, 64), {"layout": "TT"}, "M must be known with layout 'TT'"),
        ((64, 1, 64), {}, "N = 1: it must be at least 2"),
        ((0, 64, 64), {}, "M = 0: it must be at least 1"),
    ],
)
def test_matrices_that_tma_cannot_load(shape, choices, sentence):
    with pytest.raises(IllegalCombination, match=sentence):
        matmul_multistage(*shape, **choices)


@pytest.mark.parametrize("changes", [{"tile": (-1, 0)}, {"thread": 128}, {"steps": 0}])
def test_logs_that_nobody_would_print(changes):
    with pytest.raises(IllegalCombination, match="BarrierLog: "):
        BarrierLog(**changes)


def printed(capfd, one) -> list[str]:
    kernel = lower((one,))["matmul_0"]
    one.check(kernel, np.random.default_rng(3))
    tvm.cuda(0).sync()
    return capfd.readouterr().out.splitlines()


@pytest.mark.gpu
@pytest.mark.parametrize("specialised", [ROLES, SIMPLE])
def test_log_tells_every_event_in_order(capfd, specialised):
    """Of the chosen tile, warpgroup and thread alone; ring and parity as they must be."""
    stages, steps = 2, 5
    log = BarrierLog(tile=(1, 0), consumer=1, thread=37, steps=4)
    one = case(
        specialised, (250, 40, 16 * steps), tile=(128, 40, 16), consumers=2, stages=stages, log=log
    )
    lines = [line for line in printed(capfd, one) if line.startswith("[")]
    assert lines and all("tile (1, 0)" in line for line in lines)
    waits = [
        tuple(map(int, re.search(r"step (\d+): full\[(\d+)\] wait, parity (\d)", line).groups()))
        for line in lines
        if line.startswith("[consumer]") and "wait" in line
    ]
    assert waits == [(kt, kt % stages, kt // stages % 2) for kt in range(log.steps)]
    passed = [line for line in lines if "[consumer]" in line and "passed" in line]
    assert len(passed) == len(waits)
    issued = [line for line in lines if line.startswith("[producer]") and "issued" in line]
    assert [int(re.search(r"step (\d+)", line)[1]) for line in issued] == list(range(log.steps))
    if specialised:
        empty = [
            tuple(map(int, re.search(r"step (\d+): empty\[(\d+)\] wait, parity (\d)", x).groups()))
            for x in lines
            if x.startswith("[producer]") and "wait" in x
        ]
        assert empty == [(kt, kt % stages, 1 - kt // stages % 2) for kt in range(log.steps)]
        freed = [line for line in lines if "empty" in line and "arrive" in line]
        assert [int(re.search(r"empty\[(\d)\]", x)[1]) for x in freed] == [
            (kt - 1) % stages for kt in range(1, log.steps)
        ]


@pytest.mark.parametrize("specialised", [ROLES, SIMPLE])
def test_log_is_free_when_off(specialised, monkeypatch):
    """Without a log, a kernel is what it is with all of its log's lines taken out."""
    plain = case(specialised, (64, 64, 64), stages=2)
    logged = case(specialised, (64, 64, 64), stages=2, log=BarrierLog())
    off = plain.function()
    name = off.attrs["global_symbol"]
    on = logged.function().with_attr("global_symbol", name)
    assert "printf" in on.script() and "printf" not in off.script()
    assert not tvm_ffi.structural_equal(on, off)
    monkeypatch.setattr(RoleLog, "__call__", lambda *_, **__: None)
    silenced = logged.function().with_attr("global_symbol", name)
    assert tvm_ffi.structural_equal(silenced, off)
