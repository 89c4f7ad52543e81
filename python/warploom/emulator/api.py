"""``run`` and ``explore``: programs on the emulator, whatever device the process has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warploom.emulator import arguments, binding, run_program, run_ptx, settings
from warploom.emulator.binding import EmulatorError, Geometry
from warploom.emulator.result import Result
from warploom.runtime.emulator_libraries import ARCHS
from warploom.runtime.emulator_state import is_enabled

if TYPE_CHECKING:
    import tvm

_DIM = int | Sequence[int]


@binding.device_kept()
def run(
    program: str | bytes | Path | tvm.IRModule | tvm.tirx.PrimFunc | tvm.runtime.Executable,
    args: Sequence[Any],
    *,
    kernel: str | None = None,
    grid: _DIM | None = None,
    block: _DIM | None = None,
    cluster: _DIM | None = None,
    shared: int | None = None,
    cooperative: bool | None = None,
    arch: str | None = None,
    checks: bool = True,
    seed: int = 1,
    schedule: str = "random",
    report: bool = False,
    explore: int = 0,
    exhaustive: int = 0,
    sms: int = 0,
) -> Result:
    """Run a program on the emulator, with or without ``WARPLOOM_EMULATOR=1`` and a GPU.

    PTX runs in this process. A program of TVM does so if the emulator is enabled; otherwise it
    is compiled and run in a process of its own. The thread's current device stays as it is.

    Parameters
    ----------
    program : str, bytes, Path, IRModule, PrimFunc or Executable
        PTX text, a fat binary with PTX, or a file with either; or a program of TVM: a tile
        program, or a kernel for the ``tirx`` pipeline. An Executable must have been compiled while
        the emulator was enabled, since a cubin is no PTX.
    args : list or tuple
        numpy arrays for pointers and tensors; numbers for the rest. Arrays are not changed.
    kernel : str, optional
        Name of the kernel in PTX, or of the function in the module; may be left out if there is
        only one.
    grid, block, cluster : int or up to three ints, optional
        CTAs, threads of a CTA and CTAs of a cluster; for PTX only, where they default to 1, 32
        and 1. The host code of a TVM program has its own.
    shared : int, optional
        Bytes of dynamic shared memory, for PTX only.
    cooperative : bool, optional
        Whether all CTAs are live together, so that they may wait for each other; for PTX only. By
        default a launch is cooperative if the PTX asks for the workspace of the grid's barrier,
        as ``cooperative_groups::this_grid().sync()`` does.
    arch : str, optional
        ``"sm_90a"`` or ``"sm_100a"``: the device. By default that of the PTX's ``.target``, of the
        function's target, or else ``"sm_90a"``.
    checks, seed, schedule, report, explore, exhaustive, sms
        See :class:`warploom.emulator.settings.Settings`.

    Returns
    -------
    Result
        The arrays after the run, and the requested reports.

    Raises
    ------
    EmulatorError
        If the program cannot be executed or does something wrong; the message is the report. If
        an argument or an option is none: an array of objects, None, a size beyond 32 bits.
    IllegalCombination
        If an option has a value that is not allowed.

    Examples
    --------
    >>> a, b = (np.ones((128, 64), "float16") for _ in "AB")
    >>> poison = np.full((128, 128), np.nan, "float16")
    >>> small = programs.gemm(Config(tile_n=128), 128, 64, 128)
    >>> result = emulator.run(small, [a, b, poison])  # doctest: +SKIP
    >>> result.outputs[2].min()  # doctest: +SKIP
    64.0
    """
    chosen = settings.Settings(checks, seed, schedule, report, explore, exhaustive, sms)
    if arch is not None and arch not in ARCHS:
        raise EmulatorError(f"There is no device {arch!r}; allowed are {' and '.join(ARCHS)}.")
    if isinstance(program, Path):
        program = run_ptx.read_image(program)
    values = arguments.check_sequence(args)
    if isinstance(program, (str, bytes)):
        geometry = Geometry(
            arguments.dimensions("grid", grid, 1),
            arguments.dimensions("block", block, 32),
            arguments.dimensions("cluster", cluster, 1),
            arguments.size("shared", shared),
            run_ptx.is_cooperative(program) if cooperative is None else bool(cooperative),
        )
        with settings.applied(chosen):
            outputs = run_ptx.run(program, values, kernel, arch, geometry)
            return run_program.collect(chosen, outputs)
    if any(option is not None for option in (grid, block, cluster, shared, cooperative)):
        raise EmulatorError(
            "grid, block, cluster, shared and cooperative are for PTX; TVM's host code has them."
        )
    return _run_tvm(program, values, kernel, arch, chosen)


def explore(program: Any, args: Sequence[Any], n: int = 100, **options: Any) -> Result:
    """Run a program under ``n`` schedules; the options are those of :func:`run`.

    Raises
    ------
    EmulatorError
        If it goes wrong under one of them, or gives different results under two; the message names
        the seed and the schedule that show it.

    Examples
    --------
    >>> result = emulator.explore(program, [a, b, c], n=20)  # doctest: +SKIP
    >>> result.exploration["schedules"]  # doctest: +SKIP
    20
    """
    return run(program, args, explore=n, **options)


def _run_tvm(
    program: Any,
    args: tuple[Any, ...],
    function: str | None,
    arch: str | None,
    chosen: settings.Settings,
) -> Result:
    import tvm

    if isinstance(program, tvm.runtime.Executable):
        if not is_enabled():
            raise EmulatorError(
                "An Executable was compiled for a GPU; give the IRModule that it was made from."
            )
        name = function or "main"
        return run_program.run_executable(program, name, args, arch or _first_arch(), chosen)
    module = run_program.to_module(program)
    names = [variable.name_hint for variable in module.functions]
    name = function or (names[0] if len(names) == 1 else "main")
    if name not in names:
        raise EmulatorError(f"The module has no function {name!r}; it has {', '.join(names)}.")
    job = run_program.Job(
        tvm.ir.save_json(module), name, args, arch or _arch_of(module, name), chosen
    )
    run_one = run_program.run_module if is_enabled() else run_program.run_in_child
    return run_one(job)


def _arch_of(module: Any, name: str) -> str:
    target = (module[name].attrs or {}).get("target")
    arch = str(target.attrs.get("arch", "")) if target is not None else ""
    return arch if arch in ARCHS else _first_arch()


def _first_arch() -> str:
    return ARCHS[0] if binding.call("find_arch", ARCHS[0].encode()) == 0 else ARCHS[1]
