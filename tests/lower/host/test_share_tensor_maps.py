"""Kernels get each tensor map once, and no two different ones become the same."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm

from tests.shared import gemm_functions
from tests.shared.gemm_functions import Function
from warploom import emulator
from warploom.decide import Config
from warploom.gemm import recognise
from warploom.gemm.generate import tile_program
from warploom.target import cuda_target


def compiled(function: Function, config: Config) -> Any:
    """The executable of a function."""
    program = tile_program(recognise(function.func), config)
    module = tvm.IRModule({"main": program.with_attr("global_symbol", "main")})
    return tvm.compile(module, cuda_target("sm_90a"), tir_pipeline="warploom")


def maps(executable: Any) -> set[str]:
    """Names of the tensor maps among the parameters of the kernel."""
    source = executable.mod.imports[0].inspect_source()
    return set(re.findall(r"CUtensorMap (\w+)", source))


@pytest.mark.parametrize(
    ("config", "out", "names"),
    [
        # 64 columns at a time.
        (Config(128, 256, 64, 3), "float16", {"A", "B", "C"}),
        # 16 rows at a time, and the last 8.
        (Config(72, 128, 64, 3, swap_ab=True), "float32", {"A", "B", "C", "C_1"}),
    ],
)
def test_chunks_of_a_shape_share_a_map(config, out, names, rng):
    function = gemm_functions.matmul(150, 264, 136, out=out)
    found = compiled(function, config)
    assert maps(found) == {re.sub(r"^(.)", r"\1_tensormap", name) for name in names}
    run(function, found, rng)


def test_tensors_that_are_alike_have_their_own_maps(rng):
    function = gemm_functions.matmul(128, 128, 128)
    found = compiled(function, Config(64, 64, 64, 2, consumers=1))
    assert maps(found) == {"A_tensormap", "B_tensormap", "C_tensormap"}
    run(function, found, rng)


def test_maps_of_sizes_that_the_launch_knows(rng):
    function = gemm_functions.matmul(None, 264)
    found = compiled(function, Config(72, 128, 64, 3, swap_ab=True))
    assert maps(found) == {"A_tensormap", "B_tensormap", "C_tensormap", "C_tensormap_1"}
    for rows in (1, 75, 200):
        run(function, found, rng, m=rows)


def run(function: Function, executable: Any, rng: np.random.Generator, **sizes: int) -> None:
    """Launch on the emulator, and compare."""
    if not emulator.is_enabled():
        pytest.skip("kernels run on the emulator")
    arguments = function.arguments(rng, **sizes)
    tensors = [tvm.runtime.tensor(one, tvm.device("cuda")) for one in arguments]
    executable["main"](*tensors)
    function.assert_right([tensors[-1].numpy()], arguments)
