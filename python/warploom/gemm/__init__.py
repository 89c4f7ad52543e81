"""Matmul-like functions: recognition, configuration, the tile program that computes them."""

from warploom.decide.config import Config
from warploom.decide.problem import GemmProblem
from warploom.gemm.problem import GemmFunction
from warploom.gemm.recognition import recognise

__all__ = ["Config", "GemmFunction", "GemmProblem", "recognise"]
