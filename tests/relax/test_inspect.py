"""``warploom inspect relax`` tells what becomes of each function, and what was in the way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

import warploom
from warploom import cli
from warploom.decide.ranking import ranked
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.records import trace_of
from warploom.meta_schedule.workloads import matmul as workload_of
from warploom.relax.inspect import FunctionReport, inspect, share_on_tensor_cores
from warploom.relax.inspect_command import _load


def _module(make: Any, *shapes: tuple[Any, ...], dtype: str = "float16") -> tvm.IRModule:
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"p{number}", relax.TensorType(list(shape), dtype))
        for number, shape in enumerate(shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(make(*params)))
        builder.emit_func_output(out)
    return builder.get()


def _attention(
    q: tuple[Any, ...], k: tuple[Any, ...] | None = None, v: tuple[Any, ...] | None = None,
    dtype: str = "float16", **options: Any,
) -> FunctionReport:  # fmt: skip
    shapes = q, k or q, v or k or q
    made = _module(lambda *a: relax.op.nn.attention(*a, **options), *shapes, dtype=dtype)
    (report,) = inspect(made)
    return report


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("mask", [None, "TopLeft"])
def test_attention_that_became_tensor_core_code(head_dim: int, mask: str | None) -> None:
    report = _attention((2, 24, 4, head_dim), causal_mask=mask)
    assert report.on_tensor_cores and not report.reason
    kind = "causal attention" if mask else "attention"
    text = f"attention: {kind} of 2 x 24 tokens, 4 heads of {head_dim} (4 of keys), float16"
    assert str(report).startswith(text)


@pytest.mark.parametrize(
    ("shapes", "options", "reason"),
    [
        ([(1, 8, 2, 84)], {}, "head_dim is 84; .* multiples of 8 up to 256, so pad"),
        ([(1, 8, 2, 64), (1, 8, 2, 64), (1, 8, 2, 260)], {}, "value_dim is 260"),
        ([(1, 8, 2, 64)], {"dtype": "float32"}, "are float32; all must be bfloat16 or float16"),
    ],
)
def test_what_was_in_the_way_of_attention(
    shapes: list[tuple[int, ...]], options: dict[str, Any], reason: str
) -> None:
    report = _attention(*shapes, **options)
    assert not report.on_tensor_cores and re.search(reason, report.reason)
    assert f"{report.name}: left to TVM: " in str(report)


def test_attention_with_a_bias_is_named() -> None:
    shapes = [(1, 8, 2, 64), (1, 12, 2, 64), (1, 12, 2, 24)]
    (report,) = inspect(_module(relax.op.nn.attention, *shapes, (1, 2, 8, 12)))
    sizes = "attention of 1 x 8 tokens to 12 keys, 2 heads of 64 and 24 (2 of keys)"
    assert report.attention.startswith(f"{sizes}, float16, with a bias\n")


def test_the_layout_of_a_convolution_is_named() -> None:
    made = _module(relax.op.nn.conv2d, (1, 8, 10, 10), (16, 8, 3, 3))
    (report,) = inspect(made)
    assert "wants its channels last (NHWC, OHWI)" in report.reason
    assert "channels last" not in inspect(_module(relax.op.matmul, (24, 63), (63, 32)))[0].reason


_MODEL = '''
from tvm import relax
def model():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([256, 512], "float16"))
    w = relax.Var("w", relax.TensorType([512, 512], "float16"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit(relax.op.matmul(x, relax.op.permute_dims(w)))
            out = builder.emit_output(builder.emit(relax.op.nn.softmax(y, -1)))
        builder.emit_func_output(out)
    return builder.get()
'''


def test_the_command_honours_databases_and_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "model.py").write_text(_MODEL)
    model = f"{tmp_path / 'model.py'}:model"
    assert cli.main(["inspect", "relax", model]) == 0
    before = capsys.readouterr().out
    assert re.search(r"wgmma .*100% of the FLOPs", before)
    assert "2 functions: 1 on tensor cores, 1 row by row, 0 left to TVM, 0 only reshape" in before

    (matmul,) = (one for one in inspect(_load(model)) if one.problem)
    mod = tvm.IRModule({"main": workload_of(256, 512, 512)})
    wanted = ranked(matmul.problem)[5][1]
    assert wanted != matmul.decisions[-1][1]
    folder = tmp_path / "records"
    folder.mkdir()
    database = JSONDatabase(work_dir=str(folder))
    workload = database.commit_workload(mod)
    target = warploom.cuda_target("h200")
    record = TuningRecord(trace_of(mod, wanted), workload, [1e-6], target, None)
    database.commit_tuning_record(record)
    reports = inspect(_load(model), lookup=Lookup.in_order([folder]))
    (found,) = (one for one in reports if one.problem)
    assert found.decisions == ((None, wanted),)
    words = ["inspect", "relax", model, "--database", str(folder), "--no-shipped", "--configs"]
    assert cli.main(words) == 0 and str(found) in capsys.readouterr().out
    assert cli.main(["inspect", "relax", model, "--database", str(tmp_path)]) != 0
    assert "name the work_dir of a search" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [2, 3, 129, 130, 1000, 30522, 50257])
@pytest.mark.parametrize("converted", [False, True])
def test_weights_of_any_number_of_outputs_are_multiplied_by_tensor_cores(
    columns: int, converted: bool
) -> None:
    """The transposition of a weight, or its order in memory, is changed before it is judged."""

    def linear(x: relax.Expr, w: relax.Expr) -> relax.Expr:
        if converted:
            x, w = (relax.op.astype(one, "float16") for one in (x, w))
        return relax.op.matmul(x, relax.op.permute_dims(w))

    dtype = "float32" if converted else "float16"
    reports = inspect(_module(linear, (24, 64), (columns, 64), dtype=dtype))
    (taken,) = (one for one in reports if one.problem)
    assert taken.problem.n == columns and (columns % 8 == 0 or taken.problem.layout == "NT")


def test_functions_that_only_reshape_launch_nothing() -> None:
    def make(x: relax.Expr, w: relax.Expr) -> relax.Expr:
        return relax.op.reshape(relax.op.matmul(x, w), (8, 3, 32))

    reports = inspect(_module(make, (24, 64), (64, 32)))
    assert [one.reshapes for one in reports] == [not one.on_tensor_cores for one in reports]
    for one in reports:
        assert "left to TVM" not in str(one)


def test_a_weight_that_stays_too_narrow_is_left_as_it_is() -> None:
    """Neither order can be loaded: nothing is changed for nothing."""
    made = _module(
        lambda x, w: relax.op.matmul(x, relax.op.permute_dims(w)), (24, 63), (33, 63)
    )
    assert sorted(one.name for one in inspect(made)) == ["matmul", "transpose"]


def test_the_share_of_tensor_cores() -> None:
    """A matmul of two calls on tensor cores, one in float32, and a norm that counts for nothing."""

    def make(x: relax.Expr, w: relax.Expr) -> relax.Expr:
        x, w = relax.op.nn.softmax(x), relax.op.nn.rms_norm(w, relax.op.ones((32,), "float32"), -1)
        near, weights = (relax.op.astype(one, "float16") for one in (x, w))
        twice = relax.op.matmul(relax.op.matmul(near, weights), weights)
        whole = relax.op.matmul(x, relax.op.permute_dims(x))
        return relax.op.add(relax.op.sum(twice), relax.op.astype(relax.op.sum(whole), "float16"))

    reports = inspect(_module(make, (64, 32), (32, 32), dtype="float32"))
    counts = {one.on_tensor_cores: one.operations for one in reports if one.operations}
    assert counts == {True: 2 * 2 * 64 * 32 * 32, False: 2 * 64 * 64 * 32}
    assert share_on_tensor_cores(reports) == 0.5
    assert share_on_tensor_cores([]) is None
