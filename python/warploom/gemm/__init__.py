"""Matmul-like functions in S-TIR: recognition, and the tile program that computes them."""

from warploom.gemm.problem import GemmFunction
from warploom.gemm.recognition import recognise

__all__ = ["GemmFunction", "recognise"]
