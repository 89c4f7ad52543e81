"""``wl.rand``, ``randn`` and ``randint``: one number for a seed and an offset, in any thread."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import run
from tests.shared.philox import first_word, words
from warploom import emulator
from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.language.values import philox
from warploom.lower.lowerings import lower

pytestmark = pytest.mark.gpu
ONES = 2**32 - 1


def test_known_answers():
    """Of Random123's kat_vectors."""
    for counter, key, expected in (
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ):
        assert words(counter, key) == expected


def test_words_in_numpy(rng):
    seeds, offsets = rng.integers(0, 2**64 - 1, (2, 50), np.uint64)
    for seed, offset, both in zip(seeds, offsets, philox.bits(seeds, offsets), strict=True):
        assert int(both) % 2**32 == first_word(int(seed), int(offset))


def noise(scope, dtype):
    """Bits, uniform and normal numbers, in a nest of a tile and in one of global memory."""

    @T.prim_func
    def func(
        bits: T.Buffer((2, 40, 24), "uint32"), uniform: T.Buffer((2, 40, 24), "float32"),
        normal: T.Buffer((2, 40, 24), "float32"), seed: dtype,
    ):  # fmt: skip
        T.device_entry()
        b = T.cta_id([2])
        x = T.alloc_buffer((40, 24), "float32", scope=scope)
        for i, j in T.grid(40, 24):
            x[i, j] = wl.rand(seed, b * 960 + i * 24 + j)
        for i, j in T.grid(40, 24):
            bits[b, i, j] = wl.randint(seed, T.Cast("int64", b * 960 + i * 24 + j) << T.int64(31))
            normal[b, i, j] = wl.randn(seed, b * 960 + i * 24 + j)
        Tx.cta.copy(uniform[b, 0:40, 0:24], x)

    return func


@pytest.mark.parametrize(("scope", "dtype", "arch"), itertools.product(
    ["fragment", "shared"], [T.int32, T.int64], ["sm_90a", "sm_100a"],
))  # fmt: skip
@pytest.mark.some(4)
def test_kernels_and_the_interpreter_agree(scope, dtype, arch, rng):
    func = noise(scope, dtype)
    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)
    seed = int(rng.integers(-(2**31), 0)) << (0 if dtype is T.int32 else 32)
    shape = (2, 40, 24)
    poison = [np.full(shape, np.nan, np.float32) for _ in range(2)]
    arguments = [np.zeros(shape, np.uint32), *poison, seed]
    interpreted = [np.copy(x) if isinstance(x, np.ndarray) else x for x in arguments]
    wl.interpret(func, interpreted)
    got = run(lower(func, arch), arguments, arch)
    places = np.arange(2 * 40 * 24)
    bits = np.array([first_word(seed, int(place) << 31) for place in places]).reshape(shape)
    uniform = np.array([(first_word(seed, int(place)) >> 8) * 2.0**-24 for place in places])
    for result in (interpreted, got):
        np.testing.assert_array_equal(result[0], bits)
        np.testing.assert_array_equal(result[1], uniform.reshape(shape))
    np.testing.assert_allclose(got[2], interpreted[2], rtol=0, atol=2e-5)
    normal = interpreted[2]
    assert abs(normal.mean()) < 0.15 and abs(normal.std() - 1) < 0.1 and abs(normal).max() < 5.8


def test_threads_of_a_kernel_by_hand(rng):
    @T.prim_func
    def func(A: T.Buffer((64,), "uint32")):
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([64])
        A[thread] = wl.randint(7, thread)

    (got,) = emulator.run(func, [np.zeros(64, np.uint32)]).outputs
    np.testing.assert_array_equal(got, [first_word(7, offset) for offset in range(64)])


@pytest.mark.parametrize("name", ["rand", "randint", "randn"])
def test_what_is_refused(name):
    with pytest.raises(IllegalCombination, match=f"the seed of {name} is .*must be an integer"):
        getattr(wl, name)(1.5, 0)
    with pytest.raises(IllegalCombination, match=f"the offset of {name} is "):
        getattr(wl, name)(0, T.float32(2))
