"""Register budgets: instructions by hand, and hints that passes carry out."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

import warploom
from tests.language.builtins.vocabulary import compiled, poisoned
from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.lower.lowerings import lower
from warploom.target import cuda_target


def budgets() -> PrimFunc:
    """One warpgroup gives registers to two others."""

    @T.prim_func
    def main(A: T.Buffer((384,), "int32")):
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        T.cta_id([1])
        wg = T.warpgroup_id([3])
        t = T.thread_id_in_wg([128])
        if wg == 0:
            wl.dec_max_nreg(40)
            A[t] = 5
        elif wg == 1:
            wl.inc_max_nreg(232)
            A[128 + t] = 6
        else:
            wl.set_max_nreg(224, True)
            wl.sync_threads(1, 128)  # PTX wants the warpgroup to meet between two of them
            wl.set_max_nreg(200, 0)
            A[256 + t] = 7

    return main


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_set_max_nreg(arch):
    kernel = compiled(budgets, arch)
    assert kernel.has("setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg.inc.sync.aligned.u32 232;")
    assert kernel.has("setmaxnreg.inc.sync.aligned.u32 224;")
    assert kernel.has("setmaxnreg.dec.sync.aligned.u32 200;")
    (after,) = kernel.run(poisoned(384, "int32"))
    np.testing.assert_array_equal(after, np.repeat([5, 6, 7], 128))


@pytest.mark.usefixtures("machine_code")
def test_ptxas_follows():
    report = warploom.compile_report(lower(budgets(), "sm_90a"), cuda_target("h200"))
    (kernel,) = report.kernels
    assert not report.problems and kernel.sass["USETMAXREG"] == 4


M, BM, BN, K, BK = 256, 128, 128, 128, 64
NAMES = ("dec", "inc")


def program(*hints) -> PrimFunc:
    """A small GEMM with one or two statements behind its entry."""
    first, second = [*hints, lambda: None, lambda: None][:2]

    @T.prim_func
    def main(
        A: T.Buffer((M, K), "float16"), B: T.Buffer((BN, K), "float16"),
        C: T.Buffer((M, BN), "float32"),
    ):  # fmt: skip
        T.device_entry()
        first()
        second()
        i = T.cta_id([M // BM])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        for k in wl.pipelined(K // BK, stages=2):
            Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, k * BK : k * BK + BK])
            Tx.cta.copy_async(B_s, B[:, k * BK : k * BK + BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.copy(C[i * BM : i * BM + BM, :], acc)

    return main


def counts(script: str) -> tuple[list[int], list[int]]:
    """What ``setmaxnreg.dec`` and ``.inc`` of a kernel set."""
    found = re.findall(r'setmaxnreg\((\d+), "(dec|inc)"', script)
    return tuple([int(count) for count, name in found if name == each] for each in NAMES)


def lowered(*hints, arch: str = "sm_90a") -> PrimFunc:
    return lower(program(*hints), arch)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_the_passes_follow_the_annotations(arch):
    both = lowered(
        lambda: wl.annotate_producer_reg_dealloc(),
        lambda: T.warploom.annotate_consumer_reg_alloc(),
        arch=arch,
    )
    assert counts(both.script()) == ([24], [240])
    one = lowered(lambda: wl.annotate_producer_reg_dealloc(32), arch=arch)
    assert counts(one.script())[0] == [32]
    assert len(counts(one.script())[1]) == 1
    other = lowered(lambda: wl.annotate_consumer_reg_alloc(200), arch=arch)
    assert counts(other.script())[1] == [200]


@pytest.mark.parametrize("statement", ["no_set_max_nreg", "disable_warp_group_reg_alloc"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_the_passes_leave_registers_alone(arch, statement):
    assert counts(lowered(getattr(wl, statement), arch=arch).script()) == ([], [])


def test_without_annotations_warps_get_different_numbers():
    assert all(counts(lowered().script()))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["annotated", "without"])
def test_annotated_programs_run(name, rng):
    kernel = compiled(annotated if name == "annotated" else without, "sm_90a")
    assert ("setmaxnreg" in kernel.ptx) == (name == "annotated")
    a, b = (rng.standard_normal((rows, K)).astype("float16") for rows in (M, BN))
    c = kernel.run(a, b, poisoned((M, BN), "float32"))[2]
    exact = a.astype(float) @ b.astype(float).T
    assert np.abs(c - exact).max() <= 4e-6 * np.abs(exact).max()


def annotated() -> PrimFunc:
    return program(
        lambda: wl.annotate_producer_reg_dealloc(40), lambda: wl.annotate_consumer_reg_alloc(232)
    )


def without() -> PrimFunc:
    return program(wl.no_set_max_nreg)


def test_annotations_are_hints():
    func = annotated()
    assert wl.read_hints(func) == wl.Hints(registers=(40, 232))
    assert wl.read_hints(without()) == wl.Hints(set_registers=False)
    alone = program(lambda: wl.annotate_consumer_reg_alloc(160))
    assert wl.read_hints(alone) == wl.Hints(registers=(None, 160))
    for one in (func, without(), alone):
        parsed = tvm.script.from_source(one.script())
        assert tvm_ffi.structural_equal(parsed, one)
        assert wl.read_hints(parsed) == wl.read_hints(one)


def test_annotations_that_contradict_each_other():
    func = program(wl.no_set_max_nreg, lambda: wl.annotate_consumer_reg_alloc(160))
    with pytest.raises(IllegalCombination, match="with set_registers False"):
        wl.read_hints(func)
