"""A call of ``relax.nn.conv1d``, ``conv2d`` or ``conv3d``, in any layout, as sizes by name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.tirx import IntImm

from warploom.decide.problem import ALIGN
from warploom.relax.visiting import operator_name
from warploom.target import TMA
from warploom.target.dtypes import bits_of

#: By operator: the dimensions of an image that a filter moves along.
_MOVES = {"relax.nn.conv1d": "W", "relax.nn.conv2d": "HW", "relax.nn.conv3d": "DHW"}


@dataclass(frozen=True)
class Convolution:
    """Sizes of a convolution; what has a value for each direction is in the order of ``moves``.

    Attributes
    ----------
    call : relax.Call
    moves : str
        The dimensions of an image by their letters in layouts: ``"HW"``, ``"W"`` or ``"DHW"``.
    images : Expr
        Their number; maybe unknown.
    channels, filters, groups : int
    size, taps, strides, dilation, before, after : tuple of int
        Extents of images and filters, steps, and elements of padding on either side.
    dtype : str
        Of images and filters.
    data, kernel, stored : str
        Layouts of images, filters and result: ``"NCHW"``, ``"OIHW"``.
    """

    call: relax.Call
    moves: str
    images: Any
    channels: int
    filters: int
    groups: int
    size: tuple[int, ...]
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dtype: str
    data: str
    kernel: str
    stored: str

    @classmethod
    def of(cls, call: Any) -> Convolution | None:
        """The convolution that a call is.

        None for other calls, packed layouts (``NCHW4c``) and sizes that only the launch knows.
        """
        name = operator_name(call)
        if name not in _MOVES:
            return None
        moves, attrs = _MOVES[name], call.attrs
        data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
        stored = str(attrs.out_layout) or data
        if any(sorted(layout) != sorted("NC" + moves) for layout in (data, stored)):
            return None
        if sorted(kernel) != sorted("OI" + moves):
            return None
        x, w = (
            _extents(one, layout) for one, layout in zip(call.args, (data, kernel), strict=True)
        )
        if x is None or w is None:
            return None
        known = [x[letter] for letter in "C" + moves] + list(w.values())
        if not all(isinstance(extent, IntImm) for extent in known):
            return None
        dtypes = {str(one.ty.dtype) for one in call.args}
        if len(dtypes) > 1:
            return None
        padding, count = [int(one) for one in attrs.padding], len(moves)
        return cls(
            call, moves, x["N"], int(x["C"]), int(w["O"]), int(attrs.groups),
            tuple(int(x[letter]) for letter in moves), tuple(int(w[letter]) for letter in moves),
            tuple(int(one) for one in attrs.strides), tuple(int(one) for one in attrs.dilation),
            tuple(padding[:count]), tuple(padding[count:]), dtypes.pop(), data, kernel, stored,
        )  # fmt: skip

    @property
    def result(self) -> tuple[int, ...]:
        """Extents of the result along ``moves``."""
        parts = zip(
            self.size, self.taps, self.strides, self.dilation, self.before, self.after, strict=True
        )
        return tuple((e + a + b - d * (t - 1) - 1) // s + 1 for e, t, s, d, a, b in parts)

    @property
    def terms(self) -> int:
        """Products that an element of the result is the sum of."""
        return self.channels // self.groups * math.prod(self.taps)

    @property
    def pixels(self) -> int:
        """Pixels of the result; of one image where their number is not known."""
        return math.prod(self.result) * _number(self.images)

    @property
    def last(self) -> str:
        """The layout of images whose channels are last."""
        return f"N{self.moves}C"

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel has a filter of its own."""
        return 1 < self.groups == self.channels == self.filters

    @property
    def is_gathered(self) -> bool:
        """Whether TMA can't load its pixels: their pitch, or the step from one to the next."""
        odd = self.channels * bits_of(self.dtype) % (8 * ALIGN)
        return bool(odd) or max(self.strides) > TMA.element_stride

    def may_be_gemm(self, tf32: bool = False) -> bool:
        """Whether the tensor cores can multiply it, in the layout that suits them.

        Parameters
        ----------
        tf32 : bool
            Whether float32 operands may be multiplied as tf32.
        """
        whole = self.groups == 1 and self.filters > 1 and self.terms > 1
        return whole and self._is_multiplied(tf32)

    def may_be_blocks(self, tf32: bool = False) -> bool:
        """Whether the tensor cores can multiply it as blocks of its groups.

        Parameters
        ----------
        tf32 : bool
            Whether float32 operands may be multiplied as tf32.
        """
        several = self.groups > 1 and not self.is_depthwise
        return several and self._is_multiplied(tf32)

    def _is_multiplied(self, tf32: bool) -> bool:
        dtypes = ("float16", "bfloat16", *(("float32",) if tf32 else ()))
        return self.dtype in dtypes and min(self.result) > 0


def _extents(tensor: relax.Expr, layout: str) -> dict[str, Any] | None:
    """Extents of a tensor by the letters of its layout; None if its shape is not known."""
    shape = getattr(tensor.ty, "shape", None)
    values = getattr(shape, "values", None)
    if values is None or len(values) != len(layout):
        return None
    return dict(zip(layout, values, strict=True))


def _number(extent: Any) -> int:
    return int(extent) if isinstance(extent, IntImm) else 1
