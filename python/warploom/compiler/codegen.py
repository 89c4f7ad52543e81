"""CUDA code generation with the module's own target in scope.

Stock TVM asks ``Target.current()`` for the architecture when it calls the CUDA compiler, and,
outside a ``with target:``, the device of this machine: an H100 then compiles for sm_90, which has
no wgmma, and a machine without a GPU for nothing at all. Here the target that ``tvm.compile`` was
given decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from warploom import environ
from warploom.compiler import registered
from warploom.runtime.driver import Driver

#: TVM keeps CUDA source, as it does where there is no driver, while this variable is set.
_KEEP_SOURCE = "TVM_COMPILE_FORCE_FALLBACK"


def make_build_cuda(
    stock: Callable[[Any, Any], Any], load_driver: Callable[[], Driver]
) -> Callable[[Any, Any], Any]:
    """The override of ``target.build.cuda``.

    Parameters
    ----------
    stock : callable
        TVM's own ``(IRModule, Target) -> runtime.Module``.
    load_driver : callable
        Loads the driver of the process. Where it has no devices, only architectures in
        ``warploom.target.ARCHS`` are compiled; the others stay source, as they would without
        warploom.
    """

    def build_cuda(mod: Any, target: Any) -> Any:
        from warploom.compiler.ahead import current
        from warploom.compiler.literals import of_their_types
        from warploom.target.arch import ARCHS  # late: import tvm need not pay for it

        ahead, finished = current(), mod.functions
        mod = of_their_types(mod)
        is_starting = ahead is not None and ahead.is_starting
        driver = load_driver()
        has_device = driver.kind in ("system", "emulator")
        compiled = has_device or str(target.attrs.get("arch", "")) in ARCHS
        with contextlib.ExitStack() as stack:
            stack.enter_context(target)
            if not compiled:
                stack.enter_context(environ.variable(_KEEP_SOURCE, "1"))
            if driver.kind == "emulator":
                from warploom.emulator import script_lines

                mod = script_lines.add_markers(mod)
                stack.enter_context(script_lines.markers_removed())
            # A user's own compiler gets the whole source.
            if not (compiled and registered.has_own_compiler()):
                return None if is_starting else stock(mod, target)
            from warploom.compiler import parts

            if is_starting:
                return parts.start(mod, target, stock)
            return parts.build_in_parts(mod, target, stock, finished)

    return build_cuda
