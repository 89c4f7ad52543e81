"""``warploom check``: launch a kernel of a file with PTX on the emulator, and report what is wrong.

The file holds PTX as text, as ``nvcc -ptx`` and Triton's cache have it, or is a fat binary with PTX
(``nvcc -fatbin``). Arguments are given in the order of the kernel's parameters:

``float16[128,64]``
    An array of random numbers; integers are from 0 to 7.
``float32[128]=nan``, ``int32[4]=1``
    An array of which each element has this value: ``nan`` poisons a result.
``int32=5``
    A number. Without a value a number is random, too.

The exit status is 0 if nothing was found, 1 if something was, and 2 if the kernel could not start.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from warploom.command_line import Parser, natural
from warploom.emulator import api, run_ptx
from warploom.emulator.binding import EmulatorError
from warploom.emulator.findings import Finding
from warploom.emulator.settings import SCHEDULES
from warploom.errors import WarploomError, reading
from warploom.runtime.emulator_libraries import ARCHS

_ARGUMENT = re.compile(r"(?P<dtype>\w+)(?:\[(?P<shape>[\d,\s]*)\])?(?:=(?P<value>\S+))?")
#: Random integers are below this number: as indices they seldom leave an array.
_INTEGERS = 8


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "warploom check", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("file", type=Path, help="PTX, or a fat binary with PTX")
    parser.add_argument("--kernel", help="its name; may be left out if there is only one")
    for name, meaning in (("grid", "CTAs"), ("block", "threads of a CTA")):
        parser.add_argument(f"--{name}", type=_dimensions, metavar="X[,Y,Z]", help=meaning)
    parser.add_argument("--cluster", type=_dimensions, metavar="X[,Y,Z]", help="CTAs of a cluster")
    parser.add_argument("--shared", type=natural, default=0, help="bytes of dynamic shared memory")
    parser.add_argument("--cooperative", action="store_true", help="all CTAs are live together")
    parser.add_argument("--args", nargs="*", default=[], metavar="ARG", help="as described above")
    parser.add_argument("--arch", choices=ARCHS, help="the device (that of the PTX)")
    parser.add_argument("--seed", type=natural, default=1, help="of arguments and schedule (1)")
    parser.add_argument("--schedule", choices=SCHEDULES, default="random", help="(random)")
    parser.add_argument("--explore", type=natural, default=0, metavar="N", help="schedules")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Entry of ``warploom check``; the exit status says whether something was found."""
    options = _parser().parse_args(arguments)
    if not options.file.is_file():
        raise WarploomError(f"There is no file {options.file}; name PTX or a fat binary.")
    with reading(options.file, "PTX"):
        image = run_ptx.read_image(options.file)
    rng = np.random.default_rng(options.seed)
    values = [argument_of(text, rng) for text in options.args]
    try:
        api.run(
            image, values, kernel=options.kernel, grid=options.grid, block=options.block,
            cluster=options.cluster, shared=options.shared,
            cooperative=options.cooperative or None, arch=options.arch, seed=options.seed,
            schedule=options.schedule, explore=options.explore,
        )  # fmt: skip
        findings: tuple[Finding, ...] = ()
    except EmulatorError as error:
        if not error.findings:
            raise
        findings = error.findings
    print(_json(findings) if options.json else _text(findings, options.file))
    return int(bool(findings))


def argument_of(text: str, rng: np.random.Generator) -> Any:
    """An argument of a kernel, as the command line has it.

    Parameters
    ----------
    text : str
        ``float16[128,64]``, ``float32[4]=nan``, ``int32=5``.
    rng : Generator
        Of random elements.

    Raises
    ------
    WarploomError
        If the text is none of these.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> argument_of("float32[2,3]=1.5", rng).sum(), argument_of("int32=5", rng)
    (np.float32(9.0), 5)
    """
    match = _ARGUMENT.fullmatch(text)
    dtype = match and _dtype(match["dtype"])
    if not match or dtype is None:
        raise WarploomError(
            f"{text} is no argument; write an array such as float16[128,64] or float32[4]=nan, or "
            "a number such as int32=5."
        )
    kind = int if dtype.kind in "iub" else float
    try:
        value = None if match["value"] is None else kind(match["value"])
        if match["shape"] is None:
            return kind(_random(rng, (), dtype)) if value is None else value
        shape = tuple(int(extent) for extent in match["shape"].split(",") if extent.strip())
        if value is None:
            return _random(rng, shape, dtype).astype(dtype)
        return np.full(shape, value, dtype)
    except (ValueError, OverflowError) as error:
        raise WarploomError(f"{text} is no argument: {error}.") from error


def _dtype(name: str) -> np.dtype | None:
    for module in (np, ml_dtypes):
        try:
            return np.dtype(getattr(module, name))
        except (AttributeError, TypeError):
            continue
    return None


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "iub":
        return rng.integers(0, 2 if dtype.kind == "b" else _INTEGERS, shape)
    return rng.standard_normal(shape)


def _dimensions(text: str) -> tuple[int, ...]:
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not 1 <= len(values) <= 3 or min(values) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not one to three positive integers: X,Y,Z")
    return values


def _text(findings: Sequence[Finding], file: Path) -> str:
    if not findings:
        return f"{file}: nothing was found."
    return "\n\n".join(map(_line, findings))


def _line(one: Finding) -> str:
    kind = "" if one.text.startswith(one.kind) else f"{one.kind}: "
    times = f" (found {one.count} times)" if one.count > 1 else ""
    return f"{kind}{one.text}{times}"


def _json(findings: Sequence[Finding]) -> str:
    rows = [
        {
            "kind": one.kind, "kernel": one.kernel, "text": one.text, "count": one.count,
            "fix": one.fix, "sides": [vars(side) for side in one.sides],
        }
        for one in findings
    ]  # fmt: skip
    return json.dumps(rows, indent=2)
