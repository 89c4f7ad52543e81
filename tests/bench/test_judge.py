"""The model's choice against the best config of a search."""

from __future__ import annotations

import json
import random

import pytest

from warploom.decide.ranking import ranked
from warploom.decide.repair import TILE
from warploom.gemm.workloads import problem_of
from warploom.gemm_shape import GemmShape
from warploom.tile.choices import ROWS
from warploom_bench import judge
from warploom_bench.neighbours import deepest, neighbours, redrawn


@pytest.mark.parametrize("size", [(3, 512, 640), (129, 1024, 1024), (64, 64, 8192), (999, 104, 72)])
def test_neighbours_are_legal_new_and_near(size) -> None:
    problem = problem_of(GemmShape("g", *size, dtype="float16"))
    liked = [config for _, config in ranked(problem, 20)]
    seen, rng = set(liked), random.Random(str(size))
    drawn = neighbours(problem, liked[:3], liked, 30, seen, rng)
    assert len(set(drawn)) == len(drawn) == 30 and not set(drawn) & set(liked)
    assert all(config.why_not(problem) is None and config.stages >= 2 for config in drawn)
    again = neighbours(problem, liked[:3], liked, 30, set(liked), random.Random(str(size)))
    assert again == drawn, "a seed says which"


def test_every_choice_is_changed_by_some_neighbour() -> None:
    problem = problem_of(GemmShape("g", 64, 4096, 4096, dtype="float16"))
    config = ranked(problem)[0][1]
    tiles = [one for _, one in ranked(problem, 60)]
    rng, changed = random.Random(7), set()
    for _ in range(600):
        other = redrawn(config, tiles, rng)
        changed |= {n for n, v in vars(other).items() if v != getattr(config, n)}
    same = {name for name in TILE if len({getattr(one, name) for one in tiles}) == 1}
    assert changed >= {row.name for row in ROWS if row.draws} - {"stages"} - same
    assert deepest(problem, config, tiles) is not None


@pytest.mark.in_turn(2)
def test_the_command(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(judge, "require_gpu", lambda _: None)
    suite, out = tmp_path / "few.json", tmp_path / "judge.jsonl"
    suite.write_text(json.dumps({"small": [[16, 64, 64], [64, 64, 128]]}), encoding="utf-8")
    words = ["--suite", str(suite), "--rounds", "2,1", "--workers", "1"]
    assert judge.main([*words, "--out", str(out)]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()][1:]
    assert len(lines) == 6 and all(line["us"] > 0 and not line["error"] for line in lines)
    printed = capsys.readouterr().out
    assert "choice to best" in printed and "all" in printed and "     2" in printed


@pytest.mark.parametrize("text", ["", "0", "3,x", "3,,4"])
def test_rounds_that_are_no_counts_are_refused(text, capsys) -> None:
    with pytest.raises(SystemExit):
        judge.main(["--rounds", text])
    assert "write counts of configs" in capsys.readouterr().err
