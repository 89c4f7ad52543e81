"""Releases and acquires order what is within their scope, and nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.emulator.checks import changed, run_checked

#: Where the thread that reads is, seen from the one that writes -> how it is launched.
PLACES = {
    "cta": {"block": (64, 1, 1)},
    "cluster": {"grid": (2, 1, 1), "cluster": (2, 1, 1)},
    "gpu": {"grid": (2, 1, 1), "cooperative": True},
}
WIDTH = {"cta": 0, "cluster": 1, "gpu": 2, "sys": 2}
SCOPES = tuple(WIDTH)

#: One thread writes a word and a flag, another waits for the flag and reads the word.
MESSAGE = """
shr.u32 %r1, %t, 5;
mov.u32 %r2, %ctaid.x;
add.u32 %r1, %r1, %r2;
and.b32 %r3, %t, 31;
setp.ne.u32 %q0, %r3, 0;
@%q0 bra DONE;
setp.ne.u32 %q1, %r1, 0;
@%q1 bra READ;
st.global.u32 [%p0], 7;
{release}
bra DONE;
READ:
{acquire}
ld.global.u32 %r5, [%p0];
st.global.u32 [%p0+128], %r5;
DONE:
"""
POLL = """POLL:
{load} %r4, [%p0+64];
setp.eq.u32 %q2, %r4, 0;
@%q2 bra POLL;
"""
RELEASES = {
    "store": "st.release.{0}.global.u32 [%p0+64], 1;",
    "reduction": "red.release.{0}.global.add.u32 [%p0+64], 1;",
    "fence": "fence.acq_rel.{0};\nst.relaxed.sys.global.u32 [%p0+64], 1;",
    "fence, narrow store": "fence.sc.sys;\nst.relaxed.{0}.global.u32 [%p0+64], 1;",
    "release fence": "fence.release.{0};\nst.volatile.global.u32 [%p0+64], 1;",
}
ACQUIRES = {
    "load": POLL.format(load="ld.acquire.{0}.global.u32"),
    "fence": POLL.format(load="ld.relaxed.sys.global.u32") + "fence.acq_rel.{0};",
    "fence, narrow load": POLL.format(load="ld.relaxed.{0}.global.u32") + "fence.sc.sys;",
    "acquire fence": POLL.format(load="ld.volatile.global.u32") + "fence.acquire.{0};",
    "load after relaxed ones": POLL.format(load="ld.relaxed.sys.global.u32")
    + "ld.acquire.{0}.global.u32 %r6, [%p0+64];",
}


def pass_message(place: str, release: str, acquire: str, seed: int):
    memory = np.zeros(64, np.uint32)
    body = MESSAGE.format(release=release, acquire=acquire)
    results, found, message = run_checked(body, "", [memory], seed=seed, **PLACES[place])
    if not found:
        assert message == "" and results[0][32] == 7
    return found


@pytest.mark.parametrize("how", RELEASES)
@pytest.mark.parametrize("place", PLACES)
def test_a_release_orders_what_its_scope_includes(place, how, rng):
    for scope in SCOPES:
        release = RELEASES[how].format(scope)
        acquire = ACQUIRES[rng.choice(list(ACQUIRES))].format("gpu")
        found = pass_message(place, release, acquire, int(rng.integers(1, 1000)))
        if WIDTH[scope] >= WIDTH[place]:
            assert not found, found
            continue
        assert {report["kind"] for report in found} == {"data race"}, found
        blamed = next(line for line in release.split(";") if f".{scope}" in line).split()[0]
        texts = [report["text"] for report in found if "does not include" in report["text"]]
        assert len(texts) == 1 and "the scope of PTX line" in texts[0], found
        assert blamed in texts[0].partition("the scope of")[2].partition("does not include")[0]
        assert f"Fix: scope .{place} or wider" in texts[0]


@pytest.mark.parametrize("how", ACQUIRES)
@pytest.mark.parametrize("place", PLACES)
def test_an_acquire_takes_from_what_its_scope_includes(place, how, rng):
    for scope in SCOPES:
        release = RELEASES[rng.choice(list(RELEASES))].format("gpu")
        acquire = ACQUIRES[how].format(scope)
        found = pass_message(place, release, acquire, int(rng.integers(1, 1000)))
        if WIDTH[scope] >= WIDTH[place]:
            assert not found, found
            continue
        assert {report["kind"] for report in found} == {"data race"}, found
        texts = [report["text"] for report in found if "does not include" in report["text"]]
        assert len(texts) == 1 and f"Fix: scope .{place} or wider" in texts[0], found
        assert f".{scope}" in texts[0].partition("the scope of")[2].partition("does not")[0]


@pytest.mark.parametrize("place", PLACES)
def test_pairs_of_scopes(place, rng):
    for write, read in itertools.product(SCOPES, SCOPES):
        release = RELEASES[rng.choice(list(RELEASES))].format(write)
        acquire = ACQUIRES[rng.choice(list(ACQUIRES))].format(read)
        found = pass_message(place, release, acquire, int(rng.integers(1, 1000)))
        wide = min(WIDTH[write], WIDTH[read]) >= WIDTH[place]
        assert (found == []) == wide, (release, acquire, found)


@pytest.mark.parametrize(
    ("release", "acquire"),
    [
        ("fence.acquire.gpu;\nst.relaxed.gpu.global.u32 [%p0+64], 1;", ACQUIRES["fence"]),
        (RELEASES["fence"], ACQUIRES["fence"].replace("acq_rel", "release")),
    ],
)
def test_half_a_fence_is_not_the_other_half(release, acquire):
    found = pass_message("gpu", release.format("gpu"), acquire.format("gpu"), 1)
    assert {report["kind"] for report in found} == {"data race"}, found


def test_a_wide_fence_does_not_widen_a_later_narrow_one():
    # The word was written before both fences, its neighbour between them.
    release = "fence.acq_rel.gpu;\nst.global.u32 [%p0+4], 9;\n" + RELEASES["fence"].format("cta")
    acquire = ACQUIRES["load"].format("gpu")
    assert pass_message("gpu", release, acquire, 1) == []
    found = pass_message("gpu", release, acquire + "\nld.global.u32 %r7, [%p0+4];", 1)
    assert len(found) == 1 and "the scope of" in found[0]["text"], found
    assert "fence.acq_rel.cta" in found[0]["text"].partition("the scope of")[2]


def test_a_release_hands_on_what_came_before_by_other_edges():
    # The CTAs' other warps write, and meet the one that synchronises at a barrier.
    body = """
