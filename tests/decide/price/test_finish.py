"""What epilogues compute: counted of their formulas, and priced for each element."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.decide.price.random_configs import random_configs
from warploom.decide.config import Config
from warploom.decide.machine import H200
from warploom.decide.model import predict
from warploom.decide.price.gemm import work_of
from warploom.decide.problem import GemmProblem
from warploom.decide.ranking import ranked
from warploom.gemm.workloads import problem_of
from warploom.gemm_shape import GemmShape


def _problem(epilogue: str, m: int = 7368, n: int = 2480, k: int = 80) -> GemmProblem:
    return problem_of(GemmShape("g", m, n, k, "bfloat16", epilogue=epilogue))


@pytest.mark.parametrize(
    ("epilogue", "finish"),
    [
        ("none", ()),
        ("bias", (1.0, 0.0, 0.0, 0.0)),
        # x + b; 0.5 x, 0.04 x x x + x, the factor of tanh, tanh, 1 +, the product.
        ("bias_gelu", (8.0, 0.0, 1.0, 0.0)),
        ("residual", (1.0, 0.0, 0.0, 0.5)),
        ("swiglu", (4.0, 0.0, 2.0, 0.0)),
    ],
)
def test_formulas_are_counted_once_for_an_element(epilogue: str, finish: tuple) -> None:
    """The biased sum occurs five times in a GELU."""
    assert _problem(epilogue).finish == finish


#: Microseconds of 7368 x 2480 x 80, bfloat16 with bias and GELU (H200, 2026-11-26, calibration), of
#: kernels whose machine code had 27 instructions for each guarded element of the bias.
_MEASURED = {
    Config(192, 96, 64, stages=5, consumers=1, ping_pong=True, cluster_n=2): 23.4,
    Config(128, 96, 128, stages=3, consumers=1, ping_pong=True, cluster_n=2): 24.7,
    Config(192, 160, 64, stages=4, consumers=3, cluster_n=2): 27.7,
    Config(192, 128, 64, stages=4, consumers=3, cluster_n=2): 30.3,
    Config(128, 128, 128, stages=3, consumers=1, ping_pong=True, cluster_n=2): 35.7,
}


def test_gelu_takes_as_long_as_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warploom.decide.price.finish._GUARDED", 27.0)
    for config, us in _MEASURED.items():
        assert predict(_problem("bias_gelu"), config, H200).total == pytest.approx(us, rel=0.2)


def test_more_instructions_take_longer(rng: np.random.Generator) -> None:
    plain = _problem("none", 1500, 1000, 256)
    for config in random_configs(plain, rng, 30):
        times = [
            predict(replace(plain, finish=(count, 0.0, 0.0, 0.0)), config, H200).total
            for count in (0.0, 4.0, 16.0)
        ]
        assert times == sorted(times), config


def test_tiles_over_the_edge_read_vectors_element_by_element() -> None:
    """2480 columns end 48 columns into a tile of 128: the other 80 are guarded."""
    config = Config(128, 128, 64, stages=4)
    guarded, whole = (work_of(_problem("bias", n=n), config).finish for n in (2480, 2560))
    assert whole.alu == 0 and guarded.alu == pytest.approx(2.7 * 128 * 80)


def test_problems_that_differ_in_arithmetic_have_choices_of_their_own() -> None:
    """Records do not say what epilogues compute, so such problems are equal."""
    cheap, costly = _problem("bias"), _problem("bias_gelu")
    assert cheap == costly and hash(cheap) == hash(costly)
    assert ranked(cheap, 1)[0][0] < ranked(costly, 1)[0][0]


def test_products_side_by_side_need_the_registers_of_all_columns() -> None:
    """A SwiGLU of 64 columns multiplies with MMAs of 128, which 80 registers do not hold."""
    problem = _problem("swiglu", 1024, 2336, 4096)
    config = Config(128, 64, 64, stages=3, consumers=2, ctas_per_sm=2)
    assert config.mma_columns(problem) == 128
    assert "An MMA of 128 columns" in str(config.why_not(problem))
    assert config.replace(ctas_per_sm=1).why_not(problem) is None
    assert config.why_not(_problem("none", 1024, 2336, 4096)) is None
