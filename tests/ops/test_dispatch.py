"""How a tile primitive that no op schedule accepts is refused."""

import importlib

import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom.layout.fragment import wgmma_accumulator
from warploom.ops.table import load, rows
from warploom.target import cuda_target

ACC = wgmma_accumulator(64, 64)


def compile_call(emit):
    """Compile a kernel of one warpgroup whose body is ``emit(matrix, tile, thread_values)``."""

    @T.prim_func
    def kernel(x: T.handle):
        matrix = T.match_buffer(x, (64, 64), "float32")
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        T.thread_id_in_wg([128])
        tile = T.alloc_buffer((64, 64), "float32", scope="local", layout=ACC)
        values = T.alloc_buffer((64, 64), "float32", scope="local")
        emit(matrix, tile, values)

    return tvm.compile(tvm.IRModule({"main": kernel}), cuda_target("h200"), tir_pipeline="warploom")


def test_the_table_says_what_the_modules_do():
    """TVM chooses by the table, before it imports a module; none is listed twice or left out."""
    listed = list(rows())
    assert len(set(listed)) == len(listed) > 20
    for module, op, variant, priority in listed:
        schedule = load(module, op, variant)
        assert (schedule.op, schedule.variant, schedule.priority) == (op, variant, priority)
    for module in {one[0] for one in listed}:
        schedules = importlib.import_module(f"warploom.ops.{module}").SCHEDULES
        assert len(schedules) == sum(one[0] == module for one in listed)


def test_one_line_a_variant_and_the_call():
    """The table of stock, with the call in every row and with tracebacks, is gone."""
    with pytest.raises(RuntimeError) as caught:
        compile_call(lambda matrix, tile, values: Tx.wg.gemm_async(tile, tile, tile))
    text = str(caught.value)
    start = text.index("gemm_async: no op schedule accepts this call.")
    head, *reasons = text[start:].splitlines()[:4]
    assert reasons[0].startswith("  wgmma: ") and reasons[1].startswith("  tcgen05: ")
    assert reasons[2].startswith("in T.") and "gemm_async(tile" in reasons[2]
    assert "Traceback" not in "\n".join([head, *reasons])


def test_an_unknown_variant_names_the_known_ones():
    with pytest.raises(RuntimeError, match=r"no variant 'wgma' .*allowed: tcgen05, wgmma\."):
        compile_call(lambda m, tile, v: Tx.wg.gemm_async(tile, tile, tile, dispatch="wgma"))


@pytest.mark.parametrize("to_tile", [True, False])
def test_one_thread_never_copies_a_tile_of_many(to_tile):
    """Stock's fallback would; it warns, and the result is wrong."""

    def emit(matrix, tile, values):
        Tx.wg.copy(*((tile, matrix) if to_tile else (matrix, tile)), dispatch="fallback")

    with pytest.raises(RuntimeError, match="copies with one thread, which does not hold all of"):
        compile_call(emit)


def test_the_fallback_still_copies_what_one_thread_holds():
    with pytest.warns(UserWarning, match="fallback"):
        compile_call(lambda matrix, tile, v: Tx.wg.copy(matrix, v, dispatch="fallback"))
