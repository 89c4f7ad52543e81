"""``python -m warploom_bench convolution``: convolutions and stages of ResNet against cuDNN.

Images and filters are 16-bit, NHWC and OHWI, which PyTorch calls channels_last; cuDNN chooses its
kernels by trying them (``torch.backends.cudnn.benchmark``). A convolution is compiled as any
function of a model is, without tuning; a stage is compiled by Relax and computes bias, ReLU and
residual, too. Exit status: 0 if every result is right, 1 if one is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from warploom.command_line import Parser, extents, positive
from warploom_bench.check import Deviation, deviation
from warploom_bench.compete import compare_competitors
from warploom_bench.competitors import OURS
from warploom_bench.convolution_shapes import IMAGES, LAYERS, STAGES, ConvolutionShape, StageShape
from warploom_bench.operands import RELATIVE_ERROR, ROTATING_BYTES
from warploom_bench.options import timing_options
from warploom_bench.report import Comparison
from warploom_bench.resnet import ResnetConfig, stage_module
from warploom_bench.run import run

LIBRARY = "cuDNN"
#: A stage rounds results of every layer to 16 bits, and so do we and the library.
_STAGE_ERRORS = 4


@dataclass
class Operands:
    """An input set.

    Attributes
    ----------
    x : torch.Tensor
        Images ``[n, h, w, c]``.
    parameters : mapping
        By name.
    c : torch.Tensor
        The destination for competitors that do not allocate their result.
    result : torch.Tensor
        The last result, NHWC.
    """

    x: Any
    parameters: Mapping[str, Any]
    c: Any
    result: Any = None


Competitor = Callable[[Operands], object]


def convolution_function(shape: ConvolutionShape) -> Any:
    """The S-TIR function ``(X, F, Y)`` of a convolution, as Relax's legalisation writes it."""
    from tvm import te, topi

    x = te.placeholder((shape.n, shape.size, shape.size, shape.c), shape.dtype, "X")
    f = te.placeholder((shape.k, shape.taps, shape.taps, shape.c), shape.dtype, "F")
    y = topi.nn.conv(x, f, shape.stride, shape.padding, 1, 1, "NHWC", "OHWI", out_dtype="float32")
    return te.create_prim_func([x, f, topi.cast(y, shape.dtype)])


def our_convolution(shape: ConvolutionShape) -> Competitor:
    """The kernel that this package makes of it by default."""
    import tvm
    from tvm.s_tir import dlight

    from warploom.dlight import Matmul
    from warploom.target import default_target

    target, _ = default_target()
    with target:
        mod = tvm.IRModule({"main": convolution_function(shape)})
        mod = dlight.ApplyDefaultSchedule(Matmul())(mod)
        run = tvm.compile(mod, target)["main"]

    def competitor(o: Operands) -> None:
        run(o.x, o.parameters["weight"], o.c)
        o.result = o.c

    return competitor


def our_stage(torch: Any, config: ResnetConfig) -> Competitor:
    """The stage as Relax's default pipeline compiles it."""
    import tvm
    from tvm import relax

    from warploom.target import default_target

    module, shapes = stage_module(config)
    executable = relax.build(module, default_target()[0])
    forward = relax.VirtualMachine(executable, tvm.cuda(0))["forward"]

    def run(o: Operands) -> None:
        tensors = (o.x, *(o.parameters[name] for name in shapes))
        o.result = torch.from_dlpack(forward(*map(tvm.runtime.from_dlpack, tensors)))

    return run


def library_convolution(torch: Any, stride: int, padding: int) -> Competitor:
    """The same in PyTorch, without bias."""

    def run(o: Operands) -> None:
        x, w = (tensor.permute(0, 3, 1, 2) for tensor in (o.x, o.parameters["weight"]))
        y = torch.nn.functional.conv2d(x, w, stride=stride, padding=padding)
        o.result = y.permute(0, 2, 3, 1)

    return run


