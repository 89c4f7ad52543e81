"""Kernels of a KV cache that are no attention: appending to pages, and merging two attentions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.relax.frontend.nn.llm import kv_cache as tvm_kernels
from tvm.tirx import is_buffer_var

from tests.shared.tile_programs.case import numpy_dtype, precision
from warploom import emulator
from warploom.errors import IllegalCombination
from warploom.programs.append_to_pages import append_latent_to_pages, append_to_pages
from warploom.programs.merge_states import merge_states
from warploom.programs.move_in_pages import copy_latent_page, copy_page, move_tokens
from warploom.target import cuda_target

_TARGET = cuda_target("h200")


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.standard_normal(shape).astype(numpy_dtype(dtype))


def _positions(rng: np.random.Generator, tokens: int, places: int) -> np.ndarray:
    """Distinct places in random order; some tokens have none."""
    positions = rng.permutation(places)[:tokens].astype("int32")
    positions[rng.random(tokens) < 0.2] = -1
    return positions


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [0, 1, 15, 130])
@pytest.mark.parametrize(
    ("heads", "width", "dtype", "page_size"),
    [
        (2, 64, "float16", 16), (1, 80, "bfloat16", 16), (3, 8, "float16", 1), (8, 128, "int8", 48),
        (5, 12, "float32", 7),
    ],
)  # fmt: skip
@pytest.mark.some(6)
def test_tokens_go_to_their_places(
    rng: np.random.Generator, heads: int, width: int, dtype: str, page_size: int, tokens: int
) -> None:
    """And nothing else of the pages changes."""
    count = 3 + -(-tokens // page_size)
    positions = _positions(rng, tokens, count * page_size)
    pages = 50 * _drawn(rng, (count, 2, heads, page_size, width), dtype)
    both = [50 * _drawn(rng, (tokens, heads, width), dtype) for _ in range(2)]
    expected = pages.copy()
    for token, position in enumerate(positions):
        if position >= 0:
            for kind in range(2):
                page, place = divmod(position, page_size)
                expected[page, kind, :, place] = both[kind][token]
    program = append_to_pages(heads, width, dtype, page_size)
    result = emulator.run(program, [pages.copy(), *both, positions])
    assert np.array_equal(result.outputs[0], expected)


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [0, 1, 33])
@pytest.mark.parametrize(
    ("width", "dtype", "page_size"), [(576, "bfloat16", 16), (8, "float16", 5)]
)
@pytest.mark.some(2)
def test_latent_vectors_go_to_their_places(
    rng: np.random.Generator, width: int, dtype: str, page_size: int, tokens: int
) -> None:
    count = 2 + -(-tokens // page_size)
    positions = _positions(rng, tokens, count * page_size)
    pages, data = _drawn(rng, (count, page_size, width), dtype), _drawn(rng, (tokens, width), dtype)
    expected = pages.copy().reshape(-1, width)
    expected[positions[positions >= 0]] = data[positions >= 0]
    program = append_latent_to_pages(width, dtype, page_size)
    result = emulator.run(program, [pages.copy(), data, positions])
    assert np.array_equal(result.outputs[0].reshape(-1, width), expected)


@pytest.mark.gpu
@pytest.mark.parametrize(("tokens", "heads"), [(0, 4), (1, 1), (7, 3), (40, 8)])
@pytest.mark.parametrize(
    ("head_dim", "dtype"),
    [(64, "float16"), (80, "bfloat16"), (128, "bfloat16"), (256, "float16"), (512, "float16"),
     (8, "float16"), (12, "float32"), (2048, "bfloat16")],
)  # fmt: skip
@pytest.mark.some(6)
def test_two_parts_become_one(
    rng: np.random.Generator, head_dim: int, dtype: str, tokens: int, heads: int
) -> None:
    """The checks of the emulator find that TVM's kernel overwrites a lse that others still read."""
    parts = [_drawn(rng, (tokens, heads, head_dim), dtype) for _ in range(2)]
    sums = [20 * _drawn(rng, (tokens, heads), "float32") for _ in range(2)]
    for part, no_keys in zip(sums, (rng.random((tokens, heads)) < 0.2 for _ in range(2)),
                             strict=True):  # fmt: skip
        part[no_keys] = -5e4
    program = merge_states(head_dim, dtype)
    result = emulator.run(program, [parts[0].copy(), sums[0].copy(), parts[1], sums[1]])
    wide = [part.astype(np.float64) for part in sums]
    total = np.logaddexp2(*wide)
    shares = [np.exp2(part - total)[..., None] for part in wide]
    expected = sum(share * part for share, part in zip(shares, parts, strict=True))
    found = result.outputs[0].astype(np.float64)
    # Weights are float32 powers of differences of lse of up to some 64.
    largest = np.abs(np.stack(parts).astype(np.float64)).max(axis=0, initial=0)
    rounding = (precision(dtype) + 1e-5) * largest
    assert (np.abs(found - expected) <= rounding).all()
    assert np.abs(result.outputs[1] - total).max(initial=0) <= 1e-5 * 64
    assert (result.outputs[1] == -5e4 + 1).sum() == ((wide[0] == -5e4) & (wide[1] == -5e4)).sum()


