"""``python -m warploom_bench attention``: attention forward against PyTorch's, checked and timed.

The library that ratios refer to is the fastest of PyTorch's implementations for the shape. Exit
status: 0 if every result is right, 1 if one is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from warploom.command_line import Parser, positive
from warploom.errors import WarploomError
from warploom.target.dtypes import bits_of
from warploom_bench.check import Deviation, deviation, worst_of
from warploom_bench.compete import compare_competitors
from warploom_bench.competitors import OURS
from warploom_bench.kernels import Kernel, Kernels
from warploom_bench.operands import ROTATING_BYTES
from warploom_bench.options import kernel_options, timing_options
from warploom_bench.report import Comparison
from warploom_bench.run import attempt, run

if TYPE_CHECKING:
    from tvm.runtime import Executable

#: The relative error that is allowed: the weights of the softmax are rounded to 16 bits.
ALLOWED_ERROR = {"float16": 1e-3, "bfloat16": 8e-3}
#: Elements of logits that a check holds at a time.
_LOGITS_AT_ONCE = 1 << 28


@dataclass(frozen=True)
class AttentionShape:
    """``O = softmax(Q Kᵀ / sqrt(head_dim)) V`` for one batch of heads.

    Attributes
    ----------
    group : str
        Shapes of a group are summarised together.
    tokens, head_dim, heads : int
    causal : bool
    dtype : str
    """

    HEADER: ClassVar[str] = "heads x tokens x head dim"
    group: str
    tokens: int
    head_dim: int
    heads: int
    causal: bool
    dtype: str = "float16"
    target: float | None = None

    def __str__(self) -> str:
        causal = " causal" if self.causal else ""
        return f"{self.heads}x{self.tokens}x{self.head_dim} {self.dtype}{causal}"

    @property
    def operations(self) -> int:
        """Multiplications and additions of both GEMMs; half of them where causal."""
        return 4 * self.tokens**2 * self.head_dim * self.heads // (2 if self.causal else 1)

    @property
    def input_bytes(self) -> int:
        """Of Q, K and V."""
        return 3 * self.heads * self.tokens * self.head_dim * bits_of(self.dtype) // 8


def shapes(tokens: Sequence[int], head_dims: Sequence[int], heads: int) -> Iterator[AttentionShape]:
    """All combinations, causal and not."""
    for causal in (False, True):
        for head_dim in head_dims:
            for count in tokens:
                group = f"head dim {head_dim}{', causal' if causal else ''}"
                yield AttentionShape(group, count, head_dim, heads, causal)


@dataclass
class Operands:
    """An input set; ``found`` is the last result, in ``c`` where ours has written it."""

    q: Any
    k: Any
    v: Any
    c: Any
    result: Any = None


def program(shape: AttentionShape) -> Executable:
    """The tile program of this package, compiled."""
    import tvm

    from warploom.programs import attention
    from warploom.target import default_target

    func = attention(
        shape.tokens, shape.head_dim, shape.heads, causal=shape.causal, dtype=shape.dtype,
    )  # fmt: skip
    target, _ = default_target()
    return tvm.compile(tvm.IRModule({"main": func}), target, tir_pipeline="warploom")


def our_kernel(shape: AttentionShape) -> Kernel:
    """Kernels to compile for a shape."""
    return Kernel(program, (replace(shape, group="", target=None),))


def our_attention(function: Callable[..., object]) -> Callable[[Operands], None]:
    """The kernel as a function of operands."""

    def run(o: Operands) -> None:
        function(o.q, o.k, o.v, o.c)
        o.result = o.c

    return run


def library_attentions(torch: Any, shape: AttentionShape) -> dict[str, Callable[[Operands], None]]:
    """PyTorch's implementations, each of which may turn out not to take the shape."""
    from torch.nn import attention, functional

    def implementation(backend: Any) -> Callable[[Operands], None]:
        def run(o: Operands) -> None:
            with attention.sdpa_kernel(backend):
                o.result = functional.scaled_dot_product_attention(
                    o.q, o.k, o.v, is_causal=shape.causal
                )

        return run

    return {
        f"PyTorch, {name}": implementation(backend)
        for name, backend in attention_backends().items()
    }


