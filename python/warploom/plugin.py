"""Registers warploom with TVM. Nothing else in the package registers anything.

TVM calls :func:`autoload` at ``import tvm`` through the entry point group ``tvm.backends``;
``import warploom`` does the same, where ``TVM_DEVICE_BACKEND_AUTOLOAD=0`` is set.

``import tvm`` stays quick for programs that need no GPU: :func:`register` installs hooks and names
(:mod:`warploom.ops.table`), and the module behind a name is imported when it is first used.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from typing import Any

from warploom import emulator, errors, hooks
from warploom._version import check_requirements
from warploom.compiler import codegen, registered
from warploom.errors import ToolchainError
from warploom.messages import display
from warploom.runtime import driver, graphs, launch, native, toolchain


def autoload() -> None:
    """Entry point of the group ``tvm.backends``; TVM turns its exceptions into warnings."""
    register()


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
    runtime = cuda_runtime()
    return runtime.driver if runtime is not None else None


def cuda_runtime() -> driver.CudaRuntime | None:
    """As :func:`register`, but returns the CUDA runtime, of which the driver is a part."""
    _require_versions()
    import tvm  # noqa: F401  (its autoload may call this function, and then has done the work)

    return _register_once()


@functools.cache
def _require_versions() -> None:
    """Asked for by every launch, and once enough: it reads files."""
    check_requirements()


@functools.cache
def _register_once() -> driver.CudaRuntime | None:
    import tvm
    from tvm.backend import loader

    if tvm._RUNTIME_ONLY:
        return None
    loader.load("cuda")  # TVM has done it already, unless autoload is off
    toolchain.prepare_environment()
    runtime = driver.CudaRuntime(on_load=_register_runtime)
    _register_compiler(runtime)
    _register_language()
    return runtime


def _register_compiler(runtime: driver.CudaRuntime) -> None:
    """How CUDA source is compiled: for the target that was asked for, and once."""
    import tvm_ffi

    build = codegen.make_build_cuda(
        tvm_ffi.get_global_func("target.build.cuda"), runtime.ensure_loaded
    )
    tvm_ffi.register_global_func("target.build.cuda", build, override=True)
    tvm_ffi.register_global_func("tvm_callback_cuda_compile", _cuda_compile, override=True)
    registered.note_compiler()


def _register_language() -> None:
    """Register the functions that change how TVM makes CUDA source of a program, or refuse it."""
    import tvm_ffi
    from tvm.backend.cuda.tile_primitive.copy_async import tma

    from warploom.ops import table, tensor_map_keys

    tvm_ffi.register_global_func("tirx.f_op_dispatcher", _dispatch, override=True)
    tma._buffer_base = tensor_map_keys.with_keys_of_their_own(tma._buffer_base)
    display.install()
    _register_errors()
    _register_script()
    _register_options()
    _register_builds()
    with registered.trusted(all_before=True):
        _register_instructions()
        table.register()
        _register_pipelines()
    registered.note_legalizations()
    _register_relax()


def _register_runtime(loaded: driver.Driver) -> None:
    """Register the wrappers of functions of TVM's CUDA runtime, once that is loaded."""
    import tvm_ffi

    stock = tvm_ffi.get_global_func("ffi.Module.create.cuda")

    def create(*arguments: Any) -> Any:
        from warploom.compiler.module_cache import recording_create

        return recording_create(stock)(*arguments)

    tvm_ffi.register_global_func("ffi.Module.create.cuda", create, override=True)
    if loaded.kind in ("system", "emulator"):
        _register_launches()


def _register_launches() -> None:
    """Calls of kernels that remember, and functions that graphs of calls watch."""
    import tvm_ffi
    from tvm.runtime import Executable

    changed = [(graphs.WATCHED, graphs.watched)]
    if launch.is_wanted():
        Executable.__getitem__ = launch.remembering_lookup(Executable.__getitem__)
        changed.append((launch.REMEMBERING, launch.remembering))
    with contextlib.suppress(ToolchainError):  # `warploom doctor` says what is missing
        graphs.keep_workspaces()
        for names, change in changed:
            for name in names:
                stock = tvm_ffi.get_global_func(name, allow_missing=True)
                function = change(name, stock) if stock is not None else None
                if function is not None:
                    tvm_ffi.register_global_func(name, function, override=True)


def _register_builds() -> None:
    """``tvm.tirx.build``, and with it ``tvm.compile``, that keeps its modules.

    And that gives functions back to TVM whose kernels cannot be built.
    """
    import tvm

    stock = tvm.tirx.build

    @functools.wraps(stock)
    def build(mod: Any, target: Any = None, pipeline: Any = "default") -> Any:
        from warploom.compiler.module_cache import remembering_build
        from warploom.fallback import falling_back

        return remembering_build(falling_back(stock), _is_ours)(mod, target, pipeline)

    tvm.tirx.build = build
    _register_relax_build()


def _register_relax_build() -> None:
    """``tvm.relax.build`` that keeps the executables of models."""
    import tvm
    from tvm.relax import vm_build

    stock = vm_build.build

    @functools.wraps(stock)
    def build(*args: Any, **kwargs: Any) -> Any:
        from warploom.compiler.executable_cache import remembering_relax_build
        from warploom.compiler.parts import in_parts

        with in_parts():
            return remembering_relax_build(stock)(*args, **kwargs)

    tvm.relax.build = vm_build.build = build


