"""Bytes and MMAs of asynchronous instructions in the report of a launch, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator import test_gather as gather
from tests.emulator import test_tcgen05_copy as tensor_copies
from tests.emulator.options import launch_reports, options
from tests.emulator.ptx_driver import TensorMap, emulator
from tests.emulator.run_ptx import kernel, launch
from tests.emulator.tcgen05 import await_barrier, commit, init_barrier, own_quarter, vector
from tests.emulator.test_async_store import FINISH, SHARED, START
from tests.emulator.test_umma import random_mma
from tests.emulator.test_umma_ptx import execute_with
from tests.emulator.umma_model import run as run_umma
from warploom.runtime.emulator_libraries import find_libraries

PAIR = {"grid": (2, 1, 1), "cluster": (2, 1, 1)}


def reported(run, *arguments, **keywords):
    """The report of the launch that ``run`` makes."""
    with options(report=True):
        run(*arguments, **keywords)
    (found,) = launch_reports()
    return found


def bytes_of(body, arrays=(), declarations="", **keywords):
    ptx = kernel(len(arrays), body, declarations)
    return reported(launch, ptx, list(arrays), **keywords)["bytes"]


STORE = "st.async.shared::cluster.mbarrier::complete_tx::bytes"
REDUCE = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(
    ("instruction", "size", "reads"),
    [
        (f"{STORE}.v4.b32 [%peer], {{%t, %t, %t, %t}}, [%r4];", 16, False),
        (f"{STORE}.b64 [%peer], %d1, [%r4];", 8, False),
        (f"{REDUCE}.add.u32 [%peer], %t, [%r4];", 4, True),
        (f"{REDUCE}.add.u64 [%peer], %d1, [%r4];", 8, True),
    ],
)
def test_asynchronous_stores(instruction, size, reads):
    body = SHARED + START.format(bytes=32 * size) + instruction + FINISH
    found = bytes_of(body, [np.zeros((2, 32, 4), np.uint32)], **PAIR)
    moved = 2 * 32 * size
    assert found["distributed shared"] == {"read": reads * moved, "written": moved}
    # What each thread writes before and reads after them.
    assert found["shared"] == {"read": 2 * 32 * 16, "written": 2 * 32 * 16}
    local = body.replace("mapa.shared::cluster.u32 %peer, %r3, %r1;", "mov.u32 %peer, %r3;")
    local = local.replace("mapa.shared::cluster.u32 %r4, %barrier, %r1;", "mov.u32 %r4, %barrier;")
    found = bytes_of(local, [np.zeros((2, 32, 4), np.uint32)], **PAIR)
    assert found["shared"] == {"read": 2 * 32 * 16 + reads * moved, "written": 2 * 32 * 16 + moved}


def test_stores_that_release():
    body = """
mul.wide.u32 %d1, %t, 8;
add.u64 %d1, %d1, %p0;
st.async.release.sys.global.u64 [%d1], %d1;
red.async.release.sys.global.add.u32 [%p0], %t;
"""
    body = body.replace("st.async.release.sys", "st.async.mmio.release.sys")
    body = body.replace("red.async.release.sys", "red.async.mmio.release.sys")
    found = bytes_of(body, [np.zeros(64, np.uint64)], block=(64, 1, 1), arch="sm_100a")
    assert found == {"global": {"read": 64 * 4, "written": 64 * (8 + 4)}}


def test_zeros_in_bulk():
    body = """
