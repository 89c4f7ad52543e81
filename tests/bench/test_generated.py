"""The benchmark of generated matmuls: its own case compiles, small ones run on the emulator."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from tests.bench.on_host import TORCH, on_host
from warploom import compile_report
from warploom.target import cuda_target
from warploom_bench import compete, generated, ladder
from warploom_bench.check import deviation
from warploom_bench.operands import Operands
from warploom_bench.report import EXIT_RIGHT


class Array:
    """A matrix on ``tvm.cuda(0)`` that kernels take through DLPack."""

    def __init__(self, values, dtype):
        self.dtype = dtype
        self.tensor = tvm.runtime.tensor(values.astype(dtype), tvm.cuda(0))

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def numpy(self):
        return self.tensor.numpy().astype(np.float64)

    def fill_(self, value):
        self.tensor.copyfrom(np.full(self.tensor.shape, value, self.dtype))


def make_operands(torch, shape, seed):
    rng = np.random.default_rng(seed)
    a, b = (Array(rng.standard_normal((rows, shape.k)), "float16") for rows in (shape.m, shape.n))
    empty = np.full((shape.m, shape.n), np.nan)
    return Operands(a, b, None, None, Array(empty, shape.result_dtype))


@pytest.mark.in_turn(3)
def test_its_own_case_compiles_without_spills():
    functions = {f"f{i}": make(4096, 4096, 4096).with_attr("global_symbol", f"f{i}")
                 for i, make in enumerate(generated.kernels().values())}  # fmt: skip
    module = tvm.IRModule(functions)
    report = compile_report(tvm.compile(module, cuda_target("h200"), tir_pipeline="tirx"))
    assert len(report.kernels) == len(functions) == 3
    for kernel in report.kernels:
        assert kernel.spill_store_bytes == kernel.spill_load_bytes == 0


@pytest.mark.gpu
def test_every_row_is_right(monkeypatch, capsys):
    on_host(monkeypatch)
    monkeypatch.setattr(generated, "import_torch", lambda: TORCH)
    monkeypatch.setattr(generated, "cublas", lambda torch: lambda o: o.c.tensor.copyfrom(
        (o.a.numpy() @ o.b.numpy().T).astype("float32")))  # fmt: skip
    monkeypatch.setattr(ladder.ops, "make_operands", make_operands)
    monkeypatch.setattr(ladder.ops, "check", lambda torch, shape, o: deviation(
        o.c.numpy(), o.a.numpy() @ o.b.numpy().T))  # fmt: skip
    monkeypatch.setattr(ladder, "_FEW_SETS", 1)
    monkeypatch.setattr(compete, "host_cost", lambda launch, wait, launches: 1e-6)
    assert generated.main(["--size", "128", "--rounds", "2"]) == EXIT_RIGHT
    rows = capsys.readouterr().out
    assert all(one in rows for one in generated.kernels())
