"""matplotlib, for those parts that draw pictures; it is no dependency of the package."""

from __future__ import annotations

import importlib
from typing import Any

from warploom.errors import WarploomError

#: The message where there is no picture.
MISSING = "matplotlib is not installed: no picture; run: pip install 'warploom[plot]'"


def pyplot() -> Any:
    """``matplotlib.pyplot``, drawing into files.

    Raises
    ------
    WarploomError
        If matplotlib is not installed.
    """
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError as error:
        raise WarploomError(f"{MISSING}.") from error
    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")
