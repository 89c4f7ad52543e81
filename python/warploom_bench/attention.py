"""``python -m warploom_bench attention``: attention forward against PyTorch's, checked and timed.

The library that ratios refer to is the fastest of PyTorch's implementations for the shape. With
``--configs`` further configs compete as well, and a table says how near the model's choice is to
the fastest of them. Exit status: 0 if every result is right, 1 if one is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from warploom.command_line import Parser, natural, positive
from warploom.errors import WarploomError
from warploom.target.dtypes import bits_of
from warploom_bench.check import Deviation, deviation, worst_of
from warploom_bench.compete import compare_competitors
from warploom_bench.competitors import OURS
from warploom_bench.kernels import Kernel, Kernels
from warploom_bench.operands import ROTATING_BYTES
from warploom_bench.options import kernel_options, timing_options
from warploom_bench.report import Comparison, geometric_mean, markdown_table
from warploom_bench.run import attempt, run
from warploom_bench.unseen import FORM, draw_attention

if TYPE_CHECKING:
    from tvm.runtime import Executable

#: The relative error that is allowed: the weights of the softmax are rounded to 16 bits.
ALLOWED_ERROR = {"float16": 1e-3, "bfloat16": 8e-3}
#: Elements of logits that a check holds at a time.
_LOGITS_AT_ONCE = 1 << 28


@dataclass(frozen=True)
class AttentionShape:
    """``O = softmax(Q Kᵀ / sqrt(head_dim)) V``.

    Attributes
    ----------
    group : str
        Shapes of a group are summarised together.
    tokens, head_dim, heads : int
    causal : bool
    dtype : str
    kv_heads : int
        Heads of K and V; 0 if as many as of Q.
    batch : int
    """

    HEADER: ClassVar[str] = "heads x tokens x head dim"
    group: str
    tokens: int
    head_dim: int
    heads: int
    causal: bool
    dtype: str = "float16"
    target: float | None = None
    kv_heads: int = 0
    batch: int = 1

    def __str__(self) -> str:
        causal = " causal" if self.causal else ""
        shared = f":{self.shared_heads}" if self.shared_heads != self.heads else ""
        batch = f"{self.batch}x" if self.batch > 1 else ""
        return f"{batch}{self.heads}{shared}x{self.tokens}x{self.head_dim} {self.dtype}{causal}"

    @property
    def shared_heads(self) -> int:
        """Heads of K and V."""
        return self.kv_heads or self.heads

    @property
    def operations(self) -> int:
        """Multiplications and additions of both GEMMs; half of them where causal."""
        heads = self.batch * self.heads
        return 4 * self.tokens**2 * self.head_dim * heads // (2 if self.causal else 1)

    @property
    def input_bytes(self) -> int:
        """Of Q, K and V."""
        heads = self.batch * (self.heads + 2 * self.shared_heads)
        return heads * self.tokens * self.head_dim * bits_of(self.dtype) // 8


def shapes(tokens: Sequence[int], head_dims: Sequence[int], heads: int) -> Iterator[AttentionShape]:
    """All combinations, causal and not."""
    for causal in (False, True):
        for head_dim in head_dims:
            for count in tokens:
                group = f"head dim {head_dim}{', causal' if causal else ''}"
                yield AttentionShape(group, count, head_dim, heads, causal)


def random_shapes(suite: str) -> list[AttentionShape]:
    """The cases of ``unseen:SEED[:COUNT]``.

    Raises
    ------
    WarploomError
        If the name is of another form.
    """
    drawn = draw_attention(suite)
    return [
        AttentionShape(f"head dim {one['head_dim']}{', causal' * one['causal']}", **one)
        for one in drawn
    ]


@dataclass
class Operands:
    """An input set; ``found`` is the last result, in ``c`` where ours has written it."""

    q: Any
    k: Any
    v: Any
    c: Any
    result: Any = None


def program(shape: AttentionShape, tile: tuple[int, int] | None = None) -> Executable:
    """The tile program of this package, compiled; ``tile`` are queries and keys of a step."""
    import tvm

    from warploom.programs import attention
    from warploom.target import default_target

    func = attention(
        shape.tokens, shape.head_dim, shape.heads, kv_heads=shape.shared_heads, batch=shape.batch,
        causal=shape.causal, dtype=shape.dtype, **({} if tile is None else {"tile": tile}),
    )  # fmt: skip
    target, _ = default_target()
    return tvm.compile(tvm.IRModule({"main": func}), target, tir_pipeline="warploom")


def our_kernel(shape: AttentionShape, tile: tuple[int, int] | None = None) -> Kernel:
    """Kernels to compile for a shape."""
    shape = replace(shape, group="", target=None)
    return Kernel(program, (shape,) if tile is None else (shape, tile))


def other_tiles(shape: AttentionShape, count: int) -> list[tuple[int, int]]:
    """The tiles that compete with the model's choice, at most ``count``: what it likes first."""
    if not count:
        return []
    from warploom.decide.families.attention import AttentionProblem, attention_configs
    from warploom.decide.machines import machine_for

    problem = AttentionProblem(
        shape.tokens, shape.head_dim, shape.heads, shape.shared_heads, shape.batch, shape.causal
    )
    configs = attention_configs(problem, machine_for())[1 : 1 + count]
    return [(config.tile_m, config.tile_n) for config in configs]


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
                    o.q, o.k, o.v, is_causal=shape.causal,
                    enable_gqa=shape.shared_heads != shape.heads,
                )  # fmt: skip

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
    dtype = getattr(torch, shape.dtype)

    def extents(heads: int) -> tuple[int, ...]:
        return (shape.batch, heads, shape.tokens, shape.head_dim)

    def normal(heads: int) -> Any:
        return torch.randn(extents(heads), device="cuda", generator=generator).to(dtype)

    def operands() -> Operands:
        q, k, v = map(normal, (shape.heads, shape.shared_heads, shape.shared_heads))
        return Operands(q, k, v, torch.empty(extents(shape.heads), device="cuda", dtype=dtype))

    return [operands() for _ in range(max(2, -(-ROTATING_BYTES // shape.input_bytes)))]


def compare(
    torch: Any, shape: AttentionShape, kernels: Kernels, rounds: int, burst_only: bool,
    configs: int = 0,
) -> Comparison:  # fmt: skip
    """Check and time all competitors on one shape; ratios refer to the fastest of PyTorch's.

    ``configs`` of ours compete beside the model's choice; they come after PyTorch's.
    """
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
    others = {tile: partial(_run_of, kernels, shape, tile) for tile in other_tiles(shape, configs)}
    tiles = attempt({f"{OURS} {m}x{n}": make for (m, n), make in others.items()}, absent)

    def check(o: Operands) -> Deviation:
        return check_attention(torch, shape, o.q, o.k, o.v, o.result)

    comparison = compare_competitors(
        torch, shape, {OURS: ours} | libraries | tiles, sets, check, ALLOWED_ERROR[shape.dtype],
        rounds, burst_only,
    )  # fmt: skip
    protocol = comparison.protocols[0]
    ours, *rest = comparison.entries
    by_time = sorted(rest, key=lambda entry: entry.times[protocol].median)
    fastest = sorted(by_time, key=lambda entry: entry.name in tiles)
    return Comparison(shape, (ours, *fastest), absent)


def _run_of(
    kernels: Kernels, shape: AttentionShape, tile: tuple[int, int]
) -> Callable[[Operands], None]:
    return our_attention(kernels.function(our_kernel(shape, tile)))


def choice_to_best(comparisons: Sequence[Comparison]) -> str:
    """A table: by group, the time of our fastest config in that of the model's choice."""
    groups: dict[str, list[float]] = {}
    for one in comparisons:
        times = [
            entry.times[one.protocols[0]].median
            for entry in one.entries
            if entry.name.startswith(OURS)
        ]
        for group in (one.shape.group, "all"):
            groups.setdefault(group, []).append(min(times) / times[0])
    groups["all"] = groups.pop("all")
    rows = [
        (name, len(ratios), f"{geometric_mean(ratios):.3f}", f"{min(ratios):.3f}")
        for name, ratios in groups.items()
    ]
    return markdown_table(("group", "cases", "choice to best", "worst"), rows)


def check_attention(
    torch: Any, shape: AttentionShape, q: Any, k: Any, v: Any, got: Any
) -> Deviation:
    """Compare all elements of a result with float32, a head and some queries at a time."""
    step = max(1, min(shape.tokens, _LOGITS_AT_ONCE // (shape.tokens * shape.batch)))
    share = shape.heads // shape.shared_heads
    deviations = []
    for head in range(shape.heads):
        keys, values = k[:, head // share].float(), v[:, head // share].float()
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
    parser.add_argument(
        "--suite", help=f"random cases: {FORM}; the three options before are for others"
    )
    parser.add_argument(
        "--configs", type=natural, default=0,
        help="further configs of each case that compete with the model's choice (default: 0)",
    )  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = Parser(
        prog="warploom bench attention",
        description=__doc__,
        parents=[timing_options("attention.json, .md and .png"), kernel_options()],
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    tokens, head_dims = options.tokens or (4096, 8192, 16384), options.head_dim or (64, 128)
    wanted = (
        random_shapes(options.suite) if options.suite
        else list(shapes(tokens, head_dims, options.heads))
    )  # fmt: skip
    measured: list[Comparison] = []

    def measure(torch: Any, shape: AttentionShape, kernels: Kernels) -> Comparison:
        count = options.configs
        measured.append(compare(torch, shape, kernels, options.rounds, options.burst_only, count))
        return measured[-1]

    def kernels_of(shape: AttentionShape) -> list[Kernel]:
        tiles = other_tiles(shape, options.configs)
        return [our_kernel(shape), *(our_kernel(shape, tile) for tile in tiles)]

    status = run("attention", arguments, options, wanted, measure, kernels_of)
    if options.configs and measured:
        print("\n" + choice_to_best(measured))
    return status
