"""Every refusal of the register tile schedules: one sentence with operand, rule and fix."""

import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.ops.tiles_kernels import build
from warploom.layout.fragment import column_fragment, row_fragment, wgmma_accumulator

ACC = wgmma_accumulator(64, 64)
ROW = row_fragment(64)


def _kernel(emit, buffers):
    """A kernel with ``local`` buffers, given as ``(shape, dtype, layout)``, around one call."""

    @T.prim_func
    def kernel(x: T.handle):
        matrix = T.match_buffer(x, (64, 64), "float32")
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        warp = T.warp_id_in_wg([4])
        T.lane_id([32])
        allocated = T.meta_var(
            [T.alloc_buffer(s, d, scope="local", layout=layout) for s, d, layout in buffers]
        )
        emit(allocated, matrix, warp)

    return kernel


def _within_two_warps(allocated, matrix, warp):
    with T.If(warp < 2), T.Then():
        Tx.wg.add(allocated[0], allocated[0], T.float32(1), dispatch="fragment")


def _case(name, emit, buffers, *words):
    return pytest.param(emit, buffers, words, id=name)


TILE, HALF = ((64, 64), "float32", ACC), ((64, 64), "float16", ACC)
CASES = (
    _case(
        "dtypes-differ", lambda b, *_: Tx.wg.add(b[0], b[0], b[1], dispatch="fragment"),
        [TILE, HALF], "float16 and float32", "cast",
    ),
    _case(
        "vector-along-the-wrong-dimension",
        lambda b, *_: Tx.wg.mul(b[0], b[0], b[1], dispatch="fragment"),
        [TILE, ((64,), "float32", ROW)], "operand 2", "otherwise", "row_fragment",
    ),
    _case(
        "does-not-broadcast", lambda b, *_: Tx.wg.mul(b[0], b[0], b[1], dispatch="fragment"),
        [TILE, ((32,), "float32", column_fragment(32))], "operand 2", "(32,)", "(rows, 1)",
    ),
    _case(
        "warp-scope", lambda b, *_: Tx.warp.add(b[0], b[0], T.float32(1), dispatch="fragment"),
        [TILE], "scope 'warp'", "Tx.wg",
    ),
    _case("half-a-warpgroup", _within_two_warps, [TILE], "all 4 warps", "branch"),
    _case(
        "slice-of-rows",
        lambda b, *_: Tx.wg.add(b[0][0:16, :], b[0][0:16, :], T.float32(1), dispatch="fragment"),
        [TILE], "the destination", "32 threads", "rows",
    ),
    _case(
        "memory-operand", lambda b, x, _: Tx.wg.add(b[0], b[0], x, dispatch="fragment"),
        [TILE], "operand 2", "scope 'local'", "'global'",
    ),
    _case(
        "reduce-to-half", lambda b, *_: Tx.wg.sum(b[1], b[0], -1, dispatch="fragment"),
        [TILE, ((64,), "float16", ROW)], "float32 or int32", "float16", "cast",
    ),
    _case(
        "reduce-over-rows", lambda b, *_: Tx.wg.sum(b[1], b[0], 0, dispatch="fragment"),
        [TILE, ((64,), "float32", column_fragment(64))], "several warps", "columns",
    ),
    _case(
        "reduce-wrong-extent", lambda b, *_: Tx.wg.max(b[1], b[0], -1, dispatch="fragment"),
        [TILE, ((128,), "float32", row_fragment(128))], "(128,)", "(64, 64)",
    ),
    _case(
        "reduce-other-distribution", lambda b, *_: Tx.wg.max(b[1], b[0], -1, dispatch="fragment"),
        [((64, 64), "float32", ACC), ((64,), "float32", column_fragment(64))],
        "the destination", "row_fragment",
    ),
    _case(
        "copy-converts", lambda b, x, _: Tx.wg.copy(x, b[0], dispatch="fragment"),
        [HALF], "float16 to float32", "Tx.wg.cast",
    ),
    _case(
        "copy-between-registers", lambda b, *_: Tx.wg.copy(b[0], b[1], dispatch="fragment"),
        [TILE, TILE], "one side must be in registers", "local and local",
    ),
)  # fmt: skip


@pytest.mark.parametrize(("emit", "buffers", "words"), CASES)
def test_decline_names_operand_rule_and_fix(emit, buffers, words):
    with pytest.raises(Exception, match="fragment:") as caught:
        build([_kernel(emit, buffers)])
    (reason,) = [line.strip() for line in str(caught.value).split("\n") if "fragment: " in line]
    reason = reason.removeprefix("fragment: ")
    assert reason.endswith(".") and "Error" not in reason
    for word in words:
        assert word in reason
