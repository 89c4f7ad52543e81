"""``python -m warploom_bench launch``: the host's time for one call of a kernel, part by part.

Kernels are GEMMs with three tensor maps, on matrices so small that the GPU is never behind: the
package's tile program, and TVM's kernel of a ``te`` function, which may be launched before
the kernel before it has ended. ``WARPLOOM_LAUNCH_CACHE=0`` shows the same calls as TVM makes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi

from warploom.command_line import Parser, duration, output_folder, positive, require_gpu
from warploom.gemm_shape import GemmShape
from warploom.programs import compile_gemm
from warploom.runtime import launch
from warploom.timing import host_cost
from warploom_bench import competitors
from warploom_bench.environment import environment
from warploom_bench.report import markdown_table

_SIZE = 256
#: The call that has a limit.
_GOAL = "main(a, b, c)"


def calls_of_tvm(size: int = _SIZE) -> dict[str, Callable[[], object]]:
    """The call by name, its parts that are no launch, and with the function looked up each time."""
    device = tvm.cuda(0)
    executable = compile_gemm(None, size, size)
    compiled = competitors.default(GemmShape("", size, size, size, "float16"))["main"]
    a, b, c = (tvm.runtime.empty((size, size), "float16", device) for _ in range(3))
    main, nothing = executable["main"], tvm_ffi.get_global_func("testing.nop")
    set_device = tvm_ffi.get_global_func("__tvm_set_device")
    return {
        _GOAL: lambda: main(a, b, c),
        "main(a, b, c), compiled of te": lambda: compiled(a, b, c),
        'executable["main"](a, b, c)': lambda: executable["main"](a, b, c),
        "a function that does nothing, of (a, b, c)": lambda: nothing(a, b, c),
        "setting the device": lambda: set_device(device.dlpack_device_type(), device.index),
    }


def calls_of_torch(torch: Any, size: int = _SIZE) -> dict[str, Callable[[], object]]:
    """The same GEMM with PyTorch's tensors, by us and by PyTorch."""
    a, b, c = (torch.zeros(size, size, dtype=torch.float16, device="cuda") for _ in range(3))
    transposed, main = b.T, compile_gemm(None, size, size)["main"]
    return {
        "main(a, b, c), tensors of torch": lambda: main(a, b, c),
        "torch.matmul(a, b.T, out=c)": lambda: torch.matmul(a, transposed, out=c),
    }


def measure(
    calls: Mapping[str, Callable[[], object]], wait: Callable[[], object], rounds: int
) -> dict[str, float]:
    """Seconds of the host for each call; see :func:`warploom.timing.host_cost`."""
    costs = {}
    for name, call in calls.items():
        call()  # loads modules and encodes tensor maps
        costs[name] = host_cost(lambda _, call=call: call(), wait, launches=200, rounds=rounds)
    return costs


def table(costs: Mapping[str, float]) -> str:
    """Microseconds of each call."""
    return markdown_table(["call", "µs"], [[name, f"{1e6 * s:.2f}"] for name, s in costs.items()])


def main(arguments: Sequence[str]) -> int:
    """Run the command; exit status 0, or 2 if ``main(a, b, c)`` exceeds ``--limit``."""
    parser = Parser(prog="warploom bench launch", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=21, help="of 200 calls (default: 21)")
    parser.add_argument("--limit", type=duration, help="largest acceptable cost, in microseconds")
    parser.add_argument("--out", type=output_folder, help="folder for launch.json")
    options = parser.parse_args(arguments)
    require_gpu("benchmarks measure one")
    calls = calls_of_tvm()
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed; its calls are left out.\n")
    else:
        calls |= calls_of_torch(torch)
    costs = measure(calls, tvm.cuda(0).sync, options.rounds)
    facts = environment(["launch", *arguments]) | {"remembers": launch.is_wanted()}
    print(table(costs))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        content = {"environment": facts, "seconds": costs}
        text = json.dumps(content, indent=1) + "\n"
        (options.out / "launch.json").write_text(text, encoding="utf-8")
    cost = 1e6 * costs[_GOAL]
    return 2 if options.limit is not None and cost > options.limit else 0
