"""Tensor maps beyond plain boxes: im2col and interleaved tensors.

A kernel waits for its copy only for a while: it shows what has arrived, and whether the mbarrier
has counted as many bytes as the kernel expects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from tests.emulator.golden.case import POISON, Case
from tests.emulator.golden.tensor import coordinates, listed
from tests.emulator.golden.values import Bits
from tests.emulator.ptx_driver import Im2colMap, TensorMap

_SPANS = (16, 32, 64, 128)  # bytes of a row, by CUtensorMapSwizzle
_SIZES = {0: 1, 1: 2, 2: 4, 6: 2, 7: 4, 9: 2}  # bytes, by CUtensorMapDataType

_START = """\
.shared .align 1024 .b8 buffer[{region}];
.shared .align 128 .b8 map[128];
.shared .align 8 .b64 barrier;
mov.u32 %r20, buffer;
mov.u32 %r21, barrier;
mov.u32 %r22, %ctaid.x;
mul.lo.u32 %r23, %r22, 20;
cvt.u64.u32 %d0, %r23;
add.u64 %d0, %d0, %p1;
"""

_FILL = """\
mad.lo.u32 %r24, %t, 4, %r20;
mov.u32 %r25, %t;
FILL:
st.shared.b32 [%r24], {poison};
add.u32 %r24, %r24, 128;
add.u32 %r25, %r25, 32;
setp.lt.u32 %q0, %r25, {words};
@%q0 bra FILL;
setp.ne.u32 %q2, %t, 0;
@%q2 bra READY;
mbarrier.init.shared::cta.b64 [%r21], 1;
fence.mbarrier_init.release.cluster;
READY:
fence.proxy.async;
bar.warp.sync -1;
"""

# The last word of a result says whether the barrier was complete.
_DUMP = """\
mov.u32 %r30, 0;
WAIT:
mbarrier.test_wait.parity.shared::cta.b64 %q1, [%r21], 0;
@%q1 bra WAITED;
nanosleep.u32 10000;
add.u32 %r30, %r30, 1;
setp.lt.u32 %q3, %r30, 200;
@%q3 bra WAIT;
WAITED:
bar.warp.sync -1;
selp.u32 %r31, 1, 0, %q1;
mul.lo.u32 %r26, %r22, {stride};
cvt.u64.u32 %d1, %r26;
add.u64 %d1, %d1, {result};
@!%q2 st.global.b32 [%d1+{region}], %r31;
mul.wide.u32 %d2, %t, 4;
add.u64 %d1, %d1, %d2;
mad.lo.u32 %r24, %t, 4, %r20;
mov.u32 %r25, %t;
DUMP:
ld.shared.b32 %r27, [%r24];
st.global.b32 [%d1], %r27;
add.u64 %d1, %d1, 128;
add.u32 %r24, %r24, 128;
add.u32 %r25, %r25, 32;
setp.lt.u32 %q0, %r25, {words};
@%q0 bra DUMP;
"""


def _round(count: int) -> int:
    return -(-count // 128) * 128 + 128


def pitches(shape: tuple[int, ...], size: int, padding: int) -> tuple[int, ...]:
    strides, pitch = [], size
    for extent in shape:
        pitch = -(-pitch * extent // 16) * 16 + padding
        strides.append(pitch)
    return tuple(strides)


def numbers(count: int) -> np.ndarray:
    return np.arange(count // 2, dtype=np.uint16).view(np.uint8)


def load(
    name: str,
    tensor: TensorMap | Im2colMap,
    source: np.ndarray,
    at: np.ndarray,
    mode: str,
    footprint: int,
    count: int,
    *,
    offsets: str = "",
    before: str = "",
    address: str = "%m0",
    extra: tuple[np.ndarray, ...] = (),
    rank: int = 0,
) -> Case:
    """Shared memory after a load; a CTA for each place. ``before`` may make another map."""
    rank = rank or len(tensor.shape)
    region = _round(footprint)
    body = _START.format(region=region) + "\n".join(
        [
            coordinates(rank),
            _FILL.format(poison=POISON * 0x01010101, words=region // 4) + before,
            "@%q2 bra ISSUED;",
            f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], {count};",
            f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}"
            f".mbarrier::complete_tx::bytes [%r20], [{address}, {listed(rank)}], [%r21]{offsets};",
            "ISSUED:\nbar.warp.sync -1;",
            _DUMP.format(
                stride=region + 16,
                region=region,
                words=region // 4,
                result=f"%p{2 + len(extra)}",
            ),
        ]
    )
    result = np.zeros(len(at) * (region + 16) // 4, np.uint32)
    inputs = (source, at, *extra)
    return Case(name, body, inputs, (result,), grid=(len(at), 1, 1), maps=(tensor,))


@dataclasses.dataclass(frozen=True)
class Images:
    """Images and a filter's bounding box; channels first, then W, H, D and the images."""

    dtype: int
    shape: tuple[int, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int
    steps: tuple[int, ...] = ()
    swizzle: int = 0
    fill: int = 0

    @property
    def map(self) -> Im2colMap:
        strides = pitches(self.shape, _SIZES[self.dtype], 16)
        steps = self.steps or (1,) * len(self.shape)
        return Im2colMap(
            0,
            self.dtype,
            self.shape,
            strides[:-1],
            self.lower,
            self.upper,
            self.channels,
            self.pixels,
            steps,
            self.swizzle,
            self.fill,
        )

    @property
    def bytes(self) -> int:
        return pitches(self.shape, _SIZES[self.dtype], 16)[-1]

    @property
    def box_bytes(self) -> int:
        return self.pixels * self.channels * _SIZES[self.dtype]

    @property
    def footprint(self) -> int:
        row = self.channels * _SIZES[self.dtype]
        return self.pixels * (max(row, _SPANS[self.swizzle]) if self.swizzle else row)

    @property
    def name(self) -> str:
        fields = (self.shape, self.lower, self.upper, self.steps)
        text = ":".join("x".join(map(str, f)) for f in fields)
        tail = f"{self.channels}:{self.pixels}:swizzle{self.swizzle}:fill{self.fill}"
        return f"#{self.dtype}:{text}:{tail}"

    def places(self, random: Bits, count: int, inside: bool) -> np.ndarray:
        """A corner of the bounding box, then bases within it; channels by 16 bytes."""
        at = np.zeros((count, 5), np.int64)
        step = max(16 // _SIZES[self.dtype], 1)
        last = len(self.shape) - 1
        channels = np.arange(0, self.shape[0] if inside else self.shape[0] + step, step)
        at[:, 0] = random.choice(channels, count).astype(np.int64)
        at[0, 0] = 0
        corners = zip(self.lower, self.upper, self.shape[1:-1], strict=True)
        for d, (lower, upper, extent) in enumerate(corners, 1):
            at[:, d] = random.choice(np.arange(lower, extent + upper), count).astype(np.int64)
            at[0, d] = lower
        first = 0 if inside else -1
        at[1:, last] = random.choice(np.arange(first, self.shape[-1]), count - 1).astype(np.int64)
        return at.astype(np.int32)


def _im2col_load(images: Images, offsets: tuple[int, ...]) -> Case:
    name = f"im2col:{images.name}:{'x'.join(map(str, offsets))}"
    registers = [f"%h{30 + i}" for i in range(len(offsets))]
    before = "".join(f"mov.u16 {r}, {o};\n" for r, o in zip(registers, offsets, strict=True))
    return load(
        name,
        images.map,
        numbers(images.bytes),
        images.places(Bits(name), 4, False),
        "im2col",
        images.footprint,
        images.box_bytes,
        offsets=", {" + ", ".join(registers) + "}",
        before=before,
    )


def _im2col_store(images: Images, op: str) -> Iterator[Case]:
    """The whole tensor after a store that keeps within it."""
    instruction = "cp.reduce.async.bulk.tensor" if op else "cp.async.bulk.tensor"
    rank, region = len(images.shape), _round(images.footprint)
    for which in range(3):
        name = f"im2col_{op or 'store'}:{images.name}:{which}"
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
                f"{instruction}.{rank}d.global.shared::cta{f'.{op}' if op else ''}.im2col_no_offs"
                f".bulk_group [%m0, {listed(rank)}], [%r20];",
                "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;",
                "DONE:",
            ]
        )
        at = images.places(random, 3, True)[which : which + 1]
        data = numbers(region)
        memory = np.full(images.bytes, POISON, np.uint8)
        yield Case(
            name, body, (data, at), (memory,), maps=(dataclasses.replace(images.map, buffer=2),)
        )


