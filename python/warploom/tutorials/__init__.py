"""Common parts of tutorials: they run kernels, and they become notebooks."""

from warploom.tutorials.check import check_assembled, check_matmul

__all__ = ["check_assembled", "check_matmul"]
