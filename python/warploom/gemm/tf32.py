"""Permission to multiply float32 operands as tf32, as an attribute of a function.

tf32 has 10 bits of mantissa where float32 has 23, so nothing takes it unasked: whoever may decide
says so for one function, and the function carries that to wherever it is recognised or lowered.
"""

from __future__ import annotations

from typing import Any

#: The attribute, of PrimFuncs and of Relax functions, whose products it then holds for.
TF32 = "warploom.tf32"


def allow_tf32(func: Any) -> Any:
    """The function with the permission.

    Parameters
    ----------
    func : PrimFunc or relax.Function
    """
    return func.with_attr(TF32, True)


def allows_tf32(func: Any) -> bool:
    """Whether float32 operands of a function's products may be multiplied as tf32."""
    return bool((func.attrs or {}).get(TF32, False))
