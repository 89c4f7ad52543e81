"""Names of generated kernels: legal, and different for kernels that differ."""

from __future__ import annotations

import dataclasses
import re
from functools import partial

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st

from warploom import programs
from warploom.decide import Config
from warploom.kernels import matmul_multistage, matmul_warp_specialised
from warploom.kernels.barrier_log import BarrierLog
from warploom.kernels.kernel_name import kernel_name
from warploom.kernels.matmul_spec import MatmulSpec
from warploom.target import cuda_target
from warploom.target.tensor_map import L2Promotion

IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "f16", "any", "none")
VALUES = st.one_of(
    st.none(), st.integers(-3, 5000), st.sampled_from(DTYPES), st.text(max_size=6),
    st.floats(0, 2), st.sampled_from(L2Promotion),
    st.lists(st.integers(-1, 300), max_size=3).map(tuple),
)  # fmt: skip
ARGUMENTS = st.dictionaries(st.sampled_from(["m", "n", "tile", "tile_n", "dtype", "l2"]), VALUES)


@given(ARGUMENTS, ARGUMENTS)
def test_different_arguments_have_different_names(one, other):
    names = [kernel_name("gemm", each) for each in (one, other)]
    assert all(IDENTIFIER.fullmatch(name) for name in names)
    # The order of arguments is no difference.
    if _plain(one) == _plain(other):
        return
    assert names[0] != names[1]


def _plain(arguments: dict) -> set:
    return {(name, repr(value)) for name, value in arguments.items()}


CHOICES = {
    "dtype": ("float16", "bfloat16"), "layout": ("NT", "NN", "TN"), "stages": (1, 2, 3),
    "tile": ((64, 64, 64), (128, 64, 32), (128, 128, 64)), "consumers": (1, 2),
    "registers": (None, (40, 232)), "group": (1, 8), "out_dtype": ("float32", "float16"),
    "l2_promotion": tuple(L2Promotion), "log": (None, BarrierLog(), BarrierLog(steps=2)),
    "ctas_per_sm": (1, 2),
}  # fmt: skip


@given(st.lists(st.fixed_dictionaries({n: st.sampled_from(v) for n, v in CHOICES.items()})))
def test_different_configs_have_different_names(several):
    fields = {one.name: one.default for one in dataclasses.fields(MatmulSpec)}
    names = {repr(one): kernel_name("matmul", one, fields) for one in several}
    assert len(set(names.values())) == len(names)


def test_what_the_default_is_says_nothing():
    assert kernel_name("f", {"m": 1, "group": 8}, {"group": 8}) == "f_m1"
    assert kernel_name("f", {"config": Config(), "m": None}) == "f_m_any"
    assert kernel_name("f", {"config": Config(stages=3)}) == "f_stages3"
    assert kernel_name("f", {"dtype": "float8_e4m3fn"}) == "f_dtype_e4m3"
    for one, other in (("float16", "f16"), (None, "any"), (64, "64"), (1, 1.0), ((1, 2), "1x2")):
        assert kernel_name("f", {"x": one}) != kernel_name("f", {"x": other})


#: Generator -> calls that must not collide; the first two differ in a size only.
CALLS = {
    "gemm": (
        partial(programs.gemm, Config(cluster_m=2), 512, 256),
        partial(programs.gemm, Config(cluster_m=2), 512, 512),
        partial(programs.gemm, Config(cluster_m=2), 512, 256, 300),
        partial(programs.gemm, Config(cluster_m=2), 512, 256, dtype="bfloat16"),
        partial(programs.gemm, Config(cluster_m=2), 512, 256, layout="NN"),
        partial(programs.gemm, Config(swap_ab=True, tile_m=8), 512, 256),
        partial(programs.gemm, Config(cluster_m=2), 512, 256, stream_k=True),
        partial(programs.gemm, Config(cluster_m=2), 512, 256, cluster=(1, 1)),
    ),
    "matmul_multistage": (
        partial(matmul_multistage, 64, 64, 64), partial(matmul_multistage, 128, 64, 64),
        partial(matmul_multistage, None, 64, 64),
        *(partial(matmul_multistage, 64, 64, 64, **{name: value}) for name, value in (
            ("stages", 2), ("group", 1), ("l2_promotion", L2Promotion.B256), ("layout", "TN"),
            ("log", BarrierLog()), ("log", BarrierLog(steps=1)), ("dtype", "bfloat16"))),
        partial(matmul_warp_specialised, 64, 64, 64),
        partial(matmul_warp_specialised, 64, 64, 64, registers=(40, 232)),
        partial(matmul_warp_specialised, 64, 64, 64, registers=(40, 224)),
    ),
    "attention": (
        partial(programs.attention, 128, 64), partial(programs.attention, 256, 64),
        partial(programs.attention, 128, 128),
        partial(programs.attention, 128, 64, causal=True),
        partial(programs.attention, 128, 64, scale=0.5),
        partial(programs.attention, 128, 64, scale=0.25),
    ),
    "programs": (
        partial(programs.gemm_grouped, 4, 512, 256), partial(programs.gemm_grouped, 8, 512, 256),
        partial(programs.gemm_quantised, 512, 256), partial(programs.gemm_quantised, 512, 512),
        partial(programs.gemm_block_scaled, 512, 256),
        partial(programs.gemm_block_scaled, 512, 256, weights_policy="evict_first"),
        partial(programs.gemm_grouped_block_scaled, 4, 512, 256),
        partial(programs.conv2d, 1, 16, 16, 64, 64), partial(programs.conv2d, 2, 16, 16, 64, 64),
        partial(programs.conv2d, 1, 16, 16, 64, 64, relu=False),
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", CALLS)
@pytest.mark.some(2)
def test_generators_name_what_they_were_asked_for(family):
    functions = [call() for call in CALLS[family]]
    names = [str(one.attrs["global_symbol"]) for one in functions]
    assert len(set(names)) == len(names), sorted(names)
    assert all(IDENTIFIER.fullmatch(one) for one in names)
    tvm.IRModule(dict(zip(names, functions, strict=True)))


@pytest.mark.in_turn(3)
@pytest.mark.gpu
def test_several_kernels_in_one_module(rng):
    """Shapes and options side by side: generated kernels and tile programs, under their names."""
    config = Config(tile_m=64, tile_n=64, consumers=1, stages=2)
    shapes = [(64, 64, 64), (70, 64, 64), (64, 128, 64), (64, 64, 128)]
    small = {"tile": (64, 64, 64), "out_dtype": "float16"}
    kernels = [(matmul_multistage(*shape, **small), shape) for shape in shapes]
    kernels += [
        (matmul_warp_specialised(*shapes[0], stages=stages, **small), shapes[0])
        for stages in (1, 2)
    ]
    kernels += [(programs.gemm(config, n, k, m), (m, n, k)) for m, n, k in shapes[:3]]
    module = tvm.IRModule({str(one.attrs["global_symbol"]): one for one, _ in kernels})
    assert len(module.functions) == len(kernels)
    executable = tvm.compile(module, cuda_target("h200"), tir_pipeline="warploom")
    device = tvm.cuda(0)
    for func, (m, n, k) in kernels:
        a, b = (rng.standard_normal((rows, k)).astype("float16") for rows in (m, n))
        c = tvm.runtime.tensor(np.full((m, n), np.nan, "float16"), device)
        arguments = [tvm.runtime.tensor(one, device) for one in (a, b)]
        executable[str(func.attrs["global_symbol"])](*arguments, c)
        expected = a.astype("float64") @ b.astype("float64").T
        np.testing.assert_allclose(c.numpy(), expected, rtol=2e-3, atol=2e-3)
