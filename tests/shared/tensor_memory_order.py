"""The order of what allocates, uses and frees tensor memory, read from the text of a kernel.

Other threads learn of an allocation, and the thread that frees learns of the last use, at a barrier
of the CTA or the cluster. ``tcgen05`` instructions are ordered with it by the fences before and
after (PTX ISA, tcgen05 memory consistency model). The emulator cannot miss them there: an
allocation is complete before its instruction ends.
"""

from __future__ import annotations

import re

_SYNC = re.compile(r"\b(cta_sync|cluster_sync)\(")
_BEFORE, _AFTER = "fence::before_thread_sync", "fence::after_thread_sync"


def assert_lifetime_is_fenced(script: str) -> None:
    """Fences are on both sides of the barrier behind an allocation, and of that before its end.

    Parameters
    ----------
    script : str
        A kernel as TVMScript, with one allocation.

    Raises
    ------
    AssertionError
        Which fence is missing.
    """
    lines = [one for one in script.splitlines() if "ptx.tcgen05(" in one or _SYNC.search(one)]
    (start,) = (i for i, one in enumerate(lines) if '"alloc"' in one)
    (end,) = (i for i, one in enumerate(lines) if '"dealloc"' in one)
    syncs = [i for i, one in enumerate(lines) if _SYNC.search(one) and start < i < end]
    for which, at in (("behind the allocation", syncs[0]), ("before the end", syncs[-1])):
        assert _BEFORE in lines[at - 1], f"no {_BEFORE} at the barrier {which}"
        assert _AFTER in lines[at + 1], f"no {_AFTER} at the barrier {which}"
    assert syncs[-1] + 2 == end, "something runs between the last barrier and the end"
