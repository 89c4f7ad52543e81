"""Diagrams of lowered programs: roles, stages, barriers, registers and the map of shared memory.

:func:`read_kernel` lowers a tile program and reads the parts of its kernel; the parts are printed,
drawn, or written as JSON. ``warploom inspect program`` does all of it.
"""

from __future__ import annotations

from warploom.diagram.kernel import Kernel
from warploom.diagram.parts import Barrier, KernelParts, Role, SharedTile
from warploom.diagram.read import read_kernel

__all__ = ["Barrier", "Kernel", "KernelParts", "Role", "SharedTile", "read_kernel"]
