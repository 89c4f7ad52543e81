"""CUDA events and graphs through the runtime library that TVM itself uses; no PyTorch needed."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import tvm_ffi

from warploom.errors import ToolchainError
from warploom.timing import Launch

_LIBRARY = "libcudart.so.13"
#: cudaStreamCaptureModeRelaxed: a kernel's host code may allocate a workspace meanwhile.
_CAPTURE_MODE = 2
#: cudaMemcpyDeviceToDevice.
_DEVICE_TO_DEVICE = 3


class _Runtime:
    """Functions of the CUDA runtime, which raise where those return an error."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_LIBRARY)  # the one in the process, emulated or not
        except OSError as error:
            raise ToolchainError(
                f"Kernels cannot be timed without the CUDA runtime: {error}."
            ) from None

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> None:
            status = function(*arguments)
            if status != 0:
                raise ToolchainError(f"{name} failed with CUDA error {status}.")

        return call


class CudaTimer:
    """A :class:`warploom.timing.Timer` for a stream of its own on a device of TVM.

    Kernels run on that stream inside of :meth:`on_stream`.

    Parameters
    ----------
    device : tvm.runtime.Device
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self._cuda = _Runtime()
        self._stream = device.create_raw_stream()
        self._start, self._stop = self._event(), self._event()

    @property
    def stream(self) -> int:
        """The handle of the stream."""
        return int(self._stream)

    def on_stream(self) -> Any:
        """A context in which TVM launches on this timer's stream."""
        return tvm_ffi.use_raw_stream(self.device, self._stream)

    def idle(self, seconds: float) -> None:
        """Wait for the device, then for ``seconds`` more."""
        self.device.sync(self._stream)
        if seconds > 0:
            time.sleep(seconds)

    def elapsed(self, warm: Callable[[], object], timed: Callable[[], object]) -> float:
        """Seconds that the device needs for ``timed``, right behind ``warm``."""
        stream = ctypes.c_void_p(self._stream)
        warm()
        self._cuda.cudaEventRecord(self._start, stream)
        timed()
        self._cuda.cudaEventRecord(self._stop, stream)
        self._cuda.cudaEventSynchronize(self._stop)
        milliseconds = ctypes.c_float()
        self._cuda.cudaEventElapsedTime(ctypes.byref(milliseconds), self._start, self._stop)
        return milliseconds.value / 1e3

    def copy_half(self, tensor: Any) -> None:
        """Copy the first half of a tensor of bytes to the second, on the stream."""
        half = tensor.numel() // 2
        to, source = (ctypes.c_void_p(tensor.data_ptr() + offset) for offset in (half, 0))
        stream = ctypes.c_void_p(self._stream)
        self._cuda.cudaMemcpyAsync(to, source, ctypes.c_size_t(half), _DEVICE_TO_DEVICE, stream)

    def conditions(self) -> tuple[None, None]:
        """Unknown: a search asks once a candidate, not after each sample."""
        return None, None

    def capture(self, launch: Launch, sets: int, executions: int) -> Callable[[], None]:
        """A CUDA graph of ``executions`` launches over rotating input sets, to be replayed.

        Each must have been launched before: modules are loaded lazily, which no capture survives.
        """
        stream = ctypes.c_void_p(self._stream)
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        self._cuda.cudaStreamBeginCapture(stream, _CAPTURE_MODE)
        try:
            for number in range(executions):
                launch(number % sets)
        finally:
            self._cuda.cudaStreamEndCapture(stream, ctypes.byref(graph))
        self._cuda.cudaGraphInstantiate(ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        self._cuda.cudaGraphDestroy(graph)
        return _Replay(self._cuda, executable, stream)

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self._cuda.cudaEventCreate(ctypes.byref(event))
        return event


class _Replay:
    """Launches a graph when called, and destroys it in the end."""

    def __init__(self, cuda: _Runtime, executable: ctypes.c_void_p, stream: Any) -> None:
        self._cuda, self._executable, self._stream = cuda, executable, stream

    def __call__(self) -> None:
        self._cuda.cudaGraphLaunch(self._executable, self._stream)

    def __del__(self) -> None:
        self._cuda.cudaGraphExecDestroy(self._executable)
