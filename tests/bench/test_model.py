"""Whole models: the count of their work, small sizes of them, and the frame that measures rows."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import math
import re
import sys
import weakref
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warploom_bench.__main__ as bench
from tests.bench.on_host import HostKernels
from warploom.errors import WarploomError
from warploom.relax.time_shares import time_shares
from warploom.target import cuda_target
from warploom.target.gpus import GPUS
from warploom_bench.check import deviation
from warploom_bench.models import clocks, command, results, rivals, roofline, rows
from warploom_bench.models.clocks import Span, own_times
from warploom_bench.models.hardware import float16_peak
from warploom_bench.models.language import language_module
from warploom_bench.models.measure_language import ALLOWED
from warploom_bench.models.parameters import NumpyArrays, random_parameters
from warploom_bench.models.reference import Reference
from warploom_bench.models.results import FAILED, LEFT_OUT, MEASURED, Result, Runner
from warploom_bench.models.roofline import Work
from warploom_bench.models.rows import ATTENTION, DECODE, Row, rows_of
from warploom_bench.models.session import Session
from warploom_bench.models.sizes import LANGUAGE, WEIGHTS, LanguageSizes
from warploom_bench.report import EXIT_RIGHT, EXIT_WRONG

SIZES = LanguageSizes(2, 64, 96, 100, 4, 2, 16)
EXPERTS = dataclasses.replace(SIZES, experts=4, choices=2)
LATENT = LanguageSizes(2, 64, 96, 100, 4, 4, 16, latent=24, rotated=8)
#: Models and kinds of weights that the tests take.
VARIANTS = [
    ("llama-3-8b", "float16"), ("qwen-2.5-7b", "int4"), ("llama-3-8b", "fp8"),
    ("mixtral-moe", "float16"), ("deepseek-v2-lite-mla", "float16"),
]  # fmt: skip


def loops(sizes: LanguageSizes, sequences: int, new: int, context: int) -> float:
    """FLOPs of a step, counted matmul by matmul and pair by pair."""
    flops = 0.0
    for _ in range(sizes.layers):
        for outputs, inputs in sizes.projections.values():
            flops += 2 * sequences * new * outputs * inputs
        for _ in range(sequences):
            for token in range(new):
                keys = context + token + 1
                if sizes.latent and new == 1:
                    flops += 2 * keys * sizes.heads * (2 * sizes.latent + sizes.rotated)
                else:
                    flops += 2 * keys * sizes.heads * (sizes.query_dim + sizes.head_dim)
        if sizes.experts:
            flops += 2 * sequences * new * sizes.hidden * sizes.experts
            each = 3 * sizes.intermediate * sizes.hidden
            flops += 2 * sequences * new * sizes.choices * each
    return flops + 2 * sequences * sizes.vocabulary * sizes.hidden


@pytest.mark.parametrize("sizes", [SIZES, EXPERTS, LATENT], ids=["dense", "experts", "latent"])
@pytest.mark.parametrize(("sequences", "new", "context"), [(1, 7, 0), (3, 1, 9), (2, 5, 4)])
def test_flops_are_those_of_all_matmuls_and_pairs(sizes, sequences, new, context):
    found = roofline.language_step(sizes, sequences, new, context)
    assert found.flops == pytest.approx(loops(sizes, sequences, new, context))


def test_bytes_of_a_decode_step_are_weights_and_cache():
    weights = sum(n * k for n, k in SIZES.projections.values()) * SIZES.layers + 100 * 64
    for batch, context in ((1, 10), (5, 300)):
        cache = batch * (context + 1) * 2 * 2 * 16 * SIZES.layers
        ends = batch * (64 * 2 + 100 * 4)
        found = roofline.language_step(SIZES, batch, 1, context)
        assert found.bytes == 2 * (weights + cache) + ends


def test_weights_of_fewer_bits_are_fewer_bytes():
    found = {kind: roofline.linear(3, 128, 256, kind) for kind in WEIGHTS}
    assert found["int4"].bytes == 128 * 256 // 2 + 128 * 256 // 32 * 2
    assert found["fp8"].bytes * 2 == found["float16"].bytes == 128 * 256 * 2
    # Fp8 is multiplied twice as fast.
    assert found["fp8"].flops * 2 == found["float16"].flops == 2 * 3 * 128 * 256


def test_experts_that_are_read_are_those_that_tokens_take():
    """The expectation is compared with draws."""
    rng = np.random.default_rng(0)
    each = 3 * EXPERTS.intermediate * EXPERTS.hidden * 2
    for tokens in (1, 2, 5):
        taken = [
            len({e for _ in range(tokens) for e in rng.permutation(4)[:2]}) for _ in range(4000)
        ]
        read = roofline.experts(EXPERTS, tokens).bytes - 4 * 64 * 2
        assert read / each == pytest.approx(np.mean(taken), rel=0.02)


def test_known_models_have_the_parameters_that_they_are_named_for():
    """Within a percent of what their authors say, of the embedding and the head too."""
    for name, billions in (("llama-3-8b", 8.03), ("qwen-2.5-7b", 7.62)):
        memory = roofline.language_memory(LANGUAGE[name], 0, 0, 0)
        assert memory / 2e9 == pytest.approx(billions, rel=0.01)
    # 32 layers of Mixtral 8x7B have 46.7 billion.
    whole = dataclasses.replace(LANGUAGE["mixtral-moe"], layers=32)
    assert roofline.language_memory(whole, 0, 0, 0) / 2e9 == pytest.approx(46.7, rel=0.01)


def test_roofline_is_the_longer_of_bytes_and_flops():
    assert Work(8.0, 1.0).seconds(4.0, 2.0) == 2.0
    assert Work(1.0, 8.0).seconds(4.0, 2.0) == 4.0
    assert (Work(1.0, 2.0) + Work(3.0, 4.0)).times(2) == Work(8.0, 12.0)
    assert float16_peak(GPUS["h100"]) == pytest.approx(1.07e15, rel=1e-2)


def test_rows_have_names_of_their_own():
    for model in rows.MODELS:
        names = [str(row) for row in rows_of(model)]
        assert len(set(names)) == len(names) > 0
    llama = set(map(str, rows_of("llama-3-8b")))
    assert {"prefill-512", "decode-256x8192", "attention-8x8192"} <= llama
    alone = [row for row in rows_of("llama-3-8b") if row.kind == ATTENTION]
    assert all(row.batch * row.tokens >= 65536 for row in alone)
    assert ATTENTION not in {row.kind for row in rows_of("deepseek-v2-lite-mla")}


def test_samples_alternate_and_tell_the_host_from_the_device():
    now, calls = [0.0], []

    def step(name: str, host: float) -> None:
        calls.append(name)
        now[0] += host

    def wait() -> None:
        calls.append("wait")
        now[0] += 3.0

    runners = {"a": Runner(), "b": Runner()}
    clocks.alternate(
        {"a": (lambda: step("a", 1.0), runners["a"]), "b": (lambda: step("b", 2.0), runners["b"])},
        wait, rounds=2, steps=3, idle=0.0, clock=lambda: now[0],
    )  # fmt: skip
    assert runners["a"].wall == [4e3] * 6 and runners["a"].host == [1e3] * 6
    assert runners["b"].wall == [5e3] * 6 and runners["b"].median == 5e3
    assert "".join(one for one in calls if one != "wait") == "aaaabbbbbbbbaaaa"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.integers(1, 30))))
def test_own_times_add_up_to_the_time_in_which_kernels_run(drawn):
    spans = [Span(name, start, start + length) for name, start, length in drawn]
    own = own_times(spans)
    assert own.keys() == {span.name for span in spans}
    assert sum(own.values()) == len({t for span in spans for t in range(span.start, span.end)})
    for name, time in own.items():
        assert 0 <= time <= sum(span.end - span.start for span in spans if span.name == name)


def test_a_profile_does_not_count_the_wait_of_a_kernel_that_starts_early(monkeypatch):
    """Two steps, each a GEMM and a norm that is launched 1 us behind it."""

    class Profile:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def events(self):
            for start in (0, 100):
                yield event("gemm", start, start + 40)
                yield event("norm", start + 1, start + 43)
            yield event("on the host", 0, 200, "CPU")

    def event(name, start, end, device="CUDA"):
        return SimpleNamespace(
            name=name, device_type=device, time_range=SimpleNamespace(start=start, end=end)
        )

    kinds = SimpleNamespace(CUDA="CUDA")
    made = SimpleNamespace(ProfilerActivity=kinds, profile=lambda activities: Profile())
    monkeypatch.setitem(sys.modules, "torch.profiler", made)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(profiler=made))
    steps, waits = [], []
    torch = SimpleNamespace(
        cuda=SimpleNamespace(synchronize=lambda: waits.append(1)),
        autograd=SimpleNamespace(DeviceType=kinds),
    )
    found = clocks.profiled(torch, lambda: steps.append(1), 2)
    assert found == {"gemm": (0.04, 1.0), "norm": (0.003, 1.0)}
    assert len(steps) == 3 and len(waits) == 3  # the first step warms up


@pytest.mark.parametrize(
    ("graph", "launches", "faster"), [(1.0, 1.5, "graphs"), (2.0, 1.5, "launches")]
)
def test_decode_steps_run_the_faster_way(graph, launches, faster):
    """The cache has no more tokens behind the comparison than before it."""
    now, tokens = [0.0], [5]

    class Way:
        def __init__(self, seconds, **counts):
            self.seconds, self.counts = seconds, SimpleNamespace(declined="", **counts)

        def __call__(self, *_):
            now[0] += self.seconds
            return ["logits"]

    class Cache:
        state = None

        def begin(self, sequences, count):
            tokens[0] += count * len(sequences)

        def end(self):
            pass

        def pop(self, _, count):
            tokens[0] -= count

    session = object.__new__(Session)
    session.__dict__.update(
        _graphs=Way(graph), _launches=Way(launches), _parameters=(), cache=Cache(),
        _device=SimpleNamespace(sync=lambda: None),
    )  # fmt: skip
    times = session.take_faster((0, 1), None, clock=lambda: now[0])
    assert times == {"graphs": 1e3 * graph, "launches": 1e3 * launches} and tokens == [5]
    start = now[0]
    session.decode((0, 1), None)
    assert 1e3 * (now[0] - start) == times[faster]
    session._graphs.counts.declined = "a reason"
    assert session.take_faster((0, 1), None) == {}


def measured(**changes) -> Result:
    result = Result("llama-3-8b", "decode-1x512", allowed=0.02, work={"bytes": 4e9, "flops": 1e9},
                    bandwidth=4e12, peak=1e15, rival_name="PyTorch")  # fmt: skip
    result.ours = Runner([2.0, 2.2, 1.8], [0.5] * 3, error=1e-3)
    result.rival = Runner([3.0], [0.1], error=2e-3)
    return dataclasses.replace(result, **changes)


def test_a_result_is_kept_and_shown(tmp_path):
    result = measured()
    result.ours.read_kernels({"b": (0.5, 2.0), "a": (1.0, 1.0)})
    assert list(result.ours.kernels) == ["a", "b"] and result.ours.device == 1.5
    result.save(tmp_path / "row.json")
    again = results.load(tmp_path / "row.json")
    assert again.ours.median == 2.0 and again.work == result.work
    cells = results.line(again)
    # 4 GB at 4 TB/s are a millisecond.
    assert cells[1:9] == ["2.000", "0.500", "1.500", "3.000", "1.500", "1.000", "50%", "1.0e-03"]
    assert "1.0000" in results.by_kernel(again.ours)
    facts = {"date": "d", "command": "c", "gpu": {}, "versions": {}}
    left = Result("llama-3-8b", "decode-256x8192", LEFT_OUT, "too large")
    results.write([again, left], facts, tmp_path, "llama-3-8b")
    text = (tmp_path / "llama-3-8b.md").read_text()
    assert "too large" in text and "the rival is PyTorch" in text
    content = json.loads((tmp_path / "llama-3-8b.json").read_text())
    assert [one["status"] for one in content["rows"]] == [MEASURED, LEFT_OUT]


@pytest.mark.parametrize(
    ("error", "status", "wrong"),
    [(1e-3, MEASURED, False), (3e-2, MEASURED, True), (math.nan, MEASURED, True),
     (None, LEFT_OUT, False), (None, FAILED, True)],
)  # fmt: skip
def test_what_is_wrong(error, status, wrong):
    result = measured(status=status)
    result.ours.error = error
    assert result.is_wrong == wrong


def child(code: str) -> list[str]:
    return [sys.executable, "-X", "faulthandler", "-c", code]


def test_a_row_that_crashes_costs_only_itself(tmp_path):
    row, into = Row(DECODE, 1, 512), tmp_path / "row.json"
    crash = child("import faulthandler; faulthandler._sigsegv()")
    lost = command.watched(crash, "llama-3-8b", row, into)
    assert (lost.status, lost.row) == (FAILED, "decode-1x512")
    assert "Segmentation fault" in lost.reason and "status -11" in lost.reason
    measured().save(into)
    kept = command.watched(crash, "llama-3-8b", row, into)
    assert kept.status == MEASURED and "Segmentation fault" in kept.notes[0]
    hung = command.watched(child("import time; time.sleep(60)"), "m", row, tmp_path / "no", 0.5)
    assert hung.status == FAILED and "it hung" in hung.reason
    noise = "[print('x: UserWarning: w', i) or print('thread', i, 'asserts') for i in range(99)]"
    noisy = command.watched(child(f"{noise}; print('why'); 1 / 0"), "m", row, tmp_path / "no")
    said = noisy.reason.partition(": ")[2].splitlines()
    assert said[0] == "thread 0 asserts" and "why" in said and "UserWarning" not in noisy.reason
    good = command.watched(child("pass"), "llama-3-8b", row, into)
    assert good.status == MEASURED and not good.notes


def test_a_graph_holds_the_memory_of_its_capture():
    class Held:
        pass

    held, torch = Held(), MagicMock()
    alive = weakref.ref(held)
    replay, found = rivals.captured(torch, lambda held=held: held is not None)
    del held
    gc.collect()
    assert found is True and alive() is not None
    replay()
    torch.cuda.CUDAGraph().replay.assert_called_once_with()
    del replay
    gc.collect()
    assert alive() is None


def test_the_command_says_what_it_cannot_do(tmp_path, capsys):
    asked = [
        (["llama-3-8b", "--row", "decode-3x7"], "allowed are prefill-512"),
        (["llama-3-8b", "--gpu", "h100"], "add --tiny"),
        (["resnet-50", "--gpu", "h100", "--compile-only", "--kernels", str(tmp_path)],
         "its weights are constants"),
    ]  # fmt: skip
    for arguments, reason in asked:
        assert bench.main(["model", *arguments]) == 3
        assert reason in capsys.readouterr().err


def test_a_process_measures_the_row_that_it_was_started_for(monkeypatch, tmp_path):
    started, asked = [], ["llama-3-8b", "--gpu", "h100", "--row", "prefill-512"]
    asked += ["--row", "decode-8x2048", "--layers", "3", "--weights", "int4"]

    def watched(line, model, row, into):
        options = []
        monkeypatch.setattr(command, "_run_row", lambda *them: options.append(them) or EXIT_RIGHT)
        assert line[1:6] == ["-X", "faulthandler", "-m", "warploom_bench", "model"]
        assert command.main(line[6:]) == EXIT_RIGHT
        ((own, its, kernels),) = options
        assert own == row and its.into == into and kernels.folder == tmp_path
        assert command.sizes_of(its) == dataclasses.replace(
            LANGUAGE["llama-3-8b"], layers=3, weights="int4"
        )
        started.append(str(row))
        return measured()

    monkeypatch.setattr(command, "watched", watched)
    options = command.parsed([*asked, "--kernels", str(tmp_path)])
    found = list(command.in_processes(command.chosen(options), asked, options))
    assert started == ["prefill-512", "decode-8x2048"] and len(found) == 2


@pytest.mark.parametrize(
    ("model", "row", "module", "kind"),
    [("bert-large", "forward-64", "measure_exported", "ExportedBench"),
     ("llama-3-8b", "decode-8x512", "measure_language", "LanguageBench"),
     ("llama-3-8b", "attention-256x512", "measure_attention", "AttentionBench")],
)  # fmt: skip
@pytest.mark.parametrize("alone", [False, True])
def test_ours_is_measured_alone(
    model: str, row: str, module: str, kind: str, alone: bool, monkeypatch, tmp_path, capsys
) -> None:
    from warploom_bench import run, torch_timer
    from warploom_bench.models import hardware

    torch = pytest.importorskip("torch")
    bench = getattr(importlib.import_module(f"warploom_bench.models.{module}"), kind)
    benches = []

    def measure(self, row, result):
        benches.append(self)
        result.ours.read_kernels({"gemm": (3.0, 2.0), "norm": (1.0, 4.0)})
        yield

    monkeypatch.setattr(bench, "measure", measure)
    monkeypatch.setattr(run, "import_torch", lambda: torch)
    monkeypatch.setattr(torch_timer, "copy_speed", lambda torch: 1e12)
    monkeypatch.setattr(hardware, "float16_peak", lambda gpu: 1e15)
    monkeypatch.setattr(command, "_gpu_here", lambda: None)
    into = tmp_path / "row.json"
    asked = [model, "--gpu", "h100", "--row", row, "--into", str(into), "--profile"]
    asked += ["--kernels", str(tmp_path)] + ["--no-rival"] * alone
    assert command.main(asked) == EXIT_RIGHT
    assert [one.rival for one in benches] == [not alone]
    command.report(iter([results.load(into)]), asked, command.parsed(asked))
    said = capsys.readouterr().out
    assert f"{row}, ours:" in said and f"{row}, rival:" not in said
    assert re.search(r"gemm\s*\| 3.0000 \| 75%\s*\| 2\s*\| 1500.0", said)


def test_a_report_is_written_row_by_row(tmp_path, capsys):
    options = command.parsed(["llama-3-8b", "--gpu", "h100", "--out", str(tmp_path), "--profile"])
    good, bad = measured(), measured(row="decode-8x512", ours=Runner([1.0], [1.0], error=1.0))
    assert command.report(iter([good]), ["llama-3-8b"], options) == EXIT_RIGHT
    assert command.report(iter([good, bad]), ["llama-3-8b"], options) == EXIT_WRONG
    assert "WRONG 1.0e+00" in capsys.readouterr().out
    assert "decode-8x512" in (tmp_path / "llama-3-8b.md").read_text()
    with pytest.raises(WarploomError, match="No row could be measured"):
        command.report(iter([]), [], options)


@pytest.mark.gpu
@pytest.mark.in_turn(6)
@pytest.mark.parametrize(("name", "weights"), VARIANTS)
def test_small_language_models_are_right(name, weights):
    from warploom_bench.models.tiny import language_results

    found = list(language_results(name, weights, "h200", HostKernels()))
    assert len(found) == 4
    for result in found:
        assert not result.is_wrong, f"{result.row}: {result.ours.error:.1e} of {result.allowed:.1e}"


def placed(torch: Any, array: np.ndarray) -> Any:
    """A parameter as PyTorch has it."""
    if array.dtype == np.uint32:
        return torch.from_numpy(array.view(np.int32))
    if array.dtype == ml_dtypes.float8_e4m3fn:
        return torch.from_numpy(array.view(np.uint8)).view(torch.float8_e4m3fn)
    return torch.from_numpy(array)


@pytest.mark.parametrize(("name", "weights"), VARIANTS)
def test_the_rival_computes_the_same_model(name, weights, rng):
    """In float32, in one piece and token by token behind a cache; nearly so in float16."""
    torch = pytest.importorskip("torch", reason="PyTorch, the rival")
    from warploom_bench.models.language import parameter_shapes
    from warploom_bench.models.rivals import exact_attention
    from warploom_bench.models.torch_language import TorchLanguage

    sizes = dataclasses.replace(LANGUAGE[name].tiny(), weights=weights)
    shapes = parameter_shapes(sizes, cuda_target("h200"))
    parameters = random_parameters(NumpyArrays(rng), shapes)
    ids = rng.integers(0, sizes.vocabulary, 12)
    wanted = Reference(sizes, parameters).logits(ids)
    known = {key: placed(torch, one) for key, one in parameters.items()}
    tokens, places = torch.tensor(ids)[None], torch.arange(len(ids))
    for dtype, bound in ((torch.float32, 1e-5), (torch.float16, ALLOWED[weights])):
        model = TorchLanguage(torch, sizes, known, dtype, exact_attention(torch), "cpu")
        with torch.no_grad():
            whole = model.step(tokens, None, places)
            model.hold()
            caches = model.caches(1, len(ids))
            model.step(tokens[:, :-1], caches, places[:-1])
            last = model.step(tokens[:, -1:], caches, places[-1:])
        for found in (whole, last):
            assert deviation(found[0].numpy(), wanted[None]).relative <= bound


@pytest.mark.parametrize("name", LANGUAGE)
@pytest.mark.in_turn(2)
@pytest.mark.some(2)
def test_every_call_of_a_cache_has_its_kernels(name):
    target, sizes = cuda_target("h200"), LANGUAGE[name].tiny()
    shares = time_shares(language_module(sizes, target), {"b": 3, "n": 70}, 200, target=target)
    found = {one.name: one for one in shares}
    assert not any(one.uncounted for one in shares)
    latent = sizes.latent
    decode = "batch_prefill_paged_kv_mla" if latent else "batch_decode_paged_kv"
    append = "tir_kv_cache_transpose_append" + ("_mla" if latent else "")
    for function, kernel in (("prefill", "batch_prefill_ragged_kv"), ("decode", decode)):
        calls = {one.name: one.calls for one in found[function].kernels}
        assert calls[kernel] == calls[append] == sizes.layers
    (cached,) = (one for one in found["decode"].kernels if one.name == decode)
    width = latent + sizes.rotated if latent else 2 * sizes.kv_heads * sizes.head_dim
    of_query = 2 * latent + sizes.rotated if latent else 2 * sizes.head_dim
    assert cached.bytes == 2 * sizes.layers * 3 * (200 * width + sizes.heads * of_query)


def test_a_table_of_words_is_read_where_there_are_ids():
    torch = pytest.importorskip("torch", reason="PyTorch, whose models these are")
    from warploom_bench.models.measure_exported import least_bytes

    module = torch.nn.Sequential(torch.nn.Embedding(100, 8), torch.nn.Linear(8, 4)).half()
    ids = torch.zeros(2, 3, dtype=torch.int64)
    found = least_bytes(module, [ids], torch.zeros(2, 3, 4).half())
    assert found == 6 * 8 * 2 + (8 * 4 + 4) * 2 + 6 * 8 + 24 * 2


@pytest.mark.gpu
@pytest.mark.in_turn(4)
@pytest.mark.parametrize("name", rows.BATCHES)
def test_small_models_of_pytorch_are_right(name):
    pytest.importorskip("torch", reason="PyTorch, whose models these are")
    from warploom_bench.models.tiny import exported_results

    (result,) = exported_results(name, "h200")
    assert not result.is_wrong, f"{result.ours.error:.1e} of {result.allowed:.1e}"


def test_memory_grows_with_the_cache():
    def memory(batch: int, tokens: int) -> float:
        return roofline.language_memory(LANGUAGE["llama-3-8b"], batch, tokens, 2048)

    # 128 KiB a token, as it is known of the model.
    assert memory(8, 2048) - memory(0, 0) == 8 * 2048 * 131072
