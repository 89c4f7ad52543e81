"""Measurements: kernels against the vendor's libraries, and the time it takes to compile one.

``python -m warploom.bench gemm`` needs a GPU and PyTorch, which is imported only then: it brings
cuBLAS, and is no dependency of warploom. ``python -m warploom.bench compile`` needs neither.
"""
