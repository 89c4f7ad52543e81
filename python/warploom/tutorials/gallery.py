"""The pages of ``tutorials/gallery``: a kernel each, with what it computes and what measures it.

A page is a Python file with a ``KERNEL``. Executed, it checks its kernel: by the interpreter, and
on both architectures, on the GPU of this machine or on the emulator.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warploom.errors import WarploomError

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

#: The architectures that every kernel of the gallery is for.
ARCHITECTURES = ("sm_90a", "sm_100a")


@dataclass(frozen=True)
class Kernel:
    """A kernel of the gallery.

    The functions below are called with those of the sizes that they have parameters for.

    Attributes
    ----------
    program : callable
        ``program(**sizes)`` returns the tile program. Its last parameters are the results.
    inputs : callable
        ``inputs(rng, **sizes)`` returns the first parameters, numpy arrays.
    reference : callable
        ``reference(*inputs, **sizes)`` returns the results, in float64 where it can: an array or a
        tuple of arrays.
    small, large : dict
        Sizes for the emulator, and those that are measured.
    torch : callable
        ``torch(torch, *inputs, **sizes)`` computes the same from tensors, by PyTorch's own
        operators.
    flops : callable, optional
        ``flops(**sizes)``: additions and multiplications of MMAs; a kernel without is bound by
        memory.
    tolerance : float
        Allowed error, in terms of the largest element of a result.
    """

    program: Callable[..., PrimFunc]
    inputs: Callable[..., Sequence[np.ndarray]]
    reference: Callable[..., Any]
    small: Mapping[str, Any]
    large: Mapping[str, Any]
    torch: Callable[..., Any]
    flops: Callable[..., float] | None = None
    tolerance: float = 5e-3

    def __post_init__(self) -> None:
        for name in ("small", "large"):
            sizes = getattr(self, name)
            try:
                inspect.signature(self.program).bind(**_taken(self.program, sizes))
            except TypeError as error:
                raise WarploomError(f"{name} sizes {sizes} of a gallery kernel: {error}.") from None

    def make(self, sizes: Mapping[str, Any]) -> PrimFunc:
        """The program of some sizes."""
        return self.program(**_taken(self.program, sizes))

    def data(self, sizes: Mapping[str, Any], seed: int = 0) -> list[np.ndarray]:
        """Random inputs of some sizes."""
        rng = np.random.default_rng(seed)
        return list(self.inputs(rng, **_taken(self.inputs, sizes)))

    def results(self, func: PrimFunc, inputs: Sequence[Any]) -> list[tuple[tuple[int, ...], str]]:
        """Shape and dtype of each result: the parameters behind the inputs.

        Inputs are arrays or tensors; sizes that a program leaves open are theirs.
        """
        from warploom.language.calls.parameters import parameters_of

        parameters = parameters_of(func)
        sizes = {
            variable: size
            for parameter, array in zip(parameters, inputs, strict=False)
            for variable, size in zip(parameter.shape or (), array.shape, strict=True)
            if not isinstance(variable, int)
        }
        return [
            (tuple(n if isinstance(n, int) else sizes[n] for n in each.shape), each.dtype)
            for each in parameters[len(inputs) :]
        ]

    def expected(self, inputs: Sequence[np.ndarray], sizes: Mapping[str, Any]) -> list[np.ndarray]:
        """What numpy computes."""
        found = self.reference(*inputs, **_taken(self.reference, sizes))
        return list(found) if isinstance(found, tuple) else [found]

    def by_torch(self, torch: Any, inputs: Sequence[Any], sizes: Mapping[str, Any]) -> Any:
        """What PyTorch computes, from tensors."""
        return self.torch(torch, *inputs, **_taken(self.torch, sizes))

    def work(self, sizes: Mapping[str, Any]) -> float:
        """Additions and multiplications of its MMAs; 0 if memory bounds it."""
        return 0.0 if self.flops is None else float(self.flops(**_taken(self.flops, sizes)))

    @property
    def code_lines(self) -> int:
        """Lines of the program that are neither empty nor comments."""
        return code_lines(inspect.getsource(self.program))


def code_lines(source: str) -> int:
    """Lines of a Python source that are neither empty nor comments.

    Examples
    --------
    >>> code_lines("x = 1\\n\\n# a comment\\ny = 2  # another\\n")
    2
    """
    stripped = (line.strip() for line in source.splitlines())
    return sum(bool(line) and not line.startswith("#") for line in stripped)


def check(kernel: Kernel, seed: int = 0) -> None:
    """Compare a kernel of small sizes with numpy, by the interpreter and on both architectures.

    Raises
    ------
    WarploomError
        If a result is wrong.
    """
    from warploom import language as wl

    func, inputs = kernel.make(kernel.small), kernel.data(kernel.small, seed)
    expected = kernel.expected(inputs, kernel.small)
    shapes = kernel.results(func, inputs)
    arrays = [*(each.copy() for each in inputs), *poisoned(shapes)]
    wl.interpret(func, arrays)
    _compare("interpreter", arrays[len(inputs) :], expected, kernel.tolerance)
    for arch in ARCHITECTURES:
        found, place = _run(func, [*inputs, *poisoned(shapes)], len(inputs), arch)
        _compare(place, found, expected, kernel.tolerance)


def poisoned(shapes: Sequence[tuple[tuple[int, ...], str]]) -> list[np.ndarray]:
    """Arrays whose elements no kernel leaves as they are: NaN, or the least integer."""
    arrays = []
    for shape, dtype in shapes:
        kind = numpy_dtype(dtype)
        worst = np.iinfo(kind).min if np.issubdtype(kind, np.integer) else np.nan
        arrays.append(np.full(shape, worst, kind))
    return arrays


def numpy_dtype(name: str) -> np.dtype:
    """The dtype of numpy, or of ``ml_dtypes``, with a name of TVM's."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


