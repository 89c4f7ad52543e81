"""Device functions around a few instructions, for builtins without a single row in TVM's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.script import tirx as T


def assembly(
    name: str,
    instructions: str,
    parameters: Sequence[tuple[str, Any]],
    inputs: Sequence[tuple[str, str]],
    *,
    outputs: Sequence[tuple[str, str]] = (),
    returns: tuple[str, str] = ("void", ""),
    dtype: str = "void",
    needs: tuple[int, str] | None = None,
) -> Any:
    """A call of a device function that consists of volatile inline assembly.

    Parameters
    ----------
    name : str
        Of the function, behind ``warploom_``: different code must have another name.
    instructions : str
        PTX in which ``%0`` and so on are first the outputs, then the inputs.
    parameters : sequence of (C type, expression)
        ``v0``, ``v1`` and so on in the function.
    inputs, outputs : sequence of (constraint, C expression)
        Operands; ``d`` is the result of the function.
    returns : (str, str)
        C type of the result, and its initial value.
    dtype : str
        The result for TVM.
    needs : (int, str), optional
        The first architecture that has the instruction (100 for sm_100), and what the compiler
        says for others.
    """
    declared = ", ".join(f"{kind} v{i}" for i, (kind, _) in enumerate(parameters))
    read, written = (
        ", ".join(f'"{letter}"({text})' for letter, text in operands)
        for operands in (inputs, outputs)
    )
    kind, initial = returns
    text = f'asm volatile("{instructions}" : {written} : {read} : "memory");'
    if kind != "void":
        text = f"{kind} d = {initial}; {text} return d;"
    if needs is not None:
        # Compilers that also make host code see it without __CUDA_ARCH__.
        text = (
            f"\n#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < {10 * needs[0]}\n"
            f"#error {needs[1]}\n#else\n{text}\n#endif\n"
        )
    source = f"__forceinline__ __device__ {kind} warploom_{name}({declared}) {{ {text} }}\n"
    return T.cuda.func_call(
        f"warploom_{name}",
        *(value for _, value in parameters),
        source_code=source,
        return_type=dtype,
    )
