"""Watches TVM lower a module: the seconds of each stage, and the launch parameters of kernels."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warploom.compiler.callback import Compilation, observe_compilations

#: TIRx pass after which a kernel launch is one call that still shows its arguments by role.
_LAUNCHES_VISIBLE = "tirx.SplitHostDevice"
_DYNAMIC_SHARED = "tirx.use_dyn_shared_memory"


@dataclass(frozen=True)
class Lowered:
    """The result of running TVM under observation.

    Attributes
    ----------
    executable : tvm.runtime.Executable
    compilations : tuple of Compilation
        The requests to the CUDA compiler meanwhile.
    dynamic_shared : dict
        Kernel -> bytes of dynamic shared memory; None where the host computes them.
    lower_seconds : float
        TIRx passes.
    codegen_seconds : float
        Generation of host code and CUDA source, without the CUDA compiler.
    """

    executable: Any
    compilations: tuple[Compilation, ...]
    dynamic_shared: dict[str, int | None]
    lower_seconds: float
    codegen_seconds: float


def observe(compile: Callable[[], Any]) -> Lowered:
    """Run a call of ``tvm.compile`` and watch the passes and the CUDA compiler in it."""
    import tvm
    from tvm.ir.instrument import pass_instrument

    launches: dict[str, int | None] = {}
    last_pass = start = time.perf_counter()

    @pass_instrument
    class Watch:
        def run_after_pass(self, mod: Any, info: Any) -> None:
            nonlocal last_pass
            if info.name == _LAUNCHES_VISIBLE:
                launches.update(dynamic_shared_memory(mod))
            last_pass = time.perf_counter()

    context = tvm.transform.PassContext.current()
    inherited = tvm.transform.PassContext(
        opt_level=context.opt_level,
        required_pass=context.required_pass,
        disabled_pass=context.disabled_pass,
        instruments=[*(context.instruments or ()), Watch()],
        config=dict(context.config),
    )
    with observe_compilations() as compilations, inherited:
        executable = compile()
    end = time.perf_counter()
    compiler_seconds = sum(compilation.seconds for compilation in compilations)
    return Lowered(
        executable=executable,
        compilations=tuple(compilations),
        dynamic_shared=launches,
        lower_seconds=last_pass - start,
        codegen_seconds=max(0.0, end - last_pass - compiler_seconds),
    )


def dynamic_shared_memory(mod: Any) -> dict[str, int | None]:
    """Kernel -> bytes of dynamic shared memory at launch, in a module split into host and device.

    None where the size is an expression of the arguments; 0 where a launch asks for none.
    """
    import tvm_ffi
    from tvm import ir, tirx

    sizes: dict[str, int | None] = {}

    def visit(call: Any) -> None:
        if getattr(call.op, "name", None) != "tirx.call_ffi_kernel":
            return
        parameters = [str(name) for name in call.attrs["launch_params"]]
        size: int | None = 0
        if _DYNAMIC_SHARED in parameters:
            argument = call.args[parameters.index(_DYNAMIC_SHARED) - len(parameters)]
            size = int(argument) if isinstance(argument, tirx.IntImm) else None
        sizes[str(call.args[0].value)] = size

    for function in mod.functions.values():
        tvm_ffi.structural_walk(function, (ir.Call, visit))
    return sizes
