"""Kernels compiled ahead of measurements: in processes, kept, and run where TVM is missing."""

from __future__ import annotations

import json
import sys

import cloudpickle
import numpy as np
import pytest
import tvm

from warploom import emulator
from warploom.errors import WarploomError
from warploom.gemm_shape import GemmShape
from warploom.runtime.emulator_libraries import find_libraries
from warploom_bench import kernels as module
from warploom_bench.competitors import default, tile_program
from warploom_bench.kernels import RUNTIME, Kernel, Kernels

# Processes that compile cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SHAPE = GemmShape("", 64, 72, 64, "float16")

#: Runs a kernel with TVM's runtime libraries and tvm_ffi; ``import tvm`` fails.
_WITHOUT_TVM = """
import ctypes, sys
from pathlib import Path

class NoTvm:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "tvm":
            raise ModuleNotFoundError(name)

import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name.split(".")[0] == "tvm" else find(name, *a)
sys.meta_path.insert(0, NoTvm())
from warploom_bench import __main__, attention, competitors, dequant, gemm
from warploom_bench.kernels import Kernel, Kernels
from warploom.gemm_shape import GemmShape
import numpy as np

folder, *emulator = sys.argv[1:]
for driver in emulator:  # in the place of the driver
    ctypes.CDLL(driver, ctypes.RTLD_GLOBAL)
shape = GemmShape("", 64, 72, 64, "float16")
kernels = Kernels(Path(folder))
run = kernels.function(Kernel(competitors.default, (shape, ())))
import tvm_ffi
rng = np.random.default_rng(3)
a, b = (rng.standard_normal((rows, 64)).astype("float16") for rows in (64, 72))
device = tvm_ffi.device("cuda", 0)
allocate = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")
def on_device(array):
    made = allocate(tvm_ffi.Shape(array.shape), tvm_ffi.dtype("float16"), device, None)
    copy = tvm_ffi.get_global_func("runtime.TVMTensorCopyFromBytes")
    copy(made, ctypes.c_void_p(array.ctypes.data), array.nbytes)
    return made
c = np.full((64, 72), np.nan, "float16")
operands = [on_device(one) for one in (a, b, c)]
run(*operands)
copy = tvm_ffi.get_global_func("runtime.TVMTensorCopyToBytes")
copy(operands[2], ctypes.c_void_p(c.ctypes.data), c.nbytes)
exact = a.astype(float) @ b.astype(float).T
error = np.abs(c - exact).max() / np.abs(exact).max()
print("tvm" in sys.modules, error < 1e-3)
try:
    kernels.function(Kernel(competitors.tile_program, (shape, ())))
except Exception as problem:
    print(problem)
"""


def nothing():
    return None


def broken():
    raise ValueError("this maker is broken")


@pytest.mark.gpu
def test_kernels_are_compiled_once_and_run_without_tvm(tmp_path, rng, run_python, capsys):
    wanted = [Kernel(default, (SHAPE, ())), Kernel(nothing), Kernel(broken)]
    made = Kernels(tmp_path, workers=1)
    assert made.compile(wanted) == 1
    made.add_runtime()
    assert "3 kernels compiled" in capsys.readouterr().out
    a, b = (rng.standard_normal((rows, 64)).astype(np.float16) for rows in (64, 72))
    c = np.full((64, 72), np.nan, np.float16)
    tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in (a, b, c)]
    again = Kernels(tmp_path)
    again.function(wanted[0])(*tensors)
    exact = a.astype(float) @ b.T.astype(float)
    assert np.abs(tensors[2].numpy() - exact).max() <= 2.0**-10 * np.abs(exact).max()
    assert again.function(wanted[1]) is None
    assert not capsys.readouterr().out, "nothing was compiled again"
    with pytest.raises(WarploomError, match="ValueError: this maker is broken"):
        made.function(wanted[2])

    outcome = run_python(_WITHOUT_TVM.replace("sys.argv[1:]", repr([
        str(tmp_path), *(map(str, find_libraries()) if emulator.is_enabled() else ())
    ])))  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr
    first, second = outcome.stdout.strip().splitlines()
    assert first == "False True"
    assert "lacks 1 kernels" in second and "TVM is not installed" in second


def test_keys_tell_kernels_apart_and_can_be_read():
    shapes = [SHAPE, GemmShape("", 64, 72, 64, "float16", layout="NN")]
    kernels = [Kernel(maker, (one, ())) for maker in (default, tile_program) for one in shapes]
    kernels += [Kernel(default, (SHAPE, ("folder",))), Kernel(nothing)]
    assert len({one.key for one in kernels}) == len(kernels)
    assert kernels[0].key.startswith("default-64x72x64-float16-")


def test_kernels_of_other_sources_are_not_measured(tmp_path, monkeypatch):
    index = {"sources": "another", "kernels": {"a": True}}
    (tmp_path / "index.json").write_text(json.dumps(index))
    assert Kernels(tmp_path)._index == {}, "they would be compiled again"
    monkeypatch.setattr(module, "_has_compiler", lambda: False)
    with pytest.raises(WarploomError, match="compiled by other sources of warploom"):
        Kernels(tmp_path)


def test_a_folder_without_runtime_is_explained(tmp_path, monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WarploomError, match=f"does not load from .*{RUNTIME[0]}"):
        module.load_runtime(tmp_path)
