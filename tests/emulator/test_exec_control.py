"""Divergence, barriers, warp communication and cluster memory on the emulator, under many seeds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.run_ptx import kernel, launch

SEEDS = range(1, 9)

STORE = "mul.wide.u32 %d20, %t, 4;\nadd.u64 %d20, %d20, {pointer};\nst.global.u32 [%d20], {value};"


def run(body: str, count: int = 32, declarations: str = "", **options) -> np.ndarray:
    """Run a body that leaves its result in ``%r9``; returns it for each of ``count`` threads."""
    body += "\n" + STORE.format(pointer="%p0", value="%r9")
    output = np.full(count, 0xDEAD, np.uint32)
    options.setdefault("block", (count, 1, 1))
    return launch(kernel(1, body, declarations), [output], **options)[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_meet_again_after_nested_branches(seed):
    body = """
and.b32 %r1, %t, 1;
setp.eq.u32 %q0, %r1, 0;
mov.u32 %r9, 0;
@%q0 bra EVEN;
and.b32 %r2, %t, 2;
setp.eq.u32 %q1, %r2, 0;
@%q1 bra ONE;
add.u32 %r9, %r9, 3;
bra JOIN;
ONE:
add.u32 %r9, %r9, 1;
bra JOIN;
EVEN:
add.u32 %r9, %r9, 10;
JOIN:
activemask.b32 %r3;
shl.b32 %r9, %r9, 8;
popc.b32 %r3, %r3;
or.b32 %r9, %r9, %r3;
"""
    t = np.arange(32)
    path = np.where(t % 2 == 0, 10, np.where(t & 2, 3, 1))
    np.testing.assert_array_equal(run(body, seed=seed), path * 256 + 32)


@pytest.mark.parametrize("seed", SEEDS)
def test_loops_of_different_lengths(seed):
    body = """
mov.u32 %r9, 0;
mov.u32 %r1, 0;
LOOP:
setp.ge.u32 %q0, %r1, %t;
@%q0 bra END;
add.u32 %r1, %r1, 1;
add.u32 %r9, %r9, %r1;
bra LOOP;
END:
vote.sync.ballot.b32 %r2, 1, 0xffffffff;
popc.b32 %r2, %r2;
mad.lo.u32 %r9, %r2, 1000, %r9;
"""
    t = np.arange(32)
    np.testing.assert_array_equal(run(body, seed=seed), t * (t + 1) // 2 + 32000)


@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_that_exit_early_are_not_waited_for(seed):
    body = """
mov.u32 %r9, 7;
setp.lt.u32 %q0, %t, 5;
@%q0 ret;
bar.sync 0;
vote.sync.ballot.b32 %r9, 1, 0xffffffff;
"""
    expected = np.where(np.arange(32) < 5, 0xDEAD, 0xFFFFFFE0)
    np.testing.assert_array_equal(run(body, seed=seed), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lane_may_wait_for_another_lane_of_its_warp(seed):
    # Lane 0 spins until lane 1, which took the other way, has stored.
    body = """
setp.eq.u32 %q0, %t, 0;
mov.u32 %r1, flag;
st.shared.u32 [flag], 0;
bar.warp.sync 0xffffffff;
@!%q0 bra OTHERS;
SPIN:
ld.volatile.shared.u32 %r9, [%r1];
setp.eq.u32 %q1, %r9, 0;
@%q1 bra SPIN;
bra END;
OTHERS:
mov.u32 %r9, %t;
setp.eq.u32 %q2, %t, 1;
@%q2 st.volatile.shared.u32 [%r1], 99;
END:
"""
    result = run(body, declarations=".shared .align 4 .u32 flag;", seed=seed)
    np.testing.assert_array_equal(result, [99, *range(1, 32)])


@pytest.mark.parametrize("mode", ("up", "down", "bfly", "idx"))
@pytest.mark.parametrize("width", (32, 8))
def test_shuffles(mode, width):
    amount = 3
    clamp = 0 if mode == "up" else 31
    control = (32 - width) << 8 | clamp
    body = f"shfl.sync.{mode}.b32 %r9|%q0, %t, {amount}, {control}, 0xffffffff;"
    lane = np.arange(32)
    segment = lane // width * width
    source = {
        "up": lane - amount,
        "down": lane + amount,
        "bfly": lane ^ amount,
        "idx": segment + amount,
    }[mode]
    valid = (source >= segment) & (source < segment + width)
    np.testing.assert_array_equal(run(body), np.where(valid, source, lane))


def test_votes_and_reductions():
    body = """
setp.lt.u32 %q0, %t, 9;
vote.sync.ballot.b32 %r1, %q0, 0xffffffff;
vote.sync.any.pred %q1, %q0, 0xffffffff;
vote.sync.all.pred %q2, %q0, 0xffffffff;
redux.sync.add.s32 %r2, %t, 0xffffffff;
elect.sync %r3|%q3, 0xffffffff;
selp.u32 %r4, 1, 0, %q1;
selp.u32 %r5, 1, 0, %q2;
selp.u32 %r6, 1, 0, %q3;
shl.b32 %r2, %r2, 12;
or.b32 %r9, %r1, %r2;
shl.b32 %r4, %r4, 28;
shl.b32 %r5, %r5, 29;
shl.b32 %r6, %r6, 30;
or.b32 %r9, %r9, %r4;
or.b32 %r9, %r9, %r5;
or.b32 %r9, %r9, %r6;
"""
    expected = np.full(32, 0x1FF | 496 << 12 | 1 << 28, np.uint32)
    expected[0] |= 1 << 30
    np.testing.assert_array_equal(run(body), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_barrier_orders_shared_memory(seed):
    body = """
