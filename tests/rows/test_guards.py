"""Elements that are read under a condition: rotations, concatenations, paddings."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns bfloat16)
import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.relax.frontend.nn.llm.position_embedding import llama_rope_with_position_map

import warploom
from warploom import emulator
from warploom.errors import Decline
from warploom.gemm.recognition import recognise
from warploom.rows import read_rows, row_kernel
from warploom.rows.choose import arranged
from warploom.rows.vectors import vectors_of

_TARGET = warploom.cuda_target("h200")


def _rotated(x: np.ndarray, places: np.ndarray, dim: int, theta: float) -> np.ndarray:
    """The first numbers of each head turned by the angles of its place."""
    angles = places[:, None] / theta ** ((np.arange(dim) * 2 % dim) / dim)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    low, high = np.split(x[..., :dim], 2, -1)
    turned = x[..., :dim] * cos + np.concatenate((-high, low), -1) * sin
    return np.concatenate((turned, x[..., dim:]), -1)


@pytest.mark.gpu
@pytest.mark.parametrize("apply", [0, 1])
@pytest.mark.parametrize(
    ("dtype", "dim", "heads", "kv_heads", "rotary"),
    [("float16", 64, 8, 2, 64), ("bfloat16", 128, 7, 1, 128), ("float16", 80, 4, 4, 40)],
)
@pytest.mark.some(3)
def test_heads_are_rotated_and_split(
    dtype: str, dim: int, heads: int, kv_heads: int, rotary: int, apply: int,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """TVM's own rotation of queries and keys; the places are a view into larger memory."""
    theta = 10000.0
    made = llama_rope_with_position_map(theta, 1.0, dim, heads, kv_heads, dtype, {}, rotary)
    function, plan = arranged(read_rows(made))
    # Halves of 20 begin within a vector.
    assert plan.vector == 8 and len(vectors_of(function, plan)) == (1 if rotary == 40 else 3)
    kernel = row_kernel(read_rows(made)).with_attr("global_symbol", "main")
    device, tokens = tvm.cuda(0), 5
    x = rng.standard_normal((tokens, heads + 2 * kv_heads, dim)).astype(dtype)
    places = rng.integers(0, 500, tokens + 3).astype("int32")
    outs = [
        tvm.runtime.tensor(np.full((tokens, count, dim), np.nan).astype(dtype), device)
        for count in (heads, kv_heads, kv_heads)
    ]
    view = tvm.runtime.tensor(places, device)._create_view((tokens,), "int32", 12)
    executable = tvm.compile(tvm.IRModule({"main": kernel}), _TARGET)
    executable["main"](tvm.runtime.tensor(x, device), view, *outs, apply)
    wide = x.astype(np.float64)
    turned = _rotated(wide, places[3:], rotary, theta) if apply else wide
    wanted = np.concatenate((turned[:, : heads + kv_heads], wide[:, heads + kv_heads :]), 1)
    found = np.concatenate([one.numpy().astype(np.float64) for one in outs], 1)
    np.testing.assert_allclose(found, wanted, atol=2e-3 if dtype == "float16" else 2e-2)


_LLAMA = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_YARN = {"factor": 40.0, "beta_fast": 32, "beta_slow": 1, "inv_theta_log_scale": 0.05}
_TRAINED = {"original_max_position_embeddings": 256}


