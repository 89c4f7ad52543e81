"""Which products are measured: suites of shapes, as JSON.

A suite of this package lists its shapes one by one, with the ratio that each must reach
(``suites/foundation.json``). A file that maps group names to lists of ``[M, N, K]`` is read as
well; it has no dtypes, and the caller says which. ``unseen:SEED`` draws such lists at random
(:mod:`warploom.bench.unseen`): no model was fitted to them and no record was measured for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

from warploom.bench import unseen
from warploom.errors import WarploomError, reading
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
#: What follows the product: ``bias`` is a row of n elements; ``gelu`` its approximation by tanh;
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
        """Bytes of A, B and the result, and of what the epilogue reads."""
        elements = self.m * self.columns * (2 if self.epilogue == "residual" else 1)
        elements += self.n if self.epilogue.startswith("bias") else 0
        return self.input_bytes + elements * bits_of(self.result_dtype) // 8


def suite_names() -> list[str]:
    """Suites that come with the package."""
    files = resources.files("warploom.bench").joinpath("suites").iterdir()
    return sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


def load_suite(
    name: str,
    dtypes: Sequence[str] = ("float16",),
    groups: Iterable[str] = (),
    layouts: Sequence[str] = ("NT",),
    epilogues: Sequence[str] = ("none",),
) -> list[GemmShape]:
    """Shapes of a suite of this package, or of a JSON file.

    Parameters
    ----------
    name : str
        One of :func:`suite_names`, ``unseen:SEED`` or ``unseen:SEED:COUNT``, or the path of a file.
    dtypes : sequence of str
        For files of ``[M, N, K]`` lists: every shape is measured with each of them.
    groups : iterable of str
        Only these groups; all if empty.
    layouts, epilogues : sequence of str
        As ``dtypes``, for such files.

    Raises
    ------
    WarploomError
        If there is no such suite, group or dtype.
    """
    drawn = unseen.parse(name)
    text = None if drawn else _find(name)
    with reading(name, "suite of shapes"):
        content = drawn or json.loads(text)
        if "shapes" in content:
            shapes = [GemmShape(**entry) for entry in content["shapes"]]
        else:
            shapes = shapes_of(content, dtypes, layouts, epilogues)
    wanted, known = set(groups), {shape.group for shape in shapes}
    if wanted - known:
        raise WarploomError(
            f"Suite {name!r} has no group {min(wanted - known)!r}; "
            f"allowed are {', '.join(sorted(known))}."
        )
    return [shape for shape in shapes if not wanted or shape.group in wanted]


def shapes_of(
    content: Mapping[str, Any],
    dtypes: Sequence[str],
    layouts: Sequence[str] = ("NT",),
    epilogues: Sequence[str] = ("none",),
) -> list[GemmShape]:
    """All combinations of a mapping from groups to lists of ``[M, N, K]`` with the others."""
    return [
        GemmShape(group, *extents, dtype, layout=layout, epilogue=epilogue)
        for group, entries in content.items()
        if _is_shape_list(entries)
        for extents in entries
        for dtype in dtypes
        for layout in layouts
        for epilogue in epilogues
    ]


def parse_extents(text: str) -> list[int]:
    """``"4096x4096x4096"`` as M, N and K."""
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise WarploomError(f"{text!r} is no shape; write MxNxK, such as 4096x4096x4096.")
    return [int(part) for part in parts]


def _find(name: str) -> str:
    if name in suite_names():
        file = resources.files("warploom.bench").joinpath("suites", f"{name}.json")
        return file.read_text(encoding="utf-8")
    if not Path(name).is_file():
        raise WarploomError(
            f"There is no suite {name!r}; give the path of a JSON file, {unseen.FORM}, or one of "
            f"{', '.join(suite_names())}."
        )
    return Path(name).read_text(encoding="utf-8")


def _is_shape_list(entries: object) -> bool:
    return isinstance(entries, list) and all(
        isinstance(e, list) and len(e) == 3 and all(isinstance(v, int) for v in e) for e in entries
    )
