"""Op schedules see the ranges of few variables, and lower a kernel as with those of all."""

from __future__ import annotations

import pytest
import tvm
import tvm_ffi
from tvm.ir import Var

from warploom.decide import Config
from warploom.ops import dispatch
from warploom.ops.narrow_context import NarrowContext
from warploom.programs import gemm
from warploom.target import cuda_target

#: Copies with and without loops of boxes, a residue of K, tiles of registers, chunks of a store.
CONFIGS = (Config(128, 128, 64, 3, cluster_m=2), Config(16, 128, 128, 2, swap_ab=True))


def _source(config: Config) -> str:
    module = tvm.IRModule({"main": gemm(config, 384, 200)})
    built = tvm.compile(module, cuda_target("h200"), tir_pipeline="warploom")
    return built.mod.imports[0].inspect_source()


def _variables(*nodes) -> set[Var]:
    found: set[Var] = set()
    for node in nodes:
        tvm_ffi.structural_walk(node, (Var, found.add))
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("config", CONFIGS, ids=["plain", "swapped"])
def test_the_kernel_is_that_with_all_ranges(config, monkeypatch):
    seen = []

    def noted(context, call):
        seen.append((context, call, NarrowContext(context, call)))
        return seen[-1][2]

    monkeypatch.setattr(dispatch, "NarrowContext", noted)
    narrow = _source(config)
    fewer = 0
    for context, call, made in seen:
        every = dict(context.var_range_map.items())
        kept = made.var_range_map
        assert [one for one in every if one in kept] == list(kept), "in TVM's order"
        assert all(bounds.same_as(every[variable]) for variable, bounds in kept.items())
        inside = [end for bounds in kept.values() for end in (bounds.min, bounds.extent)]
        assert _variables(call, *inside) & every.keys() <= kept.keys(), "nothing is missing"
        assert made.target.same_as(context.target) and made.scope_kind == context.scope_kind
        fewer += len(kept) < len(every)
    assert fewer > 3
    monkeypatch.setattr(dispatch, "NarrowContext", lambda context, _: context)
    assert _source(config) == narrow
