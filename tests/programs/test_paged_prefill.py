"""Attention of many sequences to keys in pages, against numpy and TVM's kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from tvm.relax.frontend.nn.llm._prefill_kernels import _attention_prefill
from tvm.tirx import is_buffer_var

from tests.programs.paged_cache import put_into_pages
from tests.programs.prefill_reference import attend, begins_of, causal, check, every, poisoned
from tests.shared.tile_programs.case import numpy_dtype
from warploom import emulator
from warploom.errors import IllegalCombination
from warploom.programs import paged_prefill
from warploom.target import cuda_target

pytestmark = pytest.mark.gpu

ARCHS = ("sm_90a", "sm_100a")
#: Where the results are among the arguments.
RESULTS = slice(8, 10)


@dataclass(frozen=True)
class Case:
    """Sequences of queries, and of tokens in a cache.

    ``windows`` has the first token of the window and the tokens of the sink of each sequence.
    """

    queries: tuple[int, ...] = (5, 0, 130, 1, 70)
    keys: tuple[int, ...] = (5, 0, 200, 0, 33)
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    dtype: str = "float16"
    causal: int = 1
    page_size: int = 16
    windows: tuple[tuple[int, int], ...] | None = None
    window_size: int = 100

    def program(self, **options: Any) -> Any:
        return paged_prefill(
            self.heads, self.kv_heads, self.head_dim, self.dtype, self.page_size,
            self.windows is not None, self.window_size, **options,
        )  # fmt: skip

    def draw(self, rng: np.random.Generator) -> tuple[list[Any], tuple[np.ndarray, np.ndarray]]:
        """Arguments, and the output and the lse."""
        dtype, scale = numpy_dtype(self.dtype), self.head_dim**-0.5 * 1.5
        begins = begins_of(self.queries)
        shape = (int(begins[-1]), self.heads, self.head_dim)
        q = rng.standard_normal(shape).astype(dtype)
        both = [
            rng.standard_normal((2, length, self.kv_heads, self.head_dim)).astype(dtype)
            for length in self.keys
        ]
        cache = put_into_pages(rng, both, self.page_size)
        info = np.array(cache.last, "int32")
        sees = causal if self.causal > 0 else every
        if self.windows is not None:
            info = np.array([cache.last, *zip(*self.windows, strict=True)], "int32")
            kept = [
                (np.arange(length) < sink) | (np.arange(length) >= first)
                for length, (first, sink) in zip(self.keys, self.windows, strict=True)
            ]
            both = [one[:, some] for one, some in zip(both, kept, strict=True)]
            sees = self._sliding if self.causal > 0 else every
        exact = attend(q, [one[0] for one in both], [one[1] for one in both], begins, scale, sees)
        places = [np.full(len(self.queries), -9, "int32"), np.full(shape[0], -9, "int32")]
        results = [poisoned(shape, dtype), poisoned(shape[:2], np.dtype("float32"))]
        numbers = [self.causal, 0, 1.0, 1e4, scale]
        pages = [cache.pages, cache.indptr, cache.values, info]
        return [q, begins, *pages, *places, *results, *numbers], exact

    def _sliding(self, b: int, queries: int, keys: int) -> np.ndarray:
        past = np.maximum(self.window_size - 1 - np.arange(queries), 0)
        return np.arange(keys)[None] >= keys - past[:, None]


def draw(rng: np.random.Generator) -> Case:
    def of(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    batch, size = int(rng.integers(1, 7)), of(8, 16, 32, 64, 128)
    queries = tuple(of(0, 1, int(rng.integers(200)), int(rng.integers(30))) for _ in range(batch))
    keys = tuple(of(0, 1, size, size + 1, int(rng.integers(300))) for _ in range(batch))
    windows = None
    if rng.integers(2):
        windows = tuple(
            (first := int(rng.integers(length + 1)), int(rng.integers(min(first, 40) + 1)))
            for length in keys
        )
    kv_heads = of(1, 2, 3)
    return Case(
        queries, keys, kv_heads * of(1, 2, 3, 4, 7), kv_heads, 8 * int(rng.integers(1, 33)),
        of("float16", "bfloat16"), of(0, 1), size, windows, int(rng.integers(1, 300)),
    )  # fmt: skip


CASES = {
    "causal": Case(head_dim=128),
    "every key": Case(head_dim=128, causal=0),
    "one sequence": Case((70,), (300,), dtype="bfloat16"),
    "a query of a long sequence": Case((1, 1), (500, 96)),
    "more queries than keys": Case((200, 3), (100, 1)),
    "no keys at all": Case((4, 3), (0, 0)),
    "no queries": Case((0, 0), (10, 3)),
    "256 elements": Case((90, 5), (90, 65), head_dim=256, dtype="bfloat16"),
    "96 elements": Case(head_dim=96, heads=6),
    "72 elements": Case(head_dim=72, heads=3, kv_heads=3),
    "7 heads share": Case((40, 3), (40, 30), 14),
    "many sequences": Case(tuple(range(20)), tuple(range(3, 23))),
    **{
        f"pages of {size}": Case((300, 1, 0, 9), (300, size, 0, size + 1), page_size=size)
        for size in (8, 24, 32, 64, 128, 256)
    },
    "windows": Case(
        (30, 150, 1, 5, 140), (300, 40, 1, 0, 200),
        windows=((150, 4), (0, 0), (0, 0), (0, 0), (17, 17)),
    ),
    "windows, every key": Case(
        (30, 150, 1, 5, 140), (300, 40, 1, 0, 200), causal=0,
        windows=((150, 4), (0, 0), (0, 0), (0, 0), (17, 17)),
    ),
    "windows far from the sink": Case(
        (100, 14, 15, 90), (300, 140, 150, 90), head_dim=128, dtype="bfloat16", window_size=300,
        windows=((170, 40), (20, 16), (149, 0), (90, 0)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.some(6)
def test_paged_prefill(rng, name, arch):
    """The emulator checks each access; keys and values behind the end are NaN."""
    _run(CASES[name], rng, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("number", range(40))
@pytest.mark.some(4)
def test_random_sequences(rng, number, arch):
    case = draw(rng)
    print(case)
    _run(case, rng, arch)


def _run(case: Case, rng: np.random.Generator, arch: str) -> None:
    arguments, exact = case.draw(rng)
    result = emulator.run(case.program(arch=arch), arguments, arch=arch)
    check(*result.outputs[RESULTS], exact, case.dtype)


@pytest.mark.parametrize(
    "case",
    [
        Case((3, 0, 20), (3, 0, 33), 4),
        Case((3, 20, 4), (3, 70, 30), 4, windows=((0, 0), (20, 4), (8, 8)), window_size=30),
        Case((3, 20), (3, 70), 4, windows=((0, 0), (20, 4)), causal=0),
    ],
    ids=["plain", "window", "window, every key"],
)
def test_results_are_those_of_tvm(rng, case):
    """Where each query sees a key: for others TVM computes a mean of all values."""
    arguments, exact = case.draw(rng)
    arguments[2] = np.nan_to_num(arguments[2])
    theirs = _attention_prefill(
        2, 4, 64, "float16", case.windows is not None, {}, cuda_target("h200"),
        sliding_window_size=case.window_size,
    )  # fmt: skip
    check(*emulator.run(theirs, arguments).outputs[RESULTS], exact, case.dtype)


@pytest.mark.parametrize("sliding_window", [False, True])
def test_signature_is_that_of_tvm(sliding_window):
    """Parameters, and dtypes and ranks of buffers; the names of kernels differ."""
    target = cuda_target("h200")
    theirs = _attention_prefill(2, 8, 64, "float16", sliding_window, {}, target)
    ours = paged_prefill(8, 2, 64, sliding_window=sliding_window)
    assert len(ours.params) == len(theirs.params)
    for own, their in zip(ours.params, theirs.params, strict=True):
        assert is_buffer_var(own) == is_buffer_var(their)
        assert str(own.ty.dtype) == str(their.ty.dtype)
        if is_buffer_var(own):
            assert len(own.ty.shape) == len(their.ty.shape)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kv_heads": 3}, "8 heads cannot share 3"),
        ({"head_dim": 60}, "head_dim is 60"),
        ({"dtype": "float32"}, "dtype is float32"),
        ({"page_size": 1}, "page_size is 1"),
        ({"page_size": 12}, "page_size is 12"),
        ({"page_size": 56, "head_dim": 256}, "page_size is 56"),
    ],
)
def test_what_has_no_kernel_is_refused(changed, message):
    with pytest.raises(IllegalCombination, match=message):
        replace(Case(), **changed).program()
