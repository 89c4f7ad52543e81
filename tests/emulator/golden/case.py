"""One kernel of the corpus with its operands; kernels of one family share modules."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np

from tests.emulator.golden.values import Bits, operands, unsigned, width
from tests.emulator.ptx_driver import Im2colMap, TensorMap

#: Bytes that results have before the kernel runs.
POISON = 0xA5

_REGISTERS = """\
.reg .pred %q<16>;
.reg .b16 %h<40>;
.reg .b32 %t, %r<160>;
.reg .b64 %d<48>, %p<10>, %m<4>;
"""


@dataclasses.dataclass(frozen=True)
class Case:
    """A kernel: ``body`` finds its arrays at %p0, %p1, ... (inputs, then results), maps at %m0."""

    name: str
    body: str
    inputs: tuple[np.ndarray, ...]
    results: tuple[np.ndarray, ...]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (32, 1, 1)
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    maps: tuple[TensorMap | Im2colMap, ...] = ()
    #: How results are compared: "bits", or "approx" where PTX defines a function only nearly.
    bound: str = "bits"

    @property
    def arrays(self) -> list[np.ndarray]:
        return [*self.inputs, *self.results]

    @property
    def digest(self) -> str:
        """Of everything that determines the results."""
        state = hashlib.sha256(self.body.encode())
        state.update(repr((self.grid, self.block, self.cluster, self.shared, self.maps)).encode())
        for array in self.arrays:
            state.update(array.tobytes())
        return state.hexdigest()[:12]

    def entry(self, name: str) -> str:
        """The PTX of the kernel under a name."""
        maps = [f"{name}_map{i}" for i in range(len(self.maps))]
        pointers = [f"{name}_param{i}" for i in range(len(self.arrays))]
        parameters = [f".param .align 64 .b8 {m}[128]" for m in maps]
        parameters += [f".param .u64 {p}" for p in pointers]
        lines = [f"mov.b64 %m{i}, {m};\ncvta.param.u64 %m{i}, %m{i};" for i, m in enumerate(maps)]
        lines += [f"ld.param.u64 %p{i}, [{p}];" for i, p in enumerate(pointers)]
        return (
            f".visible .entry {name}({', '.join(parameters)})\n{{\n{_REGISTERS}"
            "mov.u32 %t, %tid.x;\n" + "\n".join(lines) + f"\n{self.body}\nret;\n}}\n"
        )


def poisoned(count: int, bits: int) -> np.ndarray:
    return np.full(count * max(bits, 8) // 8, POISON, np.uint8).view(unsigned(bits))


def register(bits: int, index: int) -> str:
    """Narrow numbers are held in 16 bits, as PTX wants."""
    return f"%{ {8: 'h', 16: 'h', 32: 'r', 64: 'd'}[max(bits, 8)] }{index}"


def element(pointer: str, bits: int, index: str = "%t", into: str = "%d40") -> str:
    """Address of element ``index`` of an array of numbers of ``bits`` bits."""
    return f"mul.wide.u32 {into}, {index}, {max(bits, 8) // 8};\nadd.u64 {into}, {into}, {pointer};"


def elementwise(
    family: str,
    name: str,
    text: str,
    results: int | Sequence[int],
    kinds: Sequence[str],
    *,
    count: int = 96,
    bound: str = "bits",
    values: Sequence[np.ndarray] | None = None,
    wide: bool = False,
) -> Case:
    """An instruction on the elements of arrays.

    In ``text``, {a}, {b}, {c}, {e} are operands of the types ``kinds`` and {d}, {f}, {g} are
    results of ``results`` bits. A result of 1 bit is a predicate, stored as 0 or 1. With ``wide``,
    operands of fewer than 32 bits are in registers of 32.
    """
    results = [results] if isinstance(results, int) else list(results)
    random = Bits(f"{family}/{name}")
    if values is None:
        values = [operands(random, kind, count) for kind in kinds]
    count = len(values[0])
    lines, names = [], {}
    for i, (array, letter) in enumerate(zip(values, "abce", strict=False)):
        bits = 8 * array.itemsize
        names[letter] = register(32 if wide and bits < 32 else bits, i)
        suffix = "u" if bits < 32 else "b"
        lines += [element(f"%p{i}", bits), f"ld.global.{suffix}{bits} {names[letter]}, [%d40];"]
    for i, (bits, letter) in enumerate(zip(results, "dfg", strict=False)):
        names[letter] = f"%q{8 + i}" if bits == 1 else register(bits, 10 + i)
    lines.append(text.format(**names) + ";")
    outputs = []
    for i, (bits, letter) in enumerate(zip(results, "dfg", strict=False)):
        value = names[letter]
        if bits == 1:
            value = f"%r{30 + i}"
            lines.append(f"selp.u32 {value}, 1, 0, {names[letter]};")
            bits = 8
        lines += [element(f"%p{len(values) + i}", bits), f"st.global.b{bits} [%d40], {value};"]
        outputs.append(poisoned(count, bits))
    return Case(
        name, "\n".join(lines), tuple(values), tuple(outputs), block=(count, 1, 1), bound=bound
    )


def bits_of(kind: str) -> int:
    """Bits of the register that holds a value of a type."""
    return max(width(kind), 16)
