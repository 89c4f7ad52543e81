"""Kernels that equal each other are compiled once, and each function still computes its own."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from warploom.compiler.parts import in_parts
from warploom.target import cuda_target

pytestmark = pytest.mark.gpu


def _rows(factor: float, threads: int, first: bool):
    """``b = a * factor`` for a dynamic number of rows, which is the first or the second extent."""

    @T.prim_func
    def of_first(pa: T.handle, pb: T.handle):
        n = T.int32()
        a = T.match_buffer(pa, (n, 1, threads), "float32")
        b = T.match_buffer(pb, (n, 1, threads), "float32")
        T.device_entry()
        row = T.cta_id([n])
        thread = T.thread_id([threads])
        b[row, 0, thread] = a[row, 0, thread] * T.float32(factor)

    @T.prim_func
    def of_second(px: T.handle, py: T.handle):
        count = T.int32()
        x = T.match_buffer(px, (1, count, threads), "float32")
        y = T.match_buffer(py, (1, count, threads), "float32")
        T.device_entry()
        cta = T.cta_id([count])
        lane = T.thread_id([threads])
        y[0, cta, lane] = x[0, cta, lane] * T.float32(factor)

    return of_first if first else of_second


def _compile(**functions):
    module = tvm.IRModule(
        {name: one.with_attr("global_symbol", name) for name, one in functions.items()}
    )
    with in_parts():  # as a model is built
        executable = tvm.compile(module, cuda_target("h200"), tir_pipeline="warploom")
    source = executable.mod.imports[0].inspect_source()
    kernels = re.findall(r"(\w+_kernel)\([^;{]*\{", source)
    return executable, kernels


def test_equal_kernels_are_one_whatever_their_hosts_call_sizes_and_tensors(rng):
    executable, kernels = _compile(
        prompt=_rows(3.0, 32, True), decoding=_rows(3.0, 32, False), other=_rows(4.0, 32, False)
    )
    assert len(kernels) == 2
    for name, factor, shape in (
        ("prompt", 3.0, (5, 1, 32)), ("decoding", 3.0, (1, 7, 32)), ("other", 4.0, (1, 2, 32)),
    ):  # fmt: skip
        a = rng.standard_normal(shape).astype("float32")
        tensors = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in (a, np.full_like(a, np.nan))]
        executable[name](*tensors)
        np.testing.assert_array_equal(tensors[1].numpy(), a * np.float32(factor))


def _bounded(names: dict[str, str]):
    """``out = given * count + start`` for the first ``count`` elements; names are replaced."""
    source = """
@T.prim_func
def bounded(p_given: T.handle, p_out: T.handle, START: T.int32, COUNT: T.int32):
    GIVEN = T.match_buffer(p_given, (32,), "int32")
    OUT = T.match_buffer(p_out, (32,), "int32")
    T.device_entry()
    cta = T.cta_id([1])
    thread = T.thread_id([32])
    if thread < COUNT:
        OUT[thread] = GIVEN[thread] * COUNT + START
"""
    for placeholder, name in names.items():
        source = source.replace(placeholder, name)
    return tvm.script.from_source(source, {"T": T})


def test_names_that_sort_otherwise_do_not_keep_kernels_apart(rng):
    # TVM sorts the parameters of a kernel by their names.
    executable, kernels = _compile(
        ahead=_bounded({"GIVEN": "a", "OUT": "z", "START": "b", "COUNT": "y"}),
        behind=_bounded({"GIVEN": "x", "OUT": "c", "START": "w", "COUNT": "d"}),
    )
    assert len(kernels) == 1
    given = rng.integers(-50, 50, 32).astype("int32")
    for name, start, count in (("ahead", 7, 5), ("behind", 100, 3)):
        out = np.full(32, -1, "int32")
        tensors = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in (given, out)]
        executable[name](*tensors, start, count)
        expected = np.where(np.arange(32) < count, given * count + start, -1)
        np.testing.assert_array_equal(tensors[1].numpy(), expected)


@pytest.mark.parametrize("other", [(2.0, 32), (3.0, 64)], ids=["constant", "threads"])
def test_kernels_that_differ_stay_two(other):
    _, kernels = _compile(a=_rows(3.0, 32, True), b=_rows(*other, True))
    assert len(kernels) == 2
