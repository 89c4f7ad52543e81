"""How long a caller of ``gemm_async`` and of ``WgmmaEmitter`` waits: the option ``wait``.

Source: PTX ISA, "wgmma.wait_group".
"""

from __future__ import annotations

from typing import Any

from tvm.tirx import IntImm

from warploom.errors import IllegalCombination
from warploom.target.wgmma import WGMMA_PENDING


def pending_groups(wait: Any) -> int | None:
    """The operand of ``wgmma.wait_group`` that an option ``wait`` asks for.

    Parameters
    ----------
    wait : bool, int or None
        ``False`` or ``None``: the caller waits. ``True``: all groups are complete, as with 0.
        An integer from 0 to 7: at most so many of the latest groups are pending.

    Returns
    -------
    int or None
        None if nothing but the instructions is issued.

    Raises
    ------
    IllegalCombination
        If the value is of another type, or out of range.

    Examples
    --------
    >>> pending_groups(True), pending_groups(2), pending_groups(False)
    (0, 2, None)
    """
    if isinstance(wait, IntImm):
        wait = bool(wait.value) if str(wait.ty.dtype) == "bool" else int(wait.value)
    if wait is None or isinstance(wait, bool):
        return 0 if wait else None
    return require_pending(wait)


def require_pending(groups: Any) -> int:
    """``groups`` as a number that ``wgmma.wait_group`` takes.

    Raises
    ------
    IllegalCombination
        If it is no integer constant, or out of range.
    """
    if isinstance(groups, IntImm):
        groups = int(groups.value)
    if isinstance(groups, bool) or not isinstance(groups, int) or groups not in WGMMA_PENDING:
        raise IllegalCombination(
            f"wgmma: wait is {groups!r}; it must be the number of groups that may stay pending, a "
            f"constant from {WGMMA_PENDING[0]} to {WGMMA_PENDING[-1]} (gemm_async, ss and rs also "
            "take True for 0, and False for no wait)."
        )
    return groups
