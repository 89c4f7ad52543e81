"""``python -m warploom_bench dequant``: GEMMs with small weights against the 16-bit GEMM.

Decoding reads every weight once a token, so that weights of 4 or 8 bits, dequantised on their way
into the GEMM, can beat a GEMM of 16-bit weights that were dequantised before: that is the
library. Exit status: 0 if every result is right, 1 if one is wrong, 2 if a target is missed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from warploom.command_line import Parser, extents, natural, positive
from warploom.errors import WarploomError
from warploom_bench.check import Deviation, deviation
from warploom_bench.compete import compare_competitors
from warploom_bench.competitors import OURS
from warploom_bench.kernels import Kernel, Kernels
from warploom_bench.operands import RELATIVE_ERROR, ROTATING_BYTES
from warploom_bench.options import kernel_options, timing_options
from warploom_bench.report import Comparison
from warploom_bench.run import run

if TYPE_CHECKING:
    from tvm.runtime import Executable

#: (N, K) of layers of Llama models of 8 and 70 billion parameters, and a square.
LAYERS = ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (8192, 8192))
#: Speed over the 16-bit GEMM that few rows must reach on a square layer.
_TARGET, _TARGET_LAYER, _TARGET_ROWS = 1.5, (8192, 8192), 16
#: Different rows of weights; a multiple of the rows that any of their orders mixes.
_PACKED_ROWS = 1024


@dataclass(frozen=True)
class DequantShape:
    """``C[m, n] = X[m, k] W[n, k]^T`` with weights of ``bits`` and a scale for ``scale_group``.

    Attributes
    ----------
    group : str
        Shapes of a group are summarised together.
    m, n, k, bits, scale_group : int
    dtype : str
        Of X, C, the scales, and the weights of the library.
    """

    HEADER: ClassVar[str] = "shape MxNxK"
    group: str
    m: int
    n: int
    k: int
    bits: int = 4
    scale_group: int = 128
    dtype: str = "float16"
    target: float | None = None

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k} int{self.bits} {self.dtype}"

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k

    @property
    def weight_bytes(self) -> int:
        """Bytes of the packed weights and their scales."""
        return self.n * self.k * self.bits // 8 + self.n * self.k // self.scale_group * 2

    @property
    def bytes(self) -> int:
        """Of the weights, X and C."""
        return self.weight_bytes + 2 * self.m * (self.k + self.n)


@dataclass(frozen=True)
class Operands:
    """X, the packed weights and their scales, the same weights in 16 bits, and the result."""

    x: Any
    words: Any
    scale: Any
    weights: Any
    c: Any


def make_operands(torch: Any, shape: DequantShape, order: str, seed: int) -> list[Operands]:
    """Random operands, in as many copies as do not fit into the L2 cache together."""
    from warploom.layout.weight_order import pack_weights

    generator = np.random.default_rng(seed)
    half = 1 << shape.bits - 1
    # Rows of weights repeat, with other scales: to pack them on the host takes long.
    rows = min(shape.n, _PACKED_ROWS)
    integers = generator.integers(-half, half, (rows, shape.k), np.int8)
    packed, integers = (
        torch.from_numpy(array).cuda().repeat(-(-shape.n // rows), 1)[: shape.n]
        for array in (pack_weights(integers, shape.bits, order).view(np.int32), integers)
    )
    words = packed.contiguous()
    dtype = getattr(torch, shape.dtype)
    random = torch.Generator(device="cuda").manual_seed(seed)
    x = torch.randn(shape.m, shape.k, device="cuda", generator=random).to(dtype)
    groups = shape.k // shape.scale_group
    scale = torch.rand(groups, shape.n, device="cuda", generator=random).mul(0.05).to(dtype)
    weights = integers.to(dtype)
    weights *= scale.T.repeat_interleave(shape.scale_group, dim=1)
    c = torch.full((shape.m, shape.n), float("nan"), dtype=dtype, device="cuda")
    tensors = (x, words.view(torch.uint32), scale, weights, c)
    copies = max(2, -(-ROTATING_BYTES // shape.weight_bytes))
    return [Operands(*(tensor.clone() for tensor in tensors)) for _ in range(copies)]


def check(operands: Operands) -> Deviation:
    """Compare all elements of the result with ``X Wᵀ`` in float32."""
    return deviation(operands.c.float(), operands.x.float() @ operands.weights.float().T)


def program(shape: DequantShape, order: str, changes: str = "") -> Executable:
    """The tile program of this package, compiled; ``changes`` as in :func:`parse_changes`."""
    import tvm

    from warploom.programs import gemm_quantised
    from warploom.target import default_target

    func = gemm_quantised(
        shape.n, shape.k, shape.m, shape.bits, shape.scale_group, shape.dtype, order,
        **(parse_changes(changes) if changes else {}),
    )  # fmt: skip
    target, _ = default_target()
    return tvm.compile(tvm.IRModule({"main": func}), target, tir_pipeline="warploom")


def our_kernels(
    shape: DequantShape, order: str = "fragments", variants: Sequence[str] = ()
) -> dict[str, Kernel]:
    """Kernels to compile for a shape, by the name of the competitor."""
    plain = replace(shape, group="", target=None)
    kernels_of = {OURS: Kernel(program, (plain, order))}
    for text in variants:
        parse_changes(text)
        kernels_of[f"{OURS} {text}"] = Kernel(program, (plain, order, text))
    return kernels_of


def parse_changes(text: str) -> dict[str, Any]:
    """``"tile=16x128x256,stages=6,stream_k=true,raster=rows"`` as arguments of the tile program.

    Raises
    ------
    WarploomError
        If a part is not ``NAME=VALUE`` with an integer, integers joined by ``x``, a bool or a word.
    """
    changes: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        numbers = value.split("x")
        if value in ("true", "false"):
            changes[name] = value == "true"
        elif name.isidentifier() and all(number.isdecimal() for number in numbers):
            changes[name] = tuple(map(int, numbers)) if len(numbers) > 1 else int(value)
        elif name.isidentifier() and value.isalpha() and len(value) > 1:
            changes[name] = value
        else:
            raise WarploomError(
                f"{part!r} changes nothing; write NAME=INTEGER, NAME=INTEGERxINTEGER, NAME=true or "
                "NAME=word."
            )
    return changes


def compare(
    torch: Any,
    shape: DequantShape,
    kernels: Kernels,
    wanted: Mapping[str, Kernel],
    order: str = "fragments",
    rounds: int = 15,
    seed: int = 0,
    burst_only: bool = False,
) -> Comparison:
    """Check and time all competitors on one shape; parameters as in ``bench gemm``."""
    functions = {name: kernels.function(kernel) for name, kernel in wanted.items()}
    ours = {
        name: (lambda o, call=call: call(o.x, o.words, o.scale, o.c))
        for name, call in functions.items()
    }
    library = {f"cuBLAS, {shape.dtype}": lambda o: torch.matmul(o.x, o.weights.T, out=o.c)}
    (first, *others) = ours.items()
    competitors = dict([first, *library.items(), *others])
    torch.backends.cuda.matmul.allow_tf32 = False
    sets = make_operands(torch, shape, order, seed)
    allowed = RELATIVE_ERROR[shape.dtype]
    return compare_competitors(torch, shape, competitors, sets, check, allowed, rounds, burst_only)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--m", type=positive, action="append", help="rows of X; repeatable (default: 1, 16, 32, 64)"
    )
    parser.add_argument(
        "--layer",
        type=extents("NxK"),
        action="append",
        metavar="NxK",
        help=f"repeatable (default: {', '.join(f'{n}x{k}' for n, k in LAYERS)})",
    )
    parser.add_argument("--bits", type=int, choices=(4, 8), default=4, help="default: 4")
    parser.add_argument("--group", type=positive, default=128, help="of a scale (default: 128)")
    parser.add_argument("--dtype", choices=sorted(RELATIVE_ERROR), default="float16")
    parser.add_argument("--order", default="fragments", help="of the weights in a row")
    parser.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help="also measure our program with these arguments; repeatable",
    )
    parser.add_argument("--seed", type=natural, default=0, help="of the random data (default: 0)")


def shapes(options: argparse.Namespace) -> list[DequantShape]:
    """Shapes that the options ask for."""
    layers = options.layer or LAYERS
    result = []
    for m in options.m or (1, 16, 32, 64):
        for n, k in layers:
            must = m == _TARGET_ROWS and (n, k) == _TARGET_LAYER and options.bits == 4
            result.append(DequantShape(
                f"M = {m}", m, n, k, options.bits, options.group, options.dtype,
                _TARGET if must else None,
            ))  # fmt: skip
    return result


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = Parser(
        prog="warploom bench dequant",
        description=__doc__,
        parents=[timing_options("dequant.json, .md and .png"), kernel_options()],
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)

    def wanted(shape: DequantShape) -> dict[str, Kernel]:
        return our_kernels(shape, options.order, options.variant)

    return run(
        "dequant", arguments, options, shapes(options),
        lambda torch, shape, kernels: compare(
            torch, shape, kernels, wanted(shape), options.order, options.rounds, options.seed,
            options.burst_only,
        ),
        lambda shape: wanted(shape).values(),
    )  # fmt: skip
