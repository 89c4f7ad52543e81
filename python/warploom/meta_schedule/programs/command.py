"""``warploom tune program FILE.py:NAME``: tune a tile program of one's own."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

from warploom.command_line import (
    Parser,
    load_object,
    natural,
    output_folder,
    positive,
    require_gpu,
)
from warploom.errors import WarploomError
from warploom.language.calls.arguments import TensorSpec
from warploom.language.calls.kernel import JitKernel
from warploom.language.tuning.decorator import autotune
from warploom.language.tuning.factory import TunedFactory
from warploom.language.tuning.kernel import TunedKernel
from warploom.language.tuning.space import Space, space
from warploom.target.tvm_target import cuda_target

#: A tensor as ``--key`` has it: ``float16[4096, 4096]``.
_TENSOR = re.compile(r"(?P<dtype>[a-z]\w*)\[(?P<shape>[\d,\s]*)\]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "program", metavar="FILE.py:NAME",
        help="what wl.autotune returns; or a factory, or a kernel of warploom.jit, with --values",
    )  # fmt: skip
    parser.add_argument(
        "--key", type=assignments, default={}, metavar="NAME=VALUE,...",
        help="the arguments that are not tuned: M=4096,N=4096, or for a kernel its tensors and "
        "static parameters: A=float16[4096,4096],alpha=1.0",
    )  # fmt: skip
    parser.add_argument(
        "--values", action="append", default=[], metavar="NAME=VALUE,...",
        help="values of a parameter to tune; NAME alone for a hint; repeatable",
    )  # fmt: skip
    parser.add_argument("--trials", type=positive, help="configs to measure (default: 32)")
    parser.add_argument(
        "--work-dir", type=output_folder, help="folder of the records (default: in the cache)"
    )
    parser.add_argument("--target", help="h100, h200, ... (default: this machine's GPU)")
    parser.add_argument("--workers", type=positive, help="compiling processes (default: all CPUs)")
    parser.add_argument("--device", type=natural, action="append", default=[], help="repeatable")
    parser.add_argument("--seed", type=natural, help="of random configs (default: 0)")
    parser.add_argument(
        "--verbose", action="store_true", help="print the configs that were left out, and why"
    )


def main(arguments: Sequence[str]) -> int:
    """Tune, and print the best config."""
    parser = Parser(
        prog="warploom tune program",
        description="Tune a factory of tile programs, or go on with an earlier search.",
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    kinds = (TunedFactory, TunedKernel, JitKernel, FunctionType)
    loaded, _ = load_object(options.program, kinds)
    tuned = _tuned(loaded, options)
    require_gpu("WARPLOOM_EMULATOR=1 checks the configs, and its times mean nothing")
    tensors, named = _arguments(tuned, options.key)
    best = tuned.tune(
        *tensors,
        target=cuda_target(options.target) if options.target else None,
        trials=options.trials,
        work_dir=options.work_dir,
        max_workers=options.workers,
        devices=options.device or None,
        seed=options.seed,
        verbose=options.verbose or None,
        **named,
    )
    print(best)
    return 0


def assignments(text: str) -> dict[str, Any]:
    """``M=4096,A=float16[64,32]`` as a dict; type of an argument.

    Raises
    ------
    argparse.ArgumentTypeError
        If a part has no name, or there is a name twice.
    """
    found: dict[str, Any] = {}
    for part in _parts(text):
        name, sign, value = part.partition("=")
        if not sign or not name.strip().isidentifier() or name.strip() in found:
            raise argparse.ArgumentTypeError(
                f"{part!r} of {text!r} is no NAME=VALUE with a name of its own"
            )
        found[name.strip()] = read_value(value.strip())
    return found


def read_value(text: str) -> Any:
    """A number, bool, None or tuple as Python has it, a tensor, or the text itself."""
    tensor = _TENSOR.fullmatch(text)
    if tensor is not None:
        sizes = [int(size) for size in tensor["shape"].replace(" ", "").split(",") if size]
        return TensorSpec(tuple(sizes), tensor["dtype"])
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def read_space(texts: Sequence[str]) -> Space:
    """The space of ``--values``: ``tile_m=64,128`` with values, ``split_k`` for a hint.

    Raises
    ------
    ArgumentError
        If a hint has no values of its own.
    """
    hints = [text for text in texts if "=" not in text]
    values = {}
    for text in texts:
        name, sign, rest = text.partition("=")
        if sign:
            values[name.strip()] = tuple(map(read_value, _parts(rest)))
    return space(*hints, **values)


def _parts(text: str) -> Iterator[str]:
    """Split at the commas that stand in no brackets."""
    depth, part = 0, ""
    for character in text:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            yield part.strip()
            part = ""
        else:
            part += character
    if part.strip():
        yield part.strip()


def _tuned(
    loaded: TunedFactory | TunedKernel | JitKernel | Callable[..., Any],
    options: argparse.Namespace,
) -> TunedFactory | TunedKernel:
    if isinstance(loaded, (TunedFactory, TunedKernel)):
        if options.values:
            raise WarploomError(
                f"{loaded.__name__} has configs of its own; leave --values out, or name what "
                "wl.autotune was given."
            )
        return loaded
    if not options.values:
        raise WarploomError(
            f"{loaded.__name__} has no configs: put @wl.autotune(configs=...) before it, or add "
            "--values tile_m=64,128 for each parameter to tune."
        )
    return autotune(loaded, configs=read_space(options.values))


def _arguments(
    tuned: TunedFactory | TunedKernel, key: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The tensors of a kernel, in order; and arguments by name."""
    if isinstance(tuned, TunedFactory):
        return [], key
    inputs = tuned.kernel.signature.inputs
    missing = [name for name in inputs if name not in key]
    if missing:
        raise WarploomError(
            f"{tuned.__name__} needs {', '.join(missing)}; give each a dtype and a shape, such as "
            f"--key {missing[0]}=float16[4096,4096]."
        )
    named = {name: value for name, value in key.items() if name not in inputs}
    return [key[name] for name in inputs], named
