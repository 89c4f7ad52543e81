"""Attention of many sequences to their own keys, against numpy and TVM's kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm.relax.frontend.nn.llm._prefill_kernels import _attention_prefill_ragged
from tvm.tirx import is_buffer_var

from tests.programs.prefill_reference import attend, begins_of, causal, check, every, poisoned
from tests.shared.tile_programs.case import numpy_dtype
from warploom import emulator
from warploom.compiler.parts import in_parts
from warploom.decide import choose
from warploom.decide.families.prefill import PrefillProblem, heads_of_tile
from warploom.errors import IllegalCombination
from warploom.lower.host.kernels import is_kernel
from warploom.pipeline import warploom_pipeline
from warploom.programs import ragged_prefill
from warploom.target import cuda_target

pytestmark = pytest.mark.gpu

ARCHS = ("sm_90a", "sm_100a")
#: Where the results are among the arguments.
RESULTS = slice(7, 9)


@dataclass(frozen=True)
class Case:
    """Sequences; keys and values of number ``bad`` are NaN, and its results are not checked."""

    queries: tuple[int, ...] = (5, 0, 130, 1, 70)
    keys: tuple[int, ...] = (5, 0, 200, 0, 33)
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    value_dim: int | None = None
    dtype: str = "float16"
    causal: int = 1
    bad: int | None = None

    def program(self, **options: Any) -> Any:
        return ragged_prefill(
            self.heads, self.kv_heads, self.head_dim, self.value_dim, self.dtype, **options
        )

    def draw(self, rng: np.random.Generator) -> tuple[list[Any], tuple[np.ndarray, np.ndarray]]:
        """Arguments, and the output and the lse."""
        dtype, scale = numpy_dtype(self.dtype), self.head_dim**-0.5 * 1.5
        q_begins, k_begins = begins_of(self.queries), begins_of(self.keys)
        total, value_dim = int(q_begins[-1]), self.value_dim or self.head_dim
        q, k, v = (
            rng.standard_normal(shape).astype(dtype)
            for shape in ((total, self.heads, self.head_dim),
                          (k_begins[-1], self.kv_heads, self.head_dim),
                          (k_begins[-1], self.kv_heads, value_dim))
        )  # fmt: skip
        parts = [np.split(x, k_begins[1:-1]) for x in (k, v)]
        sees = causal if self.causal > 0 else every
        exact = attend(q, *parts, q_begins, scale, sees)
        if self.bad is not None:
            for x in (k, v):
                x[k_begins[self.bad] : k_begins[self.bad + 1]] = np.nan
        results = [poisoned((total, self.heads, value_dim), dtype),
                   poisoned((total, self.heads), np.dtype("float32"))]  # fmt: skip
        places = [np.full(total, -9, "int32"), np.full(len(self.queries), -9, "int32")]
        numbers = [self.causal, 0, 1.0, 1e4, scale]
        return [q, q_begins, k, v, k_begins, *places, *results, *numbers], exact

    def check(self, results: Any, exact: tuple[np.ndarray, np.ndarray]) -> None:
        looked_at = np.ones(len(exact[0]), bool)
        if self.bad is not None:
            begins = begins_of(self.queries)
            looked_at[begins[self.bad] : begins[self.bad + 1]] = False
        out, lse = (np.asarray(result)[looked_at] for result in results)
        check(out, lse, (exact[0][looked_at], exact[1][looked_at]), self.dtype)


def draw(rng: np.random.Generator) -> Case:
    def of(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    batch = int(rng.integers(1, 8))
    lengths = [
        (of(0, 1, int(rng.integers(300)), int(rng.integers(40))),
         of(0, 1, 96, int(rng.integers(300)))) for _ in range(batch)
    ]  # fmt: skip
    queries, keys = zip(*lengths, strict=True)
    if rng.integers(2):
        keys = queries
    kv_heads = of(1, 2, 3)
    return Case(
        queries, keys, kv_heads * of(1, 2, 3, 4, 7), kv_heads, 8 * int(rng.integers(1, 33)),
        of(None, 8 * int(rng.integers(1, 33))), of("float16", "bfloat16"), of(0, 1),
        of(None, int(rng.integers(batch))),
    )  # fmt: skip


CASES = {
    "causal": Case(head_dim=128),
    "every key": Case(head_dim=128, causal=0),
    "one sequence": Case((300,), (300,), dtype="bfloat16"),
    "one query": Case((1,), (1,)),
    "a query of a long sequence": Case((1, 1), (500, 96)),
    "more queries than keys": Case((200, 3), (100, 1)),
    "no keys at all": Case((4, 3), (0, 0)),
    "no queries": Case((0, 0), (10, 3)),
    "blocks that are full": Case((128, 64, 96), (192, 96, 96)),
    "between numbers that are none": Case((60, 100, 50), (60, 110, 70), bad=1),
    "behind numbers that are none": Case((60, 100), (60, 110), bad=0),
    "before numbers that are none": Case((60, 100), (60, 110), bad=1, causal=0),
    "latent": Case((77, 130), (77, 140), 4, 4, 192, 128),
    "256 elements": Case(head_dim=256, dtype="bfloat16"),
    "216 elements, 200 of values, numbers that are none": Case(
        (60, 7), (60, 70), head_dim=216, value_dim=200, bad=1
    ),
    "80 elements": Case(head_dim=80, heads=6),
    "72 elements, fewer of values": Case(head_dim=72, value_dim=24, heads=3, kv_heads=3),
    "7 heads share": Case((40, 3), (40, 30), 14),
    "71 heads share": Case((3, 2), (130, 2), 71, 1),
    "128 heads share": Case((3, 2), (130, 2), 128, 1),
    "many sequences": Case(tuple(range(20)), tuple(range(3, 23))),
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.some(8)
def test_ragged_prefill(rng, name, arch):
    """The emulator checks each access."""
    _run(CASES[name], rng, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("number", range(40))
@pytest.mark.some(5)
def test_random_sequences(rng, number, arch):
    case = draw(rng)
    print(case)
    _run(case, rng, arch)


def _run(case: Case, rng: np.random.Generator, arch: str) -> None:
    arguments, exact = case.draw(rng)
    result = emulator.run(case.program(arch=arch), arguments, arch=arch)
    case.check(result.outputs[RESULTS], exact)


@pytest.mark.parametrize("causal", [0, 1])
def test_results_are_those_of_tvm(rng, causal):
    case = Case((3, 0, 20), (3, 0, 33), 4, 2, 64, causal=causal)
    arguments, exact = case.draw(rng)
    theirs = _attention_prefill_ragged(2, 4, 64, 64, "float16", {}, cuda_target("h200"))
    result = emulator.run(theirs, arguments)
    case.check(result.outputs[RESULTS], exact)


def test_either_way_has_one_kernel_of_attention():
    """A model compiles one kernel for queries that are rotated and for those that are not."""
    lowered, _, _ = warploom_pipeline()
    target = cuda_target("h200").with_host("llvm")
    with target, in_parts():
        program = tvm.IRModule({"main": Case().program(rotary="either")})
        mod = lowered(tvm.tirx.transform.BindTarget(target)(program))
    kernels = [one for one in mod.functions.values() if is_kernel(one)]
    multiply = [one for one in kernels if "wgmma" in one.script()]
    assert len(multiply) == 1 < len(kernels)


def test_signature_is_that_of_tvm():
    """Parameters, and dtypes and ranks of buffers; the names of kernels differ."""
    theirs = _attention_prefill_ragged(2, 8, 64, 64, "float16", {}, cuda_target("h200"))
    ours = ragged_prefill(8, 2, 64)
    assert len(ours.params) == len(theirs.params)
    for own, their in zip(ours.params, theirs.params, strict=True):
        assert is_buffer_var(own) == is_buffer_var(their)
        assert str(own.ty.dtype) == str(their.ty.dtype)
        if is_buffer_var(own):
            assert len(own.ty.shape) == len(their.ty.shape)


def test_arguments_may_begin_inside_their_memory(rng, emulated_device):
    """The runtime of TVM packs the indices of all sequences into one array."""
    case = Case((40, 3, 130), (50, 3, 130), dtype="bfloat16")
    arguments, exact = case.draw(rng)
    executable = tvm.compile(
        tvm.IRModule({"main": case.program()}), cuda_target("h200"), tir_pipeline="warploom"
    )
    tensors = _on_device(arguments, {1: 3, 4: 7, 5: 5, 6: 1})
    executable["main"](*tensors)
    case.check([tensor.numpy() for tensor in tensors[RESULTS]], exact)
    with pytest.raises(RuntimeError, match="that are rotated"):
        executable["main"](*tensors[:10], 1, *tensors[11:])
    with pytest.raises(RuntimeError, match="scales above 0"):
        executable["main"](*tensors[:-1], 0.0)


@pytest.fixture
def emulated_device():
    if not emulator.is_enabled():
        pytest.skip("the tensors are those of the emulated device")


def _on_device(arguments: list[Any], offsets: dict[int, int]) -> list[Any]:
    """Tensors, some of which begin so many elements inside their memory."""
    tensors = []
    for number, value in enumerate(arguments):
        if not isinstance(value, np.ndarray):
            tensors.append(value)
            continue
        offset = offsets.get(number, 0)
        memory = np.concatenate([np.full(offset, -9).astype(value.dtype), value.ravel()])
        tensor = tvm.runtime.tensor(memory, tvm.cuda(0))
        begin = offset * value.dtype.itemsize
        tensors.append(tensor._create_view(value.shape, str(value.dtype), begin))
    return tensors


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kv_heads": 3}, "8 heads cannot share 3"),
        ({"head_dim": 60}, "head_dim is 60"),
        ({"head_dim": 264}, "head_dim is 264"),
        ({"value_dim": 12}, "value_dim is 12"),
        ({"dtype": "float32"}, "dtype is float32"),
    ],
)
def test_what_has_no_kernel_is_refused(changed, message):
    with pytest.raises(IllegalCombination, match=message):
        replace(Case(), **changed).program()


@given(st.lists(st.integers(0, 400), min_size=1, max_size=40), st.integers(1, 128))
def test_slots_hold_every_tile_once(lengths, queries):
    """``indptr // queries + b`` ascends, with room for all tiles of a sequence."""
    begins = begins_of(tuple(lengths))
    firsts = [int(begin) // queries + b for b, begin in enumerate(begins)]
    for b, length in enumerate(lengths):
        assert firsts[b] + -(-length // queries) <= firsts[b + 1]
    assert firsts[-1] == int(begins[-1]) // queries + len(lengths)


@given(st.integers(1, 128), st.integers(1, 16), st.integers(1, 32))
def test_heads_of_a_tile_divide_its_rows_and_those_that_share(group, kv_heads, elements):
    problem = PrefillProblem(group * kv_heads, kv_heads, 8 * elements, 8 * elements)
    rows = choose(problem).tile_m
    heads = heads_of_tile(problem, rows)
    assert rows % heads == 0 and group % heads == 0
