"""Races of generic accesses, bulk copies and cp.async: each rule kept once and broken once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.checks import changed, run_checked

SEEDS = (1, 2, 3)
THREADS = 64

# Threads exchange words through shared memory.
EXCHANGE = """
mov.u32 %r1, buffer;
mad.lo.u32 %r2, %t, 4, %r1;
st.shared.u32 [%r2], %t;
bar.sync 0;
xor.b32 %r3, %t, 63;
mad.lo.u32 %r4, %r3, 4, %r1;
ld.shared.u32 %r5, [%r4];
bar.sync 1;
st.shared.u32 [%r2], %r5;
mul.wide.u32 %d1, %t, 4;
add.u64 %d1, %d1, %p0;
st.global.u32 [%d1], %r5;
"""
BUFFER = ".shared .align 128 .b8 buffer[256];"

# Two words of each thread go out with bulk stores, one after the other through one buffer.
BULK_STORE = """
mov.u32 %r1, buffer;
mad.lo.u32 %r2, %t, 4, %r1;
mov.u32 %r9, 0;
setp.eq.u32 %q0, %t, 0;
LOOP:
mad.lo.u32 %r3, %r9, 1000, %t;
st.shared.u32 [%r2], %r3;
fence.proxy.async.shared::cta;
bar.sync 0;
@!%q0 bra ISSUED;
mad.wide.u32 %d1, %r9, 256, %p0;
cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 256;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
ISSUED:
bar.sync 1;
add.u32 %r9, %r9, 1;
setp.lt.u32 %q1, %r9, 2;
@%q1 bra LOOP;
@%q0 cp.async.bulk.wait_group 0;
"""

# Every thread copies four words by itself and reads those of its neighbour.
COPY_ASYNC = """
mov.u32 %r1, buffer;
mad.lo.u32 %r2, %t, 4, %r1;
mul.wide.u32 %d1, %t, 4;
add.u64 %d2, %d1, %p0;
cp.async.ca.shared.global [%r2], [%d2], 4;
cp.async.commit_group;
cp.async.wait_group 0;
bar.sync 0;
xor.b32 %r3, %t, 1;
mad.lo.u32 %r4, %r3, 4, %r1;
ld.shared.u32 %r5, [%r4];
add.u64 %d3, %d1, %p1;
st.global.u32 [%d3], %r5;
"""


def words(count: int) -> np.ndarray:
    return np.zeros(count, np.uint32)


KERNELS = {
    "exchange": (EXCHANGE, lambda: [words(THREADS)], lambda: [np.arange(THREADS)[::-1]]),
    "bulk store": (
        BULK_STORE,
        lambda: [words(2 * THREADS)],
        lambda: [np.concatenate([np.arange(THREADS), 1000 + np.arange(THREADS)])],
    ),
    "cp.async": (
        COPY_ASYNC,
        lambda: [np.arange(THREADS, dtype=np.uint32), words(THREADS)],
        lambda: [np.arange(THREADS), np.arange(THREADS) ^ 1],
    ),
}

BROKEN = [
    # kernel, instruction, replacement, finding, part of the text
    ("exchange", "bar.sync 0;", "", "data race", "ld.shared.u32"),
    ("exchange", "bar.sync 1;", "", "data race", "nothing orders the two"),
    ("exchange", "bar.sync 0;", "bar.warp.sync 0xffffffff;", "data race", "nothing orders"),
    ("exchange", "st.shared.u32 [%r2], %t;", "", "uninitialised read", "buffer + 0x"),
    ("bulk store", "fence.proxy.async.shared::cta;", "", "missing proxy fence", "async proxy"),
    ("bulk store", "bar.sync 0;", "", "data race", "cp.async.bulk.global"),
    ("bulk store", "wait_group.read 0;", "wait_group.read 1;", "data race", "its completion"),
    ("bulk store", "cp.async.bulk.wait_group.read 0;", "", "data race", "its completion"),
    ("bulk store", "bar.sync 1;", "", "data race", "buffer + 0x"),
    ("cp.async", "cp.async.wait_group 0;", "", "data race", "cp.async.ca"),
    ("cp.async", "cp.async.commit_group;", "", "data race", "cp.async.ca"),
    ("cp.async", "bar.sync 0;", "bar.warp.sync 0xffffffff;", None, ""),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", KERNELS)
def test_correct_kernels_are_silent(name, seed):
    body, arrays, expected = KERNELS[name]
    results, found, message = run_checked(body, BUFFER, arrays(), block=(THREADS, 1, 1), seed=seed)
    assert found == [] and message == ""
    for result, wanted in zip(results, expected(), strict=True):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "old", "new", "kind", "part"), BROKEN)
def test_a_broken_rule_is_reported(name, old, new, kind, part, seed):
    body, arrays, _ = KERNELS[name]
    _, found, message = run_checked(
        changed(body, old, new), BUFFER, arrays(), block=(THREADS, 1, 1), seed=seed
    )
    if kind is None:  # lanes that exchange data stay within a warp
        assert found == [] and message == ""
        return
    assert kind in {report["kind"] for report in found}, found
    report = next(report for report in found if report["kind"] == kind)
    assert part in report["text"] and "PTX line" in report["text"], report
    assert found[0]["text"] in message


def test_both_sides_of_a_race_are_named():
    _, found, _ = run_checked(
        changed(EXCHANGE, "bar.sync 0;", ""), BUFFER, [words(THREADS)], block=(THREADS, 1, 1)
    )
    text = next(report["text"] for report in found if report["kind"] == "data race")
    assert "ld.shared.u32" in text and "st.shared.u32" in text
    assert "in kernel kernel" in text and text.count("CTA (0, 0, 0) warp") == 2


# One CTA hands data to another through global memory and a flag.
HANDSHAKE = """
mov.u32 %r1, %ctaid.x;
setp.eq.u32 %q0, %r1, 0;
mul.wide.u32 %d1, %t, 4;
add.u64 %d2, %d1, %p0;
setp.ne.u32 %q1, %t, 0;
@!%q0 bra CONSUME;
add.u32 %r2, %t, 7;
st.global.u32 [%d2], %r2;
bar.sync 0;
@%q1 bra END;
fence.acq_rel.gpu;
atom.relaxed.gpu.global.add.u32 %r3, [%p1], 1;
bra END;
CONSUME:
@%q1 bra READY;
SPIN:
ld.acquire.gpu.global.u32 %r4, [%p1];
setp.eq.u32 %q2, %r4, 0;
@%q2 bra SPIN;
READY:
bar.sync 0;
ld.global.u32 %r5, [%d2];
add.u64 %d3, %d1, %p2;
st.global.u32 [%d3], %r5;
END:
"""

HANDSHAKES = [
    ("ld.acquire.gpu.global.u32 %r4, [%p1];", "ld.acquire.gpu.global.u32 %r4, [%p1];", False),
    ("fence.acq_rel.gpu;\natom.relaxed", "atom.release", False),
    ("ld.acquire.gpu.global.u32 %r4, [%p1];", "ld.volatile.global.u32 %r4, [%p1];", True),
    ("READY:", "fence.acq_rel.gpu;\nREADY:", False),
    ("fence.acq_rel.gpu;", "", True),
    ("bar.sync 0;\n@%q1 bra END;", "@%q1 bra END;", True),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("old", "new", "races"), HANDSHAKES)
def test_handshakes_between_ctas(old, new, races, seed):
    _, found, message = run_checked(
        changed(HANDSHAKE, old, new),
        "",
        [words(THREADS), words(1), words(THREADS)],
        grid=(2, 1, 1),
        block=(THREADS, 1, 1),
        seed=seed,
    )
    assert bool(message) == races, (found, message)
    if races:
        assert found[0]["kind"] == "data race"
        assert "of the 256 bytes at 0x" in found[0]["text"] and "parameter 0" in found[0]["text"]


@pytest.mark.parametrize("operation", ["red.global.add.u32", "red.shared.add.u32"])
def test_atomics_do_not_race_with_each_other(operation):
    space = "shared" if "shared" in operation else "global"
    place = "%r1" if space == "shared" else "%p0"
    body = f"""
