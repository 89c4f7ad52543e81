"""The layers of public models, and how many of them records cover."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from warploom.decide.config import Config
from warploom.decide.ranking import ROW_LIMITS
from warploom.errors import WarploomError
from warploom.gemm.recognition import recognise
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.package_records import write
from warploom.meta_schedule.record_lines import KINDS
from warploom.meta_schedule.records import Record
from warploom.target.gpus import GPUS
from warploom_bench import hit_rate
from warploom_bench.model_gemms import (
    MOST_ROWS,
    SERVES,
    ModelGemm,
    buckets,
    by_importance,
    hits_of,
    layer_shares,
    limits,
    problem_of,
)
from warploom_bench.model_kernels import function
from warploom_bench.public_models import MODELS, Decoder, Encoder, LatentDecoder, Layer, UNet

BY_NAME = {name: model for model in MODELS for name in (model.name, *model.same)}

#: N and K of each layer, as published GEMM benchmarks and the checkpoints' weights have them.
SHAPES = {
    "Llama-3-8B": {(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)},
    "Llama-3.3-70B": {(10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672), (128256, 8192)},
    "DeepSeek-R1": {
        (2112, 7168), (24576, 1536), (32768, 512), (7168, 16384), (36864, 7168), (7168, 18432),
        (4096, 7168), (7168, 2048), (129280, 7168),
    },
    "DeepSeek-V2-Lite": {
        (3648, 2048), (4096, 512), (2048, 2048), (21888, 2048), (2048, 10944), (2816, 2048),
        (2048, 1408), (5632, 2048), (2048, 2816), (102400, 2048),
    },
    "gpt-oss-120b": {(5120, 2880), (2880, 4096), (5760, 2880), (2880, 2880), (201088, 2880)},
    "BERT-base": {(2304, 768), (768, 768), (3072, 768), (768, 3072), (30522, 768)},
    "Whisper-large-v3-turbo": {
        (3840, 1280), (1280, 1280), (2560, 1280), (5120, 1280), (1280, 5120), (51866, 1280)
    },
    "SD-1.5": {
        *{(3 * c, c) for c in (320, 640, 1280)}, *{(c, c) for c in (320, 640, 1280)},
        *{(2 * c, 768) for c in (320, 640, 1280)}, *{(8 * c, c) for c in (320, 640, 1280)},
        *{(c, 4 * c) for c in (320, 640, 1280)}, (1280, 320),
    },
}  # fmt: skip
#: Billions of parameters, embedding and head included, by the model card; and blocks.
PARAMETERS = {
    "Llama-2-7B": (6.74, 32), "Llama-3.1-8B": (8.03, 32), "Llama-3.1-405B": (405.9, 126),
    "Qwen2.5-32B": (32.8, 64), "Mistral-7B-v0.3": (7.25, 32), "Mistral-Small-3-24B": (23.6, 40),
    "Phi-4": (14.7, 40), "Phi-3-mini": (3.82, 32), "Qwen3-32B": (32.8, 64),
}  # fmt: skip
#: The same of models whose embedding is the head.
TIED = {
    "Gemma-2-9B": (9.24, 42), "Gemma-3-27B": (27.0, 62), "Gemma-3-1B": (1.0, 26),
    "Llama-3.2-3B": (3.21, 28), "Qwen3-4B": (4.02, 36), "Qwen2.5-1.5B": (1.54, 28),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_layers_are_those_that_are_published(name):
    assert {(layer.n, layer.k) for layer in BY_NAME[name].layers()} == SHAPES[name]


@pytest.mark.parametrize("name", [*PARAMETERS, *TIED])
def test_layers_have_as_many_parameters_as_the_model(name):
    billions, blocks = (PARAMETERS | TIED)[name]
    *block, head = BY_NAME[name].layers()
    assert head.name == "head"
    heads = 1 if name in TIED else 2
    found = blocks * sum(one.n * one.k for one in block) + heads * head.n * head.k
    assert found == pytest.approx(billions * 1e9, rel=0.01)


def test_experts_have_as_many_parameters_as_the_model():
    qkv, o, up, down, head = (one.n * one.k for one in BY_NAME["Mixtral-8x7B"].layers())
    assert 32 * (qkv + o + 8 * (up + down)) + 2 * head == pytest.approx(46.7e9, rel=0.01)
    *_, head = layers = BY_NAME["DeepSeek-V3"].layers()
    size = {one.name: one.n * one.k for one in layers}
    mixed = 257 * (size["expert gate up"] + size["expert down"])
    dense = size["gate up"] + size["down"]
    attention = sum(size[name] for name in ("q_a kv_a", "q_b", "kv_b", "o"))
    total = 61 * attention + 3 * dense + 58 * mixed + 2 * head.n * head.k
    assert total == pytest.approx(671e9, rel=0.01)


@pytest.mark.parametrize(
    "made",
    [
        lambda: Decoder("x", 64, 3, 2, 8, 64, 64),
        lambda: Decoder("x", 64, 2, 2, 0, 64, 64),
        lambda: LatentDecoder("x", 64, 2, -1, 8, 8, 8, 64, 8, 1, 64),
        lambda: Encoder("x", 0, 64),
        lambda: UNet("x", (64,), 0, 64),
        lambda: Layer("", 8, 8),
        lambda: Layer("x", 8, 0),
    ],
)
def test_a_row_that_is_wrong_is_refused(made):
    with pytest.raises(WarploomError):
        made()


def test_rows_are_a_partition():
    firsts = [first for first, _ in buckets().values()]
    assert firsts == [1, *(last + 1 for last in buckets())][: len(firsts)]
    assert max(buckets()) == MOST_ROWS
    assert sum(share for _, share in buckets().values()) == pytest.approx(1)
    assert sum(limits().values()) == pytest.approx(1) and set(limits()) == {*ROW_LIMITS, None}
    # Log-uniform: twice as many rows, as likely.
    assert buckets()[4096][1] == pytest.approx(buckets()[8192][1], rel=1e-3)
    assert sum(layer_shares().values()) == pytest.approx(1)


def test_the_order_has_each_gemm_once_and_what_covers_most_first():
    gemms = by_importance()
    assert len(set(gemms)) == len(gemms) == len(layer_shares()) * len(buckets()) * len(SERVES)
    first = gemms[: len(gemms) // 10]
    assert all(gemm.m <= 16 or gemm.m == 2048 for gemm in first[:50])
    counts = {kind: sum(gemm.kind == kind for gemm in first) for kind in SERVES}
    assert counts["float16"] == max(counts.values()), "its records serve bfloat16 as well"
    assert by_importance() == gemms


@pytest.mark.parametrize("kind", KINDS)
def test_the_function_of_a_gemm_is_what_its_record_is_for(kind):
    gemm = ModelGemm(264, 96, 24, kind)
    assert recognise(function(gemm)).problem == gemm.problem


def _record(n, k, m, kind, gpu="h200"):
    config, problem = Config(64, 64, consumers=1), problem_of(n, k, m, kind)
    assert config.why_not(problem) is None
    return Record(problem, config, 1e-5, "sm_90a", False, None, gpu)


def test_hits_are_what_a_count_of_all_rows_gives():
    layers = [(256, 512), (512, 256)]
    records = [
        _record(256, 512, 8, "float16"), _record(256, 512, 1024, "float16"),
        _record(512, 256, 16, "float16"), _record(512, 256, 2048, "float16"),
    ]  # fmt: skip
    lookup = Lookup(records)
    found = hits_of(layers, "float16", lookup)
    assert hits_of(layers, "bfloat16", lookup) == found
    assert hits_of(layers, "float8_e4m3fn", lookup).fixed == 0
    assert hits_of(layers, "float16", lookup, GPUS["h20"]).fixed == 0

    def weight(first, last):
        return math.fsum(1 / m for m in range(first, last + 1)) / math.fsum(
            1 / m for m in range(1, MOST_ROWS + 1)
        )

    first = weight(1, 8) + weight(513, 1024)
    second = weight(9, 16) + weight(1025, 2048)
    assert found.fixed == pytest.approx((first + second) / 2)
    # Symbolic rows have kernels for up to 16, ..., 1024, and one for more.
    assert found.symbolic == pytest.approx(
        (weight(513, 1024) + weight(1, 16) + weight(1025, MOST_ROWS)) / 2
    )
    rng = random.Random(1)
    for _ in range(40):  # what a compiled model asks for
        m = round(math.exp(rng.uniform(0, math.log(MOST_ROWS))))
        expected = 1 <= m <= 8 or 513 <= m <= 1024
        assert (lookup.best(problem_of(256, 512, m, "bfloat16")) is not None) == expected, m


def test_the_command_states_size_records_and_rates(tmp_path, monkeypatch, capsys):
    model = Decoder("tiny", 64, 1, 1, 64, 128, 256)
    monkeypatch.setattr(hit_rate, "model_hits", _with(hit_rate.model_hits, (model,)))
    layers = {(layer.n, layer.k) for layer in model.layers()}
    records = [_record(n, k, m, "float16") for n, k in layers for m in buckets()]
    path = tmp_path / "h200.jsonl"
    write(records, path, "h200")
    assert hit_rate.main(["--records", str(path)]) == 0
    printed = capsys.readouterr().out
    assert f"h200.jsonl: {len(records)} records, {path.stat().st_size} bytes" in printed
    assert "float16 100.0% (100.0%), bfloat16 100.0% (100.0%), float8_e4m3fn 0.0%" in printed
    assert hit_rate.main(["--records", str(path), "--gpu", "h20"]) == 0
    assert "hit rate on h20, fixed rows (symbolic): float16 0.0%" in capsys.readouterr().out


def _with(function, models):
    return lambda lookup, gpu: function(lookup, gpu, models)


def test_names_say_each_model_once():
    assert len(BY_NAME) == len(MODELS) + sum(len(model.same) for model in MODELS)
    for model in MODELS:
        with pytest.raises(dataclasses.FrozenInstanceError):
            model.name = "another"