def attention_backends() -> dict[str, Any]:
    """PyTorch's implementations of attention that this PyTorch has, by name."""
    from torch.nn.attention import SDPBackend as known

    names = {"cuDNN": "CUDNN_ATTENTION", "FlashAttention 2": "FLASH_ATTENTION"}
    return {name: getattr(known, key) for name, key in names.items() if hasattr(known, key)}


def make_operands(torch: Any, shape: AttentionShape) -> list[Operands]:
    """Random operands, in as many sets as do not fit into the L2 cache together."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    extents = (1, shape.heads, shape.tokens, shape.head_dim)
    dtype = getattr(torch, shape.dtype)

    def normal() -> Any:
        return torch.randn(extents, device="cuda", generator=generator).to(dtype)

    return [
        Operands(normal(), normal(), normal(), torch.empty(extents, device="cuda", dtype=dtype))
        for _ in range(max(2, -(-ROTATING_BYTES // shape.input_bytes)))
    ]


def compare(
    torch: Any, shape: AttentionShape, kernels: Kernels, rounds: int, burst_only: bool
) -> Comparison:
    """Check and time all competitors on one shape; ratios refer to the fastest of PyTorch's."""
    sets = make_operands(torch, shape)
    absent: dict[str, str] = {}

    def usable(run: Callable[[Operands], None]) -> Callable[[Operands], None]:
        run(sets[0])
        torch.cuda.synchronize()
        return run

    known = library_attentions(torch, shape).items()
    libraries = attempt({name: partial(usable, run) for name, run in known}, absent)
    if not libraries:
        raise WarploomError(f"PyTorch has no attention for {shape}: {'; '.join(absent.values())}")
    ours = our_attention(kernels.function(our_kernel(shape)))

    def check(o: Operands) -> Deviation:
        return check_attention(torch, shape, o.q, o.k, o.v, o.result)

    comparison = compare_competitors(
        torch, shape, {OURS: ours} | libraries, sets, check, ALLOWED_ERROR[shape.dtype], rounds,
        burst_only,
    )  # fmt: skip
    protocol = comparison.protocols[0]
    fastest = sorted(comparison.entries[1:], key=lambda entry: entry.times[protocol].median)
    return Comparison(shape, (comparison.entries[0], *fastest), absent)


def check_attention(
    torch: Any, shape: AttentionShape, q: Any, k: Any, v: Any, got: Any
) -> Deviation:
    """Compare all elements of a result with float32, a head and some queries at a time."""
    step = max(1, min(shape.tokens, _LOGITS_AT_ONCE // shape.tokens))
    deviations = []
    for head in range(shape.heads):
        keys, values = k[:, head].float(), v[:, head].float()
        for begin in range(0, shape.tokens, step):
            rows = slice(begin, min(begin + step, shape.tokens))
            logits = q[:, head, rows].float() @ keys.transpose(1, 2) / shape.head_dim**0.5
            if shape.causal:
                seen = torch.ones_like(logits, dtype=torch.bool).tril_(begin)
                logits = logits.masked_fill(~seen, float("-inf"))
            exact = logits.softmax(dim=2) @ values
            deviations.append(deviation(got[:, head, rows].float(), exact))
    return worst_of(*deviations)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--tokens", type=positive, action="append", help="default: 4096, 8192, 16384"
    )
    parser.add_argument("--head-dim", type=positive, action="append", help="default: 64, 128")
    parser.add_argument("--heads", type=positive, default=16, help="default: 16")


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = Parser(
        prog="warploom bench attention",
        description=__doc__,
        parents=[timing_options("attention.json, .md and .png"), kernel_options()],
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    wanted = list(
        shapes(
            options.tokens or (4096, 8192, 16384), options.head_dim or (64, 128), options.heads,
        )
    )  # fmt: skip
    return run(
        "attention", arguments, options, wanted,
        lambda torch, shape, kernels: compare(
            torch, shape, kernels, options.rounds, options.burst_only
        ),
        lambda shape: [our_kernel(shape)],
    )  # fmt: skip
