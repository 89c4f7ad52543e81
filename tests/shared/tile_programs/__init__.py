"""Tile programs for the tests of the language and of the passes, with what they compute in numpy.

Each builder takes sizes, tiles, dtypes and stages, and returns a :class:`Case`. A program captures
the variables of its builder, for TVMScript reads those of the enclosing function.
"""

from tests.shared.tile_programs.attention import attention
from tests.shared.tile_programs.case import Case
from tests.shared.tile_programs.computed_operand import computed_operand
from tests.shared.tile_programs.epilogue import EPILOGUES, epilogue, row_sums, two_outputs
from tests.shared.tile_programs.gemm import gemm
from tests.shared.tile_programs.generated import random_program
from tests.shared.tile_programs.quantised import block_scaled, dequantised, packed
from tests.shared.tile_programs.rows import rows_by_index
from tests.shared.tile_programs.scaled import scaled
from tests.shared.tile_programs.several import grouped, side_by_side, swiglu
from tests.shared.tile_programs.sparse import sparse_gemm

__all__ = [
    "EPILOGUES",
    "Case",
    "attention",
    "block_scaled",
    "computed_operand",
    "dequantised",
    "epilogue",
    "gemm",
    "grouped",
    "packed",
    "random_program",
    "row_sums",
    "rows_by_index",
    "scaled",
    "side_by_side",
    "sparse_gemm",
    "swiglu",
    "two_outputs",
]
