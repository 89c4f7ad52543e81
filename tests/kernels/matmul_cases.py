"""Cases of the generated matmuls: every type, layout, ragged edges, stages, budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from tests.shared import reference
from warploom.kernels.kernel_name import kernel_name
from warploom.kernels.matmul import matmul_spec
from warploom.kernels.matmul_spec import MatmulSpec
from warploom.kernels.sm90_matmul_multistage import sm90_matmul_multistage
from warploom.kernels.sm90_matmul_warp_specialised import sm90_matmul_warp_specialised
from warploom.target import cuda_target
from warploom.target.tensor_map import L2Promotion

#: What rounding the sums to the result's type costs, relative.
ROUNDING = {
    "float32": 0, "int32": 0, "float16": 2.0**-10, "bfloat16": 2.0**-7, "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One kernel on one problem; ``dynamic`` leaves M to the launch."""

    spec: MatmulSpec
    m: int
    n: int
    k: int
    dynamic: bool = False

    def __str__(self) -> str:
        name = kernel_name("ws" if self.spec.specialised else "ms", {"spec": self.spec})
        return f"{name}-{self.m}x{self.n}x{self.k}{'-any' * self.dynamic}"

    def function(self):
        build = sm90_matmul_warp_specialised if self.spec.specialised else sm90_matmul_multistage
        return build(self.spec, None if self.dynamic else self.m, self.n, self.k)

    def check(self, kernel: Any, rng: np.random.Generator) -> None:
        """Run a compiled kernel on random matrices within poison and compare."""
        spec, device = self.spec, tvm.cuda(0)
        a = reference.random_array(rng, (self.m, self.k), spec.dtype)
        b = reference.random_array(rng, (self.n, self.k), spec.b_dtype)
        c = tvm.runtime.tensor(reference.poison(rng, (self.m, self.n), spec.out_dtype), device)
        arrays = [
            np.ascontiguousarray(x.T if transposed else x)
            for x, transposed in ((a, spec.layout[0] == "T"), (b, spec.layout[1] == "N"))
        ]
        kernel(*(tvm.runtime.tensor(x, device) for x in arrays), c)
        fraction = reference.error_fraction(spec.dtype, spec.accumulator)
        exact = reference.accumulate([a], [b], None, fraction)
        rounding = ROUNDING[spec.out_dtype] if spec.out_dtype != spec.accumulator else 0
        # Numbers below the smallest normal one of float8 are rounded to a multiple of it.
        tiny = 2.0**-6 if spec.out_dtype.startswith("float8") else 0
        bound = exact.bound * (1 + rounding) + rounding * np.abs(exact.value) + tiny * rounding
        expected = reference.Expected(exact.value, bound)
        assert not expected.mismatches(c.numpy()).any(), expected.worst(c.numpy())


def case(specialised: bool, shape: tuple[int, int, int], dynamic: bool = False, **choices: Any):
    choices.setdefault("tile", (64, 64, 64))
    return Case(matmul_spec(specialised, **choices), *shape, dynamic)


SIMPLE, ROLES = False, True

#: Small, and together of everything once.
QUICK = (
    case(ROLES, (150, 136, 200), stages=3),
    case(SIMPLE, (150, 136, 200), stages=3),
    case(ROLES, (70, 72, 64), stages=1, layout="NN", out_dtype="float16"),
    case(SIMPLE, (130, 72, 136), stages=1, consumers=2, tile=(128, 40, 64), dynamic=True),
    case(ROLES, (257, 40, 136), consumers=2, tile=(128, 24, 32), stages=5, dynamic=True,
         dtype="bfloat16", out_dtype="bfloat16", l2_promotion=L2Promotion.B256),
    case(SIMPLE, (72, 136, 100), dtype="bfloat16", layout="TN", stages=2),
    case(ROLES, (72, 56, 48), layout="TT", stages=4, accumulator="float16"),
    case(SIMPLE, (65, 24, 20), dtype="float32", tile=(64, 24, 32), stages=2),
    case(ROLES, (64, 16, 96), dtype="float32", tile=(64, 16, 16), stages=2),
    case(ROLES, (60, 48, 208), dtype="float8_e4m3fn", b_dtype="float8_e5m2", stages=2,
         tile=(64, 48, 128), out_dtype="float8_e5m2"),
    case(SIMPLE, (60, 40, 80), dtype="float8_e5m2", accumulator="float16", out_dtype="float32",
         tile=(64, 40, 32)),
    case(ROLES, (64, 40, 144), dtype="int8", b_dtype="uint8", tile=(64, 40, 64), stages=2),
    # One producer and one consumer: the compiler starts all threads with 232 registers.
    case(ROLES, (64, 40, 80), tile=(64, 40, 16), stages=3, registers=(40, 232)),
    case(SIMPLE, (200, 50, 32), dtype="uint8", tile=(128, 48, 32), consumers=2, stages=4),
    case(ROLES, (128, 136, 64), tile=(128, 136, 32), stages=2, ctas_per_sm=2,
         registers=(40, 208)),
)  # fmt: skip

#: Every combination of types with both kernels, and trip counts around the number of stages.
_TYPES = (
    ("float16", "float16", "float32"), ("float16", "float16", "float16"),
    ("bfloat16", "bfloat16", "float32"), ("float32", "float32", "float32"),
    *((a, b, d) for a in ("float8_e4m3fn", "float8_e5m2") for b in ("float8_e4m3fn", "float8_e5m2")
      for d in ("float32", "float16")),
    *((a, b, "int32") for a in ("int8", "uint8") for b in ("int8", "uint8")),
)  # fmt: skip
FULL = (
    *(
        case(roles, (100, 72, 112), dtype=a, b_dtype=b, accumulator=d, tile=(64, 72, 64), stages=2)
        for a, b, d in _TYPES
        for roles in (SIMPLE, ROLES)
    ),
    *(
        case(roles, (70, 40, 16 * steps), tile=(64, 40, 16), stages=stages)
        for stages in (1, 2, 3, 7)
        for steps in sorted({1, stages - 1, stages, stages + 1, 2 * stages + 1} - {0})
        for roles in (SIMPLE, ROLES)
    ),
    *(
        case(roles, (136, 200, 120), layout=layout, consumers=2, tile=(128, columns, 64), stages=2)
        for layout in ("NT", "NN", "TT", "TN")
        for columns in (64, 128, 192, 256)
        for roles in (SIMPLE, ROLES)
    ),
    case(ROLES, (400, 520, 256), tile=(128, 256, 64), consumers=2, stages=4, registers=(40, 232)),
    case(ROLES, (400, 520, 256), tile=(192, 128, 64), consumers=3, stages=3, registers=(32, 160)),
)  # fmt: skip


def lower(cases: tuple[Case, ...]) -> Any:
    """One compiled module; case ``i`` is function ``matmul_<i>``."""
    functions = {
        f"matmul_{i}": each.function().with_attr("global_symbol", f"matmul_{i}")
        for i, each in enumerate(cases)
    }
    return tvm.compile(tvm.IRModule(functions), cuda_target("h200"), tir_pipeline="tirx")
