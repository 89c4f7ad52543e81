"""The allocation of tensor memory that a kernel makes, uses and gives back."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Var
from tvm.tirx.layout import S, TCol, TileLayout, TLane

from warploom.layout.tensor_memory import TensorMemoryPlan
from warploom.target import SM100A


@T.meta_class
class TensorMemory:
    """Tensor memory of a CTA, or of each CTA of a pair.

    Parameters
    ----------
    pool : SMEMPool
        Holds the address, which ``tcgen05.alloc`` writes to shared memory.
    plan : TensorMemoryPlan
        Buffers and their columns.
    cta_group : int
        1, or 2 where a pair of CTAs allocates together.
    """

    def __init__(self, pool: Any, plan: TensorMemoryPlan, cta_group: int = 1) -> None:
        self.plan, self.cta_group = plan, cta_group
        self.address = pool.alloc((1,), "uint32", align=4)
        self.base = Var("tensor_memory", "uint32")

    @T.inline
    def allocate(self):
        """Allocate, by one whole warp of the CTA; the others may allocate no more."""
        T.evaluate(
            T.ptx[f"tcgen05.alloc.cta_group::{self.cta_group}.sync.aligned.shared::cta.b32"](
                T.address_of(self.address[0]), T.uint32(self.plan.allocation)
            )
        )
        T.evaluate(
            T.ptx[f"tcgen05.relinquish_alloc_permit.cta_group::{self.cta_group}.sync.aligned"]()
        )
        T.ptx.tcgen05.fence__before_thread_sync()

    def open(self) -> None:
        """Read the address, by every thread, after a synchronisation with :meth:`allocate`."""
        T.evaluate(T.ptx.tcgen05.fence__after_thread_sync())
        T.Bind(self.address[0], var=self.base)

    def columns(self, name: str, dtype: str = "float32") -> Any:
        """A buffer of the plan with one element a cell: lanes by columns."""
        lanes, columns = SM100A.tensor_memory.lanes, self.plan[name].columns
        layout = TileLayout(S[(lanes, columns) : (1 @ TLane, 1 @ TCol)])
        return self.buffer(name, (lanes, columns), dtype, layout)

    def buffer(self, name: str, shape: tuple[int, ...], dtype: str, layout: Any) -> Any:
        """A buffer of the plan, in a layout over ``TLane`` and ``TCol``."""
        start = self.base + T.uint32(self.plan[name].start)
        return T.decl_buffer(shape, dtype, scope="tmem", allocated_addr=start, layout=layout)

    @T.inline
    def free(self):
        """Give the columns back, by one whole warp, once nothing of the CTA (pair) uses them."""
        T.ptx.tcgen05.fence__after_thread_sync()
        T.evaluate(
            T.ptx[f"tcgen05.dealloc.cta_group::{self.cta_group}.sync.aligned.b32"](
                self.base, T.uint32(self.plan.allocation)
            )
        )
