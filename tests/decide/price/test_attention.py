"""Attention: its work by formulas is that of its program, and the tile that is chosen for it."""

from __future__ import annotations

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
from warploom.decide.machines import machine_for, machine_of
from warploom.decide.price.attention import attention_work, steps_of_tiles
from warploom.decide.price.model import price
from warploom.decide.price.read import read
from warploom.decide.price.uneven import busiest
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
        problem = AttentionProblem(tokens, head_dim, share * kv_heads, kv_heads, batch, causal)
        together = heads_at_a_time(problem, machine_for(), tile)
        ordered, capped = (bool(one) for one in rng.integers(2, size=2))
        ordered &= tile[0] > 64
        expected = attention_work(
            *sizes, tile, 2, together=together, order_mmas=ordered, capped=capped
        )
        cap = 30.0 if capped else None
        found = read(attention(*sizes, tile=tile, stages=2, order_mmas=ordered, soft_cap=cap))
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
        else:
            for name in ("tiles", "batch", "group"):
                assert getattr(found, name) == getattr(expected, name), name
            assert len(found.lengths) == len(expected.lengths)
            assert np.allclose(found.lengths, expected.lengths, atol=1 + tokens / tile[1] / 12)
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
    """Where nothing else is known; otherwise the model says which number is the best."""
    machine = machine_of(GPUS[gpu])
    for _ in range(50):
        kv_heads, share, batch = (int(rng.integers(1, most)) for most in (33, 9, 5))
        keys, head_dim = int(2 ** rng.uniform(4, 16)), int(rng.choice([64, 128, 256]))
        heads = kv_heads * share
        problem = AttentionProblem(None, head_dim, heads, kv_heads, batch, True, keys=keys)
        together = heads_at_a_time(problem, machine, (128, 64))
        print(problem, together)
        assert heads * batch % together == 0
        bytes_of = -(-together // share) * keys * head_dim * 4
        assert together == 1 or bytes_of <= machine.gpu.l2_bytes / 2


def test_no_other_number_of_heads_of_a_time_is_better(rng: np.random.Generator) -> None:
    for _ in range(5):
        tokens, heads, batch = int(2 ** rng.uniform(6, 13)), int(rng.integers(1, 33)), 2
        problem = AttentionProblem(tokens, 128, heads, heads, batch, causal=True)
        times = {
            together: price(attention_work(
                tokens, 128, heads, heads, batch, True, (128, 96), 2, together=together
            )).total
            for together in range(1, heads * batch + 1) if heads * batch % together == 0
        }  # fmt: skip
        print(problem, times)
        assert times[heads_at_a_time(problem, H200, (128, 96))] == min(times.values())


def _busy(steps: list[int], heads: int, times: int, slots: int) -> list[int]:
    """Steps of CTAs that take every so-many-th tile, each with one step more."""
    grid = [length + 1 for _ in range(times) for length in steps for _ in range(heads)]
    return [sum(grid[cta::slots]) for cta in range(slots)]


def test_sms_end_together_where_tiles_differ() -> None:
    """A mask makes tiles of one step and of all, and an SM takes every so-many-th of them."""
    for tokens, heads, batch in (
        (1024, 32, 1), (2048, 32, 1), (2048, 16, 4), (4096, 16, 4), (3356, 8, 8), (8192, 16, 1),
    ):  # fmt: skip
        problem = AttentionProblem(tokens, 128, heads, heads, batch, causal=True)
        config = choose(problem, H200)
        tile = config.tile_m, config.tile_n
        together = heads_at_a_time(problem, H200, tile)
        steps = steps_of_tiles(tokens, tokens, tile)
        busy = _busy(steps, together, heads * batch // together, H200.sms)
        assert max(busy) <= 1.35 * max(sum(busy) / H200.sms, steps[0]), (problem, together)


def test_the_busiest_cta_is_found(rng: np.random.Generator) -> None:
    for _ in range(50):
        rows, heads, batch, slots = (int(rng.integers(1, most)) for most in (9, 12, 4, 20))
        group = int(rng.integers(1, heads + 1))
        lengths = [int(length) for length in rng.integers(1, 10, rows)]
        groups = [range(first, min(first + group, heads)) for first in range(0, heads, group)]
        order = [row for _ in range(batch) for part in groups for row in lengths for _ in part]
        busy = [(sum(order[cta::slots]), len(order[cta::slots])) for cta in range(slots)]
        found = busiest(lengths, heads, batch, group, slots, 1.5)
        assert found in busy, (found, busy)
        assert found[0] + 1.5 * found[1] == max(steps + 1.5 * tiles for steps, tiles in busy)
