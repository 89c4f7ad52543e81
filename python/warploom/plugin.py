"""Registers warploom with TVM. Nothing else in the package registers anything.

TVM calls :func:`autoload` at ``import tvm`` through the entry point group ``tvm.backends``;
``import warploom`` does the same, for whoever sets ``TVM_DEVICE_BACKEND_AUTOLOAD=0``.
"""

from __future__ import annotations

import functools
import importlib

from warploom import codegen, driver, toolchain
from warploom._version import check_requirements

#: Modules of ``warploom.ops`` whose table ``SCHEDULES`` is registered.
OP_MODULES: tuple[str, ...] = ("gemm_async_wgmma",)


def register() -> driver.Driver | None:
    """Make TVM aware of warploom; the second call does nothing.

    Returns
    -------
    Driver or None
        The CUDA driver that the process has now; None if TVM has no compiler in it.

    Raises
    ------
    ToolchainError
        If the version of TVM or tvm_ffi is out of bounds.
    """
    check_requirements()
    import tvm  # noqa: F401  (its autoload may call this function, and then has done the work)

    return _register_once()


@functools.cache
def _register_once() -> driver.Driver | None:
    import tvm
    from tvm.backend import loader

    if tvm._RUNTIME_ONLY:
        return None
    loader.load("cuda")  # TVM has done it already, unless autoload is off
    toolchain.prepare_environment()
    loaded = driver.load_cuda_runtime()
    _register_instructions()
    _register_schedules()
    _register_codegen(loaded)
    return loaded


def autoload() -> None:
    """Entry point of the group ``tvm.backends``; TVM turns what it raises into a warning."""
    register()


def _register_instructions() -> None:
    from tvm.backend.cuda.ptx import register_table

    from warploom.intrin.wgmma import wide_integer_table

    register_table(wide_integer_table())


def _register_schedules() -> None:
    import tvm_ffi
    from tvm.tirx.operator.tile_primitive import predicate, register_dispatch

    from warploom.ops.dispatch import dispatch

    # All imports first: if one fails, nothing is registered.
    modules = [importlib.import_module(f"warploom.ops.{name}") for name in OP_MODULES]
    for schedule in (schedule for module in modules for schedule in module.SCHEDULES):
        register_dispatch(
            schedule.op,
            "cuda",
            variant=schedule.variant,
            priority=schedule.priority,
            when=[predicate(name, function) for name, function in schedule.when],
        )(schedule.impl)
    tvm_ffi.register_global_func("tirx.f_op_dispatcher", dispatch, override=True)


def _register_codegen(loaded: driver.Driver) -> None:
    import tvm_ffi

    stock = tvm_ffi.get_global_func("target.build.cuda")
    build = codegen.make_build_cuda(stock, loaded)
    tvm_ffi.register_global_func("target.build.cuda", build, override=True)
