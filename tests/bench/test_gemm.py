"""The benchmark of GEMMs from command line to files, with numpy in the place of the GPU."""

import importlib.util
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tvm

from tests.bench.on_host import TORCH, HostKernels, Result, on_host
from warploom.errors import IllegalCombination, WarploomError
from warploom.gemm_shape import GemmShape
from warploom_bench import backends, compete, competitors, gemm, run
from warploom_bench.check import deviation
from warploom_bench.competitors import parse_config, tile_program_variant
from warploom_bench.operands import Operands, arguments
from warploom_bench.report import EXIT_RIGHT, EXIT_SLOW, EXIT_WRONG, exit_status


def make_operands(torch, shape, seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((rows, shape.k)) for rows in (shape.m, shape.n))
    return Operands(a, b, None, None, np.full((shape.m, shape.n), np.nan).view(Result))


def check(torch, shape, operands):
    return deviation(np.asarray(operands.c), operands.a @ operands.b.T)


def product(operands):
    np.matmul(operands.a, operands.b.T, out=operands.c)


def product_without_last_column(operands):
    operands.c[:, :-1] = operands.a @ operands.b[:-1].T


def slow_product(operands):
    for _ in range(300):
        product(operands)


def slow_at_second(operands):
    """Right for the first operands of a row of launches only."""
    product(operands)
    if operands.a[0, 0] != make_operands(None, SHAPE, 0).a[0, 0]:
        operands.c[0, 0] += 1e3


def ours(product):
    """A function that compiles a kernel which computes as a GEMM of operands does."""
    return lambda shape, *_: lambda a, b, c: product(Operands(a, b, None, None, c))


def compare(shape, names, rounds, burst_only=False, **options):
    wanted = gemm.our_kernels(shape, names, **options)
    return gemm.compare(
        TORCH, shape, HostKernels(), wanted, names, rounds, burst_only=burst_only
    )


@pytest.fixture
def graphs(monkeypatch):
    """Numpy for the GPU; the list receives the number of executions of every captured graph."""
    captured = on_host(monkeypatch)
    monkeypatch.setitem(backends.LIBRARIES, "cublaslt", lambda *_: product)
    monkeypatch.setitem(backends.LIBRARIES, "torch", lambda *_: None)
    monkeypatch.setattr(gemm.ops, "make_operands", make_operands)
    monkeypatch.setattr(gemm.ops, "check", check)
    monkeypatch.setattr(gemm.ops, "input_sets", lambda shape: 3)
    return captured


SHAPE = GemmShape("g", 24, 40, 32, "float16", target=0.5)
NAMES = ("default", "torch", "cublaslt")


@pytest.mark.parametrize(
    ("kernel", "status"),
    [
        (product, EXIT_RIGHT),
        (product_without_last_column, EXIT_WRONG),
        (slow_at_second, EXIT_WRONG),
        (slow_product, EXIT_SLOW),
    ],
)
def test_wrong_and_slow_kernels_are_told_apart(monkeypatch, graphs, kernel, status):
    monkeypatch.setitem(backends.OURS, "default", ours(kernel))
    # Equal kernels on a noisy machine: the target is far below 1.
    shape = GemmShape("g", 24, 40, 32, "float16", 0.2)
    comparison = compare(shape, NAMES, 5)
    assert exit_status([comparison]) == status
    assert [entry.name for entry in comparison.entries] == ["default", "cublaslt"]
    assert graphs == [3, 3], "a small product is replayed from a graph"
    assert all(entry.host_seconds > 0 for entry in comparison.entries)


def test_large_gemms_are_launched_one_by_one(monkeypatch, graphs):
    monkeypatch.setitem(backends.OURS, "default", ours(product))
    monkeypatch.setattr(compete, "GRAPH_OPERATIONS", 0)
    comparison = compare(SHAPE, NAMES, 2, burst_only=True)
    assert comparison.protocols == ("burst",) and not graphs


def test_shapes_that_nobody_has_are_left_out(monkeypatch, graphs):
    monkeypatch.setitem(backends.OURS, "tuned", lambda *_: None)
    assert compare(SHAPE, ("tuned", "cublaslt"), 2) is None


