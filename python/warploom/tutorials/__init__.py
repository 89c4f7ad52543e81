"""Common parts of tutorials: they run kernels, become notebooks, and have exercises."""

from warploom.tutorials.check import check_assembled, check_matmul, check_program
from warploom.tutorials.exercises import Exercise

__all__ = ["Exercise", "check_assembled", "check_matmul", "check_program"]
