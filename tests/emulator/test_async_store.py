"""st.async, red.async and st.bulk, and the work of clusters that are cancelled."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, kernel, launch, load

SEEDS = range(1, 5)

SHARED = """
.shared .align 16 .b8 buffer[512];
.shared .align 8 .b64 barrier;
.reg .b32 %buffer; .reg .b32 %barrier; .reg .b32 %rank; .reg .b32 %peer;
mov.u32 %buffer, buffer;
mov.u32 %barrier, barrier;
mov.u32 %rank, %cluster_ctarank;
xor.b32 %r1, %rank, 1;
"""

#: Thread 0 makes the barrier; nobody goes on before both CTAs have done so.
START = """
setp.ne.u32 %q0, %t, 0;
@%q0 bra READY;
mbarrier.init.shared.b64 [%barrier], 1;
mbarrier.arrive.expect_tx.shared.b64 %d1, [%barrier], {bytes};
fence.mbarrier_init.release.cluster;
READY:
shl.b32 %r3, %t, 4;
add.u32 %r3, %r3, %buffer;
st.shared.v4.b32 [%r3], {{5, 6, 7, 8}};
barrier.cluster.arrive.release;
barrier.cluster.wait.acquire;
mapa.shared::cluster.u32 %peer, %r3, %r1;
mapa.shared::cluster.u32 %r4, %barrier, %r1;
"""

#: Each thread of both CTAs returns the 16 bytes that the peer has written.
FINISH = """
WAIT:
mbarrier.try_wait.parity.shared.b64 %q1, [%barrier], 0;
@!%q1 bra WAIT;
ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r3];
mad.lo.u32 %r5, %rank, 32, %t;
mul.wide.u32 %d2, %r5, 16;
add.u64 %d2, %d2, %p0;
st.global.v4.b32 [%d2], {%r10, %r11, %r12, %r13};
"""


def exchange(store: str, bytes_a_thread: int, seed: int) -> np.ndarray:
    body = SHARED + START.format(bytes=32 * bytes_a_thread) + store + FINISH
    output = np.zeros((2, 32, 4), np.uint32)
    options = {"grid": (2, 1, 1), "cluster": (2, 1, 1), "seed": seed}
    return launch(kernel(1, body), [output], **options)[0]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", ["b32", "v2.u32", "v4.b32", "u64", "v2.b64"])
def test_asynchronous_stores_to_the_other_cta(shape, seed):
    words = {"b32": 1, "v2.u32": 2, "v4.b32": 4, "u64": 2, "v2.b64": 4}[shape]
    values = "mad.lo.u32 %r20, %rank, 1000, %t;\nadd.u32 %r21, %r20, 100;\n"
    values += "add.u32 %r22, %r20, 200;\nadd.u32 %r23, %r20, 300;\n"
    values += "mov.b64 %d10, {%r20, %r21};\nmov.b64 %d11, {%r22, %r23};\n"
    if shape.endswith("64"):
        operand = "%d10" if words == 2 else "{%d10, %d11}"
    else:
        operand = "%r20" if words == 1 else f"{{{', '.join(f'%r{20 + i}' for i in range(words))}}}"
    store = (
        f"{values}st.async.shared::cluster.mbarrier::complete_tx::bytes.{shape} "
        f"[%peer], {operand}, [%r4];"
    )
    received = exchange(store, 4 * words, seed)
    sender = np.array([1, 0])[:, None, None]
    expected = 1000 * sender + np.arange(32)[:, None] + 100 * np.arange(4)
    expected[..., words:] = np.array([5, 6, 7, 8])[words:]
    np.testing.assert_array_equal(received, expected)


REDUCTIONS = {
    "add.u32": lambda t: 5 + t,
    "min.s32": lambda t: min(5, t),
    "max.u32": lambda t: max(5, t),
    "inc.u32": lambda t: 0 if t <= 5 else 6,
    "dec.u32": lambda t: t if t < 5 else 4,
    "xor.b32": lambda t: 5 ^ t,
}


@pytest.mark.parametrize("operation", REDUCTIONS)
def test_asynchronous_reductions(operation):
    store = (
        f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{operation} "
        f"[%peer], %t, [%r4];"
    )
    received = exchange(store, 4, 1)
    expected = [REDUCTIONS[operation](t) for t in range(32)]
    np.testing.assert_array_equal(received[..., 0], [expected, expected])


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b64", "4, 8 or 16 bytes"),
        ("st.async.mmio.release.sys.global.b32", "it has 3 operands"),
        (
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.u64",
            "32-bit integers, or .add of 64-bit integers",
        ),
    ],
)
def test_asynchronous_stores_that_do_not_exist(instruction, reason):
    values = "{%d1, %d2, %d3, %d4}" if "v4" in instruction else "%d1"
    if instruction.endswith(".b32"):
        values = "%r1"
    with pytest.raises(EmulatorError, match=reason):
        load(kernel(0, f"{instruction} [%r2], {values}, [%r3];"))


def test_an_mbarrier_elsewhere_than_the_data():
    store = "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%peer], %t, [%barrier];"
    with pytest.raises(EmulatorError, match=r"data goes to CTA . of the cluster and the mbarrier"):
        exchange(store, 4, 1)


def test_zeros_in_bulk():
    body = (
        SHARED
        + """
