"""The kernels of a model, compiled in parts, on all cores at a time.

TVM generates one source for all kernels of a build, and one thread compiles it. Here each large
kernel is a source by itself and a CUDA module by itself, and the small kernels are one together: to
read the headers takes as long as to compile several of them. Who compiles, and on how many cores,
changes nothing in the result. A compiler releases Python's lock, and several threads may run it.

Modules that no model builds stay as TVM makes them: ``executable.mod.imports[0].inspect_source()``
has all of their kernels.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from warploom.compiler.ahead import Ahead, compiling_ahead, current
from warploom.compiler.callback import Compilation, Job, prepare
from warploom.compiler.jobs import jobs
from warploom.compiler.progress import Bar, bar

#: Models of fewer kernels are one part.
_SEVERAL = 4
#: Characters of CUDA source, with the helpers of the kernel, from which it is a part by itself.
_LARGE = 24_000
#: TVM's calling convention of kernels that the host launches.
_KERNEL = 2


@dataclass(frozen=True)
class Generated:
    """A CUDA source as TVM generated it.

    Attributes
    ----------
    source : str
    functions, sources : tvm_ffi.Map
        Launch parameters of its kernels, and other forms of the source, as TVM's runtime wants
        them.
    """

    source: str
    functions: Any
    sources: Any


_collected: contextvars.ContextVar[list[Generated] | None] = contextvars.ContextVar(
    "warploom_generated", default=None
)


def in_parts() -> contextlib.AbstractContextManager[None]:
    """A context whose builds are compiled in parts: that of a model."""
    return compiling_ahead()


def builds_model() -> bool:
    """Whether this build is that of a model."""
    return current() is not None


def collect(source: str, functions: Any, sources: Any) -> bool:
    """Note a source that is to be compiled later; False where it is to be compiled now."""
    collected = _collected.get()
    if collected is None:
        return False
    collected.append(Generated(source, functions, sources))
    return True


def build_in_parts(
    mod: Any, target: Any, stock: Callable[[Any, Any], Any], finished: Mapping[Any, Any]
) -> Any:
    """The module of ``stock(mod, target)``, compiled in parts.

    Parameters
    ----------
    mod : IRModule
        Kernels.
    target : Target
        The current one.
    stock : callable
        TVM's ``target.build.cuda``.
    finished : mapping
        ``GlobalVar`` -> the kernel as TVM's passes have left it, by which it was compiled ahead.

    Returns
    -------
    tvm.runtime.Module
        The module of the first part, which imports those of the others.

    Raises
    ------
    CompilerError
        Of the first part that the compiler rejects.
    """
    kernels = dict(mod.functions.items())
    ahead = current()
    started = {
        variable: ahead.part(variable.name_hint, finished[variable]) if ahead else None
        for variable in kernels
    }
    several = ahead is not None and (len(kernels) >= _SEVERAL or any(started.values()))
    if not several or not all(map(_is_kernel, kernels.values())):
        return stock(mod, target)

    def generated(part: Mapping[Any, Any]) -> Generated | None:
        import tvm

        with _collecting() as collected:
            stock(tvm.IRModule(dict(part), attrs=mod.attrs), target)
        return collected[0] if collected else None

    with bar("Compiling", len(kernels)) as shown, _Workers(shown) as workers:
        parts, small = [], {}
        for variable, function in kernels.items():
            name = variable.name_hint
            if started[variable] is not None:
                started[variable][1].tell(shown, name)
                parts.append(started[variable])
                continue
            part = generated({variable: function})
            if part is None:  # without a driver, TVM compiles nothing
                return stock(mod, target)
            if len(part.source) < _LARGE:
                small[variable] = function
            else:
                parts.append((part, workers.submit(part.source, name)))
        if small:
            part = generated(small)
            names = ",".join(variable.name_hint for variable in small)
            parts.append((part, workers.submit(part.source, names)))
        binaries = [work.result() for _, work in parts]
    modules = [_module(part, binary) for (part, _), binary in zip(parts, binaries, strict=True)]
    first, *others = modules
    for module in others:
        first.import_module(module)
    return first


def start(mod: Any, target: Any, stock: Callable[[Any, Any], Any]) -> None:
    """Compile the only kernel of a module ahead, if it is large, in a thread of its own."""
    with _collecting() as collected:
        stock(mod, target)
    for part in collected:
        if len(part.source) >= _LARGE:
            ahead = current()
            (variable,) = mod.functions.keys()
            ahead.keep((part, _workers_of(ahead).submit(part.source, variable.name_hint)))


def _workers_of(ahead: Ahead) -> _Workers:
    """The threads of a build, which end with it."""
    if ahead.workers is None:
        ahead.workers = ahead.stack.enter_context(_Workers(None))
    return ahead.workers


def _is_kernel(function: Any) -> bool:
    return int((function.attrs or {}).get("calling_conv", 0)) == _KERNEL


@contextlib.contextmanager
def _collecting() -> Iterator[list[Generated]]:
    collected: list[Generated] = []
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)


def _module(part: Generated, binary: bytes) -> Any:
    import tvm_ffi

    create = tvm_ffi.get_global_func("ffi.Module.create.cuda")
    sources = {**part.sources, "cuda": part.source}
    return create(binary, format_of(binary), part.functions, sources)


def format_of(binary: bytes) -> str:
    """The format of a compiled module as TVM names it, which takes fatbins for cubins."""
    return "ptx" if binary.startswith(b"/") else "cubin"


class _Work:
    """A compilation that has been submitted."""

    def __init__(self, job: Job, compilation: Future[Compilation]) -> None:
        self._job, self._compilation = job, compilation

    def result(self) -> bytes:
        """The binary; raises what the compilation has raised."""
        return self._job.finish(self._compilation.result())

    def tell(self, shown: Bar | None, name: str) -> None:
        """Count it on a bar when it is done."""
        if shown is not None:
            self._compilation.add_done_callback(lambda _: shown.finish(name))


class _Workers:
    """Threads that compile; with one job, the compilation is done when it is submitted."""

    def __init__(self, shown: Any) -> None:
        count = jobs()
        self._pool = ThreadPoolExecutor(count, "warploom-compiler") if count > 1 else None
        self._shown = shown

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def submit(self, source: str, name: str) -> _Work:
        job = prepare(source)

        def run() -> Compilation:
            if self._shown is not None:
                self._shown.next(name)
            compilation = job.run()
            if self._shown is not None:
                self._shown.finish(name)
            return compilation

        if self._pool is not None:
            # Warnings of the cache belong to the build.
            return _Work(job, self._pool.submit(contextvars.copy_context().run, run))
        done: Future[Compilation] = Future()
        try:
            done.set_result(run())
        except Exception as error:
            done.set_exception(error)
        return _Work(job, done)
