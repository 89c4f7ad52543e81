"""Loops that the CUDA compiler writes out: which they are, and that no register is in memory."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import ForKind, Var

from tests.shared.compiler_kernels import TARGET
from warploom.compiler.cubin import read_kernels
from warploom.compiler.lowering import observe
from warploom.programs import attention
from warploom.tile.written_out import PRAGMA, written_out


def loop_of(extent: int, terms: int) -> tirx.For:
    """``a[r] = exp(a[r]) + exp(a[r]) + ...``."""
    registers = tirx.decl_buffer((extent,), "float32", "a", scope="local")
    r = Var("r", "int32")
    value: Any = T.float32(0)
    for _ in range(terms):
        value = value + T.exp(registers[r])
    return written_out(r, extent, [tirx.BufferStore(registers, value, [r])])


@pytest.mark.parametrize(("extent", "terms"), [(2, 1), (64, 1), (128, 1)])
def test_the_compiler_writes_out_short_statements(extent, terms):
    loop = loop_of(extent, terms)
    assert loop.kind == ForKind.SERIAL
    assert loop.annotations[PRAGMA]
    assert int(loop.extent) == extent


@pytest.mark.parametrize(("extent", "terms"), [(1, 1), (128, 40)])
def test_tvm_writes_out_long_ones_and_single_iterations(extent, terms):
    loop = loop_of(extent, terms)
    assert loop.kind == ForKind.UNROLLED
    assert not loop.annotations


def test_loops_in_a_loop_count_as_often_as_they_run():
    inner = loop_of(32, 1)
    assert PRAGMA in inner.annotations
    assert written_out(Var("o", "int32"), 2, [inner]).kind == ForKind.SERIAL
    assert written_out(Var("o", "int32"), 64, [inner]).kind == ForKind.UNROLLED


@pytest.mark.usefixtures("machine_code")
@pytest.mark.in_turn(4)
def test_registers_of_such_loops_are_no_local_memory():
    program = attention(256, 64, heads=2, causal=True)
    lowered = observe(lambda: tvm.compile(program, TARGET, tir_pipeline="warploom"))
    (compilation,) = lowered.compilations
    assert compilation.request.source.count("#pragma unroll\n") > 5
    (kernel,) = read_kernels(compilation.output.binary)
    assert kernel.frame_bytes == 0
