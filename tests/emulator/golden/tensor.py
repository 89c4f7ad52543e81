"""Tensor copies (TMA): loads, stores and reductions of boxes, in one to five dimensions."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from tests.emulator.golden.case import POISON, Case
from tests.emulator.golden.values import Bits, operands
from tests.emulator.ptx_driver import TensorMap

#: CUtensorMapDataType by its number: PTX type and bytes. The last three change what they load.
TYPES = {
    0: ("u8", 1),
    1: ("u16", 2),
    2: ("u32", 4),
    3: ("s32", 4),
    4: ("u64", 8),
    5: ("s64", 8),
    6: ("f16", 2),
    7: ("f32", 4),
    8: ("f64", 8),
    9: ("bf16", 2),
    10: ("f32", 4),
    11: ("tf32", 4),
    12: ("tf32", 4),
}
_SPANS = (0, 32, 64, 128)  # bytes of a row, by CUtensorMapSwizzle
_REGION = 4096


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor and a box; dimension 0 is the contiguous one, and rows are padded."""

    dtype: int
    shape: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int = 0
    fill: int = 0
    padding: int = 16

    @property
    def size(self) -> int:
        return TYPES[self.dtype][1]

    @property
    def strides(self) -> tuple[int, ...]:
        strides, pitch = [], self.size
        for extent in self.shape:
            pitch = -(-pitch * extent // 16) * 16 + self.padding
            strides.append(pitch)
        return tuple(strides)

    @property
    def bytes(self) -> int:
        return self.strides[-1]

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements that are moved: without interleave, dimension 0 has no step."""
        pairs = zip(self.box[1:], self.steps[1:], strict=True)
        return (self.box[0], *(-(-b // s) for b, s in pairs))

    @property
    def box_bytes(self) -> int:
        return int(np.prod(self.counts)) * self.size

    @property
    def footprint(self) -> int:
        """Bytes of shared memory, where a row is as wide as the swizzle if it is narrower."""
        row = max(self.box[0] * self.size, _SPANS[self.swizzle])
        return row * int(np.prod(self.counts[1:]))

    def map(self, buffer: int) -> TensorMap:
        return TensorMap(
            buffer,
            self.dtype,
            self.shape,
            self.strides[:-1],
            self.box,
            self.steps,
            self.swizzle,
            self.fill,
        )

    @property
    def name(self) -> str:
        shape, box, steps = ("x".join(map(str, x)) for x in (self.shape, self.box, self.steps))
        name = f"{TYPES[self.dtype][0]}#{self.dtype}:{shape}:{box}:{steps}:swizzle{self.swizzle}"
        return name + (":nan" if self.fill else "")


def loads() -> Iterator[Case]:
    for dtype, swizzle in itertools.product(TYPES, range(4)):
        size = TYPES[dtype][1]
        row = max(_SPANS[swizzle], 48) // size if swizzle != 1 else 32 // size
        fill = swizzle % 2 if TYPES[dtype][0] in ("f16", "f32", "f64", "bf16", "tf32") else 0
        yield from _load(Tensor(dtype, (row + 5, 11), (row, 8), (1, 1), swizzle, fill))
    for swizzle in range(4):
        row = max(_SPANS[swizzle], 32) // 2
        yield from _load(Tensor(6, (3 * row,), (row,), (1,), swizzle, 1))
        yield from _load(Tensor(6, (row, 5, 4), (row, 3, 3), (1, 1, 1), swizzle, 1))
        yield from _load(Tensor(9, (row + 3, 4, 3, 3), (row, 2, 2, 2), (1,) * 4, swizzle))
        yield from _load(Tensor(1, (row + 3, 3, 3, 2, 3), (row, 2, 2, 2, 2), (1,) * 5, swizzle))
        yield from _load(Tensor(2, (row, 9, 9), (row // 2, 8, 8), (1, 2, 3), swizzle))
        yield from _load(Tensor(1, (row, 9), (row, 7), (2, 2), swizzle))
        yield from _load(Tensor(0, (40, 6, 7), (16, 5, 5), (3, 4, 2), 0))
    # Rows that are narrower than the swizzle.
    for swizzle, row in ((1, 16), (2, 16), (2, 32), (2, 48), (3, 16), (3, 32), (3, 64), (3, 96)):
        yield from _load(Tensor(6, (row // 2 + 3, 20), (row // 2, 16), (1, 1), swizzle))
        yield from _load(Tensor(0, (row, 5, 4), (row, 4, 3), (1, 1, 1), swizzle))


def _unique(cases: Iterator[Case]) -> Iterator[Case]:
    seen = set()
    for case in cases:
        if case.name not in seen:
            seen.add(case.name)
            yield case


def unique_loads() -> Iterator[Case]:
    yield from _unique(loads())


def contents(name: str, dtype: int, count: int) -> np.ndarray:
    """Bytes of a tensor. Those whose values do not matter are numbered: that compresses well."""
    if dtype >= 10:
        return operands(Bits(name), "f32", count // 4).view(np.uint8)
    return np.arange(count // 2, dtype=np.uint16).view(np.uint8)


def _aligned(extent: int, box: int, size: int) -> list[int]:
    """Coordinates of dimension 0 that the hardware takes: a multiple of 16 bytes."""
    step = max(16 // size, 1)
    return [c for c in range(-box, extent + step, step) if c % step == 0]


def places(tensor: Tensor, random: Bits, count: int, negative: bool) -> np.ndarray:
    """Coordinates of boxes: inside, over the edges and outside; negative ones only if asked."""
    result = np.zeros((count, 5), np.int64)
    for d, (extent, box) in enumerate(zip(tensor.shape, tensor.box, strict=True)):
        outer = list(range(-box, extent + 2))
        choices = outer if d > 0 else _aligned(extent, box, tensor.size)
        if not negative:
            choices = [c for c in choices if c >= 0]
        result[1:, d] = random.choice(np.array(choices), count - 1).astype(np.int64)
    return result.astype(np.int32)


_START = """\
.shared .align 1024 .b8 buffer[{region}];
.shared .align 8 .b64 barrier;
mov.u32 %r20, buffer;
mov.u32 %r21, barrier;
mov.u32 %r22, %ctaid.x;
mul.lo.u32 %r23, %r22, 20;
cvt.u64.u32 %d0, %r23;
add.u64 %d0, %d0, %p1;
"""


def coordinates(rank: int) -> str:
    """Load them into %r0, %r1, ..."""
    return "\n".join(f"ld.global.b32 %r{d}, [%d0+{4 * d}];" for d in range(rank))


def listed(rank: int) -> str:
    return "{" + ", ".join(f"%r{d}" for d in range(rank)) + "}"


def wait(label: str = "WAIT") -> str:
    return f"{label}:\nmbarrier.try_wait.parity.shared::cta.b64 %q1, [%r21], 0;\n@!%q1 bra {label};"


def _load(tensor: Tensor) -> Iterator[Case]:
    for negative in (False, True):
        name = f"load:{tensor.name}{':negative' * negative}"
        yield _load_at(name, tensor, places(tensor, Bits(name), 3, negative))


def _load_at(name: str, tensor: Tensor, coordinates_: np.ndarray) -> Case:
    """Shared memory after a load, for several places; a CTA each."""
    rank, region, ctas = len(tensor.shape), _round(tensor.footprint), len(coordinates_)
    body = _START.format(region=region) + "\n".join(
        [
            coordinates(rank),
            "mad.lo.u32 %r24, %t, 4, %r20;\nmov.u32 %r25, %t;",
            f"FILL:\nst.shared.b32 [%r24], {POISON * 0x01010101};",
            "add.u32 %r24, %r24, 128;\nadd.u32 %r25, %r25, 32;",
            f"setp.lt.u32 %q0, %r25, {region // 4};\n@%q0 bra FILL;",
            "setp.ne.u32 %q2, %t, 0;\n@%q2 bra READY;",
            "mbarrier.init.shared::cta.b64 [%r21], 1;\nfence.mbarrier_init.release.cluster;",
            "READY:\nfence.proxy.async;\nbar.warp.sync -1;\n@%q2 bra WAIT;",
            f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], {tensor.box_bytes};",
            f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile"
            f".mbarrier::complete_tx::bytes [%r20], [%m0, {listed(rank)}], [%r21];",
            wait(),
            "bar.warp.sync -1;",
            f"mul.lo.u32 %r26, %r22, {region};\ncvt.u64.u32 %d1, %r26;\nadd.u64 %d1, %d1, %p2;",
            "mul.wide.u32 %d2, %t, 4;\nadd.u64 %d1, %d1, %d2;",
            "mad.lo.u32 %r24, %t, 4, %r20;\nmov.u32 %r25, %t;",
            "DUMP:\nld.shared.b32 %r27, [%r24];\nst.global.b32 [%d1], %r27;",
            "add.u64 %d1, %d1, 128;\nadd.u32 %r24, %r24, 128;\nadd.u32 %r25, %r25, 32;",
            f"setp.lt.u32 %q0, %r25, {region // 4};\n@%q0 bra DUMP;",
        ]
    )
    inputs = (contents(name, tensor.dtype, tensor.bytes), coordinates_)
    result = np.zeros(ctas * region // 4, np.uint32)
    return Case(name, body, inputs, (result,), grid=(ctas, 1, 1), maps=(tensor.map(0),))


def _round(count: int) -> int:
    """Room for a box, and some after it that it must not touch."""
    return -(-count // 128) * 128 + 128


def probes() -> Iterator[Case]:
    """Coordinates that hardware may refuse: what it does decides what the emulator does."""
    at = [(1, 0), (3, 0), (4, 0), (8, 1), (16, 0), (-8, 0), (-3, 0), (0, -1), (-16, -2), (13, 2)]
    for dtype, swizzle in ((6, 0), (6, 3), (0, 1), (7, 3)):
        row = max(_SPANS[swizzle], 32) // TYPES[dtype][1]
        tensor = Tensor(dtype, (2 * row, 9), (row, 6), (1, 1), swizzle)
        for x, y in at:
            name = f"probe:{tensor.name}:{x},{y}"
            yield _load_at(name, tensor, np.array([[x, y, 0, 0, 0]], np.int32))


def stores() -> Iterator[Case]:
    yield from _unique(_stores())


def _stores() -> Iterator[Case]:
    for dtype, swizzle in itertools.product((0, 6, 7, 8), range(4)):
        row = max(_SPANS[swizzle], 32) // TYPES[dtype][1]
        yield from _store(Tensor(dtype, (row + 3, 9), (row, 6), (1, 1), swizzle))
    for swizzle in range(4):
        row = max(_SPANS[swizzle], 32) // 2
        yield from _store(Tensor(6, (2 * row,), (row,), (1,), swizzle))
        yield from _store(Tensor(6, (row + 1, 4, 3), (row, 3, 2), (1,) * 3, swizzle))
        yield from _store(Tensor(6, (row, 3, 3, 2), (row, 2, 2, 2), (1,) * 4, swizzle))
        yield from _store(Tensor(6, (row, 3, 2, 2, 2), (row, 2, 2, 2, 2), (1,) * 5, swizzle))
        yield from _store(Tensor(6, (row, 9), (row, 7), (1, 2), swizzle))
    for swizzle, row in ((1, 16), (2, 32), (3, 16), (3, 96)):
        yield from _store(Tensor(6, (row // 2 + 3, 12), (row // 2, 8), (1, 1), swizzle))
    for dtype, op in _reductions():
        yield from _store(
            Tensor(dtype, (64 // TYPES[dtype][1], 6), (32 // TYPES[dtype][1], 4), (1, 1)), op
        )


def _reductions() -> Iterator[tuple[int, str]]:
    for op in ("and", "or", "xor"):
        yield from ((dtype, op) for dtype in (2, 3, 4))
    for op in ("min", "max"):
        yield from ((dtype, op) for dtype in (2, 3, 4, 5, 6, 9))
    yield from ((dtype, "add") for dtype in (2, 3, 4, 6, 7, 8, 9))
    yield from ((2, op) for op in ("inc", "dec"))


def _store(tensor: Tensor, op: str = "") -> Iterator[Case]:
    """The whole tensor after a store, inside and over edges; reductions on any bits."""
    instruction = "cp.reduce.async.bulk.tensor" if op else "cp.async.bulk.tensor"
    rank, region = len(tensor.shape), _round(tensor.footprint)
    for which in range(2 if op else 3):
        name = f"{op or 'store'}:{tensor.name}:{which}"
        random = Bits(name)
        body = _START.format(region=region) + "\n".join(
            [
                coordinates(rank),
                "mad.lo.u32 %r24, %t, 4, %r20;\nmov.u32 %r25, %t;",
                "mul.wide.u32 %d2, %t, 4;\nadd.u64 %d1, %d2, %p0;",
                "FILL:\nld.global.b32 %r27, [%d1];\nst.shared.b32 [%r24], %r27;",
                "add.u64 %d1, %d1, 128;\nadd.u32 %r24, %r24, 128;\nadd.u32 %r25, %r25, 32;",
                f"setp.lt.u32 %q0, %r25, {region // 4};\n@%q0 bra FILL;",
                "fence.proxy.async;\nbar.warp.sync -1;\nsetp.ne.u32 %q2, %t, 0;\n@%q2 bra DONE;",
                f"{instruction}.{rank}d.global.shared::cta{f'.{op}' if op else ''}.tile.bulk_group"
                f" [%m0, {listed(rank)}], [%r20];",
                "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;",
                "DONE:",
            ]
        )
        at = places(tensor, random, 3, False)[which : which + 1]
        kind, size = TYPES[tensor.dtype]
        if op:
            data = operands(random, kind, region // size).view(np.uint8)
            memory = operands(random, kind, tensor.bytes // size).view(np.uint8)
        else:
            data = np.arange(region // 2, dtype=np.uint16).view(np.uint8)
            memory = np.full(tensor.bytes, POISON, np.uint8)
        yield Case(name, body, (data, at), (memory,), maps=(tensor.map(2),))
