"""Kernels of a model that are compiled while others are lowered: which, how often, results."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.compiler.dynamic_linear import module as dynamic_linear
from tests.compiler.scale_program import scale_program
from warploom import pipeline
from warploom.compiler import parts
from warploom.compiler.callback import Job, observe_compilations
from warploom.errors import CompilerError
from warploom.target import cuda_target
from warploom.tile.kinds import MARK

pytestmark = pytest.mark.gpu

_TARGET = cuda_target("h200")
_FACTORS = (2.0, 3.0, 5.0, 7.0, 11.0)


@pytest.fixture(autouse=True)
def cold(monkeypatch):
    monkeypatch.setenv("WARPLOOM_CACHE", "0")
    monkeypatch.setenv("WARPLOOM_JOBS", "2")
    monkeypatch.setattr(parts, "_LARGE", 0)


@pytest.fixture
def started(monkeypatch) -> list[str]:
    """The kernels that are compiled ahead, in order."""
    names, stock = [], parts.start

    def start(mod, target, build):
        names.extend(variable.name_hint for variable in mod.functions)
        stock(mod, target, build)

    monkeypatch.setattr(parts, "start", start)
    return names


def _compile(functions, last: str = ""):
    """The executable, and the sources of its compilations; ``last`` names the last function."""
    functions = list(functions)
    names = [f"f{i}" for i in range(len(functions))]
    names[-1] = last or names[-1]
    mod = tvm.IRModule(
        {
            name: function.with_attr("global_symbol", name).with_attr(MARK, True)
            for name, function in zip(names, functions, strict=True)
        }
    )
    with parts.in_parts(), observe_compilations() as compilations:
        executable = tvm.compile(mod, _TARGET)
    return executable, [each.request.source for each in compilations]


def test_each_kernel_is_compiled_once_and_computes_what_it_did(started, monkeypatch, rng):
    sources = []
    for count in ("1", "2", "3"):
        monkeypatch.setenv("WARPLOOM_JOBS", count)
        executable, compiled = _compile(map(scale_program, _FACTORS))
        sources.append(compiled)
        a = rng.standard_normal(32).astype("float32")
        for i, factor in enumerate(_FACTORS):
            tensors = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in (a, np.full_like(a, np.nan))]
            executable[f"f{i}"](*tensors)
            np.testing.assert_array_equal(tensors[1].numpy(), a * np.float32(factor))
    assert len(sources[0]) == len(_FACTORS)
    assert sources[0] == sources[1] == sources[2]
    assert started == [f"f{i}_kernel" for i in range(len(_FACTORS))] * 2, "with 2 jobs and with 3"


def test_the_compiler_works_while_later_functions_are_lowered(monkeypatch):
    order, lowered, run = [], pipeline._compile_ahead, Job.run

    def note(variable, kernel, last):
        lowered(variable, kernel, last)
        order.append("lowered")
        if order.count("lowered") == 2:
            # The compiler has the first kernels: they are done before the others are lowered.
            from warploom.compiler.ahead import current

            for started in ("f0_kernel", "f1_kernel"):
                (one,) = current()._started[started]
                one.part[1].result()

    def compile(job):
        result = run(job)
        order.append("compiled")
        return result

    monkeypatch.setattr(pipeline, "_compile_ahead", note)
    monkeypatch.setattr(Job, "run", compile)
    _compile(map(scale_program, _FACTORS))
    third = [i for i, each in enumerate(order) if each == "lowered"][2]
    assert order[:third].count("compiled") == 2
    assert order.count("compiled") == len(_FACTORS)


def test_equal_kernels_are_compiled_once(started):
    _, compiled = _compile(map(scale_program, (2.0, 3.0, 2.0, 3.0, 5.0)))
    assert len(compiled) == 3
    assert started == ["f0_kernel", "f1_kernel", "f4_kernel"]


def test_small_kernels_wait_and_are_one_part(monkeypatch):
    monkeypatch.setattr(parts, "_LARGE", 10**9)
    _, compiled = _compile(map(scale_program, _FACTORS))
    assert len(compiled) == 1
    assert all(f"f{i}_kernel" in compiled[0] for i in range(len(_FACTORS)))


def test_an_error_of_the_compiler_is_that_of_the_build():
    functions = [*map(scale_program, _FACTORS[:-1]), scale_program(1.0, broken="no_such_name")]
    with pytest.raises(CompilerError, match="no_such_name"):
        _compile(functions)


def test_watched_passes_and_few_functions_are_lowered_together(started):
    _compile(map(scale_program, _FACTORS[: pipeline._SEVERAL - 1]))
    with tvm.transform.PassContext(instruments=[tvm.ir.instrument.PassTimingInstrument()]):
        _compile(map(scale_program, _FACTORS))
    assert not started


def test_a_function_with_the_name_of_a_kernel_is_lowered_with_the_others(started, rng):
    executable, _ = _compile(map(scale_program, _FACTORS), last="f0_kernel")
    assert not started
    a = rng.standard_normal(32).astype("float32")
    for name, factor in (("f0", _FACTORS[0]), ("f0_kernel", _FACTORS[-1])):
        tensors = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in (a, np.full_like(a, np.nan))]
        executable[name](*tensors)
        np.testing.assert_array_equal(tensors[1].numpy(), a * np.float32(factor))


def test_a_model_has_the_same_kernels(started, monkeypatch):
    monkeypatch.setattr(pipeline, "_SEVERAL", 1)
    monkeypatch.setattr(parts, "_SEVERAL", 1)
    sources = []
    for count in ("1", "2"):
        monkeypatch.setenv("WARPLOOM_JOBS", count)
        with observe_compilations() as compilations:
            relax.build(dynamic_linear(), _TARGET)
        sources.append(sorted(each.request.source for each in compilations))
    assert sources[0] == sources[1]
    assert 0 < len(started) <= len(sources[0])