def im2col() -> Iterator[Case]:
    for swizzle in range(4):
        channels = max(_SPANS[swizzle], 32) // 2
        line = Images(1, (channels + 8, 9, 4), (-2,), (-1,), channels, 40, (), swizzle)
        plane = Images(6, (channels, 7, 6, 3), (-1, -2), (-2, -1), channels, 64, (), swizzle, 1)
        space = Images(
            9, (channels, 5, 4, 3, 2), (-1, 0, -2), (0, -1, 1), channels, 48, (), swizzle
        )
        yield from (_im2col_load(line, (o,)) for o in (0, 2, 5))
        yield from (_im2col_load(plane, o) for o in ((0, 0), (1, 0), (0, 2), (3, 3)))
        yield from (_im2col_load(space, o) for o in ((0, 0, 0), (1, 2, 0), (0, 1, 3)))
    # Traversal strides, and bounding boxes that they do not divide.
    for steps in ((1, 2, 2, 1), (1, 3, 1, 1), (1, 1, 2, 1), (1, 2, 3, 2), (2, 1, 1, 1)):
        plane = Images(1, (16, 8, 7, 4), (-1, -1), (-1, -1), 16, 32, steps)
        yield from (_im2col_load(plane, o) for o in ((0, 0), (1, 1)))
    # Fewer channels than the swizzle is wide; one pixel; more pixels than there are.
    yield _im2col_load(Images(1, (16, 6, 5, 2), (0, 0), (0, 0), 8, 16, (), 3), (0, 0))
    yield _im2col_load(Images(2, (8, 6, 5, 2), (0, 0), (0, 0), 4, 1), (0, 0))
    yield _im2col_load(Images(0, (32, 4, 3, 2), (-1, -1), (0, 0), 16, 200), (1, 1))
    for swizzle in (0, 3):
        channels = max(_SPANS[swizzle], 32) // 2
        plane = Images(1, (channels, 6, 5, 3), (0, 1), (-1, 0), channels, 24, (), swizzle)
        yield from _im2col_store(plane, "")
    yield from _im2col_store(Images(2, (8, 6, 5, 3), (1, 0), (0, -1), 8, 24), "xor")
    yield from _im2col_store(Images(2, (8, 6, 5, 3), (0, 0), (0, 0), 8, 20, (1, 2, 2, 1)), "or")