mov.u32 %r1, buf;
setp.eq.u32 %q0, %t, 0;
@%q0 st.bulk.weak.shared::cta [%r1], 240, 0;
"""
    with options(report=True):
        launch(kernel(0, body, ".shared .align 16 .b8 buf[256];"), [], arch="sm_100a")
    (found,) = launch_reports()
    assert found["bytes"] == {"shared": {"read": 0, "written": 240}}
    assert found["bank_conflicts"]["wavefronts"] == 0


@pytest.mark.parametrize(
    ("rows", "column", "inside"), [([7, 3, 3, 39], 32, 4 * 32), ([0, -1, 40, 5], 80, 2 * 16)]
)
def test_rows_that_are_gathered_and_scattered(rows, column, inside):
    """Rows out of bounds are filled in shared memory; what lies there is not written back."""
    found = reported(gather.run, rows, [1, 2, 3, 4], column, swizzle=0)["bytes"]
    scattered = 4 * min(32, gather.COLUMNS - column) * 2
    box = 4 * gather.WIDTH * 2
    assert found["tensor map"] == {"read": 2 * inside + scattered, "written": box + scattered}


TILE = """
.visible .entry kernel(.param .align 64 .b8 from[128], .param .u64 p0)
{
.shared .align 1024 .b8 buffer[2048];
.shared .align 8 .b64 barrier;
.reg .b32 %r<8>; .reg .b64 %d<4>; .reg .b16 %h; .reg .pred %q<4>;
mov.u32 %r1, buffer;
mov.u32 %r2, barrier;
mov.b64 %d1, from;
mov.u16 %h, 3;
mbarrier.init.shared.b64 [%r2], 1;
mbarrier.arrive.expect_tx.shared.b64 %d2, [%r2], {bytes};
fence.mbarrier_init.release.cluster;
barrier.cluster.arrive;
barrier.cluster.wait;
mov.u32 %r3, %cluster_ctarank;
setp.ne.u32 %q0, %r3, 0;
@!%q0 {copy};
WAIT:
mbarrier.try_wait.parity.shared.b64 %q1, [%r2], 0;
@!%q1 bra WAIT;
fence.proxy.async;
@%q0 bra END;
{back}
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
END:
barrier.cluster.arrive;
barrier.cluster.wait;
ret;
}
"""
MULTICAST = "shared::cluster.global{}.mbarrier::complete_tx::bytes.multicast::cluster"


def run_tile(copy, back, bytes_expected):
    driver = emulator(str(find_libraries()[0]))
    text = TILE.replace("{copy}", copy).replace("{back}", back)
    module = driver.load(text.replace("{bytes}", str(bytes_expected)))
    tensor = np.zeros((20, 40), np.float32)
    maps = [TensorMap(0, 7, (40, 20), (160,), (16, 8), (1, 1))]
    try:
        driver.launch(
            *(module, "kernel", [tensor]), maps=maps, block=(1, 1, 1), grid=(2, 1, 1),
            cluster=(2, 1, 1),
        )  # fmt: skip
    finally:
        driver.unload(module)


@pytest.mark.parametrize("reduction", [False, True])
@pytest.mark.parametrize(("x", "y"), [(0, 0), (32, 16), (-8, -3), (60, 0)])
def test_boxes_at_the_border(x, y, reduction):
    inside = max(min(x + 16, 40) - max(x, 0), 0) * (min(y + 8, 20) - max(y, 0)) * 4
    box = 16 * 8 * 4
    copy = f"cp.async.bulk.tensor.2d.{MULTICAST.format('')} [%r1], [%d1, {{{x}, {y}}}], [%r2], %h"
    name = "cp.reduce.async.bulk" if reduction else "cp.async.bulk"
    add = ".add" if reduction else ""
    back = f"{name}.tensor.2d.global.shared::cta{add}.bulk_group [%d1, {{{x}, {y}}}], [%r1];"
    found = reported(run_tile, copy, back, box)["bytes"]
    assert found == {"tensor map": {"read": inside + inside, "written": 2 * box + inside}}


def test_bytes_for_two_ctas_and_reductions_in_bulk():
    copy = f"cp.async.bulk.{MULTICAST.format('')} [%r1], [%d3], 128, [%r2], %h"
    back = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d3], [%r1], 64;"
    copy = f"ld.param.u64 %d3, [p0];\n@!%q0 {copy}"
    found = reported(run_tile, copy, back, 128)["bytes"]
    assert found == {"bulk": {"read": 128 + 64, "written": 2 * 128 + 64}}


@pytest.mark.parametrize("name", tensor_copies.SHAPES)
@pytest.mark.parametrize("group", [1, 2])
def test_copies_to_tensor_memory(name, group):
    rows, chunks, lanes = tensor_copies.SHAPES[name]
    start = "mov.u32 %r5, %cluster_ctarank; setp.eq.and.u32 %q4, %r5, 0, %q6;"
    body = f"""{init_barrier()}{start}
    {tensor_copies.descriptor(16, 2048, 128)}
    @%q4 tcgen05.cp.cta_group::{group}.{name} [%a], %d1;
    @%q4 tcgen05.shift.cta_group::{group}.down [%a];
    @%q4 {commit(group=group, mask=3 if group == 2 else None)}
    {await_barrier("WAIT")}"""
    found = reported(tensor_copies.run, [], body, group=group)["bytes"]
    copied = rows * chunks * 16 * len(lanes(0))
    shifted = (128 - 4) * 8 * 4
    assert found["tensor memory"] == {
        "read": group * shifted,
        "written": group * (copied + shifted),
    }


@pytest.mark.parametrize(
    ("shape", "count", "lanes", "columns"),
    [
        ("32x32b.x8", 8, 32, 8),
        ("16x64b.x4", 4, 16, 8),
        ("16x128b.x2", 4, 16, 8),
        ("16x256b.x1", 4, 16, 8),
        ("16x32bx2.x4", 4, 16, 2 * 4),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_registers_and_tensor_memory(shape, count, lanes, columns, packed):
    offset = ", 16" if "bx2" in shape else ""
    both = {"ld": ".pack::16b", "st": ".unpack::16b"} if packed else {"ld": "", "st": ""}
    zeros = "\n".join(f"mov.b32 %v{i}, 0;" for i in range(count))
    body = f"""{own_quarter()}{zeros}
    tcgen05.st.sync.aligned.{shape}{both["st"]}.b32 [%r1]{offset}, {vector("v", count)};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.{shape}{both["ld"]}.b32 {vector("v", count)}, [%r1]{offset};
    tcgen05.wait::ld.sync.aligned;"""
    found = reported(tensor_copies.run, [], body)["bytes"]
    # Four warps; a register that is packed is two columns.
    moved = 4 * lanes * columns * 4 * (2 if packed else 1)
    assert found["tensor memory"] == {"read": moved, "written": moved}


@pytest.mark.parametrize(
    ("kind", "group", "ws", "m", "n", "k"),
    [
        ("f16", 1, False, 128, 48, 16),
        ("f16", 2, False, 256, 64, 16),
        ("tf32", 1, True, 32, 64, 8),
        ("i8", 1, False, 64, 32, 32),
        ("mxf4nvf4", 1, False, 128, 32, 64),
    ],
)
def test_mmas_in_tensor_memory(kind, group, ws, m, n, k, rng):
    mma = random_mma(rng, kind, group, ws, m, n)
    found = reported(run_umma, rng, mma, execute_with(1))["tensor"]
    assert found == {f"tcgen05.mma {kind}": {"instructions": 1, "flops": 2 * m * n * k}}


def fragments(*counts):
    return ", ".join("{" + ", ".join(["%r1"] * count) + "}" for count in counts)


@pytest.mark.parametrize(
    ("instruction", "name", "products"),
    [
        (f"mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {fragments(4, 4, 2, 4)}", "mma u8",
         16 * 8 * 32),
        (f"mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {fragments(4, 2, 2, 4)}", "mma f16",
         4 * 8 * 8 * 4),
        (f"mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
         f"{fragments(4, 2, 2, 4)}, %r2, 0", "mma.sp bf16", 16 * 8 * 8),
        (f"wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16 {fragments(12)}, %d1, %d1, 1, 1, 1, "
         "0, 0", "wgmma f16", 64 * 24 * 16 // 4),
        (f"wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8 {fragments(4)}, %d1, %d1, %r2, 0, 1",
         "wgmma.sp s8", 64 * 8 * 32 // 4),
    ],
)  # fmt: skip
def test_mmas_of_registers(instruction, name, products):
    fixed = 1 << 62 | 64 << 32 | 1 << 16
    body = f"""
mov.b32 %r1, 0;
mov.b32 %r2, 0x44444444;
mov.u32 %r3, buf;
shr.u32 %r3, %r3, 4;
cvt.u64.u32 %d1, %r3;
or.b64 %d1, %d1, {fixed};
wgmma.fence.sync.aligned;
{instruction};
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
"""
    ptx = kernel(0, body, ".shared .align 1024 .b8 buf[16384];")
    found = reported(launch, ptx, [], block=(128, 1, 1))["tensor"]
    assert found == {name: {"instructions": 4, "flops": 4 * 2 * products}}
