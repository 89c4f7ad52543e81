"""Who imports whom: arrows go down the table of packages in the guide, and there is no circle.

The table of `tutorials/guide/architecture.md` is the one list of layers, from top to bottom.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shared.paths import ROOT
from tests.whole import import_graph
from tests.whole.import_graph import Import, cycles, imports, missing, modules, unit

_GUIDE = ROOT / "tutorials" / "guide" / "architecture.md"
#: The row of a table whose first column names folders or modules of the package.
_ROW = re.compile(r"^\| (?P<units>`python/warploom/[^|]*)\|", re.M)
_UNIT = re.compile(r"`(?:python/warploom/)?(\w+)(?:/|\.py)`")
_LOWER = ROOT / "python" / "warploom" / "lower"


def read_layers(text: str) -> list[str]:
    """The units of the table from top to bottom; within a row from left to right."""
    rows = [match["units"] for match in _ROW.finditer(text)]
    names = [name for row in rows for name in _UNIT.findall(row)]
    return ["warploom" if name == "__init__" else name for name in names]


def upward(
    found: list[Import],
    layers: list[str],
    layer: Callable[[str], str] = unit,
    table: str = _GUIDE.name,
) -> list[str]:
    """A line for each import that goes up, with the rule."""
    rank = {name: place for place, name in enumerate(layers)}
    lines = []
    for each in found:
        lower, upper = layer(each.importer), layer(each.imported)
        if rank[lower] > rank[upper]:
            lines.append(
                f"{each}, but `{lower}` stands below `{upper}` in {table}, whose arrows go "
                "down: move what is needed down, or let the upper part pass it (an argument, "
                "a table, warploom/hooks.py)"
            )
    return lines


def room(module: str) -> str:
    """The room of a module of `warploom.lower`: `warploom.lower.hopper.consume` -> `hopper`."""
    return unit(module.partition(".")[2])


def circles(found: list[Import]) -> list[str]:
    """A paragraph for each circle of modules, with the imports that close it."""
    paragraphs = []
    for circle in cycles((each.importer, each.imported) for each in found):
        edges = [one for one in found if one.importer in circle and one.imported in circle]
        lines = dict.fromkeys(f"  {one}" for one in edges)
        paragraphs.append("\n".join(["modules that import each other:", *lines]))
    return paragraphs


@pytest.fixture(scope="module")
def found() -> list[Import]:
    return imports("warploom")


@pytest.fixture(scope="module")
def layers() -> list[str]:
    return read_layers(_GUIDE.read_text(encoding="utf-8"))


def test_the_table_names_each_package_and_module_once(layers):
    units = {unit(name) for name in modules("warploom")}
    assert sorted(layers) == sorted(units), f"the table of {_GUIDE.name} is the list of layers"


def test_imports_go_down_the_table(found, layers):
    wrong = upward(found, layers)
    assert not wrong, "\n".join(wrong)


def test_imports_go_down_the_rooms_of_lower(found):
    text = (_LOWER / "README.md").read_text(encoding="utf-8")
    table = text.partition("## Rooms")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*)\|", table, re.M)
    names = [name for row in rows for name in _UNIT.findall(row)]
    inside = [
        one for one in found
        if one.importer.startswith("warploom.lower.") and one.imported.startswith("warploom.lower.")
    ]  # fmt: skip
    packages = {path.parent.name for path in _LOWER.glob("*/__init__.py")}
    rooms = packages | {path.stem for path in _LOWER.glob("*.py")}
    assert sorted(names) == sorted(rooms - {"__init__"})
    wrong = upward(inside, names, room, "lower/README.md")
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other(found):
    wrong = circles(found)
    assert not wrong, "\n".join(wrong)


def test_every_imported_module_exists():
    wrong = missing("warploom")
    assert not wrong, "\n".join(wrong)


def test_no_module_of_warploom_imports_a_benchmark():
    """Not even when it is called: `warploom bench` finds the package by its name."""
    wrong = imports("warploom", of="warploom_bench")
    assert not wrong, "\n".join(map(str, wrong))


def test_the_benchmarks_have_no_circle_and_import_what_exists():
    assert imports("warploom_bench", of="warploom")
    wrong = circles(imports("warploom_bench"))
    wrong += missing("warploom_bench") + missing("warploom_bench", of="warploom")
    assert not wrong, "\n".join(wrong)


#: A package of three layers without a fault.
_CLEAN = {
    "__init__": "",
    "top": "from house.middle import wall\nroof = wall\n",
    "middle/__init__": "from house.middle.wall import Wall\n",
    "middle/wall": "from house import ground\nfrom . import door\nclass Wall: ...\n",
    "middle/door": 'MARK = "house.middle"\n',
    "ground": "import sys\n",
}
_LAYERS = ["house", "top", "middle", "ground"]


def _house(folder: Path, changes: dict[str, str]) -> Path:
    for name, text in (_CLEAN | changes).items():
        path = folder / "house" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_sound_package_has_no_findings(tmp_path):
    house = _house(tmp_path, {})
    found = imports("house", house)
    assert {(one.importer, one.imported) for one in found} == {
        ("house.top", "house.middle.wall"),
        ("house.middle", "house.middle.wall"),
        ("house.middle.wall", "house.ground"),
        ("house.middle.wall", "house.middle.door"),
    }
    assert upward(found, _LAYERS) == circles(found) == missing("house", house) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import house.top\n", 1),
        ("\nfrom house import top\n", 2),
        ("from . import top\n", 1),
        ("def late():\n    from house.top import roof\n", 2),
        ("if TYPE_CHECKING:\n    import house.top as t\n", 2),
        ('import importlib\nimportlib.import_module("house.top")\n', 2),
        ('LATER = {\n    "roof": "house.top",\n}\n', 2),
    ],
)
def test_an_import_upwards_is_found_however_it_is_written(tmp_path, text, line):
    (wrong,) = upward(imports("house", _house(tmp_path, {"ground": text})), _LAYERS)
    assert wrong.startswith(f"house/ground.py:{line}: house.ground imports house.top, ")
    assert "`ground` stands below `top`" in wrong


@pytest.mark.parametrize(
    ("changes", "circle"),
    [
        ({"middle/door": "from house.middle import wall\n"}, "house.middle.door house.middle.wall"),
        ({"middle/door": "from .wall import Wall\n"}, "house.middle.door house.middle.wall"),
        # The face of a package imports its modules, so that none of them may import the face.
        ({"middle/wall": "from house.middle import Wall\n"}, "house.middle house.middle.wall"),
        ({"ground": "import house.top\n"}, "house.ground house.middle.wall house.top"),
    ],
)
def test_modules_that_import_each_other_are_found(tmp_path, changes, circle):
    found = imports("house", _house(tmp_path, changes))
    assert cycles((one.importer, one.imported) for one in found) == [circle.split()]
    (paragraph,) = circles(found)
    assert len(paragraph.splitlines()) > len(circle.split())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import house.roof\n", "house.roof"),
        ("from house.roof import tile\n", "house.roof.tile"),
        ("from house import roof\n", "house.roof"),
        ("from house.middle import Wall, Roof\n", "house.middle.Roof"),
        ("def late():\n    from house.ground import path\n", "house.ground.path"),
    ],
)
def test_an_import_of_what_is_not_there_is_found(tmp_path, text, name):
    (wrong,) = missing("house", _house(tmp_path, {"top": text}))
    line = len(text.splitlines())
    assert wrong == f"house/top.py:{line}: house.top imports {name}, which does not exist"


@pytest.mark.parametrize(
    "text",
    [
        "path = 1\n",
        "path: int = 1\n",
        "def path(): ...\n",
        "class path: ...\n",
        "import os as path\n",
        "from os import path\n",
        "from os import *\n",
        "if True:\n    path = 1\n",
        "try:\n    from os import path\nexcept ImportError:\n    path = None\n",
        "def __getattr__(name): ...\n",
    ],
)
def test_what_a_module_binds_may_be_imported(tmp_path, text):
    changes = {"ground": text, "top": "from house.ground import path\n"}
    assert missing("house", _house(tmp_path, changes)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import garden\n",
        "from garden import tree\n",
        "def late():\n    from garden.tree import leaf\n",
        'import importlib\nimportlib.import_module("garden.tree")\n',
    ],
)
def test_an_import_of_another_package_is_found(tmp_path, text):
    house = _house(tmp_path, {"ground": text})
    (tmp_path / "garden").mkdir()
    (tmp_path / "garden" / "__init__.py").write_text("")
    (tmp_path / "garden" / "tree.py").write_text("from house.ground import cellar\n")
    (found,) = imports("house", house, of="garden")
    assert (found.importer, found.line) == ("house.ground", len(text.splitlines()))
    (wrong,) = missing("garden", house, of="house")
    assert wrong.endswith("garden.tree imports house.ground.cellar, which does not exist")
    assert len(imports("garden", house, of="house")) == 1 and imports("garden", house) == []


def test_the_table_is_read_in_its_order():
    text = (
        "| folder | contents |\n|---|---|\n"
        "| `python/warploom/__init__.py` | the face, see `python/warploom/other/` |\n"
        "| `python/warploom/a/`, `b.py`, `c/` | three |\n"
        "| `src/` | `python/warploom/d/` |\n"
        "| `python/warploom/d.py` | last |\n"
    )
    assert read_layers(text) == ["warploom", "a", "b", "c", "d"]


def test_the_report_of_packages_counts_imports(tmp_path):
    house = _house(tmp_path, {"ground": "import house.top\n"})
    report = import_graph.report("house", house)
    assert "top -> middle 1" in report and "ground -> top 1" in report
    assert "3: ground middle top" in report
