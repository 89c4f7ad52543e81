"""Lets a kernel start while the one before it in its stream still runs.

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
from tvm.ir import Call, Op, PointerType
from tvm.script import tirx as T
from tvm.tirx import PrimFunc, Stmt

from warploom.tile import ir

#: What the host passes to a kernel: extents of its grid, and tags of the launch.
_LAUNCH = "tirx.kernel_launch_params"
_EARLY = "tirx.use_programtic_dependent_launch"
#: The tag that TVM wants last.
_SHARED_BYTES = "tirx.use_dyn_shared_memory"
_GRIDDEPCONTROL = "tirx.ptx.griddepcontrol"


def let_next_start() -> Stmt:
    """The next kernel of the stream may be launched when all CTAs have come here, or ended."""
    return ir.evaluate(T.ptx.griddepcontrol.launch_dependents())


def wait_for_last() -> Stmt:
    """Wait until the kernel before this one in its stream has ended; its stores are visible."""
    return ir.evaluate(T.ptx.griddepcontrol.wait())


def StartEarly() -> tvm.transform.Pass:
    """A pass that marks the kernels which wait for the kernel before them themselves."""

    @tvm.transform.module_pass(opt_level=0, name="warploom.StartEarly")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        marked = {
            variable: _with_fetches(tagged(function, _EARLY)) if _waits(function) else function
            for variable, function in mod.functions.items()
        }
        return tvm.IRModule(marked, attrs=mod.attrs)

    return run


def tagged(kernel: PrimFunc, tag: str) -> PrimFunc:
    """A kernel that is launched with one more tag of TVM's runtime."""
    tags = [str(one) for one in kernel.attrs[_LAUNCH]]
    last = [one for one in tags if one == _SHARED_BYTES]
    first = [one for one in tags if one != _SHARED_BYTES]
    return kernel.with_attr(_LAUNCH, [*first, tag, *last])


def is_kernel(function: object) -> bool:
    """Whether a function is one that the host launches."""
    return isinstance(function, PrimFunc) and _LAUNCH in (function.attrs or {})


def is_tensor_map(value: object) -> bool:
    """Whether an expression is a variable that holds a tensor map."""
    if not isinstance(value, tirx.Var) or not isinstance(value.ty, PointerType):
        return False
    return isinstance(value.ty.element_type, tirx.TensorMapType)


def _with_fetches(kernel: PrimFunc) -> PrimFunc:
    """A kernel that fetches all its tensor maps where it lets the next kernel start."""
    fetches = [
        ir.evaluate(T.ptx.prefetch.tensormap(T.address_of(one)))
        for one in kernel.params
        if is_tensor_map(one)
    ]

    def visit(statement: Stmt) -> Stmt:
        if isinstance(statement, tirx.Evaluate) and _controls(statement.value, "launch_dependents"):
            return ir.seq([statement, ir.when(T.cuda.thread_rank() == 0, fetches)])
        return ir.map_children(statement, visit)

    return kernel.with_body(visit(kernel.body)) if fetches else kernel


def _controls(node: object, what: str) -> bool:
    """Whether a node is a call of ``griddepcontrol`` with that operation."""
    if not (isinstance(node, Call) and isinstance(node.op, Op) and node.op.name == _GRIDDEPCONTROL):
        return False
    return str(getattr(node.args[0], "value", node.args[0])) == what


def _waits(function: object) -> bool:
    """Whether a function is a kernel that executes ``griddepcontrol.wait``."""
    if not is_kernel(function):
        return False
    found = False

    def visit(call: Call) -> None:
        nonlocal found
        found |= _controls(call, "wait")

    tvm_ffi.structural_walk(function.body, (Call, visit))
    return found
