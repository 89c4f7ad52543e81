"""Matmul-like functions: recognition, configuration, the tile program that computes them."""

from warploom.gemm.knobs import GemmKnobs
from warploom.gemm.problem import GemmFunction, GemmProblem
from warploom.gemm.recognition import recognise

__all__ = ["GemmFunction", "GemmKnobs", "GemmProblem", "recognise"]
