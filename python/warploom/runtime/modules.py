"""The CUDA modules in a module of TVM's runtime, of which a build of many kernels has several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def imported(module: Any) -> Iterator[Any]:
    """The modules that a ``tvm.runtime.Module`` imports, and those that these import."""
    for each in module.imports:
        yield each
        yield from imported(each)


def cuda_modules(module: Any) -> Iterator[Any]:
    """The module itself and the modules in it, in order, as far as they are CUDA."""
    return (each for each in (module, *imported(module)) if str(each.kind) == "cuda")
