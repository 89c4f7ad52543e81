"""Values of expressions while a program runs, by the contents of buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm.ir import TensorLoad, Var
from tvm.tirx import For

from warploom.errors import TileProgramError
from warploom.language.interpreter.storage import Storage
from warploom.language.rules import Known
from warploom.language.rules.nests import Access
from warploom.language.values.expressions import Evaluator


@dataclass(frozen=True)
class Running(Evaluator):
    """Computes expressions.

    Attributes
    ----------
    buffers : dict
        Buffer variable -> storage.
    known : Known
        Tells which indices depend on memory.
    watched : dict
        Buffers whose reads are to be noted -> the reads so far.
    statement : Stmt
        The statement of a nest that is being executed.
    given : set
        Slots of the workspace with sums that a CTA has given and no CTA has taken; all CTAs of a
        kernel have the same set.
    pointers : dict
        Variable with an address in the shared memory of another CTA -> what lies there.
    """

    buffers: dict[Var, Storage] = field(default_factory=dict)
    known: Known = field(default_factory=Known)
    watched: dict[Var, list[Access]] = field(default_factory=dict)
    statement: Any = None
    given: set[int] = field(default_factory=set)
    pointers: dict[Var, Storage] = field(default_factory=dict)

    def iterations(self, loop: For) -> range:
        """The values of a loop's variable, in order."""
        start, extent = self.integer(loop.min), self.integer(loop.extent)
        step = 1 if loop.step is None else self.integer(loop.step)
        return range(start, start + max(extent, 0), step)

    def storage(self, buffer: Any) -> Storage:
        """The storage of a buffer that is in scope."""
        if buffer not in self.buffers:
            raise TileProgramError(f"buffer {buffer.name} is used before it is allocated.")
        return self.buffers[buffer]

    def load(self, node: TensorLoad) -> np.ndarray:
        storage = self.storage(node.source)
        indices = [self(index).astype(np.int64) for index in node.indices]
        if node.source in self.watched:
            self.watched[node.source].append(Access(node, indices, self.active, self.statement))
        return storage.gather(indices, self.active, self.by_memory(node.indices))

    def by_memory(self, indices: Any) -> bool:
        """Whether an index depends on memory."""
        return any(map(self.known.depends_on_memory, indices))
