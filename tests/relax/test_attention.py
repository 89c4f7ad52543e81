"""Attention of models: as an operator, written out, with transposes around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op
from tvm.relax.transform import LegalizeOps
from tvm.tirx import Var

import warploom
from warploom.relax.attention_operator import attention_call, written_out
from warploom.relax.find_attention import FindAttention
from warploom.relax.inspect import inspect
from warploom.relax.permutations import JoinPermutations

_TARGET = warploom.cuda_target("h200")
_HEADS = (0, 2, 1, 3)
_SIZES = {"b": 2, "n": 50, "m": 33}


def _module(make: Callable[..., relax.Expr], *types: relax.TensorType) -> tvm.IRModule:
    """``make(emit, *tensors)`` as the function ``main``."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{number}", ty) for number, ty in enumerate(types)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(builder.emit, *params))
        builder.emit_func_output(out)
    return builder.get()


def _tensor(*shape: Any, dtype: str = "float16") -> relax.TensorType:
    return relax.TensorType(shape, dtype)


def _arrays(types: tuple[relax.TensorType, ...], rng: np.random.Generator) -> list[np.ndarray]:
    return [
        rng.standard_normal([_SIZES.get(str(e)) or int(e) for e in ty.shape.values]).astype(
            str(ty.dtype)
        )
        for ty in types
    ]


def _run(module: tvm.IRModule, arrays: list[np.ndarray], target: Any = _TARGET) -> np.ndarray:
    device = tvm.cpu() if target == "llvm" else tvm.cuda(0)
    machine = relax.VirtualMachine(relax.build(module, target), device)
    found = machine["main"](*(tvm.runtime.tensor(array, device) for array in arrays))
    return found.numpy().astype(float)


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _kernels(module: tvm.IRModule) -> list[str]:
    """Names of functions that move or compute something."""
    return [one.name for one in inspect(module) if "it only reshapes" not in one.reason]


def _capped(emit: Any, logits: relax.Expr, cap: float) -> relax.Expr:
    """Logits with a soft cap, as Gemma 2 has them."""
    number = relax.const(np.array(cap, str(logits.ty.dtype)))
    return emit(op.multiply(emit(op.tanh(emit(op.divide(logits, number)))), number))


def _eager(
    emit: Any, x: relax.Expr, context: relax.Expr, *bias: relax.Expr, heads: int = 4,
    wide: bool = False, cap: float | None = None,
) -> relax.Expr:  # fmt: skip
    """Attention as models of PyTorch write it, of ``[batch, tokens, heads * elements]``."""
    batch, tokens, width = x.ty.shape.values
    keys, elements = context.ty.shape.values[1], int(width) // heads
    q = emit(op.permute_dims(emit(op.reshape(x, (batch, tokens, heads, elements))), _HEADS))
    k = emit(op.permute_dims(emit(op.reshape(context, (batch, keys, heads, elements))), _HEADS))
    scale = relax.const(np.float16(elements**0.5), "float16")
    logits = emit(op.divide(emit(op.matmul(q, emit(op.permute_dims(k, (0, 1, 3, 2))))), scale))
    if cap is not None:
        logits = _capped(emit, logits, cap)
    if bias:
        logits = emit(op.add(logits, bias[0]))
    if wide:
        logits = emit(op.astype(logits, "float32"))
    weights = emit(op.nn.softmax(logits, axis=-1))
    if wide:
        weights = emit(op.astype(weights, "float16"))
    out = emit(op.permute_dims(emit(op.matmul(weights, k)), _HEADS))
    return emit(op.reshape(out, (batch, tokens, width)))


def _eager_of_three(emit: Any, q: relax.Expr, k: relax.Expr, v: relax.Expr, *bias: relax.Expr):
    """Attention of ``[batch, tokens, elements]``; factor and bias on the left."""
    product = emit(op.matmul(q, emit(op.permute_dims(k, (0, 2, 1)))))
    logits = emit(op.multiply(relax.const(np.float16(0.125), "float16"), product))
    if bias:
        logits = emit(op.add(bias[0], logits))
    return emit(op.matmul(emit(op.nn.softmax(logits, axis=2)), v))


