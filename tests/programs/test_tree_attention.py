"""Attention of trees of tokens, against numpy and TVM's kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tvm.relax.frontend.nn.llm.tree_attn import tree_attn, tree_attn_with_paged_kv_cache
from tvm.tirx import is_buffer_var

from tests.programs.paged_cache import put_into_pages
from tests.programs.prefill_reference import attend, begins_of, check, poisoned
from tests.shared.tile_programs.case import numpy_dtype
from warploom import emulator
from warploom.programs import paged_tree_attention, ragged_tree_attention
from warploom.target import cuda_target

pytestmark = pytest.mark.gpu

ARCHS = ("sm_90a", "sm_100a")


@dataclass(frozen=True)
class Case:
    """Sequences with trees of tokens, of which the last ones are queries, behind other keys."""

    queries: tuple[int, ...] = (5, 0, 30, 1)
    trees: tuple[int, ...] = (5, 0, 60, 4)
    before: tuple[int, ...] = (40, 3, 100, 0)
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    dtype: str = "float16"
    page_size: int | None = None

    def program(self, **options: Any) -> Any:
        sizes = (self.heads, self.kv_heads, self.head_dim, self.dtype)
        if self.page_size is None:
            return ragged_tree_attention(*sizes, **options)
        return paged_tree_attention(*sizes, self.page_size, **options)

    @property
    def results(self) -> slice:
        """Where the results are among the arguments: the same for both programs."""
        return slice(8, 10)

    def draw(self, rng: np.random.Generator) -> tuple[list[Any], tuple[np.ndarray, np.ndarray]]:
        """Arguments, and the output and the lse."""
        dtype, scale = numpy_dtype(self.dtype), self.head_dim**-0.5 * 1.5
        begins, order_begins = begins_of(self.queries), begins_of(self.trees)
        batch, shape = len(self.queries), (int(begins[-1]), self.heads, self.head_dim)
        lengths = tuple(np.add(self.trees, self.before))
        q = rng.standard_normal(shape).astype(dtype)
        both = [
            rng.standard_normal((2, length, self.kv_heads, self.head_dim)).astype(dtype)
            for length in lengths
        ]
        parents = [_tree(rng, count) for count in self.trees]
        order = np.concatenate([_order(of) for of in parents])

        def sees(b: int, queries: int, keys: int) -> np.ndarray:
            seen = np.ones((self.trees[b], keys), bool)
            seen[:, self.before[b] :] = _ancestors(parents[b])
            return seen[self.trees[b] - queries :]

        exact = attend(q, [one[0] for one in both], [one[1] for one in both], begins, scale, sees)
        unset, unset_places = np.full(batch, -9, "int32"), np.full(shape[0], -9, "int32")
        results = [poisoned(shape, dtype), poisoned(shape[:2], np.dtype("float32"))]
        numbers = [0, 1.0, 1e4, scale]
        if self.page_size is None:
            k, v = np.concatenate(both, axis=1)
            arguments = [q, begins, k, v, begins_of(lengths), unset_places, order_begins, order]
            return [*arguments, *results, *numbers], exact
        cache = put_into_pages(rng, both, self.page_size)
        pages = [cache.pages, cache.indptr, cache.values, np.array(cache.last, "int32")]
        places = [unset, unset_places]
        return [q, begins, *pages, *places, *results, *numbers, order_begins, order], exact


def _tree(rng: np.random.Generator, count: int) -> list[int]:
    """The parent of each token, depth first; that of a root is -1."""
    parents: list[int] = []
    for token in range(count):
        path = [token - 1]
        while path[-1] >= 0:
            path.append(parents[path[-1]])
        parents.append(path[rng.integers(len(path))])
    return parents


def _ancestors(parents: list[int]) -> np.ndarray:
    """Whether a token is another one's ancestor, or itself."""
    found = np.eye(len(parents), dtype=bool)
    for token, parent in enumerate(parents):
        if parent >= 0:
            found[token] |= found[parent]
    return found


