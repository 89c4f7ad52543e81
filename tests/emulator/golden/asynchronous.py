"""Copies that complete later, clusters, and barriers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tests.emulator.golden.case import POISON, Case, element, poisoned
from tests.emulator.golden.tensor import wait
from tests.emulator.golden.values import Bits, operands, width

_BYTES = 1024
_BUFFERS = """\
.shared .align 1024 .b8 buffer[1024];
.shared .align 8 .b64 barrier;
mov.u32 %r20, buffer;
mov.u32 %r21, barrier;
mul.lo.u32 %r22, %t, 32;
add.u32 %r23, %r20, %r22;
"""


def copies() -> Iterator[Case]:
    for size, cache in ((4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")):
        for mode in ("", "size", "ignore"):
            yield _cp_async(size, cache, mode)
    yield _bulk_load()
    yield _bulk_store()
    for op, kind in _bulk_reductions():
        yield _bulk_reduce(op, kind)


def _each_lane(template: str) -> list[str]:
    """Lines for the 8 words of 32 bytes that a lane owns; {i} is an offset."""
    return [template.format(i=4 * i) for i in range(8)]


def _own(pointer: str, into: str) -> str:
    return f"mul.wide.u32 {into}, %t, 32;\nadd.u64 {into}, {into}, {pointer};"


def _fill(pointer: str) -> list[str]:
    """The lane's 32 bytes of shared memory from an array."""
    return [
        _own(pointer, "%d5"),
        *_each_lane("ld.global.b32 %r30, [%d5+{i}];\nst.shared.b32 [%r23+{i}], %r30;"),
    ]


def _dump(pointer: str) -> list[str]:
    return [
        _own(pointer, "%d5"),
        *_each_lane("ld.shared.b32 %r30, [%r23+{i}];\nst.global.b32 [%d5+{i}], %r30;"),
    ]


