"""Copies of the tensor memory accelerator: descriptors of tensors, loads, the end of stores.

Boxes and coordinates are in TVM's order, the contiguous dimension last; the tensor map itself
counts from it.

Sources: CUDA Driver API, ``cuTensorMapEncodeTiled``; PTX ISA, "cp.async.bulk.tensor",
"cp.async.bulk.commit_group", "cp.async.bulk.wait_group".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer, Var, is_buffer_var

from warploom.errors import IllegalCombination
from warploom.intrin.tensor_map import encode
from warploom.language.builtins.mbarriers import barrier_pointer
from warploom.language.builtins.operands import constant, describe, known, pointer, word
from warploom.target.spelling import Interleave, read_interleave, read_swizzle_codes
from warploom.target.swizzle import Swizzle
from warploom.target.tensor_map import TensorMap
from warploom.target.tma import TMA


def create_tma_descriptor(
    tensor: Buffer,
    box: Sequence[int],
    *,
    swizzle: str | int = "none",
    l2_promotion: str | int = "128B",
    oob_fill: str = "zeros",
    interleave: str | int = "none",
    element_strides: Sequence[int] | None = None,
) -> Var:
    """Describe a tensor in global memory for TMA, on the host: before ``T.device_entry()``.

    Parameters
    ----------
    tensor : Buffer
        A parameter of the function, of 1 to 5 dimensions, the last of them contiguous; extents
        may be variables.
    box : sequence of int
        Extents of what one copy looks at, 1 to 256 each; it moves all of that, or what
        ``element_strides`` leave.
    swizzle : str or int
        Bytes of the rows whose chunks are exchanged: ``"none"``, ``"32B"``, ``"64B"``, ``"128B"``,
        or 32, 64, 128. Also the code of the tensor map, which is TVM's mode: 1, 2, 3 for rows of
        32, 64, 128 bytes.
    l2_promotion : str or int
        Bytes that a miss brings into the L2 cache: ``"none"``, ``"64B"``, ``"128B"``, ``"256B"``.
    oob_fill : str
        The value of elements outside of the tensor: ``"zeros"``, or ``"nan"`` for floats.
    interleave : str or int
        ``"none"``, ``"16B"`` or ``"32B"``: whether channels come in slices of so many bytes. The
        elements of a slice are the last dimension of the tensor then, and none of the box.
    element_strides : sequence of int, optional
        Take every n-th element of each dimension, 1 to 8.

    Returns
    -------
    Var
        The descriptor, for :func:`tma_load`.

    Raises
    ------
    IllegalCombination
        If the hardware has no such tensor map.

    Examples
    --------
    .. code-block:: python

        source = wl.create_tma_descriptor(A, (128,))  # before T.device_entry()
        full = wl.alloc_barrier(1)
        if t == 0:
            wl.mbarrier_expect_tx(full, 512)
            wl.tma_load(source, full, tile, 0)
            wl.mbarrier_arrive(full)
        wl.mbarrier_wait_parity(full, 0)
        B[t] = tile[t]
        # B == A
    """
    if not is_buffer_var(tensor) or tensor.scope() != "global":
        raise IllegalCombination(
            f"create_tma_descriptor of {describe(tensor)}; it must be a buffer in global memory."
        )
    mode = read_swizzle_codes("swizzle", swizzle, "tensor_map")
    slices = read_interleave("interleave", interleave)
    rank = len(tensor.shape) - (slices is not Interleave.NONE)
    strides = [known(stride) for stride in tensor.strides][:rank]
    if None in strides:
        raise IllegalCombination(
            f"{tensor.name} has strides that are variables; describe a tensor of constant ones."
        )
    description = TensorMap(
        str(tensor.dtype),
        tuple(known(extent) for extent in tensor.shape)[:rank],
        tuple(constant("a box extent", extent, range(1, TMA.box_extent + 1)) for extent in box),
        Swizzle(mode.row_bytes),
        l2_promotion,
        oob_fill,
        slices,
        tuple(strides) or None,
        tuple(element_strides) if element_strides is not None else None,
    )
    return encode(description, tensor)


def tma_load(
    descriptor: Var,
    mbarrier: Any,
    destination: Any,
    *coordinates: Any,
    cta_mask: Any = None,
) -> Any:
    """Copy a box from global to shared memory; one thread executes it.

    Parameters
    ----------
    descriptor : Var
        Of :func:`create_tma_descriptor`.
    mbarrier : Buffer, TensorLoad or pointer
        The mbarrier that gets the bytes of the whole box, also where it reaches over an edge.
    destination : Buffer, TensorLoad or pointer
        In shared memory, a multiple of 128 bytes.
    *coordinates : int or Expr
        The box's first element, 1 to 5; it may lie outside of the tensor.
    cta_mask : int or Expr, optional
        CTAs of the cluster, a bit each, that get the box at the same place.

    Returns
    -------
    Call
        ``cp.async.bulk.tensor``.

    Raises
    ------
    IllegalCombination
        If the number of coordinates is another, or an operand is of another kind.

    Examples
    --------
    .. code-block:: python

        source = wl.create_tma_descriptor(A, (128,))  # before T.device_entry()
        full = wl.alloc_barrier(1)
        if t == 0:
            wl.mbarrier_expect_tx(full, 512)
            wl.tma_load(source, full, tile, 0)
            wl.mbarrier_arrive(full)
        wl.mbarrier_wait_parity(full, 0)
        B[t] = tile[t]
        # B == A
    """
    if not isinstance(descriptor, Var) or is_buffer_var(descriptor):
        raise IllegalCombination(
            f"descriptor is {describe(descriptor)}; it must be the result of create_tma_descriptor."
        )
    rank = len(coordinates)
    if rank not in range(1, TMA.rank + 1):
        raise IllegalCombination(
            f"tma_load has {rank} coordinates; it must have one for each dimension of the tensor, "
            f"1 to {TMA.rank}."
        )
    name = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
    operands = [
        pointer("destination", destination),
        T.address_of(descriptor),
        *(word("a coordinate", coordinate, "int32") for coordinate in reversed(coordinates)),
        barrier_pointer(mbarrier),
    ]
    if cta_mask is None:
        return T.ptx[name](*operands)
    if known(cta_mask) == 0:
        raise IllegalCombination("cta_mask is 0; it must name at least one CTA.")
    return T.ptx[f"{name}.multicast::cluster"](*operands, word("cta_mask", cta_mask, "uint16"))


def tma_store_arrive() -> Any:
    """Make a group of all stores of TMA that this thread has issued since the last group.

    Returns
    -------
    Call
        ``cp.async.bulk.commit_group``.

    Examples
    --------
    .. code-block:: python

        target = wl.create_tma_descriptor(B, (128,))  # before T.device_entry()
        tile[t] = A[t]
        wl.fence_proxy_async("shared::cta")
        wl.sync_threads()
        if t == 0:
            T.ptx["cp.async.bulk.tensor.1d.global.shared::cta.bulk_group"](
                T.address_of(target), 0, tile.ptr_to([0])
            )
            wl.tma_store_arrive()
            wl.tma_store_wait()
        # B == A
    """
    return T.ptx["cp.async.bulk.commit_group"]()


def tma_store_wait(count: int = 0, read: bool = True) -> Any:
    """Wait until at most ``count`` of this thread's youngest groups of stores are not complete.

    Parameters
    ----------
    count : int
        0 or more.
    read : bool
        Whether it is enough that shared memory has been read and may be written again. If not,
        the stores are complete, and visible to this thread.

    Returns
    -------
    Call
        ``cp.async.bulk.wait_group``.

    Raises
    ------
    IllegalCombination
        If the count is no constant or negative.

    Examples
    --------
    .. code-block:: python

        target = wl.create_tma_descriptor(B, (128,))  # before T.device_entry()
        tile[t] = A[t]
        wl.fence_proxy_async("shared::cta")
        wl.sync_threads()
        if t == 0:
            T.ptx["cp.async.bulk.tensor.1d.global.shared::cta.bulk_group"](
                T.address_of(target), 0, tile.ptr_to([0])
            )
            wl.tma_store_arrive()
            wl.tma_store_wait()
        # B == A
    """
    groups = constant("count", count, range(64))
    return T.ptx["cp.async.bulk.wait_group" + (".read" if read else "")](groups)
