"""The tests have the rooms of the package, and ``tests/README.md`` names all of them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.shared.paths import ROOT, TESTS

#: A row of the table of rooms: its first column names one folder of ``tests`` or several.
_ROW = re.compile(r"^\| (?P<rooms>`[^|]*/`[^|]*)\|", re.MULTILINE)
#: Rooms of what is no package of warploom.
OF_NO_PACKAGE = {"shared", "source_mutants", "top", "upstream", "whole", "emulator/mutants"}
#: Packages that belong to the room above them.
PARTS_OF_ROOMS = {"emulator/golden", "shared/tile_programs", "shared/tile_programs/statements"}


def read_rooms(text: str) -> list[str]:
    """The rooms that the table of a README names, in its order."""
    rows = [match["rooms"] for match in _ROW.finditer(text)]
    return [room for row in rows for room in re.findall(r"`([\w/]+)/`", row)]


def misplaced(files: list[Path], rooms: set[str]) -> list[str]:
    """A sentence for each file of tests that lies outside the rooms, by paths from ``tests``."""
    return [
        f"tests/{file} lies in no room that tests/README.md names: move it to the room that is "
        "called like the package it tests, or name its room there"
        for file in files
        if file.parent.as_posix() not in rooms
    ]


ROOMS = read_rooms((TESTS / "README.md").read_text())


def test_every_file_lies_in_a_room():
    assert not misplaced([path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")], {*ROOMS})
    assert sorted(path.name for path in TESTS.glob("*.py")) == ["__init__.py", "conftest.py"]


def test_every_room_is_a_folder_and_every_folder_a_room():
    folders = {path.relative_to(TESTS).parent.as_posix() for path in TESTS.rglob("*.py")}
    assert len({*ROOMS}) == len(ROOMS)
    assert folders - PARTS_OF_ROOMS - {"."} == {*ROOMS}


def packages_of(room: str) -> list[Path]:
    """Where the package of a room may lie: in warploom, or beside it as ``warploom_ROOM``."""
    sources = ROOT / "python"
    return [one for one in (sources / "warploom" / room, sources / f"warploom_{room}")
            if any(one.glob("*.py"))]  # fmt: skip


def test_a_room_is_called_like_its_package():
    assert not [one for one in {*ROOMS} - OF_NO_PACKAGE if len(packages_of(one)) != 1]


def test_every_package_beside_warploom_has_a_room():
    folders = {path.parent.name for path in (ROOT / "python").glob("*/__init__.py")} - {"warploom"}
    assert folders == {"warploom_bench"}
    assert {name.removeprefix("warploom_") for name in folders} <= {*ROOMS}


def test_files_of_two_rooms_may_have_one_name():
    """The folders are packages: pytest imports ``tests.gemm.test_x`` and ``tests.ops.test_x``."""
    assert [one for one in ROOMS if not (TESTS / one / "__init__.py").exists()] == ["upstream"]


def test_a_file_outside_the_rooms_is_named_with_the_rule():
    table = "| room | tests |\n| `layout/` | a |\n| `lower/`, `lower/grid/` | b, `data/` |\n"
    assert read_rooms(table) == ["layout", "lower", "lower/grid"]
    files = [Path("layout/test_a.py"), Path("lower/grid/test_a.py"), Path("lower/nests/test_a.py")]
    (line,) = misplaced(files, {*read_rooms(table)})
    assert line.startswith("tests/lower/nests/test_a.py lies in no room")
    assert misplaced([Path("test_a.py")], {"layout"})
