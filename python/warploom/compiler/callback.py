"""The replacement of TVM's ``tvm_callback_cuda_compile``: cached, and with the compiler's log."""

from __future__ import annotations

import contextlib
import contextvars
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from warploom import emulator
from warploom.compiler.cache import CubinCache
from warploom.compiler.cache_key import CacheKey, cache_key
from warploom.compiler.failure import compiler_error
from warploom.compiler.invoke import Output, Request, compile_request, current_request
from warploom.compiler.warn_of_code import warn_of_code
from warploom.emulator import script_lines


@dataclass(frozen=True)
class Compilation:
    """A request, its result, and how it was served.

    Attributes
    ----------
    request : Request
    output : Output
        From the cache, ``output.seconds`` is the time that the first compilation took.
    seconds : float
        Time that serving the request took now.
    cached : bool
        Whether no compiler ran.
    """

    request: Request
    output: Output
    seconds: float
    cached: bool


_observers: contextvars.ContextVar[tuple[list[Compilation], ...]] = contextvars.ContextVar(
    "warploom_compilations", default=()
)


def cuda_compile(code: str) -> bytes:
    """Compile CUDA source as stock TVM does, from the cache if it has been compiled before.

    Registered by :mod:`warploom.plugin` as ``tvm_callback_cuda_compile``.

    Parameters
    ----------
    code : str
        CUDA source that TVM generated.

    Returns
    -------
    bytes
        A cubin, or a fatbin if ``TVM_CUDA_COMPILE_MODE=nvcc``; PTX if the device is emulated.

    Raises
    ------
    CompilerError
        If the compiler rejects the source; the message names a file with its log.
    RuntimeError, ValueError
        By stock TVM: a missing compiler, a missing architecture.

    Warns
    -----
    MachineCodeWarning
        For the compiler's reports of spills and serialised MMAs.
    """
    job = prepare(str(code))
    return job.finish(job.run())


@dataclass(frozen=True)
class Job:
    """A compilation that any thread can run.

    Attributes
    ----------
    request : Request
    places : dict or None
        Numbers of lines of the source -> ``"path:line"`` in the author's script, for errors.
    cache : CubinCache or None
    key : CacheKey or None
        None if the result is not kept.
    target : Target or None
        The target that was current when the job was made.
    environ : mapping
    listing : script_lines.Source or None
        Lines that the emulator's reports show; None for machine code.
    """

    request: Request
    places: Mapping[int, str] | None
    cache: CubinCache | None
    key: CacheKey | None
    target: Any
    environ: Mapping[str, str]
    listing: script_lines.Source | None = None

    def run(self) -> Compilation:
        """Serve the request from the cache or by compiling.

        Raises
        ------
        CompilerError
            If the compiler rejects the source; the message names a file with its log.
        """
        start = time.perf_counter()
        output = None if self.key is None else self.cache.get(self.key)
        cached = output is not None
        if output is None:
            try:
                with self.target or contextlib.nullcontext():
                    output = compile_request(self.request, self.environ)
            except RuntimeError as error:
                told = compiler_error(error, self.request.source, self.places)
                raise told or error from None
            if self.key is not None:
                self.cache.put(self.key, output)
        return Compilation(self.request, output, time.perf_counter() - start, cached)

    def finish(self, compilation: Compilation) -> bytes:
        """The binary, for TVM; observers and the author are told, so in the thread that builds."""
        _tell(compilation)
        binary = compilation.output.binary
        if self.listing is not None:
            return script_lines.append(binary, self.listing)
        warn_of_code(compilation.output.log)
        return binary


def prepare(code: str) -> Job:
    """The compilation of CUDA source that TVM generated, under the current target.

    Raises
    ------
    RuntimeError, ValueError
        By stock TVM, as :func:`cuda_compile`.
    """
    if not emulator.is_enabled():
        return _job(current_request(code), os.environ)
    source = script_lines.source_of(code)
    return _job(current_request(source.text, "ptx"), os.environ, source.places, source)


def compile_cached(request: Request, environ: Mapping[str, str] = os.environ) -> Compilation:
    """Serve a request from the cache or by compiling, and tell the observers.

    The current target must be the one that the request was made under.

    Raises
    ------
    CompilerError
        If the compiler rejects the source; the message names a file with its log.
    """
    compilation = _job(request, environ).run()
    _tell(compilation)
    return compilation


def _job(
    request: Request,
    environ: Mapping[str, str],
    places: Mapping[int, str] | None = None,
    listing: script_lines.Source | None = None,
) -> Job:
    from tvm.target import Target

    cache = CubinCache.from_environment(environ)
    key = cache_key(request, environ) if cache is not None and not _dumps_sources() else None
    target = Target.current(allow_none=True)
    return Job(request, places, cache, key, target, environ, listing)


def _tell(compilation: Compilation) -> None:
    for observer in _observers.get():
        observer.append(compilation)


@contextlib.contextmanager
def observe_compilations() -> Iterator[list[Compilation]]:
    """Collect every compilation that this thread makes inside the ``with`` block."""
    compilations: list[Compilation] = []
    token = _observers.set((*_observers.get(), compilations))
    try:
        yield compilations
    finally:
        _observers.reset(token)


def is_observed() -> bool:
    """Whether this thread is within :func:`observe_compilations`."""
    return bool(_observers.get())


def _dumps_sources() -> bool:
    """Whether the current PassContext wants intermediate files, which only a compiler writes."""
    import tvm

    return "cuda.kernels_output_dir" in tvm.transform.PassContext.current().config
