"""Swizzles, fills and budgets of the generated matmuls."""

from __future__ import annotations

import re

import pytest
import tvm

from tests.kernels.matmul_cases import ROLES, SIMPLE, case, lower
from warploom import compile_report
from warploom.errors import IllegalCombination
from warploom.kernels import matmul_warp_specialised
from warploom.kernels.matmul import matmul_spec
from warploom.target import Swizzle, cuda_target

#: Ragged along M and N; each swizzle for A and for B, both layouts, and fills with NaN.
CASES = (
    case(ROLES, (70, 72, 72), stages=2, a_swizzle="64B", b_swizzle="32B"),
    case(SIMPLE, (70, 72, 72), stages=2, a_swizzle=32, b_swizzle="none"),
    case(ROLES, (72, 72, 72), stages=2, a_swizzle="none", b_swizzle=64, layout="TN"),
    case(SIMPLE, (72, 72, 72), a_swizzle="128B", b_swizzle="128B", layout="NN"),
    case(ROLES, (60, 40, 80), dtype="int8", tile=(64, 40, 64), a_swizzle="32B", b_swizzle="64B"),
    case(ROLES, (70, 50, 128), oob_fill="nan"),
    case(SIMPLE, (72, 56, 64), oob_fill="nan", layout="TN", b_swizzle="64B", dtype="bfloat16"),
    case(SIMPLE, (65, 24, 32), oob_fill="nan", dtype="float32", tile=(64, 24, 32)),
)


@pytest.fixture(scope="module")
def module():
    return lower(CASES)


@pytest.mark.gpu
@pytest.mark.parametrize("index", range(len(CASES)), ids=[str(one) for one in CASES])
@pytest.mark.some(3)
def test_result(module, index, rng):
    CASES[index].check(module[f"matmul_{index}"], rng)


def test_the_tensor_map_says_what_was_asked():
    script = CASES[5].function().script()
    assert script.count('oob="nan"') == 2 and "tma_explicit" in script
    assert "oob" not in CASES[0].function().script()
    spec = CASES[0].spec
    assert (spec.a_tile.swizzle, spec.b_tile.swizzle) == (Swizzle.B64, Swizzle.B32)
    assert matmul_spec(ROLES).a_tile.swizzle is Swizzle.B128


@pytest.mark.parametrize(
    "choices, sentence",
    [
        ({"a_swizzle": 3}, "a_swizzle is 3; it must be one of 'none', '32B', '64B', '128B'"),
        ({"b_swizzle": "256B"}, "b_swizzle is '256B'"),
        ({"b_swizzle": "128B", "tile": (128, 128, 32)}, "swizzle B128 consists of atoms"),
        ({"oob_fill": 1}, "oob_fill is 1; it must be one of 'zeros', 'nan'"),
        ({"l2_promotion": "32B"}, "l2_promotion is '32B'; .* '64B', '128B', '256B'"),
        ({"oob_fill": "nan", "dtype": "int8", "tile": (128, 128, 64)}, "with int8: .*only"),
    ],
)
def test_what_there_is_not_is_refused(choices, sentence):
    with pytest.raises(IllegalCombination, match=sentence):
        matmul_spec(ROLES, **choices)


def test_nan_within_k_is_refused():
    with pytest.raises(IllegalCombination, match=r"K = 72 with oob_fill 'nan': .* multiple of 64"):
        matmul_warp_specialised(128, 128, 72, oob_fill="nan")


def test_one_producer_and_one_consumer_have_40_and_232_registers():
    """A launch of 256 threads starts each with more than both together need."""
    func = matmul_warp_specialised(4096, 4096, 4096, registers=(40, 232))
    executable = tvm.compile(tvm.IRModule({"main": func}), cuda_target("h200"), tir_pipeline="tirx")
    source = executable.mod.imports[0].inspect_source()
    assert re.search(r"setmaxnreg\.dec\.sync\.aligned\.u32 40", source)
    assert re.search(r"setmaxnreg\.inc\.sync\.aligned\.u32 232", source)
    (kernel,) = compile_report(executable, cuda_target("h200")).kernels
    assert kernel.spill_store_bytes == kernel.spill_load_bytes == 0