def load(path: Path) -> Kernel:
    """The kernel of a page.

    Raises
    ------
    WarploomError
        If the file has none.
    """
    spec = importlib.util.spec_from_file_location(f"warploom_gallery_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise WarploomError(f"{path} is no Python file, which pages of the gallery are.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = getattr(module, "KERNEL", None)
    if not isinstance(kernel, Kernel):
        raise WarploomError(f"{path} has no KERNEL, which a page of the gallery ends with.")
    return kernel


def pages(folder: Path) -> dict[str, Path]:
    """The pages of a folder, by name.

    Raises
    ------
    WarploomError
        If there are none.
    """
    found = {path.stem: path for path in sorted(folder.glob("*.py"))}
    if not found:
        raise WarploomError(
            f"{folder} has no pages of the gallery; run in a checkout of warploom, or name the "
            "folder."
        )
    return found


def _taken(function: Callable[..., Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in sizes.items() if name in parameters}


def _run(
    func: PrimFunc, arrays: list[np.ndarray], inputs: int, arch: str
) -> tuple[list[np.ndarray], str]:
    """The results of a call, and where they were computed."""
    import tvm

    from warploom import emulator
    from warploom.target import cuda_target, default_target

    emulator.enable_without_gpu()
    if not emulator.is_enabled() and default_target()[0].attrs.get("arch") == arch:
        target, device, place = default_target()[0], tvm.cuda(0), tvm.cuda(0).device_name
    else:
        target, place = cuda_target(arch), f"emulated {arch}"
        outputs = emulator.run(func, arrays, arch=arch).outputs
        return list(outputs[inputs:]), place
    executable = tvm.compile(tvm.IRModule({"main": func}), target, tir_pipeline="warploom")
    tensors = [tvm.runtime.tensor(array, device) for array in arrays]
    executable["main"](*tensors)
    return [tensor.numpy() for tensor in tensors[inputs:]], place


def _compare(
    place: str, found: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float
) -> None:
    errors = []
    for each, right in zip(found, expected, strict=True):
        difference = np.abs(each.astype(np.float64) - right.astype(np.float64)).max()
        errors.append(difference / max(np.abs(right.astype(np.float64)).max(), 1e-30))
    print(f"{place}: largest errors", ", ".join(f"{error:.1e}" for error in errors))
    for number, error in enumerate(errors):
        if not error <= tolerance:
            raise WarploomError(
                f"Result {number} of {place} has an error of {error:.1e}, in terms of its largest "
                f"element; at most {tolerance:.1e} is right."
            )
