"""The model of costs: how long a GEMM takes with a config, and where the time goes.

A config of a GEMM is described as a :class:`~warploom.decide.price.work.Work`, as any tile program
is, and :mod:`warploom.decide.price` prices it. A prediction takes some 50 microseconds.
"""

from __future__ import annotations

from warploom.decide.config import Config
from warploom.decide.machine import Machine
from warploom.decide.machines import machine_for
from warploom.decide.price.gemm import work_of
from warploom.decide.price.gemv import price_gemv
from warploom.decide.price.model import Prediction, price
from warploom.decide.problem import GemmProblem

__all__ = ["Prediction", "predict"]


def predict(problem: GemmProblem, config: Config, machine: Machine | None = None) -> Prediction:
    """The time of one launch, back to back with others.

    Parameters
    ----------
    problem : GemmProblem
        The GEMM; sizes that are dynamic count as :data:`~warploom.decide.work.UNKNOWN_EXTENT`.
    config : Config
        A legal one: see :meth:`Config.why_not`.
    machine : Machine, optional
        The GPU; by default that of the current target, and without a target an H200.

    Examples
    --------
    >>> from warploom.decide import choose, plain_gemm
    >>> problem = plain_gemm(4096, 4096, 4096)
    >>> predict(problem, choose(problem)).total < 250
    True
    """
    machine = machine or machine_for()
    if config.gemv:
        return price_gemv(problem, config, machine)
    return price(work_of(problem, config), machine)
