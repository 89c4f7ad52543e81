"""``compile_report``: the machine code of a program, its resources and its problems."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from warploom.compiler import sass
from warploom.compiler.callback import Compilation, compile_cached
from warploom.compiler.compile_report import CompileReport, Stage
from warploom.compiler.cubin import architecture, find_cubins, read_kernels
from warploom.compiler.invoke import current_request
from warploom.compiler.kernel_report import KernelReport, Problem, advice_problem, report_kernel
from warploom.compiler.lowering import observe
from warploom.compiler.ptxas_log import parse
from warploom.errors import WarploomError
from warploom.runtime.modules import cuda_modules
from warploom.target import default_target

if TYPE_CHECKING:
    import tvm

#: The directive of PTX, which modules hold where the device is emulated.
_PTX_TARGET = re.compile(rb"\n\.target\s+(sm_\w+)")


def compile_report(
    mod: tvm.IRModule | tvm.tirx.PrimFunc | tvm.runtime.Executable | tvm.runtime.Module,
    target: str | Mapping[str, Any] | tvm.target.Target | None = None,
) -> CompileReport:
    """Report on the kernels of a program; needs neither a GPU nor a driver.

    Parameters
    ----------
    mod : IRModule, PrimFunc, Executable or runtime.Module
        A program is compiled, and its stages are timed. A compiled module is reported on by its
        CUDA source, which the cache of compilations usually knows.
    target : Target, str or dict, optional
        A CUDA target with an ``arch``, for instance ``{"kind": "cuda", "arch": "sm_90a"}``. By
        default that which a compiled module was compiled for; for a program the current one, else
        that of this machine's GPU, else an H200's.

    Returns
    -------
    CompileReport
        ``str()`` of it is a table; ``problems`` lists the problems to repair.

    Raises
    ------
    WarploomError
        If the module has no CUDA kernels, is of another type or for another architecture than the
        target, or the target has no ``arch``.
    RuntimeError
        By TVM, if compilation fails.

    Examples
    --------
    >>> report = warploom.compile_report(mod, target)  # doctest: +SKIP
    >>> report.problems  # doctest: +SKIP
    []
    """
    import tvm

    if isinstance(mod, tvm.IRModule | tvm.tirx.PrimFunc):
        with _cuda_target(target) as current:
            return _report_program(mod, current)
    module = getattr(mod, "mod", mod)
    sources = list(_cuda_sources(module))
    if not sources:
        raise WarploomError(
            f"compile_report: the {type(mod).__name__} has no CUDA kernels; compile it for a "
            "CUDA target first."
        )
    with _target_of(module, target):
        compilations = [compile_cached(current_request(source, "cubin")) for source in sources]
        return _assemble((), compilations, {})


def report_binary(cubin: bytes, disassemble: bool = True) -> CompileReport:
    """Report on a cubin alone: without a log, spills only show as local memory.

    Raises
    ------
    WarploomError
        If it is not a cubin.
    """
    code = sass.machine_code(cubin) if disassemble else None
    kernels = tuple(report_kernel(info, None, code, {}) for info in read_kernels(cubin))
    return CompileReport(architecture(cubin), (), kernels, tuple(_problems_of(kernels)))


def _cuda_target(target: Any) -> tvm.target.Target:
    import tvm

    if target is None:
        target = tvm.target.Target.current(allow_none=True) or default_target()[0]
    elif not isinstance(target, tvm.target.Target):
        target = tvm.target.Target(target)
    if str(target.kind.name) != "cuda" or not target.attrs.get("arch"):
        raise WarploomError(
            f"compile_report: the target is {target} but must be a CUDA target with an arch; pass "
            'target={"kind": "cuda", "arch": "sm_90a"}.'
        )
    return target


def _target_of(module: Any, target: Any) -> tvm.target.Target:
    """The target that a compiled module was compiled for, by its machine code."""
    import tvm

    own = _architecture_of(module)
    if own is None:  # compressed by nvcc
        return _cuda_target(target)
    if target is None:
        return tvm.target.Target({"kind": "cuda", "arch": own})
    target = _cuda_target(target)
    if str(target.attrs["arch"]) != own:
        raise WarploomError(
            f"compile_report: the module was compiled for {own}, and the target is "
            f"{target.attrs['arch']}; leave the target out, or compile for it."
        )
    return target


def _architecture_of(module: Any) -> str | None:
    """The architecture in the cubins, or in the PTX, that a compiled module holds."""
    import tvm_ffi

    data = tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy().tobytes()
    if cubins := find_cubins(data):
        return architecture(cubins[0])
    target = _PTX_TARGET.search(data)
    return target[1].decode() if target else None


def _report_program(program: Any, target: tvm.target.Target) -> CompileReport:
    import tvm

    from warploom.tile.kinds import pipeline_of

    if isinstance(program, tvm.tirx.PrimFunc):
        program = tvm.IRModule({"main": program})
    lowered = observe(lambda: tvm.compile(program, target, **pipeline_of(program)))
    compilations = [c for c in lowered.compilations if c.request.format == "cubin"]
    if not compilations:
        # TVM did not compile (no driver), or made fatbins, in which the cubins are compressed.
        sources = _cuda_sources(lowered.executable.mod)
        compilations = [compile_cached(current_request(source, "cubin")) for source in sources]
    if not compilations:
        raise WarploomError("compile_report: the program has no CUDA kernels.")
    stages = (Stage("lower", lowered.lower_seconds), Stage("codegen", lowered.codegen_seconds))
    return _assemble(stages, compilations, lowered.dynamic_shared)


def _cuda_sources(module: Any) -> Iterator[str]:
    """CUDA source of every kernel module that ``module`` contains."""
    return (str(each.inspect_source()) for each in cuda_modules(module))


def _assemble(
    stages: tuple[Stage, ...],
    compilations: list[Compilation],
    dynamic_shared: Mapping[str, int | None],
) -> CompileReport:
    kernels: list[KernelReport] = []
    problems: list[Problem] = []
    for compilation in compilations:
        log = parse(compilation.output.log)
        binary = compilation.output.binary
        code = sass.machine_code(binary)
        kernels += [report_kernel(k, log, code, dynamic_shared) for k in read_kernels(binary)]
        problems += [problem for item in log.advice if (problem := advice_problem(item))]
    compiler = Stage(
        compilations[0].request.mode,
        sum(compilation.output.seconds for compilation in compilations),
        all(compilation.cached for compilation in compilations),
    )
    return CompileReport(
        arch=compilations[0].request.arch,
        stages=(*stages, compiler),
        kernels=tuple(kernels),
        problems=(*problems, *_problems_of(kernels)),
    )


def _problems_of(kernels: list[KernelReport] | tuple[KernelReport, ...]) -> Iterator[Problem]:
    for kernel in kernels:
        yield from kernel.problems()
