"""Exercises and skeletons: solutions are right, skeletons are of them, and the checker tells."""

from __future__ import annotations

import ast
import re

import pytest

from tests.shared.paths import ROOT
from warploom.errors import WarploomError
from warploom.tutorials import exercises
from warploom.tutorials.skeleton import skeleton, todos, without_markers

TUTORIALS = ROOT / "tutorials"
SOLUTIONS = list(exercises.solutions(TUTORIALS))
OWN = sorted((TUTORIALS / "exercises").glob("*.py"))
PAGES = sorted(TUTORIALS.glob("[0-9]*.py"))


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_skeleton_is_a_program_that_tells_what_to_do(path):
    source = path.read_text()
    made = skeleton(source, path.name)
    ast.parse(made)
    found = todos(made)
    assert len(found) == source.count("# solution: ") == source.count("# end\n") >= 1
    assert all(len(one.hint) > 10 for one in found)
    assert "# solution" not in made and "# end\n" not in made
    assert "TODO" not in source and todos(source) == []
    # What is not between markers is the solution's.
    kept = set(made.splitlines()) - set(source.splitlines())
    assert all(re.match(r" *(# TODO|#   |pass$)", line) for line in kept)


def test_markers_can_be_taken_away():
    source = "a = 1\n# solution: one\n#   and more\n# a comment\nb = 2\n# end\nc = 3\n"
    assert without_markers(source) == "a = 1\n# a comment\nb = 2\nc = 3\n"
    assert skeleton(source) == "a = 1\n# TODO 1: one\n#   and more\npass\nc = 3\n"
    for wrong in ("# solution: x\n", "# solution: x\n# solution: y\n# end\n"):
        with pytest.raises(WarploomError, match=r"has no end|begins in that"):
            skeleton(wrong)


def test_both_ladders_have_the_same_skeletons():
    steps = {
        name: [path.stem for path in SOLUTIONS if path.parent.name == name]
        for name in exercises.LADDERS
    }
    assert [one[:3] for one in steps["ladder_hopper"]] == [f"v{n:02}" for n in range(1, 11)]
    assert steps["ladder_hopper"] == steps["ladder_blackwell"]


def test_exercises_are_of_a_page_that_names_them():
    names = {path.name for path in PAGES}
    for path in OWN:
        assert path.name in names
        page = (TUTORIALS / path.name).read_text()
        assert "## Exercises" in page and f"exercises/{path.name}" in page
    assert [path.name for path in PAGES] == sorted(names)
    assert [int(path.name[:2]) for path in PAGES] == list(range(1, len(PAGES) + 1))


def test_start_writes_all_and_overwrites_nothing(tmp_path, capsys):
    assert exercises.main([str(tmp_path / "mine"), "--tutorials", str(TUTORIALS)]) == 0
    written = capsys.readouterr().out.split()
    assert len(written) == len(SOLUTIONS)
    first = tmp_path / "mine" / "exercises" / "01_vector_add.py"
    assert first.read_text() == skeleton((TUTORIALS / "exercises/01_vector_add.py").read_text())
    with pytest.raises(WarploomError, match="exists"):
        exercises.main([str(tmp_path / "mine"), "--tutorials", str(TUTORIALS)])
    with pytest.raises(WarploomError, match="has no exercises"):
        exercises.start(tmp_path, tmp_path / "other")


@pytest.mark.gpu
@pytest.mark.some(2)
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_solutions_are_right(path, capsys):
    assert exercises.check(path)
    assert "2 of 2 right" in capsys.readouterr().out


@pytest.mark.gpu
def test_the_checker_tells_what_is_missing(tmp_path, capsys):
    source = (TUTORIALS / "exercises" / "01_vector_add.py").read_text()
    mine = tmp_path / "01_vector_add.py"
    mine.write_text(skeleton(source))
    assert exercises.check_main([str(mine)]) == 1
    printed = capsys.readouterr().out
    assert "01_vector_add.py:" in printed and "still TODO: load tile i" in printed
    assert "0 of 2 right" in printed and printed.count("not yet. ") == 2
    mine.write_text(source.replace("T.max(x[e], y[e])", "T.min(x[e], y[e])"))
    assert exercises.check_main([str(mine)]) == 1
    printed = capsys.readouterr().out
    assert "1 of 2 right" in printed and "has an error of" in printed
    mine.write_text("x = 1\n")
    with pytest.raises(WarploomError, match="has no EXERCISES"):
        exercises.check(mine)


@pytest.mark.gpu
@pytest.mark.in_turn(4)
def test_the_checker_runs_steps_of_ladders(tmp_path, capsys):
    folder = tmp_path / "ladder_hopper"
    folder.mkdir()
    step = folder / "v01_one_tile.py"
    source = (TUTORIALS / "ladder_hopper" / "v01_one_tile.py").read_text()
    step.write_text(skeleton(source))
    assert not exercises.check(step)
    step.write_text(without_markers(source))
    assert exercises.check(step)
    assert "1 of 1 right" in capsys.readouterr().out
