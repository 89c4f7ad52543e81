"""Tensor maps that a kernel's author describes himself: made on the host, for ``wl.tma_load``.

``Tx.copy_async(dispatch="tma_auto")`` makes its own from the regions that it is given, and is all
that most kernels need. This is for maps that it cannot express: slices of channels, steps over
elements, one map for copies at many places.

Source: CUDA Driver API, ``cuTensorMapEncodeTiled``.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer, IntImm, Var, is_buffer_var

from warploom.errors import IllegalCombination
from warploom.target.dtypes import bits_of
from warploom.target.tensor_map import Interleave, TensorMap

_KIND = "tensormap"


def encode(description: TensorMap, tensor: Buffer) -> Var:
    """Make the tensor map on the host; write this before ``T.device_entry()``.

    Parameters
    ----------
    description : TensorMap
        Extents that it leaves open are those of the buffer.
    tensor : Buffer
        A parameter of the function: of the description's shape; if interleaved, with the elements
        of a slice as one more dimension at the end.

    Returns
    -------
    Var
        The map, for ``wl.tma_load``.

    Raises
    ------
    IllegalCombination
        If the buffer is not of that dtype and shape.
    """
    shape = _shape_of(description, tensor)
    strides = description.strides or [prod(shape[d + 1 :]) for d in range(description.rank)]
    steps = description.element_strides or (1,) * description.rank
    tensor_map = Var(f"{tensor.name}_map", ty=T.handle(_KIND).ty)
    T.Bind(T.tvm_stack_alloca(_KIND, 1), var=tensor_map)
    T.evaluate(
        T.tensormap_encode_tiled(
            tensor_map,
            tensor.data,
            *reversed(shape),
            *(stride * description.unit_bits // 8 for stride in reversed(strides[:-1])),
            *reversed(description.box),
            *reversed(steps),
            descriptor_dtype=description.dtype,
            rank=description.rank,
            interleave=description.interleave.value,
            swizzle=description.swizzle.bits,
            l2_promotion=description.l2_promotion.value,
            oob_fill=description.oob_fill.value,
        )
    )
    return tensor_map


def _shape_of(description: TensorMap, tensor: Buffer) -> list[Any]:
    """Extents of the buffer, in the unit of the map."""
    if not is_buffer_var(tensor) or tensor.scope() != "global":
        raise IllegalCombination(f"TMA: {tensor} is no buffer in global memory.")
    if str(tensor.dtype) != description.dtype:
        raise IllegalCombination(
            f"TMA: {tensor.name} has elements of {tensor.dtype}, the map of {description.dtype}."
        )
    shape, wanted = list(tensor.shape), list(description.shape)
    if description.interleave is not Interleave.NONE:
        wanted.append(description.unit_bits // bits_of(description.dtype))
    if len(shape) != len(wanted) or not all(map(_fits, shape, wanted)):
        raise IllegalCombination(
            f"TMA: {tensor.name} has shape ({', '.join(map(str, shape))}), the map is made for "
            f"({', '.join('any' if extent is None else str(extent) for extent in wanted)})."
        )
    return shape[: description.rank]


def _fits(got: Any, wanted: int | None) -> bool:
    return wanted is None or (isinstance(got, int | IntImm) and int(got) == wanted)
