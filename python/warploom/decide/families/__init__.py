"""Families of kernels beside the plain GEMM: for each, a problem and the config that suits it.

:func:`warploom.decide.choose` asks the family of a problem.
"""
