"""Pytest plugin that records, for every upstream test, its outcome and whether it launched.

Loaded by ``run.py`` with ``-p plugin``; writes one JSON object a test to ``$UPSTREAM_LOG``. With
``UPSTREAM_STOCK=1`` warploom lends TVM its emulated device and the compiler for it, and nothing
else: what TVM generates, looks up, launches and refuses is stock's.

TVM 0.27.0 and the tests of its main branch differ in names; what the tests import and the release
does not have is supplied here. Nothing of it touches code generation or execution.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tvm
import tvm.sym
import tvm_ffi
from tvm.backend._autoload_backends import _load_builtin_backends

from warploom import emulator, plugin

# ``run.py`` has turned TVM's autoload off, which loads these and then warploom as a whole.
_load_builtin_backends()
if os.environ.get("UPSTREAM_STOCK") == "1":
    plugin._register_language = lambda: None
    plugin._register_runtime = lambda driver: None
plugin.register()

# Longest part of a failure that is kept; TVM's messages print whole programs.
_MOST_CHARACTERS = 20_000


class _Visitor:
    """Visits statements and expressions by reflection, in the order of their fields."""

    _FIELDS = (
        *("seq", "body", "then_case", "else_case", "value", "args", "condition"),
        *("true_value", "false_value", "a", "b", "indices", "init", "min", "extent"),
    )

    def visit_stmt(self, node: Any) -> None:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(node).__name__).lower()
        visit = getattr(self, f"visit_{name}_", None)
        (visit or self._visit_children)(node)

    visit_expr = visit = visit_stmt

    def __getattr__(self, name: str) -> Callable:
        # ``super().visit_call_(op)`` of the tests goes on with the children.
        if name.startswith("visit_") and name.endswith("_"):
            return self._visit_children
        raise AttributeError(name)

    def _visit_children(self, node: Any) -> None:
        for field in self._FIELDS:
            value = getattr(node, field, None)
            for child in value if isinstance(value, (list, tuple, tvm_ffi.Array)) else (value,):
                if isinstance(child, tvm_ffi.Object):
                    self.visit_stmt(child)


for _kind in ("evaluate", "call", "for", "select", "if_then_else", "attr_stmt", "buffer_load"):
    setattr(_Visitor, f"visit_{_kind}_", _Visitor._visit_children)


def _post_order_visit(node: Any, visit: Callable[[Any], None]) -> None:
    class PostOrder(_Visitor):
        def visit_stmt(self, child: Any) -> None:
            self._visit_children(child)
            visit(child)

    PostOrder().visit_stmt(node)


def _supply_names() -> None:
    functor = types.ModuleType("tvm.tirx.stmt_functor")
    functor.StmtExprVisitor = functor.StmtVisitor = _Visitor
    functor.post_order_visit = _post_order_visit
    for name, module in {"tvm.tirx.stmt_functor": functor, "tvm.arith": tvm.sym}.items():
        sys.modules.setdefault(name, module)
        parent, _, leaf = name.rpartition(".")
        if not hasattr(sys.modules[parent], leaf):
            setattr(sys.modules[parent], leaf, module)
    for name in ("StringImm", "ProducerLoad"):
        if not hasattr(tvm.tirx, name) and hasattr(tvm.ir, name):
            setattr(tvm.tirx, name, getattr(tvm.ir, name))


_supply_names()


@functools.cache
def _log_path() -> str:
    return os.environ["UPSTREAM_LOG"]


def _ends(text: str) -> str:
    """The text without its middle, if it is long: what a launch says comes before its source."""
    half = _MOST_CHARACTERS // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n...\n{text[-half:]}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    if report.when == "setup":
        item.instructions_before = emulator.executed_instructions()
    if report.when != "call" and not (report.when == "setup" and report.outcome != "passed"):
        return
    launched = emulator.executed_instructions() > item.instructions_before
    entry = {
        "id": report.nodeid,
        "outcome": report.outcome,
        "launched": launched,
        "reason": _ends(str(report.longrepr)) if report.longrepr else "",
    }
    with open(_log_path(), "a", encoding="utf-8") as log:
        log.write(json.dumps(entry) + "\n")
