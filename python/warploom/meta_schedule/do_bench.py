"""``warploom.do_bench``: how long a function takes on the GPU."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from warploom.errors import ArgumentError, EmulatedTimeWarning
from warploom.language.calls.arguments import Argument, read_argument, torch_module
from warploom.meta_schedule.measure import ROTATING_BYTES, input_sets
from warploom.meta_schedule.place import GRAPH_SECONDS, LocalPlace
from warploom.runtime.emulator_state import is_enabled
from warploom.target.dtypes import bits_of
from warploom.warn import warn

#: What ``return_mode`` may be -> the statistic of the samples.
_MODES: dict[str, Callable[[np.ndarray], Any]] = {
    "median": np.median, "mean": np.mean, "min": np.min, "max": np.max, "all": np.ndarray.tolist
}  # fmt: skip
#: Samples of a function, at least and at most.
_SAMPLES = (5, 100)
#: Results that are kept, at least as many as a graph has launches.
_KEPT = 64


def do_bench(
    fn: Callable[..., Any],
    *args: Any,
    warmup: float = 25.0,
    rep: float = 100.0,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "median",
) -> float | list[float]:
    """Measure the time of a function on the GPU, with a cold L2 cache.

    Parameters
    ----------
    fn : callable
        Launches kernels on the current stream, of PyTorch or of TVM: a kernel of
        :func:`warploom.jit`, a function of PyTorch, a closure.
    *args
        Tensors and numbers for ``fn``. With them, launches take turns on copies of the tensors
        which together do not fit into the L2 cache, and short kernels run in a CUDA graph, so that
        the host's cost is not measured. Without, the L2 cache is overwritten before each launch,
        and what is shorter than the launch is not measured well.
    warmup, rep : float
        Milliseconds of launches that are not measured, and that are. There are 5 to 100 samples.
    quantiles : sequence of float, optional
        From 0 to 1; without them ``return_mode`` says what is returned.
    return_mode : str
        ``"median"``, ``"mean"``, ``"min"``, ``"max"`` or ``"all"``.

    Returns
    -------
    float or list of float
        Milliseconds of one call.

    Raises
    ------
    ArgumentError
        For another mode, or quantiles outside of 0 to 1.
    ToolchainError
        Without a GPU and its emulator.

    Warns
    -----
    EmulatedTimeWarning
        On the emulator, where ``fn`` runs once, and its time means nothing.

    Examples
    --------
    >>> milliseconds = warploom.do_bench(linear, a, b)  # doctest: +SKIP
    >>> median, slow = warploom.do_bench(
    ...     lambda: linear(a, b, BM=64), quantiles=(0.5, 0.8)
    ... )  # doctest: +SKIP
    """
    if return_mode not in _MODES:
        raise ArgumentError(f"return_mode is {return_mode!r}; allowed are {', '.join(_MODES)}.")
    if quantiles is not None and not all(0 <= each <= 1 for each in quantiles):
        raise ArgumentError(f"quantiles are {tuple(quantiles)}; allowed are numbers from 0 to 1.")
    seconds = _run_once(fn, args) if is_enabled() else _sample(fn, args, warmup, rep)
    samples = 1e3 * np.array(seconds)
    if quantiles is not None:
        return [float(each) for each in np.quantile(samples, list(quantiles))]
    found = _MODES[return_mode](samples)
    return found if return_mode == "all" else float(found)


def _run_once(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[float]:
    warn(
        "do_bench runs the function once on the emulator, and its time means nothing for a GPU.",
        EmulatedTimeWarning,
    )
    start = time.perf_counter()
    fn(*args)
    return [time.perf_counter() - start]


def _sample(
    fn: Callable[..., Any], args: tuple[Any, ...], warmup: float, rep: float
) -> Sequence[float]:
    """Seconds of one call, in each sample."""
    given = [read_argument(f"argument {number}", each) for number, each in enumerate(args)]
    device = _device(given)
    place = LocalPlace(device)
    device.sync()  # what still computes the tensors runs on other streams
    if torch := _cuda_torch():
        torch.cuda.synchronize(device.index)
    with _launching(place, device):
        fn(*args)  # compiles
        place.wait()
        sets = _sets(given, args)
        device.sync()  # TVM copies on the default stream
        clear = _clear_l2(place, device) if not args else lambda: None
        seconds = place.timer.elapsed(clear, lambda: fn(*args))
        for number in range(_count(warmup, seconds, 0)):
            fn(*sets[number % len(sets)])
        samples = _count(rep, seconds, _SAMPLES[0])
        if args:
            (times,), _ = place.compare([_keeping_results(fn, seconds)], sets, samples)
            return times
        return [place.timer.elapsed(clear, fn) for _ in range(samples)]


def _keeping_results(fn: Callable[..., Any], seconds: float) -> Callable[..., None]:
    """``fn``, whose latest results stay: a graph goes on to write those of its launches."""
    kept: deque[Any] = deque(maxlen=_KEPT if seconds < 2 * GRAPH_SECONDS else 1)
    return lambda *args: kept.append(fn(*args))


def _count(milliseconds: float, seconds: float, least: int) -> int:
    return min(_SAMPLES[1], max(least, math.ceil(milliseconds / 1e3 / seconds)))


def _cuda_torch() -> Any | None:
    torch = torch_module()
    return torch if torch is not None and torch.cuda.is_available() else None


def _device(given: Sequence[Argument]) -> Any:
    index = next((one.device for one in given if one.is_tensor and one.device is not None), None)
    torch = _cuda_torch()
    if index is None:
        index = torch.cuda.current_device() if torch is not None else 0
    return tvm.cuda(index)


@contextlib.contextmanager
def _launching(place: LocalPlace, device: Any) -> Iterator[None]:
    """Kernels of TVM and of PyTorch run on the stream that is timed."""
    torch = _cuda_torch()
    with contextlib.ExitStack() as stack:
        stack.enter_context(place.launching())
        if torch is not None:
            stream = torch.cuda.ExternalStream(place.timer.stream, device=device.index)
            stack.enter_context(torch.cuda.stream(stream))
        yield


def _sets(given: Sequence[Argument], args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Sets of arguments that together do not fit into the L2 cache; the first is the caller's."""
    nbytes = sum(
        math.prod(one.shape) * bits_of(one.dtype) // 8 for one in given if one.shape is not None
    )
    count = input_sets(nbytes) if nbytes else 1
    return [args, *(tuple(map(_copy, given)) for _ in range(count - 1))]


def _copy(argument: Argument) -> Any:
    torch = torch_module()
    if not argument.is_tensor:
        return argument.value
    if torch is not None and isinstance(argument.value, torch.Tensor):
        return argument.value.clone()
    tensor = argument.value
    if not isinstance(tensor, tvm.runtime.Tensor):
        tensor = tvm_ffi.from_dlpack(tensor)
    return tvm.runtime.empty(tensor.shape, tensor.dtype, tensor.device).copyfrom(tensor)


def _clear_l2(place: LocalPlace, device: Any) -> Callable[[], None]:
    """A function that overwrites the L2 cache, on the stream that is timed."""
    buffer = tvm.runtime.empty((ROTATING_BYTES,), "uint8", device)
    return lambda: place.timer.copy_half(buffer)
