"""How many registers the warps of a role may have.

Two ways: instructions for kernels that are orchestrated by hand, and hints for passes, which place
the instructions themselves. Hints stand where ``wl.hints`` stands, and are hints like those.

Source: PTX ISA, "setmaxnreg".
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.language.builtins.operands import constant, flag
from warploom.target import SM90A
from warploom.tile.hints import CONSUMER_REGISTERS, PRODUCER_REGISTERS, SET_REGISTERS

_REGISTERS = range(SM90A.setmaxnreg.low, SM90A.setmaxnreg.high + 1, SM90A.setmaxnreg.step)


def set_max_nreg(reg_count: int, is_inc: bool) -> Any:
    """Change the number of registers that each thread of this warpgroup may have.

    All warps of the warpgroup execute it; an increase waits until others have released enough.

    Parameters
    ----------
    reg_count : int
        A multiple of 8 from 24 to 256.
    is_inc : bool
        Whether it is more than now (also 1), or less (also 0).

    Returns
    -------
    Call
        ``setmaxnreg.inc`` or ``setmaxnreg.dec``.

    Raises
    ------
    IllegalCombination
        If the number is another.

    Examples
    --------
    .. code-block:: python

        wl.set_max_nreg(40, False)
        B[t] = A[t]
        # B == A
    """
    direction = "inc" if flag("is_inc", is_inc) else "dec"
    count = constant("reg_count", reg_count, _REGISTERS)
    return T.ptx[f"setmaxnreg.{direction}.sync.aligned.u32"](count)


def inc_max_nreg(reg_count: int) -> Any:
    """``set_max_nreg(reg_count, True)``.

    Examples
    --------
    .. code-block:: python

        wl.dec_max_nreg(40)
        wl.sync_threads()
        wl.inc_max_nreg(104)
        B[t] = A[t]
        # B == A
    """
    return set_max_nreg(reg_count, True)


def dec_max_nreg(reg_count: int) -> Any:
    """``set_max_nreg(reg_count, False)``.

    Examples
    --------
    .. code-block:: python

        wl.dec_max_nreg(40)
        B[t] = A[t]
        # B == A
    """
    return set_max_nreg(reg_count, False)


def annotate_producer_reg_dealloc(reg_count: int = 24) -> Any:
    """A hint: registers of a thread of the warps that load.

    Parameters
    ----------
    reg_count : int
        A multiple of 8 from 24 to 256.

    Raises
    ------
    IllegalCombination
        If the number is another.

    Examples
    --------
    .. code-block:: python

        # in a tile program, before its statements
        wl.annotate_producer_reg_dealloc(40)
    """
    return _hint(PRODUCER_REGISTERS, reg_count)


def annotate_consumer_reg_alloc(reg_count: int = 240) -> Any:
    """As :func:`annotate_producer_reg_dealloc`, of the warpgroups that compute.

    Examples
    --------
    .. code-block:: python

        # in a tile program, before its statements
        wl.annotate_consumer_reg_alloc(232)
    """
    return _hint(CONSUMER_REGISTERS, reg_count)


def _hint(name: str, reg_count: int) -> Any:
    return T.attr({name: constant("reg_count", reg_count, _REGISTERS)})


def no_set_max_nreg() -> Any:
    """A hint: warps of all roles keep the registers that they start with.

    Examples
    --------
    .. code-block:: python

        # in a tile program, before its statements
        wl.no_set_max_nreg()
    """
    return T.attr({SET_REGISTERS: False})


def disable_warp_group_reg_alloc() -> Any:
    """As :func:`no_set_max_nreg`.

    Examples
    --------
    .. code-block:: python

        # in a tile program, before its statements
        wl.disable_warp_group_reg_alloc()
    """
    return no_set_max_nreg()
