"""How many kernels are compiled at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping

from warploom.errors import WarploomError

#: The environment variable with the number.
SWITCH = "WARPLOOM_JOBS"


def jobs(environ: Mapping[str, str] = os.environ) -> int:
    """How many kernels are compiled at a time: ``WARPLOOM_JOBS``, or as many as there are cores.

    Raises
    ------
    WarploomError
        If the variable is not a positive whole number.
    """
    said = environ.get(SWITCH)
    if said is None:
        return len(os.sched_getaffinity(0))
    if not said.isdecimal() or int(said) == 0:
        raise WarploomError(
            f"{SWITCH} is {said!r} but must be a positive whole number of kernels to compile at a "
            "time."
        )
    return int(said)
