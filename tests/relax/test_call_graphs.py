"""Calls of models as CUDA graphs: right whatever happens between them, declined with a reason."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tests.emulator.options import options
from tests.relax.graphed_attention import PAGE, GraphedAttention
from warploom import emulator
from warploom.relax import cuda_graph
from warploom.relax.pipeline import SWITCH
from warploom.target import cuda_target

pytestmark = pytest.mark.gpu
_TARGET, _OUTSIDE = cuda_target("h200"), "tests.call_graphs.outside"
_WAITS = "tests.call_graphs.waits"
_OPAQUE = 8  # OpPatternKind: fused with nothing


@pytest.fixture(autouse=True)
def _no_checks():
    """Threads of TVM's decode kernel write the same value to the same place: races, if harmless."""
    with options(checks=False):
        yield


@pytest.fixture
def model(rng: np.random.Generator) -> GraphedAttention:
    return GraphedAttention(rng, sequences=16)


#: A GPU says what all processes hold; the emulator what this one does.
counts_memory = pytest.mark.skipif(
    not emulator.is_enabled(), reason="other processes may use the GPU's memory"
)


def _is_free(device: Any) -> int:
    return int(device.available_global_memory)


def test_a_graph_serves_sequences_of_any_length(model: GraphedAttention) -> None:
    model.add(0, PAGE - 2)
    model.add(1, 3)
    for _ in range(2 * PAGE):
        model.step(0, 1)
    counts = model.attend.counts
    assert (counts.captures, counts.plain) == (1, 1) and not counts.declined
    assert counts.replays == 2 * PAGE - 1


@pytest.mark.in_turn(3)
def test_more_pages_than_a_graph_has_room_for(model: GraphedAttention) -> None:
    for sequence in range(12):
        model.add(sequence, 5 * PAGE - 8)
    model.add(12, 4 * PAGE - 3)
    for _ in range(6):
        model.step(*model.known)  # 64 pages, then 65
    assert model.attend.counts.captures == 2


@pytest.mark.in_turn(2)
def test_whatever_happens_between_steps(model: GraphedAttention) -> None:
    """Sequences come, go, share pages, forget tokens; steps are of any of them, in any order."""
    rng, seen = model.rng, 0
    for _ in range(45):
        known = list(model.known)
        action = rng.choice(["add", "fork", "pop", "remove", "step", "step", "step"])
        if not known or (action == "add" and len(known) < 5):
            model.add(seen, int(rng.integers(1, 40)))
            seen += 1
            continue
        one = int(rng.choice(known))
        length = len(model.known[one])
        if action == "fork" and len(known) < 6:
            model.fork(one, seen, int(rng.integers(1, length + 1)))
            seen += 1
        elif action == "pop" and length > 1:
            model.pop(one, int(rng.integers(1, length)))
        elif action == "remove":
            model.remove(one)
        else:
            chosen = rng.permutation(known)[: rng.integers(1, len(known) + 1)].tolist()
            for _ in range(4):
                model.step(*chosen)
    counts = model.attend.counts
    assert counts.captures >= 5 and counts.replays >= counts.plain and not counts.declined


def test_tensors_may_stay_or_move(model: GraphedAttention) -> None:
    model.add(0, 5)
    stays = tvm.runtime.tensor(model.random(1)[:, None], model.device)
    for _ in range(3):
        stays.copyfrom(model.random(1)[:, None])
        model.step(0, x=stays)
    assert model.attend.counts.captures == 1
    kept = [tvm.runtime.tensor(model.random(1)[:, None], model.device) for _ in range(4)]
    for x in [*kept, stays, *kept]:
        model.step(0, x=x)
    assert model.attend.counts.captures == 2 and model.attend.counts.plain == 1


