"""``warploom profile PROGRAM``: run a program once, record its timeline, write trace and picture.

On the GPU of this machine, or on the emulator where there is none.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import tvm
from tvm import tirx
from tvm.tirx import PrimFunc

from warploom import emulator
from warploom.command_line import Parser, duration, load_object, natural, output_file, positive
from warploom.errors import WarploomError
from warploom.pictures import MISSING
from warploom.profile.instrument import Instrumented, instrument
from warploom.profile.recording import Recording
from warploom.profile.timeline import Timeline
from warploom.runtime.emulator_libraries import ARCHS
from warploom.target import default_target

#: Launches before the one that is shown: clocks and caches are then those of a busy GPU.
_WARM_LAUNCHES = 3
#: CTAs to record where recording disturbs nothing.
_EMULATED_CTAS = 256


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    defaults = Recording()
    parser = Parser(prog="warploom profile", description=__doc__)
    parser.add_argument(
        "program",
        help="gemm, attention, or FILE.py:NAME of a tile program, a kernel with wl.span, or a "
        "function that returns one",
    )
    parser.add_argument(
        "sizes", nargs="*", type=positive,
        help="gemm: M N K (default 512 each); attention: tokens, head dim, heads (512 64 1); a "
        "function's arguments; of a program, the values of symbolic sizes in the order in which "
        "parameters have them",
    )  # fmt: skip
    parser.add_argument(
        "--ctas", type=positive,
        help=f"CTAs to record, spread over the grid (default: {defaults.ctas} on a GPU, "
        f"{_EMULATED_CTAS} on the emulator)",
    )  # fmt: skip
    parser.add_argument(
        "--capacity", type=positive, default=defaults.capacity,
        help="spans to keep of each role of a CTA, the first ones (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--arch", choices=ARCHS, help="of the emulated GPU, if there is no real one"
    )
    parser.add_argument("--seed", type=natural, default=0, help="of the random data (default: 0)")
    parser.add_argument("--out", type=output_file, default=Path("timeline"),
                        help="file name without suffix (default: %(default)s)")  # fmt: skip
    parser.add_argument("--picture-ctas", type=positive, default=2, help="CTAs in the picture")
    parser.add_argument("--picture-until", type=duration, metavar="NS",
                        help="where the picture ends; the trace has everything")  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="print the shares and the files as JSON"
    )
    options = parser.parse_args(arguments)
    func, sizes = _program(options.program, options.sizes)
    emulated = emulator.enable_without_gpu()
    usual = _EMULATED_CTAS if emulated else defaults.ctas
    recording = Recording(options.ctas or usual, options.capacity)
    timeline = record(func, sizes, recording, options.arch, options.seed)
    trace = options.out.with_suffix(".json")
    trace.parent.mkdir(parents=True, exist_ok=True)
    timeline.write(trace)
    drawn = importlib.util.find_spec("matplotlib") is not None
    pictures = [options.out.with_suffix(suffix) for suffix in (".svg", ".png")[: 1 + drawn]]
    for picture in pictures:
        timeline.plot(picture, options.picture_ctas, options.picture_until)
    if options.json:
        print(json.dumps({
            "kernel": timeline.subject.kernel, "emulated": timeline.emulated,
            "length": timeline.length, "shares": timeline.shares(),
            "files": [str(file) for file in (trace, *pictures)],
        }, indent=2))  # fmt: skip
        return 0
    print(timeline.summary())
    print(f"{trace}: open it in Perfetto (ui.perfetto.dev)")
    print(*pictures, *([] if drawn else [MISSING]), sep="\n")
    return 0


def record(
    func: PrimFunc, sizes: Sequence[int] = (), recording: Recording | None = None,
    arch: str | None = None, seed: int = 0,
) -> Timeline:  # fmt: skip
    """The timeline of a launch with random arguments.

    Parameters
    ----------
    func : PrimFunc
        As for :func:`warploom.profile.instrument`; its parameters are buffers.
    sizes : sequence of int
        Values of its symbolic sizes, in the order in which parameters have them.
    recording : Recording, optional
    arch : str, optional
        The emulated GPU; by default sm_90a. Without effect where there is a GPU.
    seed : int
        Of the arguments.
    """
    arguments = random_arguments(func, sizes, seed)
    if emulator.is_enabled():
        kernel = instrument(func, recording, arch)
        return kernel.emulate(arguments, arch=arch, checks=False, schedule="round-robin")
    return _on_gpu(instrument(func, recording), arguments)


def _on_gpu(kernel: Instrumented, arguments: Sequence[np.ndarray]) -> Timeline:
    target, _ = default_target()
    compiled = tvm.compile(tvm.IRModule({"main": kernel.func}), target, tir_pipeline="warploom")
    device = tvm.cuda(0)
    tensors = [tvm.runtime.tensor(array, device) for array in arguments]
    for _ in range(_WARM_LAUNCHES):
        compiled["main"](*tensors, tvm.runtime.tensor(kernel.records(), device))
    records = tvm.runtime.tensor(kernel.records(), device)
    compiled["main"](*tensors, records)
    device.sync()
    return kernel.timeline(records, emulated=False)


def random_arguments(func: PrimFunc, sizes: Sequence[int], seed: int) -> list[np.ndarray]:
    """Normally distributed arrays, small integers where elements are integers.

    Raises
    ------
    WarploomError
        If a parameter is no buffer, or there are not as many sizes as symbolic ones.
    """
    rng = np.random.default_rng(seed)
    known: dict[tirx.Var, int] = {}
    remaining = list(sizes)
    shapes: list[tuple[list[int], str]] = []
    for buffer in func.params:
        if not tirx.is_buffer_var(buffer):
            raise WarploomError(
                f"The parameter {buffer.name} is no buffer; a profiled program takes buffers only."
            )
        shape = []
        for extent in buffer.shape:
            if isinstance(extent, tirx.Var) and extent not in known:
                if not remaining:
                    raise WarploomError(
                        f"The size {extent.name} of {buffer.name} is symbolic; give its value "
                        "after the program."
                    )
                known[extent] = remaining.pop(0)
            shape.append(known[extent] if isinstance(extent, tirx.Var) else int(extent))
        shapes.append((shape, str(buffer.dtype)))
    if remaining:
        raise WarploomError(f"The sizes {remaining} are of nothing; the program has no more.")
    return [_random(rng, shape, dtype) for shape, dtype in shapes]


def _random(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    if kind.kind in "iub":
        return rng.integers(0, 2, shape).astype(kind)
    return rng.standard_normal(shape, np.float32).astype(kind)


def _program(place: str, sizes: Sequence[int]) -> tuple[PrimFunc, Sequence[int]]:
    """The program that a user means, and the sizes that are left."""
    if place == "gemm":
        from warploom.decide import choose, plain_gemm
        from warploom.programs import gemm

        m, n, k = _with_defaults(place, sizes, (512, 512, 512))
        return gemm(choose(plain_gemm(m, n, k)), n, k, m), ()
    if place == "attention":
        from warploom.programs import attention

        tokens, head_dim, heads = _with_defaults(place, sizes, (512, 64, 1))
        return attention(tokens, head_dim, heads), ()
    if ":" not in place and not Path(place).is_file():
        raise WarploomError(f"{place!r} is no program; allowed are gemm, attention, FILE.py:NAME.")
    program, called = load_object(place, (PrimFunc,), sizes)
    return program, () if called else sizes


def _with_defaults(name: str, sizes: Sequence[int], defaults: tuple[int, ...]) -> tuple[int, ...]:
    if len(sizes) > len(defaults):
        raise WarploomError(f"{name} has {len(defaults)} sizes, and {len(sizes)} were given.")
    return (*sizes, *defaults[len(sizes) :])
