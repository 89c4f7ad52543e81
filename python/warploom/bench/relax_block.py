"""``python -m warploom.bench relax``: a decoder block from end to end, checked and timed.

Relax with this package's schedules against torch.compile, which ratios refer to, PyTorch without
it, and TVM's own schedules. Relax compiles the block once, for any number of rows. Weights of 4
bits PyTorch gets unpacked, for want of an operator that multiplies them. Exit status: 0 if every
result is right, 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from warploom.bench.competitors import OURS
from warploom.bench.decoder import GROUP, ZERO, DecoderConfig, decoder_module
from warploom.bench.environment import environment
from warploom.bench.gemm import EXIT_RIGHT, EXIT_WRONG, import_torch
from warploom.bench.options import timing_options
from warploom.bench.report import Comparison, Entry, markdown, write
from warploom.bench.timing import burst, host_cost, measure, sustained
from warploom.bench.torch_timer import TorchTimer, capture
from warploom.errors import WarploomError

ROWS = (1, 16, 128, 2048)
COMPILED, EAGER = "torch.compile", "PyTorch, eager"
STOCK, STOCK_SM90 = "TVM, dlight", "TVM, dlight, sm_90"
#: Relative errors that are allowed against float64; TVM alone sums in 16 bits.
_ALLOWED_ERROR = {"float16": 5e-3, "bfloat16": 3e-2}
_ALLOWED_OF_STOCK = 0.1
#: Fewer launches than for kernels: a block takes a hundred times longer.
_HOST_LAUNCHES, _HOST_ROUNDS = 5, 3
_SUSTAINED_ROUNDS = 3

#: ``(x, parameters by name) -> result``.
Block = Callable[[Any, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class BlockShape:
    """Rows that go through a decoder block.

    Attributes
    ----------
    group : str
        Shapes of a group are summarised together.
    rows : int
    sizes : dict
        Fields of the block's :class:`DecoderConfig`.
    target : float, optional
        Speed relative to torch.compile that is asked for.
    """

    HEADER: ClassVar[str] = "rows"
    group: str
    rows: int
    sizes: dict[str, Any]
    target: float | None = None

    @property
    def config(self) -> DecoderConfig:
        return DecoderConfig(**self.sizes)

    def __str__(self) -> str:
        weights = ", 4-bit weights" if self.config.quantised else ""
        return f"{self.rows} {self.config.dtype}{weights}"

    @property
    def operations(self) -> int:
        """Multiplications and additions of linear layers and causal attention."""
        config, m = self.config, self.rows
        weights = sum(outputs * inputs for outputs, inputs in config.layers.values())
        return 2 * m * weights + 2 * m * m * config.heads * config.head_dim


@contextmanager
def _switched(value: str | None):
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


def relax_block(config: DecoderConfig, target: Any, switch: str | None, device: Any) -> Block:
    """The block as Relax's default pipeline compiles it, for PyTorch's or TVM's tensors."""
    import tvm
    from tvm import relax

    module, shapes = decoder_module(config)
    with _switched(switch):
        executable = relax.build(module, target)
    forward = relax.VirtualMachine(executable, device)["forward"]

    def run(x: Any, parameters: Mapping[str, Any]) -> Any:
        tensors = (x, *(parameters[name] for name in shapes))
        return forward(*map(tvm.runtime.from_dlpack, tensors))

    return run


