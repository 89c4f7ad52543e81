"""The examples in the docstrings of builtins, as functions of TVM.

An example is statements of a kernel. What they use without defining it is in :data:`NAMES`. A line
that ends in ``# before T.device_entry()`` is of the host; a last line ``# B == ...`` is numpy, and
says what the kernel leaves in B.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom import language as wl

THREADS = 128
#: What an example may use -> how it is declared.
NAMES = {
    "tile": 'tile = T.alloc_buffer((128,), "float32", scope="shared", align=128)',
    "registers": 'registers = T.alloc_buffer((8,), "float32", scope="local")',
}
#: Examples that are hints of a tile program, and those of one architecture.
TILE_PROGRAMS = (
    "annotate_producer_reg_dealloc", "annotate_consumer_reg_alloc", "no_set_max_nreg",
    "disable_warp_group_reg_alloc",
)  # fmt: skip
BLACKWELL = ("initialize_tcgen05_descriptor", "tcgen05_mma_arrive", "ldg256", "stg256")
_HOST = "# before T.device_entry()"


@dataclass(frozen=True)
class Example:
    """The example of one builtin."""

    name: str
    lines: tuple[str, ...]

    @property
    def arch(self) -> str:
        return "sm_100a" if self.name in BLACKWELL else "sm_90a"

    def expected(self, a: np.ndarray) -> np.ndarray | None:
        """What it says of B; None if nothing."""
        if not self.lines[-1].startswith("# B == "):
            return None
        names = {"np": np, "A": a, "t": np.arange(THREADS)}
        value = eval(self.lines[-1].removeprefix("# B == "), names)
        return np.broadcast_to(value, a.shape).astype(a.dtype)

    def func(self) -> PrimFunc:
        """The kernel around it."""
        text = "\n".join(self.lines)
        host = [line for line in self.lines if line.endswith(_HOST)]
        device = [line for line in self.lines if not line.endswith(_HOST)]
        used = [one for name, one in NAMES.items() if re.search(rf"\b{name}\b", text)]
        template = _KERNEL
        if self.name in TILE_PROGRAMS:
            template, used = _TILE_PROGRAM, []
        code = template.format(
            name=self.name,
            host=textwrap.indent("\n".join(host), "    "),
            device=textwrap.indent("\n".join([*used, *device]), "    "),
        )
        return tvm.script.from_source(code, {"T": T, "Tx": Tx, "wl": wl})


_KERNEL = """
@T.prim_func
def {name}(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
    T.func_attr({{"global_symbol": "{name}"}})
{host}
    T.device_entry()
    T.cta_id([1])
    t = T.thread_id([128])
{device}
"""
_TILE_PROGRAM = """
@T.prim_func
def {name}(A: T.Buffer((128, 128), "float16"), B: T.Buffer((128, 128), "float16")):
    T.func_attr({{"global_symbol": "{name}"}})
    T.device_entry()
{device}
    T.cta_id([1])
    A_s = T.alloc_buffer((128, 64), "float16", scope="shared")
    acc = T.alloc_buffer((128, 128), "float32", scope="accumulator")
    out = T.alloc_buffer((128, 128), "float16", scope="fragment")
    for k in wl.pipelined(2):
        Tx.cta.copy_async(A_s, A[:, k * 64 : k * 64 + 64])
        Tx.cta.gemm_async(acc, A_s, A_s, accum=k > 0)
    Tx.cta.cast(out, acc)
    Tx.cta.copy(B[:, :], out)
"""


def example_of(function: Any) -> Example:
    """The example in the docstring of a builtin."""
    text = inspect.getdoc(function) or ""
    parts = text.split("\nExamples\n--------\n.. code-block:: python\n\n")
    assert len(parts) == 2, f"the docstring of {function.__name__} has no example"
    lines = textwrap.dedent(parts[1]).rstrip().splitlines()
    assert any(re.search(rf"\bwl\.{function.__name__}\(", line) for line in lines)
    return Example(function.__name__, tuple(lines))


def examples() -> dict[str, Example]:
    """Those of all builtins."""
    return {name: example_of(getattr(wl, name)) for name in wl.builtins.__all__}


def signatures() -> str:
    """All builtins as they are called, a line each."""
    lines = []
    for name in wl.builtins.__all__:
        signature = inspect.signature(getattr(wl, name))
        plain = [
            one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()
        ]
        bare = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
        lines.append(f"{name}{bare}")
    return "\n".join(lines)
