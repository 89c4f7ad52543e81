"""Measures models that PyTorch exports, beside torch.compile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from warploom_bench.check import deviation
from warploom_bench.models import rivals
from warploom_bench.models.clocks import alternate, profiled
from warploom_bench.models.exported import (
    EXPORTED,
    built,
    captured,
    first,
    made_with,
    relax_module,
)
from warploom_bench.models.results import Result
from warploom_bench.models.roofline import Work
from warploom_bench.models.rows import Row
from warploom_bench.models.torch_memory import viewed

#: Relative error that is allowed against float32: of float16 inside, and of TVM alone.
ALLOWED, _ALLOWED_OF_STOCK = 2e-2, 0.2
_ROUNDS, _STEPS, _PROFILED = 5, 6, 3


@dataclass
class ExportedBench:
    """A model that PyTorch exports.

    Attributes
    ----------
    name : str
    gpu : str
        The GPU that it is compiled for.
    stock : bool
        Whether TVM alone is measured, too.
    rival : bool
        Whether PyTorch is measured: torch.compile's search takes minutes.
    """

    name: str
    gpu: str
    stock: bool = False
    rival: bool = True

    def measure(self, row: Row, result: Result) -> Iterator[None]:
        """Fill the result; it is worth saving at each ``yield``."""
        known = EXPORTED[self.name]
        module, inputs = made_with(known.make, 0), known.random(row.batch)
        started = time.perf_counter()
        relax = relax_module(module, inputs)
        exported = time.perf_counter()
        module.cuda()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        halves = [x.cuda().half() if x.is_floating_point() else x.cuda() for x in inputs]
        with FlopCounterMode(display=False) as counter:
            reference = module(*(x.float() if x.is_floating_point() else x for x in halves))
        moved = least_bytes(module.half(), halves, reference.half())
        result.work = asdict(Work(moved, counter.get_total_flops()))
        reference = reference.double()
        result.allowed = ALLOWED
        building = time.perf_counter()
        run = built(relax, self.gpu, False)
        result.notes.append(
            f"torch.export and TVM's frontend took {exported - started:.0f} s, relax.build "
            f"{time.perf_counter() - building:.0f} s"
        )
        yield
        own = [viewed(torch, x) for x in halves]
        result.ours.error = self._error(captured(run, own), reference)
        if run.counts.declined:
            result.notes.append(f"ours is no CUDA graph: {run.counts.declined}")
        runners = {"ours": (lambda: run(*own), result.ours)}
        if self.rival:
            rival, found = self._rival(module, halves, result)
            rival()
            result.rival.error = deviation(found.double(), reference).relative
            yield
            runners["rival"] = rival, result.rival
        alternate(runners, torch.cuda.synchronize, _ROUNDS, _STEPS)
        yield
        if self.stock:
            alone = built(relax, self.gpu, True)
            result.stock.error = self._error(first(alone(*own)), reference)
            if not result.stock.error <= _ALLOWED_OF_STOCK:
                result.notes.append(f"TVM alone is off by {result.stock.error:.1e}")
            step = {"stock": (lambda: alone(*own), result.stock)}
            alternate(step, torch.cuda.synchronize, 1, 3)
            yield
        for step, runner in runners.values():
            runner.read_kernels(profiled(torch, step, _PROFILED))
            yield

    def _rival(self, module: Any, inputs: list[Any], result: Result) -> tuple[Any, Any]:
        """PyTorch's step as a graph, and what it writes: images lie NHWC where that is faster.

        The layouts are compared as ``torch.compile`` runs them without a search: a search takes
        minutes for each.
        """
        layouts = [torch.contiguous_format]
        if any(x.dim() == 4 for x in inputs):
            layouts.append(torch.channels_last)
        if len(layouts) > 1:
            timed = {}
            for layout in layouts:
                replay, _ = self._compiled(module, inputs, layout, torch.compile)
                timed[rivals.seconds(torch, replay)] = layout
            layouts = [timed[min(timed)]]
        started = time.perf_counter()
        replay, found = self._compiled(module, inputs, layouts[0], rivals.compiler(torch))
        result.notes.append(f"torch.compile's search took {time.perf_counter() - started:.0f} s")
        result.rival_name = (
            "torch.compile (max-autotune) in a CUDA graph, float16, "
            f"{str(layouts[0]).removeprefix('torch.')}"
        )
        return replay, found

    def _compiled(
        self, module: Any, inputs: list[Any], layout: Any, compiler: Callable[..., Any]
    ) -> tuple[Any, Any]:
        # A copy: the graph of the layout before goes on reading its weights.
        laid_out = deepcopy(module).to(memory_format=layout)
        own = [x.contiguous(memory_format=layout) if x.dim() == 4 else x for x in inputs]
        torch._dynamo.reset()
        compiled = compiler(laid_out)
        return rivals.captured(torch, lambda: compiled(*own))

    def _error(self, found: Any, reference: Any) -> float:
        return deviation(torch.from_dlpack(found).double(), reference).relative


def least_bytes(module: Any, inputs: Sequence[Any], output: Any) -> float:
    """Inputs and output, and weights once; of a table of words as many rows as there are ids."""
    tables = [each for each in module.modules() if isinstance(each, torch.nn.Embedding)]
    ids = sum(x.numel() for x in inputs if not x.is_floating_point())
    rows = sum(min(ids, len(each.weight)) * each.weight[0].nbytes for each in tables)
    weights = sum(x.nbytes for x in module.parameters())
    whole = sum(each.weight.nbytes for each in tables)
    return weights - whole + rows + sum(x.nbytes for x in (*inputs, output))
