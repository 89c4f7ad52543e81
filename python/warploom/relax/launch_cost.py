"""What one launch of a kernel of a model costs: modelled time, FLOPs and bytes of memory.

GEMMs and attention are priced by the model of costs, as their tiles are chosen. Kernels of rows
take what memory takes for their bytes, and a launch. What is left to TVM takes that long at the
least: its kernels may read elements again, and compute with less than all lanes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import IRModule
from tvm.tirx import IntImm, PrimFunc, Var
from tvm.tirx.transform import StmtSimplify

from warploom.decide.config import Config
from warploom.decide.families.latent import LatentProblem, choose_latent, latent_time
from warploom.decide.families.paged_decode import (
    PagedDecodeProblem,
    choose_paged_decode,
    decode_time,
)
from warploom.decide.families.prefill import PrefillProblem, choose_prefill
from warploom.decide.machine import Machine
from warploom.decide.model import predict
from warploom.decide.price.attention import attention_work
from warploom.decide.price.model import price
from warploom.decide.price.read import read
from warploom.errors import Decline, IllegalCombination
from warploom.gemm.equations import Equation, loads, narrow, read_equations, simplify
from warploom.gemm.recognition import recognise
from warploom.relax.attention import MASK, ORDERS
from warploom.relax.launches import DEFAULT_SIZE
from warploom.relax.operations import operations
from warploom.relax.signatures import Facts
from warploom.rows.problem import read_rows
from warploom.rows.window_plan import window_cycles
from warploom.target.dtypes import bits_of
from warploom.tile import ir


@dataclass(frozen=True)
class Cost:
    """The cost of one launch.

    Attributes
    ----------
    time : float
        Microseconds.
    flops : float
        Multiplications and additions of matmuls, convolutions and attention.
    bytes : float
        Bytes of memory: each element that is read or stored, once.
    at_least : bool
        Whether the time is a lower bound.
    words : str
        Sizes and tile of a GEMM or an attention; empty for other kernels.
    """

    time: float
    flops: float
    bytes: float
    at_least: bool = False
    words: str = ""


def gemm_cost(
    func: PrimFunc,
    shapes: Sequence[Sequence[int]],
    decisions: Sequence[tuple[int | None, Config]],
    machine: Machine,
) -> Cost:
    """The cost of a GEMM.

    Parameters
    ----------
    func : PrimFunc
        The S-TIR function.
    shapes : sequence of sequence of int
        Of the tensors that it is called with.
    decisions : sequence of (int or None, Config)
        The configs, by the largest number of rows that they are for.
    machine : Machine
    """
    gemm = recognise(func)
    sizes = {var.name: size for var, size in bound_sizes(func, shapes).items()}
    problem = replace(
        gemm.problem,
        m=gemm.problem.m or _number(gemm.rows.extent, sizes),
        n=gemm.problem.n or _number(gemm.columns.extent, sizes),
        k=gemm.problem.k or math.prod(_number(axis.extent, sizes) for axis in gemm.summed),
        batch=gemm.problem.batch or math.prod(_number(axis.extent, sizes) for axis in gemm.batch),
    )
    config = next(one for limit, one in decisions if limit is None or problem.m <= limit)
    static = specialised(func, shapes)
    many = "" if problem.batch == 1 else f"{problem.batch} of "
    pair = "" if problem.products == 1 else f" (x{problem.products})"
    tile = f"{config.tile_m} x {config.tile_n} x {config.tile_k}"
    return Cost(
        predict(problem, config, machine).total, operations(static), traffic(static),
        words=f"{many}{problem.m} x {problem.n} x {problem.k}{pair}, tile {tile}",
    )  # fmt: skip


def program_cost(func: PrimFunc, sizes: Mapping[str, int], machine: Machine) -> Cost:
    """The cost of a tile program, or of another kernel in TIRx.

    Parameters
    ----------
    func : PrimFunc
    sizes : mapping of str to int
        Of its variables, by name.
    machine : Machine
    """
    bytes_ = sum(_size(buffer, sizes) for buffer in _buffers(func))
    # What the model reads has whole tiles, and of a grouped GEMM all that groups could have.
    exact = _attention_flops(func, sizes) or _grouped_flops(func, sizes)
    try:
        work = read(func, machine.gpu.arch.name, sizes)
    except (Decline, IllegalCombination):
        return replace(memory_cost(bytes_, machine, exact), at_least=exact > 0)
    step = sum(2 * mma.rows * mma.columns * mma.depth * mma.times for mma in work.mmas)
    tiles = math.prod(work.tiles) * work.batch
    return Cost(price(work, machine).total, exact or step * work.steps * tiles, bytes_)


def memory_cost(bytes_: float, machine: Machine, flops: float = 0.0) -> Cost:
    """The cost of a kernel of ours that memory bounds, or the tensor cores with 16 bits."""
    time = max(bytes_ / machine.dram_bytes, flops / 2 / _multiply_adds(machine, True))
    return Cost(machine.launch + machine.ctas + time, flops, bytes_)


def rows_cost(func: PrimFunc, machine: Machine) -> Cost:
    """The cost of a row kernel: its bytes, and the instructions for its windows."""
    cost = memory_cost(traffic(func), machine)
    cycles = window_cycles(read_rows(func))
    return replace(cost, time=max(cost.time, machine.launch + cycles / machine.clock))


def stock_cost(func: PrimFunc, machine: Machine, sizes: Mapping[str, int] | None = None) -> Cost:
    """The least that a kernel of TVM costs: its bytes, or its multiply-adds.

    TVM has kernels with tensor cores, too, for operands of at most 16 bits.
    """
    flops, bytes_ = operations(func), traffic(func, sizes)
    narrow_ = any(_width(buffer) <= 2 for buffer in _buffers(func))
    time = max(bytes_ / machine.dram_bytes, flops / 2 / _multiply_adds(machine, narrow_))
    return Cost(machine.serial_launch + time, flops, bytes_, at_least=True)


def _multiply_adds(machine: Machine, tensor_cores: bool) -> float:
    """Multiply-adds of a GPU in a microsecond: of 16 bits on tensor cores, or of all lanes."""
    each = machine.tensor_bytes / 2 if tensor_cores else machine.fma_lanes
    return machine.sms * each * machine.clock


def decode_cost(facts: Facts, sequences: int, context: int, machine: Machine) -> Cost:
    """The cost of decode attention: one query of each sequence, to ``context`` keys in pages."""
    heads, kv_heads, dim, page = map(facts.number, ("heads", "kv_heads", "dim", "page"))
    problem = PagedDecodeProblem(heads, kv_heads, dim, page, machine.gpu.arch.name)
    config = choose_paged_decode(problem, machine)
    time = decode_time(problem, config, machine, sequences, context)
    size = bits_of(facts["dtype"]) / 8
    bytes_ = size * sequences * dim * (2 * kv_heads * context + 2 * heads)
    words = f"{sequences} sequences of {context} keys, {heads} heads of {dim} ({kv_heads} of keys)"
    return Cost(time, 4.0 * sequences * heads * dim * context, bytes_, words=words)


def latent_cost(facts: Facts, sequences: int, context: int, machine: Machine) -> Cost:
    """The cost of attention of one query of each sequence to ``context`` latent vectors (MLA)."""
    heads, dim, latent, page = map(facts.number, ("heads", "dim", "latent_dim", "page"))
    problem = LatentProblem(heads, latent, dim - latent, page, machine.gpu.arch.name)
    config = choose_latent(problem, machine)
    time = latent_time(problem, config, machine, sequences, context)
    size = bits_of(facts["dtype"]) / 8
    bytes_ = size * sequences * (dim * context + heads * (dim + latent))
    words = f"{sequences} sequences of {context} latents, {heads} heads of {dim}"
    flops = 2.0 * sequences * heads * (dim + latent) * context
    return Cost(time, flops, bytes_, words=words)


def prefill_cost(facts: Facts, tokens: int, machine: Machine) -> Cost:
    """The cost of causal attention of the new tokens of one sequence to each other."""
    heads, kv_heads, dim = map(facts.number, ("heads", "kv_heads", "dim"))
    values = facts.number("value_dim") if "value_dim" in facts else dim
    config = choose_prefill(
        PrefillProblem(heads, kv_heads, dim, values, machine.gpu.arch.name), machine
    )
    tile = config.tile_m, config.tile_n
    work = attention_work(
        tokens, max(dim, values), heads, kv_heads, 1, True, tile, config.stages
    )
    size = bits_of(facts["dtype"]) / 8
    bytes_ = size * tokens * (heads + kv_heads) * (dim + values)
    flops = 2.0 * heads * (dim + values) * tokens * (tokens + 1) / 2
    words = f"{tokens} tokens, causal, {heads} heads of {dim} ({kv_heads} of keys)"
    return Cost(price(work, machine).total, flops, bytes_, words=words)


def append_cost(facts: Facts, tokens: int, machine: Machine) -> Cost:
    """The cost of copies of new keys and values to their pages."""
    heads = 2 * facts.number("kv_heads") if "kv_heads" in facts else 1  # a latent is both
    elements = tokens * heads * facts.number("dim")
    return memory_cost(2 * elements * bits_of(facts["dtype"]) / 8, machine)


def specialised(
    func: PrimFunc, shapes: Sequence[Sequence[int]], scalars: Sequence[int] = ()
) -> PrimFunc:
    """An S-TIR function with numbers for its symbolic sizes, as a call gives them."""
    sizes = bound_sizes(func, shapes, scalars)
    if not sizes:
        return func
    known = {var: tirx.const(size, str(var.ty.dtype)) for var, size in sizes.items()}
    table: dict[Any, Any] = {param: known[param] for param in func.params if param in known}
    for buffer in _buffers(func):
        if any(isinstance(extent, Var) for extent in buffer.shape):
            # TVM replaces variables in other extents, such as 2 * n, by what is known of them.
            extents = [known[one] if isinstance(one, Var) else one for one in buffer.shape]
            table[buffer] = tirx.decl_buffer(extents, str(buffer.dtype), buffer.name)
    return StmtSimplify()(IRModule({"main": func.specialize(table)}))["main"]


def bound_sizes(
    func: PrimFunc, shapes: Sequence[Sequence[int]], scalars: Sequence[int] = ()
) -> dict[Var, int]:
    """What a call makes of the variables in the shapes of a function's parameters."""
    sizes: dict[Var, int] = {}
    for buffer, shape in zip(_buffers(func), shapes, strict=False):
        for extent, size in zip(buffer.shape, shape, strict=False):
            if isinstance(extent, Var) and size >= 0:
                sizes.setdefault(extent, size)
    others = [param for param in func.params if not ir.is_buffer(param)]
    sizes |= {param: size for param, size in zip(others, scalars, strict=False) if size >= 0}
    for buffer in _buffers(func):
        for extent in buffer.shape:
            for var in () if isinstance(extent, (int, IntImm)) else ir.uses(extent):
                sizes.setdefault(var, DEFAULT_SIZE)
    return sizes


