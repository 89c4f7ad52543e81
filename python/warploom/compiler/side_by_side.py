"""Passes of TVM over the functions of a module, on all cores at a time.

So run passes in C++ alone that change each function by itself: TVM releases Python's lock in them.
Passes that call Python gain nothing.
"""

from __future__ import annotations

from typing import Any

import tvm

from warploom.compiler.jobs import jobs


def side_by_side(step: tvm.transform.Pass) -> tvm.transform.Pass:
    """A pass with the result of ``step``, whatever the number of cores.

    Parameters
    ----------
    step : Pass
        Changes each function of a module by itself. Instruments of the ``PassContext`` see it as
        one pass over the whole module.
    """

    @tvm.transform.module_pass(opt_level=0, name=str(step.info.name))
    def run(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        count = min(jobs(), len(mod.functions))
        if count < 2 or context.instruments:
            return step(mod)

        from concurrent.futures import ThreadPoolExecutor

        def of_one(item: tuple[Any, Any]) -> dict[Any, Any]:
            variable, function = item
            with context:  # of this thread
                changed = step(tvm.IRModule({variable: function}, attrs=mod.attrs))
            return dict(changed.functions.items())

        with ThreadPoolExecutor(count, "warploom-passes") as pool:
            parts = list(pool.map(of_one, mod.functions.items()))
        return tvm.IRModule({k: v for part in parts for k, v in part.items()}, attrs=mod.attrs)

    return run
