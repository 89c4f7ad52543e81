"""Decode attention over a paged KV cache, against numpy and with the signature of TVM's kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm.relax.frontend.nn.llm._decode_kernels import _attention_decode
from tvm.tirx import is_buffer_var

from tests.shared.tile_programs.case import numpy_dtype, precision
from warploom import emulator
from warploom.decide import choose
from warploom.decide.families.paged_decode import (
    ChunkCosts,
    PagedDecodeProblem,
    chunk_costs,
    chunked_time,
    steps_of_chunk,
)
from warploom.decide.machines import machine_of
from warploom.errors import IllegalCombination
from warploom.programs import paged_decode
from warploom.target import GPUS, cuda_target

pytestmark = pytest.mark.gpu

ARCHS = ("sm_90a", "sm_100a")
#: Without a token, one, less than a page, pages that are full, many.
LENGTHS = (1, 17, 0, 100, 210, 64)


@dataclass(frozen=True)
class Cache:
    """Sequences in pages of a cache, in random order; what no sequence has is NaN.

    ``windows`` has the first token of the window and the tokens of the sink of each sequence.
    """

    lengths: tuple[int, ...] = LENGTHS
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    dtype: str = "float16"
    page_size: int = 16
    windows: tuple[tuple[int, int], ...] | None = None

    def program(self, **options: Any) -> Any:
        return paged_decode(
            self.heads, self.kv_heads, self.head_dim, self.dtype, self.page_size,
            self.windows is not None, **options,
        )  # fmt: skip

    def draw(self, rng: np.random.Generator) -> tuple[list[Any], np.ndarray, np.ndarray]:
        """Arguments, the output and the lse."""
        dtype, share = numpy_dtype(self.dtype), self.heads // self.kv_heads
        batch, size, scale = len(self.lengths), self.page_size, self.head_dim**-0.5 * 1.5
        counts = [-(-length // size) for length in self.lengths]
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype("int32")
        unused = 3
        order = rng.permutation(indptr[-1] + unused)[: indptr[-1]].astype("int32")
        shape = (indptr[-1] + unused, 2, self.kv_heads, size, self.head_dim)
        pages = np.full(shape, np.nan, np.float32).astype(dtype)
        q = rng.standard_normal((batch, self.heads, self.head_dim)).astype(dtype)
        out, lse = np.zeros(q.shape), np.full((batch, self.heads), -5e4)
        last = [n - (count - 1) * size if n else 0 for n, count in zip(self.lengths, counts,
                                                                        strict=True)]  # fmt: skip
        info = np.array(last, "int32")
        if self.windows is not None:
            info = np.array([last, *zip(*self.windows, strict=True)], "int32")
        for b, length in enumerate(self.lengths):
            tokens = np.arange(length)
            both = rng.standard_normal((2, length, self.kv_heads, self.head_dim)).astype(dtype)
            for token in tokens:
                page = order[indptr[b] + token // size]
                pages[page, :, :, token % size] = both[:, token]
            if self.windows is not None:
                first, sink = self.windows[b]
                both = both[:, (tokens < sink) | (tokens >= first)]
            if both.shape[1]:
                k, v = np.repeat(both.astype(np.float64), share, axis=2)
                logits = np.einsum("hd,thd->ht", q[b].astype(np.float64), k)
                logits *= scale * math.log2(math.e)
                weights = np.exp2(logits - logits.max(axis=1, keepdims=True))
                total = weights.sum(axis=1)
                out[b] = np.einsum("ht,thd->hd", weights / total[:, None], v)
                lse[b] = logits.max(axis=1) + np.log2(total)
        unset = np.full(batch, -9, "int32")
        results = [np.full(out.shape, np.nan, np.float32).astype(dtype),
                   np.full(lse.shape, np.nan, np.float32)]  # fmt: skip
        numbers = [0, 1.0, 1e4, scale]
        return [q, pages, indptr, order, info, unset, unset, *results, *numbers], out, lse

    def check(self, results: Any, out: np.ndarray, lse: np.ndarray) -> None:
        got, got_lse = (np.asarray(result).astype(np.float64) for result in results)
        # The weights are rounded to 16 bits, and the result.
        assert np.abs(got - out).max() <= 2 * precision(self.dtype) * max(np.abs(out).max(), 1)
        assert np.abs(got_lse - lse).max() <= 1e-4


CASES = {
    "usual": (Cache(head_dim=128), {}),
    "as many chunks as steps": (Cache(head_dim=128), {"chunk": 1}),
    "chunks of two steps": (Cache(dtype="bfloat16"), {"chunk": 2}),
    "one sequence": (Cache((333,)), {}),
    "more sequences": (Cache((5, 40, 0, 0, 16, 1, 90, 3, 77, 2, 31, 8, 64, 0, 19, 33, 1)), {}),
    "no keys at all": (Cache((0, 0)), {}),
    "one head": (Cache((33,), 1, 1), {"chunk": 1}),
    "7 heads share": (Cache(heads=14, head_dim=80, dtype="bfloat16"), {"chunk": 1}),
    "71 heads share": (Cache((90, 5), 71, 1, 192), {"chunk": 1}),
    "none shares": (Cache(heads=3, kv_heads=3, head_dim=96), {"chunk": 2}),
    "256 elements": (Cache((90, 5, 65), 16, 1, 256), {"chunk": 1}),
    "72 elements": (Cache((90, 5), 4, 2, 72), {}),
    # A group of threads adds the parts of a head; with 72 elements, some threads have no group.
    "many heads": (Cache((130, 5, 0, 64, 200), 64, 1), {"chunk": 1}),
    "many heads of 72 elements": (Cache((65, 1, 0, 130), 72, 1, 72), {"chunk": 1}),
    **{
        f"pages of {size}": (Cache((300, 1, 0, size, size + 1), page_size=size), {"chunk": 1})
        for size in (8, 32, 64, 128, 256)
    },
    "windows": (
        Cache((300, 40, 1, 0, 200), windows=((150, 4), (0, 0), (0, 0), (0, 0), (17, 17))),
        {"chunk": 1},
    ),
    "windows far from the sink": (
        Cache((300, 140, 150, 90), head_dim=128, dtype="bfloat16",
              windows=((170, 40), (20, 16), (149, 0), (90, 0))), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.some(6)
def test_paged_decode(rng, name, arch):
    """The emulator checks each access; keys and values behind the end are NaN."""
    cache, options = CASES[name]
    arguments, *expected = cache.draw(rng)
    result = emulator.run(cache.program(arch=arch, **options), arguments, arch=arch)
    cache.check(result.outputs[7:9], *expected)


@pytest.mark.parametrize("sliding_window", [False, True])
def test_signature_is_that_of_tvm(sliding_window):
    """Parameters, and dtypes and ranks of buffers; the names of kernels differ."""
    target = cuda_target("h200")
    theirs = _attention_decode(2, 8, 64, "float16", sliding_window, {}, target, 16)
    ours = paged_decode(8, 2, 64, sliding_window=sliding_window)
    assert len(ours.params) == len(theirs.params)
    for own, their in zip(ours.params, theirs.params, strict=True):
        assert is_buffer_var(own) == is_buffer_var(their)
        assert str(own.ty.dtype) == str(their.ty.dtype)
        if is_buffer_var(own):
            assert len(own.ty.shape) == len(their.ty.shape)


def test_arguments_may_begin_inside_their_memory(rng, emulated_device):
    """The runtime of TVM packs the indices of all sequences into one array."""
    cache = Cache((40, 3, 130), dtype="bfloat16")
    arguments, *expected = cache.draw(rng)
    executable = _compiled(cache.program(chunk=1))
    offsets = {1: 64, 2: 3, 3: 7, 4: 5, 5: 1, 6: 2}
    tensors = _on_device(arguments, offsets)
    executable["main"](*tensors)
    cache.check([tensor.numpy() for tensor in tensors[7:9]], *expected)
    with pytest.raises(ValueError, match="Misaligned"):
        executable["main"](*_on_device(arguments, {1: 4}))
    with pytest.raises(RuntimeError, match="lie in the cache rotated"):
        executable["main"](*tensors[:9], 1, *tensors[10:])


def test_a_batch_without_sequences(rng, emulated_device):
    arguments, *_ = Cache((5,)).draw(rng)
    empty = [a[:0] if isinstance(a, np.ndarray) and i != 1 else a for i, a in enumerate(arguments)]
    empty[2] = np.zeros(1, "int32")
    _compiled(Cache().program())["main"](*_on_device(empty, {}))


@pytest.fixture
def emulated_device():
    if not emulator.is_enabled():
        pytest.skip("the tensors are those of the emulated device")


def _compiled(func: Any) -> Any:
    return tvm.compile(tvm.IRModule({"main": func}), cuda_target("h200"), tir_pipeline="warploom")


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
    ("arguments", "message"),
    [
        ((8, 3, 64), "8 heads cannot share 3"),
        ((8, 2, 60), "head_dim is 60"),
        ((8, 2, 264), "head_dim is 264"),
        ((8, 2, 64, "float32"), "dtype is float32"),
        ((8, 2, 64, "float16", 1), "page_size is 1"),
        ((8, 2, 64, "float16", 4), "page_size is 4"),
        ((8, 2, 128, "float16", 48), "page_size is 48"),
    ],
)
def test_what_has_no_kernel_is_refused(arguments, message):
    with pytest.raises(IllegalCombination, match=message):
        paged_decode(*arguments)


@given(st.integers(1, 3000), st.integers(1, 4096), st.integers(1, 300), st.integers(100, 5000))
def test_a_launch_cuts_as_its_expression_says(average, tiles, resident, step):
    """A chunk has a step at least, and the time of a launch is no longer than that uncut."""
    costs = ChunkCosts(resident, step, 600)
    chunk = steps_of_chunk(costs, average, tiles)
    assert chunk >= 1
    uncut = chunked_time(costs, average, average, tiles)
    assert chunked_time(costs, min(chunk, average), average, tiles) <= uncut


@pytest.mark.parametrize(
    ("batch", "context", "parts"),
    [
        (1, 2048, (16, 32)), (1, 131072, (30, 33)), (8, 8192, (2, 4)), (256, 512, (1, 1)),
        (64, 2048, (1, 1)), (64, 8192, (1, 1)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_a_long_sequence_fills_the_gpu_and_short_ones_are_not_cut(batch, context, parts, gpu):
    problem, machine = PagedDecodeProblem(32, 8, 128), machine_of(GPUS[gpu])
    config = choose(problem, machine)
    steps = -(-context // config.tile_n)
    chunk = steps_of_chunk(chunk_costs(problem, config, machine), steps, batch * 8)
    assert parts[0] <= -(-steps // chunk) <= parts[1]


@given(st.integers(1, 3000), st.integers(1, 8), st.integers(1, 300))
def test_chunks_of_one_sequence_are_equal_but_for_the_last(average, tiles, resident):
    """Of a single sequence the length is known, so no CTA has more to do than it must."""
    costs = ChunkCosts(resident, 1900, 600)
    chunk = min(average, steps_of_chunk(costs, average, tiles, several=False))
    parts = -(-average // chunk)
    assert chunk == -(-average // parts)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.integers(1, 50))
def test_a_slot_of_a_later_chunk_finds_it(counts, chunk):
    """Behind the first chunks: no two have the same slot, and the search leads to the sequence."""
    begins = np.concatenate([[0], np.cumsum(counts)])
    found = {}
    for b, count in enumerate(counts):
        for number in range(1, -(-count // chunk)):
            slot = int(begins[b]) // chunk + number - 1
            assert slot not in found and slot < int(begins[-1]) // chunk
            found[slot] = (b, number)
    for slot in range(int(begins[-1]) // chunk):
        b = max(n for n in range(len(counts)) if begins[n] < (slot + 1) * chunk)
        number = slot - int(begins[b]) // chunk + 1
        is_chunk = number >= 0 and number * chunk < max(counts[b], 1)
        assert found.get(slot) == ((b, number) if is_chunk else None)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.integers(1, 50))
def test_parts_hold_every_chunk_once(counts, chunk):
    """``indptr // chunk + b`` is where the parts of a sequence begin, with room for all chunks."""
    begins = np.concatenate([[0], np.cumsum(counts)])
    firsts = [int(begin) // chunk + b for b, begin in enumerate(begins)]
    for b, count in enumerate(counts):
        assert firsts[b] + max(1, -(-count // chunk)) <= firsts[b + 1]
    assert firsts[-1] == int(begins[-1]) // chunk + len(counts)
