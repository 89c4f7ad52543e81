"""Races of asynchronous copies and stores: kernels that are correct, and with one bug planted."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.emulator.checks import changed, checks, reports
from tests.emulator.ptx_driver import Driver, DriverError, Im2colMap, TensorMap, emulator
from tests.emulator.run_ptx import DEFAULT_LIMIT, DEVICES, HEADER, limited
from warploom.runtime.emulator_libraries import find_libraries

THREADS, ROWS, COLUMNS = 64, 24, 32
#: The tensor that maps describe: rows of 32 words, of which a box has 16.
TENSOR = TensorMap(0, 2, (COLUMNS, ROWS), (4 * COLUMNS,), (16, 4), (1, 1))
FOUR_ROWS = dataclasses.replace(TENSOR, box=(16, 1))
#: The same memory as pixels of 16 words: one image, 48 pixels wide.
PIXELS = Im2colMap(0, 2, (16, 48, 1), (64, 3072), (0,), (0,), 16, 4, (1, 1, 1))

PROLOGUE = """
.shared .align 1024 .b8 buffer[256];
.shared .align 128 .b8 other[256];
.shared .align 8 .b64 barrier;
.reg .b32 %r<32>; .reg .b64 %d<8>; .reg .b64 %p<4>; .reg .b64 %m<1>; .reg .b16 %h<4>;
.reg .pred %q<8>; .reg .b32 %t; .reg .b32 %rank; .reg .b32 %buffer; .reg .b32 %barrier;
.reg .b32 %own;
mov.u32 %t, %tid.x;
mov.u32 %rank, %cluster_ctarank;
mov.u32 %buffer, buffer;
mov.u32 %barrier, barrier;
mad.lo.u32 %own, %t, 4, %buffer;
mov.u16 %h3, 3;
setp.eq.u32 %q0, %t, 0;
setp.eq.and.u32 %q6, %rank, 0, %q0;
setp.eq.and.u32 %q7, %rank, 1, %q0;
xor.b32 %r31, %rank, 1;
@%q0 mbarrier.init.shared::cta.b64 [%barrier], 1;
@%q0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], 256;
@%q0 fence.mbarrier_init.release.cluster;
barrier.cluster.arrive;
barrier.cluster.wait;
"""
MEET = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"

WAIT = """WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q1, [%barrier], 0;
@!%q1 bra WAIT;
"""
#: Each thread returns its word of the buffer, CTAs one after the other.
READ = """ld.shared.u32 %r5, [%own];
mad.lo.u32 %r6, %rank, 64, %t;
mul.wide.u32 %d1, %r6, 4;
add.u64 %d1, %d1, %p1;
st.global.u32 [%d1], %r5;
"""
TO_SHARED = "shared::{}.global{}.mbarrier::complete_tx::bytes"


def load_of(instruction: str, guard: str = "%q0") -> str:
    return f"@{guard} {instruction};\n{WAIT}{READ}"


GATHER = (
    f"cp.async.bulk.tensor.2d.{TO_SHARED.format('cta', '.tile::gather4')} "
    "[%buffer], [%m0, {8, 3, 20, 7, 0}], [%barrier]"
)
EXPECT = "@%q0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], 256;\n"
LAST = WAIT.replace("WAIT", "LAST").replace(", 0;", ", 1;")
MULTICAST = (
    f"cp.async.bulk.{TO_SHARED.format('cluster', '')}.multicast::cluster "
    "[%buffer], [%p0], 256, [%barrier], %h3"
)
#: Words go from shared memory to the output.
SEND = """add.u32 %r5, %t, 7;
st.shared.u32 [%own], %r5;
fence.proxy.async.shared::cta;
bar.sync 0;
@%q0 {copy};
@%q0 cp.async.bulk.commit_group;
@%q0 cp.async.bulk.wait_group.read 0;
bar.sync 1;
st.shared.u32 [%own], 0;
@%q0 cp.async.bulk.wait_group 0;
"""
SCATTER = (
    "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group "
    "[%m0, {8, 3, 20, 7, 0}], [%buffer]"
)
#: Both CTAs send words to each other.
EXCHANGE = """st.shared.u32 [%own], 5;
barrier.cluster.arrive;
barrier.cluster.wait;
mapa.shared::cluster.u32 %r2, %own, %r31;
mapa.shared::cluster.u32 %r3, %barrier, %r31;
add.u32 %r4, %t, 7;
"""
TO_PEER = "{}shared::cluster.mbarrier::complete_tx::bytes.{} [%r2], %r4, [%r3];\n"
REDUCE_HERE = f"""mov.u32 %r10, other;
mad.lo.u32 %r11, %t, 4, %r10;
add.u32 %r4, %t, 7;
st.shared.u32 [%own], 5;
st.shared.u32 [%r11], %r4;
fence.proxy.async.shared::cta;
bar.sync 0;
@%q0 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32
  [%buffer], [%r10], 256, [%barrier];
{WAIT}{READ}"""
PAIR_LOAD = (
    f"cp.async.bulk.tensor.2d.{TO_SHARED.format('cluster', '.tile')}.cta_group::2 "
    "[%buffer], [%m0, {8, 4}], [%r3]"
)
#: CTA 1 loads and CTA 0 waits, as the leader of a pair that multiplies what both have.
PAIR = f"""mapa.shared::cluster.u32 %r3, %barrier, 0;
mapa.shared::cluster.u32 %r2, %own, 1;
@%q7 {PAIR_LOAD};
setp.ne.u32 %q2, %rank, 0;
@%q2 bra DONE;
{WAIT}ld.shared::cluster.u32 %r5, [%r2];
mul.wide.u32 %d1, %t, 4;
add.u64 %d1, %d1, %p1;
st.global.u32 [%d1], %r5;
DONE:
"""
ZERO = """st.shared.u32 [%own], 5;
bar.sync 0;
@%q0 st.bulk.weak.shared::cta [%buffer], 256, 0;
fence.proxy.async.shared::cta;
bar.sync 1;
""" + READ.replace("ld.shared.u32", "ld.shared.b32")
ZERO_SENT = """@%q0 st.bulk.weak.shared::cta [%buffer], 256, 0;
@%q0 fence.proxy.async.shared::cta;
@%q0 cp.async.bulk.global.shared::cta.bulk_group [%p1], [%buffer], 256;
@%q0 cp.async.bulk.commit_group;
@%q0 cp.async.bulk.wait_group 0;
"""


@dataclasses.dataclass(frozen=True)
class Kernel:
    body: str
    expected: str  # what is in the output, see outputs()
    map: TensorMap | Im2colMap | None = None
    ctas: int = 1
    arch: str = "sm_90a"


KERNELS = {
    "gather4": Kernel(load_of(GATHER), "gather", FOUR_ROWS, arch="sm_100a"),
    "gather4 twice": Kernel(
        f"{load_of(GATHER)}bar.sync 1;\n{EXPECT}@%q0 {GATHER};\n{LAST}", "gather", FOUR_ROWS,
        arch="sm_100a",
    ),
    "scatter4": Kernel(
        SEND.replace("{copy}", SCATTER), "scatter", dataclasses.replace(FOUR_ROWS, buffer=1),
        arch="sm_100a",
    ),
    "im2col": Kernel(
        load_of(f"cp.async.bulk.tensor.3d.{TO_SHARED.format('cluster', '.im2col')} "
                "[%buffer], [%m0, {0, 9, 0}], [%barrier], {%h3}"), "pixels", PIXELS,
    ),
    "multicast": Kernel(load_of(MULTICAST, "%q6"), "both", ctas=2),
    "multicast twice": Kernel(
        f"{load_of(MULTICAST, '%q6')}{EXPECT}{MEET}@%q6 {MULTICAST};\n{LAST}", "both", ctas=2
    ),
    "cta_group::2": Kernel(PAIR, "box", TENSOR, ctas=2, arch="sm_100a"),
    "st.async": Kernel(
        EXCHANGE + TO_PEER.format("st.async.", "u32") + WAIT + READ, "seven", ctas=2
    ),
    "red.async": Kernel(
        EXCHANGE + TO_PEER.format("red.async.relaxed.cluster.", "add.u32") + WAIT + READ,
        "twelve", ctas=2,
    ),
    "cp.reduce to global": Kernel(
        SEND.replace("{copy}", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 "
                     "[%p1], [%buffer], 256"), "added",
    ),
    "cp.reduce to shared": Kernel(REDUCE_HERE, "twelve"),
    "st.bulk": Kernel(ZERO, "zero", arch="sm_100a"),
    "st.bulk, sent": Kernel(ZERO_SENT, "zero", arch="sm_100a"),
}  # fmt: skip

SEEDS = (1, 2, 3)
BROKEN = [
    # kernel, what is replaced, by what, finding, both sides
    ("gather4", WAIT, "", "data race", ("ld.shared.u32", "tile::gather4")),
    ("gather4 twice", "bar.sync 1;", "", "data race", ("ld.shared.u32", "tile::gather4")),
    ("scatter4", "bar.sync 0;", "", "data race", ("st.shared.u32", "tile::scatter4")),
    ("scatter4", "fence.proxy.async.shared::cta;", "", "missing proxy fence",
     ("st.shared.u32", "tile::scatter4")),
    ("scatter4", "cp.async.bulk.wait_group.read 0;", "bar.warp.sync 1;", "data race",
     ("st.shared.u32", "tile::scatter4")),
    ("scatter4", "bar.sync 1;", "", "data race", ("st.shared.u32", "tile::scatter4")),
    ("im2col", WAIT, "", "data race", ("ld.shared.u32", ".im2col")),
    ("multicast", WAIT, "", "data race", ("ld.shared.u32", "multicast::cluster")),
    ("multicast twice", MEET, "", "data race", ("ld.shared.u32", "multicast::cluster")),
    ("cta_group::2", WAIT, "", "data race", ("ld.shared::cluster.u32", "cta_group::2")),
    ("st.async", WAIT, "", "data race", ("ld.shared.u32", "st.async")),
    ("st.async", MEET, "", "data race", ("st.shared.u32", "st.async")),
    ("red.async", WAIT, "", "data race", ("ld.shared.u32", "red.async")),
    ("cp.reduce to global", "fence.proxy.async.shared::cta;", "", "missing proxy fence",
     ("st.shared.u32", "cp.reduce.async.bulk")),
    ("cp.reduce to global", "cp.async.bulk.wait_group.read 0;", "bar.warp.sync 1;", "data race",
     ("st.shared.u32", "cp.reduce.async.bulk")),
    ("cp.reduce to shared", WAIT, "", "data race", ("ld.shared.u32", "cp.reduce.async.bulk")),
    ("cp.reduce to shared", "fence.proxy.async.shared::cta;", "", "missing proxy fence",
     ("st.shared.u32", "cp.reduce.async.bulk")),
    ("st.bulk", "bar.sync 1;", "", "data race", ("ld.shared.b32", "st.bulk")),
    ("st.bulk", "bar.sync 0;", "", "data race", ("st.shared.u32", "st.bulk")),
    ("st.bulk, sent", "@%q0 fence.proxy.async.shared::cta;", "", "missing proxy fence",
     ("st.bulk", "cp.async.bulk.global")),
]  # fmt: skip


def source(kernel: Kernel) -> str:
    maps = ".param .align 64 .b8 map[128], " if kernel.map else ""
    address = "mov.b64 %m0, map;" if kernel.map else ""
    return (
        f".visible .entry kernel({maps}.param .u64 p0, .param .u64 p1)\n{{{PROLOGUE}{address}\n"
        f"ld.param.u64 %p0, [p0];\nld.param.u64 %p1, [p1];\n{kernel.body}{MEET}ret;\n}}\n"
    )


def run(kernel: Kernel, tensor: np.ndarray, seed: int):
    """The output, what was found and the error."""
    driver: Driver = emulator(str(find_libraries()[0]), DEVICES[kernel.arch])
    module = driver.load_text(HEADER.format(arch=kernel.arch) + source(kernel))
    geometry = {"grid": (kernel.ctas, 1, 1), "cluster": (kernel.ctas, 1, 1)}
    maps = [kernel.map] if kernel.map else []
    try:
        with checks(), limited(seed, DEFAULT_LIMIT):
            try:
                arrays = [tensor, np.zeros_like(tensor)]
                output = driver.launch(
                    *(module, "kernel", arrays), maps=maps, block=(THREADS, 1, 1), **geometry
                )[1]
                return output, reports(), ""
            except DriverError as error:
                return None, reports(), str(error)
    finally:
        driver.unload(module)


def output_of(kernel: Kernel, tensor: np.ndarray) -> np.ndarray:
    rows, seven = [3, 20, 7, 0], np.arange(THREADS) + 7
    words = {
        "gather": lambda: tensor[rows, 8:24],
        "box": lambda: tensor[4:8, 8:24],
        "pixels": lambda: tensor.reshape(-1, 16)[12:16],
        "both": lambda: np.tile(tensor.ravel()[:THREADS], 2),
        "seven": lambda: np.tile(seven, kernel.ctas),
        "twelve": lambda: np.tile(seven + 5, kernel.ctas),
        "added": lambda: seven,
        "zero": lambda: np.zeros(THREADS),
    }
    output = np.zeros_like(tensor)
    if kernel.expected == "scatter":
        output[rows, 8:24] = seven.reshape(4, 16)
        return output
    values = words[kernel.expected]().ravel()
    output.ravel()[: values.size] = values
    return output


@pytest.mark.parametrize("name", KERNELS)
def test_correct_kernels_are_silent(name, rng):
    kernel = KERNELS[name]
    tensor = rng.integers(0, 1 << 32, (ROWS, COLUMNS), "uint32")
    for seed in SEEDS:
        output, found, message = run(kernel, tensor, seed)
        assert found == [] and message == ""
        np.testing.assert_array_equal(output, output_of(kernel, tensor))


@pytest.mark.parametrize(("name", "old", "new", "kind", "sides"), BROKEN)
def test_a_planted_bug_is_reported_with_both_sides(name, old, new, kind, sides, rng):
    kernel = KERNELS[name]
    broken = dataclasses.replace(kernel, body=changed(kernel.body, old, new))
    tensor = rng.integers(0, 1 << 32, (ROWS, COLUMNS), "uint32")
    for seed in SEEDS:
        _, found, message = run(broken, tensor, seed)
        told = [report["text"] for report in found if report["kind"] == kind]
        assert any(all(side in text for side in sides) for text in told), (found, message)
