"""Functions, kernels and operands of the GEMMs of public models: built on CPUs, timed on a GPU.

:func:`build` and :func:`time_kernels` run in worker processes, which a bad candidate may take down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warploom.gemm_shape import GemmShape
from warploom.timing import Launch, Sampling, measure
from warploom_bench import operands as ops
from warploom_bench.check import deviation
from warploom_bench.kernels import load_runtime
from warploom_bench.model_gemms import ModelGemm
from warploom_bench.run import import_torch
from warploom_bench.torch_timer import TorchTimer, capture

if TYPE_CHECKING:
    from tvm.target import Target
    from tvm.tirx import PrimFunc

    from warploom.decide.config import Config

#: Weights of 4 bits in a word, and weights that share a scale.
_PER_WORD, _PER_SCALE = 8, 32
#: A 4-bit weight of this value is 0.
_ZERO = 7
#: Kernels that take longer are launched one by one, shorter ones in graphs of about so long.
_GRAPH_SECONDS = 1e-3
#: Seconds of all samples of a GEMM, about, after which there are fewer rounds, and how many.
_LONG_SECONDS, _LONG_ROUNDS = 2.0, 4
#: Seconds of idleness before a sample: long kernels cost the GPU its clock.
_IDLE_SECONDS, _LONG_IDLE_SECONDS = 0.002, 0.01
#: Elements of a result that are checked at once.
_AT_ONCE = 1 << 26


@dataclass(frozen=True)
class Built:
    """A config of a GEMM, with its library, or the reason why there is none."""

    config: Config
    path: str = ""
    error: str = ""


@dataclass(frozen=True)
class Timed:
    """Microseconds of a kernel in each round; none if its result is wrong."""

    us: tuple[float, ...]
    wrong: str = ""


def function(gemm: ModelGemm) -> PrimFunc:
    """The function that a compiled model has for a GEMM, without an epilogue."""
    from warploom.gemm import workloads

    if gemm.kind == "int4":
        return _dequantised(gemm.m, gemm.n, gemm.k)
    return workloads.function(_shape(gemm))


def _shape(gemm: ModelGemm) -> GemmShape:
    return GemmShape("", gemm.m, gemm.n, gemm.k, gemm.kind)


def _dequantised(m: int, n: int, k: int) -> PrimFunc:
    """Weights in words along K with a scale for 32 of them, as MLC-LLM's ``q4f16_1`` has them."""
    from tvm import te, tirx

    x = te.placeholder((m, k), "float16", "X")
    words = te.placeholder((n, k // _PER_WORD), "uint32", "W")
    scale = te.placeholder((n, k // _PER_SCALE), "float16", "S")

    def weight(j: Any, r: Any) -> Any:
        shift = (r % _PER_WORD * 4).astype("uint32")
        field = words[j, r // _PER_WORD] >> shift & tirx.const(15, "uint32")
        whole = field.astype("float16") - tirx.const(_ZERO, "float16")
        return whole * scale[j, r // _PER_SCALE]

    weights = te.compute((n, k), weight, "decode")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(x[i, r] * weights[j, r], r), "matmul")
    return te.create_prim_func([x, words, scale, c]).with_attr("global_symbol", "main")


def build(gemm: ModelGemm, target: Target, count: int, folder: str) -> list[Built]:
    """In a worker: compile the configs to measure; the first is the model's choice.

    Parameters
    ----------
    gemm : ModelGemm
    target : Target
        Of the GPU.
    count : int
        Configs at most: the model's best, the best of other tiles, and that of a record of a
        similar GEMM. Of configs that make the same kernel there is one.
    folder : str
        For the libraries.
    """
    import tvm
    from tvm.s_tir import Schedule

    from warploom import environ
    from warploom.gemm.annotations import annotate
    from warploom.gemm.recognition import recognise
    from warploom.meta_schedule.same_kernel import kernel_digest

    func = function(gemm)
    anchor = recognise(func).anchor
    kernels: set[str] = set()
    found: list[Built] = []
    for number, config in enumerate(configs(gemm, target, count)):
        sch = Schedule(tvm.IRModule({"main": func}))
        annotate(sch, sch.get_sblock(anchor, "main"), config.values())
        path = Path(folder, f"{gemm.m}-{gemm.n}-{gemm.k}-{gemm.kind}-{number}.so")
        try:
            with environ.variable("WARPLOOM_MODULE_CACHE", "0"):
                library = tvm.compile(sch.mod, target)
            kernel = kernel_digest(library)
            if kernel not in kernels:
                kernels.add(kernel)
                library.export_library(str(path))
                found.append(Built(config, str(path)))
        except Exception as error:  # TVM's have many types; a config costs only itself
            found.append(Built(config, error=f"{type(error).__name__}: {error}"[:300]))
    return found


def configs(gemm: ModelGemm, target: Target, count: int) -> list[Config]:
    """The configs of :func:`build`."""
    from warploom.decide.ranking import ranked
    from warploom.meta_schedule.lookup import Lookup
    from warploom_bench.candidates import varied

    with target:
        best = [config for _, config in varied(ranked(gemm.problem))]
        known = Lookup.shipped().config(gemm.problem)
    first = [*best[:1], *([known] if known is not None else [])]
    return list(dict.fromkeys([*first, *best]))[:count]


@dataclass(frozen=True)
class Operands:
    """Arguments of a kernel, of which the last is the result, and what it should be."""

    arguments: tuple[Any, ...]
    reference: Callable[[], Any]


def operands(torch: Any, gemm: ModelGemm, seed: int) -> Operands:
    """Random operands on the GPU."""
    if gemm.kind == "int4":
        return _packed_operands(torch, gemm, seed)
    shape = _shape(gemm)
    made = ops.make_operands(torch, shape, seed)
    arguments = ops.arguments(shape, made)

    def reference() -> Any:
        total = made.a.float() @ made.b.float().T
        return total if len(arguments) == 3 else total * (made.scale_a * made.scale_b)

    return Operands(arguments, reference)


def _packed_operands(torch: Any, gemm: ModelGemm, seed: int) -> Operands:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    on = {"device": "cuda", "generator": generator}
    x = torch.randn((gemm.m, gemm.k), **on).to(torch.float16)
    size = (gemm.n, gemm.k // _PER_WORD)
    words = torch.randint(-(2**31), 2**31 - 1, size, dtype=torch.int32, **on)
    scale = torch.rand((gemm.n, gemm.k // _PER_SCALE), **on).mul(0.05).to(torch.float16)
    c = torch.full((gemm.m, gemm.n), math.nan, dtype=torch.float16, device="cuda")

    def reference() -> Any:
        shifts = torch.arange(0, 32, 4, dtype=torch.int32, device="cuda")
        fields = (words[:, :, None] >> shifts & 15).reshape(gemm.n, gemm.k)
        weights = (fields - _ZERO).to(torch.float16)
        weights *= scale.repeat_interleave(_PER_SCALE, dim=1)
        return x.float() @ weights.float().T

    return Operands((x, words.view(torch.uint32), scale, c), reference)


def input_sets(gemm: ModelGemm) -> int:
    """Sets of operands that together exceed the L2 cache."""
    weights = gemm.n * gemm.k * {"float16": 2.0, "float8_e4m3fn": 1.0, "int4": 0.5625}[gemm.kind]
    return max(2, math.ceil(ops.ROTATING_BYTES / (weights + gemm.m * gemm.k * 2)))


def begin() -> None:
    """In a worker with the GPU: import PyTorch and begin CUDA, which takes many seconds."""
    import_torch().zeros(1, device="cuda")


def time_kernels(gemm: ModelGemm, paths: Sequence[str], rounds: int) -> list[Timed]:
    """In a worker with the GPU: check kernels of a GEMM, and time the right ones, interleaved.

    Parameters
    ----------
    gemm : ModelGemm
    paths : sequence of str
        Libraries.
    rounds : int
        Samples of each; fewer of kernels that take long.
    """
    import tvm_ffi

    torch = import_torch()
    torch.backends.cuda.matmul.allow_tf32 = False
    load_runtime(Path(paths[0]).parent)
    torch.cuda.empty_cache()  # kernels allocate workspaces beside PyTorch
    timer = _Timer(torch)
    with torch.no_grad():
        sets = [operands(torch, gemm, seed) for seed in range(input_sets(gemm))]
        reference = sets[0].reference()
        calls = [tvm_ffi.load_module(path)["main"] for path in paths]
        launches = [_launch(call, sets) for call in calls]
        long = _seconds(timer, launches[0], len(sets))
        executions = 1
        if long < _GRAPH_SECONDS:
            repeats = math.ceil(_GRAPH_SECONDS / (long * len(sets)))
            executions = min(repeats, max(1, 20 // len(sets))) * len(sets)
            launches = [_replay(torch, launch, len(sets), executions) for launch in launches]
        wrong = [_wrong(torch, launch, sets, reference, gemm) for launch in launches]
        del reference
        right = {str(i): launch for i, launch in enumerate(launches) if not wrong[i]}
        times = {}
        if right:
            is_long = 2 * len(right) * rounds * long * executions > _LONG_SECONDS
            count = min(rounds, _LONG_ROUNDS) if is_long else rounds
            idle = _IDLE_SECONDS if executions > 1 else _LONG_IDLE_SECONDS
            sampling = Sampling("burst", count, idle, launches=1, warm_launches=1)
            times = measure(right, timer, sampling, len(sets), executions)
    return [
        Timed((), text) if text else Timed(tuple(s * 1e6 for s in times[str(i)].samples))
        for i, text in enumerate(wrong)
    ]


class _Timer(TorchTimer):
    """Without a question to the driver after each sample, which takes longer than the sample."""

    def conditions(self) -> tuple[None, None]:
        return None, None


def _launch(call: Callable[..., Any], sets: Sequence[Operands]) -> Launch:
    return lambda index: call(*sets[index].arguments)


def _replay(torch: Any, launch: Launch, sets: int, executions: int) -> Launch:
    replay = capture(torch, launch, sets, executions)
    return lambda index: replay()


def _seconds(timer: TorchTimer, launch: Launch, sets: int) -> float:
    """Of one execution, the least of three: the first call loads the kernel."""
    timer.idle(0.0)
    return min(timer.elapsed(lambda: launch(0), lambda: launch(1 % sets)) for _ in range(3))


def _wrong(
    torch: Any, launch: Launch, sets: Sequence[Operands], reference: Any, gemm: ModelGemm
) -> str:
    """How the result of the first set differs, after launches as they are timed; empty if right."""
    result = sets[0].arguments[-1]
    result.fill_(math.nan)
    torch.cuda.synchronize()
    for index in (0, 1):
        launch(index)
    torch.cuda.synchronize()
    allowed = _allowed_error(gemm)
    rows = max(1, _AT_ONCE // gemm.n)
    for first in range(0, gemm.m, rows):
        part = slice(first, first + rows)
        found = deviation(result[part].float(), reference[part])
        if not found.is_within(allowed):
            return f"rows from {first}: {found}"
    return ""


def _allowed_error(gemm: ModelGemm) -> float:
    """Bound of the relative error; dequantised weights are rounded as well."""
    if gemm.kind == "int4":
        return 2 * ops.RELATIVE_ERROR["float16"]
    return ops.RELATIVE_ERROR[gemm.kind]
