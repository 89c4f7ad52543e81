"""Barriers of a CTA, a warp, and all CTAs of a kernel.

Sources: PTX ISA, "bar", "bar.warp.sync"; CUDA Programming Guide, "Cooperative Groups".
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.errors import IllegalCombination
from warploom.language.builtins.indices import MAX_THREADS, WARP
from warploom.language.builtins.operands import constant, dtype_of, known, word

#: Barriers of a CTA.
_BARRIERS = range(16)
#: Threads that meet at one.
_COUNTS = range(WARP, MAX_THREADS + 1, WARP)


def sync_threads(barrier_id: Any = None, arrive_count: Any = None) -> Any:
    """Wait for all threads of the CTA, or for some at a barrier of theirs.

    Parameters
    ----------
    barrier_id : int or Expr, optional
        0 to 15; 0, which is the default, is the barrier that everything else of TVM uses. An
        expression must have one value in a warp.
    arrive_count : int or Expr, optional
        Threads that meet there: a multiple of 32 up to 1024. By default all of the CTA.

    Returns
    -------
    Call
        ``__syncthreads()`` or ``bar.sync``.

    Raises
    ------
    IllegalCombination
        If a constant is something else, or there is a count without a barrier.

    Examples
    --------
    .. code-block:: python

        tile[t] = A[t]
        wl.sync_threads(1 + t // 64, 64)
        B[t] = tile[t ^ 63]
        # B == A[t ^ 63]
    """
    if barrier_id is None:
        if arrive_count is not None:
            raise IllegalCombination(
                f"arrive_count is {arrive_count} and barrier_id is missing; a part of the CTA "
                "needs a barrier of its own, 1 to 15."
            )
        return T.cuda.cta_sync()
    barrier = _checked("barrier_id", barrier_id, _BARRIERS)
    if arrive_count is None:
        return T.ptx.bar.sync(barrier)
    return T.ptx.bar.sync(barrier, _checked("arrive_count", arrive_count, _COUNTS))


def _checked(name: str, value: Any, allowed: range) -> Any:
    """A number as uint32; constants must be allowed."""
    if not dtype_of(value) or known(value) is not None:
        constant(name, value, allowed)
    return word(name, value)


def sync_warp(mask: Any = None) -> Any:
    """Wait for lanes of the warp, and see their writes to memory.

    Parameters
    ----------
    mask : int or Expr, optional
        Lanes, a bit each; all by default.

    Returns
    -------
    Call
        ``bar.warp.sync``.

    Raises
    ------
    IllegalCombination
        If the mask is 0 or no mask.

    Examples
    --------
    .. code-block:: python

        tile[t] = A[t]
        wl.sync_warp()
        B[t] = tile[t ^ 31]
        # B == A[t ^ 31]
    """
    if mask is None:
        return T.cuda.warp_sync()
    if known(mask) == 0:
        raise IllegalCombination("mask is 0; sync_warp needs at least one lane.")
    return T.ptx.bar.warp.sync(word("mask", mask))


def sync_grid() -> Any:
    """Wait for all threads of the kernel, and see their writes to memory.

    The kernel is launched cooperatively: the driver refuses a grid whose CTAs do not all fit on
    the GPU at a time. ``tir_pipeline="warploom"`` sees to that; TVM's own pipeline does not.

    Returns
    -------
    Call
        ``cooperative_groups::this_grid().sync()``.

    Examples
    --------
    .. code-block:: python

        B[t] = A[t]
        wl.sync_grid()
        tile[t] = B[127 - t]
        wl.sync_grid()
        B[t] = tile[t]
        # B == A[::-1]
    """
    return T.cuda.grid_sync()


def sync_global() -> Any:
    """As :func:`sync_grid`, in a kernel that is launched as any other.

    The counter of the barrier lies in global memory, one for all kernels of a module. That the
    CTAs all fit on the GPU at a time, and that two kernels of the module do not run together, is
    the author's to know: otherwise this never ends.

    Returns
    -------
    Call
        An atomic addition with release, and a loop around a load with acquire.

    Examples
    --------
    .. code-block:: python

        B[t] = A[t]
        wl.sync_global()
        tile[t] = B[127 - t]
        wl.sync_global()
        B[t] = tile[t]
        # B == A[::-1]
    """
    # Each barrier turns the highest bit over: the first CTA adds the number that makes the sum
    # 2^31.
    source = """
__device__ unsigned int warploom_grid_counter = 0;
__device__ void warploom_sync_global() {
  __syncthreads();
  if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
    const unsigned int ctas = gridDim.x * gridDim.y * gridDim.z;
    const bool first = blockIdx.x + blockIdx.y + blockIdx.z == 0;
    unsigned int before, now;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(&warploom_grid_counter)),
                   "r"(first ? 0x80000000u - (ctas - 1) : 1u)
                 : "memory");
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                   : "=r"(now)
                   : "l"(__cvta_generic_to_global(&warploom_grid_counter))
                   : "memory");
    } while (((now ^ before) & 0x80000000u) == 0);
  }
  __syncthreads();
}
"""
    return T.cuda.func_call("warploom_sync_global", source_code=source)
