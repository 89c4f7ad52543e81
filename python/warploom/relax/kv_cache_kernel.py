"""One kernel of TVM's paged KV cache: which it is, and what replaces it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.relax.signatures import Facts, Signature

_NO_PARAMETERS = Signature(())


@dataclass(frozen=True)
class CacheKernel:
    """A kernel of the cache.

    Attributes
    ----------
    slot : int
        Which argument of the call it is, behind the name of the function that is called.
    place : int or None
        Where it stands in that argument, if that is a tuple.
    words : str
        What it computes, for people; names in braces are sizes of the signature or of the call.
    stays : str
        Why TVM's stays; empty where it is replaced.
    signature : Signature
        Not of those that stay.
    stock : callable
        TVM's function, from the sizes and the target.
    ours : callable
        The kernel that replaces it, from the sizes and from where it is to rotate.
    """

    slot: int
    place: int | None
    words: str
    stays: str = ""
    signature: Signature = _NO_PARAMETERS
    stock: Callable[[Facts, Target], PrimFunc] | None = None
    ours: Callable[[Facts], PrimFunc] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.slot < SLOTS:
            raise ValueError(f"the call has {SLOTS} arguments, and no number {self.slot}")
        if any((part is None) != bool(self.stays) for part in (self.stock, self.ours)):
            raise ValueError(f"{self.words}: either a kernel replaces it, or a reason is given")
        known = (*self.signature.sizes, *CALL_SIZES, WINDOW, RAGGED_VALUES, "dtype")
        self.words.format_map(dict.fromkeys(known, 0))

    @property
    def rotates(self) -> bool:
        """Whether it can apply the rotary embedding itself (``RopeMode.INLINE``)."""
        return self._takes(ROTARY_MODE)

    @property
    def attends(self) -> bool:
        """Whether it is an attention."""
        return self._takes("sm_scale")

    def _takes(self, name: str) -> bool:
        return any(parameter.name == name for parameter in self.signature.parameters)


#: Arguments of the call; some versions of TVM have one more.
SLOTS = 28
#: Sizes that the call gives, and in which argument.
CALL_SIZES = {"query_heads": 2, "value_dim": 5}
#: Sizes from elsewhere in it: tokens of the window of layers that have one, a number of the first
#: argument's, and elements of a value in ragged attention, whose kernel knows them.
WINDOW, RAGGED_VALUES = "window", "ragged_value_dim"
#: What is known beside the sizes: where queries and keys are rotated, a word of
#: :mod:`warploom.programs.rotary`.
ROTARY = "rotary"
#: The parameter of attention kernels that says whether they apply the rotary embedding.
ROTARY_MODE = "rotary_mode"