def traffic(func: PrimFunc, sizes: Mapping[str, int] | None = None) -> float:
    """Bytes of memory that an S-TIR function reads and stores, each element once.

    No more elements of a parameter count than are asked for: a look-up reads few rows of a table.
    What lies between the blocks of a function counts as nothing.

    Examples
    --------
    >>> from warploom.meta_schedule.workloads import matmul
    >>> traffic(matmul(8, 16, 32)) == 2 * (8 * 32 + 16 * 32 + 8 * 16)
    True
    """
    try:
        func = narrow(func)
        equations = read_equations(func, guarded=True)
    except Decline:
        return sum(_size(buffer, sizes or {}) for buffer in _buffers(func))
    total = 0.0
    for buffer in _buffers(func):
        asked = sum(_asked(buffer, equation, sizes or {}) for equation in equations)
        total += min(_size(buffer, sizes or {}), asked * _width(buffer))
    return total


def _asked(buffer: Any, equation: Equation, sizes: Mapping[str, int]) -> float:
    """Elements of a parameter that a block asks for, or stores."""
    extents = {axis.var: _number(axis.dom.extent, sizes) for axis in equation.block.iter_vars}
    places = [load.indices for load in loads(equation.value) if load.source.same_as(buffer)]
    if equation.buffer.same_as(buffer):
        places.append(equation.indices)
    return sum(
        math.prod(extents[var] for var in {v for index in place for v in _variables(index)}
                  if var in extents)
        for place in places
    )  # fmt: skip


