"""``python -m warploom_bench gallery [PAGE ...]``: kernels of the gallery against PyTorch.

Each page of ``tutorials/gallery`` has a kernel, sizes to measure, and the same in PyTorch's own
operators. Results of both are compared; then both are timed in turn, and their times set against
the time that the GPU's memory or tensor cores need at least. Exit status: 0 if every result is
right, 1 if one is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warploom.command_line import Parser, positive, sentence
from warploom.errors import WarploomError
from warploom.target import Gpu
from warploom.timing import Launch, burst, measure
from warploom.tutorials import gallery
from warploom_bench.report import markdown_table
from warploom_bench.run import import_torch
from warploom_bench.torch_timer import TorchTimer, capture

#: Bytes of multiply-adds that the tensor cores of an SM do in a cycle.
_TENSOR_BYTES = {"sm_90a": 4096, "sm_100a": 8192}
#: Executions in a CUDA graph of a kernel that takes less than so many seconds.
_SHORT, _EXECUTIONS = 1e-4, 20
#: How large an error may be, in terms of that which a page allows: PyTorch rounds, too.
_ROUNDED_TWICE = 2.0


@dataclass(frozen=True)
class Row:
    """What was measured of a kernel.

    Attributes
    ----------
    name : str
    seconds : float
        Of our kernel; a median.
    torch_seconds : float, optional
        Of PyTorch's operators; None where PyTorch cannot compute it, which ``note`` explains.
    roofline : float
        The share of the GPU's memory or tensor cores that our kernel reaches, at most 1 in theory.
    error : float
        The difference to PyTorch in terms of the largest element.
    right : bool
    note : str
    """

    name: str
    seconds: float
    torch_seconds: float | None
    roofline: float
    error: float
    right: bool
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times as fast as PyTorch our kernel is."""
        return None if self.torch_seconds is None else self.torch_seconds / self.seconds


def least_seconds(gpu: Gpu, flops: float, size: float, element_bytes: int) -> float:
    """The time that a kernel takes at least: that of its memory, or that of its tensor cores.

    Parameters
    ----------
    gpu : Gpu
    flops : float
        Additions and multiplications of MMAs.
    size : float
        Bytes of all inputs and results.
    element_bytes : int
        Of the operands of MMAs.

    Examples
    --------
    >>> from warploom.target import GPUS
    >>> round(least_seconds(GPUS["h200"], 2 * 8192**3, 3 * 8192**2 * 2, 2) * 1e3, 2)
    1.03
    """
    tensor = 2 * _TENSOR_BYTES[gpu.arch.name] / element_bytes * gpu.sms * gpu.clock
    return max(size / gpu.dram_bandwidth, flops / tensor)


def measure_page(torch: Any, name: str, kernel: gallery.Kernel, gpu: Gpu, rounds: int) -> Row:
    """Compile, compare and time the kernel of a page."""
    import tvm

    from warploom.target import default_target

    func, arrays = kernel.make(kernel.large), kernel.data(kernel.large)
    shapes = kernel.results(func, arrays)
    executable = tvm.compile(
        tvm.IRModule({"main": func}), default_target()[0], tir_pipeline="warploom"
    )["main"]
    inputs = [to_torch(torch, array) for array in arrays]
    results = [torch.full(shape, 0, dtype=getattr(torch, d), device="cuda") for shape, d in shapes]
    for each in results:  # no kernel leaves it as it is
        each.fill_(torch.nan if each.is_floating_point() else torch.iinfo(each.dtype).min)

    def ours(_: int) -> None:
        executable(*inputs, *results)

    def library(_: int) -> Any:
        return kernel.by_torch(torch, inputs, kernel.large)

    ours(0)
    torch.cuda.synchronize()
    competitors: dict[str, Launch] = {"warploom": ours}
    error, note = float("nan"), ""
    with torch.no_grad():
        try:
            error = _error(results, library(0))
            competitors["torch"] = library
        except RuntimeError as reason:  # as PyTorch says that an operator is not for these
            note = "PyTorch: " + str(reason).splitlines()[0][:80]
        seconds = _seconds(torch, competitors, rounds)
    size = sum(each.numel() * each.element_size() for each in (*inputs, *results))
    least = least_seconds(gpu, kernel.work(kernel.large), size, inputs[0].element_size())
    right = "torch" not in competitors or error <= _ROUNDED_TWICE * kernel.tolerance
    return Row(name, seconds["warploom"], seconds.get("torch"), least / seconds["warploom"], error,
               right, note)  # fmt: skip


