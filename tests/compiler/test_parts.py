"""Modules that are compiled in parts, on several cores: how often, results and errors."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tvm
import tvm_ffi

from tests.compiler.scale_program import scale_program
from warploom.compiler import ahead, parts
from warploom.compiler.callback import observe_compilations
from warploom.compiler.jobs import jobs
from warploom.compiler.report import compile_report
from warploom.compiler.side_by_side import side_by_side
from warploom.errors import CompilerError, WarploomError
from warploom.meta_schedule.same_kernel import kernel_digest
from warploom.target import cuda_target

pytestmark = pytest.mark.gpu

_TARGET = cuda_target("h200")
_FACTORS = (2.0, 3.0, 5.0, 7.0, 11.0)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setenv("WARPLOOM_CACHE", "0")


@pytest.fixture(autouse=True)
def as_for_a_model():
    with parts.in_parts():
        yield


@pytest.fixture
def all_large(monkeypatch):
    monkeypatch.setattr(parts, "_LARGE", 0)


def _module(functions) -> tvm.IRModule:
    return tvm.IRModule(
        {f"f{i}": one.with_attr("global_symbol", f"f{i}") for i, one in enumerate(functions)}
    )


def _compile(functions):
    with observe_compilations() as compilations:
        executable = tvm.compile(_module(functions), _TARGET, tir_pipeline="warploom")
    return executable, compilations


def _check(executable, rng) -> None:
    a = rng.standard_normal(32).astype("float32")
    for i, factor in enumerate(_FACTORS):
        tensors = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in (a, np.full_like(a, np.nan))]
        executable[f"f{i}"](*tensors)
        np.testing.assert_array_equal(tensors[1].numpy(), a * np.float32(factor))


def test_binaries_and_results_are_the_same_with_any_number_of_jobs(all_large, monkeypatch, rng):
    binaries = []
    for count in ("1", "3"):
        monkeypatch.setenv("WARPLOOM_JOBS", count)
        executable, compilations = _compile(map(scale_program, _FACTORS))
        assert len(compilations) == len(_FACTORS), "each kernel is a part"
        binaries.append([one.output.binary for one in compilations])
        _check(executable, rng)
    assert binaries[0] == binaries[1]


def test_small_kernels_are_one_part_and_large_kernels_are_not(monkeypatch, rng):
    executable, compilations = _compile(map(scale_program, _FACTORS))
    assert len(compilations) == 1
    _check(executable, rng)

    lengths = iter((10**6, 0, 0, 10**6, 0))
    stock, large = parts.collect, "\n// a long kernel" * 2000

    def collect(source, functions, sources):
        return stock(source + (large if next(lengths, 0) else ""), functions, sources)

    monkeypatch.setattr(parts, "collect", collect)
    executable, compilations = _compile(map(scale_program, _FACTORS))
    assert len(compilations) == 3, "two large kernels, and the others"
    _check(executable, rng)


def test_reports_and_digests_see_the_kernels_of_all_parts(all_large):
    first, _ = _compile(map(scale_program, _FACTORS))
    names = [kernel.name for kernel in compile_report(first).kernels]
    assert names == [f"f{i}_kernel" for i in range(len(_FACTORS))]
    last = (*_FACTORS[:-1], 13.0)
    digests = {kernel_digest(_compile(map(scale_program, each))[0]) for each in (_FACTORS, last)}
    assert len(digests) == 2 and "" not in digests


@pytest.mark.skipif(shutil.which("g++") is None, reason="export_library links with g++")
def test_a_module_in_parts_can_be_exported(all_large, tmp_path, rng):
    executable, _ = _compile(map(scale_program, _FACTORS))
    executable.export_library(str(tmp_path / "parts.so"))
    _check(tvm.runtime.load_module(str(tmp_path / "parts.so")), rng)


def test_few_kernels_are_one_module_as_tvm_makes_it(all_large):
    executable, compilations = _compile(map(scale_program, _FACTORS[:3]))
    assert len(compilations) == 1
    (module,) = executable.mod.imports
    assert [f"f{i}_kernel" in module.inspect_source() for i in range(3)] == [True] * 3
    assert len(module.imports) == 0


@pytest.mark.parametrize("count", ["1", "4"])
def test_the_first_error_in_order_is_raised_as_if_it_were_alone(all_large, monkeypatch, count):
    monkeypatch.setenv("WARPLOOM_JOBS", count)
    with pytest.raises(CompilerError) as alone:
        _compile([scale_program(0.0, "first_fault")])
    functions = [scale_program(factor) for factor in _FACTORS]
    functions[1:1] = [scale_program(0.0, "first_fault")]
    functions += [scale_program(0.0, "second_fault")]
    with pytest.raises(CompilerError) as among:
        _compile(functions)
    texts = [str(error.value).partition("; log and source")[0] for error in (alone, among)]
    assert texts[0] == texts[1] and "first_fault" in texts[0]


def test_a_compiler_of_the_users_gets_one_source(all_large):
    name = "tvm_callback_cuda_compile"
    own, sources = tvm_ffi.get_global_func(name), []

    def compiled(source):
        sources.append(str(source))
        return own(source)

    tvm_ffi.register_global_func(name, compiled, override=True)
    try:
        _compile(map(scale_program, _FACTORS))
    finally:
        tvm_ffi.register_global_func(name, own, override=True)
    (source,) = sources
    assert all(f"f{i}_kernel" in source for i in range(len(_FACTORS)))


@pytest.mark.parametrize("said", ["0", "-2", "many", ""])
def test_a_number_of_jobs_that_is_none_is_refused(said):
    with pytest.raises(WarploomError, match=r"WARPLOOM_JOBS is .* positive whole number"):
        jobs({"WARPLOOM_JOBS": said})


def test_the_number_of_jobs_is_that_of_the_cores_or_as_said(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 2, 5})
    assert jobs({}) == 3
    assert jobs({"WARPLOOM_JOBS": "12"}) == 12


@pytest.mark.parametrize("count", ["1", "3"])
def test_passes_side_by_side_change_what_they_change_one_by_one(monkeypatch, count):
    monkeypatch.setenv("WARPLOOM_JOBS", count)
    mod = _module(map(scale_program, _FACTORS))
    step = tvm.tirx.transform.StmtSimplify()
    assert tvm_ffi.structural_equal(side_by_side(step)(mod), step(mod))
    names = [[v.name_hint for v in each.functions] for each in (side_by_side(step)(mod), mod)]
    assert names[0] == names[1]


def test_an_error_of_a_pass_side_by_side_is_that_of_the_pass(monkeypatch):
    monkeypatch.setenv("WARPLOOM_JOBS", "2")

    @tvm.tirx.transform.prim_func_pass(opt_level=0, name="Refuse")
    def refuse(function, _mod, _context):
        if str(function.attrs["global_symbol"]) == "f1":
            raise ValueError("f1 is refused")
        return function

    with pytest.raises(ValueError, match="f1 is refused"):
        side_by_side(refuse)(_module(map(scale_program, _FACTORS)))


def test_only_models_are_compiled_in_parts(all_large):
    def build() -> tvm.runtime.Executable:
        functions = {
            f"f{i}": scale_program(one).with_attr("global_symbol", f"f{i}")
            for i, one in enumerate(_FACTORS)
        }
        return tvm.compile(tvm.IRModule(functions), _TARGET, tir_pipeline="tirx")

    assert len(build().mod.imports[0].imports) == len(_FACTORS) - 1
    token = ahead._current.set(None)
    try:
        (module,) = build().mod.imports
    finally:
        ahead._current.reset(token)
    assert not list(module.imports)
    assert all(f"f{i}_kernel" in module.inspect_source() for i in range(len(_FACTORS)))
