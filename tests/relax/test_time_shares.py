"""Where the time of a model goes: launches, FLOPs and bytes are counted, times are modelled."""

from __future__ import annotations

import doctest
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import tvm
from rich.console import Console
from tvm import relax, tirx

from tests.shared.small_llama import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYERS,
    WORDS,
    small_llama,
)
from warploom import cli, pictures
from warploom.decide.families import paged_decode
from warploom.decide.model import predict
from warploom.decide.problem import plain_gemm
from warploom.decide.selector import choose
from warploom.relax import launch_cost
from warploom.relax import time_shares as time_shares_module
from warploom.relax.inspect import Inspected, inspected
from warploom.relax.shares_picture import COLOURS, draw
from warploom.relax.shares_table import SharesTable, number, percent, si
from warploom.relax.time_shares import (
    ROWS,
    TVM,
    WGMMA,
    FunctionShares,
    KernelShare,
    shares_of,
    time_shares,
)
from warploom.target import cuda_target

_QUANTITIES = ("time", "flops", "bytes")


def _module(make: Callable[..., Any], *shapes: tuple[Any, ...], dtype: str = "float16") -> Any:
    """A function of tensors; a size that is a name is symbolic."""
    builder = relax.BlockBuilder()
    sizes: dict[str, tirx.Var] = {}

    def extent(size: int | str) -> Any:
        return sizes.setdefault(size, tirx.Var(size, "int64")) if isinstance(size, str) else size

    params = [
        relax.Var(f"p{number}", relax.TensorType([extent(one) for one in shape], dtype))
        for number, shape in enumerate(shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(make(*params)))
        builder.emit_func_output(out)
    return builder.get()


def _linear(x: relax.Expr, w: relax.Expr) -> relax.Expr:
    return relax.op.matmul(x, relax.op.permute_dims(w))


def test_a_gemm_costs_what_its_sizes_say(rng: np.random.Generator) -> None:
    for _ in range(3):
        m, n, k = (int(8 * size) for size in rng.integers(1, 300, 3))
        (shares,) = time_shares(_module(_linear, (m, k), (n, k)))
        (kernel,) = shares.kernels
        assert (kernel.kind, kernel.calls, shares.sizes) == (WGMMA, 1, {})
        assert kernel.flops == 2 * m * n * k
        assert kernel.bytes == 2 * (m * k + n * k + m * n)
        problem = plain_gemm(m, n, k)
        assert kernel.time == pytest.approx(predict(problem, choose(problem)).total, rel=0.1)
        assert f"{m} x {n} x {k}, tile " in kernel.words


def test_symbolic_sizes_count_as_4096() -> None:
    mod = _module(_linear, ("rows", 64), (32, 64))
    (unsaid,), (said,), (few,), (one,) = (
        time_shares(mod, sizes) for sizes in ({}, {"rows": 4096}, {"rows": 16}, {"rows": 1})
    )
    assert unsaid == said and unsaid.sizes == {"rows": 4096}
    assert few.total("flops") * 256 == said.total("flops")
    assert one.total("time") <= few.total("time") < said.total("time")
    assert one.kernels[0].kind == WGMMA and one.kernels[0].words.startswith("1 x 32 x 64, tile ")


def test_other_gpus_are_modelled() -> None:
    mod = _module(_linear, (4096, 4096), (4096, 4096))
    times = [
        time_shares(mod, target=cuda_target(gpu))[0].total("time") for gpu in ("h200", "h100-pcie")
    ]
    assert times[0] < times[1]


def test_functions_that_are_called_count_as_often() -> None:
    """Twice a layer of two matmuls, and one more of the model's own."""
    builder, gain = relax.BlockBuilder(), relax.const(np.ones(64, "float16"))
    x, w = (relax.Var(name, relax.TensorType([64, 64], "float16")) for name in "xw")
    with builder.function("layer", [x, w], private=True):
        with builder.dataflow():
            once = builder.emit(relax.op.nn.rms_norm(relax.op.matmul(x, w), gain, -1))
            out = builder.emit_output(builder.emit(relax.op.matmul(once, w)))
        builder.emit_func_output(out)
    (layer,) = builder.get().get_global_vars()
    x, w = (relax.Var(name, relax.TensorType([64, 64], "float16")) for name in "xw")
    with builder.function("main", [x, w]):
        with builder.dataflow():
            once = builder.emit(relax.Call(layer, [x, w]))
            twice = builder.emit(relax.Call(layer, [once, w]))
            out = builder.emit_output(builder.emit(relax.op.matmul(twice, w)))
        builder.emit_func_output(out)
    (shares,) = time_shares(builder.get())
    assert shares.name == "main"
    assert shares.total("calls", WGMMA) == 5 and shares.total("calls", ROWS) == 2
    assert shares.total("flops") == 5 * 2 * 64**3


def test_a_look_up_reads_the_rows_that_it_takes() -> None:
    def look_up(table: relax.Expr, ids: relax.Expr) -> relax.Expr:
        return relax.op.take(table, relax.op.astype(ids, "int32"), axis=0, mode="clip")

    (shares,) = time_shares(_module(look_up, (50000, 128), (7,)))
    moved = max(one.bytes for one in shares.kernels)
    rows = 2 * 7 * 128 * 2
    assert rows <= moved <= rows + 7 * 8
    (shares,) = time_shares(_module(look_up, (5, 128), (700,)))
    assert max(one.bytes for one in shares.kernels) < 2 * (700 + 5) * 128 + 700 * 8 + 1


def test_shares_are_sorted_and_make_a_whole() -> None:
    def make(x: relax.Expr, w: relax.Expr) -> relax.Expr:
        narrow = _linear(*(relax.op.astype(one, "float16") for one in (x, w)))
        product = relax.op.matmul(_linear(x, w), relax.op.astype(narrow, "float32"))
        return relax.op.nn.softmax(product)

    (shares,) = time_shares(_module(make, (64, 64), (64, 64), dtype="float32"))
    times = [kernel.time for kernel in shares.kernels]
    assert times == sorted(times, reverse=True) and {one.kind for one in shares.kernels} == {
        WGMMA, ROWS, TVM,
    }  # fmt: skip
    for quantity in _QUANTITIES:
        assert sum(shares.share(quantity, one) for one in shares.kernels) == pytest.approx(1)
        assert sum(shares.share(quantity, kind) for kind in (WGMMA, ROWS, TVM)) == pytest.approx(1)


def test_what_is_left_to_tvm_has_a_reason_and_a_lower_bound() -> None:
    mod = _module(_linear, (64, 64), (64, 64), dtype="float32")
    (kernel,) = (one for one in time_shares(mod)[0].kernels if one.flops)
    assert kernel.kind == TVM and kernel.at_least and "float32" in kernel.reason
    (kernel,) = (one for one in time_shares(mod, tf32=True)[0].kernels if one.flops)
    assert kernel.kind == WGMMA and not kernel.at_least and not kernel.reason


def test_attention_is_priced_by_its_tiles() -> None:
    # So many tiles that those which a causal mask leaves out outweigh those that it crosses.
    tokens, heads, dim = 4096, 16, 64
    shapes = [(1, tokens, heads, dim)] * 3
    (whole,) = time_shares(_module(relax.op.nn.attention, *shapes))
    (causal,) = time_shares(
        _module(lambda *a: relax.op.nn.attention(*a, causal_mask="TopLeft"), *shapes)
    )
    (kernel,) = whole.kernels
    assert kernel.kind == WGMMA and kernel.bytes == 4 * 2 * tokens * heads * dim
    assert kernel.flops == 4 * heads * tokens * tokens * dim
    assert causal.total("flops") == 4 * heads * tokens * (tokens + 1) / 2 * dim
    assert causal.total("time") < whole.total("time")


def test_what_launches_nothing_is_left_out() -> None:
    assert time_shares(_module(lambda x: relax.op.reshape(x, (16, 4)), (8, 8))) == []
    empty = FunctionShares("main", {}, (), {"library.sort": 2})
    text = " ".join(_printed(empty, 80).split())
    assert text == "main not modelled: 2 calls of library.sort"
    assert [one.text for one in draw([], "h200").words] == ["modelled on h200, not measured"]


def test_calls_of_libraries_are_listed() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([8, 64], "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.call_dps_packed("library.sort", relax.Tuple([x]), x.ty))
            out = builder.emit_output(builder.emit(relax.op.nn.silu(y)))
        builder.emit_func_output(out)
    (shares,) = time_shares(builder.get())
    assert shares.uncounted == {"library.sort": 1} and shares.total("calls") == 1
    assert "not modelled: 1 call of library.sort" in _printed(shares, 80)


@pytest.mark.parametrize("module", [launch_cost, paged_decode, time_shares_module])
def test_examples_of_docstrings(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted and not found.failed


@pytest.mark.parametrize(("mask", "pairs"), [("TopLeft", 10), ("BottomRight", 4 * 12 - 6)])
@pytest.mark.parametrize("transposed", [False, True])
def test_masked_keys_are_not_counted(mask: str, pairs: int, transposed: bool) -> None:
    """4 queries and 12 keys, heads of 64 and 24 elements, before or behind tokens."""

    def make(*operands: relax.Expr) -> relax.Expr:
        if transposed:
            operands = tuple(relax.op.permute_dims(one, (0, 2, 1, 3)) for one in operands)
        return relax.op.nn.attention(*operands, causal_mask=mask)

    shapes = [(2, 4, 2, 64), (2, 12, 2, 64), (2, 12, 2, 24)]
    if transposed:
        shapes = [(batch, heads, tokens, dim) for batch, tokens, heads, dim in shapes]
    (shares,) = time_shares(_module(make, *shapes))
    assert shares.total("flops") == 2 * 2 * 2 * pairs * (64 + 24)


@pytest.fixture(scope="module")
def inspected_llama() -> Inspected:
    """A small model with a paged KV cache: 96 tokens, or one of each of 3 sequences."""
    target = cuda_target("h200")
    return inspected(small_llama(target, 96, 3)[0], False, None, target)


@pytest.fixture
def llama(inspected_llama: Inspected) -> dict[str, FunctionShares]:
    """Its functions, by name; sequences have 200 keys."""
    return {one.name: one for one in shares_of(inspected_llama, context=200)}


@pytest.mark.in_turn(2)
def test_calls_of_a_cache_are_the_kernels_that_it_was_made_with(
    llama: dict[str, FunctionShares],
) -> None:
    assert set(llama) == {"embed", "prefill", "batch_decode"}  # no kernel makes a cache
    assert llama["prefill"].sizes == {} and llama["batch_decode"].sizes == {"context": 200}
    for name, attention in (
        ("prefill", "batch_prefill_ragged_kv"), ("batch_decode", "batch_decode_paged_kv"),
    ):  # fmt: skip
        calls = {one.name: one.calls for one in llama[name].kernels}
        for kernel in (attention, "fused_rope", "tir_kv_cache_transpose_append"):
            assert calls[kernel] == LAYERS, (name, kernel)
        assert sum(calls[one] for one in calls if one.startswith("rms_norm")) >= 2 * LAYERS
        assert not llama[name].uncounted
        assert {one.kind for one in llama[name].kernels} == {WGMMA, ROWS}


@pytest.mark.in_turn(2)
def test_the_work_of_a_decoder_is_that_of_its_layers(llama: dict[str, FunctionShares]) -> None:
    weights = LAYERS * HIDDEN * ((2 * HEADS + 2 * KV_HEADS) * HEAD_DIM + 3 * INNER)
    attention = LAYERS * 4 * HEADS * HEAD_DIM
    decode, prefill = llama["batch_decode"], llama["prefill"]
    assert decode.total("flops") == 2 * 3 * (weights + WORDS * HIDDEN) + attention * 3 * 200
    assert prefill.total("flops") == (
        2 * (96 * weights + WORDS * HIDDEN) + attention * 96 * 97 / 2
    )
    (cached,) = (one for one in decode.kernels if one.name == "batch_decode_paged_kv")
    keys_and_values = 3 * 200 * 2 * KV_HEADS * HEAD_DIM
    assert cached.bytes == 2 * LAYERS * (keys_and_values + 3 * 2 * HEADS * HEAD_DIM)


@pytest.mark.in_turn(2)
def test_decoding_takes_longer_with_more_keys(inspected_llama: Inspected) -> None:
    times = []
    for context in (1000, 100000):
        functions = {one.name: one for one in shares_of(inspected_llama, context=context)}
        kernels = {one.name: one.time for one in functions["batch_decode"].kernels}
        times.append(kernels["batch_decode_paged_kv"])
    assert times[1] > 5 * times[0]


def _shares() -> FunctionShares:
    """A function with each kind of kernel, names of any length, and calls of a library."""
    kernels = [
        KernelShare("fused_" * 12, WGMMA, 32, 12345.6, 3e15, 2e12, False, "8 x 8 x 8, tile " * 9),
        KernelShare("conv", TVM, 1, 250.0, 1e9, 1e6, True, "no kernel", "a long reason " * 30),
        KernelShare("norm", ROWS, 64, 0.2, 0, 1e4, False, "rows"),
    ]  # fmt: skip
    return FunctionShares("main", {"n": 4096}, tuple(kernels), {"library.gemm": 3})


def _printed(shares: FunctionShares, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(SharesTable(shares))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_tables_fit_the_terminal(width: int) -> None:
    text = _printed(_shares(), width)
    assert max(map(len, text.splitlines())) <= width
    header = next(line for line in text.splitlines() if "calls" in line).split()
    assert header == ["time", "µs", "calls", "FLOPs", "bytes", "by", "kernel"] + (
        ["what"] if width >= 110 else []
    )
    assert "98.0%" in text and "12,346" in text and "≥250" in text and "<0.1%" in text
    assert " ".join(text.split()).count("a long reason") == 30
    assert "left to TVM: conv: " in text and "not modelled: 3 calls of library.gemm" in text
    assert "at least 12,596 µs, 3 PFLOP, 2 TB, 97 launches" in text


@pytest.mark.in_turn(2)
def test_every_number_of_a_table_is_whole(llama: dict[str, FunctionShares]) -> None:
    """No cell of numbers is cut off, and every kernel has its row."""
    for shares in llama.values():
        for width in (80, 120):
            text = _printed(shares, width)
            rows = [line for line in text.splitlines() if line.strip().split(" ")[0].endswith("%")]
            assert len(rows) == len(shares.kernels)
            for row, kernel in zip(rows, shares.kernels, strict=True):
                assert percent(shares.share("time", kernel)) in row and kernel.kind in row
                assert number(kernel.time) in row and kernel.name[:20] in row


def test_numbers_for_people() -> None:
    assert [number(one) for one in (0.814, 12.34, 1234.5)] == ["0.81", "12.3", "1,234"]
    assert [percent(one) for one in (0, 0.0004, 0.5, 0.9996, 1)] == [
        "0.0%", "<0.1%", "50.0%", "100%", "100%",
    ]  # fmt: skip
    assert [si(one) for one in (1, 1234, 5.6e12)] == ["1 ", "1.23 k", "5.6 T"]


_MODEL = """
from tvm.relax.frontend import nn
def model():
    layer = nn.Linear(64, 128)
    layer.to("float16")
    return layer.export_tvm({"forward": {"x": nn.spec.Tensor(["rows", 64], "float16")}})[0]
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "model.py").write_text(_MODEL)
    return f"{tmp_path / 'model.py'}:model"


def test_the_command_prints_json(model: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["inspect", "relax", model, "--size", "rows=32", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["gpu"], found["source"]) == ("h200", "modelled")
    (function,) = found["functions"]
    assert (function["name"], function["sizes"]) == ("forward", {"rows": 32})
    assert function["time_us"] == pytest.approx(sum(one["time_us"] for one in function["kernels"]))
    assert function["shares"][WGMMA] == {quantity: 1.0 for quantity in _QUANTITIES}
    (kernel,) = function["kernels"]
    assert kernel["flops"] == 2 * 32 * 128 * 64 and kernel["calls"] == 1


def test_sizes_that_the_model_does_not_have_are_refused(
    model: str, capsys: pytest.CaptureFixture
) -> None:
    assert cli.main(["inspect", "relax", model, "--size", "n=32"]) != 0
    assert "no symbolic size n; it has rows." in capsys.readouterr().err
    assert cli.main(["inspect", "relax", model, "--target", "b200"]) != 0
    assert "--target b200 is no GPU of sm_90a" in capsys.readouterr().err


def test_pictures_show_every_kernel(model: str, tmp_path: Path) -> None:
    path = tmp_path / "made" / "shares.svg"
    assert cli.main(["inspect", "relax", model, "--svg", str(path)]) == 0
    nodes = ElementTree.parse(path).getroot().iter()
    words = [one.text or "" for one in nodes if "text" in one.tag]
    (title,) = (one for one in words if one.startswith("forward: "))
    assert "(rows = 4096)" in title and "modelled on h200, not measured" in words
    assert {"100%", "1 x", "tensor cores (wgmma) 100%"} <= set(words)


def test_bars_are_as_long_as_their_times() -> None:
    shares = _shares()
    picture = draw([shares, shares], "h200")
    lengths = {
        kind: [one.width for one in picture.rects if one.colour == colour and one.height != 12]
        for kind, colour in COLOURS.items()
    }
    for kind in (WGMMA, TVM, ROWS):
        strip, bar = lengths[kind][:2]
        assert lengths[kind] == [strip, bar] * 2
        # The longest bar fills its column, the strip is the whole time.
        longest = lengths[WGMMA][1]
        (kernel,) = (one for one in shares.kernels if one.kind == kind)
        assert bar == pytest.approx(longest * kernel.time / shares.kernels[0].time)
        whole = sum(lengths[each][0] for each in lengths)
        assert strip == pytest.approx(whole * shares.share("time", kind))


def test_words_of_a_picture_stay_in_it() -> None:
    picture = draw([_shares()], "h200")
    assert all(0 <= one.x <= 920 and 0 <= one.y <= picture.height for one in picture.words)
    assert all(0 <= one.x <= one.x + one.width <= 920 for one in picture.rects)
    (name,) = (one.text for one in picture.words if one.text.startswith("fused_"))
    assert len(name) == 36 and name.endswith("…")
    (time,) = (one for one in picture.words if one.text == "≥ 250 µs")
    assert time.colour == COLOURS[TVM]


def test_many_kernels_are_drawn_as_others() -> None:
    kernels = tuple(
        KernelShare(f"<kernel {i}>", ROWS, 1, 40.0 - i, 0, 1, False, "") for i in range(30)
    )
    picture = draw([FunctionShares("f", {}, kernels, {})], "h200")
    words = [one.text for one in picture.words]
    assert "<kernel 10>" in words and "<kernel 11>" not in words and "19 others" in words
    root = ElementTree.fromstring(pictures.svg(picture))
    found = [one.text for one in root.iter() if "text" in one.tag]
    assert found == words


def test_a_png_has_the_pixels_of_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="it draws PNGs")
    pictures.write(draw([_shares()], "h200"), tmp_path / "f.png")
    data = (tmp_path / "f.png").read_bytes()
    assert data.startswith(b"\x89PNG") and int.from_bytes(data[16:20], "big") == 2 * 920


def test_a_png_needs_matplotlib(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(tvm.transform, "Sequential", None)  # nothing is done before
    assert cli.main(["inspect", "relax", model, "--png", str(tmp_path / "f.png")]) != 0
    assert "pip install 'warploom[plot]'" in capsys.readouterr().err
