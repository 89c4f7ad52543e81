"""A GEMM by its sizes, as suites of shapes, records of measurements and commands name it.

:mod:`warploom.gemm.workloads` has the function that computes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from warploom.errors import WarploomError
from warploom.target.dtypes import bits_of

#: TVM dtype of the operands -> of the result.
RESULT_DTYPE = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "bfloat16",
    "int8": "int32",
    "tfloat32": "float32",
}
#: Which operands are transposed, in the terms of BLAS: A is ``[m, k]`` if N and ``[k, m]`` if T,
#: B is ``[k, n]`` if N and ``[n, k]`` if T.
LAYOUTS = ("NT", "NN", "TN", "TT")
#: What follows the GEMM: ``bias`` is a row of n elements; ``gelu`` its approximation by tanh;
#: ``swiglu`` multiplies silu of the first half of the columns by the second half.
EPILOGUES = ("none", "bias", "bias_gelu", "residual", "swiglu")


@dataclass(frozen=True)
class GemmShape:
    """``C[m, n] = epilogue(A B)``.

    Attributes
    ----------
    group : str
        Shapes of a group are summarised together.
    m, n, k : int
    dtype : str
        Operands; the result is :data:`RESULT_DTYPE`. ``tfloat32`` is float32 multiplied as such.
    layout : str
        One of :data:`LAYOUTS`.
    epilogue : str
        One of :data:`EPILOGUES`.
    target : float or None
        Ratio to the library that must be reached.
    """

    HEADER: ClassVar[str] = "shape MxNxK"
    group: str
    m: int
    n: int
    k: int
    dtype: str
    target: float | None = None
    layout: str = "NT"
    epilogue: str = "none"

    def __post_init__(self) -> None:
        if self.dtype not in RESULT_DTYPE:
            raise WarploomError(
                f"A benchmark of dtype {self.dtype!r} does not exist; "
                f"allowed are {', '.join(RESULT_DTYPE)}."
            )
        for name, value, known in (
            ("layout", self.layout, LAYOUTS), ("epilogue", self.epilogue, EPILOGUES)
        ):  # fmt: skip
            if value not in known:
                raise WarploomError(
                    f"There is no {name} {value!r}; allowed are {', '.join(known)}."
                )
        if self.epilogue != "none" and self.dtype not in ("float16", "bfloat16"):
            raise WarploomError(
                f"Epilogue {self.epilogue!r} is measured for float16 and bfloat16, "
                f"not for {self.dtype}."
            )
        if self.epilogue == "swiglu" and self.n % 2:
            raise WarploomError(f"swiglu halves the columns, and there are {self.n} of them.")
        if min(self.m, self.n, self.k) < 1:
            raise WarploomError(f"Extents must be positive, got {self.m} x {self.n} x {self.k}.")

    def __str__(self) -> str:
        more = [self.layout] * (self.layout != "NT") + [self.epilogue] * (self.epilogue != "none")
        return " ".join([f"{self.m}x{self.n}x{self.k}", self.dtype, *more])

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k

    @property
    def result_dtype(self) -> str:
        return RESULT_DTYPE[self.dtype]

    @property
    def storage_dtype(self) -> str:
        """How A and B are stored."""
        return "float32" if self.dtype == "tfloat32" else self.dtype

    @property
    def columns(self) -> int:
        """Of the result."""
        return self.n // 2 if self.epilogue == "swiglu" else self.n

    @property
    def a_shape(self) -> tuple[int, int]:
        return (self.m, self.k) if self.layout[0] == "N" else (self.k, self.m)

    @property
    def b_shape(self) -> tuple[int, int]:
        return (self.n, self.k) if self.layout[1] == "T" else (self.k, self.n)

    @property
    def input_bytes(self) -> int:
        """Bytes of A and B."""
        return (self.m + self.n) * self.k * bits_of(self.storage_dtype) // 8

    @property
    def bytes(self) -> int:
        """Bytes of A, B and the result, and of the epilogue inputs."""
        elements = self.m * self.columns * (2 if self.epilogue == "residual" else 1)
        elements += self.n if self.epilogue.startswith("bias") else 0
        return self.input_bytes + elements * bits_of(self.result_dtype) // 8
