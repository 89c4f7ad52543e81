"""Parts of different widths are slices, which their readers take where they are."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import warploom
from warploom.relax.inspect import inspect
from warploom.relax.slice_splits import SliceSplits

_TARGET = warploom.cuda_target("h200")


def _parts(shape: tuple[int, ...], sections: int | list[int], axis: int) -> tvm.IRModule:
    """All parts of a tensor, multiplied by two, and the first one as it is."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            parts = builder.emit(relax.op.split(x, sections, axis))
            got = [builder.emit(parts[i]) for i in range(len(parts.ty.fields))]
            two = relax.const(2, "float16")
            made = [builder.emit(relax.op.multiply(one, two)) for one in got]
            result = builder.emit_output(relax.Tuple([got[0], *made]))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "sections", "axis"),
    [((6, 96), [64, 80], 1), ((3, 6, 40), [1, 3], -2), ((5, 30), [7], 1), ((9, 16), [2, 8], 0)],
)
def test_results_are_those_of_numpy(shape, sections, axis, rng):
    mod = _parts(shape, sections, axis)
    assert "R.split" not in SliceSplits()(mod).script()
    assert all(one.rows is not None or one.reshapes for one in inspect(mod, _TARGET))
    machine = relax.VirtualMachine(relax.build(mod, _TARGET), tvm.cuda(0))
    x = rng.standard_normal(shape).astype("float16")
    found = machine["main"](tvm.runtime.tensor(x, tvm.cuda(0)))
    parts = np.split(x, sections, axis)
    for one, wanted in zip(found, [parts[0], *(2 * part for part in parts)], strict=True):
        np.testing.assert_array_equal(one.numpy(), wanted)


@pytest.mark.parametrize("sections", [2, [24], [16, 32]])
def test_parts_of_one_width_stay(sections):
    mod = _parts((4, 48), sections, 1)
    tvm.ir.assert_structural_equal(SliceSplits()(mod), mod)
