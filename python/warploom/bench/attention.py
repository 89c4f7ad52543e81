"""``python -m warploom.bench attention``: attention forward against PyTorch's, checked and timed.

The library that ratios refer to is the fastest of PyTorch's implementations for the shape. Exit
status: 0 if every result is right, 1 if one is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from warploom.bench.competitors import OURS
from warploom.bench.environment import environment
from warploom.bench.gemm import EXIT_RIGHT, EXIT_WRONG, import_torch
from warploom.bench.options import timing_options
from warploom.bench.report import Comparison, Entry, markdown, write
from warploom.bench.timing import burst, host_cost, measure, sustained
from warploom.bench.torch_timer import TorchTimer

#: Sets of inputs that launches rotate through.
_INPUT_SETS = 2
#: Queries whose result is compared with float64, and the relative error that is allowed there:
#: the weights are rounded to 16 bits.
_CHECKED_ROWS, ALLOWED_ERROR = 64, {"float16": 1e-3, "bfloat16": 8e-3}


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
        """Multiplications and additions of both products; half of them where causal."""
        return 4 * self.tokens**2 * self.head_dim * self.heads // (2 if self.causal else 1)

    @property
    def tile(self) -> tuple[int, int]:
        """Queries and keys of a step of our kernel.

        Wider blocks hide more of the softmax; the diagonal wastes more of them.
        """
        return (128, 96) if self.causal else (128, 160)


def shapes(tokens: Sequence[int], head_dims: Sequence[int], heads: int) -> Iterator[AttentionShape]:
    """All combinations, causal and not."""
    for causal in (False, True):
        for head_dim in head_dims:
            for count in tokens:
                group = f"head dim {head_dim}{', causal' if causal else ''}"
                yield AttentionShape(group, count, head_dim, heads, causal)


def our_attention(shape: AttentionShape) -> Callable[..., object]:
    """The tile program of this package, compiled."""
    import tvm

    from warploom.kernels import default_target
    from warploom.programs import attention

    func = attention(
        shape.tokens, shape.head_dim, shape.heads, causal=shape.causal, dtype=shape.dtype,
        tile=shape.tile,
    )  # fmt: skip
    target, _ = default_target()
    return tvm.compile(tvm.IRModule({"main": func}), target, tir_pipeline="warploom")["main"]


def library_attentions(torch: Any, shape: AttentionShape) -> dict[str, Callable[..., object]]:
    """PyTorch's implementations that take the shape."""
    from torch.nn import attention, functional

    def implementation(backend: Any) -> Callable[..., object]:
        def run(q: Any, k: Any, v: Any, o: Any) -> Any:
            with attention.sdpa_kernel(backend):
                return functional.scaled_dot_product_attention(q, k, v, is_causal=shape.causal)

        return run

    names = {"CUDNN_ATTENTION": "cuDNN", "FLASH_ATTENTION": "FlashAttention 2"}
    known = attention.SDPBackend
    return {
        f"PyTorch, {name}": implementation(getattr(known, key))
        for key, name in names.items()
        if hasattr(known, key)
    }


def compare(torch: Any, shape: AttentionShape, rounds: int, burst_only: bool) -> Comparison:
    """Check and time all competitors on one shape."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    extents = (1, shape.heads, shape.tokens, shape.head_dim)
    dtype = getattr(torch, shape.dtype)

    def normal() -> Any:
        return torch.randn(extents, device="cuda", generator=generator).to(dtype)

    sets = [(normal(), normal(), normal(), torch.empty(extents, device="cuda", dtype=dtype))
            for _ in range(_INPUT_SETS)]  # fmt: skip
    ours = our_attention(shape)
    competitors = {OURS: ours} | library_attentions(torch, shape)
    errors = {name: _error(torch, shape, run, sets[0]) for name, run in competitors.items()}
    launches = {
        name: lambda index, run=run: run(*sets[index]) for name, run in competitors.items()
    }
    timer = TorchTimer(torch)
    times = {"burst": measure(launches, timer, burst(rounds), _INPUT_SETS)}
    if not burst_only:
        slowest = max(t.median for t in times["burst"].values())
        times["sustained"] = measure(launches, timer, sustained(slowest), _INPUT_SETS)
    entries = [
        Entry(
            name,
            {protocol: by_name[name] for protocol, by_name in times.items()},
            errors[name],
            ALLOWED_ERROR[shape.dtype],
            host_cost(launches[name], torch.cuda.synchronize),
        )
        for name in competitors
    ]
    libraries = sorted(entries[1:], key=lambda entry: entry.times["burst"].median)
    return Comparison(shape, (entries[0], *libraries))


def _error(torch: Any, shape: AttentionShape, run: Callable[..., object], tensors: Any) -> float:
    """Relative error of what an implementation computes."""
    q, k, v, o = tensors
    o.fill_(float("nan"))
    result = run(q, k, v, o)
    torch.cuda.synchronize()
    return attention_error(torch, shape, q, k, v, o if result is None else result)


def attention_error(
    torch: Any, shape: AttentionShape, q: Any, k: Any, v: Any, got: Any
) -> float:
    """Relative error of some rows against float64."""
    step = max(1, shape.tokens // _CHECKED_ROWS)
    rows = torch.arange(step - 1, shape.tokens, step, device="cuda")
    logits = q[:, :, rows].double() @ k.double().transpose(2, 3) / shape.head_dim**0.5
    if shape.causal:
        seen = torch.arange(shape.tokens, device="cuda")[None, :] <= rows[:, None]
        logits = logits.masked_fill(~seen, float("-inf"))
    exact = logits.softmax(dim=3) @ v.double()
    difference = got[:, :, rows].double() - exact
    return float(difference.norm() / exact.norm())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--tokens", type=int, action="append", help="default: 4096, 16384")
    parser.add_argument("--head-dim", type=int, action="append", help="default: 64, 128")
    parser.add_argument("--heads", type=int, default=16, help="default: 16")


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = argparse.ArgumentParser(
        prog="warploom bench attention",
        description=__doc__,
        parents=[timing_options("attention.json and .md")],
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    torch = import_torch()
    wanted = shapes(
        options.tokens or (4096, 16384), options.head_dim or (64, 128), options.heads
    )
    comparisons = []
    for shape in wanted:
        comparison = compare(torch, shape, options.rounds, options.burst_only)
        comparisons.append(comparison)
        ratio = comparison.ratio(comparison.entries[0], "burst")
        print(f"{shape}: {ratio:.3f} of {comparison.entries[1].name}", flush=True)
        torch.cuda.empty_cache()
    facts = environment(["attention", *arguments])
    print("\n" + markdown(comparisons, facts))
    if options.out:
        write(comparisons, facts, options.out, "attention")
    right = all(entry.is_right for c in comparisons for entry in c.entries)
    return EXIT_RIGHT if right else EXIT_WRONG
