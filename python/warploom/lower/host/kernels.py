"""Kernels as the host sees them: their launch, and which of their arguments are tensor maps."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import PointerType
from tvm.tirx import PrimFunc

from warploom.ops.dispatch import LOWERED

#: Launch parameters of a kernel: extents of its grid, and tags of the launch.
_LAUNCH = "tirx.kernel_launch_params"

#: The tag that TVM wants last.
_SHARED_BYTES = "tirx.use_dyn_shared_memory"


def tagged(kernel: PrimFunc, tag: str) -> PrimFunc:
    """A kernel that is launched with one more tag of TVM's runtime."""
    tags = [str(tag) for tag in kernel.attrs[_LAUNCH]]
    last = [tag for tag in tags if tag == _SHARED_BYTES]
    first = [tag for tag in tags if tag != _SHARED_BYTES]
    return kernel.with_attr(_LAUNCH, [*first, tag, *last])


def is_kernel(function: object) -> bool:
    """Whether a function is one that the host launches."""
    return isinstance(function, PrimFunc) and _LAUNCH in (function.attrs or {})


def is_host(function: object) -> bool:
    """Whether a function launches kernels that warploom has made."""
    if not isinstance(function, PrimFunc) or is_kernel(function):
        return False
    return LOWERED in (function.attrs or {})


def is_tensor_map(value: object) -> bool:
    """Whether an expression is a variable that holds a tensor map."""
    if not isinstance(value, tirx.Var) or not isinstance(value.ty, PointerType):
        return False
    return isinstance(value.ty.element_type, tirx.TensorMapType)
