"""Modules that are kept whole: what finds them again, what must not, and how soon they run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T
from tvm.tirx.operator.tile_primitive import dispatcher

from warploom import emulator
from warploom.compiler import module_key as keys
from warploom.compiler.cache_entry import decode, encode
from warploom.compiler.callback import observe_compilations
from warploom.compiler.invoke import Output
from warploom.compiler.registered import foreign
from warploom.errors import CacheWarning
from warploom.programs import compile_gemm
from warploom.runtime.cache_folder import VERSION
from warploom.target import cuda_target
from warploom_bench import cold_start

pytestmark = pytest.mark.gpu

_TARGET = cuda_target("h200")


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("WARPLOOM_MODULE_CACHE", "1")
    monkeypatch.setenv("WARPLOOM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_lowering(monkeypatch):
    """``no_lowering()``: from then on, TVM has no pipeline and no compiler."""

    def fail(*_):
        raise AssertionError("nothing is compiled")

    def forbid() -> None:
        monkeypatch.setattr(tvm.tirx, "get_tir_pipeline", fail)
        monkeypatch.setattr("warploom.compiler.callback.compile_request", fail)

    return forbid


def _program(factor: float):
    @T.prim_func
    def scale(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([64])
        b[thread] = a[thread] * T.float32(factor)

    return scale


def _compile(factor: float = 2.0, target=_TARGET, pipeline="warploom"):
    module = tvm.IRModule({"main": _program(factor)})
    return tvm.compile(module, target, tir_pipeline=pipeline)


def _check(executable, factor: float, rng) -> None:
    a = rng.standard_normal(64).astype("float32")
    tensors = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in (a, np.full_like(a, np.nan))]
    executable["main"](*tensors)
    np.testing.assert_array_equal(tensors[1].numpy(), a * np.float32(factor))


def _modules(cache: Path) -> list[Path]:
    """Entries that hold modules; others are of single kernels."""
    folder = cache / VERSION
    paths = folder.iterdir() if folder.exists() else ()
    entries = {path: decode(path.name, path.read_bytes()) for path in paths}
    return [path for path, entry in entries.items() if entry.binary.startswith(b'{"sizes"')]


def test_what_was_compiled_is_not_lowered_again(cache, no_lowering, rng):
    first = _compile()
    assert len(_modules(cache)) == 1
    no_lowering()
    second = _compile()
    for executable in (first, second):
        _check(executable, 2.0, rng)
    cuda, ptx = ([e.mod.imports[0].inspect_source(f) for e in (first, second)] for f in ("", "ptx"))
    assert cuda[0] == cuda[1] and "scale_kernel" in cuda[0]
    assert ptx[0] == ptx[1]
    with pytest.raises(AssertionError, match="nothing is compiled"):
        _compile(3.0)


@pytest.mark.skipif(shutil.which("g++") is None, reason="export_library links with g++")
def test_a_module_from_the_cache_can_be_exported(cache, no_lowering, tmp_path, rng):
    _compile()
    no_lowering()
    path = str(tmp_path / "scale.so")
    _compile().export_library(path)
    _check(tvm.runtime.load_module(path), 2.0, rng)


def test_whatever_decides_the_code_makes_another_entry(cache, monkeypatch):
    expected = 0

    def compiled(**options) -> None:
        nonlocal expected
        _compile(**options)
        expected += 1
        assert len(_modules(cache)) == expected

    compiled()
    compiled(factor=3.0)
    compiled(pipeline="tirx")
    compiled(target=cuda_target("sm_100a"))
    with tvm.transform.PassContext(config={"tirx.disable_vectorize": True}):
        compiled()
    with monkeypatch.context() as changed:
        changed.setenv("TVM_CUDA_PTXAS_REG_LEVEL", "5")
        compiled()
    with monkeypatch.context() as changed:
        changed.setattr(keys, "_package", lambda: "another version of warploom")
        compiled()
    _compile()
    assert len(_modules(cache)) == expected


def test_measured_facts_decide_by_their_contents_wherever_they_lie(cache, monkeypatch, tmp_path):
    """Decisions depend on them; the path of the file is nothing that does."""
    first, moved = tmp_path / "first.json", tmp_path / "moved" / "again.json"
    moved.parent.mkdir()
    first.write_text("{}")
    moved.write_text("{}")
    entries = []
    for path, text in ((first, "{}"), (moved, "{}"), (moved, '{"format": 1}')):
        path.write_text(text)
        monkeypatch.setenv("WARPLOOM_MACHINE", str(path))
        _compile()
        entries.append(len(_modules(cache)))
    assert entries == [1, 1, 2]
    monkeypatch.delenv("WARPLOOM_MACHINE")
    own = tmp_path / "cache" / "machines" / "gpu.json"
    own.parent.mkdir(parents=True)
    for text in ("{}", "[]"):
        own.write_text(text)
        _compile()
        entries.append(len(_modules(cache)))
    assert entries == [1, 1, 2, 3, 4]


def test_nothing_is_kept_where_the_key_would_not_say_all(cache, monkeypatch):
    from tvm.ir.instrument import PassTimingInstrument

    assert foreign() is None
    with tvm.transform.PassContext(instruments=[PassTimingInstrument()]):
        _compile()
    with observe_compilations() as compilations:
        _compile()
    assert len(compilations) == 1
    monkeypatch.setenv("WARPLOOM_MODULE_CACHE", "0")
    _compile()
    monkeypatch.setenv("WARPLOOM_MODULE_CACHE", "1")
    with monkeypatch.context() as changed:
        table = dispatcher._DISPATCH_TABLE
        (op, kind), cases = next(iter(table.items()))
        changed.setitem(table, (op, kind), list(cases))
        dispatcher.register_dispatch(op.name.rpartition(".")[2], kind, variant="mine")(print)
        assert foreign() == f"{op.name} mine"
        _compile()
    assert _modules(cache) == []
    tvm_ffi.register_global_func("tvm_callback_cuda_postproc", lambda code, _: code)
    try:
        _compile()
    finally:
        tvm_ffi.registry.remove_global_func("tvm_callback_cuda_postproc")
    assert _modules(cache) == []
    _compile()
    assert len(_modules(cache)) == 1


def test_source_with_headers_of_ones_own_is_compiled_each_time(cache, tmp_path, monkeypatch):
    (tmp_path / "mine.h").write_text("__device__ inline float mine(float x) { return x + 1; }\n")
    options = f"{os.environ.get('TVM_CUDA_NVRTC_EXTRA_OPTS', '')} -I{tmp_path}"
    monkeypatch.setenv("TVM_CUDA_NVRTC_EXTRA_OPTS", options)

    @T.prim_func
    def foreign(b: T.Buffer((32,), "float32")):
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([32])
        b[thread] = T.cuda.func_call(
            "call", T.float32(1), source_code='#include "mine.h"\n'
            "__device__ float call(float x) { return mine(x); }\n", return_type="float32",
        )  # fmt: skip

    tvm.compile(tvm.IRModule({"main": foreign}), _TARGET, tir_pipeline="warploom")
    assert _modules(cache) == []


@pytest.mark.parametrize("damage", ["truncated", "other content"])
def test_a_damaged_entry_is_compiled_again_with_a_warning(cache, damage, rng):
    _compile()
    (path,) = _modules(cache)
    entry = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(entry[:-7])
    else:
        path.write_bytes(encode(path.name, Output(b'{"sizes": [3], "formats": []}\nabc', "", 0.0)))
    with pytest.warns(CacheWarning, match="compiled again") as caught:
        executable = _compile()
    assert len(caught) == 1
    _check(executable, 2.0, rng)
    assert len(_modules(cache)) == 1
    _compile()  # without a warning


@pytest.mark.in_turn(3)
def test_a_new_process_without_compiler_has_its_first_result_at_once(monkeypatch):
    """0.3 s of CPU after the imports, of which the emulator's reading of the PTX is a part."""
    if emulator.is_enabled():
        monkeypatch.setenv(emulator.OPT_IN, "1")
    monkeypatch.delenv("WARPLOOM_EMULATOR_CHECK", raising=False)  # costs time at each launch
    rows = cold_start.measure(size=128, repeat=1)
    print(cold_start.table(rows))
    first, *cold = ({stage: cpu for stage, (_, cpu) in row.items()} for row in rows.values())
    for row in cold:
        assert row["compile or load"] + row["first result"] < 0.3
        # Both choose a config, which takes 0.1 s.
        assert row["compile or load"] < first["compile or load"] / 2


def test_one_cannot_take_a_gemm_for_another(cache, no_lowering, monkeypatch):
    compile_gemm(None, 64, 64)
    no_lowering()
    # The program is not even written.
    monkeypatch.setattr("warploom.programs.compiled_gemm.gemm", tvm.tirx.get_tir_pipeline)
    compile_gemm(None, 64, 64)
    others = [(64, 64, 64), (None, 72, 64), (None, 64, 72), (None, 64, 64, "bfloat16")]
    others += [(None, 64, 64, "float16", "bfloat16"), (None, 64, 64, "float16", None, "NN")]
    for other in others:
        with pytest.raises(AssertionError, match="nothing is compiled"):
            compile_gemm(*other)
