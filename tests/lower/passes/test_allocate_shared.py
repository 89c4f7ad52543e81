"""Places in shared memory: aligned, apart from each other, within the capacity."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tvm_ffi
from tvm import tirx

from tests.shared.lowered_programs import after_passes
from tests.shared.tile_programs import gemm
from warploom.errors import Decline
from warploom.lower.analysis.rings import mbarriers
from warploom.lower.analysis.shared_tiles import tile_bytes
from warploom.lower.passes.allocate_shared import allocate_shared
from warploom.tile.program import TileProgram, allocations


def program_of(buffers: list) -> TileProgram:
    program = after_passes(gemm().func)
    return program.replace(body=tuple(tirx.AllocBuffer(buffer) for buffer in buffers))


def places(program: TileProgram) -> list[tuple[str, int, int]]:
    """Name, first byte and bytes of every buffer."""
    found = []

    def visit(one: tirx.DeclBuffer) -> None:
        buffer = one.buffer
        size = tile_bytes(buffer)
        element = size // int(np.prod([int(e) for e in buffer.shape]))
        found.append((buffer.name, int(buffer.elem_offset) * element, size))

    for one in program.body:
        tvm_ffi.structural_walk(one, (tirx.DeclBuffer, visit))
    return found


@pytest.mark.parametrize("seed", range(10))
def test_places_are_aligned_and_apart(seed):
    rng = np.random.default_rng(seed)
    buffers = [
        tirx.decl_buffer(
            tuple(int(n) for n in rng.integers(1, 40, 2)),
            str(rng.choice(["int8", "float16", "float32", "uint64"])), f"t{i}", scope="shared",
        )
        for i in range(6)
    ]  # fmt: skip
    buffers += [mbarriers(f"b{i}", int(rng.integers(1, 7))) for i in range(3)]
    program = allocate_shared(program_of([buffers[i] for i in rng.permutation(9)]))
    found = sorted(places(program), key=lambda one: one[1])
    assert sorted(name for name, _, _ in found) == sorted(b.name for b in buffers)
    for (_, start, size), (_, following, _) in itertools.pairwise(found):
        assert start + size <= following
    for name, start, bytes_ in found:
        # No engine copies tiles of so few bytes.
        assert start % (8 if name.startswith("b") or bytes_ <= 8 else 1024) == 0
    scopes = {b.scope() for b in allocations(program.body)}
    assert scopes == {"shared.dyn"}
    size = max(start + size for _, start, size in found)
    assert program.decisions[0].startswith(f"shared memory: {size} of ")


def test_a_budget_that_is_exceeded_is_one_sentence_with_the_largest_buffers():
    tile = tirx.decl_buffer((2, 64, 64), "float16", "A_s", scope="shared")
    buffers = [tile, mbarriers("full", 2)]
    with pytest.raises(Decline) as error:
        allocate_shared(program_of(buffers), capacity=16000)
    assert str(error.value) == (
        "The kernel needs 16400 bytes of shared memory and a CTA has 16000; use fewer stages or "
        "smaller tiles: A_s: 2 x 64 x 64 float16, 16384 bytes; full: 2 uint64, 16 bytes."
    )
    allocate_shared(program_of(buffers), capacity=16400)
    buffers += [mbarriers(f"b{i}", i) for i in (1, 4, 3)]
    with pytest.raises(Decline, match=r"bytes; b4: 4 .* 32 bytes; b3: .* 24 bytes; others: 24 b"):
        allocate_shared(program_of(buffers), capacity=16000)