@pytest.mark.gpu
@pytest.mark.parametrize("rotary", [64, 32])
@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "gptj"}, {"rope_type": "llama3", **_LLAMA, **_TRAINED},
        {"rope_type": "llama4", **_LLAMA, **_TRAINED}, {"rope_type": "yarn", **_YARN, **_TRAINED},
    ],
    ids=lambda scaling: scaling["rope_type"],
)  # fmt: skip
@pytest.mark.some(3)
def test_every_rotation_has_a_row_kernel(
    scaling: dict[str, Any], rotary: int, rng: np.random.Generator
) -> None:
    """Neighbours or halves turn together, by angles of any scaling; TVM's CPU code agrees."""
    dim, heads, kv_heads, tokens = 64, 3, 1, 6
    sizes = (10000.0, 1.0, dim, heads, kv_heads)
    made = llama_rope_with_position_map(*sizes, "float16", scaling, rotary)
    kernel = row_kernel(read_rows(made)).with_attr("global_symbol", "main")
    wide = llama_rope_with_position_map(*sizes, "float32", scaling, rotary)
    x = rng.standard_normal((tokens, heads + 2 * kv_heads, dim)).astype("float16")
    places = rng.integers(0, 500, tokens).astype("int32")
    found = []
    for function, target, device in [
        (kernel, _TARGET, tvm.cuda(0)),
        (wide.with_attr("global_symbol", "main"), tvm.target.Target("llvm"), tvm.cpu(0)),
    ]:
        dtype = "float16" if function is kernel else "float32"
        outs = [
            tvm.runtime.tensor(np.full((tokens, count, dim), np.nan, dtype), device)
            for count in (heads, kv_heads, kv_heads)
        ]
        executable = tvm.compile(tvm.IRModule({"main": function}), target)
        of_positions = tvm.runtime.tensor(places, device)
        executable["main"](tvm.runtime.tensor(x.astype(dtype), device), of_positions, *outs, 1)
        found.append(np.concatenate([one.numpy().astype(np.float64) for one in outs], 1))
    np.testing.assert_allclose(*found, atol=3e-3)


@pytest.mark.gpu
@pytest.mark.parametrize(("parts", "loads"), [((16, 24), 2), ((12, 20), 0), ((8, 8, 16), 3)])
def test_parts_are_concatenated(
    parts: tuple[int, ...], loads: int, rng: np.random.Generator
) -> None:
    """A part that begins within a vector is read element by element."""
    m = te.var("m")
    inputs = [te.placeholder((m, size), "float16", f"x{i}") for i, size in enumerate(parts)]
    made = te.create_prim_func([*inputs, topi.concatenate(inputs, 1)])
    function, plan = arranged(read_rows(made))
    assert len(vectors_of(function, plan)) == loads
    kernel = row_kernel(read_rows(made)).with_attr("global_symbol", "main")
    arrays = [rng.standard_normal((5, size)).astype("float16") for size in parts]
    out = np.full((5, sum(parts)), np.nan, "float16")
    found = emulator.run(kernel, [*arrays, out]).outputs[-1]
    np.testing.assert_array_equal(found, np.concatenate(arrays, 1))


def test_a_choice_within_an_index_is_no_condition() -> None:
    """It says which element is read, and not whether: such rows are left to TVM."""
    m, plain, half = te.var("m"), 32, 8
    x = te.placeholder((m, plain), "float16", "x")
    turned = te.placeholder((m, 2 * half), "float16", "turned")

    def element(i: Any, j: Any) -> Any:
        at = j - plain
        other = turned[i, tvm.tirx.if_then_else(at < half, at + half, at - half)]
        return tvm.tirx.if_then_else(j < plain, x[i, j], turned[i, at] + other)

    made = te.create_prim_func([x, turned, te.compute((m, plain + 2 * half), element)])
    with pytest.raises(Decline, match=r"turned is read at .* no vector in memory"):
        row_kernel(read_rows(made))


def _stored(condition: Any) -> tvm.tirx.PrimFunc:
    """A function that stores rows of one result or of another one."""
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def split(x: T.Buffer((8, 32), "float16"), a: T.Buffer((8, 32), "float16"),
              b: T.Buffer((8, 32), "float16")):  # fmt: skip
        for i, j in T.grid(8, 32):
            with T.sblock("split"):
                v, w = T.axis.remap("SS", [i, j])
                if condition(v, w):
                    a[v, w] = x[v, w]
                else:
                    b[v, w] = x[v, w]

    return split


def test_rows_are_stored_as_a_whole() -> None:
    with pytest.raises(Decline, match="as a whole"):
        read_rows(_stored(lambda _, w: w < 16))


def test_a_matmul_stores_all_of_its_results() -> None:
    with pytest.raises(Decline, match="under a condition"):
        recognise(_stored(lambda v, _: v < 4))
