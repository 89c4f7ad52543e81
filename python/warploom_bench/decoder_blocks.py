"""A decoder block of a language model on the same parameters: by Relax, and by PyTorch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from warploom_bench.decoder import GROUP, ZERO, DecoderConfig, decoder_module

if TYPE_CHECKING:
    from tvm.runtime import Executable

#: (kind, number) of devices by DLPack, and Relax's allocator that keeps memory.
_CUDA, _CPU, _POOLED = (2, 0), (1, 0), 2

#: ``(x, parameters by name) -> result``.
Block = Callable[[Any, Mapping[str, Any]], Any]


@contextmanager
def switched(value: str | None):
    """Our part of Relax's default pipeline on, or off with ``"0"``."""
    from warploom.relax.pipeline import SWITCH

    before = os.environ.pop(SWITCH, None)
    if value is not None:
        os.environ[SWITCH] = value
    try:
        yield
    finally:
        os.environ.pop(SWITCH, None)
        if before is not None:
            os.environ[SWITCH] = before


def relax_executable(config: DecoderConfig, switch: str | None, arch: str = "") -> Executable:
    """The block as Relax's default pipeline compiles it, for this GPU or as for another one."""
    from tvm import relax
    from tvm.target import Target

    from warploom.target import default_target

    target, _ = default_target()
    if arch:
        target = Target({**dict(target.export()), "arch": arch})
    with switched(switch):
        return relax.build(decoder_module(config)[0], target)


def relax_block(config: DecoderConfig, module: Any) -> Block:
    """The compiled block, for PyTorch's or TVM's tensors."""
    import tvm_ffi

    names = tuple(decoder_module(config)[1])
    machine = module["vm_load_executable"]()
    machine["vm_initialization"](*_CUDA, _POOLED, *_CPU, _POOLED)
    forward = machine["forward"]

    def run(x: Any, parameters: Mapping[str, Any]) -> Any:
        tensors = (x, *(parameters[name] for name in names))
        return forward(*map(tvm_ffi.from_dlpack, tensors))

    return run


def torch_block(torch: Any, config: DecoderConfig) -> Block:
    """The same in PyTorch."""
    functional = torch.nn.functional

    def norm(x: Any, weight: Any) -> Any:
        return functional.rms_norm(x, (config.hidden,), weight, config.epsilon)

    def rotated(heads: Any, rotations: Any) -> Any:
        """Heads ``(m, count, head_dim)``."""
        cos, sin = (
            torch.cat((rotation, rotation), 1)[: len(heads), None] for rotation in rotations
        )
        low, high = heads.chunk(2, 2)
        return (heads * cos + torch.cat((-high, low), 2) * sin).to(heads.dtype)

    def run(x: Any, w: Mapping[str, Any]) -> Any:
        qkv = functional.linear(norm(x, w["attention_norm"]), w["qkv.weight"])
        heads = qkv.view(len(x), -1, config.head_dim)
        q, k, v = heads.split([config.heads, config.kv_heads, config.kv_heads], 1)
        q, k = rotated(q, w["rotations"]), rotated(k, w["rotations"])
        mixed = functional.scaled_dot_product_attention(
            *(tensor.transpose(0, 1)[None] for tensor in (q, k, v)), is_causal=True, enable_gqa=True
        )
        h = functional.linear(mixed[0].transpose(0, 1).reshape(len(x), -1), w["out.weight"]) + x
        gate, up = functional.linear(norm(h, w["mlp_norm"]), w["gate_up.weight"]).chunk(2, 1)
        return functional.linear(functional.silu(gate) * up, w["down.weight"]) + h

    return run


def make_parameters(torch: Any, config: DecoderConfig, generator: Any) -> dict[str, Any]:
    """Random weights that keep the size of activations, and the table of rotations.

    Those of 4 bits also unpacked, by the names that other weights have.
    """
    _, shapes = decoder_module(config)
    dtype = getattr(torch, config.dtype)
    parameters = {}
    for name, (shape, _) in shapes.items():
        if name == "rotations":
            continue
        if name.endswith(".words"):
            bounds = torch.iinfo(torch.int32)
            parameters[name] = torch.randint(
                bounds.min, bounds.max, shape, device="cuda", generator=generator,
                dtype=torch.int32,
            ).view(torch.uint32)  # fmt: skip
            continue
        normal = torch.randn(shape, device="cuda", generator=generator)
        if name.endswith(".scales"):
            # Weights of 4 bits are off their middle by the root of 21.5 on average.
            made = (shape[1] * GROUP * 21.5) ** -0.5 * (1 + 0.1 * normal)
        else:
            made = normal * shape[1] ** -0.5 if len(shape) == 2 else 1 + 0.1 * normal
        parameters[name] = made.to(dtype)
    if config.quantised:
        for name in config.layers:
            words, scales = (parameters[f"{name}.{part}"] for part in ("words", "scales"))
            parameters[f"{name}.weight"] = _unpacked(torch, words, scales)
    half = config.head_dim // 2
    speed = 500000.0 ** (-torch.arange(half, device="cuda").double() / half)
    angles = torch.arange(config.positions, device="cuda").double()[:, None] * speed
    parameters["rotations"] = torch.stack((angles.cos(), angles.sin())).float()
    return parameters


def _unpacked(torch: Any, words: Any, scales: Any) -> Any:
    """Weights of 4 bits as numbers of the type of their scales ``(outputs, inputs)``."""
    shifts = torch.arange(0, 32, 4, device="cuda", dtype=torch.int32)
    fields = words.view(torch.int32)[:, :, None] >> shifts & 15
    groups = (fields - ZERO).to(scales.dtype).reshape(len(words), -1, GROUP)
    return (groups * scales[:, :, None]).reshape(len(words), -1)
