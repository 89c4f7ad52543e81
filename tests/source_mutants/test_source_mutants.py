"""The mutator of the package's sources; and a few mutants in each run, which tests must kill."""

from __future__ import annotations

import ast
import random

import pytest

from tests.shared.paths import ROOT
from tests.shared.selection import commit_seed
from tests.source_mutants import recordings
from tests.source_mutants.__main__ import DEFAULT, draw
from tests.source_mutants.equivalents import EQUIVALENTS
from tests.source_mutants.judges import Coverage, Judge
from tests.source_mutants.mutation import flat, modules, mutants, mutants_of
from tests.source_mutants.recordings import Recorded
from tests.source_mutants.trial import PACKAGE, Verdict, judge, overlay

#: Mutants that a run judges, each in about 10 seconds.
DRAWN = 3

SOURCE = '''"""Docstring 3."""
import a

@decorated(1)
def first(x: int, y=2) -> list[int]:
    """Docstring 4."""
    if x < 3 and not y:
        raise ValueError(f"{x + 1} is not 4")
    return [wait(x), *rest] if y else [x * 2]

class Second:
    limit: int = field(default=3)

    def third(self, z):
        assert z > 7, "never"
        for one in z:
            if one is None or one or z:
                continue
            self.total += one
        arrive(self.barrier, 1)
        warn(5, z == 6)
        return [one for one in z if one]
'''
#: Function, kind, what changes, into what.
CHANGES = {
    *{("first", "constant", "2", new) for new in "13"},
    *{("first", "constant", "3", new) for new in "24"},
    ("first", "condition", "x < 3 and not y", "(not (x < 3 and not y))"),
    ("first", "comparison", "<", "<="), ("first", "boolean", "and", "or"),
    ("first", "boolean", "not y", "(y)"),
    ("first", "statement", 'raise ValueError(f"{x + 1} is not 4")', "pass"),
    ("first", "element", "wait(x)", "*()"), ("first", "element", "*rest", "*()"),
    ("first", "condition", "y", "(not (y))"), ("first", "arithmetic", "*", "//"),
    ("Second.third", "comparison", "is", "is not"),
    ("Second.third", "condition", "one is None or one or z", "(not (one is None or one or z))"),
    *{("Second.third", "boolean", "one is None or one or z", f"(({x}) or ({y}))")
      for x, y in (("one", "z"), ("one is None", "z"), ("one is None", "one"))},
    ("Second.third", "statement", "continue", "pass"),
    ("Second.third", "statement", "self.total += one", "pass"),
    ("Second.third", "statement", "arrive(self.barrier, 1)", "pass"),
    ("Second.third", "constant", "1", "2"),
    ("Second.third", "statement", "warn(5, z == 6)", "pass"),
    ("Second.third", "condition", "one", "True"),
}  # fmt: skip


def test_what_is_changed_and_into_what():
    found = mutants_of(SOURCE, "a.py")
    assert {(one.function, one.kind, flat(one.old), one.new) for one in found} == CHANGES
    assert {one.old for one in found if one.synchronises} == {
        *("wait(x)", "y", "2", "*"), *("arrive(self.barrier, 1)", "1")
    }  # fmt: skip


def test_a_mutant_is_known_by_its_text():
    """Not by its line: a change of another function changes neither key nor identity."""
    before = {one.key: one for one in mutants_of(SOURCE, "a.py")}
    after = {one.key: one for one in mutants_of("import b\n\n" + SOURCE, "a.py")}
    assert len(before) == len(mutants_of(SOURCE, "a.py"))
    assert {key: one.digest for key, one in before.items()} == {
        key: one.digest for key, one in after.items()
    }
    changed = {one.key: one for one in mutants_of(SOURCE.replace("z):", "z, w):"), "a.py")}
    assert {one.function for key, one in changed.items() if one.digest != before[key].digest} == {
        "Second.third"
    }


@pytest.mark.parametrize("module", ["lower/emit/barriers.py", "ops/reduce_fragment.py"])
def test_mutants_of_modules_are_modules(module):
    text = (PACKAGE / module).read_text()
    found = mutants(PACKAGE, module)
    assert len({one.apply(text) for one in found}) == len(found) > 20
    for one in found:
        ast.parse(one.apply(text))


def test_a_seed_draws_the_same_mutants():
    found = [one for name in modules(PACKAGE, DEFAULT[:1]) for one in mutants(PACKAGE, name)]
    first, again, other = (draw(found, 30, seed, True) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 30 and all(one.synchronises for one in first)


def test_the_copy_differs_in_one_module(tmp_path):
    overlay(tmp_path, "tile/ir.py", "x = 1\n")
    copy = tmp_path / PACKAGE.name
    found = [one for one in PACKAGE.rglob("*.py") if "__pycache__" not in one.parts]
    for one in found:
        there = copy / one.relative_to(PACKAGE)
        changed = one == PACKAGE / "tile" / "ir.py"
        assert (there.read_text() == "x = 1\n") if changed else there.samefile(one)


def test_judges_reach_the_statement_and_come_from_all_files(tmp_path):
    mutant = next(one for one in mutants_of(SOURCE, "ops/a.py") if "total" in one.old)
    rows = [
        f'{{"test": "tests/test_{file}.py::t{n}", "seconds": {seconds}, '
        f'"lines": {{"ops/a.py": [{line}]}}}}\n'
        for file, seconds in (("ops", 8), ("other", 9), ("cheap", 1))
        for n in range(9) for line in [mutant.first + n // 8]
    ]  # fmt: skip
    (tmp_path / "1.jsonl").write_text("".join(rows))
    coverage = Coverage(tmp_path)
    assert Judge("tests/test_ops.py::t8", 8) not in coverage.reaching(mutant)
    judges = coverage.judges(mutant, 40)
    assert judges[:8] == [f"tests/test_cheap.py::t{n}" for n in range(8)]
    assert {one.partition("::")[0] for one in judges[8:]} == {
        "tests/test_ops.py", "tests/test_other.py"
    }  # fmt: skip
    imported = mutants_of("x = 1\n", "ops/a.py")[0]
    assert len(coverage.reaching(imported)) == 27
    assert coverage.judges(mutants_of(SOURCE, "ops/b.py")[0]) == []


def test_equivalent_mutants_have_reasons():
    for key, reason in EQUIVALENTS.items():
        assert len(key) == 6 and (PACKAGE / key[0]).parent.is_dir() and len(reason) > 10


def confirm(recorded: Recorded) -> None:
    """A recorded mutant is killed by its test, unless its source or the test is no longer there."""
    mutant = recorded.find()
    if mutant is None:
        pytest.skip(f"{recorded.key[0]} has changed since {recorded} was recorded")
    verdict: Verdict = judge(mutant, [recorded.test], limit=900)
    if verdict.state in ("stale", "hung"):
        pytest.skip(f"{recorded.test} cannot judge {mutant}: {verdict.state}")
    assert verdict.killed, f"{recorded.test} no longer notices {mutant}:\n{verdict.output}"


@pytest.mark.parametrize("number", range(DRAWN))
def test_mutants_drawn_for_the_commit_are_killed(number):
    """Of those whose source is as it was recorded."""
    everything = recordings.read()
    random.Random(commit_seed(ROOT)).shuffle(everything)
    for one in everything[number::DRAWN]:
        if one.find() is not None:
            return confirm(one)
    pytest.skip("all sources have changed; record others: tests/README.md")


@pytest.mark.long
@pytest.mark.parametrize("recorded", recordings.read(), ids=str)
def test_every_recorded_mutant_is_killed(recorded):
    confirm(recorded)