def test_libraries_that_fail_are_left_out_with_their_reason(monkeypatch, graphs, tmp_path, capsys):
    def fails_at_once(*_):
        raise ImportError("No module named 'triton'")

    def fails_at_a_call(*_):
        def run(operands):
            raise RuntimeError("out of resource: shared memory\nand more")

        return run

    monkeypatch.setitem(backends.OURS, "default", ours(product))
    monkeypatch.setitem(backends.LIBRARIES, "triton", fails_at_once)
    monkeypatch.setitem(backends.LIBRARIES, "torch", fails_at_a_call)
    found = compare(SHAPE, ("default", "triton", "torch", "cublaslt"), 2, burst_only=True)
    assert [entry.name for entry in found.entries] == ["default", "cublaslt"]
    assert found.absent == {
        "triton": "No module named 'triton'", "torch": "out of resource: shared memory"
    }  # fmt: skip
    suite = tmp_path / "two.json"
    suite.write_text(json.dumps({"tiny": [[8, 8, 8], [8, 8, 16]]}))
    arguments = ["--suite", str(suite), "--rounds", "1", "--burst-only", "--backend", "default",
                 "--backend", "triton", "--backend", "cublaslt"]  # fmt: skip
    assert gemm.main(arguments) == EXIT_RIGHT
    line = "triton is left out (8x8x8 float16 and 1 others): No module named 'triton'"
    assert line in capsys.readouterr().out


def test_a_kernel_that_fails_costs_only_its_shape(monkeypatch, graphs, tmp_path, capsys):
    def default(shape, databases):
        if shape.m == 1:
            raise WarploomError("no kernel for one row")
        return ours(product)(shape)

    monkeypatch.setitem(backends.OURS, "default", default)
    suite = tmp_path / "two.json"
    suite.write_text(json.dumps({"tiny": [[1, 8, 8], [8, 8, 16]]}))
    arguments = ["--suite", str(suite), "--rounds", "1", "--burst-only", "--out", str(tmp_path)]
    assert gemm.main([*arguments, "--backend", "default", "--backend", "cublaslt"]) == EXIT_WRONG
    assert "1x8x8 float16: FAILED: no kernel for one row" in capsys.readouterr().out
    (measured,) = json.loads((tmp_path / "gemm-two.json").read_text())["comparisons"]
    assert measured["shape"]["m"] == 8 and measured["entries"][0]["mhz"] == {"burst": [1980]}


def test_no_shape_is_begun_after_the_time(monkeypatch, graphs, tmp_path, capsys):
    monkeypatch.setitem(backends.OURS, "default", ours(product))
    moments = iter([0.0, 59.0, 61.0])
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    suite = tmp_path / "three.json"
    suite.write_text(json.dumps({"tiny": [[8, 8, 8], [8, 8, 16], [8, 8, 24]]}))
    arguments = ["--suite", str(suite), "--rounds", "1", "--burst-only", "--minutes", "1"]
    arguments += ["--backend", "default", "--backend", "cublaslt"]
    assert gemm.main(arguments) == EXIT_RIGHT
    output = capsys.readouterr().out
    assert "2 shapes are left out" in output and "8x8x16" not in output


@pytest.mark.parametrize("names", [("default",), ("torch", "cublaslt")])
def test_one_side_alone_is_no_comparison(names):
    with pytest.raises(WarploomError, match=r"at least one of default.* and one of cublaslt"):
        gemm.main([text for name in names for text in ("--backend", name)])


def test_command_writes_all_files_and_knows_its_baseline(monkeypatch, graphs, tmp_path, capsys):
    monkeypatch.setitem(backends.OURS, "default", ours(product))
    suite = tmp_path / "two.json"
    suite.write_text(json.dumps({"tiny": [[8, 8, 8]], "other": [[8, 16, 8], [1, 8, 8]]}))
    arguments = ["--suite", str(suite), "--group", "other", "--rounds", "3", "--dtype", "bfloat16"]
    arguments += ["--backend", "default", "--backend", "cublaslt"]
    assert gemm.main([*arguments, "--out", str(tmp_path / "out")]) == EXIT_RIGHT
    file = tmp_path / "out" / "gemm-two.json"
    content = json.loads(file.read_text())
    shapes = [c["shape"] for c in content["comparisons"]]
    assert [(s["m"], s["n"], s["k"]) for s in shapes] == [(8, 16, 8), (1, 8, 8)]
    assert {s["dtype"] for s in shapes} == {"bfloat16"}
    assert content["environment"]["command"].endswith(
        f"bench gemm {' '.join(arguments)}" + (f" --out {tmp_path / 'out'}")
    )
    assert (tmp_path / "out" / "gemm-two.md").read_text() in capsys.readouterr().out
    drawn = tmp_path / "out" / "gemm-two.png"
    assert drawn.exists() == bool(importlib.util.find_spec("matplotlib"))
    # The same again is no regression; ten times slower is one.
    again = [*arguments, "--baseline", str(file), "--tolerance", "0.99"]
    assert gemm.main(again) == EXIT_RIGHT
    monkeypatch.setitem(backends.OURS, "default", ours(slow_product))
    assert gemm.main([*again[:-1], "0.5"]) == EXIT_SLOW
    assert "of cublaslt, and" in capsys.readouterr().out
    with pytest.raises(WarploomError, match="is no result of a benchmark"):
        gemm.main([*arguments, "--baseline", str(suite)])