mov.u32 %r1, buffer;
mad.lo.u32 %r2, %t, 4, %r1;
st.shared.u32 [%r2], %t;
bar.sync 0;
sub.u32 %r3, 255, %t;
mad.lo.u32 %r2, %r3, 4, %r1;
ld.shared.u32 %r9, [%r2];
"""
    result = run(body, 256, ".shared .align 4 .b8 buffer[1024];", seed=seed)
    np.testing.assert_array_equal(result, 255 - np.arange(256))


@pytest.mark.parametrize("seed", SEEDS)
def test_barrier_with_reduction(seed):
    body = """
setp.lt.u32 %q0, %t, 77;
bar.red.popc.u32 %r9, 1, %q0;
bar.red.and.pred %q1, 1, %q0;
bar.red.or.pred %q2, 1, %q0;
@%q1 add.u32 %r9, %r9, 1000;
@%q2 add.u32 %r9, %r9, 2000;
"""
    np.testing.assert_array_equal(run(body, 128, seed=seed), np.full(128, 2077))


@pytest.mark.parametrize("seed", SEEDS)
def test_named_barrier_of_producers_and_consumers(seed):
    body = """
mov.u32 %r1, buffer;
setp.ge.u32 %q0, %t, 32;
@%q0 bra CONSUMER;
mad.lo.u32 %r2, %t, 4, %r1;
add.u32 %r9, %t, 500;
st.shared.u32 [%r2], %r9;
bar.arrive 3, 64;
bra END;
CONSUMER:
bar.sync 3, 64;
sub.u32 %r3, %t, 32;
mad.lo.u32 %r2, %r3, 4, %r1;
ld.shared.u32 %r9, [%r2];
END:
"""
    result = run(body, 64, ".shared .align 4 .b8 buffer[128];", seed=seed)
    np.testing.assert_array_equal(result, np.tile(np.arange(32) + 500, 2))


@pytest.mark.parametrize("seed", SEEDS)
def test_mbarrier_counts_arrivals_and_bytes_of_a_bulk_copy(seed):
    body = """
mov.u32 %r1, buffer;
mov.u32 %r2, full;
setp.eq.u32 %q0, %t, 0;
@!%q0 bra READY;
mbarrier.init.shared::cta.b64 [%r2], 1;
fence.mbarrier_init.release.cluster;
READY:
bar.sync 0;
@!%q0 bra WAIT;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%p0], 256, [%r2];
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q1, [%r2], 0;
@!%q1 bra WAIT;
mad.lo.u32 %r3, %t, 4, %r1;
ld.shared.u32 %r9, [%r3];
"""
    declarations = ".shared .align 128 .b8 buffer[256];\n.shared .align 8 .b64 full;"
    data = np.random.default_rng(seed).integers(0, 1 << 32, 64, dtype=np.uint32)
    output = np.zeros(64, np.uint32)
    body += STORE.format(pointer="%p1", value="%r9")
    result = launch(kernel(2, body, declarations), [data, output], block=(64, 1, 1), seed=seed)
    np.testing.assert_array_equal(result[1], data)


@pytest.mark.parametrize("seed", SEEDS)
def test_cluster_reads_the_shared_memory_of_its_neighbour(seed):
    body = """
mov.u32 %r1, value;
mov.u32 %r2, %cluster_ctarank;
mov.u32 %r3, %ctaid.x;
mad.lo.u32 %r4, %r3, 100, 1;
st.shared.u32 [%r1], %r4;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
xor.b32 %r5, %r2, 1;
mapa.shared::cluster.u32 %r6, %r1, %r5;
ld.shared::cluster.u32 %r9, [%r6];
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mad.lo.u32 %t, %r3, 32, %t;
"""
    result = run(
        body,
        128,
        ".shared .align 4 .u32 value;",
        seed=seed,
        block=(32, 1, 1),
        grid=(4, 1, 1),
        cluster=(2, 1, 1),
    )
    np.testing.assert_array_equal(result, np.repeat([101, 1, 301, 201], 32))


@pytest.mark.parametrize("seed", SEEDS)
def test_atomics_of_many_ctas(seed):
    body = """
mov.u32 %r1, 1;
atom.global.add.u32 %r2, [%p0], %r1;
red.global.max.u32 [%p0+4], %t;
"""
    counters = np.zeros(2, np.uint32)
    result = launch(kernel(1, body), [counters], grid=(7, 1, 1), block=(96, 1, 1), seed=seed)[0]
    np.testing.assert_array_equal(result, [7 * 96, 95])


@pytest.mark.parametrize("seed", SEEDS)
def test_all_ctas_that_fit_are_alive_together(seed):
    # Every CTA spins until all 132 have arrived, as a grid barrier does.
    body = """
setp.eq.u32 %q0, %t, 0;
@!%q0 bra END;
atom.global.add.u32 %r1, [%p0], 1;
SPIN:
ld.acquire.gpu.global.u32 %r2, [%p0];
nanosleep.u32 20;
setp.lt.u32 %q1, %r2, 132;
@%q1 bra SPIN;
END:
"""
    counter = np.zeros(1, np.uint32)
    result = launch(kernel(1, body), [counter], grid=(132, 1, 1), seed=seed, limit=1 << 30)[0]
    assert result[0] == 132


def test_equal_seeds_give_equal_schedules():
    # The order in which warps get their number depends on the schedule.
    body = "atom.global.add.u32 %r9, [%p0+4096], 1;\n" + STORE.format(pointer="%p0", value="%r9")
    ptx = kernel(1, body)

    def schedule(seed: int) -> bytes:
        memory = np.zeros(1025, np.uint32)
        return launch(ptx, [memory], block=(1024, 1, 1), seed=seed)[0].tobytes()

    assert schedule(5) == schedule(5)
    assert len({schedule(seed) for seed in SEEDS}) > 1
