"""Attention: its work by formulas is that of its program, and the tile that is chosen for it."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest

from warploom.decide import choose
from warploom.decide.families.attention import (
    AttentionProblem,
    config_of,
    heads_at_a_time,
    predicted,
)
from warploom.decide.machine import H200
from warploom.decide.machines import machine_of
from warploom.decide.price.attention import attention_work
from warploom.decide.price.model import price
from warploom.decide.price.read import read
from warploom.decide.price.work import Nest
from warploom.programs import attention
from warploom.target.gpus import GPUS

_TILES = ((64, 64), (128, 96), (128, 128), (128, 160), (192, 80), (256, 64))


@pytest.mark.parametrize("causal", [False, True])
def test_formulas_and_statements_say_the_same(causal: bool, rng: np.random.Generator) -> None:
    for _ in range(8):
        tokens, head_dim = int(2 ** rng.uniform(8, 13)), 8 * int(rng.integers(2, 17))
        share, kv_heads, batch = (int(rng.integers(1, 4)) for _ in range(3))
        tile = _TILES[rng.integers(len(_TILES))]
        sizes = tokens, head_dim, share * kv_heads, kv_heads, batch, causal
        print(*sizes, tile)
        ordered = bool(rng.integers(2)) and tile[0] > 64
        expected = attention_work(*sizes, tile, 2, order_mmas=ordered)
        found = read(attention(*sizes, tile=tile, stages=2, order_mmas=ordered))
        # How many steps a causal tile has, is looked at of some; masks are, of some steps.
        near = 0.08 if causal else 0.0
        assert math.isclose(found.steps, expected.steps, rel_tol=near)
        for name in Nest._fields:
            # The first block of keys shrinks no sums.
            own = {"alu": 0.25, "fma": 0.5}.get(name, 1e-12)
            pair = getattr(found.nest, name), getattr(expected.nest, name)
            assert math.isclose(*pair, rel_tol=own), (name, *pair)
        if not causal:
            assert sum(one.times for one in found.loads) == pytest.approx(2), "K and V, once a step"
            same = {"nest": expected.nest, "loads": expected.loads}
            assert found._replace(**same) == expected, (found, expected)
        assert price(found).total == pytest.approx(price(expected).total, rel=0.02 + near)


def _tile(tokens: int, heads: int = 32, head_dim: int = 128, gpu: str = "h200") -> tuple[int, int]:
    problem = AttentionProblem(tokens, head_dim, heads, heads)
    config = choose(problem, machine_of(GPUS[gpu]))
    return config.tile_m, config.tile_n


def test_tiles_are_chosen_that_were_the_fastest() -> None:
    """16 heads of 128 elements, one H200, 2026-11-26: chosen tiles took at most 1.02 of the least.

    With 3072 tokens and 32 heads, tiles of 192 queries make 3.9 waves, others 5.8.
    """
    chosen = {tokens: _tile(tokens, 16) for tokens in (2048, 4096, 8192, 12288, 16384)}
    assert chosen == {
        2048: (128, 160), 4096: (128, 160), 8192: (128, 176), 12288: (128, 176),
        16384: (128, 176),
    }  # fmt: skip
    assert _tile(3072, 32) == (192, 80)


def test_the_choice_is_near_the_least_price(rng: np.random.Generator) -> None:
    for _ in range(20):
        tokens, heads = int(2 ** rng.uniform(6, 14)), int(rng.integers(1, 65))
        problem = AttentionProblem(tokens, 128, heads, heads)
        chosen, *others = (
            predicted(problem, config_of(problem, *tile), H200)
            for tile in (_tile(tokens, heads), (128, 160), (128, 128), (192, 80))
        )
        assert chosen <= 1.01 * min(others) * (1 + 1e-12)


def test_another_gpu_has_another_choice() -> None:
    sizes = range(1024, 16384, 512)
    assert [_tile(tokens) for tokens in sizes] != [_tile(tokens, gpu="h20") for tokens in sizes]
    assert _tile(4096, head_dim=256) == (128, 64)


@pytest.mark.parametrize("gpu", ["h200", "h20", "h100-pcie"])
def test_heads_of_a_time_fit_into_the_cache(gpu: str, rng: np.random.Generator) -> None:
    machine = machine_of(GPUS[gpu])
    for _ in range(50):
        kv_heads, share = int(rng.integers(1, 33)), int(rng.integers(1, 9))
        tokens, head_dim = int(2 ** rng.uniform(4, 16)), int(rng.choice([64, 128, 256]))
        problem = AttentionProblem(tokens, head_dim, kv_heads * share, kv_heads, causal=True)
        heads = heads_at_a_time(problem, machine)
        assert problem.heads % heads == 0 and heads % share == 0
        bytes_of = heads // share * tokens * head_dim * 4
        assert heads == share or bytes_of <= machine.gpu.l2_bytes / 2
        if heads < problem.heads:
            assert 4 * problem.kv_heads * tokens * head_dim > machine.gpu.l2_bytes / 2


def test_sms_end_together_where_tiles_differ() -> None:
    """A mask makes tiles of one step and of all: SMs that take the next one wait for the last."""
    for tokens, heads in ((1024, 32), (2048, 32), (4096, 16), (3356, 8), (8192, 16)):
        problem = AttentionProblem(tokens, 128, heads, heads, causal=True)
        config, together = choose(problem, H200), heads_at_a_time(problem, H200)
        blocks = -(-tokens // config.tile_m)
        steps = [-(-(row + 1) * config.tile_m // config.tile_n) + 2 for row in range(blocks)]
        grid = [steps[row] for _ in range(heads // together) for row in reversed(range(blocks))
                for _ in range(together)]  # fmt: skip
        busy = [0] * H200.sms
        for tile in grid:
            heapq.heapreplace(busy, busy[0] + tile)
        assert max(busy) <= 1.15 * max(sum(grid) / H200.sms, max(steps)), (tokens, heads)
