"""Budget of tensor-memory columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm.tirx.layout import tmem_mma_operand_layout

from warploom.errors import IllegalCombination
from warploom.layout.tensor_memory import columns_of, plan_columns
from warploom.target.dtypes import bits_of

COLUMNS = st.lists(st.integers(1, 300), min_size=1, max_size=6)


@given(columns=COLUMNS, blocks=st.integers(1, 4))
def test_a_plan_is_the_smallest_allocation_that_holds_disjoint_buffers(columns, blocks):
    names = {f"b{i}": count for i, count in enumerate(columns)}
    powers = [size for size in (32, 64, 128, 256, 512) if size >= sum(columns)]
    if not powers or powers[0] * blocks > 512:
        with pytest.raises(IllegalCombination, match=r"a multiprocessor has 512"):
            plan_columns(blocks, **names)
        return
    plan = plan_columns(blocks, **names)
    taken = [c for name in names for c in range(plan[name].start, plan[name].stop)]
    assert taken == list(range(sum(columns)))
    assert plan.allocation == powers[0]


@pytest.mark.parametrize("rows, cta_group", [(128, 1), (256, 2)])
@pytest.mark.parametrize("n", [16, 32, 128, 256])
def test_an_accumulator_takes_the_columns_of_tvms_layout(rows, cta_group, n):
    layout = tmem_mma_operand_layout("D", (128, n), "float32", M=rows, cta_group=cta_group)
    assert columns_of("float32", n) == int(layout.span("TCol"))


@given(
    st.sampled_from(("float4_e2m1fn", "int8", "float16", "float32", "float64")),
    st.integers(-1, 600),
)
def test_columns_of_whole_cells(dtype, elements):
    if elements * bits_of(dtype) > 0 and elements * bits_of(dtype) % 32 == 0 and dtype != "float64":
        assert columns_of(dtype, elements) * 32 == elements * bits_of(dtype)
    else:
        with pytest.raises(IllegalCombination, match=f"{elements} elements of {dtype}"):
            columns_of(dtype, elements)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "at least one buffer"),
        ({"a": 0}, "a takes 0 columns"),
        ({"a": 1, "blocks_per_sm": 0}, "blocks_per_sm is 0"),
    ],
)
def test_bad_plans_are_refused(arguments, message):
    with pytest.raises(IllegalCombination, match=message):
        plan_columns(**arguments)
