"""``wl.mbarrier``: barriers in shared memory that the author of a program operates himself.

An mbarrier counts, phase after phase. A phase is complete when as many arrivals as :func:`init`
said have happened, and all bytes that were announced have come; then the next phase begins. The
first phase has parity 0, and ``wait`` for parity 1 passes before it is complete, as in PTX.

Each function is one statement, and one instruction of ``T.ptx`` or ``T.cuda`` on a buffer of scope
``mbarrier``, which passes give its place in shared memory. They read the operations that they find
in a program back with :func:`warploom.tile.mbarriers.read_operation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer

from warploom.errors import IllegalCombination
from warploom.language.builtins.mbarriers import mbarrier_wait_parity
from warploom.language.builtins.operands import constant
from warploom.tile.choices import require_positive
from warploom.tile.mbarriers import INITIALISED, LOADING, SCOPE

#: Arrivals that an mbarrier can count (PTX ISA, "mbarrier.init").
MAX_ARRIVALS = (1 << 20) - 1


def alloc(count: int = 1) -> Any:
    """``count`` mbarriers, not yet initialised.

    ``T.alloc_buffer((count,), "uint64", scope="mbarrier")`` is the same, but for a single one: TVM
    prints a buffer of shape ``(1,)`` as a scalar without its scope.
    """
    require_positive("count", count)
    return T.alloc_buffer((1, 1) if count == 1 else (count,), "uint64", scope=SCOPE)


class Pool:
    """The pool that TVM's barrier classes allocate from: ``TMABar(wl.mbarrier.Pool(), stages)``."""

    def alloc(self, shape: tuple[int, ...], dtype: str = "uint64", **_: Any) -> Any:
        """Mbarriers of that shape; a single one is the first of two, that it may be printed."""
        return T.alloc_buffer((2,) if shape == (1,) else shape, dtype, scope=SCOPE)


def address(barriers: Buffer, stage: Any = 0) -> Any:
    """Where one mbarrier is: the option ``mbar=`` of a copy."""
    return barriers.ptr_to([*[0] * (len(barriers.shape) - 1), stage])


def init(barriers: Buffer, arrivals: int | Sequence[int]) -> None:
    """Initialise mbarriers: how many arrivals complete a phase.

    Parameters
    ----------
    barriers : Buffer
        Of :func:`alloc`, or another buffer of scope ``mbarrier``.
    arrivals : int or sequence of int
        1 to 1048575: of each mbarrier, or one number for each of them.

    Raises
    ------
    IllegalCombination
        If a number is out of range, or there are more or fewer numbers than mbarriers.

    Examples
    --------
    .. code-block:: python

        barriers = wl.mbarrier.alloc(3)
        if t == 0:
            wl.mbarrier.init(barriers, [1, 128, 64])
    """
    count = int(barriers.shape[-1])
    numbers = _arrivals("arrivals", arrivals)
    if not isinstance(arrivals, Sequence):
        numbers *= count
    if len(numbers) != count:
        raise IllegalCombination(
            f"arrivals has {len(numbers)} numbers, and {barriers.name} has {count} mbarriers; give "
            "one number for each of them, or one for all."
        )
    _initialise(barriers, numbers)


def alloc_barrier(arrive_count: int | Sequence[int]) -> Any:
    """Mbarriers that are ready for use: allocated, initialised, and known to all threads.

    In a kernel that defines ids of threads, the first thread of the CTA initialises them, and all
    threads of the CTA, of the cluster where there is one, wait until it has. So all threads must
    come here, once: outside of loops and branches. In a tile program it is :func:`alloc` and
    :func:`init`.

    Parameters
    ----------
    arrive_count : int or sequence of int
        Arrivals that complete a phase, 1 to 1048575: a number for each mbarrier. A number alone
        is one mbarrier.

    Returns
    -------
    Buffer
        ``barriers[i]`` is the mbarrier with ``arrive_count[i]``; ``barriers`` alone is the first.

    Raises
    ------
    IllegalCombination
        If a number is out of range, or there is none.

    Examples
    --------
    .. code-block:: python

        barriers = wl.alloc_barrier([128] * 2 + [1])
        wl.mbarrier_arrive(barriers[1])
        wl.mbarrier_wait_parity(barriers[1], 0)
    """
    numbers = _arrivals("arrive_count", arrive_count)
    # TVM prints a buffer of shape (1,) as a scalar, so a single mbarrier is the first of two.
    barriers = T.alloc_buffer((max(2, len(numbers)),), "uint64", scope=SCOPE)
    with T.attr({INITIALISED: 1}):
        _initialise(barriers, numbers)
    return barriers


def _arrivals(name: str, given: Any) -> list[int]:
    """Numbers of arrivals as a list."""
    allowed = range(1, MAX_ARRIVALS + 1)
    if not isinstance(given, Sequence):
        return [constant(name, given, allowed)]
    if isinstance(given, str) or not len(given):
        raise IllegalCombination(
            f"{name} is {given!r}; it must be a number, or a sequence with one for each mbarrier."
        )
    return [constant(f"{name}[{i}]", value, allowed) for i, value in enumerate(given)]


def _initialise(barriers: Buffer, numbers: list[int]) -> None:
    for stage, number in enumerate(numbers):
        place = address(barriers, stage)
        T.evaluate(T.ptx.mbarrier.init.shared.b64(place, T.uint32(number)))


def arrive(barriers: Buffer, stage: Any = 0) -> None:
    """Arrive once."""
    T.evaluate(T.ptx.mbarrier.arrive.shared.b64(address(barriers, stage), T.uint32(1)))


def expect(barriers: Buffer, stage: Any, count: Any) -> None:
    """Arrive once, and announce ``count`` bytes of copies with ``mbar=`` this mbarrier."""
    place = address(barriers, stage)
    T.evaluate(T.ptx.mbarrier.arrive.expect_tx.shared.b64(place, T.uint32(count)))


def wait(barriers: Buffer, stage: Any, parity: Any, ticks: Any = None) -> None:
    """Wait until the phase of that parity is complete.

    ``parity`` is 0 or 1, or a condition; ``ticks`` is the suspend-time hint of
    :func:`warploom.language.mbarrier_wait_parity`.
    """
    T.evaluate(mbarrier_wait_parity(address(barriers, stage), parity, ticks))


def loading() -> Any:
    """``with wl.loading():`` only the thread that loads executes this.

    Copies with ``mbar=`` and :func:`expect` are that thread's anyway, other statements are not.

    Examples
    --------
    .. code-block:: python

        with wl.loading():
            wl.mbarrier.expect(full, 2 * BM * BK)
    """
    return T.attr({LOADING: 1})
