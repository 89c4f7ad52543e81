"""The parts of a kernel that a diagram shows, as plain data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """A line of what a role does; ``depth`` is the number of loops around it.

    Attributes
    ----------
    kind : str
        ``"loop"``, ``"wait"``, ``"load"``, ``"mma"``, ``"compute"``, ``"store"`` or ``"signal"``.
    text : str
    depth : int
    """

    kind: str
    text: str
    depth: int = 0


@dataclass(frozen=True)
class Role:
    """Threads of a CTA that execute the same statements.

    Attributes
    ----------
    name : str
    threads : str
        Which threads they are, in words.
    registers : int or None
        Registers a thread after ``setmaxnreg``; None if the kernel has none.
    steps : tuple of Step
        What they do.
    """

    name: str
    threads: str
    registers: int | None
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Barrier:
    """Mbarriers of one purpose.

    Attributes
    ----------
    name : str
    count : int
        How many there are: one for each stage.
    arrivals : int or None
        Arrivals that complete a phase; None if they are not constant.
    suppliers, waiters : tuple of str
        Roles that complete phases, and roles that wait for them.
    """

    name: str
    count: int
    arrivals: int | None
    suppliers: tuple[str, ...]
    waiters: tuple[str, ...]


@dataclass(frozen=True)
class SharedTile:
    """A part of shared memory: from byte ``offset`` on.

    Attributes
    ----------
    name : str
    offset, size : int
        Bytes.
    shape : tuple of int
        The stages first, if it has stages.
    dtype : str
    """

    name: str
    offset: int
    size: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def text(self) -> str:
        """Its shape and dtype."""
        return f"{' x '.join(map(str, self.shape))} {self.dtype}"


@dataclass(frozen=True)
class KernelParts:
    """A kernel in parts.

    Attributes
    ----------
    name, arch : str
    parameters : tuple of str
    grid : tuple of str
        Its extents, which may depend on sizes.
    cluster : int
        CTAs of a cluster.
    threads : int
        Of a CTA.
    roles : tuple of Role
        Empty if the author has orchestrated the kernel.
    barriers : tuple of Barrier
    shared : tuple of SharedTile
        By offset.
    shared_bytes, shared_limit : int
        Of a CTA, and the most that there may be.
    tensor_memory : int
        Columns that are allocated.
    registers, spilled : int or None
        As the compiler reports them: registers a thread at launch, bytes a thread; None without.
    decisions : tuple of str
        What the passes have chosen, and why.
    """

    name: str
    arch: str
    parameters: tuple[str, ...]
    grid: tuple[str, ...]
    cluster: int
    threads: int
    roles: tuple[Role, ...]
    barriers: tuple[Barrier, ...]
    shared: tuple[SharedTile, ...]
    shared_bytes: int
    shared_limit: int
    tensor_memory: int = 0
    registers: int | None = None
    spilled: int | None = None
    decisions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The parts, as JSON can hold them."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


#: Where nobody completes a phase of a barrier: only its first phase is waited for.
FROM_START = "complete from the start"


def _lines(parts: KernelParts) -> list[str]:
    lines = [
        f"{parts.name} for {parts.arch}",
        f"  parameters  {', '.join(parts.parameters)}",
        f"  grid        {grid_text(parts)}",
        f"  registers   {registers_text(parts)}",
        f"  shared      {parts.shared_bytes:,} of {parts.shared_limit:,} bytes",
    ]
    if parts.tensor_memory:
        lines.append(f"  tensor mem  {parts.tensor_memory} of 512 columns")
    for role in parts.roles:
        lines.append(f"\nrole {role.name}: {role.threads}{_registers(role)}")
        lines += [f"  {'  ' * step.depth}{step.text}" for step in role.steps]
    if not parts.roles:
        lines.append("\nroles: the author has orchestrated this kernel; no pass has parted it")
    lines.append("\nbarriers" if parts.barriers else "\nno mbarriers")
    for one in parts.barriers:
        arrivals = "" if one.arrivals is None else f", {one.arrivals} arrivals"
        by = ", ".join(one.suppliers) or FROM_START
        to = ", ".join(one.waiters) or "nobody"
        lines.append(f"  {one.name} x {one.count}{arrivals}: {by} -> {to}")
    lines.append("\nshared memory")
    lines += [f"  {one.offset:>7,}  {one.size:>7,}  {one.name}  {one.text}" for one in parts.shared]
    return lines


def grid_text(parts: KernelParts) -> str:
    """The grid and the threads of a CTA, in words."""
    fixed = all(extent.isdigit() for extent in parts.grid)
    grid = " x ".join(parts.grid) if fixed else "chosen at launch:"
    clusters = f", clusters of {parts.cluster}" if parts.cluster > 1 else ""
    return f"{grid} CTAs of {parts.threads} threads{clusters}"


def registers_text(parts: KernelParts) -> str:
    """The registers of a thread at launch and after it, in words."""
    if parts.registers is None:
        return "not compiled"
    spilled = f", {parts.spilled} bytes spilled" if parts.spilled else ", none spilled"
    return f"{parts.registers} registers a thread at launch{spilled}"


def _registers(role: Role) -> str:
    return "" if role.registers is None else f", {role.registers} registers a thread"
