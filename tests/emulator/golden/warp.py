"""Instructions of a whole warp, and special registers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tests.emulator.golden.case import Case, element, poisoned
from tests.emulator.golden.values import Bits, operands

_MASKS = (0xFFFFFFFF, 0x0000FFFF, 0x80000001, 0x5A5A1234)


def _case(
    name: str,
    mask: int,
    text: str,
    inputs: list[np.ndarray],
    results: int,
    prefix: str = "",
) -> Case:
    """``text`` for the lanes of a mask; inputs are in %r0, %r1, ...; results in %r10, %r11, ..."""
    lines = []
    for i in range(len(inputs)):
        lines += [element(f"%p{i}", 32), f"ld.global.b32 %r{i}, [%d40];"]
    lines += [
        prefix,
        f"shr.u32 %r30, {mask}, %t;\nand.b32 %r30, %r30, 1;\nsetp.eq.u32 %q0, %r30, 0;",
        "@%q0 bra DONE;",
        text,
    ]
    for i in range(results):
        lines += [
            element(f"%p{len(inputs) + i}", 32),
            f"st.global.b32 [%d40], %r{10 + i};",
        ]
    lines.append("DONE:")
    outputs = tuple(poisoned(32, 32) for _ in range(results))
    return Case(name, "\n".join(lines), tuple(inputs), outputs)


def warps() -> Iterator[Case]:
    yield from _shuffles()
    predicate = "setp.lt.s32 %q1, %r0, 0;\n"
    for mode, mask in itertools.product(("all", "any", "uni"), _MASKS):
        name = f"vote.sync.{mode}.pred"
        for kind, values in _predicates(f"{name}/{mask}"):
            text = f"{predicate}{name} %q2, %q1, {mask};\nselp.u32 %r10, 1, 0, %q2;"
            yield _case(f"{name}:{mask:x}:{kind}", mask, text, [values], 1)
    for mask in _MASKS:
        values = operands(Bits(f"ballot/{mask}"), "b32", 32)
        text = f"{predicate}vote.sync.ballot.b32 %r10, %q1, {mask};"
        yield _case(f"vote.sync.ballot.b32:{mask:x}", mask, text, [values], 1)
        for bits in (32, 64):
            source = "%r0" if bits == 32 else "%d0"
            widen = "" if bits == 32 else "and.b32 %r1, %r0, 1;\nmov.b64 %d0, {%r1, %r0};\n"
            few = (Bits(f"match/{mask}").below(5, 32) + np.uint64(1)).astype(np.uint32)
            name = f"match.any.sync.b{bits}"
            yield _case(
                f"{name}:{mask:x}", mask, f"{widen}{name} %r10, {source}, {mask};", [few], 1
            )
            name = f"match.all.sync.b{bits}"
            for kind, values in (("few", few), ("one", np.full(32, 7, np.uint32))):
                text = f"{widen}{name} %r10|%q1, {source}, {mask};\nselp.u32 %r11, 1, 0, %q1;"
                yield _case(f"{name}:{mask:x}:{kind}", mask, text, [values], 2)
        for op, kind in (
            *itertools.product(("add", "min", "max"), ("u32", "s32")),
            *itertools.product(("and", "or", "xor"), ("b32",)),
        ):
            name = f"redux.sync.{op}.{kind}"
            values = operands(Bits(f"{name}/{mask}"), "b32", 32)
            yield _case(f"{name}:{mask:x}", mask, f"{name} %r10, %r0, {mask};", [values], 1)
        text = f"elect.sync %r10|%q1, {mask};\nselp.u32 %r11, 1, 0, %q1;"
        yield _case(f"elect.sync:{mask:x}", mask, text, [], 2)
        yield _case(f"activemask:{mask:x}", mask, "activemask.b32 %r10;", [], 1)
    yield _special((2, 3, 2), (8, 2, 3), (1, 1, 1), 0)
    yield _special((4, 2, 2), (33, 2, 1), (2, 1, 2), 1024)


def _predicates(name: str) -> list[tuple[str, np.ndarray]]:
    full = np.full(32, 0x80000000, np.uint32)
    mixed = full.copy()
    mixed[Bits(name).below(32, 3).astype(int)] = 0
    return [("true", full), ("false", 0 * full), ("mixed", mixed)]


def _shuffles() -> Iterator[Case]:
    """Every lane has its own amount, and every half of a warp its own mask."""
    for mode in ("up", "down", "bfly", "idx"):
        name = f"shfl.sync.{mode}.b32"
        for round_ in range(3):
            random = Bits(f"{name}/{round_}")
            values = random.words(32).astype(np.uint32)
            amounts = random.below(64 if round_ else 32, 32).astype(np.uint32)
            clamp = random.below(32, 32).astype(np.uint32)
            segment = random.choice(np.array([0, 16, 24, 28, 30, 31, 5]), 32).astype(np.uint32)
            controls = segment << np.uint32(8) | clamp
            text = f"{name} %r10|%q1, %r0, %r1, %r2, -1;\nselp.u32 %r11, 1, 0, %q1;"
            inputs = [values, amounts, controls]
            yield _case(f"{name}:{round_}", 0xFFFFFFFF, text, inputs, 2)
        usual = 0x0000 if mode == "up" else 0x1F
        for segment in (0, 0x1000, 0x1800, 0x1C00):
            random = Bits(f"{name}/{segment}")
            values = random.words(32).astype(np.uint32)
            amounts = np.full(32, int(random.below(16, 1)[0]), np.uint32)
            text = f"{name} %r10|%q1, %r0, %r1, {segment | usual}, -1;\nselp.u32 %r11, 1, 0, %q1;"
            yield _case(f"{name}:segment{segment:x}", 0xFFFFFFFF, text, [values, amounts], 2)
        # A read within the half that executes.
        random = Bits(f"{name}/half")
        inputs = [random.words(32).astype(np.uint32), random.below(8, 32).astype(np.uint32)]
        text = f"{name} %r10|%q1, %r0, %r1, {0x1000 | usual}, 0xffff;\nselp.u32 %r11, 1, 0, %q1;"
        yield _case(f"{name}:half", 0xFFFF, text, inputs, 2)


_SPECIAL = (
    *(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"),
    *(f"%{name}.{axis}" for name in ("clusterid", "nclusterid") for axis in "xyz"),
    *(f"%{name}.{axis}" for name in ("cluster_ctaid", "cluster_nctaid") for axis in "xyz"),
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%laneid",
    "%lanemask_eq",
    "%lanemask_le",
    "%lanemask_lt",
    "%lanemask_ge",
    "%lanemask_gt",
    "%dynamic_smem_size",
    "%total_smem_size",
)


def _special(
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    cluster: tuple[int, int, int],
    shared: int,
) -> Case:
    threads = int(np.prod(block))
    count = int(np.prod(grid)) * threads
    lines = [
        "mov.u32 %r0, %ctaid.z;\nmov.u32 %r1, %nctaid.y;\nmov.u32 %r2, %ctaid.y;",
        "mad.lo.u32 %r0, %r0, %r1, %r2;",
        "mov.u32 %r1, %nctaid.x;\nmov.u32 %r2, %ctaid.x;\nmad.lo.u32 %r0, %r0, %r1, %r2;",
        "mov.u32 %r1, %tid.z;\nmov.u32 %r2, %ntid.y;\nmov.u32 %r3, %tid.y;",
        "mad.lo.u32 %r1, %r1, %r2, %r3;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;",
        f"mad.lo.u32 %r1, %r1, %r2, %r3;\nmad.lo.u32 %r0, %r0, {threads}, %r1;",
        element("%p0", 32, "%r0"),
    ]
    for i, name in enumerate(_SPECIAL):
        lines.append(f"mov.u32 %r9, {name};\nst.global.b32 [%d40+{4 * count * i}], %r9;")
    lines += [
        "mov.pred %q1, %is_explicit_cluster;\nselp.u32 %r9, 1, 0, %q1;",
        f"st.global.b32 [%d40+{4 * count * len(_SPECIAL)}], %r9;",
    ]
    result = poisoned(count * (len(_SPECIAL) + 1), 32)
    name = f"special:{'x'.join(map(str, cluster))}"
    return Case(name, "\n".join(lines), (), (result,), grid, block, cluster, shared)
