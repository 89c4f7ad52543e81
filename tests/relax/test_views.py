"""Views, reshapes, casts and constants of exported models: what passes leave of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import warploom
from warploom.errors import IllegalCombination
from warploom.programs.heads_in_memory import HeadsInMemory
from warploom.relax.attention_operands import placed
from warploom.relax.drop_views import DropViews
from warploom.relax.fold_constants import FoldConstants
from warploom.relax.inspect import inspect
from warploom.relax.sink_reshapes import SinkReshapes
from warploom.relax.strided_views import extent_of, strided_view


def _module(make: Callable[..., relax.Expr], *types: relax.TensorType) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{number}", ty) for number, ty in enumerate(types)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output((make(builder.emit, *params),))
        builder.emit_func_output(out)
    return builder.get()


def _tensor(*shape: Any, dtype: str = "float16") -> relax.TensorType:
    return relax.TensorType(shape, dtype)


def _run(module: tvm.IRModule, *arrays: np.ndarray) -> np.ndarray:
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    (found,) = machine["main"](*map(tvm.runtime.tensor, arrays))
    return found.numpy()


def _operators(module: tvm.IRModule) -> list[str]:
    names = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call):
            names.append(getattr(expr.op, "name", "").removeprefix("relax."))

    relax.analysis.post_order_visit(module["main"], visit)
    return names


def _value(builder: relax.BlockBuilder, expr: relax.Expr) -> relax.Expr:
    """What a variable is bound to; parameters to nothing."""
    found = builder.lookup_binding(expr) if isinstance(expr, relax.Var) else None
    return expr if found is None else found


def _random_view(
    rng: np.random.Generator, emit: Any, expr: relax.Expr, array: np.ndarray
) -> tuple[relax.Expr, np.ndarray]:
    """A random view of a tensor, and numpy's of the same."""
    shape = array.shape
    kind = rng.integers(5)
    if kind == 0:
        order = [int(axis) for axis in rng.permutation(len(shape))]
        return emit(op.permute_dims(expr, order)), array.transpose(order)
    axis = int(rng.integers(len(shape)))
    if kind == 1 and shape[axis] > 1:
        begin, step = int(rng.integers(shape[axis])), int(rng.integers(1, 3))
        part = emit(op.strided_slice(expr, [axis], [begin], [shape[axis]], [step]))
        return part, array[(slice(None),) * axis + (slice(begin, None, step),)]
    if kind == 2 and shape[axis] % 2 == 0:
        parts, number = emit(op.split(expr, 2, axis)), int(rng.integers(2))
        return emit(relax.TupleGetItem(parts, number)), np.split(array, 2, axis)[number]
    if kind == 3:
        made = [*shape[:axis], 1, *shape[axis:]]
        return emit(op.expand_dims(expr, axis)), array.reshape(made)
    if kind == 4 and shape[axis] % 2 == 0 and len(shape) < 6:
        made = [*shape[:axis], 2, shape[axis] // 2, *shape[axis + 1 :]]
        return emit(op.reshape(expr, made)), array.reshape(made)
    merged = [-1, *shape[2:]] if len(shape) > 2 else [-1]
    made = array.reshape(merged)
    return emit(op.reshape(expr, made.shape)), made


@pytest.mark.parametrize("number", range(20))
def test_strided_views_are_those_of_numpy(number: int, rng: np.random.Generator) -> None:
    shape = [int(extent) for extent in rng.choice([1, 2, 3, 4, 6], int(rng.integers(2, 5)))]
    source = np.arange(np.prod(shape)).reshape(shape)
    x = relax.Var("x", _tensor(*shape))
    builder, arrays = relax.BlockBuilder(), []
    with builder.function("main", [x]):
        with builder.dataflow():
            expr, array = x, source
            for _ in range(int(rng.integers(1, 7))):
                if array.size:
                    expr, array = _random_view(rng, builder.emit, expr, array)
                arrays.append((expr, array))
            out = builder.emit_output(expr)
        views = [strided_view(partial(_value, builder), one) for one, _ in arrays]
        builder.emit_func_output(out)
    of_memory = {x: source} | dict(arrays)
    taken = 0
    for view, (_, array) in zip(views, arrays, strict=True):
        places = np.full((), view.offset)
        for dimension in view.dimensions:
            steps = np.zeros((), int)
            for atom in dimension:
                steps = steps[..., None] + np.arange(atom.extent) * atom.stride
            places = places[..., None] + steps.reshape(-1)
        assert places.shape == array.shape == tuple(map(extent_of, view.dimensions))
        memory = of_memory[view.source].reshape(-1)  # a copy, where a source is no view itself
        np.testing.assert_array_equal(memory[places], array)
        taken += view.source.same_as(x)
    assert taken


@pytest.mark.parametrize(
    ("shape", "reshaped", "order", "first", "heads"),
    [
        ((2, 5, 3 * 32), (2, 5, 3, 4, 8), (2, 0, 1, 3, 4), 1, HeadsInMemory("bth", 12, 4)),
        ((5, 2, 3 * 32), (5, 2, 3, 4, 8), (2, 1, 0, 3, 4), 2, HeadsInMemory("tbh", 12, 8)),
        ((2, 5, 4 * 24), (2, 5, 4, 3, 8), (3, 0, 1, 2, 4), 1, HeadsInMemory("bth", 12, 1, 3)),
        ((3, 2, 4, 5, 8), (3, 2, 4, 5, 8), (0, 1, 3, 2, 4), 0, None),
        ((1, 2, 4, 5, 8), (1, 2, 4, 5, 8), (0, 1, 3, 2, 4), 0, HeadsInMemory("bht")),
    ],
    ids=["q, k, v", "nn.MultiheadAttention", "of each head", "heads first, a part", "heads first"],
)
def test_heads_are_found_in_the_tensor_that_they_are_parts_of(
    shape, reshaped, order, first, heads
) -> None:
    """Parts of a tensor, and none where heads of another batch lie behind them."""
    x = relax.Var("x", _tensor(*shape))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            all_of_it = builder.emit(op.permute_dims(builder.emit(op.reshape(x, reshaped)), order))
            part = builder.emit(op.strided_slice(all_of_it, [0], [first], [first + 1]))
            part = builder.emit(op.squeeze(part, [0]))
            out = builder.emit_output(part)
        found = placed(partial(_value, builder), part)
        builder.emit_func_output(out)
    if heads is None:
        assert found.tensor.same_as(part)
        return
    assert (found.tensor, found.heads, found.shape) == (x, heads, (2, 5, 4, 8))
    values = np.arange(np.prod(shape)).reshape(found.in_memory)
    kept = values.take(range(heads.first, values.shape[heads.order.index("h")], heads.step),
                       heads.order.index("h"))  # fmt: skip
    kept = kept.take(range(4), heads.order.index("h"))
    wanted = np.arange(np.prod(shape)).reshape(reshaped).transpose(order)[first]
    turned = kept.transpose([*(heads.order.index(letter) for letter in "bth"), 3])
    np.testing.assert_array_equal(turned, wanted)


def test_heads_that_a_tensor_does_not_have_are_named() -> None:
    with pytest.raises(IllegalCombination, match="head 3 of an operand is head 7"):
        HeadsInMemory("bth", 7, first=4).shape(1, 5, 4, 8)
    with pytest.raises(IllegalCombination, match="order is 'bt'"):
        HeadsInMemory("bt")


def _block(emit: Any, x: relax.Expr, w: relax.Expr, bias: relax.Expr) -> relax.Expr:
    """Linear layers, an activation, a residual and a norm, with reshapes as PyTorch has them."""
    batch, tokens, width = x.ty.shape.values
    rows = emit(op.reshape(x, (batch * tokens, width)))
    up = emit(op.reshape(emit(op.add(bias, emit(op.matmul(rows, w)))), (batch, tokens, width)))
    up = emit(op.nn.gelu(up))
    rows = emit(op.reshape(up, (batch * tokens, width)))
    down = emit(op.reshape(emit(op.matmul(rows, w)), (batch, tokens, width)))
    y = emit(op.add(x, down))
    left, right = (emit(relax.TupleGetItem(parts, n)) for parts in [emit(op.split(y, 2, -1))]
                   for n in range(2))  # fmt: skip
    y = emit(op.concat([emit(op.multiply(left, right)), right], -1))
    return emit(op.nn.softmax(emit(op.reshape(y, (batch * tokens, width))), axis=-1))


def test_reshapes_go_behind_what_follows_them(rng: np.random.Generator) -> None:
    types = _tensor(2, 3, 8, dtype="float32"), _tensor(8, 8, dtype="float32"), \
        _tensor(8, dtype="float32")  # fmt: skip
    module = _module(_block, *types)
    made = SinkReshapes()(module)
    arrays = [rng.standard_normal([int(e) for e in ty.shape.values]).astype("float32")
              for ty in types]  # fmt: skip
    np.testing.assert_allclose(_run(made, *arrays), _run(module, *arrays), rtol=1e-5)
    assert _operators(module).count("reshape") == 5
    assert _operators(made).count("reshape") == 1


def test_reshapes_stay_where_an_operator_tells_their_dimensions_apart(rng) -> None:
    def make(emit: Any, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return emit(op.exp(emit(op.add(emit(op.reshape(emit(op.exp(x)), (3, 4, 5))), y))))

    types = _tensor(12, 5, dtype="float32"), _tensor(3, 1, 5, dtype="float32")
    module = _module(make, *types)
    assert "reshape" in _operators(module)[:3]
    made = SinkReshapes()(module)
    arrays = [rng.standard_normal([int(e) for e in ty.shape.values]).astype("float32")
              for ty in types]  # fmt: skip
    np.testing.assert_allclose(_run(made, *arrays), _run(module, *arrays), rtol=1e-6)
    assert _operators(made) == _operators(module)


@pytest.mark.some(4)
@pytest.mark.parametrize("shape", [(2, 4, 6, 32), (48, 32), (1, 48, 1, 32)])
@pytest.mark.parametrize("biases", [0, 1, 2])
@pytest.mark.parametrize("shared", [False, True])
def test_a_residual_of_another_shape_is_an_epilogue(shape, biases: int, shared: bool, rng) -> None:
    """Attention of tokens, whose heads no reshape sinks through, is added to pixels."""

    def make(emit: Any, heads: Any, weight: Any, bias: Any, image: Any) -> relax.Expr:
        tokens = emit(op.reshape(heads, (2, 24, 16)))
        product = emit(op.matmul(tokens, weight))
        found = product
        for number in range(biases):
            found = emit(op.add(*((bias, found) if number else (found, bias))))
        image = emit(op.reshape(emit(op.nn.relu(image)), (2, 24, 32)))
        total = emit(op.add(image, found))
        return op.add(total, emit(op.nn.relu(product))) if shared else total

    shapes = (2, 24, 2, 8), (16, 32), (32,), shape
    module = _module(make, *(_tensor(*each) for each in shapes))
    made = SinkReshapes()(module)
    products = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and expr.op.name == "relax.matmul":
            products.append([int(extent) for extent in expr.ty.shape])

    relax.analysis.post_order_visit(made["main"], visit)
    # A product that others read is computed once, as it was.
    assert products == [[2, 24, 32] if shared else list(shape)]
    arrays = [rng.standard_normal(each).astype(np.float16) for each in shapes]
    np.testing.assert_array_equal(_run(made, *arrays), _run(module, *arrays))


@pytest.mark.parametrize("batch", [2, 16])
def test_weights_that_are_broadcast_stay_one_matrix(batch: int, rng) -> None:
    weight = rng.standard_normal((32, 24)).astype(np.float16)

    def make(emit: Any, x: Any) -> relax.Expr:
        turned = emit(op.permute_dims(emit(op.astype(relax.const(weight), "float16"))))
        return op.matmul(x, emit(op.broadcast_to(turned, (batch, 24, 32))))

    (report,) = (
        one for one in inspect(_module(make, _tensor(batch, 64, 24))) if one.problem is not None
    )
    assert (report.problem.m, report.problem.n, report.problem.batch) == (64 * batch, 32, 1)


def test_prompts_and_tokens_are_multiplied_as_rows(rng) -> None:
    """Heads that a model reshapes to ``[1, n, k]`` or ``[b, 1, k]`` become rows at once."""
    w = rng.standard_normal((24, 8)).astype("float32")

    def product(emit: Any, x: relax.Expr, w: relax.Expr) -> relax.Expr:
        first, second, heads, depth = x.ty.shape.values
        operand = emit(op.reshape(x, (first, second, heads * depth)))
        return op.nn.relu(emit(op.matmul(operand, w)))

    for shape in ((1, "n", 4, 6), ("b", 1, 4, 6), (1, 1, 4, 6), ("b", 3, 4, 6)):
        sizes = [tvm.tirx.Var(one, "int64") if isinstance(one, str) else one for one in shape]
        module = _module(
            product, _tensor(*sizes, dtype="float32"), _tensor(24, 8, dtype="float32")
        )
        made = SinkReshapes()(module)
        ranks = []

        def visit(expr: relax.Expr, ranks: list[int] = ranks) -> None:
            if isinstance(expr, relax.Call) and expr.op.name == "relax.matmul":
                ranks.append(len(expr.args[0].ty.shape.values))

        relax.analysis.post_order_visit(made["main"], visit)
        assert ranks == [3 if 3 in shape else 2], shape
        x = rng.standard_normal([5 if isinstance(one, str) else one for one in shape])
        x = x.astype("float32")
        wanted = np.maximum(x.reshape(*x.shape[:2], 24) @ w, 0)
        np.testing.assert_allclose(_run(made, x, w), wanted, rtol=1e-4, atol=1e-5)


def test_views_and_casts_that_change_nothing_are_left_out(rng) -> None:
    def make(emit: Any, x: relax.Expr, w: relax.Expr) -> relax.Expr:
        wide = emit(op.broadcast_to(emit(op.astype(x, "float32")), (4, 2, 8)))
        wide = emit(op.permute_dims(emit(op.expand_dims(wide, 0)), (0, 2, 1, 3)))
        part = emit(relax.TupleGetItem(emit(op.split(wide, 2, 3)), 1))
        part = emit(op.astype(emit(op.reshape(part, (2, 4, 4))), "float16"))
        return emit(op.matmul(part, emit(op.broadcast_to(w, (2, 4, 6)))))

    types = _tensor(4, 2, 8), _tensor(4, 6)
    module = _module(make, *types)
    made = DropViews()(module)
    arrays = [rng.integers(-4, 5, [int(e) for e in ty.shape.values]).astype("float16")
              for ty in types]  # fmt: skip
    np.testing.assert_array_equal(_run(made, *arrays), _run(module, *arrays))
    names = _operators(made)
    assert not {"astype", "broadcast_to", "expand_dims"} & set(names)


def test_a_cast_that_loses_bits_stays() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        return emit(op.astype(emit(op.astype(x, "float16")), "float32"))

    module = _module(make, _tensor(4, 2, dtype="float32"))
    assert _operators(DropViews()(module)) == ["astype", "astype"]


def test_constants_are_folded_before_functions_are_made(rng) -> None:
    weight = rng.standard_normal((6, 4)).astype("float32")

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        turned = emit(op.permute_dims(emit(op.astype(relax.const(weight), "float16")), (1, 0)))
        rows = emit(op.expand_dims(emit(op.arange(0, 6, 1, "int64")), 0))
        seen = emit(op.less_equal(rows, relax.const(2, "int64")))
        lowest = relax.const(np.float32(np.finfo("float32").min))
        mask = emit(op.where(seen, relax.const(np.float32(0)), lowest))
        return emit(op.add(emit(op.matmul(x, turned)), emit(op.astype(mask, "float16"))))

    module = _module(make, _tensor(3, 4))
    made = FoldConstants()(module)
    assert _operators(made) == ["matmul", "add"]
    x = rng.standard_normal((3, 4)).astype("float16")
    found = _run(made, x)
    wanted = (x.astype(float) @ weight.astype("float16").astype(float).T)
    assert np.isneginf(found[:, 3:]).all()  # what float16 makes of the lowest number
    np.testing.assert_allclose(found[:, :3], wanted[:, :3], atol=2e-2)


@pytest.mark.parametrize(
    ("indices", "axis", "folded"),
    [([3, 4, 5, 6, 7, 8], 0, True), ([0, 2], 1, True), ([5, 0], None, True),
     ([-1, 2, 3], 0, False), ([0, 6], 1, False)],
)  # fmt: skip
def test_constant_rows_of_constants_are_taken_once(indices, axis, folded, rng) -> None:
    """As a model rolls an image; TVM computes what lies outside, or a remainder below zero."""
    table = rng.standard_normal((9,) if axis is None else (9, 4)).astype("float32")

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        places = relax.const(np.array(indices, "int64"), "int64")
        if axis == 0:
            places = emit(op.mod(places, relax.const(6, "int64")))
        return emit(op.add(x, emit(op.take(relax.const(table), places, axis, mode="clip"))))

    places = np.array(indices) % 6 if axis == 0 else np.array(indices)
    wanted = np.take(table, places, axis, mode="clip")
    module = _module(make, _tensor(*wanted.shape, dtype="float32"))
    made = FoldConstants()(module)
    assert (_operators(made) == ["add"]) == folded
    if folded:
        x = rng.standard_normal(wanted.shape).astype("float32")
        np.testing.assert_allclose(_run(made, x), x + wanted, rtol=1e-6)


def test_a_convolution_gets_another_tile_where_the_best_is_no_box_of_pixels() -> None:
    """Tiles of 192 pixels in steps of 2 span more than TMA loads at once."""

    def make(emit: Any, x: relax.Expr, w: relax.Expr) -> relax.Expr:
        return emit(op.nn.conv1d(x, w, strides=2, padding=1, data_layout="NWC",
                                 kernel_layout="OWI"))  # fmt: skip

    module = _module(make, _tensor(1, 3000, 1280), _tensor(1280, 3, 1280))
    (report,) = [one for one in inspect(module) if not one.reshapes]
    assert report.problem is not None and report.problem.m == 1500
    assert all(2 * config.tile_m <= 256 for _, config in report.decisions)


@pytest.mark.gpu
def test_a_model_with_a_boolean_constant_is_built(rng) -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        return emit(op.where(relax.const(np.array([True, False] * 4)), x, relax.const(
            np.float16(2))))  # fmt: skip

    module = _module(make, _tensor(4, 8))
    executable = relax.build(module, warploom.cuda_target("h200"))
    x = rng.standard_normal((4, 8)).astype("float16")
    machine = relax.VirtualMachine(executable, tvm.cuda(0))
    (found,) = machine["main"](tvm.runtime.tensor(x, tvm.cuda(0)))
    np.testing.assert_array_equal(found.numpy(), np.where([True, False] * 4, x, np.float16(2)))
