"""An op schedule as data, which a module of ``warploom.ops`` offers to TVM's dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc
    from tvm.tirx.operator.tile_primitive import DispatchContext
    from tvm.tirx.tile_primitive import TilePrimitiveCall

    Implementation = Callable[[TilePrimitiveCall, DispatchContext], PrimFunc]


@dataclass(frozen=True)
class Schedule:
    """A way to lower one tile primitive on the CUDA target.

    Attributes
    ----------
    op : str
        Name of the tile primitive, such as ``"gemm_async"``.
    variant : str
        Name of this way; a call selects it with ``dispatch="<variant>"``.
    priority : int
        Variants of higher priority are tried first; stock's have 0 to 20.
    when : tuple of (str, callable)
        Named predicates. Each takes the call and its context and returns ``(holds, reason)``,
        where the reason says why it does not hold. All of them must hold.
    impl : callable
        Takes the call and its context and returns the PrimFunc that replaces the call, or
        declines with ``tvm.tirx.operator.tile_primitive.fail(reason)``.
    """

    op: str
    variant: str
    priority: int
    when: tuple[tuple[str, Callable[..., Any]], ...]
    impl: Implementation

    def __post_init__(self) -> None:
        assert self.op.isidentifier() and self.variant, "a schedule has an op and a variant"
        assert callable(self.impl), "impl is a function"
        for name, predicate in self.when:
            assert isinstance(name, str) and callable(predicate), "when holds (name, function)"
