"""Models from end to end on the emulator: right, and with the expected functions taken."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.frontend import nn

import warploom
from tests.shared import relax_models as models
from tests.shared.sampling import sampled
from warploom.errors import MachineCodeWarning, StockScheduleWarning
from warploom.gemm.workloads import problem_of
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule.reference import normal_input
from warploom.relax.attention import CallAttention
from warploom.relax.inspect import FunctionReport, inspect
from warploom.relax.tile_programs import is_tirx
from warploom_bench.decoder import DecoderConfig, decoder_module
from warploom_bench.resnet import ResnetConfig, stage_module

_TARGET = warploom.cuda_target("h200")
#: Largest error relative to the largest result.
_BOUNDS = {"float16": 4e-3, "bfloat16": 3e-2}
#: Rows that are compared, of those that do not depend on each other.
_MOST_ROWS = 32
_FOUR_BITS = {"dtype": "bfloat16", "quantised": True}


def _taken(module: tvm.IRModule) -> list[FunctionReport]:
    return [one for one in inspect(module) if one.problem is not None]


def _machine(module: tvm.IRModule, **options: Any) -> relax.VirtualMachine:
    with warnings.catch_warnings():
        # What inspection says is taken, is compiled with our schedule.
        warnings.simplefilter("error", StockScheduleWarning)
        executable = relax.build(module, _TARGET, **options)
    return relax.VirtualMachine(executable, tvm.cuda(0))


def _run(machine: relax.VirtualMachine, *arrays: np.ndarray) -> np.ndarray:
    tensors = (tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays)
    return machine["forward"](*tensors).numpy().astype(np.float64)


def _close(found: np.ndarray, wanted: np.ndarray, bound: float) -> None:
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= bound * np.abs(wanted).max()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("options", "size", "rows"),
    [
        ({}, "m", (1, 20, 33)),
        (_FOUR_BITS, 17, (17,)),
        pytest.param(_FOUR_BITS, "m", (1, 17), marks=pytest.mark.slow),
        pytest.param({"fused_attention": False}, "m", (9,), marks=pytest.mark.slow),
    ],
    ids=["float16", "4-bit weights, 17 rows", "4-bit weights", "attention as products"],
)
@pytest.mark.some(1)
def test_decoder_blocks(
    options: dict[str, Any], size: int | str, rows: tuple[int, ...], rng: np.random.Generator
) -> None:
    config = DecoderConfig(**models.SMALL, **options)
    module, shapes = decoder_module(config, size)
    problems = [one.problem for one in _taken(module)]
    sizes = {(p.n * p.products, p.k) for p in problems if p.batch == 1}
    assert sizes == set(config.layers.values()), "all linear layers, and no activation in them"
    assert {p.computed for p in problems} == {(False, config.quantised)}
    machine = _machine(module)
    parameters = models.decoder_parameters(rng, shapes)
    for count in rows:
        x = rng.standard_normal((count, config.hidden)).astype(config.dtype)
        found = _run(machine, x, *parameters.values())
        _close(found, models.decoder(config, x, parameters), _BOUNDS[config.dtype])


@pytest.mark.usefixtures("machine_code")
@pytest.mark.parametrize("hidden", [128, pytest.param(384, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rows", [17, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 64))])
@pytest.mark.some(1)
def test_machine_code_of_4_bit_blocks(
    hidden: int, rows: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two accumulators that start with equal values, and an only step: MMAs overlap."""
    monkeypatch.setenv("WARPLOOM_CACHE_DIR", str(tmp_path))
    config = DecoderConfig(**(models.SMALL | {"hidden": hidden}), **_FOUR_BITS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MachineCodeWarning)
        relax.build(decoder_module(config, rows)[0], _TARGET)


def test_gemms_of_a_model_are_those_that_benchmarks_tune() -> None:
    config = DecoderConfig(**models.SMALL)
    taken = {one.problem for one in _taken(decoder_module(config, rows=24)[0])}
    for name, epilogue in (
        ("qkv", "none"), ("out", "residual"), ("gate_up", "swiglu"), ("down", "residual")
    ):  # fmt: skip
        shape = GemmShape("model", 24, *config.layers[name], config.dtype, epilogue=epilogue)
        assert problem_of(shape) in taken, name


