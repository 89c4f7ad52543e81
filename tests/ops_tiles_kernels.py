"""Small kernels around one tile primitive, for the tests of tiles in registers.

Every kernel moves its operands between global memory and registers element by element, at places
taken from the figures of the PTX ISA ("Register Fragments for wgmma.mma_async"), not from the
layouts of the package, so that an error in a layout cannot hide.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm.script import tirx as T

from warploom.compiler import ptxas_log
from warploom.compiler.invoke import compile_request, current_request
from warploom.layout.fragment import column_fragment, row_fragment, wgmma_accumulator

TARGET = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
OPERANDS = 3
#: Kernels of one compilation: enough that parsing the CUDA headers does not count.
BATCH = 32


def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype, None) or dtype)


@dataclass(frozen=True)
class Operand:
    """A tile (``tile``), a value for each row (``rows``) or for each column (``columns``).

    ``low`` and ``high`` bound the random values; ``rank`` 1 makes ``rows`` a vector.
    """

    kind: str
    dtype: str = "float32"
    low: float = -4
    high: float = 4
    rank: int = 2

    def shape(self, m: int, n: int) -> tuple[int, ...]:
        rows = (m, 1) if self.rank == 2 else (m,)
        return {"tile": (m, n), "rows": rows, "columns": (n,)}[self.kind]

    def layout(self, m: int, n: int):
        if self.kind == "tile":
            return wgmma_accumulator(m, n)
        return row_fragment(m) if self.kind == "rows" else column_fragment(n)

    def registers(self, m: int, n: int) -> int:
        return {"tile": m * n // 128, "rows": m // 32, "columns": n // 4}[self.kind]

    def index(self, register: int, m: int, n: int, warp: Any, lane: Any) -> tuple:
        """Coordinates of the element that a thread holds in ``register``."""
        if self.kind == "columns":
            return (register // 2 * 8 + lane % 4 * 2 + register % 2,)
        block, within = divmod(register, 2 if self.kind == "rows" else n // 2)
        half = within if self.kind == "rows" else within // 2 % 2
        row = block * 64 + warp * 16 + half * 8 + lane // 4
        if self.kind == "tile":
            return row, within // 4 * 8 + lane % 4 * 2 + within % 2
        return (row, 0)[: self.rank]

    def allocate(self, m: int, n: int):
        shape, layout = self.shape(m, n), self.layout(m, n)
        return T.alloc_buffer(shape, self.dtype, scope="local", layout=layout)

    def random(self, rng: np.random.Generator, m: int, n: int) -> np.ndarray:
        values = rng.uniform(self.low, self.high, self.shape(m, n))
        return np.rint(values).astype(self.dtype) if "int" in self.dtype else self._round(values)

    def _round(self, values: np.ndarray) -> np.ndarray:
        return values.astype(np.float32).astype(numpy_dtype(self.dtype))

    def poison(self, m: int, n: int) -> np.ndarray:
        """What must be overwritten: NaN, or a large number where there is none."""
        size = int(np.prod(self.shape(m, n))) * numpy_dtype(self.dtype).itemsize
        return np.full(size, 0x7F, np.uint8).view(numpy_dtype(self.dtype)).reshape(self.shape(m, n))


@dataclass(frozen=True)
class Case:
    """One call of a tile primitive and what it must compute.

    Attributes
    ----------
    name : str
        Identifier of the test.
    m, n : int
        Extents of the tile.
    operands, result : Operand
        Inputs and output.
    emit : callable
        Writes the call under test, given the register buffers ``(result, *operands)``.
    reference : callable
        The same on float64 arrays: ``(old result, *operands)`` to the new result.
    tolerance : float
        Largest error relative to the expected value (and, below 1, absolute).
    keeps : bool
        Whether the old value of the result is defined.
    """

    name: str
    m: int
    n: int
    operands: tuple[Operand, ...]
    result: Operand
    emit: Callable
    reference: Callable
    tolerance: float = 0.0
    keeps: bool = False

    def __str__(self) -> str:
        return self.name


def move(case: Case, operand: Operand, memory, registers, ids, load: bool) -> None:
    """All elements of an operand between a global and a register buffer."""
    count = operand.registers(case.m, case.n)
    flat_layout = tvm.tirx.layout.TileLayout(tvm.tirx.layout.S[(count,)])
    flat = registers.local(count, layout=flat_layout)
    for register in range(count):
        index = operand.index(register, case.m, case.n, *ids)
        if load:
            T.buffer_store(flat, memory[index], [register])
        else:
            T.buffer_store(memory, flat[register], list(index))


def _body(case: Case, inputs: Sequence, output, ids) -> None:
    sources = [operand.allocate(case.m, case.n) for operand in case.operands]
    result = case.result.allocate(case.m, case.n)
    for operand, memory, registers in zip(case.operands, inputs, sources, strict=False):
        move(case, operand, memory, registers, ids, load=True)
    move(case, case.result, output, result, ids, load=True)
    case.emit(result, *sources)
    move(case, case.result, output, result, ids, load=False)


def make_kernel(case: Case):
    """One warpgroup that loads the operands, executes the call and stores the result."""
    unused = Operand("columns")
    operands = (*case.operands, *(unused,) * (OPERANDS - len(case.operands)))
    shapes = [operand.shape(case.m, case.n) for operand in operands]
    dtypes = [operand.dtype for operand in operands]

    @T.prim_func
    def kernel(x: T.handle, y: T.handle, z: T.handle, out: T.handle):
        first = T.match_buffer(x, shapes[0], dtypes[0])
        second = T.match_buffer(y, shapes[1], dtypes[1])
        third = T.match_buffer(z, shapes[2], dtypes[2])
        output = T.match_buffer(out, case.result.shape(case.m, case.n), case.result.dtype)
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        _body(case, [first, second, third], output, (warp, lane))

    return kernel


@dataclass(frozen=True)
class Batch:
    """Kernels of one compilation: their host functions and CUDA definitions, in order."""

    functions: tuple[Callable, ...]
    definitions: tuple[str, ...]
    source: str


def build(kernels: Sequence) -> Batch:
    """Compile kernels into one module."""
    names = [f"kernel_{i}" for i in range(len(kernels))]
    named = {
        name: kernel.with_attr("global_symbol", name)
        for name, kernel in zip(names, kernels, strict=True)
    }
    with TARGET:
        executable = tvm.compile(tvm.IRModule(named), target=TARGET, tir_pipeline="tirx")
    source = executable.mod.imports[0].inspect_source()
    definitions = [_definition(source, f"{name}_kernel") for name in names]
    return Batch(tuple(executable[name] for name in names), tuple(definitions), source)


def build_all(kernels: Sequence) -> list[Batch]:
    """Compile kernels, :data:`BATCH` a module: NVRTC crashes on sources of several megabytes."""
    starts = range(0, len(kernels), BATCH)
    return [build(kernels[start : start + BATCH]) for start in starts]


def select(batches: Sequence[Batch], index: int) -> tuple[Callable, str]:
    """Host function and CUDA definition of kernel ``index`` of :func:`build_all`."""
    batch = batches[index // BATCH]
    return batch.functions[index % BATCH], batch.definitions[index % BATCH]


def _definition(source: str, name: str) -> str:
    """A kernel's definition, which follows its declaration."""
    start = source.rindex(f" {name}(")
    return source[start : source.index("\n}\n", start)]


