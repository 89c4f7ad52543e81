"""``WARPLOOM_PRINT=0``: a program with prints makes the code of one without."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.language import print_programs
from tests.language.test_print import ALL
from warploom import language as wl
from warploom.target import cuda_target

pytestmark = pytest.mark.gpu


def ptx_of(func: Any, arch: str) -> str:
    """PTX without the places in the script that it has lines for."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    executable = tvm.compile(module, cuda_target(arch), tir_pipeline="warploom")
    source = executable.mod.imports[0].inspect_source()
    return "\n".join(re.sub(r"\s*//.*", "", line) for line in source.splitlines())


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.some(1)
def test_off_it_is_no_code(arch, monkeypatch, texts):
    plain = ptx_of(_copied(()), arch)
    assert "printf" in ptx_of(_copied(("print",)), arch)
    monkeypatch.setenv("WARPLOOM_PRINT", "0")
    assert ptx_of(_copied(("print",)), arch) == plain
    func = print_programs.gemm(ALL)
    args = print_programs.operands(np.random.default_rng(0), func)
    assert texts(lambda: wl.interpret(func, args))[0] == ""


def _copied(what: tuple[str, ...]) -> Any:
    """A GEMM, with prints or without."""
    printing = bool(what)
    M, BK = 128, 32

    @T.prim_func
    def func(A: T.Buffer((M, 96), "float16"), B: T.Buffer((M, 96), "float16"),
             C: T.Buffer((M, M), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((M, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((M, BK), "float16", scope="shared")
        acc = T.alloc_buffer((M, M), "float32", scope="accumulator")
        for k in wl.pipelined(3):
            Tx.cta.copy_async(A_s, A[:, k * BK : k * BK + BK])
            Tx.cta.copy_async(B_s, B[:, k * BK : k * BK + BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
            wl.print("{} {}", k, acc[k, 3], predicate=printing)
            if printing:  # noqa: SIM102  (TVMScript decides this one as it reads)
                if k == 1:
                    wl.print("second")
        Tx.cta.copy(C, acc)

    return func


def test_off_by_hand(monkeypatch):
    def func(printing: bool) -> Any:
        @T.prim_func
        def kernel(A: T.Buffer((64,), "float32")):
            T.device_entry()
            T.cta_id([1])
            thread = T.thread_id([64])
            A[thread] = A[thread] + 1.0
            wl.print("{}", A[thread], thread=None, predicate=printing)

        return kernel

    plain = ptx_of(func(False), "sm_90a")
    assert ptx_of(func(True), "sm_90a") != plain
    monkeypatch.setenv("WARPLOOM_PRINT", "0")
    assert ptx_of(func(True), "sm_90a") == plain
