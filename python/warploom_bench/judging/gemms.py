"""GEMMs and convolutions as cases of a search: functions in S-TIR, scheduled with a config."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tvm import te, topi
from tvm.tirx import PrimFunc

from warploom.decide.config import Config
from warploom.decide.model import predict
from warploom.decide.ranking import ranked
from warploom.meta_schedule import Builder
from warploom_bench.candidates import GemmCandidates
from warploom_bench.neighbours import neighbours

#: Configs that the model likes, whose tiles a search may take.
_LIKED = 60


class GemmCase:
    """A function that is a GEMM to the package: see :class:`warploom_bench.judging.case.Case`.

    Parameters
    ----------
    family : str
    sizes : dataclass
        With ``group``.
    func : PrimFunc, optional
        By default the GEMM of a :class:`~warploom.gemm_shape.GemmShape`.
    """

    def __init__(self, family: str, sizes: Any, func: PrimFunc | None = None) -> None:
        self.family, self._candidates = family, GemmCandidates(sizes, func)
        self.shape = dict(vars(sizes))
        self.arguments = self._candidates.arguments
        self.liked = [config for _, config in ranked(self._candidates.problem, _LIKED)]

    def __str__(self) -> str:
        return f"{self.family} {self._candidates.shape}"

    def neighbours(
        self, near: Sequence[Config], count: int, seen: set[Config], rng: random.Random
    ) -> list[Config]:
        """Legal configs with one or two choices drawn anew."""
        return neighbours(self._candidates.problem, near, self.liked, count, seen, rng)

    def predict(self, config: Config) -> float:
        """Microseconds by the model of GEMMs."""
        return predict(self._candidates.problem, config).total

    def submit(self, config: Config, builder: Builder, target: Any) -> Future[str]:
        """Have a config compiled, once."""
        return self._candidates.submit(config, builder, target)


@dataclass(frozen=True)
class Convolution:
    """A convolution of images in NHWC with square filters in OHWI.

    Attributes
    ----------
    group : str
    n, h, w, c : int
        Images, their rows, columns and channels.
    k, taps : int
        Filters, and their rows and columns.
    stride, padding : int
    dtype : str
    """

    group: str
    n: int
    h: int
    w: int
    c: int
    k: int
    taps: int
    stride: int
    padding: int
    dtype: str = "float16"

    @property
    def function(self) -> PrimFunc:
        """The function ``(X, F, Y)``, as Relax's legalisation writes it; sums are float32."""
        x = te.placeholder((self.n, self.h, self.w, self.c), self.dtype, "X")
        f = te.placeholder((self.k, self.taps, self.taps, self.c), self.dtype, "F")
        y = topi.nn.conv(
            x, f, self.stride, self.padding, 1, 1, "NHWC", "OHWI", out_dtype="float32"
        )
        func = te.create_prim_func([x, f, topi.cast(y, self.dtype)])
        return func.with_attr("global_symbol", "main")