def _cp_async(size: int, cache: str, mode: str) -> Case:
    name = f"cp.async.{cache}.{size}{mode and ':' + mode}"
    data = Bits(name).words(_BYTES // 8).view(np.uint32)
    lengths = Bits(f"{name}/lengths").below(size + 1, 32).astype(np.uint32)
    extra = {"": "", "size": ", %r25", "ignore": ", %q1"}[mode]
    lines = [
        _BUFFERS,
        *_each_lane(f"st.shared.b32 [%r23+{{i}}], {POISON * 0x01010101};"),
        element("%p1", 32),
        "ld.global.b32 %r25, [%d40];\nsetp.lt.u32 %q1, %r25, 3;",
        _own("%p0", "%d0"),
        f"cp.async.{cache}.shared.global [%r23+16], [%d0+16], {size}{extra};",
        "cp.async.commit_group;\ncp.async.wait_group 0;",
        *_dump("%p2"),
    ]
    return Case(name, "\n".join(lines), (data, lengths), (poisoned(_BYTES // 4, 32),))


def _bulk_load() -> Case:
    data = Bits("bulk load").words(_BYTES // 8).view(np.uint32)
    lines = [
        _BUFFERS,
        *_each_lane(f"st.shared.b32 [%r23+{{i}}], {POISON * 0x01010101};"),
        "setp.ne.u32 %q2, %t, 0;\n@%q2 bra READY;",
        "mbarrier.init.shared::cta.b64 [%r21], 1;\nfence.mbarrier_init.release.cluster;",
        "READY:\nfence.proxy.async;\nbar.warp.sync -1;\n@%q2 bra WAIT;",
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 528;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%r20+48], [%p0+16], 512, [%r21];",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%r20+1008], [%p0], 16, [%r21];",
        wait(),
        *_dump("%p1"),
    ]
    return Case("cp.async.bulk:load", "\n".join(lines), (data,), (poisoned(_BYTES // 4, 32),))


def _bulk_store() -> Case:
    data = Bits("bulk store").words(_BYTES // 8).view(np.uint32)
    lines = [
        _BUFFERS,
        *_fill("%p0"),
        "fence.proxy.async;\nbar.warp.sync -1;\nsetp.ne.u32 %q2, %t, 0;\n@%q2 bra DONE;",
        "cp.async.bulk.global.shared::cta.bulk_group [%p1+32], [%r20+16], 688;",
        "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nDONE:",
    ]
    return Case("cp.async.bulk:store", "\n".join(lines), (data,), (poisoned(_BYTES // 4, 32),))


def _bulk_reductions() -> Iterator[tuple[str, str]]:
    yield from itertools.product(("and", "or", "xor"), ("b32", "b64"))
    yield from itertools.product(("min", "max"), ("u32", "s32", "u64", "s64", "f16", "bf16"))
    yield from itertools.product(("add",), ("u32", "s32", "u64", "f32", "f64"))
    yield from itertools.product(("add.noftz",), ("f16", "bf16"))
    yield from itertools.product(("inc", "dec"), ("u32",))


def _bulk_reduce(op: str, kind: str) -> Case:
    name = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{kind}"
    random, count = Bits(name), _BYTES * 8 // width(kind)
    data, memory = (operands(random, kind, count).view(np.uint8) for _ in range(2))
    lines = [
        _BUFFERS,
        *_fill("%p0"),
        "fence.proxy.async;\nbar.warp.sync -1;\nsetp.ne.u32 %q2, %t, 0;\n@%q2 bra DONE;",
        f"{name} [%p1], [%r20], {_BYTES};",
        "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nDONE:",
    ]
    return Case(name, "\n".join(lines), (data,), (memory,))


_CLUSTER = """\
mov.u32 %r40, %cluster_ctarank;
xor.b32 %r41, %r40, 1;
mapa.shared::cluster.u32 %r42, %r20, %r41;
mapa.shared::cluster.u32 %r43, %r21, %r41;
mad.lo.u32 %r44, %t, 32, %r42;
mul.wide.u32 %d10, %r40, 1024;
"""
_SYNC = "barrier.cluster.arrive;\nbarrier.cluster.wait;"


def clusters() -> Iterator[Case]:
    """Pairs of CTAs; every one works on its own 1024 bytes of the arrays."""
    for kind in ("b32", "u8", "b64"):
        yield _exchange(f"ld.shared::cluster.{kind}", kind)
    for op, kind in (("add", "u32"), ("exch", "b32"), ("max", "s32"), ("add", "f32")):
        yield _remote_atomic(op, kind)
    yield _remote_arrive()
    for kind in ("b32", "b64", "v4.b32"):
        yield _store_async(kind)
    for op, kind in itertools.product(("add", "min", "max", "inc", "dec"), ("u32",)):
        yield _reduce_async(op, kind)
    for op, kind in (
        *itertools.product(("and", "or", "xor"), ("b32",)),
        *itertools.product(("min", "max", "add"), ("s32",)),
        ("add", "u64"),
    ):
        yield _reduce_async(op, kind)
    yield _copy_to_peer()
    yield _multicast()
    yield _addresses()


def _pair(
    name: str, lines: list[str], results: int, inputs: list[np.ndarray] | None = None
) -> Case:
    """Inputs and results have 1024 bytes for each CTA, from %p0 and %p1 after the offset."""
    if inputs is None:
        inputs = [operands(Bits(name), "b32", 2 * _BYTES // 4)]
    moves = [f"add.u64 %p{i}, %p{i}, %d10;" for i in range(len(inputs) + results)]
    body = "\n".join([_BUFFERS, _CLUSTER, *moves, *lines])
    outputs = tuple(poisoned(2 * _BYTES // 4, 32) for _ in range(results))
    return Case(name, body, tuple(inputs), outputs, grid=(2, 1, 1), cluster=(2, 1, 1))


def _exchange(load: str, kind: str) -> Case:
    bits = width(kind)
    register = "%d20" if bits == 64 else "%r31"
    lines = [*_fill("%p0"), _SYNC, _own("%p1", "%d5")]
    for i in range(0, 32, max(bits // 8, 4)):
        lines += [f"{load} {register}, [%r44+{i}];"]
        lines += [f"st.global.b{max(bits, 32)} [%d5+{i}], {register};"]
    lines.append(_SYNC)
    return _pair(load, lines, 1)


def _remote_atomic(op: str, kind: str) -> Case:
    name = f"atom.shared::cluster.{op}.{kind}"
    lines = [*_fill("%p0"), _SYNC, _own("%p1", "%d6")]
    lines += ["add.u32 %r45, %r44, 4;", _own("%p0", "%d5"), "ld.global.b32 %r31, [%d5];"]
    lines += [f"{name} %r32, [%r45], %r31;", "st.global.b32 [%d6], %r32;", _SYNC, *_dump("%p2")]
    return _pair(name, lines, 2)


def _remote_arrive() -> Case:
    """A phase completes with 16 arrivals of each CTA; the results are what test_wait saw."""
    lines = [
        "setp.ne.u32 %q2, %t, 0;\n@%q2 bra READY;",
        "mbarrier.init.shared::cta.b64 [%r21], 32;\nfence.mbarrier_init.release.cluster;",
        f"READY:\n{_SYNC}",
        "mbarrier.test_wait.parity.shared::cta.b64 %q3, [%r21], 0;\nselp.u32 %r31, 1, 0, %q3;",
        "and.b32 %r32, %t, 1;\nsetp.eq.u32 %q4, %r32, 0;",
        _SYNC,
        "@%q4 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r43];",
        "@!%q4 mbarrier.arrive.shared::cta.b64 %d20, [%r21];",
        wait(),
        "mbarrier.test_wait.parity.shared::cta.b64 %q3, [%r21], 1;\nselp.u32 %r33, 1, 0, %q3;",
        _own("%p1", "%d5"),
        *_each_lane("st.global.b32 [%d5+{i}], 0;"),
        "st.global.v2.b32 [%d5], {%r31, %r33};",
        _SYNC,
    ]
    return _pair("mbarrier.arrive:remote", lines, 1)


def _await_bytes(count: int) -> list[str]:
    return [
        "setp.ne.u32 %q2, %t, 0;\n@%q2 bra READY;",
        "mbarrier.init.shared::cta.b64 [%r21], 1;\nfence.mbarrier_init.release.cluster;",
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], {count};",
        f"READY:\nfence.proxy.async;\n{_SYNC}",
    ]


def _store_async(kind: str) -> Case:
    name = f"st.async.{kind}"
    bits = {"b32": 32, "b64": 64, "v4.b32": 128}[kind]
    vector = ".v4" if bits == 128 else ""
    scalar = kind.split(".")[-1]
    values = "%d20" if bits == 64 else "%r31" if bits == 32 else "{%r31, %r32, %r33, %r34}"
    instruction = (
        f"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes{vector}.{scalar} "
        f"[%r44+16], {values}, [%r43];"
    )
    lines = [
        *_fill("%p0"),
        *_await_bytes(32 * bits // 8),
        _own("%p0", "%d5"),
        f"ld.global{vector}.{scalar} {values}, [%d5];",
        instruction,
        wait(),
        *_dump("%p1"),
        _SYNC,
    ]
    return _pair(name, lines, 1)


def _reduce_async(op: str, kind: str) -> Case:
    name = f"red.async.{op}.{kind}"
    bits = width(kind)
    value = "%d20" if bits == 64 else "%r31"
    lines = [
        *_fill("%p0"),
        *_await_bytes(32 * bits // 8),
        _own("%p0", "%d5"),
        f"ld.global.b{bits} {value}, [%d5];",
        f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op}.{kind} "
        f"[%r44+16], {value}, [%r43];",
        wait(),
        *_dump("%p1"),
        _SYNC,
    ]
    return _pair(name, lines, 1)


def _copy_to_peer() -> Case:
    lines = [
        *_fill("%p0"),
        *_await_bytes(256),
        "@%q2 bra WAIT;",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
        "[%r42+512], [%r20+16], 256, [%r43];",
        wait(),
        *_dump("%p1"),
        _SYNC,
    ]
    return _pair("cp.async.bulk:peer", lines, 1)


def _multicast() -> Case:
    """Each CTA loads 128 bytes for both."""
    lines = [
        *_each_lane(f"st.shared.b32 [%r23+{{i}}], {POISON * 0x01010101};"),
        *_await_bytes(256),
        "@%q2 bra WAIT;",
        "mad.lo.u32 %r46, %r40, 256, %r20;\nmov.b16 %h0, 3;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%r46], [%p0], 128, [%r21], %h0;",
        wait(),
        *_dump("%p1"),
        _SYNC,
    ]
    return _pair("cp.async.bulk:multicast", lines, 1)


def _addresses() -> Case:
    """Whose shared memory an address is in; isspacep and getctarank."""
    lines = [
        "cvt.u64.u32 %d20, %r20;\ncvta.shared.u64 %d20, %d20;\nmapa.u64 %d21, %d20, %r41;",
        "getctarank.u64 %r31, %d20;\ngetctarank.u64 %r32, %d21;",
        "getctarank.shared::cluster.u32 %r33, %r42;",
        "isspacep.shared::cta %q1, %d20;\nselp.u32 %r34, 1, 0, %q1;",
        "isspacep.shared::cta %q1, %d21;\nselp.u32 %r35, 2, 0, %q1;\nor.b32 %r34, %r34, %r35;",
        "isspacep.shared::cluster %q1, %d21;\nselp.u32 %r35, 4, 0, %q1;\nor.b32 %r34, %r34, %r35;",
        "isspacep.global %q1, %d21;\nselp.u32 %r35, 8, 0, %q1;\nor.b32 %r34, %r34, %r35;",
        "isspacep.global %q1, %p0;\nselp.u32 %r35, 16, 0, %q1;\nor.b32 %r34, %r34, %r35;",
        "isspacep.local %q1, %p0;\nselp.u32 %r35, 32, 0, %q1;\nor.b32 %r34, %r34, %r35;",
        _own("%p1", "%d5"),
        *_each_lane("st.global.b32 [%d5+{i}], 0;"),
        "st.global.v4.b32 [%d5], {%r31, %r32, %r33, %r34};",
        _SYNC,
    ]
    return _pair("addresses", lines, 1)


def barriers() -> Iterator[Case]:
    for op, invert in itertools.product(("popc.u32", "and.pred", "or.pred"), ("", "!")):
        yield _barrier_reduction(op, invert)
    yield _mbarrier_sequence()
    yield _mbarrier_tokens()


def _barrier_reduction(op: str, invert: str) -> Case:
    name = f"barrier.red.{op}{invert}"
    values = operands(Bits(name), "s32", 96)
    result, store = ("%r31", "") if "popc" in op else ("%q2", "selp.u32 %r31, 1, 0, %q2;")
    lines = [
        element("%p0", 32),
        "ld.global.b32 %r30, [%d40];\nsetp.lt.s32 %q1, %r30, 5;",
        f"barrier.cta.red.{op} {result}, 3, 96, {invert}%q1;",
        store,
        element("%p1", 32),
        "st.global.b32 [%d40], %r31;",
    ]
    return Case(name, "\n".join(lines), (values,), (poisoned(96, 32),), block=(96, 1, 1))


_PENDING = "mbarrier.pending_count.b64 {r}, {d};"


def _mbarrier_sequence() -> Case:
    """Phases and pending counts of one thread's operations."""
    steps = [
        "mbarrier.init.shared::cta.b64 [%r21], 5;",
        "mbarrier.arrive.shared::cta.b64 %d20, [%r21];",
        "mbarrier.arrive.shared::cta.b64 %d20, [%r21], 2;",
        "mbarrier.arrive.noComplete.shared::cta.b64 %d20, [%r21], 1;",
        "mbarrier.arrive_drop.shared::cta.b64 %d20, [%r21];",
        "mbarrier.arrive.shared::cta.b64 %d20, [%r21], 3;",
        "mbarrier.arrive_drop.shared::cta.b64 %d20, [%r21];",
        "mbarrier.arrive.expect_tx.shared::cta.b64 %d20, [%r21], 64;",
        "mbarrier.complete_tx.shared::cta.relaxed.cta.b64 [%r21], 64;",
        "mbarrier.arrive.shared::cta.b64 %d20, [%r21], 2;",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r21], 16;",
        "mbarrier.arrive.shared::cta.b64 %d20, [%r21], 3;",
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r21], 16;",
    ]
    steps[8] = steps[8].replace(".shared::cta.relaxed.cta", ".relaxed.cta.shared::cta")
    lines = [_BUFFERS, "setp.ne.u32 %q2, %t, 0;\n@%q2 bra DONE;"]
    for i, step in enumerate(steps):
        lines += [step]
        for parity in (0, 1):
            lines += [
                f"mbarrier.test_wait.parity.shared::cta.b64 %q3, [%r21], {parity};",
                f"selp.u32 %r31, 1, 0, %q3;\nst.global.b32 [%p0+{12 * i + 4 * parity}], %r31;",
            ]
        if "%d20" in step:
            lines += ["mbarrier.pending_count.b64 %r32, %d20;"]
            lines += [f"st.global.b32 [%p0+{12 * i + 8}], %r32;"]
    lines.append("DONE:")
    return Case("mbarrier:sequence", "\n".join(lines), (), (poisoned(3 * len(steps), 32),))


def _mbarrier_tokens() -> Case:
    """test_wait with the state that arrive returned, before and after the phase ends."""
    lines = [
        _BUFFERS,
        "setp.ne.u32 %q2, %t, 0;\n@%q2 bra READY;",
        "mbarrier.init.shared::cta.b64 [%r21], 33;",
        "READY:\nbar.warp.sync -1;",
        "mbarrier.arrive.shared::cta.b64 %d20, [%r21];\nbar.warp.sync -1;",
        "mbarrier.test_wait.shared::cta.b64 %q3, [%r21], %d20;\nselp.u32 %r31, 1, 0, %q3;",
        "bar.warp.sync -1;\n@%q2 bra ARRIVED;",
        "mbarrier.arrive.shared::cta.b64 %d21, [%r21];",
        "ARRIVED:\nbar.warp.sync -1;",
        "mbarrier.test_wait.shared::cta.b64 %q3, [%r21], %d20;\nselp.u32 %r32, 2, 0, %q3;",
        "or.b32 %r31, %r31, %r32;",
        element("%p0", 32),
        "st.global.b32 [%d40], %r31;",
    ]
    return Case("mbarrier:tokens", "\n".join(lines), (), (poisoned(32, 32),))
