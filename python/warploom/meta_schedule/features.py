"""Features of a candidate for the cost model: sizes, choices, terms of the analytic model."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from warploom.decide.config import Config
from warploom.decide.machine import H200, Machine
from warploom.decide.model import Prediction, predict
from warploom.decide.problem import GemmProblem
from warploom.decide.work import UNKNOWN_EXTENT, sizes


def names() -> tuple[str, ...]:
    """Names of the elements of :func:`features`."""
    terms = ("tensor", "l2", "dram", "fill", "drain", "launch", "reduce")
    return (
        "m", "n", "k", "batch", "a_bits", "b_bits", "products", "outputs",
        *Config().values(),
        *(f"share_{name}" for name in terms), "waves", "filled", "edge", "stage_bytes", "total",
    )  # fmt: skip


def features(
    problem: GemmProblem, config: Config, machine: Machine = H200
) -> tuple[NDArray[np.float32], Prediction]:
    """Features of a candidate, and the prediction that they contain.

    Returns
    -------
    float32 of shape [len(names())]
        Sizes and times as logarithms of base 2, the model's terms as shares of the total.
    Prediction
    """
    m, n, k, batch = (extent or UNKNOWN_EXTENT for extent in sizes(problem))
    prediction = predict(problem, config, machine)
    total = prediction.total
    tiles = math.ceil(m / config.tile_m) * math.ceil(n / config.tile_n) * batch
    slots = machine.sms * config.ctas_per_sm
    units = tiles * config.split_k
    values = (
        *(math.log2(extent) for extent in (m, n, k, batch)),
        problem.a_bits, problem.b_bits, problem.products, len(problem.outputs),
        *(math.log2(1 + value) for value in config.values().values()),
        *(getattr(prediction, name.removeprefix("share_")) / total for name in names()
          if name.startswith("share_")),
        prediction.waves,
        units / (prediction.waves * slots),
        m * n * batch / (tiles * config.tile_m * config.tile_n),
        math.log2(config.stage_bytes(problem)),
        math.log2(total),
    )  # fmt: skip
    return np.array(values, "float32"), prediction