shl.b32 %r3, %t, 4;
add.u32 %r3, %r3, %buffer;
st.shared.v4.b32 [%r3], {5, 6, 7, 8};
bar.sync 0;
setp.eq.u32 %q0, %t, 0;
add.u32 %r4, %buffer, 8;
@%q0 st.bulk.weak.shared::cta [%r4], 240, 0;
bar.sync 0;
ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r3];
mul.wide.u32 %d2, %t, 16;
add.u64 %d2, %d2, %p0;
st.global.v4.b32 [%d2], {%r10, %r11, %r12, %r13};
"""
    )
    expected = np.tile(np.array([5, 6, 7, 8], np.uint32), 32)
    expected[2:62] = 0
    actual = launch(kernel(1, body), [np.zeros(128, np.uint32)], arch="sm_100a")[0]
    np.testing.assert_array_equal(actual, expected)


TRY_CANCEL = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"

#: A persistent kernel: thread 0 of the first CTA asks for clusters until there are none left. Every
#: CTA adds one to the element of each CTA whose work it does.
CANCEL = """
.shared .align 16 .b8 response[16];
.shared .align 8 .b64 barrier;
.reg .b32 %response; .reg .b32 %barrier; .reg .b32 %rank; .reg .b32 %phase; .reg .b128 %w;
mov.u32 %response, response;
mov.u32 %barrier, barrier;
mov.u32 %rank, %cluster_ctarank;
mov.u32 %phase, 0;
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ctaid.y;
setp.ne.u32 %q0, %t, 0;
@!%q0 mbarrier.init.shared.b64 [%barrier], 1;
fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.release;
barrier.cluster.wait.acquire;
LOOP:
@%q0 bra SKIP;
mov.u32 %r3, %nctaid.x;
mad.lo.u32 %r3, %r2, %r3, %r1;
mul.wide.u32 %d1, %r3, 4;
add.u64 %d1, %d1, %p0;
red.global.add.u32 [%d1], 1;
fence.proxy.async.shared::cta;
mbarrier.arrive.expect_tx.shared.b64 %d2, [%barrier], 16;
SKIP:
barrier.cluster.arrive.release;
barrier.cluster.wait.acquire;
or.b32 %r4, %rank, %t;
setp.ne.u32 %q1, %r4, 0;
@!%q1 {cancel} [%response], [%barrier];
WAIT:
mbarrier.try_wait.parity.shared.b64 %q2, [%barrier], %phase;
@!%q2 bra WAIT;
xor.b32 %phase, %phase, 1;
ld.shared.b128 %w, [%response];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %q3, %w;
@%q3 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r1, %r2, _, _}, %w;
@%q3 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r5, %w;
@!%q3 bra DONE;
setp.ne.u32 %q4, %r1, %r5;
@%q4 trap;
add.u32 %r1, %r1, %rank;
bra LOOP;
DONE:
barrier.cluster.arrive.release;
barrier.cluster.wait.acquire;
"""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ctas", [1, 2])
def test_cancelled_clusters_are_done_once(ctas, seed):
    multicast = ".multicast::cluster::all" if ctas > 1 else ""
    body = CANCEL.replace("{cancel}", f"{TRY_CANCEL}{multicast}.b128")
    options = {"grid": (8, 3, 1), "cluster": (ctas, 1, 1), "seed": seed, "arch": "sm_100a"}
    done = launch(kernel(1, body), [np.zeros(24, np.uint32)], **options)[0]
    np.testing.assert_array_equal(done, 1)


def test_coordinates_of_no_cluster():
    body = """
.reg .b128 %w;
mov.b128 %w, {0, 0};
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r1, %w;
"""
    with pytest.raises(EmulatorError, match="did not cancel a cluster are undefined"):
        launch(kernel(0, body), [], arch="sm_100a")
