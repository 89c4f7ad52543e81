"""``wl.descriptor``: how an instruction of the tensor core is told where an operand lies."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer, IntImm

from warploom.errors import IllegalCombination

#: Bits of a shared address that a descriptor holds, in units of 16 bytes.
_ADDRESS_BITS = 0x3FFF


def descriptor(
    tile: Buffer, *stage: Any, mn: Any = 0, k: Any = 0, major: str = "K", arch: str = "sm_90a"
) -> Any:
    """The matrix descriptor of a shared tile from element ``(mn, k)`` on, a uint64 expression.

    Keep it in a buffer of scope ``wgmma.descriptor``, which becomes a register, or pass it to an
    instruction of ``T.ptx`` directly. Adding ``n`` moves it by ``16 n`` bytes.

    Parameters
    ----------
    tile : Buffer
        In shared memory, with the layout of an operand: it must be known where this is written.
    *stage : int or Expr
        Indices of the dimensions in front of the last two.
    mn, k : int or Expr
        Multiples at which an instruction may start (``SharedMatrix.mn_align``, ``k_align``).
    major : str
        ``"K"``: the last two dimensions are [mn, k]; ``"MN"``: [k, mn].
    arch : str
        ``"sm_90a"`` for wgmma, ``"sm_100a"`` for tcgen05, whose bits differ.

    Raises
    ------
    IllegalCombination
        If the tensor core cannot read the tile's layout.

    Examples
    --------
    .. code-block:: python

        desc = T.alloc_buffer((1,), "uint64", scope="wgmma.descriptor")
        desc[0] = wl.descriptor(A_s, stage, mn=64 * warpgroup, k=16 * step)
    """
    from warploom.layout.smem_matrix import CHUNK_BYTES, SharedMatrix
    from warploom.target import Major

    matrix = SharedMatrix.from_buffer(tile, Major[major])
    lead = len(tile.shape) - 2
    if len(stage) != lead:
        raise IllegalCombination(
            f"The descriptor of {tile.name} got {len(stage)} indices of stages; it has {lead} "
            "dimensions in front of the matrix."
        )
    base = T.cuda.cvta_generic_to_shared(tile.ptr_to([*stage, 0, 0]))
    chunk = T.Cast("uint32", matrix.byte_offset(mn, k) // CHUNK_BYTES + T.int32(0))
    address = ((base >> T.uint32(4)) + chunk) & T.uint32(_ADDRESS_BITS)
    bits = matrix.descriptor if arch == "sm_90a" else matrix.tcgen05_descriptor
    return IntImm("uint64", bits) + T.Cast("uint64", address)