@counts_memory
def test_a_cache_is_not_kept_alive(model: GraphedAttention) -> None:
    left = []
    for captures in (1, 2, 3):
        model.open(8, 2048)  # a cache has index arrays of 128 MiB, whatever its size
        model.add(0, 5 + captures)
        for _ in range(3):
            model.step(0)
        assert model.attend.counts.captures == captures
        left.append(_is_free(model.device))
    assert left[0] - left[-1] < 1 << 20


@counts_memory
def test_graphs_give_their_memory_back(model: GraphedAttention) -> None:
    model.add(0, 5)
    left = []
    for captures in (1, 2, 3):
        for _ in range(3):
            model.step(0)
        assert model.attend.counts.captures == captures
        held = _is_free(model.device)
        model.attend.clear()
        left.append(_is_free(model.device))
        assert held < left[-1]
    assert left[1] == left[2]  # at first TVM's pool gets what the calls use


def test_all_is_forgotten(model: GraphedAttention) -> None:
    model.add(0, 5)
    for _ in range(3):
        model.step(0)
    model.attend.clear()
    for _ in range(3):
        model.step(0)
    assert (model.attend.counts.captures, model.attend.counts.plain) == (2, 2)


def test_a_kernel_is_given_copies_of_index_arrays(model: GraphedAttention) -> None:
    """A step between capture and replay moves the arrays of the cache in their buffer."""
    model.add(0, 3 * PAGE)
    for each in range(1, 6):
        model.add(each, PAGE - 1)
    for _ in range(3):
        model.step(0)
    model.step(0, 1, 2, 3, 4, 5)
    before = model.attend.counts
    model.step(0)
    assert model.attend.counts.replays == before.replays + 1


def test_errors_of_the_function_are_its_own(model: GraphedAttention) -> None:
    model.add(0, 5)
    wrong = tvm.runtime.tensor(np.zeros((1, 1, 3, 64), "float16"), model.device)
    for _ in range(2):
        with pytest.raises(Exception, match=r"match_cast|[Ss]hape"):
            model.attend(wrong, model.cache)
    for _ in range(3):
        model.step(0)


def _built(mod: tvm.IRModule, **options: Any) -> relax.VirtualMachine:
    with mock.patch.dict(os.environ, {SWITCH: "0"}):
        return relax.VirtualMachine(relax.build(mod, _TARGET, **options), tvm.cuda(0))


def _static() -> tvm.IRModule:
    @I.ir_module
    class Static:
        @R.function
        def main(x: R.Tensor((4, 32), "float32"), y: R.Tensor((4, 32), "float32")) -> R.Tensor(
            (4, 32), "float32"
        ):
            with R.dataflow():
                z = R.add(R.multiply(x, y), R.sum(x, axis=1, keepdims=True))
                w = R.multiply(R.reshape(R.exp(R.reshape(z, (8, 16))), (4, 32)), y)
                R.output(w)
            return w

    return Static


def _of_static(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = x.astype(float), y.astype(float)
    return np.exp(x * y + x.sum(1, keepdims=True)) * y


@pytest.mark.parametrize("moves", [False, True])
def test_a_static_model_is_one_graph(rng: np.random.Generator, moves: bool) -> None:
    main = cuda_graph(_built(_static()), "main")
    tensors = [tvm.runtime.empty((4, 32), "float32", tvm.cuda(0)) for _ in range(2)]
    kept: list[Any] = []
    for _ in range(5):
        arrays = [rng.uniform(-0.1, 0.1, (4, 32)).astype("float32") for _ in range(2)]
        if moves:
            tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays]
            kept += tensors  # so that no address comes again
        for tensor, one in zip(tensors, arrays, strict=True):
            tensor.copyfrom(one)
        found = main(*tensors)
        np.testing.assert_allclose(found.numpy(), _of_static(*arrays), rtol=1e-5, atol=1e-6)
    assert main.counts.plain == 1 and main.counts.replays == 4 and main.counts.captures == 1


