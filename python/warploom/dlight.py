"""What takes the place of ``tvm.s_tir.dlight`` in a pipeline of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tvm
from tvm.s_tir import dlight
from tvm.s_tir.dlight import ScheduleRule

from warploom.meta_schedule.lookup import Lookup
from warploom.relax.matmul_rule import Matmul
from warploom.relax.passes import APPLY_DEFAULT_SCHEDULE, function_passes

__all__ = ["ApplyDefaultSchedule", "Matmul"]


def ApplyDefaultSchedule(
    *rules: ScheduleRule,
    tf32: bool = False,
    databases: Sequence[str | Path] = (),
    shipped: bool = True,
    estimates: bool = False,
) -> tvm.transform.Pass:
    """``tvm.s_tir.dlight.ApplyDefaultSchedule`` with warploom's kernels before the rules.

    GEMMs, convolutions and rows get kernels of warploom; ``rules`` schedule the functions that are
    left. Where the target is no ``sm_90a``, ``rules`` schedule all functions, as in stock TVM.
    The pass must run after ``relax.transform.FuseTIR`` and before
    ``relax.transform.CallTIRRewrite``. Attention is found before ``relax.transform.LegalizeOps``
    only: :func:`warploom.relax.with_warploom` adds the passes for it, too.

    Parameters
    ----------
    *rules : ScheduleRule
        Rules of TVM or of your own, such as ``dlight.gpu.GEMV()``.
    tf32, databases, shipped, estimates
        As for :func:`warploom.relax.with_warploom`.

    Examples
    --------
    >>> from tvm.s_tir import dlight as dl
    >>> import warploom.dlight
    >>> schedule = warploom.dlight.ApplyDefaultSchedule(dl.gpu.GEMV(), dl.gpu.Fallback())
    >>> schedule.info.name
    'warploom.ApplyDefaultSchedule'
    """
    lookup = Lookup.in_order(databases, shipped, estimates)
    passes = [*function_passes(tf32, lookup), dlight.ApplyDefaultSchedule(*rules)]
    return tvm.transform.Sequential(passes, name=APPLY_DEFAULT_SCHEDULE)