#: Parts of a list of kernels whose machine code is looked at together.
PARTS = 6


def in_local_memory(batches: Sequence[Batch], cases: Sequence, part: int) -> list[str]:
    """The cases of :func:`build_all` that have tiles in local memory; of one batch in ``PARTS``."""
    return [
        str(case)
        for first in range(part, len(batches), PARTS)
        for case, numbers in zip(
            cases[first * BATCH : (first + 1) * BATCH], local_memory(batches[first]), strict=True
        )
        if any(numbers)
    ]


def local_memory(batch: Batch) -> list[tuple[int, int, int]]:
    """Bytes of stack, spill stores and spill loads of each kernel, as ptxas reports them."""
    with TARGET:
        output = compile_request(current_request(batch.source, "cubin"))
    kernels = {kernel.name: kernel for kernel in ptxas_log.parse(output.log).kernels}
    ordered = [kernels[f"kernel_{i}_kernel"] for i in range(len(batch.functions))]
    return [(k.frame_bytes, k.spill_store_bytes, k.spill_load_bytes) for k in ordered]


def to_device(*arrays: np.ndarray) -> list:
    return [tvm.runtime.tensor(array, tvm.cuda(0)) for array in arrays]


def check(case: Case, function: Callable) -> None:
    """Run a kernel on random data and compare it with the reference."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    inputs = [operand.random(rng, case.m, case.n) for operand in case.operands]
    old = (case.result.random if case.keeps else lambda _, *e: case.result.poison(*e))(
        rng, case.m, case.n
    )
    unused = [np.zeros(case.n, np.float32)] * (OPERANDS - len(inputs))
    *_, output = device = to_device(*inputs, *unused, old)
    function(*device)
    wide = [array.astype(np.float64) for array in (old, *inputs)]
    expected = np.broadcast_to(case.reference(*wide), case.result.shape(case.m, case.n))
    if not case.tolerance:
        expected = expected.astype(np.float32).astype(old.dtype).astype(np.float64)
    actual = output.numpy().astype(np.float64)
    allowed = case.tolerance * np.maximum(1, np.abs(expected))
    wrong = ~(np.abs(actual - expected) <= allowed)
    assert not wrong.any(), (
        f"{case.name}: {wrong.sum()} of {wrong.size} elements differ, first at "
        f"{np.argwhere(wrong)[0]}: {actual[wrong][0]} instead of {expected[wrong][0]}"
    )
