"""Runs programs of TVM on the emulator: here if it is enabled, otherwise in a child process.

The child makes a run independent of this process, which may have a CUDA driver and a GPU.
``python -m warploom.emulator.run_program <file>`` is the child.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warploom.emulator import arguments, binding, script_lines, settings
from warploom.emulator.binding import EmulatorError
from warploom.emulator.findings import findings_of, fold, summary
from warploom.emulator.result import LaunchReport, Result
from warploom.runtime.emulator_libraries import OPT_IN, find_libraries, has_system_driver

if TYPE_CHECKING:
    import tvm


#: Errors of launches that this process has raised: ``warploom emulate --html`` writes them.
FAILURES: list[EmulatorError] = []


@dataclass(frozen=True)
class Job:
    """A request to a child process.

    Attributes
    ----------
    module : str
        An ``IRModule`` as JSON.
    function : str
        Its function to call.
    args : tuple
        Arrays and numbers.
    arch : str
    settings : Settings
    """

    module: str
    function: str
    args: tuple[Any, ...]
    arch: str
    settings: settings.Settings


def to_module(program: Any) -> tvm.IRModule:
    """The program as an ``IRModule``.

    Raises
    ------
    EmulatorError
        If it is neither that nor a ``PrimFunc``.
    """
    import tvm

    if isinstance(program, tvm.IRModule):
        return program
    if isinstance(program, tvm.tirx.PrimFunc):
        return tvm.IRModule({str((program.attrs or {}).get("global_symbol", "main")): program})
    raise EmulatorError(
        f"A {type(program).__name__} cannot be run; give PTX text, an IRModule or a PrimFunc, or "
        "an Executable that was compiled while the emulator was enabled."
    )


def run_executable(
    executable: Any, function: str, args: Sequence[Any], arch: str, chosen: settings.Settings
) -> Result:
    """Call a function of a compiled module on the emulated device of ``arch``."""
    import tvm

    for index, value in enumerate(args):
        if not isinstance(value, tvm.runtime.Tensor):
            arguments.check_argument(f"Argument {index} of {function}", value)
    device = tvm.cuda(binding.call("find_arch", arch.encode()))
    tensors = [
        tvm.runtime.tensor(np.ascontiguousarray(arg), device)
        if isinstance(arg, np.ndarray)
        else arg
        for arg in args
    ]
    with settings.applied(chosen):
        try:
            executable[function](*tensors)
        except Exception as error:
            raise failure(error) from error
        return collect(
            chosen,
            tuple(tensor.numpy() for tensor in tensors if isinstance(tensor, tvm.runtime.Tensor)),
        )


def failure(error: Exception) -> EmulatorError:
    """The error of a launch, with all that has been found since reports were cleared."""
    found = findings_of(binding.call_json("reports") or ())
    made = EmulatorError(summary(message_of(error), found), found, script_lines.files())
    FAILURES.append(made)
    return made


def message_of(error: Exception) -> str:
    """Return the emulator's message, folded, without the CUDA source of a failed launch."""
    text = str(error)
    begin = text.find("warploom emulator: ")
    if begin < 0:
        return text
    end = text.find("\n grid=(", begin)
    return fold(text[begin : end if end >= 0 else len(text)].removeprefix("warploom emulator: "))


def collect(chosen: settings.Settings, outputs: tuple[np.ndarray, ...]) -> Result:
    """The result of the last execution with these settings."""
    launches = binding.call_json("launch_reports") if chosen.report else []
    explored = chosen.explore > 1 or chosen.exhaustive > 0
    return Result(
        outputs,
        tuple(map(LaunchReport, launches)),
        binding.call_json("exploration") if explored else None,
    )


def run_module(job: Job) -> Result:
    """Compile and run in this process, whose emulator must be enabled."""
    import tvm

    from warploom.target import cuda_target
    from warploom.tile.kinds import pipeline_of

    module = tvm.ir.load_json(job.module)
    executable = tvm.compile(module, cuda_target(job.arch), **pipeline_of(module))
    return run_executable(executable, job.function, job.args, job.arch, job.settings)


def run_in_child(job: Job) -> Result:
    """Compile and run in a process of its own, in which the emulator is enabled."""
    with tempfile.TemporaryDirectory(prefix="warploom-emulator-") as folder:
        request, reply = Path(folder, "job"), Path(folder, "result")
        request.write_bytes(pickle.dumps(job))
        child = subprocess.run(
            [sys.executable, "-m", "warploom.emulator.run_program", str(request), str(reply)],
            env=child_environment(),
            capture_output=True,
            text=True,
        )
        sys.stdout.write(child.stdout)  # output of kernels
        if not reply.exists():
            raise EmulatorError(f"The process of the emulator ended early: {child.stderr.strip()}")
        outcome = pickle.loads(reply.read_bytes())
    if isinstance(outcome, EmulatorError):
        raise outcome
    return outcome


def child_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a process that has the emulator, also where there is a driver."""
    result = {**environ, OPT_IN: "1"}
    if has_system_driver():
        own = [str(path) for path in find_libraries()]
        result["LD_PRELOAD"] = ":".join([*own, *filter(None, [environ.get("LD_PRELOAD")])])
    return result


def main(arguments: Sequence[str]) -> int:
    """The child process: reads a job, writes a :class:`Result` or an :class:`EmulatorError`."""
    request, reply = map(Path, arguments)
    try:
        outcome: Result | EmulatorError = run_module(pickle.loads(request.read_bytes()))
    except EmulatorError as error:
        outcome = error
    except Exception as error:
        outcome = EmulatorError(f"{type(error).__name__}: {error}")
    reply.write_bytes(pickle.dumps(outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
