"""Attention to latent vectors in pages (MLA), against numpy and TVM's kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm.relax.frontend.nn.llm._prefill_kernels import _attention_prefill_mla
from tvm.tirx import is_buffer_var

from tests.programs.paged_cache import put_into_pages
from tests.programs.prefill_reference import attend, begins_of, causal, check, every, poisoned
from tests.shared.tile_programs.case import numpy_dtype
from warploom import emulator
from warploom.decide import choose
from warploom.decide.families.latent import LatentProblem, latent_costs, most_parts
from warploom.decide.families.paged_decode import ChunkCosts, steps_of_chunk
from warploom.decide.machine import H200
from warploom.errors import IllegalCombination
from warploom.programs import paged_latent
from warploom.target import ARCHS as ALL_ARCHS
from warploom.target import cuda_target

pytestmark = pytest.mark.gpu

ARCHS = ("sm_90a", "sm_100a")
#: Where the results are among the arguments.
RESULTS = slice(6, 8)


@dataclass(frozen=True)
class Case:
    """Sequences of queries, and of latents in a cache."""

    queries: tuple[int, ...] = (5, 0, 9, 1)
    keys: tuple[int, ...] = (5, 0, 100, 0)
    heads: int = 16
    latent_dim: int = 128
    rope_dim: int = 64
    dtype: str = "float16"
    causal: int = 1
    page_size: int = 16

    def program(self, **options: Any) -> Any:
        return paged_latent(
            self.heads, self.latent_dim, self.rope_dim, self.dtype, self.page_size, **options
        )

    def draw(self, rng: np.random.Generator) -> tuple[list[Any], tuple[np.ndarray, np.ndarray]]:
        """Arguments, and the output and the lse."""
        dtype, width = numpy_dtype(self.dtype), self.latent_dim + self.rope_dim
        begins, scale = begins_of(self.queries), width**-0.5 * 1.5
        shape = (int(begins[-1]), self.heads, width)
        q = rng.standard_normal(shape).astype(dtype)
        latents = [rng.standard_normal((1, n, 1, width)).astype(dtype) for n in self.keys]
        cache = put_into_pages(rng, latents, self.page_size)
        values = [one[0][..., : self.latent_dim] for one in latents]
        sees = causal if self.causal > 0 else every
        exact = attend(q, [one[0] for one in latents], values, begins, scale, sees)
        results = [
            poisoned((*shape[:2], self.latent_dim), dtype),
            poisoned(shape[:2], np.dtype("float32")),
        ]
        pages = [cache.pages[:, 0, 0], cache.indptr, cache.values, np.array(cache.last, "int32")]
        return [q, begins, *pages, *results, self.causal, scale], exact


def draw(rng: np.random.Generator) -> Case:
    def of(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    batch, size = int(rng.integers(1, 7)), of(8, 16, 32, 64, 128)
    queries = tuple(of(0, 1, int(rng.integers(20)), int(rng.integers(5))) for _ in range(batch))
    keys = tuple(of(0, 1, size, size + 1, int(rng.integers(200))) for _ in range(batch))
    return Case(
        queries, keys, of(1, 3, 16, 20, 71, 128), of(512, 8 * int(rng.integers(1, 65))),
        of(64, 8 * int(rng.integers(9))), of("float16", "bfloat16"), of(0, 1), size,
    )  # fmt: skip


CASES = {
    "decode of DeepSeek": (Case((1, 1), (200, 65), 16, 512), {"chunk": 1}),
    "prefill of DeepSeek": (Case((3, 2), (70, 2), 16, 512, dtype="bfloat16"), {}),
    "128 heads": (Case((1, 1), (70, 16), 128, 512, dtype="bfloat16"), {}),
    "causal": (Case((5, 0, 30, 1), (5, 0, 100, 0)), {}),
    "every key": (Case(causal=0), {}),
    "parts of two steps": (Case((1, 9, 1), (300, 190, 20)), {"chunk": 2}),
    "a part for each step, every key": (Case((2, 1, 0), (200, 129, 70), causal=0), {"chunk": 1}),
    "more queries than keys": (Case((40, 3), (20, 1), 4), {"chunk": 1}),
    "no keys at all": (Case((4, 3), (0, 0)), {}),
    "no queries": (Case((0, 0), (10, 3)), {}),
    "one head": (Case((1, 70), (33, 70), 1), {}),
    "20 heads": (Case((1, 1, 7), (33, 1, 90), 20, dtype="bfloat16"), {}),
    "71 heads": (Case((1, 3), (33, 40), 71), {"chunk": 1}),
    "nothing rotated": (Case((1, 3), (33, 40), rope_dim=0), {}),
    "three latents in the slices": (Case((1, 3), (33, 40), 8, 320, 32), {}),
    "odd sizes": (Case((1, 3), (33, 40), 8, 72, 8, "bfloat16"), {}),
    "many sequences": (Case((1,) * 20, tuple(range(3, 43, 2)), 4), {}),
    **{
        f"pages of {size}": (Case((1, 1, 0, 9), (150, size, 0, size + 1), page_size=size), {})
        for size in (8, 24, 32, 64, 128, 256)
    },
}  # fmt: skip


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.some(6)
def test_paged_latent(rng, name, arch):
    """The emulator checks each access; latents behind the end are NaN."""
    case, options = CASES[name]
    _run(case, rng, arch, **options)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("number", range(40))
@pytest.mark.some(2)
def test_random_sequences(rng, number, arch):
    case, chunk = draw(rng), (None, 1, 2)[number % 3]
    print(case, chunk)
    _run(case, rng, arch, chunk=chunk)


def _run(case: Case, rng: np.random.Generator, arch: str, **options: Any) -> None:
    arguments, exact = case.draw(rng)
    result = emulator.run(case.program(arch=arch, **options), arguments, arch=arch)
    check(*result.outputs[RESULTS], exact, case.dtype)


@pytest.mark.in_turn(2)
def test_results_are_those_of_tvm(rng):
    """Where each query sees a key: for others TVM computes a mean of all values."""
    case = Case((3, 0, 2), (3, 0, 33), 4, 64, 64)
    arguments, exact = case.draw(rng)
    arguments[2] = np.nan_to_num(arguments[2])
    theirs = _attention_prefill_mla(4, 64, 64, "float16", False, cuda_target("h200"))
    check(*emulator.run(theirs, arguments).outputs[RESULTS], exact, case.dtype)


def test_signature_is_that_of_tvm():
    """Parameters, and dtypes and ranks of buffers; the names of kernels differ."""
    theirs = _attention_prefill_mla(16, 512, 64, "float16", False, cuda_target("h200"))
    ours = paged_latent(16)
    assert len(ours.params) == len(theirs.params)
    for own, their in zip(ours.params, theirs.params, strict=True):
        assert is_buffer_var(own) == is_buffer_var(their)
        assert str(own.ty.dtype) == str(their.ty.dtype)
        if is_buffer_var(own):
            assert len(own.ty.shape) == len(their.ty.shape)


def test_arguments_may_begin_inside_their_memory(rng):
    """The runtime of TVM packs the indices of all sequences into one array."""
    if not emulator.is_enabled():
        pytest.skip("the tensors are those of the emulated device")
    case = Case((1, 2, 1), (40, 3, 130), dtype="bfloat16")
    arguments, exact = case.draw(rng)
    module = tvm.IRModule({"main": case.program(chunk=1)})
    executable = tvm.compile(module, cuda_target("h200"), tir_pipeline="warploom")
    tensors = []
    for number, value in enumerate(arguments):
        if isinstance(value, np.ndarray):
            offset = {1: 3, 2: 64, 3: 7, 4: 5, 5: 1}.get(number, 0)
            memory = np.concatenate([np.full(offset, -9).astype(value.dtype), value.ravel()])
            tensor = tvm.runtime.tensor(memory, tvm.cuda(0))
            begin = offset * value.dtype.itemsize
            value = tensor._create_view(value.shape, str(value.dtype), begin)
        tensors.append(value)
    executable["main"](*tensors)
    check(*(tensor.numpy() for tensor in tensors[RESULTS]), exact, case.dtype)
    with pytest.raises(RuntimeError, match="scales above 0"):
        executable["main"](*tensors[:9], 0.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"heads": 0}, "heads is 0"),
        ({"latent_dim": 60}, "latent_dim is 60"),
        ({"latent_dim": 520}, "latent_dim is 520"),
        ({"rope_dim": 4}, "rope_dim is 4"),
        ({"latent_dim": 512, "rope_dim": 1024}, "latent_dim \\+ rope_dim is 1536"),
        ({"dtype": "float32"}, "dtype is float32"),
        ({"page_size": 1}, "page_size is 1"),
        ({"page_size": 12}, "page_size is 12"),
        ({"page_size": 56}, "page_size is 56"),
    ],
)
def test_what_has_no_kernel_is_refused(changed, message):
    with pytest.raises(IllegalCombination, match=message):
        replace(Case(), **changed).program()


@given(st.integers(1, 64), st.integers(0, 64), st.sampled_from(ARCHS))
def test_tiles_have_every_column_once_and_fit(latents, rotated, arch):
    try:
        problem = LatentProblem(16, 8 * latents, 8 * rotated, 16, arch)
    except IllegalCombination:
        assert latents + rotated > 100
        return
    assert problem.columns <= 256 and problem.padded >= problem.width
    assert (problem.slices - 1) * problem.columns < problem.latent_dim
    assert problem.slices * problem.columns >= problem.latent_dim
    config = choose(problem, H200)
    used = 2 * problem.padded * (config.tile_m + config.stages * config.tile_n)
    assert used <= ALL_ARCHS[arch].shared_bytes_of_each(1)


@given(st.integers(1, 4096), st.integers(1, 3000), st.integers(1, 300), st.integers(1, 300))
def test_parts_have_room_in_the_grid(tiles, steps, resident, chunk):
    """One part at least, not more CTAs than some rounds have, and none beyond all steps."""
    costs = ChunkCosts(resident, 1000, 600)
    most = most_parts(costs, tiles, steps, chunk)
    assert most >= 1 and (most - 1) * chunk < steps
    assert most == 1 or most * tiles <= 4 * resident


@pytest.mark.parametrize(
    ("batch", "context", "heads", "parts"),
    [
        (1, 4096, 16, (30, 66)), (1, 131072, 16, (50, 70)), (1, 131072, 128, (25, 40)),
        (128, 512, 16, (1, 1)),
    ],
)  # fmt: skip
def test_a_long_sequence_fills_the_gpu_and_short_ones_are_not_cut(batch, context, heads, parts):
    problem = LatentProblem(heads, 512, 64)
    config = choose(problem, H200)
    costs, steps = latent_costs(problem, config, H200), -(-context // config.tile_n)
    tiles = batch * -(-heads // config.tile_m) * problem.slices
    chunk = steps_of_chunk(costs, steps, tiles)
    most = most_parts(costs, tiles, steps * batch, chunk)
    assert parts[0] <= -(-steps // max(chunk, -(-steps // most))) <= parts[1]
