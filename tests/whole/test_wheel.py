"""What the wheel contains: both packages, and of the recorded results only what code reads."""

from __future__ import annotations

import importlib.metadata
import json
import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from tests.shared.paths import ROOT

_SOURCES = ROOT / "python"
_WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["wheel"]
#: Bytes of all data of the benchmarks: who installs warploom gets them, too.
_AT_MOST = 300_000


def excluded(path: str) -> bool:
    """Whether a path in the wheel lies in one of the folders that it leaves out."""
    return path.startswith(tuple(_WHEEL["exclude"]))


def files() -> list[str]:
    """Files of the packages in the source tree, by their paths in the wheel."""
    return [
        path.relative_to(_SOURCES).as_posix()
        for package in _WHEEL["packages"]
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]


def test_every_package_ships():
    packages = {f"python/{path.parent.name}" for path in _SOURCES.glob("*/__init__.py")}
    assert {*_WHEEL["packages"]} == packages


def test_what_is_left_out_exists_and_holds_no_code():
    assert _WHEEL["exclude"]
    for folder in _WHEEL["exclude"]:
        assert folder.endswith("/") and any((_SOURCES / folder).iterdir()), folder
        assert not [*(_SOURCES / folder).rglob("*.py")], folder


def test_no_code_names_a_folder_that_is_left_out():
    """Folders are named as the parts of a path are: by a string that is the name alone."""
    names = {Path(folder).name for folder in _WHEEL["exclude"]}
    package = _SOURCES / "warploom_bench"
    for path in package.rglob("*.py"):
        for match in re.finditer(r"(joinpath\(|/ )\"(\w+)\"", path.read_text()):
            assert match[2] not in names, f"{path} reads {match[0]}, which the wheel leaves out"


def test_the_data_of_the_benchmarks_is_small():
    shipped = [one for one in files() if one.startswith("warploom_bench/") and not excluded(one)]
    data = [one for one in shipped if not one.endswith((".py", ".md"))]
    assert sum((_SOURCES / one).stat().st_size for one in data) < _AT_MOST
    assert {one.split("/")[1] for one in data} == {"data", "suites", "goals.json"}


def test_an_installed_wheel_has_these_files():
    try:
        found = importlib.metadata.distribution("warploom")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("warploom is on sys.path but not installed")
    direct = json.loads(found.read_text("direct_url.json") or "{}")
    if direct.get("dir_info", {}).get("editable"):
        pytest.skip("warploom is installed as editable: its files are those of the checkout")
    there = {str(path) for path in found.files or ()}
    wanted = {one for one in files() if not excluded(one) and "/lib/" not in one}
    assert not wanted - there
    assert not [one for one in there if excluded(one)]


def test_the_data_is_found_in_the_package():
    data = resources.files("warploom_bench").joinpath("data")
    assert any(one.name.endswith("-headline.json") for one in data.iterdir())
