"""CUDA code generation with the module's own target in scope.

Stock TVM asks ``Target.current()`` for the architecture when it calls the CUDA compiler, and,
outside a ``with target:``, the device of this machine: an H100 then compiles for sm_90, which has
no wgmma, and a machine without a GPU for nothing at all. Here the target that ``tvm.compile`` was
given decides.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from warploom.driver import Driver

#: Architectures that are compiled on machines without a driver.
CROSS_COMPILED = ("sm_90a", "sm_100a")
#: TVM keeps CUDA source, as it does where there is no driver, while this variable is set.
_KEEP_SOURCE = "TVM_COMPILE_FORCE_FALLBACK"


@contextlib.contextmanager
def _source_only() -> Iterator[None]:
    before = os.environ.get(_KEEP_SOURCE)
    os.environ[_KEEP_SOURCE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_KEEP_SOURCE]
        else:
            os.environ[_KEEP_SOURCE] = before


def make_build_cuda(stock: Callable[[Any, Any], Any], driver: Driver) -> Callable[[Any, Any], Any]:
    """The override of ``target.build.cuda``.

    Parameters
    ----------
    stock : callable
        TVM's own ``(IRModule, Target) -> runtime.Module``.
    driver : Driver
        Where it has no devices, only architectures in :data:`CROSS_COMPILED` are compiled; the
        others stay source, as they would without warploom.
    """

    def build_cuda(mod: Any, target: Any) -> Any:
        has_device = driver.kind in ("system", "emulator")
        compiled = has_device or str(target.attrs.get("arch", "")) in CROSS_COMPILED
        with target, contextlib.nullcontext() if compiled else _source_only():
            return stock(mod, target)

    return build_cuda