@pytest.mark.gpu
@pytest.mark.parametrize("count", [0, 1, 15, 16])
@pytest.mark.parametrize(
    ("heads", "width", "dtype"), [(2, 80, "float16"), (1, 16, "int8"), (8, 128, "bfloat16")]
)
@pytest.mark.some(3)
def test_the_first_tokens_of_a_page_are_copied(
    rng: np.random.Generator, heads: int, width: int, dtype: str, count: int
) -> None:
    pages = 50 * _drawn(rng, (4, 2, heads, 16, width), dtype)
    expected = pages.copy()
    expected[3, :, :, :count] = pages[1, :, :, :count]
    result = emulator.run(copy_page(heads, width, dtype), [pages.copy(), 1, 3, count])
    assert np.array_equal(result.outputs[0], expected)
    latent, wanted = pages[:, 0, 0].copy(), pages[:, 0, 0].copy()
    wanted[2, :count] = latent[0, :count]
    result = emulator.run(copy_latent_page(width, dtype), [latent, 0, 2, count])
    assert np.array_equal(result.outputs[0], wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("lengths", [(), (0,), (1, 0, 7), (8, 9), (16, 30, 1)])
@pytest.mark.parametrize("chains", [False, True])
@pytest.mark.some(4)
def test_tokens_move_one_after_the_other(
    rng: np.random.Generator, lengths: tuple[int, ...], chains: bool
) -> None:
    """Also where a token is overwritten before it moves, and where it moves to itself."""
    heads, width, page_size = 3, 64, 16
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype("int32")
    pages = _drawn(rng, (20, 2, heads, page_size, width), "float16")
    parts = np.array_split(rng.permutation(20 * page_size), max(len(lengths), 1))
    moves = np.zeros((2, indptr[-1]), "int32")
    for b, length in enumerate(lengths):
        # Few positions: moves meet those before them. Many: they do not.
        own = parts[b][: 4 if chains else len(parts[b])]
        moves[:, indptr[b] : indptr[b + 1]] = (
            rng.choice(own, (2, length)) if chains
            else rng.permutation(own)[: 2 * length].reshape(2, length)
        )  # fmt: skip
    expected = pages.copy()
    for source, target in moves.T:
        (page, place), (to_page, to_place) = (divmod(one, page_size) for one in (source, target))
        expected[to_page, :, :, to_place] = expected[page, :, :, place]
    program = move_tokens(heads, width, page_size=page_size)
    result = emulator.run(program, [pages.copy(), indptr, moves, len(lengths)])
    assert np.array_equal(result.outputs[0], expected)


def test_signatures_are_those_of_tvm() -> None:
    pairs = [
        (append_to_pages(2, 64), tvm_kernels._kv_cache_transpose_append(2, 64, "float16")),
        (append_latent_to_pages(576), tvm_kernels._kv_cache_transpose_append_mla(576, "float16")),
        (merge_states(64), tvm_kernels._merge_state_inplace(8, 64, "float16", _TARGET)),
        (copy_page(2, 64), tvm_kernels._copy_single_page(2, 16, 64, "float16", _TARGET)),
        (copy_latent_page(64), tvm_kernels._copy_single_page_mla(16, 64, "float16", _TARGET)),
        (move_tokens(2, 64), tvm_kernels._compact_kv_copy(2, 64, "float16", _TARGET)),
    ]
    for ours, theirs in pairs:
        assert len(ours.params) == len(theirs.params)
        for own, their in zip(ours.params, theirs.params, strict=True):
            assert is_buffer_var(own) == is_buffer_var(their)
            assert str(own.ty.dtype) == str(their.ty.dtype)
            if is_buffer_var(own):
                assert len(own.ty.shape) == len(their.ty.shape)


@pytest.mark.parametrize(
    ("make", "wide"), [(append_to_pages(2, 64), 3), (append_latent_to_pages(64, "bfloat16"), 2),
                       (merge_states(64), 3), (copy_page(2, 64), 4), (move_tokens(1, 8), 48)],
)  # fmt: skip
def test_threads_move_16_bytes_at_a_time(make: Any, wide: int) -> None:
    compiled = tvm.compile(tvm.IRModule({"main": make}), _TARGET)
    source = compiled.mod.imports[0].inspect_source()
    kernel = source[source.rindex('extern "C" __global__') :]
    assert sum("*(uint4*)" in line for line in kernel.splitlines()) >= wide


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (append_to_pages, (2, 4), "a row of 4 float16 is no multiple of 16 bytes"),
        (append_latent_to_pages, (10, "float32"), "a row of 10 float32"),
        (merge_states, (60,), "head_dim is 60"),
        (merge_states, (4096,), "a head of up to 2048"),
        (merge_states, (64, "int8"), "dtype is int8"),
    ],
)
def test_what_has_no_kernel_is_refused(make: Any, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(IllegalCombination, match=message):
        make(*arguments)