def _register_pipelines() -> None:
    """``tir_pipeline="warploom"``, and programs of warploom for the pipelines of TVM."""
    from tvm.s_tir import pipeline as _  # noqa: F401  (has registered the default pipeline)
    from tvm.tirx import compilation_pipeline

    stock = dict(compilation_pipeline.PIPELINE_MAP)
    for name, factory in {
        "warploom": lambda: _pipelines().warploom_pipeline(),
        "s_tir": lambda **options: _pipelines().with_tile_programs(stock["s_tir"])(**options),
        "tirx": lambda **options: _pipelines().with_our_schedules_first(stock["tirx"])(**options),
    }.items():
        compilation_pipeline.register_tir_pipeline(name, factory)


def _register_relax() -> None:
    """``relax.get_pipeline("warploom")``, and our schedules in the default pipeline for CUDA."""
    from tvm.relax.backend import cuda
    from tvm.relax.pipeline import register_pipeline

    stock = cuda.pipeline.legalize_passes
    libraries = cuda.pipeline.library_dispatch_passes

    def changed(target: Any) -> Any:
        from warploom.relax.pipeline import with_our_schedules

        return with_our_schedules(stock)(target)

    def before(target: Any) -> Any:
        from warploom.relax.pipeline import before_libraries

        return before_libraries(libraries)(target)

    changed.stock, before.stock = stock, libraries
    cuda.legalize_passes = cuda.pipeline.legalize_passes = changed
    cuda.library_dispatch_passes = cuda.pipeline.library_dispatch_passes = before

    def pipeline(**options: Any) -> Any:
        from warploom.relax.pipeline import warploom_pipeline

        return warploom_pipeline(**options)

    register_pipeline("warploom")(pipeline)


def _is_ours(function: Any) -> bool:
    return _pipelines().is_ours(function)


def _pipelines() -> Any:
    from warploom import pipeline

    return pipeline


class _Vocabulary:
    """``T.warploom``: the builtins, imported when the first of them is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for when the namespace is registered
            raise AttributeError(name)
        builtins = importlib.import_module("warploom.language.builtins")
        if name not in builtins.__all__:
            raise AttributeError(f"T.warploom has no {name!r}")
        return getattr(builtins, name)


def _register_errors() -> None:
    """Errors and warnings of warploom keep their class when they leave a callback of TVM."""
    import tvm_ffi

    ours = (errors.WarploomError, errors.WarploomWarning)
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, ours):
            tvm_ffi.register_error(name, kind)


def _register_options() -> None:
    """Options of ``PassContext`` that the passes follow."""
    from tvm.base import _LOADED_LIBS

    from warploom.lower.options import OPTIONS, legal

    with contextlib.suppress(ToolchainError):  # `warploom doctor` says what is missing
        register = native.library()["register_pass_option"]
        compiler = str(_LOADED_LIBS["tvm_compiler"]._name)
        for name, kind in OPTIONS.items():
            register(compiler, name, kind, functools.partial(legal, name))


def _register_script() -> None:
    """``T.warploom``, and changes that make TVMScript read the output of its own printer.

    Tile primitives look their function up at each call, so that every name they go by follows.
    """
    import tvm.script.tirx
    from tvm.runtime.script_printer import Scriptable
    from tvm.tirx.script import tile
    from tvm.tirx.script.builder import ir as script_builder
    from tvm.tirx.script.builder import tirx as builder

    from warploom import (
        printed_forms,
        quick_expressions,
        quick_frames,
        quick_sources,
        tile_primitives,
    )

    quick_expressions.install()
    quick_frames.install()
    quick_sources.install()
    script_builder.register_script_namespace("warploom", _Vocabulary())

    tile_primitives.register(tile, builder)

    stock, uint64 = tvm.script.tirx.uint64, printed_forms.accept_large(tvm.script.tirx.uint64)
    for name, module in list(sys.modules.items()):
        if name.startswith("tvm.") and vars(module).get("uint64") is stock:
            module.uint64 = uint64
    Scriptable.script = printed_forms.keep_scopes(Scriptable.script)
    builder.gemm_async._fn = printed_forms.accept_flags(builder.gemm_async._fn)
    for names, accept in (
        (printed_forms.IN_PLACE, printed_forms.accept_in_place),
        (printed_forms.SCALARS, printed_forms.accept_integers),
        (printed_forms.REGIONS, printed_forms.accept_elements),
    ):
        for name in names:
            primitive = getattr(tile, name)
            primitive._fn = accept(primitive._fn)


def _register_instructions() -> None:
    """Instructions that ``T.ptx`` lacks, which op schedules and passes emit, and scripts have."""
    from tvm.backend.cuda.ptx import register_table
    from tvm.script import tirx as T

    from warploom.intrin.tcgen05 import sparse_mma_table
    from warploom.intrin.wgmma import sparse_table, wide_integer_table

    table = {**wide_integer_table(), **sparse_table(), **sparse_mma_table()}
    register_table(table)
    T.ptx.__init__({**T.ptx._table, **table})  # the namespace groups a table once


def _dispatch(call: Any, context: Any) -> Any:
    from warploom.ops.dispatch import dispatch

    function = dispatch(call, context)
    if emulator.is_enabled():
        from warploom.emulator import script_lines

        function = script_lines.keep_call_site(function, call)
    return function


def _cuda_compile(code: str) -> bytes:
    from warploom.compiler.callback import cuda_compile

    return cuda_compile(code)


@functools.cache
def _register_relax_operators() -> None:
    from warploom.relax import attention_operator

    attention_operator.register()


def _tuner() -> Any:
    from warploom.meta_schedule.programs.search import find

    return find


hooks.cuda_runtime.provide(cuda_runtime)
hooks.register_relax_operators.provide(_register_relax_operators)
hooks.tuner.provide(_tuner)
