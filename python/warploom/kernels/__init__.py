"""Two matmuls that are generated for whatever is asked, to be read, changed and compared.

:func:`matmul_multistage` and :func:`matmul_warp_specialised` show orchestrated kernels: their
author writes threads and mbarriers. :mod:`warploom.programs` has the products to be used.
"""

from __future__ import annotations

from warploom.kernels.matmul import matmul_multistage, matmul_warp_specialised

__all__ = ["matmul_multistage", "matmul_warp_specialised"]
