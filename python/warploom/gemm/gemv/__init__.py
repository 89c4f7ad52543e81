"""GEMMs of few rows whose weights go from global memory straight into registers."""

from warploom.gemm.gemv.kernel import gemv_kernel

__all__ = ["gemv_kernel"]