_B, _N, _M = (Var(name, "int64") for name in "bnm")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("make", "types"),
    [
        (_eager, (_tensor(2, 77, 160), _tensor(2, 50, 160))),
        (lambda *a: _eager(*a, wide=True),
         (_tensor(_B, _N, 160), _tensor(_B, _M, 160), _tensor(_B, 1, 1, _M))),
        (_eager, (_tensor(1, 17, 256), _tensor(1, 17, 256), _tensor(4, 1, 17))),
        (lambda *a: _eager(*a, cap=2.0), (_tensor(2, 77, 160), _tensor(2, 50, 160))),
        (lambda *a: _eager(*a, cap=4.0, wide=True),
         (_tensor(_B, _N, 160), _tensor(_B, _M, 160), _tensor(_B, 1, 1, _M))),
        (_eager_of_three, (_tensor(3, 70, 64), _tensor(3, 80, 64), _tensor(3, 80, 24))),
        (_eager_of_three,
         (_tensor(_B, _N, 64), _tensor(_B, _M, 64), _tensor(_B, _M, 24), _tensor(_N, _M))),
        (_eager_of_three,
         (_tensor(3, 70, 64), _tensor(3, 80, 64), _tensor(3, 80, 24), _tensor(80))),
    ],
    ids=["cross", "dynamic, wide softmax", "bias of heads", "soft cap", "soft cap, dynamic",
         "three", "three, dynamic", "vector"],
)  # fmt: skip
@pytest.mark.some(2)
def test_attention_that_is_written_out_is_one_kernel(make, types, rng) -> None:
    module = _module(make, *types)
    assert _kernels(module) == ["attention"]
    arrays = _arrays(types, rng)
    found, of_tvm = _run(module, arrays), _run(module, arrays, "llvm")
    assert np.abs(found - of_tvm).max() < 0.02 * np.abs(of_tvm).max()  # TVM rounds the logits


