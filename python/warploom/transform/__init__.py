"""The passes that lower tile programs, as TVM has passes: ``warploom.transform.SpecializeWarps()``.

:mod:`warploom.transform.passes` lists them, :mod:`warploom.transform.lower` has their order.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    # When first asked for: modules of this package are imported without all passes.
    if name.startswith("_") or name == "passes":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    passes = importlib.import_module("warploom.transform.passes")
    if name not in passes.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(passes, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *importlib.import_module("warploom.transform.passes").__all__})