def to_torch(torch: Any, array: np.ndarray) -> Any:
    """An array as a tensor on the GPU, of numpy's dtypes or those of ``ml_dtypes``."""
    name = str(array.dtype)
    if hasattr(np, name):
        return torch.from_numpy(array).cuda()
    words = array.view(f"int{8 * array.itemsize}")
    return torch.from_numpy(words).cuda().view(getattr(torch, name))


def _error(results: Sequence[Any], expected: Any) -> float:
    """The largest difference, in terms of the largest element, of what both have computed."""
    right = expected if isinstance(expected, (list, tuple)) else [expected]
    errors = []
    for found, each in zip(results, right, strict=False):
        each = each.values() if each.is_nested else each
        each = each.reshape(found.shape).double()
        errors.append(float((found.double() - each).abs().max() / each.abs().max()))
    return max(errors)


def _seconds(torch: Any, competitors: Mapping[str, Launch], rounds: int) -> dict[str, float]:
    timer = TorchTimer(torch)
    first = measure(competitors, timer, burst(1), 1)
    launches, executions = dict(competitors), 1
    if all(each.median < _SHORT for each in first.values()):
        graphs = {name: capture(torch, run, 1, _EXECUTIONS) for name, run in competitors.items()}
        launches = {name: (lambda _, replay=replay: replay()) for name, replay in graphs.items()}
        executions = _EXECUTIONS
    found = measure(launches, timer, burst(rounds), 1, executions)
    return {name: each.median for name, each in found.items()}


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown."""
    return markdown_table(
        ("kernel", "us", "share of roofline", "PyTorch us", "ratio", "error"), map(_cells, rows)
    )


def _cells(row: Row) -> tuple[str, ...]:
    library = f"{row.torch_seconds * 1e6:.1f}" if row.torch_seconds else row.note
    ratio = f"{row.ratio:.2f}" if row.ratio else ""
    error = f"{row.error:.1e}" + " wrong" * (not row.right)
    return row.name, f"{row.seconds * 1e6:.1f}", f"{row.roofline:.0%}", library, ratio, error


def main(arguments: Sequence[str]) -> int:
    """Measure pages, print a table, and return the exit status."""
    parser = Parser(prog="warploom bench gallery", description=__doc__.split("\n\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="default: all pages")
    parser.add_argument(
        "--folder", type=Path, default=Path("tutorials/gallery"), help="default: %(default)s"
    )
    parser.add_argument("--rounds", type=positive, default=9, help="samples (default: 9)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to a file")
    options = parser.parse_args(arguments)
    found = gallery.pages(options.folder)
    if unknown := [name for name in options.pages if name not in found]:
        raise WarploomError(f"{unknown[0]} is no page of {options.folder}: {', '.join(found)}.")
    torch = import_torch()
    from warploom.target import default_target, gpu_of

    gpu, rows, failed = gpu_of(default_target()[0]), [], False
    for name in options.pages or found:
        try:
            rows.append(measure_page(torch, name, gallery.load(found[name]), gpu, options.rounds))
        except Exception as reason:  # of a compiler, a launch or PyTorch: others are measured still
            print(f"{name}: {sentence(reason)}", flush=True)
            failed = True
        else:
            row = rows[-1]
            print(": ".join([name, ", ".join(_cells(row)[1:])]), flush=True)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return int(failed or not all(row.right for row in rows))
