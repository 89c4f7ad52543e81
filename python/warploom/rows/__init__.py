"""Kernels that memory bounds: element-wise, reductions of rows and of windows, transpositions.

Between GEMMs a model normalises, rotates, weighs: each element is read once and little is
computed. What counts is that loads are wide, rows stay in registers between two passes over them,
and a kernel starts while its predecessor ends (PDL).
"""

from warploom.rows.generate import row_kernel
from warploom.rows.plan import RowPlan
from warploom.rows.problem import RowFunction, read_rows

__all__ = ["RowFunction", "RowPlan", "read_rows", "row_kernel"]