mov.u32 %r1, buffer;
mov.u32 %r2, 0;
setp.eq.u32 %q0, %t, 0;
@%q0 st.{space}.u32 [{place}], %r2;
bar.sync 0;
{operation} [{place}], 1;
bar.sync 0;
ld.{space}.u32 %r3, [{place}];
mul.wide.u32 %d1, %t, 4;
add.u64 %d1, %d1, %p1;
st.global.u32 [%d1], %r3;
"""
    arrays = [words(1), words(THREADS)]
    results, found, _ = run_checked(body, BUFFER, arrays, block=(THREADS, 1, 1))
    assert found == []
    np.testing.assert_array_equal(results[1], THREADS)
    broken = changed(body, f"bar.sync 0;\nld.{space}", f"ld.{space}")
    _, found, _ = run_checked(broken, BUFFER, arrays, block=(THREADS, 1, 1))
    assert [report["kind"] for report in found] == ["data race"]


#: One thread writes some of the 16 bytes that it loads together, as compilers make it of shorter
#: loads; the rest is not used.
PARTIAL = """
mov.u32 %r1, buffer;
{stores}
ld.shared.v4.b32 {{%r2, %r3, %r4, %r5}}, [%r1];
st.global.u32 [%p0], %r2;
"""


@pytest.mark.parametrize("written", [0, 1, 7, 8])
def test_a_vector_load_may_cover_bytes_that_nothing_has_written(written, rng):
    places = rng.permutation(8)[:written]
    stores = "\n".join(f"st.shared.u16 [%r1+{2 * place}], 7;" for place in places)
    _, found, message = run_checked(
        PARTIAL.format(stores=stores), BUFFER, [words(1)], block=(1, 1, 1)
    )
    kinds = [report["kind"] for report in found]
    assert kinds == ([] if written else ["uninitialised read"]), message
