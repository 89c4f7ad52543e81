"""Special registers that the kernels of the recordings do not read, and directives in one word."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, kernel, launch

STORE = "mul.wide.u32 %d1, %t, 8;\nadd.u64 %d1, %d1, %p0;\nst.global.b64 [%d1], %d0;"


def read(register: str, bits: int, **geometry: object) -> np.ndarray:
    """What each thread of a block reads."""
    into = {32: f"mov.b32 %r0, {register};\ncvt.u64.u32 %d0, %r0;", 64: f"mov.b64 %d0, {register};"}
    body = f"{into[bits]}\n{STORE}"
    (result,) = launch(kernel(1, body), [np.full(32, 0xA5, np.uint64)], **geometry)
    return result


@pytest.mark.parametrize("name", [f"%envreg{i}" for i in range(32)] + [f"%pm{i}" for i in range(8)])
def test_what_nobody_has_set_is_zero(name):
    np.testing.assert_array_equal(read(name, 32), 0)


@pytest.mark.parametrize("name", ["%pm0_64", "%pm7_64", "%current_graph_exec"])
def test_wide_registers_that_are_zero(name):
    np.testing.assert_array_equal(read(name, 64), 0)


@pytest.mark.parametrize("shared", [0, 48, 4096])
def test_reserved_shared_memory_precedes_that_of_the_kernel(shared):
    begin, end, cap, total, all_of_it = (
        int(read(name, 32, shared=shared)[0])
        for name in (
            "%reserved_smem_offset_begin",
            "%reserved_smem_offset_end",
            "%reserved_smem_offset_cap",
            "%total_smem_size",
            "%aggr_smem_size",
        )
    )
    assert begin == 0 and end == cap == 1024
    assert total >= shared and all_of_it == total + end - begin


@pytest.mark.parametrize("name", ["%clock", "%globaltimer"])
def test_the_halves_of_a_clock(name):
    loop = "mov.u32 %r1, 0;\nLOOP:\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %q1, %r1, 5000;\n"
    low = {"%clock": "%clock", "%globaltimer": "%globaltimer_lo"}[name]
    body = f"""{loop} @%q1 bra LOOP;
    mov.u32 %r2, {name}_hi; mov.u32 %r3, {low}; mov.b64 %d0, {{%r3, %r2}};\n{STORE}"""
    (result,) = launch(kernel(1, body), [np.zeros(32, np.uint64)])
    assert (result > 0).all() and (result < 1 << 20).all()


def is_explicit(cluster: tuple[int, int, int], attribute: str = "") -> int:
    body = (
        "mov.pred %q1, %is_explicit_cluster;\nselp.b64 %d0, 1, 0, %q1;\n"
        f"mov.u32 %r0, %ctaid.x;\nmad.lo.u32 %t, %r0, 32, %t;\n{STORE}"
    )
    source = kernel(1, body).replace("kernel_param_0)\n", f"kernel_param_0) {attribute}\n", 1)
    (result,) = launch(source, [np.full(64, 7, np.uint64)], cluster=cluster, grid=cluster)
    return int(result[0])


def test_clusters_that_were_asked_for():
    assert is_explicit((1, 1, 1)) == 0
    assert is_explicit((2, 1, 1)) == 1
    assert is_explicit((1, 1, 1), ".reqnctapercluster 1") == 1


@pytest.mark.parametrize("grid", [(1, 1, 1), (3, 2, 1)])
def test_grids_that_are_given_in_clusters(grid):
    store = """mov.u32 %r0, %nctaid.x; mov.u32 %r1, %nctaid.y; mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ctaid.y; mad.lo.u32 %r4, %r3, %r0, %r2; mad.lo.u32 %r4, %r4, 32, %t;
    mul.wide.u32 %d1, %r4, 8; add.u64 %d1, %d1, %p0; st.global.v2.b32 [%d1], {%r0, %r1};"""
    attributes = ".reqntid 32, 1, 1 .reqnctapercluster 2, 1, 1 .blocksareclusters"
    source = kernel(1, store).replace("kernel_param_0)\n", f"kernel_param_0) {attributes}\n", 1)
    ctas = 2 * grid[0] * grid[1]
    (got,) = launch(source, [np.full((32 * ctas, 2), 0xA5, np.uint32)], grid=grid)
    np.testing.assert_array_equal(got, np.tile([2 * grid[0], grid[1]], (32 * ctas, 1)))
    with pytest.raises(EmulatorError, match=r"kernel needs \.reqnctapercluster"):
        launch(source.replace(".reqnctapercluster 2, 1, 1", ""), [np.zeros(1)], grid=grid)


def test_a_predicate_is_no_number():
    with pytest.raises(EmulatorError, match=r"'mov.b32': '%is_explicit_cluster' is a predicate"):
        read("%is_explicit_cluster", 32)


@pytest.mark.parametrize("name", ["%envreg32", "%pm8", "%pm8_64", "%envreg", "%pm", "%envreg01"])
def test_registers_that_do_not_exist(name):
    with pytest.raises(EmulatorError, match=f"'{name}' is not known"):
        read(name, 32)


@pytest.mark.parametrize(
    "declaration",
    [".reg.b32 x;", ".reg .b32 x;", ".reg.u32 y,x;", "{ .reg.b16 z; } .reg.f32\nx;"],
)
def test_directives_need_no_blank_between_them(rng, declaration):
    values = rng.integers(0, 1 << 32, 32, dtype=np.uint32)
    body = f"""mul.wide.u32 %d1, %t, 4;\nadd.u64 %d1, %d1, %p0;
    {{ {declaration} .reg.pred p; .local.align 8 .b32 slot[2]; .shared.b32 tile[32];
    ld.global.b32 x, [%d1];
    setp.eq.b32 p, x, x;
    st.local.b32 [slot+4], x;
    ld.local.b32 %r1, [slot+4];
    mov.u32 %r2, tile; mad.lo.u32 %r2, %t, 4, %r2;
    @p st.shared.b32 [%r2], %r1;
    ld.shared.b32 %r3, [%r2];
    not.b32 %r3, %r3;
    st.global.b32 [%d1], %r3; }}"""
    if "f32" in declaration:
        body = body.replace("setp.eq.b32 p, x, x", "setp.geu.f32 p, x, x")
    (result,) = launch(kernel(1, body), [values])
    np.testing.assert_array_equal(result, ~values)


@pytest.mark.parametrize("declaration", [".reg.b33 x;", ".reg.", ".reg..b32 x;"])
def test_directives_that_are_not_complete(declaration):
    with pytest.raises(EmulatorError, match=r"line \d+: "):
        launch(kernel(0, declaration), [])