@pytest.mark.parametrize("as_list", [False, True])
def test_weights_are_told_apart_by_where_they_are(rng: np.random.Generator, as_list: bool) -> None:
    @I.ir_module
    class Weighted:
        @R.function
        def main(
            x: R.Tensor((4, 32), "float32"),
            weights: R.Tuple(R.Tensor((32,), "float32"), R.Tensor((32,), "float32")),
        ) -> R.Tensor((4, 32), "float32"):
            with R.dataflow():
                y = R.sum(R.multiply(x, weights[0]), axis=1, keepdims=True)
                z = R.add(R.multiply(x, y), weights[1])
                R.output(z)
            return z

    main, device = cuda_graph(_built(Weighted), "main"), tvm.cuda(0)
    sets = [rng.uniform(-1, 1, (2, 32)).astype("float32") for _ in range(2)]
    lists = [[tvm.runtime.tensor(one, device) for one in each] for each in sets]
    arrays = [tvm_ffi.convert(each) for each in lists]
    for number in (0, 0, 0, 1, 1, 1, 0, 1):
        x = rng.uniform(-1, 1, (4, 32)).astype("float32")
        found = main(tvm.runtime.tensor(x, device), (lists if as_list else arrays)[number])
        a, b = sets[number].astype(float)
        wanted = x * (x * a).sum(1, keepdims=True) + b
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)
    assert main.counts.plain == 2 and main.counts.replays == 6


def test_results_are_overwritten_and_memory_is_not_shared_with_others(
    rng: np.random.Generator,
) -> None:
    machine = _built(_static())
    main, plain = cuda_graph(machine, "main"), machine["main"]
    arrays = [rng.uniform(-0.1, 0.1, (4, 32)).astype("float32") for _ in range(4)]
    tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays]
    for _ in range(3):
        found = main(*tensors[:2])
    others = [plain(*tensors[2:]) for _ in range(4)]
    assert main(*tensors[:2]).same_as(found)
    for other in others:
        np.testing.assert_allclose(other.numpy(), _of_static(*arrays[2:]), rtol=1e-5, atol=1e-6)
    main(*tensors[2:])
    np.testing.assert_allclose(found.numpy(), _of_static(*arrays[2:]), rtol=1e-5, atol=1e-6)


