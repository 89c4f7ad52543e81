"""Products of a warpgroup: their order against registers, their groups, waits for them.

Sources: PTX ISA, "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group".
"""

from __future__ import annotations

import math
from typing import Any

from tvm.script import tirx as T

from warploom.errors import IllegalCombination
from warploom.intrin.operand_fence import claimed, register_dtype
from warploom.language.builtins.operands import (
    constant,
    describe,
    is_place,
    known,
    place,
    pointer,
)
from warploom.language.builtins.values import bits_of
from warploom.target.dtypes import with_dtype_names
from warploom.target.wgmma import WGMMA_PENDING

#: Registers of an accumulator that one thread can hold.
_MAX_REGISTERS = 256
#: Bits of an element that shares its register with others, or has one or two of its own.
_ELEMENT_BITS = (4, 8, 16, 32, 64)


def warpgroup_arrive() -> Any:
    """Order the reads of MMAs from registers and shared memory after earlier accesses to these.

    Before the first ``wgmma.mma_async`` of a warpgroup, and whenever threads have changed
    accumulators or a left operand in registers.

    Returns
    -------
    Call
        ``wgmma.fence.sync.aligned``.

    Examples
    --------
    .. code-block:: python

        wl.warpgroup_arrive()
        # wgmma.mma_async, one or several, such as wl.WgmmaEmitter issues
        wl.warpgroup_commit_batch()
        wl.warpgroup_wait(0)
        wl.warpgroup_fence_operand(registers)
    """
    return T.ptx["wgmma.fence.sync.aligned"]()


def warpgroup_commit_batch() -> Any:
    """Make a group of all MMAs that were issued since the last group.

    Returns
    -------
    Call
        ``wgmma.commit_group.sync.aligned``.

    Examples
    --------
    .. code-block:: python

        wl.warpgroup_arrive()
        # wgmma.mma_async, one or several, such as wl.WgmmaEmitter issues
        wl.warpgroup_commit_batch()
        wl.warpgroup_wait(0)
        wl.warpgroup_fence_operand(registers)
    """
    return T.ptx["wgmma.commit_group.sync.aligned"]()


def warpgroup_wait(num_mma: int) -> Any:
    """Wait until at most ``num_mma`` of the youngest groups are not complete.

    Parameters
    ----------
    num_mma : int
        0 to 7.

    Returns
    -------
    Call
        ``wgmma.wait_group.sync.aligned``.

    Raises
    ------
    IllegalCombination
        If it is no constant, or out of range.

    Examples
    --------
    .. code-block:: python

        wl.warpgroup_arrive()
        # wgmma.mma_async, one or several, such as wl.WgmmaEmitter issues
        wl.warpgroup_commit_batch()
        wl.warpgroup_wait(0)
        wl.warpgroup_fence_operand(registers)
    """
    return T.ptx["wgmma.wait_group.sync.aligned"](constant("num_mma", num_mma, WGMMA_PENDING))


def wait_wgmma(id: int) -> Any:
    """As :func:`warpgroup_wait`.

    Examples
    --------
    .. code-block:: python

        wl.warpgroup_arrive()
        # wgmma.mma_async, one or several, such as wl.WgmmaEmitter issues
        wl.warpgroup_commit_batch()
        wl.wait_wgmma(0)
        wl.warpgroup_fence_operand(registers)
    """
    return T.ptx["wgmma.wait_group.sync.aligned"](constant("id", id, WGMMA_PENDING))


