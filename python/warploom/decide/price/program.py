"""The predicted time of any tile program: what tuners rank configs of a user's program by."""

from __future__ import annotations

from collections.abc import Mapping

from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.decide.machines import machine_of
from warploom.decide.price.model import Prediction, price
from warploom.decide.price.read import read
from warploom.target import SM90A
from warploom.target.gpus import USUAL
from warploom.target.tvm_target import cuda_target, gpu_of


def price_program(
    program: PrimFunc,
    target: Target | str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Prediction:
    """The time of one launch of a tile program, without a GPU; milliseconds a program.

    What is priced is what the statements say: loads and stores by bytes and reuse, MMAs by shape,
    nests by instructions, hints by what they do to waves and residency. Hints that are not there
    count as what the passes choose; branches that memory decides as taken.

    Parameters
    ----------
    program : PrimFunc
        A tile program, as its author wrote it.
    target : Target or str, optional
        The GPU: a target of CUDA, or a name that :func:`warploom.cuda_target` takes. Without it
        that of the function or of the scope, or an H200.
    sizes : mapping of str to int, optional
        Values of symbolic sizes, by name; others count as 4096.

    Returns
    -------
    Prediction
        ``total``, microseconds of one launch back to back with others, and its terms.

    Raises
    ------
    Decline
        If the author orchestrates the threads, if memory decides how many tiles are computed, or if
        there are no constants of the architecture. The message names the statement.
    IllegalCombination
        If the target is no GPU of this package.

    Examples
    --------
    >>> from warploom.decide import price_program
    >>> from warploom.programs import attention
    >>> wide, tall = (attention(8192, heads=32, tile=tile) for tile in ((128, 128), (192, 80)))
    >>> price_program(tall).total < price_program(wide).total
    True
    >>> price_program(tall, "h100-pcie").total > price_program(tall, "h200").total
    True
    """
    if isinstance(target, str):
        target = cuda_target(target)
    target = target or (program.attrs or {}).get("target") or Target.current(allow_none=True)
    gpu = USUAL[SM90A.name] if target is None else gpu_of(target)
    return price(read(program, gpu.arch.name, sizes), machine_of(gpu))