def library_stage(torch: Any, config: ResnetConfig) -> Competitor:
    """The same in PyTorch."""
    functional = torch.nn.functional

    def run(o: Operands) -> None:
        def layer(x: Any, name: str) -> Any:
            w = o.parameters[f"{name}.weight"].permute(0, 3, 1, 2)
            _, taps, _, stride, _ = config.layers[name]
            b = o.parameters[f"{name}.bias"]
            return functional.conv2d(x, w, b, stride=stride, padding=taps // 2)

        x = o.x.permute(0, 3, 1, 2)
        for number in range(config.blocks):
            block = f"blocks.{number}."
            h = functional.relu_(layer(x, block + "reduce"))
            h = functional.relu_(layer(h, block + "spread"))
            if block + "project" in config.layers:
                x = layer(x, block + "project")
            x = functional.relu_(layer(h, block + "expand").add_(x))
        o.result = x.permute(0, 2, 3, 1)

    return run


def make_operands(
    torch: Any, images: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]], result: Any,
    dtype: str,
) -> list[Operands]:  # fmt: skip
    """Random operands, in as many copies as do not fit into the L2 cache together."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    kind = getattr(torch, dtype)

    def normal(shape: tuple[int, ...], scale: float) -> Any:
        return (torch.randn(shape, device="cuda", generator=generator) * scale).to(kind)

    x = normal(images, 1.0)
    parameters = {name: normal(shape, _spread(shape)) for name, shape in shapes.items()}
    count = max(2, -(-ROTATING_BYTES // (x.numel() * x.element_size())))
    return [
        Operands(x.clone(), parameters, torch.full(result, float("nan"), device="cuda", dtype=kind))
        for _ in range(count)
    ]


def _spread(shape: tuple[int, ...]) -> float:
    """Of weights, so that results are as large as inputs; biases are small."""
    inputs = 1
    for extent in shape[1:]:
        inputs *= extent
    return (2 / inputs) ** 0.5 if len(shape) > 1 else 0.1


def check(operands: Operands, exact: Any) -> Deviation:
    """Compare all elements of the last result with a reference."""
    return deviation(operands.result.float(), exact)


def compare(
    torch: Any, shape: ConvolutionShape | StageShape, rounds: int = 15, burst_only: bool = False
) -> Comparison:
    """Check and time ours and the library on one shape."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    if isinstance(shape, StageShape):
        config = shape.config
        _, shapes = stage_module(config)
        side = -(-config.size // config.stride)
        sets = make_operands(
            torch, (config.images, config.size, config.size, config.channels), shapes,
            (config.images, side, side, 4 * config.width), config.dtype,
        )  # fmt: skip
        library, ours, dtype = library_stage(torch, config), our_stage(torch, config), config.dtype
        allowed = _STAGE_ERRORS * RELATIVE_ERROR[dtype]
        _fill_pool(ours, sets)
    else:
        sets = make_operands(
            torch, (shape.n, shape.size, shape.size, shape.c),
            {"weight": (shape.k, shape.taps, shape.taps, shape.c)},
            (shape.n, shape.side, shape.side, shape.k), shape.dtype,
        )  # fmt: skip
        library = library_convolution(torch, shape.stride, shape.padding)
        ours, dtype, allowed = our_convolution(shape), shape.dtype, RELATIVE_ERROR[shape.dtype]
    first = sets[0]
    wide = Operands(
        first.x.float(),
        {name: parameter.float() for name, parameter in first.parameters.items()},
        None,
    )
    library(wide)
    exact, wide = wide.result, None
    return compare_competitors(
        torch, shape, {OURS: ours, LIBRARY: library}, sets,
        lambda o: check(o, exact), allowed, rounds, burst_only,
    )  # fmt: skip


def _fill_pool(competitor: Competitor, sets: Sequence[Operands]) -> None:
    """Make the VM keep memory for as many results as a CUDA graph has while it is captured."""
    held = []
    for operands in (*sets, *sets):
        competitor(operands)
        held.append(operands.result)


def shapes(options: argparse.Namespace) -> list[ConvolutionShape | StageShape]:
    """Shapes that the options ask for."""
    result: list[ConvolutionShape | StageShape] = []
    for size, c, k, taps, stride in options.layer or ([] if options.stages_only else LAYERS):
        group = f"{taps} x {taps}"
        result.append(
            ConvolutionShape(group, options.images, size, c, k, taps, stride, options.dtype)
        )
    if not options.layer:
        for size, channels, width, blocks, stride in STAGES:
            config = ResnetConfig(
                options.images, size, channels, width, blocks, stride, options.dtype
            )
            result.append(StageShape("stages", asdict(config)))
    return result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--images", type=positive, default=IMAGES, help="default: %(default)s")
    parser.add_argument(
        "--layer", type=extents("SIZE,C,K,TAPS,STRIDE"), action="append",
        metavar="SIZE,C,K,TAPS,STRIDE",
        help="only this convolution; repeatable (default: those of ResNet-50, and two stages)",
    )  # fmt: skip
    parser.add_argument("--stages-only", action="store_true", help="leave out single layers")
    parser.add_argument("--dtype", choices=sorted(RELATIVE_ERROR), default="float16")


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = Parser(
        prog="warploom bench convolution",
        description=__doc__,
        parents=[timing_options("convolution.json, .md and .png")],
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    wanted = shapes(options)
    return run(
        "convolution", arguments, options, wanted,
        lambda torch, shape, _: compare(torch, shape, options.rounds, options.burst_only),
    )  # fmt: skip