@with_dtype_names
def warpgroup_fence_operand(
    buffer_or_ptr: Any, offset: Any = 0, num_regs: int | None = None, dtype: str | None = None
) -> Any:
    """Keep the compiler from moving uses of accumulators across this statement.

    It costs no instruction: each register is the operand of an empty piece of assembly. After a
    wait, reads of the accumulators stay behind it; before an MMA, their writes stay
    in front.

    Parameters
    ----------
    buffer_or_ptr : Buffer, TensorLoad, TensorRegion or pointer
        Registers of this thread (scope ``local``).
    offset : int or Expr
        Elements to skip.
    num_regs : int, optional
        32-bit registers; by default all from there to the end of the buffer.
    dtype : str, optional
        Of the elements: any of 4 to 64 bits, vectors too. Those of less than 32 bits share a
        register, those of 64 have two. A pointer needs it.

    Returns
    -------
    Call
        One empty ``asm volatile`` a register.

    Raises
    ------
    IllegalCombination
        If the dtype or the number of registers is missing or impossible.

    Examples
    --------
    .. code-block:: python

        for i in T.unroll(8):
            registers[i] = A[t]
        wl.warpgroup_fence_operand(registers)
        B[t] = registers[0]
        # B == A
    """
    if is_place(buffer_or_ptr):
        buffer, indices = place("buffer_or_ptr", buffer_or_ptr)
        dtype = dtype or str(buffer.dtype)
        total, first = _elements(buffer), _linear(buffer, indices)
        base = _first_register(buffer)
        offset = offset + first
    else:
        base, total = pointer("buffer_or_ptr", buffer_or_ptr), None
    bits = bits_of(dtype) if dtype else 0
    if bits not in _ELEMENT_BITS:
        raise IllegalCombination(
            f"dtype of the fenced registers is {dtype!r}; its elements must have "
            f"{', '.join(map(str, _ELEMENT_BITS))} bits."
        )
    packed, wide = max(1, 32 // bits), max(1, bits // 32)
    if num_regs is None:
        if total is None or known(offset) is None:
            raise IllegalCombination(
                f"num_regs is missing, and does not follow from {describe(buffer_or_ptr)} with "
                f"offset {describe(offset)}; give it."
            )
        if total % packed:
            raise IllegalCombination(
                f"{buffer.name} has {total} elements of {dtype} in a thread, of which {packed} "
                "share a register; the last are no whole register, so make it larger."
            )
        num_regs = (total - known(offset)) * wide // packed
    count = constant("num_regs", num_regs, range(1, _MAX_REGISTERS + 1))
    if total is not None and known(offset) is not None and (
        known(offset) + count * packed // wide > total
    ):
        raise IllegalCombination(
            f"num_regs is {count} from element {known(offset)} on; {buffer.name} has {total} "
            f"elements of {dtype} in a thread."
        )
    if known(offset) is not None and known(offset) % packed:
        raise IllegalCombination(
            f"offset is {known(offset)}; {packed} elements of {dtype} share a register, so it "
            f"must be a multiple of {packed}."
        )
    name = f"warploom_fence_{dtype}_{count}"
    kind, claim = claimed("registers[i]", register_dtype(dtype))
    source = (
        f"__forceinline__ __device__ void {name}(void* base, int offset) {{\n"
        f"  {kind}* registers = ({kind}*)base + offset;\n"
        f"#pragma unroll\n  for (int i = 0; i < {count}; ++i)\n"
        f"    {claim}\n}}\n"
    )
    first = offset * wide if wide > 1 else offset // packed
    return T.cuda.func_call(name, base, first, source_code=source)


def _elements(buffer: Any) -> int:
    """Elements of a buffer that one thread holds."""
    layout = buffer.layout
    if layout is None or layout.is_trivial():
        return math.prod(known(extent) or 0 for extent in buffer.shape)
    return int(layout.storage().span())


def _linear(buffer: Any, indices: list[Any]) -> Any:
    if buffer.layout is None or buffer.layout.is_trivial():
        return buffer.offset_of(indices)[0]
    if any(known(index) != 0 for index in indices):
        raise IllegalCombination(
            f"{buffer.name} is spread over threads, so the fence cannot begin at an element of "
            "it; name the buffer, and say where in the thread's registers with offset."
        )
    return 0


def _first_register(buffer: Any) -> Any:
    if buffer.layout is None or buffer.layout.is_trivial():
        return buffer.ptr_to([0] * len(buffer.shape))
    return buffer.local().ptr_to([0])
