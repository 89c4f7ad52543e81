"""wmma: a matrix is loaded, multiplied and stored, since fragments are opaque."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.emulator.golden.case import Case, poisoned
from tests.emulator.golden.matrix import fill
from tests.emulator.golden.values import FLOATS, Bits, unsigned, width

_WIDE = ((16, 16, 16), (8, 32, 16), (32, 8, 16))
_HALVES = ("f16", "f32")
#: Shapes, operands, result, what is added, and what comes before and after the types.
_FORMS = [
    *((shape, "f16", d, c, "", "") for shape in _WIDE for d in _HALVES for c in _HALVES),
    *((shape, "bf16", "f32", "f32", "", "") for shape in _WIDE),
    *((shape, kind, "s32", "s32", "", "") for shape in _WIDE for kind in ("s8", "u8")),
    ((16, 16, 16), "s8", "s32", "s32", "", ".satfinite"),
    ((16, 16, 8), "tf32", "f32", "f32", "", ""),
    *(((8, 8, 4), "f64", "f64", "f64", rounding, "") for rounding in ("", ".rz", ".rm", ".rp")),
    *(((8, 8, 32), kind, "s32", "s32", "", "") for kind in ("s4", "u4")),
    ((8, 8, 32), "s4", "s32", "s32", "", ".satfinite"),
    *(((8, 8, 128), "b1", "s32", "s32", op, "") for op in (".xor.popc", ".and.popc")),
]  # fmt: skip


def products() -> Iterator[Case]:
    for number, (shape, kind, d, c, before, after) in enumerate(_FORMS):
        # Every layout, but not with every type; narrow elements have one only.
        layouts = (
            ["row", "col"] if width(kind) < 8 else [("row", "col")[number >> i & 1] for i in (0, 1)]
        )
        layouts += [("row", "col")[number >> i & 1] for i in (1, 2)]
        for data in ("exact", "near", "powers", "any") if kind in FLOATS else ("any",):
            yield _product(shape, kind, d, c, before, after, layouts, data)


def _registers(rows: int, columns: int, kind: str, operand: str) -> int:
    if kind == "f16" and operand != "c":
        return 8
    return rows * columns * width(kind) // max(width(kind), 32) // 32


def _product(
    shape: tuple[int, int, int],
    kind: str,
    d: str,
    c: str,
    before: str,
    after: str,
    layouts: list[str],
    data: str,
) -> Case:
    m, n, k = shape
    name = f"m{m}n{n}k{k}"
    letter = "d" if kind == "f64" else "r"
    operation, rounding = (before, "") if "popc" in before else ("", before)
    types = f"{d}.{c}" if kind == "f16" else f"{d}.{kind}.{kind}.{c}"
    both = ".".join(layouts[:2])
    text = f"wmma.mma{operation}.sync.aligned.{both}.{name}{rounding}.{types}{after}"
    random = Bits(f"{text}/{layouts}/{data}")
    lines, inputs, names, first = [], [], [], 0
    for i, (rows, columns, element, operand) in enumerate(
        ((m, k, kind, "a"), (k, n, kind, "b"), (m, n, c, "c"))
    ):
        values = np.ascontiguousarray(fill(random, element, rows * columns, data))
        inputs.append(values.view(unsigned(max(min(width(element), 32), 8))))
        count = _registers(rows, columns, element, operand)
        names.append("{" + ", ".join(f"%{letter}{first + r}" for r in range(count)) + "}")
        first += count
        load = f"wmma.load.{operand}.sync.aligned.{layouts[i]}.{name}.global.{element}"
        lines.append(f"{load} {names[-1]}, [%p{i}];")
    count = _registers(m, n, d, "c")
    result = "{" + ", ".join(f"%{letter}{first + r}" for r in range(count)) + "}"
    lines.append(f"{text} {result}, {', '.join(names)};")
    lines.append(f"wmma.store.d.sync.aligned.{layouts[3]}.{name}.global.{d} [%p3], {result};")
    full = f"{text}:{layouts[2]}:{layouts[3]}:{data}"
    return Case(full, "\n".join(lines), tuple(inputs), (poisoned(m * n, width(d)),))