def test_padding_of_a_single_row_is_not_taken_into_a_gemm() -> None:
    # 8 values of V are computed from one: that reads less, but no tile of it can be loaded.
    config = DecoderConfig(**models.SMALL, fused_attention=False)
    problems = [one.problem for one in _taken(decoder_module(config, rows=1)[0])]
    assert (config.head_dim, 8) in {(p.n, p.k) for p in problems}
    assert not any(any(p.computed) for p in problems)


@pytest.mark.in_turn(3)
@pytest.mark.gpu
def test_gemms_of_known_sizes_are_taken_in_attention(rng: np.random.Generator) -> None:
    config = DecoderConfig(**models.SMALL, dtype="bfloat16", fused_attention=False)
    module, shapes = decoder_module(config, rows=24)
    # The rows of all heads that share keys and values are rows of one GEMM.
    shared = config.heads // config.kv_heads * 24, config.kv_heads
    assert sum((p.m, p.batch) == shared for p in (one.problem for one in _taken(module))) == 2
    parameters = models.decoder_parameters(rng, shapes)
    x = rng.standard_normal((24, config.hidden)).astype("bfloat16")
    found = _run(_machine(module), x, *parameters.values())
    _close(found, models.decoder(config, x, parameters), _BOUNDS["bfloat16"])


@pytest.mark.parametrize("rows", [24, "m"])
@pytest.mark.some(1)
def test_gemms_of_any_sizes_are_taken_in_attention(rows: int | str) -> None:
    config = DecoderConfig(**models.SMALL, fused_attention=False)
    taken = [one.problem for one in _taken(decoder_module(config, rows)[0])]
    scores, mixed = (one for one in taken if one.batch > 1)
    count = None if rows == "m" else 24
    # Keys are padded to a multiple of 8, which shows in the formula of their number.
    assert (scores.n, scores.k, mixed.n, mixed.k) == (count, 64, config.head_dim, count)


class _Attention(nn.Module):
    def __init__(self, keys: int, depth: int) -> None:
        self.keys = nn.Parameter((2, keys, 2, depth), "float16")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.scaled_dot_product_attention(x, self.keys, self.keys, scale=0.2)


@pytest.mark.parametrize(
    ("keys", "depth", "dtype", "arch", "taken"),
    [
        (40, 64, "float16", "sm_90a", True),
        (41, 64, "float16", "sm_90a", True),
        (40, 32, "float16", "sm_90a", True),
        (40, 36, "float16", "sm_90a", False),
        (40, 64, "float32", "sm_90a", False),
        (40, 64, "float16", "sm_80", False),
    ],
)
def test_which_attention_is_taken(
    keys: int, depth: int, dtype: str, arch: str, taken: bool
) -> None:
    model = _Attention(keys, depth)
    model.keys = nn.Parameter(model.keys.shape, dtype)
    module = models.exported(model, [2, 40, 2, depth], dtype)
    with tvm.target.Target({"kind": "cuda", "arch": arch}):
        changed = CallAttention()(module)
    programs = [one for one in changed.functions.values() if is_tirx(one)]
    assert len(programs) == int(taken)
    assert taken or tvm_ffi.structural_equal(changed["forward"], module["forward"])


@pytest.mark.gpu
def test_attention_of_several_sequences(rng: np.random.Generator) -> None:
    module = models.exported(_Attention(40, 64), [2, 40, 2, 64], "float16")
    x, keys = (rng.standard_normal((2, 40, 2, 64)).astype(np.float16) for _ in range(2))
    found = _run(_machine(module), x, keys)
    logits = 0.2 * np.einsum("bihd,bjhd->bhij", x.astype(float), keys.astype(float))
    weights = np.exp(logits - logits.max(3, keepdims=True))
    weights /= weights.sum(3, keepdims=True)
    _close(found, np.einsum("bhij,bjhd->bihd", weights, keys.astype(float)), 4e-3)