@pytest.mark.gpu
@pytest.mark.parametrize(
    "types",
    [
        (_tensor(2, 4, 77, 40),) * 3,
        (_tensor(2, 4, 77, 64), *(_tensor(2, 4, 197, 64),) * 2, _tensor(2, 1, 1, 197)),
        (_tensor(_B, 4, _N, 64), _tensor(_B, 4, _M, 64), _tensor(_B, 4, _M, 32),
         _tensor(_B, 1, _N, _M)),
    ],
    ids=["heads of 40", "bias", "dynamic"],
)  # fmt: skip
@pytest.mark.some(1)
def test_transposes_around_attention_are_no_kernels(types, rng) -> None:
    def make(emit: Any, q: relax.Expr, k: relax.Expr, v: relax.Expr, *bias: relax.Expr):
        turned = [emit(op.permute_dims(x, _HEADS)) for x in (q, k, v)]
        return emit(op.permute_dims(emit(op.nn.attention(*turned, *bias)), _HEADS))

    module = _module(make, *types)
    assert _kernels(module) == ["attention"]
    arrays = _arrays(types, rng)
    q, k, v, *bias = (array.astype(float) for array in arrays)
    logits = q @ k.swapaxes(2, 3) / q.shape[3] ** 0.5 + (bias[0] if bias else 0)
    exact = _softmax(logits) @ v
    assert np.abs(_run(module, arrays) - exact).max() < 2e-3 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda emit, s: emit(op.nn.softmax(s, axis=1)), "another axis"),
        (lambda emit, s: emit(op.nn.relu(s)), "no softmax"),
        (lambda emit, s: emit(op.nn.softmax(emit(op.nn.relu(s)), axis=-1)), "other logits"),
        (lambda emit, s: emit(op.nn.softmax(emit(op.multiply(s, s)), axis=-1)), "no constant"),
        (lambda emit, s: emit(op.reshape(emit(op.nn.softmax(emit(op.reshape(s, (2, 4, 32, 128))),
                                                            axis=-1)), s.ty.shape)),
         "other rows"),
        (lambda emit, s: emit(op.nn.softmax(_capped(emit, s, -3.0), axis=-1)), "a cap below 0"),
        (lambda emit, s: emit(op.nn.softmax(_capped(emit, emit(op.add(s, s)), 3.0), axis=-1)),
         "a sum in the cap"),
    ],
)  # fmt: skip
def test_what_is_no_attention_stays(change, why) -> None:
    def make(emit: Any, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        logits = emit(op.matmul(q, emit(op.permute_dims(k, (0, 1, 3, 2)))))
        return emit(op.matmul(change(emit, logits), v))

    module = _module(make, *(_tensor(2, 4, 64, 64),) * 3)
    with _TARGET:
        assert tvm_ffi.structural_equal(FindAttention()(module), module), why
    wide = _module(lambda emit, *x: make(emit, *x), *(_tensor(2, 4, 64, 64, dtype="float32"),) * 3)
    with _TARGET:
        assert tvm_ffi.structural_equal(FindAttention()(wide), wide)


@pytest.mark.gpu
@pytest.mark.parametrize("causal", ["", "TopLeft", "BottomRight"])
@pytest.mark.parametrize("biases", [0, 1, 2, 4])
@pytest.mark.parametrize("cap", [1.5, None])
@pytest.mark.some(2)
def test_an_attention_of_our_own_can_be_written_out(
    causal: str, biases: int, cap: float | None, rng: np.random.Generator
) -> None:
    """As it is where no kernel computes it, and where a kernel cannot be built."""
    types = [_tensor(4, 9, 2, 40), *[_tensor(4, 12, 2, 40)] * 2]
    types += [_tensor(biases, 2, 9, 12, dtype="float32")] if biases else []

    def call(emit: Any, *operands: relax.Expr) -> relax.Expr:
        return emit(attention_call(operands, 0.4, causal, cap))

    def write(emit: Any, *operands: relax.Expr) -> relax.Expr:
        made = relax.BlockBuilder().normalize(call(lambda x: x, *operands))
        return emit(written_out(made, emit))

    modules = _module(call, *types), _module(write, *types)
    assert _kernels(modules[0]) == ["attention"]
    arrays = _arrays(tuple(types), rng)
    q, k, v, *bias = (array.astype(float) for array in arrays)
    logits = np.einsum("bnhd,bmhd->bhnm", q, k) * 0.4
    logits = logits if cap is None else cap * np.tanh(logits / cap)
    logits += np.tile(bias[0], (4 // biases, 1, 1, 1)) if biases else 0
    if causal:
        seen = np.tri(9, 12, 3 if causal == "BottomRight" else 0, dtype=bool)
        logits = np.where(seen, logits, -np.inf)
    exact = np.einsum("bhnm,bmhd->bnhd", _softmax(logits), v)
    for module, target in zip(modules, (_TARGET, "llvm"), strict=True):
        assert np.abs(_run(module, arrays, target) - exact).max() < 3e-3 * np.abs(exact).max()


def test_logits_that_are_read_elsewhere_are_kept() -> None:
    def make(emit: Any, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        logits = emit(op.matmul(q, emit(op.permute_dims(k, (0, 1, 3, 2)))))
        weights = emit(op.nn.softmax(logits, axis=-1))
        return emit(relax.Tuple([emit(op.matmul(weights, v)), logits]))

    module = _module(make, *(_tensor(2, 4, 64, 64),) * 3)
    with _TARGET:
        changed = FindAttention()(module)
    text = changed.script()
    assert text.count("R.nn.attention") == 1 and text.count("R.matmul") == 1


def test_random_permutations_join(rng: np.random.Generator) -> None:
    for _ in range(20):
        shape = [int(e) for e in rng.integers(1, 5, 4)]
        orders = [[int(a) for a in rng.permutation(4)] for _ in range(int(rng.integers(1, 5)))]

        def make(emit: Any, x: relax.Expr, orders: Any = orders) -> relax.Expr:
            for order in orders:
                x = emit(op.permute_dims(x, [a - 4 if a == 1 else a for a in order]))
            return x

        module = _module(make, _tensor(*shape))
        joined = JoinPermutations()(module)
        x = rng.standard_normal(shape).astype(np.float16)
        exact = x
        for order in orders:
            exact = exact.transpose(order)
        whole = list(range(4))
        for order in orders:
            whole = [whole[axis] for axis in order]
        # Dimensions of one element may stand anywhere: moving them is a reshape.
        moved = [axis for axis in whole if shape[axis] > 1]
        needed = moved != sorted(moved)
        assert joined.script().count("R.permute_dims") == needed, orders
        machine = relax.VirtualMachine(relax.build(LegalizeOps()(joined), "llvm"), tvm.cpu())
        assert (machine["main"](tvm.runtime.tensor(x)).numpy() == exact).all(), orders
