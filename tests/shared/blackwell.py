"""A device with tensor memory for the tests: a Blackwell GPU, or the emulated one."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm.tirx import PrimFunc

from warploom.target import SM100A, cuda_target

#: Elements of K of one scale factor.
SCALE_VECTOR = 32
#: CUDA devices to look at.
DEVICES = 16


@functools.cache
def find_device() -> tvm.runtime.Device | None:
    """The first CUDA device of architecture sm_100a, or None."""
    version = "{}.{}".format(*SM100A.compute_capability)
    devices = map(tvm.cuda, range(DEVICES))
    return next((d for d in devices if d.exist and d.compute_version == version), None)


def device() -> tvm.runtime.Device:
    """As :func:`find_device`, but skips the test where there is none."""
    found = find_device()
    if found is None:
        pytest.skip("needs a device of compute capability 10.0")
    return found


def compile_function(function: PrimFunc) -> tvm.runtime.Executable:
    """Compile a program for sm_100a."""
    module = tvm.IRModule({"main": function})
    return tvm.compile(module, target=cuda_target(SM100A.name), tir_pipeline="tirx")


def random_scales(rng: np.random.Generator, rows: int, k: int) -> np.ndarray:
    """Powers of two between 1/16 and 16, one for each block."""
    exponents = rng.integers(-4, 5, (rows, -(-k // SCALE_VECTOR)))
    return (2.0**exponents).astype(ml_dtypes.float8_e8m0fnu)


def scaled(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """What the quantised ``values`` stand for."""
    factors = np.repeat(scales.astype(np.float64), SCALE_VECTOR, axis=1)
    return values.astype(np.float64) * factors[:, : values.shape[1]]