def torch_block(torch: Any, config: DecoderConfig) -> Block:
    """The same in PyTorch."""
    functional = torch.nn.functional

    def norm(x: Any, weight: Any) -> Any:
        return functional.rms_norm(x, (config.hidden,), weight, config.epsilon)

    def rotated(heads: Any, rotations: Any) -> Any:
        """Heads ``(m, count, head_dim)``."""
        cos, sin = (torch.cat((one, one), 1)[: len(heads), None] for one in rotations)
        low, high = heads.chunk(2, 2)
        return (heads * cos + torch.cat((-high, low), 2) * sin).to(heads.dtype)

    def run(x: Any, w: Mapping[str, Any]) -> Any:
        qkv = functional.linear(norm(x, w["attention_norm"]), w["qkv.weight"])
        heads = qkv.view(len(x), -1, config.head_dim)
        q, k, v = heads.split([config.heads, config.kv_heads, config.kv_heads], 1)
        q, k = rotated(q, w["rotations"]), rotated(k, w["rotations"])
        mixed = functional.scaled_dot_product_attention(
            *(one.transpose(0, 1)[None] for one in (q, k, v)), is_causal=True, enable_gqa=True
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
    found = {}
    for name, (shape, _) in shapes.items():
        if name == "rotations":
            continue
        if name.endswith(".words"):
            bounds = torch.iinfo(torch.int32)
            found[name] = torch.randint(
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
        found[name] = made.to(dtype)
    if config.quantised:
        for name in config.layers:
            words, scales = (found[f"{name}.{part}"] for part in ("words", "scales"))
            found[f"{name}.weight"] = _unpacked(torch, words, scales)
    half = config.head_dim // 2
    speed = 500000.0 ** (-torch.arange(half, device="cuda").double() / half)
    angles = torch.arange(config.positions, device="cuda").double()[:, None] * speed
    found["rotations"] = torch.stack((angles.cos(), angles.sin())).float()
    return found


def _unpacked(torch: Any, words: Any, scales: Any) -> Any:
    """Weights of 4 bits as numbers of the type of their scales ``(outputs, inputs)``."""
    shifts = torch.arange(0, 32, 4, device="cuda", dtype=torch.int32)
    fields = words.view(torch.int32)[:, :, None] >> shifts & 15
    groups = (fields - ZERO).to(scales.dtype).reshape(len(words), -1, GROUP)
    return (groups * scales[:, :, None]).reshape(len(words), -1)


def blocks(torch: Any, config: DecoderConfig, names: Sequence[str]) -> dict[str, Block]:
    """The competitors, compiled where they are compiled ahead of time."""
    import tvm
    from tvm.target import Target

    from warploom.target import default_target

    target, _ = default_target()
    without_wgmma = Target({**dict(target.export()), "arch": "sm_90"})
    eager = torch_block(torch, config)
    # TVM's legalisation of its attention operator takes no heads that share keys and values.
    products = replace(config, fused_attention=False)
    makers = {
        OURS: lambda: relax_block(config, target, None, tvm.cuda(0)),
        COMPILED: lambda: torch.compile(eager, dynamic=False),
        EAGER: lambda: eager,
        STOCK: lambda: relax_block(products, target, "0", tvm.cuda(0)),
        # Its schedules for tensor cores know this name of the architecture only.
        STOCK_SM90: lambda: relax_block(products, without_wgmma, "0", tvm.cuda(0)),
    }
    return _each(names, lambda name: makers[name]())


def _each(names: Iterable[str], make: Callable[[str], Any]) -> dict[str, Any]:
    """What ``make`` returns for each name; competitors that fail are left out, and said to be.

    TVM's kernels for wmma need headers that the wheels of CUDA lack, torch.compile a C compiler.
    """
    found = {}
    for name in names:
        try:
            found[name] = make(name)
        except RuntimeError as error:
            if name == OURS:
                raise
            reason = str(error).strip() or type(error).__name__
            print(f"{name} is left out: {reason.splitlines()[0]}", file=sys.stderr)
    return found


def compare(
    torch: Any,
    shape: BlockShape,
    competitors: Mapping[str, Block],
    parameters: Mapping[str, Any],
    rounds: int,
    burst_only: bool,
    graphs: bool = False,
) -> Comparison:
    """Check and time all competitors with one number of rows, launched or as CUDA graphs."""
    config = shape.config
    generator = torch.Generator(device="cuda").manual_seed(shape.rows)
    x = torch.randn((shape.rows, config.hidden), device="cuda", generator=generator)
    x = x.to(getattr(torch, config.dtype))
    numbers = {name: one for name, one in parameters.items() if not name.endswith(".words")}
    wide = {name: one.double() for name, one in numbers.items()}
    exact = torch_block(torch, config)(x.double(), wide)
    del wide

    def error(name: str) -> float:
        found = torch.from_dlpack(competitors[name](x, parameters)).double()
        torch.cuda.synchronize()
        return float((found - exact).norm() / exact.norm())

    errors = _each(competitors, error)
    if len(errors) < 2:
        raise WarploomError("There is nothing to compare with; allow another competitor.")
    launches = {name: lambda _, run=competitors[name]: run(x, parameters) for name in errors}
    if graphs:
        launches = _each(errors, lambda name: _captured(torch, launches[name]))
    timer = TorchTimer(torch)
    times = {"burst": measure(launches, timer, burst(rounds), 1)}
    if not burst_only:
        slowest = max(t.median for t in times["burst"].values())
        protocol = sustained(slowest, _SUSTAINED_ROUNDS, 0.1)
        times["sustained"] = measure(launches, timer, protocol, 1)
    entries = [
        Entry(
            name,
            {protocol: by_name[name] for protocol, by_name in times.items()},
            errors[name],
            _ALLOWED_OF_STOCK if name.startswith(STOCK) else _ALLOWED_ERROR[config.dtype],
            host_cost(launches[name], torch.cuda.synchronize, _HOST_LAUNCHES, _HOST_ROUNDS),
        )
        for name in launches
    ]
    return Comparison(shape, tuple(entries))


def _captured(torch: Any, launch: Callable[[int], Any]) -> Callable[[int], Any]:
    replay = capture(torch, launch, 1, 1)
    return lambda _: replay()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    rows = ", ".join(map(str, ROWS))
    parser.add_argument("--rows", type=int, action="append", help=f"repeatable (default: {rows})")
    parser.add_argument("--dtype", choices=sorted(_ALLOWED_ERROR), default="float16")
    parser.add_argument("--int4", action="store_true", help="weights of 4 bits in groups")
    parser.add_argument("--graphs", action="store_true", help="launch blocks as CUDA graphs")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=(COMPILED, EAGER, STOCK, STOCK_SM90),
        help="leave out a competitor; repeatable",
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = argparse.ArgumentParser(
        prog="warploom bench relax",
        description=__doc__,
        parents=[timing_options("relax.json and .md")],
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    torch = import_torch()
    config = DecoderConfig(dtype=options.dtype, quantised=options.int4)
    everyone = (OURS, COMPILED, EAGER, STOCK, STOCK_SM90)
    competitors = blocks(torch, config, [n for n in everyone if n not in options.without])
    parameters = make_parameters(torch, config, torch.Generator(device="cuda").manual_seed(0))
    comparisons = []
    for rows in options.rows or ROWS:
        shape = BlockShape("from 128 rows" if rows >= 128 else "few rows", rows, asdict(config))
        with torch.no_grad():
            comparison = compare(
                torch, shape, competitors, parameters, options.rounds, options.burst_only,
                options.graphs,
            )  # fmt: skip
        comparisons.append(comparison)
        median = {entry.name: entry.times["burst"].median for entry in comparison.entries}
        speeds = (f"{median[n] / median[OURS]:.2f} x {n}" for n in median if n != OURS)
        print(f"{shape}: {median[OURS] * 1e6:.1f} us, {', '.join(speeds)}", flush=True)
    facts = environment(["relax", *arguments])
    print("\n" + markdown(comparisons, facts))
    if options.out:
        write(comparisons, facts, options.out, "relax")
    right = all(entry.is_right for c in comparisons for entry in c.entries)
    return EXIT_RIGHT if right else EXIT_WRONG