def _with_workspace(size: int, of_tvm: bool) -> relax.VirtualMachine:
    """``2 * (x + 1)[::-1]`` by a function whose two kernels share a workspace of host code."""

    @T.prim_func(private=True, s_tir=True)
    def reversed_(x: T.Buffer((size,), "float32"), y: T.Buffer((size,), "float32")):
        T.func_attr({"tirx.is_scheduled": True, "op_pattern": _OPAQUE})
        w = T.alloc_buffer((size,), "float32")
        for b in T.thread_binding(size // 64, thread="blockIdx.x"):
            for t in T.thread_binding(64, thread="threadIdx.x"):
                with T.sblock("first"):
                    i = T.axis.spatial(size, b * 64 + t)
                    w[i] = x[i] + T.float32(1)
        for b in T.thread_binding(size // 64, thread="blockIdx.x"):
            for t in T.thread_binding(64, thread="threadIdx.x"):
                with T.sblock("second"):
                    i = T.axis.spatial(size, b * 64 + t)
                    y[i] = w[size - 1 - i]

    builder, kind = relax.BlockBuilder(), relax.TensorType((size,), "float32")
    variable, x = builder.add_func(reversed_, "reversed"), relax.Var("x", kind)
    with builder.function("main", [x], attrs={"num_input": 0}):
        with builder.dataflow():
            y = builder.emit(relax.call_tir(variable, (x,), kind))
            z = builder.emit_output(relax.op.add(y, y))
        builder.emit_func_output(z)
    with tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": of_tvm}):
        return _built(builder.get())


@pytest.mark.parametrize("of_tvm", [False, True])
def test_workspaces_of_graphs_are_kept(of_tvm: bool) -> None:
    """TVM's pool gives a block back to the device when a larger one is wanted."""
    small, large = _with_workspace(1024, of_tvm), _with_workspace(1 << 13, of_tvm)
    main = small["main"] if of_tvm else cuda_graph(small, "main")
    arrays = [np.arange(size, dtype="float32") for size in (1024, 1 << 13)]
    x, more = (tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays)
    for _ in range(3):
        main(x)
    for _ in range(2):
        np.testing.assert_array_equal(large["main"](more).numpy(), 2 * (arrays[1] + 1)[::-1])
    np.testing.assert_array_equal(main(x).numpy(), 2 * (arrays[0] + 1)[::-1])


def _with_a_function_outside() -> relax.VirtualMachine:
    tvm_ffi.register_global_func(_OUTSIDE, lambda x: x, override=True)

    @I.ir_module
    class Outside:
        @R.function
        def main(x: R.Tensor((4, 32), "float32")) -> R.Tensor((4, 32), "float32"):
            y = R.add(x, x)
            z = R.call_pure_packed(
                "tests.call_graphs.outside", y, ty_args=R.Tensor((4, 32), "float32")
            )
            return R.multiply(z, x)

    return _built(Outside)


def _with_graphs_inside() -> relax.VirtualMachine:
    with tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
        return _built(_sums())


def _that_waits() -> relax.VirtualMachine:
    """Host code of a kernel's function waits for the stream, which a capture forbids."""
    current = tvm.get_global_func("runtime.get_cuda_stream")
    tvm_ffi.register_global_func(_WAITS, lambda: tvm.cuda(0).sync(current()), override=True)

    @T.prim_func(private=True, s_tir=True)
    def copied(x: T.Buffer((4, 32), "float32"), y: T.Buffer((4, 32), "float32")):
        T.func_attr({"tirx.is_scheduled": True, "op_pattern": _OPAQUE})
        T.evaluate(T.call_packed("tests.call_graphs.waits"))
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                with T.sblock("copy"):
                    i, j = T.axis.remap("SS", [b, t])
                    y[i, j] = x[i, j]

    builder, kind = relax.BlockBuilder(), relax.TensorType((4, 32), "float32")
    variable, x = builder.add_func(copied, "copied"), relax.Var("x", kind)
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.call_tir(variable, (x,), kind))
        builder.emit_func_output(y)
    return _built(builder.get())


def _compiled() -> relax.VirtualMachine:
    return _built(_sums(), exec_mode="compiled")


def _sums() -> tvm.IRModule:
    @I.ir_module
    class Sums:
        @R.function
        def main(x: R.Tensor((4, 32), "float32")) -> R.Tensor((4, 32), "float32"):
            with R.dataflow():
                y = R.sum(R.exp(R.sum(x, axis=1, keepdims=True)), axis=0, keepdims=True)
                z = R.multiply(R.exp(R.sum(y, axis=1, keepdims=True)), x)
                R.output(z)
            return z

    return Sums


@pytest.mark.parametrize("make, reason", [
    (_with_a_function_outside, f"calls {_OUTSIDE}.*call it outside"),
    (_with_graphs_inside, "build without relax.backend.use_cuda_graph"),
    (_compiled, 'exec_mode="bytecode"'),
    (_that_waits, "cannot be captured: "),
])  # fmt: skip
def test_what_is_no_graph_runs_as_it_is(
    make: Callable[[], Any], reason: str, rng: np.random.Generator
) -> None:
    machine = make()
    main, plain = cuda_graph(machine, "main"), machine["main"]
    for _ in range(4):
        x = tvm.runtime.tensor(rng.standard_normal((4, 32)).astype("float32"), tvm.cuda(0))
        np.testing.assert_array_equal(main(x).numpy(), plain(x).numpy())
    assert main.counts.captures == 0 and main.counts.plain == 4
    assert re.search(reason, main.counts.declined)
