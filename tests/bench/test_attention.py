"""The benchmark of attention from command line to files, with numpy in the place of the GPU."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.bench.on_host import Result, on_host
from warploom_bench import attention
from warploom_bench.attention import AttentionShape, Operands
from warploom_bench.check import deviation
from warploom_bench.report import EXIT_RIGHT, EXIT_WRONG


def exact(o, causal):
    logits = np.einsum("htd,hsd->hts", o.q, o.k) / o.q.shape[-1] ** 0.5
    if causal:
        logits[:, np.triu(np.ones(logits.shape[1:], bool), 1)] = -np.inf
    weights = np.exp(logits - logits.max(2, keepdims=True))
    return (weights / weights.sum(2, keepdims=True)) @ o.v


@pytest.fixture
def host(monkeypatch, rng):
    """``factor`` multiplies our results; the second library fails."""
    factor = [1.0]

    def make_operands(torch, shape):
        extents = (shape.heads, shape.tokens, shape.head_dim)
        return [
            Operands(*rng.standard_normal((3, *extents)), np.zeros(extents).view(Result))
            for _ in range(2)
        ]

    def program(shape, tile=None):
        def main(q, k, v, c):
            c[:] = exact(Operands(q, k, v, c), shape.causal) * factor[0]

        return main

    def libraries(torch, shape):
        def right(o):
            o.result = exact(o, shape.causal)

        def fails(o):
            raise RuntimeError("No available kernel. Aborting execution.")

        return {"slow": lambda o: (right(o), right(o)), "fast": right, "broken": fails}

    on_host(monkeypatch)
    monkeypatch.setattr(attention, "make_operands", make_operands)
    monkeypatch.setattr(attention, "program", program)
    monkeypatch.setattr(attention, "library_attentions", libraries)
    monkeypatch.setattr(
        attention, "check_attention",
        lambda _, shape, q, k, v, found: deviation(
            np.asarray(found), exact(Operands(q, k, v, None), shape.causal)
        ),
    )  # fmt: skip
    return factor


ARGUMENTS = ["--tokens", "48", "--head-dim", "16", "--heads", "2", "--rounds", "3", "--burst-only"]


def test_command_writes_files_and_names_the_fastest_library(host, tmp_path, capsys):
    assert attention.main([*ARGUMENTS, "--out", str(tmp_path)]) == EXIT_RIGHT
    full, causal = json.loads((tmp_path / "attention.json").read_text())["comparisons"]
    assert [one["shape"]["causal"] for one in (full, causal)] == [False, True]
    for one in (full, causal):
        ours, *libraries = one["entries"]
        assert ours["name"] == "warploom"
        medians = [float(np.median(entry["seconds"]["burst"])) for entry in libraries]
        assert medians == sorted(medians) and len(medians) == 2
        assert one["absent"] == {"broken": "No available kernel. Aborting execution."}
    assert "broken is left out" in capsys.readouterr().out


def test_wrong_results_are_found(host):
    host[0] = 1.1
    assert attention.main(ARGUMENTS) == EXIT_WRONG


def test_sizes_are_those_of_all_heads():
    shape = AttentionShape("g", 1024, 64, 4, True)
    assert shape.input_bytes == 3 * 1024 * 64 * 4 * 2
    assert shape.operations == 4 * 1024**2 * 64 * 4 // 2


def test_random_cases_are_those_of_their_seed():
    shapes = attention.random_shapes("unseen:11:40")
    assert (
        shapes == attention.random_shapes("unseen:11:40") != attention.random_shapes("unseen:12:40")
    )
    assert all(shape.heads % shape.shared_heads == 0 for shape in shapes)
    assert {shape.causal for shape in shapes} == {False, True} and len(shapes) == 40
    assert all(shape.operations <= 2e13 for shape in shapes)


def test_configs_compete_behind_the_libraries(host, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(attention, "other_tiles", lambda shape, count: [(64, 32), (64, 16)][:count])
    arguments = [*ARGUMENTS, "--configs", "2", "--out", str(tmp_path)]
    assert attention.main(arguments) == EXIT_RIGHT
    comparison = json.loads((tmp_path / "attention.json").read_text())["comparisons"][0]
    names = [entry["name"] for entry in comparison["entries"]]
    assert names[0] == "warploom" and set(names[3:]) == {"warploom 64x32", "warploom 64x16"}
    table = capsys.readouterr().out.rpartition("choice to best")[2]
    assert [line.split("|")[2].strip() for line in table.splitlines()[2:]] == ["1", "1", "2"]
