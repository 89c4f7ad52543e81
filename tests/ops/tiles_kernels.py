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
BATCH = 16


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
        executable = tvm.compile(tvm.IRModule(named), target=TARGET, tir_pipeline="warploom")
    source = executable.mod.imports[0].inspect_source()
    definitions = [_definition(source, f"{name}_kernel") for name in names]
    return Batch(tuple(executable[name] for name in names), tuple(definitions), source)


class Kernels:
    """Kernels of cases, of which a module is compiled when one of its kernels is asked for.

    Parameters
    ----------
    make : callable
        The kernel of a case.
    *lists : sequence of cases
        Cases of different lists are never in one module, so that those that do not run cost
        nothing.
    """

    def __init__(self, make: Callable, *lists: Sequence) -> None:
        self._make = make
        self._modules = modules(*lists)
        self._batches: dict[int, Batch] = {}
        self._places = {
            case: (number, index)
            for number, cases in enumerate(self._modules)
            for index, case in enumerate(cases)
        }

    def __getitem__(self, case: Any) -> tuple[Callable, str]:
        """Host function and CUDA definition."""
        number, index = self._places[case]
        batch = self._batch(number)
        return batch.functions[index], batch.definitions[index]

    def in_local_memory(self, number: int) -> list[str]:
        """The cases of one module that have tiles in local memory."""
        numbers = local_memory(self._batch(number))
        cases = zip(self._modules[number], numbers, strict=True)
        return [str(case) for case, bytes_of in cases if any(bytes_of)]

    def _batch(self, number: int) -> Batch:
        if number not in self._batches:
            kernels = [self._make(case) for case in self._modules[number]]
            self._batches[number] = build(kernels)
        return self._batches[number]


def modules(*lists: Sequence) -> list[Sequence]:
    """The cases of each module of :class:`Kernels`."""
    # NVRTC crashes on sources of several megabytes.
    return [
        cases[first : first + BATCH] for cases in lists for first in range(0, len(cases), BATCH)
    ]


def _definition(source: str, name: str) -> str:
    """A kernel's definition, which follows its declaration."""
    start = source.rindex(f" {name}(")
    return source[start : source.index("\n}\n", start)]


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
