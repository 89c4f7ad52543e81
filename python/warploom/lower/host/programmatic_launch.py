"""Programmatic dependent launch (PDL): a kernel starts while its predecessor still runs.

Launches of one stream follow each other with a gap of microseconds. A kernel that executes
``griddepcontrol.wait`` before it touches memory that the kernel before may use can be launched
without that gap (programmatic dependent launch, CUDA programming guide): its CTAs take the places
that become free, initialise their barriers, fetch the tensor maps, and wait. The wait ends when the
kernel before has ended and its stores are visible. Every kernel waits so, therefore none runs
ahead of more than one.

TVM's runtime knows a tag for such launches, and no attribute leads to it; so the tag is set where
TVM has split host and device. There a kernel's tensor maps are parameters, too.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.script import tirx as T
from tvm.tirx import PrimFunc, Stmt

from warploom.lower.host.kernels import is_kernel, is_tensor_map, tagged
from warploom.tile import ir

_EARLY = "tirx.use_programtic_dependent_launch"
_GRIDDEPCONTROL = "tirx.ptx.griddepcontrol"


def ProgrammaticLaunch() -> tvm.transform.Pass:
    """A pass that marks the kernels which wait for the kernel before them themselves."""

    @tvm.transform.module_pass(opt_level=0, name="warploom.ProgrammaticLaunch")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        marked = {
            variable: _with_fetches(tagged(function, _EARLY)) if _waits(function) else function
            for variable, function in mod.functions.items()
        }
        return tvm.IRModule(marked, attrs=mod.attrs)

    return run


def _with_fetches(kernel: PrimFunc) -> PrimFunc:
    """A kernel that fetches all its tensor maps where it lets the next kernel start."""
    fetches = [
        ir.evaluate(T.ptx.prefetch.tensormap(T.address_of(param)))
        for param in kernel.params
        if is_tensor_map(param)
    ]

    def visit(statement: Stmt) -> Stmt:
        if isinstance(statement, tirx.Evaluate) and _controls(statement.value, "launch_dependents"):
            return ir.seq([statement, ir.when(T.cuda.thread_rank() == 0, fetches)])
        return ir.map_children(statement, visit)

    return kernel.with_body(visit(kernel.body)) if fetches else kernel


def _controls(node: object, instruction: str) -> bool:
    """Whether a node is a call of ``griddepcontrol`` with that operation."""
    if not (isinstance(node, Call) and isinstance(node.op, Op) and node.op.name == _GRIDDEPCONTROL):
        return False
    return str(getattr(node.args[0], "value", node.args[0])) == instruction


def _waits(function: object) -> bool:
    """Whether a function is a kernel that executes ``griddepcontrol.wait``."""
    if not is_kernel(function):
        return False
    waits = False

    def visit(call: Call) -> None:
        nonlocal waits
        waits |= _controls(call, "wait")

    tvm_ffi.structural_walk(function.body, (Call, visit))
    return waits
