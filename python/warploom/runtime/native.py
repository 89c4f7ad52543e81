"""Finds and loads the native library, the part of warploom that is written in C++."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warploom._version import __version__
from warploom.errors import ToolchainError

if TYPE_CHECKING:
    from tvm_ffi import Module

_FIX = "run `pip install .` (or `pip install -e .`) again in the source tree of warploom"


def find_library(name: str, package_path: Iterable[str] | None = None) -> Path:
    """Path of ``lib<name>.so``.

    Parameters
    ----------
    name : str
        Name without prefix and suffix, such as ``"warploom"``.
    package_path : iterable of str, optional
        Directories of the package, by default ``warploom.__path__``. An editable installation has
        two: the source tree and the installed files, among which the libraries are.

    Raises
    ------
    ToolchainError
        If it has not been built.
    """
    if package_path is None:
        package_path = sys.modules["warploom"].__path__
    candidates = [Path(directory) / "lib" / f"lib{name}.so" for directory in package_path]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    places = " or ".join(str(candidate.parent) for candidate in candidates)
    raise ToolchainError(f"lib{name}.so is not in {places}; {_FIX}.")


@functools.cache
def function(name: str) -> Any | None:
    """A function that the native library registers with TVM.

    Parameters
    ----------
    name : str
        Its name among TVM's global functions.

    Returns
    -------
    Function or None
        None if the library was built before there was this function.

    Raises
    ------
    ToolchainError
        If the library is missing.
    """
    import tvm_ffi

    library()
    return tvm_ffi.get_global_func(name, allow_missing=True)


def library() -> Module:
    """The native library as a tvm_ffi module: ``library()["version"]()``.

    Raises
    ------
    ToolchainError
        If it is missing, does not load, or was built from another version of warploom.
    """
    import tvm_ffi

    path = find_library("warploom")
    try:
        module = tvm_ffi.load_module(path)
    except (OSError, RuntimeError) as error:
        raise ToolchainError(f"{path} does not load ({error}); {_FIX}.") from error
    built = str(module["version"]())
    if built != __version__:
        raise ToolchainError(f"{path} is of version {built}, warploom is {__version__}; {_FIX}.")
    return module
