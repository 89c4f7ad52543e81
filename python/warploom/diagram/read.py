"""Reads the parts of a kernel: from its tile program when roles have parted, and as lowered."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import Buffer, PrimFunc, is_buffer_var

from warploom.diagram.kernel import Kernel
from warploom.diagram.parts import Barrier, Role, SharedTile
from warploom.diagram.steps import steps_of
from warploom.lower.lowerings import PARTED, lower
from warploom.lower.tvm_passes import tile_pass
from warploom.target import ARCHS, SM90A
from warploom.tile.barrier_uses import INIT, SUPPLIES, WAIT, barrier_of, barrier_uses
from warploom.tile.ids import parent_and_child
from warploom.tile.program import TileProgram
from warploom.tile.roles import role_name
from warploom.tile.statement import Block, Marked

_DYNAMIC = "tirx.dyn_smem_bytes"
_WARP = 32
_WARPGROUP = 4 * _WARP


def read_kernel(func: PrimFunc, arch: str | None = None, compiled: bool = True) -> Kernel:
    """Lower a program and read the parts of its kernel.

    Parameters
    ----------
    func : PrimFunc
        A tile program, or a kernel that its author has orchestrated with scopes of the dialect.
    arch : str, optional
        ``"sm_90a"``, the default, or ``"sm_100a"``.
    compiled : bool
        Whether to compile it as well, for its registers.

    Raises
    ------
    Decline
        If no lowering takes the program.

    Examples
    --------
    >>> print(read_kernel(program))
    """
    seen: list[TileProgram] = []

    def see(program: TileProgram) -> TileProgram:
        seen.append(program)
        return program

    arch = arch or SM90A.name
    lowered = lower(func, arch, dict.fromkeys(PARTED, tile_pass("SeeParts", see)))
    registers = _compiled(func, arch) if compiled else (None, None)
    program = seen[-1] if seen else None
    roles = tuple(_roles(program)) if program is not None else ()
    ids = _extents(lowered)
    return Kernel(
        name=str((lowered.attrs or {}).get("global_symbol", "main")),
        arch=arch,
        parameters=tuple(_parameter(one) for one in func.params),
        grid=tuple(map(str, ids.get("cta", ("1",)))),
        cluster=_product(ids.get("cta of cluster", (1,))),
        threads=_threads(ids),
        roles=roles,
        barriers=tuple(_barriers(program, lowered)),
        shared=tuple(sorted(_shared(lowered), key=lambda one: one.offset)),
        shared_bytes=_dynamic_bytes(lowered),
        shared_limit=ARCHS[arch].shared_bytes_per_block,
        tensor_memory=_tensor_columns(lowered),
        registers=registers[0],
        spilled=registers[1],
        decisions=program.decisions if program is not None else (),
    )


def _compiled(func: PrimFunc, arch: str) -> tuple[int | None, int | None]:
    from warploom.compiler.report import compile_report

    (kernel, *_) = compile_report(func, {"kind": "cuda", "arch": arch}).kernels
    return kernel.info.registers, kernel.spill_store_bytes


def _parameter(one: Any) -> str:
    if not is_buffer_var(one):
        return str(one.name)
    return f"{one.name}[{', '.join(map(str, one.shape))}] {one.dtype}"


# -- roles -------------------------------------------------------------------------------------


def _roles(program: TileProgram) -> Iterator[Role]:
    by_name = {role.name: role for role in program.roles}
    names: set[str] = set()
    for mark, registers in _marks(program.block, None):
        name = role_name(mark.raw)
        if name is None or name in names:
            continue
        names.add(name)
        role = by_name.get(name)
        threads = "all threads"
        if role is not None and role.one_thread:
            warps = f"a thread of {role.count} warps"
            threads = "one thread of a warp" if role.count == 1 else warps
        elif role is not None:
            threads = "1 warpgroup" if role.count == 1 else f"{role.count} warpgroups"
        yield Role(name, threads, registers, steps_of(mark.body))


def _marks(block: Block, registers: int | None) -> Iterator[tuple[Marked, int | None]]:
    """The marked statements of roles, and the registers that ``setmaxnreg`` gives them."""
    for statement in block:
        registers = _registers_of(statement.raw) or registers
        if role_name(statement.raw) is not None:
            yield statement, registers
            continue
        for part in statement.blocks:
            yield from _marks(part, registers)


def _registers_of(raw: Any) -> int | None:
    call = raw.value if isinstance(raw, tirx.Evaluate) else None
    if not isinstance(call, Call) or "setmaxnreg" not in str(call.op.name):
        return None
    return next((int(one) for one in call.args if isinstance(one, tirx.IntImm)), None)


# -- barriers ----------------------------------------------------------------------------------


def _barriers(program: TileProgram | None, lowered: PrimFunc) -> Iterator[Barrier]:
    users: dict[str, dict[str, list[str]]] = {}
    if program is not None:
        for mark, _ in _marks(program.block, None):
            for use in barrier_uses([mark.raw]):
                kind = WAIT if use.kind == WAIT else "supply" if use.kind in SUPPLIES else use.kind
                names = users.setdefault(use.barrier, {}).setdefault(kind, [])
                if role_name(mark.raw) not in names:
                    names.append(role_name(mark.raw))
    arrivals = dict(_arrivals(lowered))
    for buffer in _declared(lowered):
        if buffer.name in arrivals:
            used = users.get(buffer.name, {})
            yield Barrier(
                str(buffer.name), _product(buffer.shape), arrivals[buffer.name],
                tuple(used.get("supply", ())), tuple(used.get(WAIT, ())),
            )  # fmt: skip


def _arrivals(func: PrimFunc) -> Iterator[tuple[str, int | None]]:
    found: list[tuple[str, int | None]] = []

    def visit(node: tirx.Evaluate) -> None:
        if not isinstance(node.value, Call):
            return
        if any(use.kind == INIT for use in barrier_uses([node])):
            barrier = next(filter(lambda b: b is not None, map(barrier_of, node.value.args)))
            counts = [int(one) for one in node.value.args if isinstance(one, tirx.IntImm)]
            found.append((str(barrier.name), counts[0] if counts else None))

    tvm_ffi.structural_walk(func.body, (tirx.Evaluate, visit), order="pre")
    return iter(found)


# -- memory and threads ------------------------------------------------------------------------


def _declared(func: PrimFunc) -> list[Buffer]:
    found: list[Buffer] = []

    def visit(node: Any) -> None:
        if node.buffer.scope().startswith("shared"):
            found.append(node.buffer)

    tvm_ffi.structural_walk(func.body, ((tirx.DeclBuffer, tirx.AllocBuffer), visit), order="pre")
    return found


def _shared(func: PrimFunc) -> Iterator[SharedTile]:
    for buffer in _declared(func):
        if not all(isinstance(extent, tirx.IntImm) for extent in buffer.shape):
            continue
        bits = tvm.DataType(str(buffer.dtype)).bits
        shape = tuple(int(extent) for extent in buffer.shape)
        size, first = math.prod(shape) * bits // 8, buffer.elem_offset
        if size and isinstance(first, tirx.IntImm):
            yield SharedTile(
                str(buffer.name), int(first) * bits // 8, size, shape, str(buffer.dtype)
            )


def _dynamic_bytes(func: PrimFunc) -> int:
    found = [sum(one.size for one in _shared(func))]

    def visit(node: tirx.AttrStmt) -> None:
        if node.attr_key == _DYNAMIC and isinstance(node.value, tirx.IntImm):
            found.append(int(node.value))

    tvm_ffi.structural_walk(func.body, (tirx.AttrStmt, visit), order="pre")
    return found[-1]


def _tensor_columns(func: PrimFunc) -> int:
    found = [0]

    def visit(node: tirx.Evaluate) -> None:
        call = node.value
        if (
            isinstance(call, Call)
            and "tcgen05" in str(call.op.name)
            and any(getattr(one, "value", None) == "alloc" for one in call.args)
        ):
            found.extend(int(one) for one in call.args if isinstance(one, tirx.IntImm))

    tvm_ffi.structural_walk(func.body, (tirx.Evaluate, visit), order="pre")
    return found[-1]


def _extents(func: PrimFunc) -> dict[str, tuple[Any, ...]]:
    """The extents of the ids of a kernel, by what they count."""
    found: dict[str, tuple[Any, ...]] = {}

    def visit(node: tirx.ScopeIdDefStmt) -> None:
        definition = getattr(node, "def")
        parent, child = parent_and_child(definition)
        if definition.extents:
            name = child if parent == "kernel" else f"{child} of {parent}"
            found[name] = tuple(definition.extents)

    tvm_ffi.structural_walk(func.body, (tirx.ScopeIdDefStmt, visit), order="pre")
    return found


def _threads(ids: dict[str, tuple[Any, ...]]) -> int:
    for name, factor in (("warpgroup of cta", _WARPGROUP), ("warp of cta", _WARP),
                         ("thread of cta", 1)):  # fmt: skip
        if name in ids:
            return factor * _product(ids[name])
    return _WARPGROUP


def _product(extents: Any) -> int:
    return math.prod(int(one) for one in extents if isinstance(one, (int, tirx.IntImm)))