#: Interleave, swizzle, data type, extents, box and steps.
_INTERLEAVED = (
    *((1, 0, 1, (24, 20, 6), (8, rows, 2), (1, 1, 1)) for rows in (1, 2, 4, 8, 16)),
    *((1, 0, 1, (24, 20, 6), (8, 8, slices), (1, 1, 1)) for slices in (1, 3)),
    (1, 0, 1, (24, 20, 6), (16, 8, 2), (1, 1, 1)),
    (1, 0, 1, (24, 20, 6), (16, 8, 2), (2, 1, 1)),
    (1, 0, 1, (24, 20, 6), (16, 8, 2), (1, 2, 1)),
    (1, 0, 1, (24, 20, 6), (16, 8, 4), (1, 1, 2)),
    (1, 0, 0, (24, 20, 6), (16, 16, 2), (1, 1, 1)),
    (1, 0, 2, (24, 20, 6), (4, 8, 2), (1, 1, 1)),
    (1, 0, 1, (21, 19, 6), (8, 8, 2), (1, 1, 1)),
    (1, 0, 1, (24, 6, 4, 3), (8, 8, 3, 2), (1, 1, 1, 1)),
    (1, 0, 1, (24, 6, 4, 3), (8, 2, 8, 2), (1, 1, 1, 1)),
    (1, 0, 1, (24, 6, 4, 3), (8, 2, 16, 1), (1, 1, 1, 1)),
    (1, 3, 1, (24, 20, 6), (16, 8, 2), (1, 1, 1)),
    (2, 1, 1, (24, 8, 4), (16, 8, 2), (1, 1, 1)),
    (2, 1, 1, (24, 8, 4), (16, 16, 2), (1, 1, 1)),
    (2, 1, 1, (24, 8, 4), (16, 16, 3), (1, 1, 1)),
)


def interleaved() -> Iterator[Case]:
    """Slices of 16 or 32 bytes: what is an element, and where the next slice lies."""
    # All numbers of a tensor differ: they show which address they come from. There is room for
    # any reading of the extents.
    memory = np.arange(32768, dtype=np.uint16).view(np.uint8)
    for case in _INTERLEAVED:
        interleave, swizzle, dtype, shape, box, steps = case
        slice_ = 16 * interleave
        strides = pitches(shape, slice_, 32)[:-1]
        tensor = TensorMap(
            0, dtype, shape, strides, box, steps, swizzle=swizzle, interleave=interleave
        )
        name = "interleave:" + ":".join(str(field) for field in case)
        at = np.array([[0, 0, 0, 0, 0], [2, 1, 1, 1, 0], [-1, 0, -1, 0, 0]], np.int32)
        count = int(np.prod([-(-b // s) for b, s in zip(box, steps, strict=True)]))
        yield load(name, tensor, memory, at, "tile", 2 * count * slice_, count * slice_)
    images = Im2colMap(
        0,
        1,
        (24, 6, 5, 3),
        pitches((24, 6, 5, 3), 16, 32)[:-1],
        (-1, -1),
        (0, 0),
        8,
        20,
        (1, 1, 1, 1),
        interleave=1,
    )
    yield load(
        "interleave16:im2col",
        images,
        memory,
        np.array([[0, -1, -1, 0, 0]], np.int32),
        "im2col",
        20 * 8 * 16,
        20 * 8 * 16,
        offsets=", {%h30, %h31}",
        before="mov.u16 %h30, 1;\nmov.u16 %h31, 1;\n",
    )
