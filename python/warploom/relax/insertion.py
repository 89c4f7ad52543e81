"""Where warploom's passes go in a list of passes for Relax models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import tvm

from warploom.errors import WarploomError
from warploom.meta_schedule.lookup import Lookup
from warploom.relax.passes import (
    APPLY_DEFAULT_SCHEDULE,
    SCHEDULE_MATMULS,
    function_passes,
    library_passes,
    operator_passes,
)

Pass: TypeAlias = tvm.transform.Pass

#: Passes that make functions of operators. Passes on operators go before the first of them.
_TAKE_OPERATORS = ("FuseTransposeMatmul", "LegalizeOps")
#: The pass that sorts rows for ``topk``, in some lists long before operators are taken.
_TAKES_TOP_K = "DispatchSortScan"
#: Passes that make functions, or fuse them. Passes on functions go after the last of them.
_MAKE_FUNCTIONS = (*_TAKE_OPERATORS, "FuseOps", "FuseOpsByPattern", "FuseTIR")
#: Passes that schedule functions: those of TVM, and the one of MLC-LLM for a few rows.
_SCHEDULE = ("ApplyDefaultSchedule", "DefaultGPUSchedule", "LowBatchGemvSpecialize")
#: Passes after which calls are no longer as passes on functions expect them.
_LOWER_CALLS = ("RewriteDataflowReshape", "ToNonDataflow", "CallTIRRewrite")
_OURS_ON_OPERATORS = "warploom.FindAttention"
_OURS_ON_FUNCTIONS = (APPLY_DEFAULT_SCHEDULE, SCHEDULE_MATMULS)


def with_warploom(
    passes: Sequence[Pass],
    *,
    tf32: bool = False,
    databases: Sequence[str | Path] = (),
    shipped: bool = True,
    estimates: bool = False,
) -> list[Pass]:
    """A list of passes with all of warploom in it, for a pipeline of one's own.

    Passes on operators go before ``LegalizeOps``. Passes on functions go after the list has fused
    functions, before it schedules them or lowers their calls: in most lists that is before
    ``dlight.ApplyDefaultSchedule``, which then schedules what is left. A list that legalises and
    schedules twice gets the passes twice. ``Sequential`` passes are searched, too, and keep their
    names and levels. A list that has warploom's passes already stays as it is.

    For targets other than ``sm_90a`` the passes do nothing, except that models may call tile
    programs. The target is the current one when the passes run.

    Parameters
    ----------
    passes : sequence of Pass
        Passes in the order in which they run. The sequence is not changed.
    tf32 : bool
        Whether float32 operands may be multiplied as tf32, with 10 bits of mantissa, in all
        functions; without it, in Relax functions with the attribute ``warploom.tf32``.
    databases : sequence of path
        Folders with tuning records, such as the ``work_dir`` of ``tune_tir`` and ``tune_relax``.
    shipped : bool
        Whether to use the records of the package.
    estimates : bool
        Whether to use estimates in ``databases`` where nothing was measured.

    Returns
    -------
    list of Pass
        For ``tvm.transform.Sequential``.

    Raises
    ------
    WarploomError
        If the list has no pass that warploom's passes could go before or after. Passes within a
        function, such as ``relax.get_pipeline("zero")``, cannot be seen.

    Examples
    --------
    >>> from tvm import relax
    >>> from tvm.s_tir import dlight as dl
    >>> from warploom.relax import with_warploom
    >>> passes = [
    ...     relax.transform.LegalizeOps(),
    ...     relax.transform.AnnotateTIROpPattern(),
    ...     relax.transform.FuseOps(),
    ...     relax.transform.FuseTIR(),
    ...     dl.ApplyDefaultSchedule(dl.gpu.GEMV(), dl.gpu.Reduction(), dl.gpu.Fallback()),
    ... ]
    >>> names = [each.info.name for each in with_warploom(passes)]
    >>> names[names.index("FuseTIR") + 1], names[-2]
    ('warploom.SpreadTf32', 'warploom.CallTilePrograms')
    """
    return inserted(passes, tf32, Lookup.in_order(databases, shipped, estimates))


def inserted(
    passes: Sequence[Pass], tf32: bool = False, lookup: Lookup | None = None, measure: bool = True
) -> list[Pass]:
    """As :func:`with_warploom`, with the parameters of ``passes.function_passes``."""
    names = list(_names(passes))
    known = {*_MAKE_FUNCTIONS, *_SCHEDULE, *_OURS_ON_FUNCTIONS}
    if known.isdisjoint(names):
        raise WarploomError(
            f"with_warploom finds none of the passes {', '.join(sorted(known))} in the list "
            f"({', '.join(names) or 'which is empty'}), and does not know where its passes belong. "
            "Give it the passes themselves: those within a function cannot be seen."
        )
    return _Insertion(names, tf32, lookup, measure).into_all(passes)


def _names(passes: Sequence[Pass]) -> Iterator[str]:
    """Names of passes in their order, those within a ``Sequential`` after its own."""
    for step in passes:
        yield str(step.info.name)
        if _is_transparent(step):
            yield from _names(step.passes)


def _is_transparent(step: Pass) -> bool:
    """Whether passes may be put between those of a ``Sequential``: of users', not of TVM's."""
    name = str(step.info.name)
    own = name in _MAKE_FUNCTIONS or name.startswith("warploom.")
    return isinstance(step, tvm.transform.Sequential) and not own


class _Insertion:
    """One walk over a list of passes, in their order."""

    def __init__(self, names: list[str], tf32: bool, lookup: Lookup | None, measure: bool) -> None:
        self.options = tf32, lookup, measure
        self.wants_operators = _OURS_ON_OPERATORS not in names
        # A list without passes that make functions is for a module that has them.
        self.wants_functions = {*_MAKE_FUNCTIONS, *_OURS_ON_FUNCTIONS}.isdisjoint(names)

    def into_all(self, passes: Sequence[Pass]) -> list[Pass]:
        """Return the whole list; where nothing is scheduled or lowered, ours are the last."""
        return [*self._into(passes), *self._functions()]

    def _into(self, passes: Sequence[Pass]) -> list[Pass]:
        result: list[Pass] = []
        for step in passes:
            name = str(step.info.name)
            if name == _TAKES_TOP_K and self.wants_operators:
                result += library_passes()
            if name in _TAKE_OPERATORS and self.wants_operators:
                self.wants_operators = False
                result += operator_passes(self.options[0], self.options[-1])
            if name in (*_SCHEDULE, *_LOWER_CALLS):
                result += self._functions()
            result.append(self._within(step) if _is_transparent(step) else step)
            if name in _MAKE_FUNCTIONS:
                self.wants_functions = True
            elif name in _OURS_ON_FUNCTIONS:
                self.wants_functions = False
        return result

    def _functions(self) -> list[Pass]:
        wanted, self.wants_functions = self.wants_functions, False
        return function_passes(*self.options) if wanted else []

    def _within(self, step: Pass) -> Pass:
        info = step.info
        return tvm.transform.Sequential(
            self._into(step.passes), info.opt_level, info.name, list(info.required), info.traceable
        )
