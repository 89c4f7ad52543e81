"""Kernels that numbers of rows share: what they lose by the model, and that none can be spared."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest

from warploom.decide import Config, plain_gemm
from warploom.decide.machines import machine_for
from warploom.decide.model import predict
from warploom.decide.ranking import ROW_LIMITS, SHARED_LOSS, choose_by_rows, ranked
from warploom.decide.rules import violations
from warploom.errors import IllegalCombination
from warploom.target import SM90A


def _problems(rng: np.random.Generator, count: int):
    for n, k in rng.integers(8, 256, (count, 2)) * 64:
        yield plain_gemm(None, int(n), int(k), str(rng.choice(["float16", "float8_e4m3fn"])))


def _loss(problem, rows: int, config: Config) -> float:
    fixed, machine = replace(problem, m=rows), machine_for()
    best, _ = ranked(fixed, machine=machine)[0]
    return predict(fixed, config, machine).total / best


@pytest.mark.in_turn(2)
def test_no_number_of_rows_loses_more_than_is_said_and_no_kernel_can_be_spared(rng) -> None:
    for problem in _problems(rng, 3):
        pairs = choose_by_rows(problem)
        assert pairs[-1] == (None, ranked(problem)[0][1])
        for rows in ROW_LIMITS:
            config = next(c for limit, c in pairs if limit is None or rows <= limit)
            assert _loss(problem, rows, config) <= SHARED_LOSS * (1 + 1e-9)
        for (limit, config), (_, larger) in itertools.pairwise(pairs):
            assert replace(problem, m=limit).m == limit and config != larger
            assert _loss(problem, limit, larger) > SHARED_LOSS, "the larger kernel serves no more"


def test_a_greater_loss_needs_no_more_kernels(rng, monkeypatch) -> None:
    (problem,) = _problems(rng, 1)
    counts = []
    for loss in (1.0, 1.05, 1.2, 100.0):
        monkeypatch.setattr("warploom.decide.ranking.SHARED_LOSS", loss)
        counts.append(len(choose_by_rows(problem)))
    assert counts == sorted(counts, reverse=True) and counts[-1] == 1


def test_a_replaced_config_is_that_of_dataclasses(rng) -> None:
    config = ranked(plain_gemm(256, 4096, 4096))[0][1]
    for field in fields(Config):
        values = {getattr(other, field.name) for _, other in ranked(plain_gemm(64, 4096, 4096))}
        for value in values:
            changes = {field.name: value, "stages": int(rng.integers(1, 9))}
            made = config.replace(**changes)
            assert made == replace(config, **changes) and hash(made) == hash(
                replace(config, **changes)
            )
    with pytest.raises(IllegalCombination, match="stages = -1"):
        config.replace(stages=-1)
    with pytest.raises(TypeError, match="no_choice"):
        config.replace(no_choice=1)


def test_every_violation_has_a_sentence() -> None:
    problem = plain_gemm(4096, 4096, 4096)
    bad = Config(tile_m=128, tile_n=256, tile_k=72, stages=12, consumers=3, slice_k=2)
    found = list(violations(bad, problem, SM90A))
    assert len(found) > 3 and len(set(found)) == len(found)
    assert bad.why_not(problem) == found[0]
    assert not list(violations(ranked(problem)[0][1], problem, SM90A))
