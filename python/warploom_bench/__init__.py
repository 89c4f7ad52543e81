"""Measurements: kernels against the vendor's libraries, and the time it takes to compile one.

``python -m warploom_bench gemm`` needs a GPU and PyTorch, which is imported only then: it brings
cuBLAS, and is no dependency of warploom. ``--kernels DIR --compile-only`` needs neither, and makes
all that a machine with TVM's runtime and PyTorch needs beside this package. ``README.md`` in this
folder says more.

Nothing in ``warploom`` imports this package; ``warploom bench`` finds it by its name. ``data/`` and
``suites/`` hold what code reads; ``results/`` and ``experiments/`` stay in the repository.
"""