@pytest.mark.gpu
@pytest.mark.hardware
@pytest.mark.parametrize("options", [{}, {"dtype": "bfloat16"}, _FOUR_BITS], ids=str)
def test_decoder_blocks_of_real_sizes(options: dict[str, Any], rng: np.random.Generator) -> None:
    config = DecoderConfig(**models.HALF, **options)
    module, shapes = decoder_module(config, rows=128)
    parameters = models.decoder_parameters(rng, shapes)
    x = rng.standard_normal((128, config.hidden)).astype(config.dtype)
    found = _run(_machine(module), x, *parameters.values())
    _close(found, models.decoder(config, x, parameters), _BOUNDS[config.dtype])


@pytest.mark.in_turn(3)
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("hidden", "wide", "all_rows"),
    [
        (128, 256, (3, 40)),
        pytest.param(4096, 14336, (1, 128, 2048), marks=pytest.mark.hardware),
    ],
)
def test_mlp_of_float8(
    hidden: int, wide: int, all_rows: tuple[int, ...], rng: np.random.Generator
) -> None:
    kind = models.Float8Mlp.KIND
    module = models.exported(models.Float8Mlp(hidden, wide), ["m", hidden], kind)
    assert [one.problem.a_dtype for one in _taken(module)] == [kind] * 2
    machine = _machine(module)
    weights = [normal_input(shape, kind, rng) for shape in ((wide, hidden), (hidden, wide))]
    inputs, outputs = [], []
    for rows in all_rows:
        x = (4 * rng.standard_normal((rows, hidden))).astype(kind)
        found = _run(machine, x, *weights)
        assert np.isfinite(found).all()
        some = rng.permutation(rows)[:_MOST_ROWS]  # numpy takes long for all of them
        inputs.append(x[some])
        outputs.append(found[some])
    wanted = models.Float8Mlp.expected(np.concatenate(inputs), *weights)
    # Sums of another order may round a hidden value to its neighbour, 1/8 of it away.
    _close(np.concatenate(outputs), wanted, 2e-2)


@pytest.mark.in_turn(3)
@pytest.mark.gpu
@pytest.mark.parametrize(("images", "dtype"), sampled([("n", "bfloat16"), (2, "float16")], 2))
def test_stage_of_resnet(images: int | str, dtype: str, rng: np.random.Generator) -> None:
    config = ResnetConfig(2, 9, 32, 16, 2, 2, dtype)
    module, shapes = stage_module(config, images)
    reports = inspect(module)
    assert not [one.reason for one in reports if one.reason], "all convolutions, and nothing else"
    sizes = {(one.problem.n, one.problem.k) for one in reports}
    assert sizes == {(16, 32), (16, 144), (64, 16), (64, 32), (16, 64)}
    parameters = models.resnet_parameters(rng, shapes, dtype)
    machine = _machine(module)
    for count in (2,) if images == 2 else (1, 3):
        x = rng.standard_normal((count, 9, 9, 32)).astype(dtype)
        found = _run(machine, x, *parameters.values())
        _close(found, models.resnet_stage(config, x, parameters), 2 * _BOUNDS[dtype])


@pytest.mark.gpu
@pytest.mark.hardware
@pytest.mark.parametrize("config", [
    ResnetConfig(2, dtype="bfloat16"), ResnetConfig(2, 28, 512, 256, 2, 2)
], ids=str)  # fmt: skip
def test_stage_of_resnet_of_real_sizes(config: ResnetConfig, rng: np.random.Generator) -> None:
    module, shapes = stage_module(config)
    parameters = models.resnet_parameters(rng, shapes, config.dtype)
    x = rng.standard_normal((config.images, config.size, config.size, config.channels))
    x = x.astype(config.dtype)
    found = _run(_machine(module), x, *parameters.values())
    _close(found, models.resnet_stage(config, x, parameters), 2 * _BOUNDS[config.dtype])
