"""What the kernels of tutorials are made by, for tests of other rooms."""

from __future__ import annotations

import importlib.util
from typing import Any

from tests.shared.paths import ROOT


def tutorial_names(path: str, **constants: Any) -> dict[str, Any]:
    """What a tutorial defines, its functions with other constants than it has."""
    file = ROOT / "tutorials" / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert constants.keys() <= vars(module).keys()
    vars(module).update(constants)
    return vars(module)
