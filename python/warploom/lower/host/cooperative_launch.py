"""Launches kernels whose CTAs wait for each other so that all of them run at a time.

``cooperative_groups::this_grid().sync()`` traps in a kernel that was launched like any other. TVM's
runtime knows a tag for cooperative launches, which the driver refuses if the GPU has no room for
all CTAs; no attribute leads to it, so it is set where TVM has split host and device.

Source: CUDA Driver API, ``CU_LAUNCH_ATTRIBUTE_COOPERATIVE``.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm.ir import Call, Op

from warploom.lower.host.kernels import is_kernel, tagged

_COOPERATIVE = "tirx.use_cooperative_launch"
_GRID_SYNC = "tirx.cuda.grid_sync"


def LaunchTogether() -> tvm.transform.Pass:
    """A pass that marks the kernels which execute ``T.cuda.grid_sync()``."""

    @tvm.transform.module_pass(opt_level=0, name="warploom.LaunchTogether")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        marked = {
            variable: tagged(function, _COOPERATIVE) if _meets(function) else function
            for variable, function in mod.functions.items()
        }
        return tvm.IRModule(marked, attrs=mod.attrs)

    return run


def _meets(function: object) -> bool:
    """Whether a function is a kernel with a barrier of the whole grid."""
    if not is_kernel(function):
        return False
    meets = False

    def visit(call: Call) -> None:
        nonlocal meets
        meets |= isinstance(call.op, Op) and call.op.name == _GRID_SYNC

    tvm_ffi.structural_walk(function.body, (Call, visit))
    return meets
