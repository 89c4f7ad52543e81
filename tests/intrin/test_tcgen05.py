"""``tcgen05.mma.sp``: authors find it in ``T.ptx``, it assembles, and its scripts are read back."""

from __future__ import annotations

import pytest
import tvm
from tvm.script import tirx as T

from warploom.intrin.tcgen05 import sparse_mma
from warploom.target import cuda_target
from warploom.target.tcgen05 import TCGEN05_KINDS

#: Name -> a row of its.
KINDS = {kind.kind: kind for kind in TCGEN05_KINDS if not kind.scaled}


@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize("name", KINDS)
def test_it_is_an_instruction_of_t_ptx(name, ctas):
    text, lanes = f"tcgen05.mma.sp.cta_group::{ctas}.kind::{name}", [0] * (4 * ctas)
    issue = T.ptx[text]

    @T.prim_func
    def main(Out: T.Buffer((1,), "uint32")):
        T.device_entry()
        T.cta_id([1])
        T.thread_id([32])
        T.evaluate(issue(T.uint32(0), T.uint64(1), T.uint64(2), T.uint32(4), T.uint32(5), *lanes,
                         T.ptx.pred(1)))  # fmt: skip
        Out[0] = T.uint32(1)

    tvm.ir.assert_structural_equal(tvm.script.from_source(main.script()), main)
    target = cuda_target("sm_100a")
    built = tvm.compile(tvm.IRModule({"main": main}), target, tir_pipeline="tirx")
    assert text in built.mod.imports[0].inspect_source()


def test_the_row_of_a_kind_names_it():
    assert repr(sparse_mma(KINDS["f16"], 2)) == repr(T.ptx["tcgen05.mma.sp.cta_group::2.kind::f16"])


@pytest.mark.parametrize("text", ["cta_group::3.kind::f16", "cta_group::1.kind::mxf4"])
def test_other_forms_are_refused(text):
    with pytest.raises(KeyError):
        T.ptx[f"tcgen05.mma.sp.{text}"]
