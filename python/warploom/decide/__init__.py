"""What is chosen for a kernel, and why: configs, what is legal, what it costs.

Examples
--------
>>> problem = plain_gemm(512, 4096, 4096)
>>> choose(problem).why_not(problem) is None
True
"""

from __future__ import annotations

from warploom.decide.config import Config
from warploom.decide.model import Prediction, predict
from warploom.decide.price.program import price_program
from warploom.decide.problem import GemmProblem, plain_gemm
from warploom.decide.ranking import ranked
from warploom.decide.selector import choose

__all__ = [
    "Config",
    "GemmProblem",
    "Prediction",
    "choose",
    "plain_gemm",
    "predict",
    "price_program",
    "ranked",
]