def _order(parents: list[int]) -> np.ndarray:
    """The range of each token: its place, and the first place behind its descendants."""
    count = len(parents)
    sizes = _ancestors(parents).sum(axis=0)
    return np.stack([np.arange(count), np.arange(count) + sizes], axis=1).astype("int32")


def draw(rng: np.random.Generator) -> Case:
    def of(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    batch = int(rng.integers(1, 6))
    trees = tuple(of(0, 1, int(rng.integers(30)), int(rng.integers(150))) for _ in range(batch))
    queries = tuple(of(tree, int(rng.integers(tree + 1))) for tree in trees)
    before = tuple(of(0, 1, 96, int(rng.integers(250))) for _ in range(batch))
    kv_heads = of(1, 2, 3)
    return Case(
        queries, trees, before, kv_heads * of(1, 2, 3, 4, 7), kv_heads,
        8 * int(rng.integers(1, 33)), of("float16", "bfloat16"), of(None, 8, 16, 64),
    )  # fmt: skip


CASES = {
    "ragged": Case(head_dim=128),
    "ragged, trees alone": Case((5, 0, 60, 1), (5, 0, 60, 1), (0, 0, 0, 0), dtype="bfloat16"),
    "ragged, no keys": Case((0, 0), (0, 0), (0, 0)),
    "paged": Case(head_dim=128, page_size=16),
    "paged, 232 elements": Case((5, 1), (60, 4), (40, 9), head_dim=232, page_size=8),
    "paged, many tokens": Case((200, 130), (200, 150), (96, 7), page_size=16),
    "paged, one head": Case((7,), (9,), (33,), 1, 1, page_size=32),
    "paged, 7 heads share": Case(heads=14, head_dim=80, dtype="bfloat16", page_size=8),
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.some(4)
def test_tree_attention(rng, name, arch):
    """The emulator checks each access; what no sequence has is NaN in pages."""
    _run(CASES[name], rng, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("number", range(30))
@pytest.mark.some(4)
def test_random_trees(rng, number, arch):
    case = draw(rng)
    print(case)
    _run(case, rng, arch)


def _run(case: Case, rng: np.random.Generator, arch: str) -> None:
    arguments, exact = case.draw(rng)
    result = emulator.run(case.program(arch=arch), arguments, arch=arch)
    check(*result.outputs[case.results], exact, case.dtype)


def _theirs(case: Case, dtype: str) -> Any:
    make = tree_attn if case.page_size is None else tree_attn_with_paged_kv_cache
    return make(case.kv_heads, case.heads, case.head_dim, dtype, {}, cuda_target("h200"))


@pytest.mark.parametrize("page_size", [None, 16])
def test_results_are_those_of_tvm(rng, page_size):
    """In float32: CUDA has no operators for vectors of 16 bits, which TVM's kernels use."""
    trees = (5, 0, 20, 4)
    queries = (5, 0, 7, 1) if page_size else trees
    before = (20, 3, 30, 1) if page_size else (0, 0, 0, 0)
    case = Case(queries, trees, before, 4, page_size=page_size)
    arguments, exact = case.draw(rng)
    wide = [
        a.astype("float32") if isinstance(a, np.ndarray) and a.dtype == "float16" else a
        for a in arguments
    ]
    wide[2] = np.nan_to_num(wide[2])
    # TVM's kernels read ranges behind the last one, and do not use them.
    order = -1 if page_size else 7
    wide[order] = np.concatenate([wide[order], np.zeros((64, 2), "int32")])
    found = emulator.run(_theirs(case, "float32"), wide).outputs[case.results]
    check(*found, exact, case.dtype)


@pytest.mark.parametrize("page_size", [None, 16])
def test_signature_is_that_of_tvm(page_size):
    """Parameters, and dtypes and ranks of buffers; the names of kernels differ."""
    case = Case(page_size=page_size)
    ours, theirs = case.program(), _theirs(case, case.dtype)
    assert len(ours.params) == len(theirs.params)
    for own, their in zip(ours.params, theirs.params, strict=True):
        assert is_buffer_var(own) == is_buffer_var(their)
        assert str(own.ty.dtype) == str(their.ty.dtype)
        if is_buffer_var(own):
            assert len(own.ty.shape) == len(their.ty.shape)
