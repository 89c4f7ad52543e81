"""What a GPU can do at best, from the table of GPUs."""

from __future__ import annotations

from warploom.target.gpus import Gpu

#: Multiplications and additions of float16 that the tensor cores of an SM begin in a cycle.
_PER_CYCLE = {"sm_90a": 4096, "sm_100a": 8192}


def float16_peak(gpu: Gpu) -> float:
    """Dense float16 FLOPs a second at the boost clock.

    Examples
    --------
    >>> from warploom.target.gpus import GPUS
    >>> round(float16_peak(GPUS["h100"]) / 1e12)
    1071
    """
    return gpu.sms * gpu.clock * _PER_CYCLE[gpu.arch.name]
