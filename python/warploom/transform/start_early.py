"""Lets a kernel start while the one before it, which prepares something for it, still runs.

Launches of one stream follow each other with a gap of about a microsecond. A kernel that executes
``griddepcontrol.wait`` before it uses what the kernel before has left may be launched without
that gap (programmatic dependent launch). TVM's runtime knows a tag for such launches, and no
attribute leads to it; so the tag is set where TVM has split host and device.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm.ir import Call, Op
from tvm.tirx import PrimFunc

#: What the host passes to a kernel: extents of its grid, and tags of the launch.
_LAUNCH = "tirx.kernel_launch_params"
_EARLY = "tirx.use_programtic_dependent_launch"
#: The tag that TVM wants last.
_SHARED_BYTES = "tirx.use_dyn_shared_memory"
_GRIDDEPCONTROL = "tirx.ptx.griddepcontrol"


def StartEarly() -> tvm.transform.Pass:
    """A pass that marks the kernels which wait for the kernel before them themselves."""

    @tvm.transform.module_pass(opt_level=0, name="warploom.StartEarly")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        marked = {
            variable: _mark(function) if _waits(function) else function
            for variable, function in mod.functions.items()
        }
        return tvm.IRModule(marked, attrs=mod.attrs)

    return run


def _mark(kernel: PrimFunc) -> PrimFunc:
    tags = [str(one) for one in kernel.attrs[_LAUNCH]]
    last = [one for one in tags if one == _SHARED_BYTES]
    first = [one for one in tags if one != _SHARED_BYTES]
    return kernel.with_attr(_LAUNCH, [*first, _EARLY, *last])


def _waits(function: object) -> bool:
    """Whether a function is a kernel that executes ``griddepcontrol.wait``."""
    if not isinstance(function, PrimFunc) or _LAUNCH not in (function.attrs or {}):
        return False
    found = False

    def visit(call: Call) -> None:
        nonlocal found
        if isinstance(call.op, Op) and call.op.name == _GRIDDEPCONTROL:
            found |= str(getattr(call.args[0], "value", call.args[0])) == "wait"

    tvm_ffi.structural_walk(function.body, (Call, visit))
    return found
