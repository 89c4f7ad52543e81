"""The cases of a family that the options of ``bench judge`` ask for."""

from __future__ import annotations

import argparse

from warploom.errors import WarploomError
from warploom_bench.judging.case import Case
from warploom_bench.judging.families import FAMILIES as PROGRAMS
from warploom_bench.judging.gemms import Convolution, GemmCase
from warploom_bench.judging.programs import ProgramCase
from warploom_bench.options import wanted_shapes
from warploom_bench.unseen_programs import draw_convolutions

GEMM, CONVOLUTION = "gemm", "convolution"
#: The families of ``--family``.
FAMILIES = (GEMM, CONVOLUTION, *PROGRAMS)


def wanted_cases(options: argparse.Namespace) -> list[Case]:
    """The cases of ``--family``, ``--suite``, ``--group``, and for GEMMs of their kinds.

    Raises
    ------
    WarploomError
        If a kind is given for another family, or there is no such suite or group.
    """
    if options.family == GEMM:
        shapes = dict.fromkeys(wanted_shapes(options))
        return [GemmCase(GEMM, shape) for shape in shapes]
    kinds = [name for name in ("dtype", "layout", "epilogue") if getattr(options, name)]
    if kinds:
        raise WarploomError(f"--{kinds[0]} is for --family gemm, and not for {options.family}.")
    if options.family == CONVOLUTION:
        drawn = [Convolution(**one) for one in draw_convolutions(options.suite)]
    else:
        drawn = PROGRAMS[options.family].drawn(options.suite)
    known = sorted({sizes.group for sizes in drawn})
    for group in options.group:
        if group not in known:
            raise WarploomError(
                f"Suite {options.suite!r} has no group {group!r} of {options.family}; allowed are "
                f"{', '.join(known)}."
            )
    chosen = [sizes for sizes in drawn if not options.group or sizes.group in options.group]
    return [
        GemmCase(CONVOLUTION, sizes, sizes.function)
        if options.family == CONVOLUTION
        else ProgramCase(options.family, sizes)
        for sizes in dict.fromkeys(chosen)
    ]
