"""Fixtures of the tests of the language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm


@pytest.fixture
def texts(capfd) -> Callable[[Callable[[], Any]], tuple[str, Any]]:
    """``texts(f)``: what ``f()`` prints, kernels too, and its result."""

    def printed(function: Callable[[], Any]) -> tuple[str, Any]:
        capfd.readouterr()
        result = function()
        tvm.cuda(0).sync()
        return capfd.readouterr().out, result

    return printed
