"""Literals that C++ reads as another type than TVM's.

``-2147483648`` is a ``long`` in C++, the negative of a number that ``int`` does not hold. CUDA has
no ``max(int, long)``, so such a literal is written as a conversion.
"""

from __future__ import annotations

from typing import Any

_LEAST = -(2**31)


def of_their_types(module: Any) -> Any:
    """A module of kernels, ready for code generation, whose literals have their types in C++.

    Parameters
    ----------
    module : IRModule

    Returns
    -------
    IRModule
        The same one, if there is nothing to change.
    """
    import tvm_ffi
    from tvm import ir, tirx

    found = False

    def literal(number: Any) -> Any:
        nonlocal found
        if number.value != _LEAST or str(number.ty.dtype) != "int32":
            return number
        found = True
        return tirx.Cast("int32", tirx.IntImm("int64", _LEAST))

    functions = {
        variable: tvm_ffi.structural_map(function, (tirx.IntImm, literal))
        for variable, function in module.functions.items()
    }
    return ir.IRModule(functions, attrs=module.attrs) if found else module
