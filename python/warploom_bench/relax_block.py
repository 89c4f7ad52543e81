"""``python -m warploom_bench relax``: a decoder block from end to end, checked and timed.

Relax with this package's schedules against torch.compile (max-autotune, with each implementation of
attention), PyTorch without it, and TVM's own schedules. Ratios refer to the fastest of these. Relax
compiles the block once, for any number of rows. Weights of 4 bits PyTorch gets unpacked, for want
of an operator that multiplies them. Exit status: 0 if every result is right, 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar

from warploom.command_line import Parser, positive
from warploom.errors import WarploomError
from warploom.timing import burst, host_cost, measure, sustained
from warploom_bench.attention import attention_backends
from warploom_bench.check import Deviation, deviation, worst_of
from warploom_bench.competitors import OURS
from warploom_bench.decoder import DecoderConfig
from warploom_bench.decoder_blocks import (
    Block,
    make_parameters,
    relax_block,
    relax_executable,
    torch_block,
)
from warploom_bench.kernels import Kernel, Kernels
from warploom_bench.options import kernel_options, timing_options
from warploom_bench.report import Comparison, Entry
from warploom_bench.run import run
from warploom_bench.torch_timer import TorchTimer, capture

ROWS = (1, 16, 128, 2048)
COMPILED, EAGER = "torch.compile", "PyTorch, eager"
STOCK, STOCK_SM90 = "TVM, dlight", "TVM, dlight, sm_90"
#: Relative errors that are allowed against float64; TVM alone sums in 16 bits.
_ALLOWED_ERROR = {"float16": 5e-3, "bfloat16": 3e-2}
_ALLOWED_OF_STOCK = 0.1
#: Fewer launches than for kernels: a block takes a hundred times longer.
_HOST_LAUNCHES, _HOST_ROUNDS = 5, 3
_SUSTAINED_ROUNDS = 3


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


def our_kernels(config: DecoderConfig, names: Iterable[str]) -> dict[str, Kernel]:
    """Modules that TVM compiles, by the name of the competitor."""
    # TVM's legalisation of its attention operator takes no heads that share keys and values.
    unfused = replace(config, fused_attention=False)
    kernels = {
        OURS: Kernel(relax_executable, (config, None)),
        STOCK: Kernel(relax_executable, (unfused, "0")),
        # Its schedules for tensor cores know this name of the architecture only.
        STOCK_SM90: Kernel(relax_executable, (unfused, "0", "sm_90")),
    }
    return {name: kernel for name, kernel in kernels.items() if name in names}


def blocks(
    torch: Any, config: DecoderConfig, names: Sequence[str], kernels: Kernels
) -> dict[str, Block]:
    """The competitors, compiled where they are compiled ahead of time."""
    compiled, eager = our_kernels(config, names), torch_block(torch, config)
    libraries = {EAGER: lambda: eager}
    for kind, backend in attention_backends().items():
        libraries[f"{COMPILED}, {kind}"] = partial(_compiled, torch, eager, backend)

    def make(name: str) -> Block:
        if name in libraries:
            return libraries[name]()
        return relax_block(config, kernels.module(compiled[name]))

    wanted = [
        library for library in libraries if library.partition(",")[0] in names or library in names
    ]
    return _each([*(name for name in names if name in compiled), *wanted], make)


def _compiled(torch: Any, eager: Block, backend: Any) -> Block:
    """The block as torch.compile makes it with its longest search, without graphs of its own."""

    from torch.nn.attention import sdpa_kernel

    def block(x: Any, parameters: Mapping[str, Any]) -> Any:
        with sdpa_kernel(backend):
            return eager(x, parameters)

    return torch.compile(block, dynamic=False, mode="max-autotune-no-cudagraphs")


def _each(names: Iterable[str], make: Callable[[str], Any]) -> dict[str, Any]:
    """Return ``make(name)`` for each name; report competitors that fail, and leave them out.

    TVM's kernels for wmma need headers that the wheels of CUDA lack, torch.compile a C compiler.
    """
    made = {}
    for name in names:
        try:
            made[name] = make(name)
        except (WarploomError, RuntimeError) as error:
            if name == OURS:
                raise
            reason = str(error).strip() or type(error).__name__
            print(f"{name} is left out: {reason.splitlines()[0]}", file=sys.stderr)
    return made


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
    numbers = {
        name: parameter for name, parameter in parameters.items() if not name.endswith(".words")
    }
    wide = {name: number.double() for name, number in numbers.items()}
    exact = torch_block(torch, config)(x.double(), wide)
    del wide

    results: dict[str, Any] = {}

    def launch(name: str) -> None:
        results[name] = torch.from_dlpack(competitors[name](x, parameters))

    def check(name: str, run: Callable[[int], object]) -> Deviation:
        run(0)  # makes the result that is poisoned
        results[name].fill_(float("nan"))
        run(0)
        torch.cuda.synchronize()
        return deviation(results[name].double(), exact)

    launches = {name: lambda _, name=name: launch(name) for name in competitors}
    checked = _each(competitors, lambda name: check(name, launches[name]))
    if len(checked) < 2:
        raise WarploomError("There is nothing to compare with; allow another competitor.")
    launches = {name: launches[name] for name in checked}
    if graphs:
        launches = _each(checked, lambda name: _captured(torch, launches[name]))
        for name, replay in launches.items():
            checked[name] = worst_of(checked[name], check(name, replay))
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
            checked[name],
            _ALLOWED_OF_STOCK if name.startswith(STOCK) else _ALLOWED_ERROR[config.dtype],
            host_cost(launches[name], torch.cuda.synchronize, _HOST_LAUNCHES, _HOST_ROUNDS),
        )
        for name in launches
    ]
    first, *libraries = entries
    fastest = sorted(libraries, key=lambda entry: entry.times["burst"].median)
    return Comparison(shape, (first, *fastest))


def _captured(torch: Any, launch: Callable[[int], Any]) -> Callable[[int], Any]:
    replay = capture(torch, launch, 1, 1)
    return lambda _: replay()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    rows = ", ".join(map(str, ROWS))
    parser.add_argument(
        "--rows", type=positive, action="append", help=f"repeatable (default: {rows})"
    )
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
    parser = Parser(
        prog="warploom bench relax",
        description=__doc__,
        parents=[timing_options("relax.json, .md and .png"), kernel_options()],
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    config = DecoderConfig(dtype=options.dtype, quantised=options.int4)
    everyone = (OURS, COMPILED, EAGER, STOCK, STOCK_SM90)
    names = [name for name in everyone if name not in options.without]
    shapes = [
        BlockShape("from 128 rows" if rows >= 128 else "few rows", rows, asdict(config))
        for rows in options.rows or ROWS
    ]

    made: list[tuple[dict[str, Block], dict[str, Any]]] = []  # by the first of them, for all

    def compare_rows(torch: Any, shape: BlockShape, kernels: Kernels) -> Comparison:
        if not made:
            generator = torch.Generator(device="cuda").manual_seed(0)
            competitors = blocks(torch, config, names, kernels)
            made.append((competitors, make_parameters(torch, config, generator)))
        return compare(torch, shape, *made[0], options.rounds, options.burst_only, options.graphs)

    return run(
        "relax", arguments, options, shapes, compare_rows,
        lambda shape: our_kernels(config, names).values(),
    )  # fmt: skip
