"""How many multiprocessors (SMs) the device has: the host code of a kernel asks TVM's runtime.

The question needs nothing but that runtime, so that an exported library asks, too, wherever it is
loaded. The driver keeps the number, so that the question costs little beside a launch.
"""

from __future__ import annotations

from typing import Any

from tvm.ir import Call, Op
from tvm.script import tirx as T

#: The function of TVM's runtime that tells an attribute of a device: of which kind, which number,
#: which attribute.
_ASK = "runtime.GetDeviceAttr"
#: Values of DLDeviceType and of TVM's DeviceAttrKind.
_CUDA, _MULTIPROCESSORS = 2, 7
_CALL_PACKED = "tirx.tvm_call_packed"


def multiprocessors() -> Call:
    """The question, an ``int32``: of the first device, until the host code knows its own."""
    return T.call_packed(_ASK, _CUDA, 0, _MULTIPROCESSORS)


def is_question(node: Any) -> bool:
    """Whether an expression is :func:`multiprocessors`, of whatever device."""
    if not (isinstance(node, Call) and isinstance(node.op, Op) and node.op.name == _CALL_PACKED):
        return False
    name, kind, _, attribute = map(_value, (*node.args, None, None, None, None)[:4])
    return (name, kind, attribute) == (_ASK, _CUDA, _MULTIPROCESSORS)


def _value(argument: Any) -> Any:
    return getattr(argument, "value", argument)


def of_device(question: Call, device: Any) -> Call:
    """The question of another device."""
    name, kind, _, attribute = question.args
    arguments = [name, kind, device, attribute]
    return Call(
        question.op, arguments, question.attrs, question.ty_args, question.span, question.ty
    )
