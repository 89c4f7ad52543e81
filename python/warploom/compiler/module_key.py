"""The key of a cached module: everything that decides how a program is compiled.

That is the program, the target and the pipeline; TVM's options and environment variables; the
versions of TVM, and the very files of this package, which are the compiler. What users register
cannot be compared, so that there is no key while there is some (:mod:`registered`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warploom.compiler.cache_key import (
    OPTION_VARIABLES,
    CacheKey,
    compiler_part,
    distribution_version,
    portable_options,
)
from warploom.compiler.registered import foreign

#: Part of every key; raise it when entries change their form.
_FORMAT = 2

#: Variables of TVM and warploom that say where things are, or how kernels are run.
_IRRELEVANT = (
    "WARPLOOM_CACHE",
    "WARPLOOM_EMULATOR",
    "WARPLOOM_JOBS",
    "WARPLOOM_LAUNCH_CACHE",
    "WARPLOOM_MACHINE",  # whose contents count
    "WARPLOOM_MODULE_CACHE",
    "WARPLOOM_PROGRESS",
    "WARPLOOM_TEST_SEED",
    "TVM_DEVICE_BACKEND_AUTOLOAD",
    "TVM_LOG_DEBUG",
)
#: Folders of the package that take no part in a compilation.
_OUTSIDE = ("__pycache__", "lib", "tutorials")


def module_key(
    recipe: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> CacheKey | None:
    """The key of the module that a recipe makes, or None if something without a name takes part.

    Parameters
    ----------
    recipe : mapping
        For JSON.
    environ : mapping
        The environment of the process.
    """
    if "TVM_KERNEL_DUMP" in environ or foreign() is not None:
        return None
    options = _pass_options()
    if options is None:
        return None
    from warploom import emulator
    from warploom.target import measured

    ingredients = {
        "format": _FORMAT,
        "recipe": dict(recipe),
        "passes": options,
        "environ": _variables(environ),
        "options": portable_options(environ),
        "emulated": emulator.is_enabled(),
        "machine": platform.machine(),  # of the host code
        "measured": measured.contents(environ),  # of GPUs, which decisions depend on
        "versions": [distribution_version(name) for name in ("apache-tvm", "apache-tvm-ffi")],
        "package": _package(),
    }
    text = json.dumps(ingredients, sort_keys=True)
    return CacheKey(hashlib.sha256(text.encode()).hexdigest(), compiler_part(environ))


def _pass_options() -> dict[str, Any] | None:
    """Return the options of the PassContext; None if it observes, adds passes or dumps files."""
    import tvm

    context = tvm.transform.PassContext.current()
    plain = all(isinstance(value, bool | int | float | str) for value in context.config.values())
    if context.instruments or not plain or "cuda.kernels_output_dir" in context.config:
        return None
    return {
        "level": context.opt_level,
        "required": [str(name) for name in context.required_pass],
        "disabled": [str(name) for name in context.disabled_pass],
        "config": {str(name): str(value) for name, value in context.config.items()},
    }


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(("TVM_", "WARPLOOM_"))
        and name not in OPTION_VARIABLES
        and not name.startswith(_IRRELEVANT)
    }


@functools.cache
def _package() -> str:
    """Hash of the files of this package, in which the compiler is that makes modules."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _OUTSIDE)
        for name in sorted(files):
            path = Path(folder, name)
            digest.update(f"{path.relative_to(root)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