mov.u32 %r2, %ctaid.x;
setp.ne.u32 %q1, %r2, 0;
mul.wide.u32 %d1, %t, 4;
add.u64 %d1, %d1, %p1;
setp.ne.u32 %q0, %t, 0;
@%q1 bra READ;
st.global.u32 [%d1], %t;
bar.sync 0;
@!%q0 red.release.gpu.global.add.u32 [%p0], 1;
bra DONE;
READ:
@%q0 bra READY;
POLL:
ld.acquire.gpu.global.u32 %r4, [%p0];
setp.eq.u32 %q2, %r4, 0;
@%q2 bra POLL;
READY:
bar.sync 0;
ld.global.u32 %r5, [%d1];
st.global.u32 [%d1+256], %r5;
DONE:
"""
    arrays = [np.zeros(1, np.uint32), np.full(128, 0xDEAD, np.uint32)]
    geometry = {"grid": (2, 1, 1), "block": (64, 1, 1), "cooperative": True}
    for seed in range(1, 4):
        results, found, message = run_checked(body, "", arrays, seed=seed, **geometry)
        assert found == [] and message == ""
        np.testing.assert_array_equal(results[1][64:], np.arange(64))
        for instruction in ("red.release", "ld.acquire"):
            narrow = changed(body, f"{instruction}.gpu", f"{instruction}.cta")
            _, found, _ = run_checked(narrow, "", arrays, seed=seed, **geometry)
            texts = [each["text"] for each in found if "does not include" in each["text"]]
            assert texts and all("the scope of PTX line" in text for text in texts), found
            assert all(f"{instruction}.cta" in text for text in texts), texts


#: Threads of all CTAs add to one word.
COUNT = """
setp.ne.u32 %q0, %t, 0;
@!%q0 {0} [%p0], 1;
"""


@pytest.mark.parametrize("place", PLACES)
def test_atomic_operations_are_atomic_in_their_scope(place):
    for scope in SCOPES:
        body = COUNT.format(f"red.relaxed.{scope}.global.add.u32")
        if place == "cta":
            body = body.replace(
                "setp.ne.u32 %q0, %t, 0;", "and.b32 %r1, %t, 31;\nsetp.ne.u32 %q0, %r1, 0;"
            )
        memory = [np.zeros(1, np.uint32)]
        results, found, _ = run_checked(body, "", memory, **PLACES[place])
        if WIDTH[scope] >= WIDTH[place]:
            assert found == [] and results[0][0] == 2
            continue
        assert [report["kind"] for report in found] == ["data race"]
        assert f"is atomic for its {'CTA' if scope == 'cta' else scope} only" in found[0]["text"]
        assert f"Fix: scope .{place} or wider" in found[0]["text"]


#: Warp 0 writes words and arrives, warp 1 waits and reads them.
MBARRIER = """
mov.u32 %r1, barrier;
mov.u32 %r2, buffer;
setp.eq.u32 %q0, %t, 0;
@%q0 mbarrier.init.shared::cta.b64 [%r1], 32;
bar.sync 0;
and.b32 %r3, %t, 31;
mad.lo.u32 %r2, %r3, 4, %r2;
setp.ge.u32 %q1, %t, 32;
@%q1 bra WAIT;
st.shared.u32 [%r2], %t;
mbarrier.arrive{arrive}.shared::cta.b64 _, [%r1];
bra DONE;
WAIT:
mbarrier.try_wait.parity{wait}.shared::cta.b64 %q2, [%r1], 0;
@!%q2 bra WAIT;
{fence}
ld.shared.u32 %r4, [%r2];
mul.wide.u32 %d1, %r3, 4;
add.u64 %d1, %d1, %p0;
st.global.u32 [%d1], %r4;
DONE:
"""
SHARED = ".shared .align 8 .b64 barrier;\n.shared .align 16 .b8 buffer[128];"


@pytest.mark.parametrize(
    ("arrive", "wait", "fence", "ordered"),
    [
        (".release.cta", ".acquire.cta", "", True),
        (".release.cluster", ".acquire.cta", "", True),
        (".relaxed.cta", ".acquire.cta", "", False),
        (".release.cta", ".relaxed.cta", "", False),
        (".release.cta", ".relaxed.cta", "fence.acq_rel.cta;", True),
        (".relaxed.cta", ".relaxed.cta", "fence.acq_rel.cta;", False),
    ],
)
def test_relaxed_mbarrier_operations_order_nothing(arrive, wait, fence, ordered):
    body = MBARRIER.format(arrive=arrive, wait=wait, fence=fence)
    for seed in range(1, 4):
        output = [np.zeros(32, np.uint32)]
        results, found, message = run_checked(body, SHARED, output, block=(64, 1, 1), seed=seed)
        if ordered:
            assert found == [] and message == ""
            np.testing.assert_array_equal(results[0], np.arange(32))
        else:
            assert {"data race"} == {report["kind"] for report in found}, found
