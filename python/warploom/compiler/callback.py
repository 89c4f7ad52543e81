"""The replacement of TVM's ``tvm_callback_cuda_compile``: cached, and with the compiler's log."""

from __future__ import annotations

import contextlib
import contextvars
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from warploom import emulator
from warploom.compiler.cache import CubinCache
from warploom.compiler.cache_key import cache_key
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
    if emulator.is_enabled():
        return _compile_for_emulator(str(code))
    output = compile_cached(current_request(str(code))).output
    warn_of_code(output.log)
    return output.binary


def _compile_for_emulator(code: str) -> bytes:
    source = script_lines.source_of(code)
    request = current_request(source.text, "ptx")
    ptx = compile_cached(request, places=source.places).output.binary
    return script_lines.append(ptx, source)


def compile_cached(
    request: Request,
    environ: Mapping[str, str] = os.environ,
    places: Mapping[int, str] | None = None,
) -> Compilation:
    """Serve a request from the cache or by compiling, and tell the observers.

    The current target must be the one that the request was made under. ``places`` are those of
    lines of the source in the author's script, for errors.

    Raises
    ------
    CompilerError
        If the compiler rejects the source; the message names a file with its log.
    """
    start = time.perf_counter()
    cache = CubinCache.from_environment(environ)
    key = cache_key(request, environ) if cache is not None and not _dumps_sources() else None
    output = cache.get(key) if key is not None else None
    cached = output is not None
    if output is None:
        try:
            output = compile_request(request, environ)
        except RuntimeError as error:
            raise compiler_error(error, request.source, places) or error from None
        if key is not None:
            cache.put(key, output)
    compilation = Compilation(request, output, time.perf_counter() - start, cached)
    for observer in _observers.get():
        observer.append(compilation)
    return compilation


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
