"""The MMA of Volta's tensor core, which later GPUs execute as ordinary arithmetic.

Source: PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type".
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import is_buffer_var

from warploom.errors import IllegalCombination
from warploom.language.builtins.operands import describe, word
from warploom.target.dtypes import dtype_name

SHAPE = "m16n16k4"
_LAYOUTS = ("row", "col")
#: Names of a dtype -> that of PTX.
_INPUTS = {"fp16": "f16", "float16": "f16", "f16": "f16"}
_OUTPUTS = {**_INPUTS, "fp32": "f32", "float32": "f32", "f32": "f32"}
#: Dtype of the accumulator -> constraint, C type and number of its registers.
_ACCUMULATORS = {"f16": ("r", "unsigned int", 4), "f32": ("f", "float", 8)}
_BUFFERS = {"f16": "float16", "f32": "float32"}


def ptx_mma_sm70(
    shape: str,
    A_layout: str,
    B_layout: str,
    A_dtype: str,
    B_dtype: str,
    C_dtype: str,
    multiplicand_a: Any,
    a_index: Any,
    multiplicand_b: Any,
    b_index: Any,
    accumulator: Any,
    c_index: Any,
) -> Any:
    """Add a matmul of 16 x 4 and 4 x 16 elements, computed by the warp, to an accumulator.

    It is one ``mma.sync.m8n8k4``: each of the four groups of eight lanes (0 to 3 with 16 to 19,
    and so on) has a matmul of 8 x 8 x 4, and the four are the quarters of the larger one.

    Parameters
    ----------
    shape : str
        ``"m16n16k4"``.
    A_layout, B_layout : str
        ``"row"`` or ``"col"``.
    A_dtype, B_dtype : str
        ``"fp16"``, or float16 as any function takes a dtype.
    C_dtype : str
        That, or ``"fp32"``, or float32.
    multiplicand_a, multiplicand_b : Buffer
        Registers of a thread (scope ``local``), float16: four elements are taken.
    accumulator : Buffer
        Registers of a thread of ``C_dtype``: eight elements are read and written.
    a_index, b_index, c_index : int or Expr
        The first element, even for float16.

    Returns
    -------
    Call
        ``mma.sync.aligned.m8n8k4``.

    Raises
    ------
    IllegalCombination
        If one of them is something else.

    Examples
    --------
    .. code-block:: python

        halves = T.alloc_buffer((4,), "float16", scope="local")
        for i in T.unroll(4):
            halves[i] = T.float16(1)
        for i in T.unroll(8):
            registers[i] = A[t]
        wl.ptx_mma_sm70(
            "m16n16k4", "row", "col", "fp16", "fp16", "fp32", halves, 0, halves, 0, registers, 0
        )
        B[t] = registers[0]
        # B == A + 4
    """
    if shape != SHAPE:
        raise IllegalCombination(f"shape is {shape!r}; it must be {SHAPE!r}.")
    for name, layout in (("A_layout", A_layout), ("B_layout", B_layout)):
        if layout not in _LAYOUTS:
            raise IllegalCombination(f"{name} is {layout!r}; it must be 'row' or 'col'.")
    left = _choose("A_dtype", A_dtype, _INPUTS)
    right = _choose("B_dtype", B_dtype, _INPUTS)
    result = _choose("C_dtype", C_dtype, _OUTPUTS)
    pointers = [
        _registers("multiplicand_a", multiplicand_a, left, a_index),
        _registers("multiplicand_b", multiplicand_b, right, b_index),
        _registers("accumulator", accumulator, result, c_index),
    ]
    letter, kind, count = _ACCUMULATORS[result]
    sums = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+{letter}"(c[{i}])' for i in range(count))
    name = f"warploom_mma_sm70_{A_layout}_{B_layout}_{result}"
    source = (
        f"__forceinline__ __device__ void {name}(void* pa, void* pb, void* pc) {{\n"
        "  unsigned int* a = (unsigned int*)pa;\n  unsigned int* b = (unsigned int*)pb;\n"
        f"  {kind}* c = ({kind}*)pc;\n"
        f'  asm volatile("mma.sync.aligned.m8n8k4.{A_layout}.{B_layout}.{result}.f16.f16.{result} '
        f'{{{sums}}}, {{%{count}, %{count + 1}}}, {{%{count + 2}, %{count + 3}}}, {{{sums}}};"\n'
        f'    : {outputs} : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]));\n}}\n'
    )
    return T.cuda.func_call(name, *pointers, source_code=source)


def _choose(name: str, dtype: Any, allowed: dict[str, str]) -> str:
    dtype = dtype if isinstance(dtype, str) else dtype_name(dtype, name)
    if dtype not in allowed:
        raise IllegalCombination(
            f"{name} is {dtype!r}; it must be one of {', '.join(map(repr, allowed))}."
        )
    return allowed[dtype]


def _registers(name: str, buffer: Any, dtype: str, index: Any) -> Any:
    if not is_buffer_var(buffer) or buffer.scope() != "local":
        raise IllegalCombination(
            f"{name} is {describe(buffer)}; it must be a buffer of scope local."
        )
    if str(buffer.dtype) != _BUFFERS[dtype]:
        raise IllegalCombination(f"{name} is {buffer.dtype}; it must be {_BUFFERS[dtype]}.")
    if len(buffer.shape) != 1:
        raise IllegalCombination(f"{name} has {len(buffer.shape)} dimensions; it must have one.")
    return buffer.ptr_to([word(f"the index of {name}", index, "int32")])
