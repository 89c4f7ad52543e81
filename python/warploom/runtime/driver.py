"""Loads the CUDA runtime of TVM, also where the machine has no driver or no runtime library.

TVM compiles CUDA source only if ``libtvm_runtime_cuda.so`` is loaded. That library needs
``libcuda.so.1`` (the driver) and ``libcudart.so.13`` (the runtime), and where one of them is not on
the loader's path TVM silently keeps source. This module supplies the missing parts:

- the runtime library from the ``nvidia-cuda-runtime`` wheel;
- a driver that has no devices (``src/driver/no_device.cc``), so that a machine without GPU can
  compile for one. ``tvm.cuda(0).exist`` stays false. ``WARPLOOM_NO_DRIVER_STUB=1`` turns it off.
  It is loaded at the first compilation: until then the emulator can still be enabled;
- with ``WARPLOOM_EMULATOR=1`` an emulated device, whatever the machine has
  (:mod:`warploom.emulator`).
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from warploom.errors import ToolchainError
from warploom.runtime import native, toolchain
from warploom.runtime.emulator_libraries import OPT_IN, has_system_driver, open_libraries
from warploom.runtime.emulator_state import is_requested

#: Environment variable that forbids the driver without devices.
OPT_OUT = "WARPLOOM_NO_DRIVER_STUB"
#: Why the emulator is not in use on a machine where TVM finds a driver by itself.
_TOO_LATE = (
    "TVM has loaded its CUDA runtime with the driver of the machine before the emulator could "
    "take its place; preload libwarploom_emulator.so and libwarploom_emulator_cudart.so "
    "(LD_PRELOAD), or unset WARPLOOM_EMULATOR"
)


@dataclass(frozen=True)
class Driver:
    """The library that stands in the place of ``libcuda.so.1`` in this process.

    Attributes
    ----------
    kind : str
        ``"system"``: the real driver; ``"no-device"``: the one of warploom; ``"emulator"``: the
        emulated device; ``"none"``: no driver.
    detail : str
        The library, or for ``"none"`` why there is none.
    cuda_version : str
        Newest version of CUDA that the system's driver supports, such as ``"13.0"``; else empty.
    """

    kind: str
    detail: str
    cuda_version: str = ""

    def __post_init__(self) -> None:
        assert self.kind in ("system", "no-device", "emulator", "none")


def _open_emulator(environ: Mapping[str, str]) -> Driver:
    return Driver("emulator", str(open_libraries(environ)))


def _emulator_was_preloaded() -> bool:
    """Whether ``libcuda.so.1`` of this process is the emulator, by ``LD_PRELOAD``."""
    return hasattr(ctypes.CDLL("libcuda.so.1"), "warploom_emulator_allocate")


def _open_system(environ: Mapping[str, str]) -> Driver:
    library = ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
    version = ctypes.c_int(0)
    library.cuDriverGetVersion(ctypes.byref(version))  # works without a device
    major, rest = divmod(version.value, 1000)
    return Driver("system", "libcuda.so.1", f"{major}.{rest // 10}")


def _no_device(environ: Mapping[str, str]) -> Driver:
    if environ.get(OPT_OUT) == "1":
        raise ToolchainError(f"there is no libcuda.so.1 and {OPT_OUT}=1")
    return Driver("no-device", str(native.find_library("warploom_nodriver")))


def _open_no_device(environ: Mapping[str, str]) -> Driver:
    driver = _no_device(environ)
    # Later loads of "libcuda.so.1" find this library, because the loader compares SONAMEs.
    ctypes.CDLL(driver.detail, ctypes.RTLD_GLOBAL)
    return driver


#: Tried in this order; each raises if it cannot provide a driver.
_PROVIDERS: tuple[Callable[[Mapping[str, str]], Driver], ...] = (_open_system, _open_no_device)


def open_driver(environ: Mapping[str, str] = os.environ) -> Driver:
    """Load the first driver that can be had, with global symbols."""
    # A process that asks for the emulator must not get a GPU instead of it.
    providers = (_open_emulator,) if is_requested(environ) else _PROVIDERS
    reason = ""
    for provider in providers:
        try:
            return provider(environ)
        except (OSError, ToolchainError) as error:
            reason = str(error)
    return Driver("none", reason)


def _open_cudart() -> None:
    try:
        ctypes.CDLL("libcudart.so.13", ctypes.RTLD_GLOBAL)
    except OSError:
        root = toolchain.wheel_root()
        if root is None:
            raise
        ctypes.CDLL(str(root / "lib" / "libcudart.so.13"), ctypes.RTLD_GLOBAL)


class CudaRuntime:
    """The CUDA runtime of TVM in this process, loaded now or when it is needed.

    Parameters
    ----------
    environ : mapping
        The environment of the process.
    on_load : callable
        Called once, with the driver, when TVM's CUDA runtime has been loaded.

    Attributes
    ----------
    driver : Driver
        The driver that is, or will be, in the place of ``libcuda.so.1``.
    """

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        on_load: Callable[[Driver], None] = lambda driver: None,
    ) -> None:
        self._on_load = on_load
        self._loaded = is_requested(environ) or has_system_driver()
        if self._loaded:
            self._use(load_cuda_runtime(environ))
        else:
            self.driver = _find_no_device(environ)

    def ensure_loaded(self) -> Driver:
        """Load it if that has not been done."""
        if not self._loaded:
            self._use(load_cuda_runtime())
        return self.driver

    def _use(self, driver: Driver) -> None:
        self.driver, self._loaded = driver, True
        if driver.kind != "none":
            self._on_load(driver)

    def enable_emulator(self) -> None:
        """Put the emulated devices in the place of the driver.

        Raises
        ------
        ToolchainError
            If another driver was loaded first, or the emulator cannot be loaded.
        """
        if self.driver.kind == "emulator":
            return
        if self.driver.kind == "system":
            raise ToolchainError(
                "The emulator cannot take the place of the CUDA driver that TVM has loaded; "
                "run the script with `warploom emulate`, or set WARPLOOM_EMULATOR=1 and preload "
                "its libraries as `warploom doctor` says."
            )
        if self._loaded:
            raise ToolchainError(
                "The emulator cannot be enabled after TVM has compiled a CUDA kernel without it; "
                "enable it before the first compilation, or set WARPLOOM_EMULATOR=1."
            )
        driver = load_cuda_runtime({**os.environ, OPT_IN: "1"})
        if driver.kind != "emulator":
            raise ToolchainError(f"The emulator cannot be enabled: {driver.detail}.")
        self._use(driver)


def _find_no_device(environ: Mapping[str, str]) -> Driver:
    try:
        return _no_device(environ)
    except ToolchainError as error:
        return Driver("none", str(error))


def load_cuda_runtime(environ: Mapping[str, str] = os.environ) -> Driver:
    """Load ``libtvm_runtime_cuda.so`` as TVM does, with its missing libraries; never raises.

    Returns
    -------
    Driver
        Of kind ``"none"`` if TVM's CUDA runtime could not be loaded.
    """
    from tvm.base import _LOADED_LIBS
    from tvm_ffi.libinfo import load_lib_ctypes

    if is_requested(environ) and "tvm_runtime_cuda" in _LOADED_LIBS:
        if _emulator_was_preloaded():
            return _open_emulator(environ)
        # A process that asked for the emulator must not get a GPU's results.
        warnings.warn(_TOO_LATE, RuntimeWarning, stacklevel=2)
        return Driver("none", _TOO_LATE)
    driver = open_driver(environ)
    if driver.kind == "none" or "tvm_runtime_cuda" in _LOADED_LIBS:
        return driver
    try:
        if driver.kind != "emulator":
            _open_cudart()
        _LOADED_LIBS["tvm_runtime_cuda"] = load_lib_ctypes(
            package="tvm",
            target_name="tvm_runtime_cuda",
            mode="RTLD_LOCAL",
            extra_lib_paths=[Path(_LOADED_LIBS["tvm_runtime"]._name).resolve().parent],
        )
    except (OSError, RuntimeError) as error:
        return Driver("none", f"the CUDA runtime of TVM does not load: {error}")
    return driver
