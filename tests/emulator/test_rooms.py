"""Includes between the rooms of the emulator go one way, as src/emulator/README.md says.

A room is a folder of ``src/emulator``. The table in the README lists the rooms, the lower ones
first, and which rooms each may include.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.shared.paths import ROOT

SOURCES = ROOT / "src"
EMULATOR = SOURCES / "emulator"
README = EMULATOR / "README.md"

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
DECLARED = re.compile(r"^(?:class|struct|enum class) (\w+)(?: *: *\w+)?;", re.MULTILINE)
DEFINED = re.compile(r"^(?:class|struct|enum class) (\w+)[^;{]*\{", re.MULTILINE)


@cache
def sources() -> dict[str, str]:
    """The text of each C++ file, by its path from ``src``."""
    files = [path for path in SOURCES.rglob("*") if path.suffix in {".cc", ".h"}]
    return {path.relative_to(SOURCES).as_posix(): path.read_text() for path in files}


@cache
def includes() -> dict[str, list[str]]:
    """The files that each file includes, by their path from ``src``, or from its own folder."""
    found = {}
    for name, text in sources().items():
        beside = [(Path(name).parent / to).as_posix() for to in INCLUDE.findall(text)]
        found[name] = [
            near if near in sources() else to
            for near, to in zip(beside, INCLUDE.findall(text), strict=True)
        ]
    return found


def room(name: str) -> str:
    """The room of a file: ``check`` for ``emulator/check/clock.h``; ``../cubin`` beside it."""
    folder = Path(name).parent
    if folder.parts[:1] == ("emulator",):
        return Path(*folder.parts[1:]).as_posix()
    return f"../{folder.as_posix()}"


def parse_table(text: str) -> dict[str, list[str]]:
    """Each room of the table with the rooms that it may include, in the order of the rows."""
    rows = [
        line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("| `")
    ]
    table = {}
    for cells in rows:
        assert len(cells) == 3, f"a row has {len(cells)} cells, not 3: {cells}"
        (name,) = re.findall(r"`([^`]+)`", cells[0])
        assert name not in table, f"{name} has two rows"
        assert cells[1].strip(), f"the row of {name} does not say what is in it"
        table[name] = re.findall(r"`([^`]+)`", cells[2])
    return table


def upward_arrows(table: dict[str, list[str]]) -> list[str]:
    """Rooms that a row allows and that do not stand above that row."""
    order = list(table)
    return [
        f"{name} may include {lower}, which has no row above it"
        for name, allowed in table.items()
        for lower in allowed
        if lower not in order[: order.index(name)]
    ]


def arrows() -> dict[tuple[str, str], list[str]]:
    """Where a room includes another, or declares a class that another room defines."""
    rooms_of_class = defaultdict(set)
    for name, text in sources().items():
        for defined in DEFINED.findall(text):
            rooms_of_class[defined].add(room(name))
    found = defaultdict(list)
    for name, text in sources().items():
        for included in includes()[name]:
            found[room(name), room(included)].append(f"{name} includes {included}")
        for declared in DECLARED.findall(text):
            rooms = rooms_of_class[declared]
            if len(rooms) == 1 and room(name) not in rooms:
                found[room(name), *rooms].append(f"{name} declares {declared}")
    return {pair: where for pair, where in found.items() if pair[0] != pair[1]}


def test_every_include_names_a_file():
    missing = [
        f"{name}: {to}" for name, files in includes().items() for to in files if to not in sources()
    ]
    assert not missing


def test_every_room_has_a_row():
    rooms = {room(name) for name in sources() if name.startswith("emulator/")}
    assert rooms == set(parse_table(README.read_text()))


def test_rows_stand_in_the_order_of_their_arrows():
    assert not upward_arrows(parse_table(README.read_text()))


def test_arrows_are_those_of_the_table():
    table = parse_table(README.read_text())
    forbidden = [
        place
        for (above, below), places in arrows().items()
        if not above.startswith("../") and below not in table[above]
        for place in places
    ]
    assert not forbidden, "the table in src/emulator/README.md does not allow these"
    unused = [
        (above, below)
        for above, allowed in table.items()
        for below in allowed
        if (above, below) not in arrows()
    ]
    assert not unused, "the table in src/emulator/README.md allows arrows that no file has"


def test_sources_beside_the_emulator_do_without_it():
    crossing = [
        places
        for pair, places in arrows().items()
        if len({name.startswith("../") for name in pair}) == 2
    ]
    assert not crossing


def test_no_file_includes_itself_through_others():
    try:
        TopologicalSorter(includes()).prepare()
    except CycleError as error:
        pytest.fail("these files include each other: " + " -> ".join(error.args[1]))


def test_rooms_are_of_a_size_to_walk_through():
    counts = defaultdict(int)
    for name in sources():
        counts[room(name)] += 1
    crowded = {name: count for name, count in counts.items() if count > 45}
    assert not crowded, "these rooms have more than 45 files: part them by what their files do"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("| `a` | x | |\n| `b` | x | `a` |", None),
        ("| `a` | x | `b` |\n| `b` | x | |", "a may include b"),
        ("| `a` | x | `a` |", "a may include a"),
        ("| `a` | x | `c` |", "a may include c"),
    ],
)
def test_an_arrow_up_the_table_is_found(table, problem):
    found = upward_arrows(parse_table(table))
    assert not found if problem is None else problem in found[0]