def _variables(index: Any) -> set[Var]:
    return set() if isinstance(index, int) else ir.uses(index)


def _attention_flops(func: PrimFunc, sizes: Mapping[str, int]) -> float:
    """FLOPs of an attention that is called for ``R.nn.attention``; 0 of other programs."""
    attrs = func.attrs or {}
    if ORDERS not in attrs:
        return 0.0
    of_keys, of_result = str(attrs[ORDERS]).split()
    q, k, *_, o = ([_number(size, sizes) for size in one.shape] for one in _buffers(func))
    mask, keys = str(attrs[MASK]), k[of_keys.index("t")]
    batch, tokens, heads = (o[of_result.index(letter)] for letter in "bth")
    pairs = tokens * keys
    if mask:  # how many keys the first query sees; each query after it sees one more
        first = 1 if mask == "TopLeft" else 1 + keys - tokens
        pairs = sum(max(0, min(first + query, keys)) for query in range(tokens))
    return 2.0 * batch * heads * pairs * (q[3] + o[3])


def _grouped_flops(func: PrimFunc, sizes: Mapping[str, int]) -> float:
    """FLOPs of a grouped GEMM, X ``[m, k]`` and W ``[groups, n, k]``; 0 of other programs."""
    shapes = [[_number(extent, sizes) for extent in buffer.shape] for buffer in _buffers(func)]
    if len(shapes) < 2 or (len(shapes[0]), len(shapes[1])) != (2, 3):
        return 0.0
    (m, k), (_, n, depth) = shapes[:2]
    return 2.0 * m * n * k if k == depth else 0.0


def _buffers(func: PrimFunc) -> list[Any]:
    return [param for param in func.params if ir.is_buffer(param)]


def _size(buffer: Any, sizes: Mapping[str, int]) -> float:
    """Bytes of a buffer."""
    return math.prod(_number(extent, sizes) for extent in buffer.shape) * _width(buffer)


def _width(buffer: Any) -> float:
    """Bytes of an element."""
    return 1.0 if str(buffer.dtype) == "bool" else bits_of(str(buffer.dtype)) / 8


def _number(extent: Any, sizes: Mapping[str, int]) -> int:
    if isinstance(extent, (int, IntImm)):
        return int(extent)
    table = {
        var: tirx.const(sizes.get(var.name, DEFAULT_SIZE), str(var.ty.dtype))
        for var in ir.uses(extent)
    }
    value = simplify(ir.substitute(extent, table))
    return int(value) if isinstance(value, IntImm) else DEFAULT_SIZE
