"""An empty instruction that keeps computations on a register where the program has them.

``wgmma.fence`` and ``wgmma.wait_group`` name no register. To the compiler, arithmetic on the result
of an MMA depends on the MMA alone, so it may move it before the wait: it was seen to. An
empty instruction that claims to change a register cannot be moved across a wait, and neither can
what uses that register after it. It becomes no instruction of the GPU.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

#: Type of a register -> its name in CUDA, its constraint in inline assembly.
_KINDS = {"float32": ("float", "f"), "int32": ("int", "r"), "uint32": ("unsigned int", "r")}


def register_dtype(dtype: str) -> str:
    """The dtype of the 32-bit registers that hold elements of ``dtype``."""
    return dtype if dtype in _KINDS else "uint32"


def pinned(register: Any, dtype: str) -> Any:
    """A statement's expression: nothing that uses this register of ``dtype`` is moved across it."""
    name = f"warploom_pin_{dtype}"
    kind, claim = claimed("word", dtype)
    source = f"__forceinline__ __device__ void {name}({kind}& word) {{ {claim} }}"
    return T.cuda.func_call(name, register, source_code=source)


def claimed(word: str, dtype: str) -> tuple[str, str]:
    """In CUDA: the type of a register of ``dtype``, and assembly that claims to change ``word``."""
    kind, constraint = _KINDS[dtype]
    return kind, f'asm volatile("" : "+{constraint}"({word}) :: "memory");'


def meeting_after(barrier: Any, register: Any) -> Any:
    """A statement's expression: the 128 threads of a named barrier meet once a register is known.

    ptxas moves a wait for MMAs, and a barrier before it, above computations that need neither.
    Here the number of the barrier depends on the float32 ``register``, in a way that only
    arithmetic could tell is none: nothing is greater than infinity.
    """
    name = "warploom_meet_after"
    text = "setp.gt.f32 p, %1, 0f7F800000; selp.b32 id, 0, %0, p; bar.sync id, 128;"
    source = (
        f"__forceinline__ __device__ void {name}(unsigned int barrier, float word) {{ "
        f'asm volatile("{{ .reg .pred p; .reg .b32 id; {text} }}" '
        ':: "r"(barrier), "f"(word) : "memory"); }'
    )
    return T.cuda.func_call(name, barrier, register, source_code=source)
