"""After every pass: the script of a program is parsed back, and means what the program means.

Until roles part, `wl.interpret` runs what a pass has left; after the last pass the emulator runs
the kernel from its parsed script.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from tests.lower import kernels_by_hand, row_programs
from tests.shared import tile_programs
from tests.shared.control_programs import CONTROL
from tests.shared.lowered_programs import exact, hinted, run, worst_error
from tests.shared.tile_programs import Case
from warploom import language as wl
from warploom.errors import TileProgramError
from warploom.lower.trace import lower_trace

ARCHS = ("sm_90a", "sm_100a")
#: The passes behind which no order of statements is left: roles part.
PARTING = ("SpecializeWarps", "Multistage")
#: Programs that no lowering for Blackwell takes.
HOPPER_ALONE = ("from_tile", "in_place")
PROGRAMS = {
    "gemm": lambda: tile_programs.gemm(130, 136, 160, (64, 64, 32), out_dtype="float16", stages=2),
    "gemm of any size": lambda: tile_programs.gemm(70, 72, 88, (64, 64, 32), symbolic=True),
    "one stage": lambda: tile_programs.gemm(64, 64, 64, (64, 64, 32), stages=1),
    "two products": lambda: tile_programs.swiglu(100, 72, 96, stages=2),
    "dequantised": lambda: tile_programs.dequantised(4, k=128, through="fragment", stages=2),
    "packed": lambda: tile_programs.packed(k=256, stages=2),
    "row sums": lambda: tile_programs.row_sums(k=96, stages=2),
    "block scaled": tile_programs.block_scaled,
    "scales in blocks": lambda: tile_programs.scaled("nvfp4", 99, 64, 128, (128, 64, 64), "blocks"),
    "scales in rows": lambda: tile_programs.scaled("mxfp8", 200, 32, 96, (256, 32, 32), stages=2),
    "sparse": lambda: tile_programs.sparse_gemm(130, 32, 256, (128, 32, 128), stages=2),
    "sparse words": lambda: tile_programs.sparse_gemm(
        128, 32, 192, (128, 32, 64), "float32", stages=2, words=True
    ),
    "attention": lambda: tile_programs.attention(200, tile=(128, 64), causal=True),
    "rows": lambda: row_programs.layer_norm(5, 1000, 2, "float16"),
    "loaded rows": lambda: row_programs.masked_log_softmax(5, 96, 4, "float32"),
    "halves of rows": lambda: row_programs.gated(3, 72, 2, "float16"),
    "rows by index": lambda: tile_programs.rows_by_index("ak", scatters=True, steps=3),
    "columns": lambda: row_programs.sums_of_columns(8, 40, 8, "float32"),
    "many rows": lambda: row_programs.softmax(40, 1024, 64, "float32"),
    **CONTROL,
}
HINTS = {
    "gemm": (
        {"cluster": (2, 1)}, {"split_k": 2}, {"stream_k": True, "ctas": 3}, {"slice_k": 2},
        {"persistent": False}, {"specialise": False}, {"ping_pong": True},
        {"split_k": 2, "reduce_through": "cluster"}, {"scheduler": "clc"},
    ),
    "sparse": ({"cluster": (1, 2)},),
    "attention": ({"consumers": 2, "order_mmas": True},),
}  # fmt: skip
CASES = [
    (name, hints, arch)
    for name in PROGRAMS
    for hints in ({}, *HINTS.get(name, ()))
    for arch in ARCHS
    # Hopper has no cluster launch control; some programs are lowered for it alone.
    if not (arch == "sm_90a" and "scheduler" in hints)
    and not (arch == "sm_100a" and (name in HOPPER_ALONE or "reduce_through" in hints))
]


def require_round(func: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """The function from its script, which is equal."""
    parsed = tvm.script.from_source(func.script())
    tvm.ir.assert_structural_equal(parsed, func, map_free_vars=True)
    return parsed


def require_rounds(case: Case, rng: np.random.Generator, arch: str, hints: dict) -> None:
    arguments = exact(case.arguments(rng))
    means_the_same = True
    trace = lower_trace(hinted(case.func, **hints), arch)
    for step in trace:
        parsed = require_round(step.func)
        means_the_same &= step.name not in PARTING
        if means_the_same:
            copies = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]
            wl.interpret(parsed, copies)
            assert worst_error(case, arguments, copies) <= 1, f"after {step.name}"
    copies = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]
    assert worst_error(case, arguments, run(parsed, copies, arch)) <= 1


@pytest.mark.parametrize(("name", "hints", "arch"), CASES, ids=str)
@pytest.mark.some(5)
def test_programs_go_round(name, hints, arch, rng):
    require_rounds(PROGRAMS[name](), rng, arch, hints)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.some(2)
def test_random_programs_go_round(seed, arch):
    rng = np.random.default_rng(900 + seed)
    require_rounds(tile_programs.random_program(rng), rng, arch, {})


@pytest.mark.parametrize("pool", [False, True])
def test_kernels_by_hand_go_round(pool):
    """With mbarriers, descriptors and tiles that passes give a place."""
    for step in lower_trace(kernels_by_hand.sm90(2, pool=pool)):
        require_round(step.func)


def test_a_pass_that_errs_is_noticed(rng):
    case = PROGRAMS["gemm"]()
    arguments = case.arguments(rng)
    steps = {step.name: step.func for step in lower_trace(hinted(case.func, slice_k=2), "sm_90a")}
    wrong = {
        # The second warpgroup's sums are not added.
        "SliceK": ("acc_sums[0, ", "0.0 * acc_sums[0, "),
        # What is stored is not the result.
        "StageStores": ("chunk[i_1, j_1] = ", "chunk[i_1, j_1] = T.float16(1) + "),
    }
    for name, (old, new) in wrong.items():
        text = steps[name].script()
        mutant = text.replace(old, new)
        assert mutant != text, name
        copies = [np.copy(one) for one in arguments]
        wl.interpret(tvm.script.from_source(mutant), copies)
        assert worst_error(case, arguments, copies) > 1, name


def test_roles_that_have_parted_are_refused():
    func = lower_trace(PROGRAMS["one stage"]().func, "sm_90a")
    (parted,) = (step.func for step in func if step.name == "SpecializeWarps")
    arguments = [np.zeros((64, 64), np.float32)] * 3
    with pytest.raises(TileProgramError, match=r"parted into roles \(load, compute\)"):
        wl.interpret(parted, arguments)
