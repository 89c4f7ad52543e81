"""Types: every public signature has them, and mypy knows every public name."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.shared.paths import ROOT
from tutorials.site.public import MODULES, entries


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "python" / "warploom" / "py.typed").read_bytes() == b""


def _functions() -> Iterator[tuple[str, Callable]]:
    """Public functions of our own, and public methods of such classes."""
    for entry in entries():
        if not entry.is_ours or entry.kind not in ("function", "class"):
            continue
        if entry.kind == "function":
            yield entry.path, inspect.unwrap(entry.value)
            continue
        for name, value in vars(entry.value).items():
            method = inspect.unwrap(value) if callable(value) else None
            if inspect.isfunction(method) and (not name.startswith("_") or name == "__init__"):
                yield f"{entry.path}.{name}", method


def test_every_public_signature_has_types():
    untyped = []
    checked = 0
    for path, function in _functions():
        if function.__module__.split(".")[0] != "warploom":
            continue
        checked += 1
        signature = inspect.signature(function)
        empty = inspect.Signature.empty
        bare = [name for name, each in signature.parameters.items() if each.annotation is empty]
        if {*bare} - {"self", "cls"} or signature.return_annotation is empty:
            untyped.append(path)
    assert checked > 200 and not untyped


def _file_of(module: str) -> Path:
    """The source of a module in the tree, which need not be what is installed."""
    path = ROOT / "python" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _mypy(*files: Path) -> str:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed; pip install '.[test]' has it")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, "--no-pretty", *map(str, files)],
        cwd=ROOT, capture_output=True, text=True, timeout=1200,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.in_turn(3)
def test_mypy_finds_nothing_and_knows_every_public_name(tmp_path):
    """The public modules, a program that uses them, and each name: none is ``Any``."""
    names = tmp_path / "names.py"
    ours = [entry for entry in entries() if entry.is_ours and entry.kind != "module"]
    imports = "".join(f"import {module.name}\n" for module in MODULES)
    names.write_text(imports + "".join(f"reveal_type({entry.path})\n" for entry in ours))
    modules = [_file_of(module.name) for module in MODULES]
    said = _mypy(*modules, ROOT / "tests" / "whole" / "public_types.py", names)
    assert not re.findall(r"^.*: error: .*$", said, re.MULTILINE), said
    revealed = re.findall(r'names\.py:(\d+): note: Revealed type is "(.*)"', said)
    assert len(revealed) == len(ours), said
    unknown = [
        entry.path for entry, (_, text) in zip(ours, revealed, strict=True) if text == "Any"
    ]
    assert not unknown


def test_mypy_is_configured_for_the_python_that_is_required():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == f">={project['tool']['mypy']['python_version']}"