def test_variants_are_competitors_after_the_library(monkeypatch, graphs):
    seen = []

    def changed(shape, changes=""):
        seen.append(changes)
        return ours(product)(shape)

    monkeypatch.setitem(backends.OURS, "default", ours(product))
    monkeypatch.setattr(competitors, "tile_program_variant", changed)
    variants = ["tile_n=128,stages=6", "tile_n=128,split_k=4"]
    comparison = compare(SHAPE, NAMES, 2, tile_variants=variants)
    assert seen == variants
    names = [entry.name for entry in comparison.entries]
    assert names == ["default", "cublaslt", *(f"tile-program {one}" for one in variants)]
    with pytest.raises(WarploomError, match="'speed=4' changes no config"):
        parse_config("tile_n=128,speed=4")
    assert parse_config("reduce_through=cluster,group=2") == {"reduce_through": 1, "group": 2}


#: Rows are padded, where the choice for few rows exchanges A and B.
_ROWS = "persistent=1,specialise=1,swap_ab=0,tile_m=64,tile_n=128,tile_k=64,consumers=1,stages=4"


@pytest.mark.gpu
@pytest.mark.parametrize(
    "changes",
    [
        "", "persistent=1,specialise=1,split_k=2", f"{_ROWS},stream_k=1,ctas_per_sm=2",
        f"{_ROWS},split_k=4,reduce_through=cluster",
    ],
)  # fmt: skip
def test_variants_of_tile_programs_are_right(rng, changes):
    shape = GemmShape("g", 40, 264, 520, "float16")
    a, b = (rng.standard_normal((rows, 520), np.float32).astype(np.float16) for rows in (40, 264))
    c = np.full((40, 264), np.nan, np.float16)
    operands = Operands(*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in (a, b)), None, None,
                        tvm.runtime.tensor(c, tvm.cuda(0)))  # fmt: skip
    tile_program_variant(shape, changes)["main"](operands.a, operands.b, operands.c)
    exact = a.astype(float) @ b.T.astype(float)
    assert np.abs(operands.c.numpy() - exact).max() <= 2.0**-10 * np.abs(exact).max()


@pytest.mark.parametrize("text", ["", "tile_n", "tile_n=x", "tile_n=-8", "size=3", "stages=2,"])
def test_impossible_variants_are_refused(text):
    with pytest.raises(WarploomError, match=r"NAME=VALUE with one of .*tile_n.*stages"):
        parse_config(text)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "changes", ["l2_policy=1,tile_m=64,consumers=1,swap_ab=0", "swap_ab=1,tile_n=64,stages=2"]
)
def test_config_of_a_te_function_are_right(rng, changes):
    shape = GemmShape("g", 72, 264, 136, "float16", epilogue="residual")
    extents = ((72, 136), (264, 136), (72, 264))
    inputs = [rng.standard_normal(one, np.float32).astype(np.float16) for one in extents]
    c = tvm.runtime.tensor(np.full((72, 264), np.nan, np.float16), tvm.cuda(0))
    a, b, e = (tvm.runtime.tensor(one, tvm.cuda(0)) for one in inputs)
    operands = Operands(a, b, None, None, c, residual=e)
    executable = competitors.config_variant(shape, changes)
    executable["main"](*arguments(shape, operands))
    a, b, e = (one.astype(float) for one in inputs)
    exact = a @ b.T + e
    assert np.abs(c.numpy() - exact).max() <= 2.0**-10 * np.abs(exact).max()


def test_illegal_config_are_refused():
    shape = GemmShape("g", 72, 264, 136, "float16")
    with pytest.raises(IllegalCombination, match="l2_policy = 7: it must be at most 2"):
        competitors.config_variant(shape, "l2_policy=7")


def test_missing_pytorch_is_explained(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(WarploomError, match="need PyTorch with CUDA; install it"):
        run.import_torch()
