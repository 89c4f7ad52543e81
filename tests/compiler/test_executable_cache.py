"""Relax models that are kept whole: what finds them again, in which process, and what must not."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.compiler.dynamic_linear import module
from warploom import emulator
from warploom.compiler import executable_cache, registered
from warploom.compiler import module_key as keys
from warploom.compiler.cache_entry import decode, encode
from warploom.compiler.callback import observe_compilations
from warploom.compiler.invoke import Output
from warploom.errors import CacheWarning
from warploom.runtime.cache_folder import VERSION
from warploom.target import cuda_target

pytestmark = pytest.mark.gpu

_TARGET = cuda_target("h200")
_ROOT = Path(__file__).parents[2]


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("WARPLOOM_MODULE_CACHE", "1")
    monkeypatch.setenv("WARPLOOM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_pass(monkeypatch):
    """``no_pass()``: from then on, TVM has no pipeline and no compiler."""

    def fail(*_):
        raise AssertionError("nothing is compiled")

    def forbid() -> None:
        monkeypatch.setattr(relax, "get_default_pipeline", fail)
        monkeypatch.setattr(tvm.tirx, "get_tir_pipeline", fail)
        monkeypatch.setattr("warploom.compiler.callback.compile_request", fail)

    return forbid


def _models(cache: Path) -> list[Path]:
    """Entries that hold models; others are of single kernels."""
    folder = cache / VERSION
    paths = folder.iterdir() if folder.exists() else ()
    entries = {path: decode(path.name, path.read_bytes()) for path in paths}
    return [path for path, entry in entries.items() if b'{"sizes"' in entry.binary[:10000]]


def _results(executable, x: np.ndarray, weight: np.ndarray) -> list[np.ndarray]:
    machine = relax.VirtualMachine(executable, tvm.cuda(0))
    x, w = (tvm.runtime.tensor(each, tvm.cuda(0)) for each in (x, weight))
    turned = tvm.runtime.tensor(x.numpy().transpose(1, 0, 2).copy(), tvm.cuda(0))
    return [machine["prompt"](x, w).numpy()[0], machine["decoding"](turned, w).numpy()[:, 0]]


def test_a_model_with_symbolic_sizes_is_built_once(cache, no_pass, rng):
    x, w = (rng.standard_normal(shape).astype("float16") for shape in ((1, 5, 64), (64, 64)))
    expected = x[0].astype("float64") @ w.T.astype("float64") * 2
    first = relax.build(module(), target=_TARGET)
    no_pass()
    again = [relax.build(module(), target=_TARGET), tvm.compile(module(), _TARGET)]
    for executable in (first, *again):
        results = _results(executable, x, w)
        for result in results:
            np.testing.assert_allclose(result, expected, rtol=4e-3, atol=4e-3)
        assert np.array_equal(*results), "both functions have the same kernel"
    assert again[0].as_text() == first.as_text() and again[0].stats() == first.stats()


def test_another_process_finds_it(cache):
    relax.build(module(), target=_TARGET)
    emulated = "from warploom import emulator; emulator.enable()" if emulator.is_enabled() else ""
    script = textwrap.dedent(f"""
        import tvm
        from tvm import relax
        from tests.compiler.dynamic_linear import module
        from warploom.target import cuda_target
        {emulated}
        def fail(*_):
            raise AssertionError("nothing is compiled")
        relax.get_default_pipeline = tvm.tirx.get_tir_pipeline = fail
        print(relax.build(module(), target=cuda_target("h200")).mod.kind)
    """)
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False,
        cwd=_ROOT,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "relax.VMExecutable" in run.stdout


def test_whatever_decides_the_code_has_another_key(cache, monkeypatch):
    """Counted without builds: the build is replaced, the key is not."""
    seen: list[object] = []

    def stock(mod, target=None, params=None, relax_pipeline="default", tir_pipeline="default",
              exec_mode="bytecode", *, system_lib=None):  # fmt: skip
        return None

    build = executable_cache.remembering_relax_build(stock)
    original = keys.module_key

    def note(recipe, environ):
        seen.append(original(recipe, environ))

    monkeypatch.setattr("warploom.compiler.module_cache.module_key", note)

    def asked(mod=None, target=_TARGET, **options) -> object:
        build(module() if mod is None else mod, target, **options)
        return seen[-1]

    usual = asked()
    assert usual is not None and asked() == usual, "a model that is made anew has the same key"
    others = [
        asked(module(factor=3.0)), asked(target=cuda_target("h100")),
        asked(target=cuda_target("sm_100a")), asked(exec_mode="compiled"),
        asked(relax_pipeline="zero"), asked(tir_pipeline="tirx"), asked(system_lib=True),
        asked(params={"prompt": [tvm.runtime.tensor(np.zeros(3, "float16"))]}),
        asked(params={"prompt": [tvm.runtime.tensor(np.ones(3, "float16"))]}),
    ]  # fmt: skip
    with tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
        others.append(asked())
    for name, value in (("WARPLOOM_SHIPPED", "0"), ("WARPLOOM_RELAX", "0")):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            others.append(asked())
    with monkeypatch.context() as changed:
        changed.setattr(keys, "_package", lambda: "other records or passes")
        others.append(asked())
    assert len({usual, *others}) == 1 + len(others)
    with monkeypatch.context() as changed:  # how it is compiled and shown decides nothing
        changed.setenv("WARPLOOM_JOBS", "7")
        changed.setenv("WARPLOOM_PROGRESS", "0")
        assert asked() == usual


def test_nothing_is_kept_where_the_key_would_not_say_all(cache, monkeypatch):
    recipe = executable_cache._recipe

    def kept(**options) -> bool:
        usual = {
            "mod": module(), "target": _TARGET, "params": None, "relax_pipeline": "default",
            "tir_pipeline": "default", "exec_mode": "bytecode", "system_lib": None,
        }  # fmt: skip
        return recipe(**{**usual, **options}) is not None

    assert kept()
    assert not kept(relax_pipeline=relax.get_pipeline("warploom"))
    assert not kept(target=tvm.target.Target("llvm"))
    with monkeypatch.context() as changed:
        changed.setenv("WARPLOOM_AUTOTUNE", "1")
        assert not kept()
    with monkeypatch.context() as changed:
        changed.setattr(executable_cache, "MOST_BYTES", 5)
        assert not kept(params={"prompt": [tvm.runtime.tensor(np.zeros(3, "float16"))]})
    with monkeypatch.context() as changed:
        changed.setattr(executable_cache, "_has_database", lambda: True)
        assert not kept()
    with monkeypatch.context() as changed:
        changed.setitem(registered._legalizations, "relax.add", print)
        assert registered.changed_legalization() == "relax.add"
        assert not kept()
    with observe_compilations() as compilations:
        relax.build(module(), target=_TARGET)
    assert compilations and not _models(cache)


def test_a_damaged_entry_is_built_again_with_a_warning(cache, rng):
    relax.build(module(), target=_TARGET)
    (path,) = _models(cache)
    path.write_bytes(encode(path.name, Output(b"\x05" + bytes(7) + b"no executable", "", 0.0)))
    with pytest.warns(CacheWarning, match="compiled again") as caught:
        relax.build(module(), target=_TARGET)
    assert len(caught) == 1 and len(_models(cache)) == 1
