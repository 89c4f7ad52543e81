"""Which sequence a slot or a token belongs to, as a kernel finds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from warploom import emulator
from warploom.programs.sequences import SequenceSearch, search_rounds
from warploom.tile.kinds import MARK

pytestmark = pytest.mark.gpu
_THREADS = 128


def _program(slots: int, tokens: int, chunk: int) -> Any:
    """The sequences of all slots of chunks, and of all tokens."""

    @T.prim_func
    def search(i: T.handle, s: T.handle, t: T.handle, batch: T.int32):
        places = T.int32()
        Indptr = T.match_buffer(i, (places,), "int32")
        Slots = T.match_buffer(s, (slots,), "int32")
        Tokens = T.match_buffer(t, (tokens,), "int32")
        rounds: T.let[T.int32] = search_rounds(batch)
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([_THREADS])
        found = SequenceSearch()
        for n in T.serial(T.truncdiv(slots - thread + (_THREADS - 1), _THREADS)):
            found.find(Indptr, batch, rounds, (n * _THREADS + thread + 1) * chunk, chunk)
            Slots[n * _THREADS + thread] = found.b
        for n in T.serial(T.truncdiv(tokens - thread + (_THREADS - 1), _THREADS)):
            found.find(Indptr, batch, rounds, n * _THREADS + thread + 1)
            Tokens[n * _THREADS + thread] = found.b

    return search.with_attr(MARK, True)


@pytest.mark.parametrize("batch", [1, 2, 7, 8, 9, 63, 64, 65, 130])
@pytest.mark.some(4)
def test_every_slot_and_token_finds_its_sequence(rng, batch):
    """Many sequences are empty, or have exactly a chunk; each edge of a round is a batch."""
    chunk = int(rng.integers(1, 6))
    lengths = rng.choice([0, 0, 1, chunk, chunk + 1, 3 * chunk], batch)
    lengths[rng.integers(batch)] = 2 * chunk + 1  # there is a token
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype("int32")
    tokens, slots = int(indptr[-1]), int(indptr[-1]) // chunk + batch
    empty = [np.full(size, -7, "int32") for size in (slots, tokens)]
    result = emulator.run(_program(slots, tokens, chunk), [indptr, *empty, batch])
    of_slot, of_token = (np.asarray(one) for one in result.outputs[1:3])
    firsts = indptr[:-1] // chunk + np.arange(batch)
    assert (of_slot == np.searchsorted(firsts, np.arange(slots), side="right") - 1).all()
    assert (of_token == np.searchsorted(indptr[:-1], np.arange(tokens), side="right") - 1).all()
