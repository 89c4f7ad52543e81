"""Control flow and scalars in both lowerings; what of the multistage one runs ahead."""

from __future__ import annotations

import pytest
import tvm_ffi
from tvm import tirx

from tests.shared import tile_programs
from tests.shared.control_programs import CONTROL
from tests.shared.lowered_programs import check, hinted
from tests.shared.sampling import sampled
from warploom.errors import Decline
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace

IN_PLACE = "loaded where it is used"


#: Every program both ways; what reads tiles to know where to load has one.
COMBINATIONS = [
    (name, specialise, stages)
    for name in CONTROL
    for specialise, stages in ((True, 1), (True, 4), (False, 2), (False, 4))
    if not (name == "from_tile" and specialise)
]


@pytest.mark.parametrize(("name", "specialise", "stages"), sampled(COMBINATIONS, 2))
@pytest.mark.some(4)
def test_control_flow_is_right_and_free_of_races(name, specialise, stages, rng):
    check(CONTROL[name](stages), rng, specialise=specialise)


def decisions(case: tile_programs.Case) -> list[str]:
    steps = lower_trace(hinted(case.func, specialise=False))
    return [sentence for step in steps for sentence in step.decisions]


@pytest.mark.parametrize(
    ("name", "in_place"),
    [
        ("indexed", []),
        ("in_place", []),
        ("nested", []),
        # Where to load from is known too late.
        ("carried", ["A_s_B_s"]),
        ("from_tile", ["I_s", "A_s_B_s"]),
        ("branches", ["A_t_B_t"]),
    ],
)
def test_loads_run_ahead_where_their_place_is_known(name, in_place):
    found = [s.split()[2].rstrip(":") for s in decisions(CONTROL[name](3)) if IN_PLACE in s]
    assert found == in_place


def test_a_ring_that_runs_ahead_has_its_stages():
    assert any(s.startswith("ring of A_s, B_s: 3 stages") for s in decisions(CONTROL["indexed"](3)))
    assert any(s.startswith("ring of A_s, B_s: 1 stages") for s in decisions(CONTROL["carried"](3)))


@pytest.mark.parametrize(("rows", "warpgroups"), [(64, 1), (128, 2), (192, 3)])
def test_there_is_no_loading_warp(rows, warpgroups):
    case = tile_programs.gemm(rows, 64, 64, (rows, 64, 64))
    counts = {}
    for specialise in (True, False):
        found = []

        def visit(one: tirx.ScopeIdDefStmt, found: list = found) -> None:
            ids = getattr(one, "def")
            pairs = zip(ids.def_ids, ids.extents, strict=True)
            found.extend(int(n) for var, n in pairs if var.name in ("wg", "consumer"))

        func = lower(hinted(case.func, specialise=specialise))
        tvm_ffi.structural_walk(func.body, (tirx.ScopeIdDefStmt, visit))
        counts[specialise] = found
    assert counts == {True: [warpgroups + 1], False: [warpgroups]}


def test_no_empty_barriers():
    script = lower(hinted(tile_programs.gemm().func, specialise=False)).script()
    assert "A_s_B_s_full" in script and "empty" not in script and "setmaxnreg" not in script


def test_a_part_of_a_tile_is_declined():
    from tvm.script import tirx as T
    from tvm.script.tirx import tile as Tx

    @T.prim_func
    def program(A: T.Buffer((64, 64), "float16"), C: T.Buffer((64, 64), "float16")):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        Tx.cta.copy_async(A_s[0:32, 0:64], A[0:32, 0:64])
        for i, j in T.grid(64, 64):
            C[i, j] = A_s[i, j]

    with pytest.raises(Decline, match="A load fills a part of the tile A_s; load all of it"):
        lower(program)
