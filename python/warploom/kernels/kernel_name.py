"""Names of generated kernels: everything that a generator was given, in a legal C identifier.

Two kernels of one IRModule need different names, and a profiler shows nothing but the name. A name
is that of the generator and its arguments, without those that have their defaults::

    sm90_matmul_warp_specialised_m4096_n4096_k4096_tile128x256x64_consumers2_registers40x232
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import inspect
import numbers
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tvm.tirx import PrimFunc

#: How dtypes are written in a name.
_DTYPES = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2", "int8": "s8", "uint8": "u8", "int32": "s32",
}  # fmt: skip
#: What stands for None: an extent that only the launch knows, a choice that is left open.
_OPEN = "any"
#: Values that are written as something else.
_TAKEN = (_OPEN, *_DTYPES.values())


def kernel_name(
    generator: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> str:
    """The name of a kernel that a generator makes from these arguments.

    Parameters
    ----------
    generator : str
        What makes the kernel.
    arguments : mapping
        Everything that its code depends on. A dataclass without a default, such as a config,
        stands for its fields that have not their defaults.
    defaults : mapping, optional
        Arguments of these values are left out.

    Returns
    -------
    str
        A C identifier. Arguments that differ give names that differ: values that letters and
        digits cannot show exactly add a digest at the end.

    Examples
    --------
    >>> kernel_name("gemm", {"m": None, "n": 64, "tile": (64, 64, 32), "group": 8}, {"group": 8})
    'gemm_m_any_n64_tile64x64x32'
    """
    parts, inexact = [generator], []
    for name, value in _items(arguments, defaults or {}):
        text, exact = _text(value)
        label = name.replace("_", "")
        attached = text[:1].isdigit() and not isinstance(value, str)
        parts.append(f"{label}{text}" if attached else f"{label}_{text}")
        if not exact or not label.isalpha():
            inexact.append((name, repr(value)))
    if inexact:
        parts.append("x" + hashlib.sha256(repr(inexact).encode()).hexdigest()[:12])
    return "_".join(parts)


def named(generator: Callable[..., PrimFunc]) -> Callable[..., PrimFunc]:
    """Decorator: kernels of ``generator`` are named after it and its arguments.

    No argument can be forgotten: the name is made from the call.
    """
    signature = inspect.signature(generator)
    defaults = {
        one.name: one.default
        for one in signature.parameters.values()
        if one.default is not inspect.Parameter.empty
    }
    open_ended = [
        one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD
    ]

    @functools.wraps(generator)
    def generate(*args: Any, **kwargs: Any) -> PrimFunc:
        arguments = signature.bind(*args, **kwargs).arguments
        for more in open_ended:
            arguments |= arguments.pop(more, {})
        name = kernel_name(generator.__name__, arguments, defaults)
        return generator(*args, **kwargs).with_attr("global_symbol", name)

    return generate


def _items(arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values that are not the defaults, those of a dataclass in its place, at the end."""
    ordered = sorted(arguments.items(), key=lambda one: dataclasses.is_dataclass(one[1]))
    for name, value in ordered:
        if dataclasses.is_dataclass(value):
            fields = dataclasses.fields(value)
            own = {one.name: getattr(value, one.name) for one in fields}
            if name in defaults:  # with fields alone, it would not show that it is there
                yield name, value
            else:
                yield from _items(own, {one.name: one.default for one in fields})
        elif not (name in defaults and _same(value, defaults[name])):
            yield name, value


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and value == default


def _text(value: Any) -> tuple[str, bool]:
    """Letters and digits for a value, and whether no other value of an option has the same."""
    if value is None:
        return _OPEN, True
    if isinstance(value, enum.Enum):
        return _text(value.name)
    if isinstance(value, numbers.Integral) and value >= 0:
        return str(int(value)), True
    if isinstance(value, tuple | list) and value:
        texts = [_text(one) for one in value]
        whole = all(isinstance(one, numbers.Integral) and one >= 0 for one in value)
        return "x".join(text for text, _ in texts), whole and len(value) > 1
    if isinstance(value, str):
        short = _DTYPES.get(value, value)
        plain = re.sub(r"[^A-Za-z0-9]", "", short)
        return plain or "other", plain == short and plain != "" and value not in _TAKEN
    if isinstance(value, float):
        return re.sub(r"[^A-Za-z0-9]", "p", repr(value)), False
    return type(value).__name__, False
