"""PyTorch's modules as Relax models in mixed precision: ``torch.export`` and TVM's frontend."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from warploom.relax import cuda_graph
from warploom.target import cuda_target
from warploom_bench.decoder_blocks import switched
from warploom_bench.models import encoders, images

IDS = "int64"


@dataclass(frozen=True)
class Exported:
    """A model that PyTorch exports.

    Attributes
    ----------
    make, small : callable
        The module, and one of small sizes for the emulator.
    inputs, small_inputs : tuple
        Shapes of the inputs without their batch; of token ids, their number, the vocabulary and
        :data:`IDS`.
    """

    make: Callable[[], nn.Module]
    small: Callable[[], nn.Module]
    inputs: tuple[tuple[Any, ...], ...]
    small_inputs: tuple[tuple[Any, ...], ...]

    def random(self, batch: int, small: bool = False) -> list[torch.Tensor]:
        """Random inputs on the CPU, in float32, or int64 for token ids."""
        made = []
        for shape in self.small_inputs if small else self.inputs:
            if shape[-1] == IDS:
                *extents, vocabulary, _ = shape
                made.append(torch.randint(0, vocabulary, (batch, *extents)))
            else:
                made.append(torch.randn(batch, *shape))
        return made


_IMAGE, _SMALL_IMAGE = ((3, 224, 224),), ((3, 32, 32),)
#: By name.
EXPORTED: dict[str, Exported] = {
    "resnet-50": Exported(
        images.ResNet, lambda: images.ResNet((1, 1), 16), _IMAGE, _SMALL_IMAGE
    ),
    "convnext": Exported(
        images.ConvNext, lambda: images.ConvNext((1, 1), 32), _IMAGE, _SMALL_IMAGE
    ),
    "vit-l-16": Exported(
        encoders.VisionTransformer, lambda: encoders.VisionTransformer(128, 2, 1, 32),
        _IMAGE, _SMALL_IMAGE,
    ),
    "bert-large": Exported(
        encoders.Bert, lambda: encoders.Bert(128, 2, 1, 24, 500),
        ((384, 30522, IDS),), ((24, 500, IDS),),
    ),
    "whisper-encoder": Exported(
        encoders.WhisperEncoder, lambda: encoders.WhisperEncoder(128, 2, 1, 16, 40),
        ((128, 3000),), ((16, 40),),
    ),
    "sd-unet-block": Exported(
        images.UnetBlock, lambda: images.UnetBlock(64, 2, 64),
        ((320, 64, 64), (1280,), (77, 768)), ((64, 8, 8), (256,), (8, 64)),
    ),
}  # fmt: skip


class Halved(nn.Module):
    """A module of float32 whose inputs arrive in float16, as an application has them."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.inner(*(x.float() if x.is_floating_point() else x for x in inputs))


def made_with(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A module with random weights, on the CPU, for inference: batch norms are folded."""
    torch.manual_seed(seed)
    module = make().eval()
    for each in module.modules():
        if isinstance(each, images.ConvNorm):
            each.fold()
    return module


def relax_module(module: nn.Module, inputs: Sequence[torch.Tensor]) -> tvm.IRModule:
    """A module of float32 as Relax has it: float16 inside, weights as constants."""
    given = tuple(x.half() if x.is_floating_point() else x for x in inputs)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # within torch.export
        program = torch.export.export(Halved(module), given)
        made = from_exported_program(program)
    made = relax.transform.DecomposeOpsForInference("main")(made)
    return relax.transform.ToMixedPrecision("float16")(made)


def built(module: tvm.IRModule, gpu: str, stock: bool) -> Callable[..., Any]:
    """What runs the model, compiled by this package, as one CUDA graph, or by TVM alone."""
    target = cuda_target(gpu)
    if stock:
        # TVM's schedules for tensor cores know this name of the architecture only.
        target = tvm.target.Target({**dict(target.export()), "arch": "sm_90"})
    with switched("0" if stock else None):
        machine = relax.VirtualMachine(relax.build(module, target), tvm.cuda(0))
    return machine["main"] if stock else cuda_graph(machine, "main")


def captured(run: Any, inputs: Sequence[Any]) -> Any:
    """The result of a model behind the calls that it needs to become a graph."""
    for _ in range(2):
        run(*inputs)
    return first(run(*inputs))


def first(result: Any) -> Any:
    """The tensor that a model returns, if need be out of a tuple."""
    return result if isinstance(result, tvm.runtime.Tensor) else result[0]
