"""tcgen05.mma in kernels: how it is written, issued and completed.

A kernel fills the shared and the tensor memory of its CTAs from global memory, lets one thread
issue the instruction and commit it to mbarriers, and writes tensor memory back.
"""

import numpy as np
import pytest

from tests.emulator.checks import changed, checks, reports
from tests.emulator.run_ptx import EmulatorError, launch, load
from tests.emulator.test_umma import SCALED, check, forms, random_mma
from tests.emulator.umma_model import COLUMNS, KINDS, LANES, Mma, read_d, run

REGISTERS = ".reg .pred %p<8>;\n.reg .b32 %r<64>;\n.reg .b64 %d<32>;\n"
WIDTH = 8  # columns that one tcgen05.ld or st moves


def opcode(mma, suffix=""):
    """The instruction with its modifiers."""
    parts = ["tcgen05.mma", *(["ws"] if mma.ws else []), *(["sp"] if mma.sparse else [])]
    parts += [f"cta_group::{mma.cta_group}", f"kind::{mma.kind}"]
    if mma.vectors:
        parts += ["block_scale", f"scale_vec::{mma.vectors}X"]
    return ".".join(parts) + (".ashift" if mma.ashift else "") + suffix


def instruction(mma, words, suffix=""):
    """The instruction on the allocation at %r1 and the shared memory at %r2, enabled by %p1."""
    a, b, d, idesc, zero, scale_a, scale_b, *disabled, metadata = words
    lines = [f"shr.u32 %r3, %r2, 4;\ncvt.u64.u32 %d3, %r3;\nadd.s64 %d2, %d3, {b};"]
    place = f"[%r4+{a}]"
    if not mma.a_in_tensor_memory:
        lines.append(f"add.s64 %d1, %d3, {a};")
        place = "%d1"
    sparse = [f"[%r4+{metadata}]"] if mma.sparse else []
    operands = [f"[%r4+{d}]", place, "%d2", *sparse, str(idesc)]
    if mma.vectors:
        operands += [f"[%r4+{scale_a}]", f"[%r4+{scale_b}]", "%p1"]
    elif mma.ws:
        operands += ["%p1", f"{zero:#x}"]
    else:
        if any(disabled):
            count = 4 * mma.cta_group
            lines += [f"mov.u32 %r{20 + i}, {disabled[i]};" for i in range(count)]
            operands.append("{" + ", ".join(f"%r{20 + i}" for i in range(count)) + "}")
        operands.append("%p1")
        if mma.scale_input:
            operands.append(str(mma.scale_input))
    return "\n".join([*lines, f"{opcode(mma, suffix)} {', '.join(operands)};"])


def move_columns(direction):
    """All columns of the warp's lanes, between tensor memory and %d12 (its lane's cells)."""
    lines = []
    for column in range(0, COLUMNS, WIDTH):
        names = [f"%r{30 + i}" for i in range(WIDTH)]
        halves = [(names[:4], 4 * column), (names[4:], 4 * column + 16)]
        registers = "{" + ", ".join(names) + "}"
        if direction == "st":
            for part, offset in halves:
                lines.append(f"ld.global.v4.u32 {{{', '.join(part)}}}, [%d12+{offset}];")
            lines.append(f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r5+{column}], {registers};")
        else:
            lines.append(f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {registers}, [%r5+{column}];")
            lines.append("tcgen05.wait::ld.sync.aligned;")
            for part, offset in halves:
                lines.append(f"st.global.v4.u32 [%d12+{offset}], {{{', '.join(part)}}};")
    return "\n".join([*lines, f"tcgen05.wait::{direction}.sync.aligned;"])


def kernel(mma, issue, image_bytes):
    """A kernel of 128 threads around ``issue``; parameters: shared images, cells."""
    group = f"cta_group::{mma.cta_group}"
    pair = mma.cta_group == 2
    meet = "bar.sync 0;"
    if pair:
        meet += "\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;"
    commit = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
    commit += ".multicast::cluster.b64 [%r8], %h1;" if pair else ".b64 [%r8];"
    return f"""
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry kernel(.param .u64 images, .param .u64 cells)
{{
{REGISTERS}.reg .b16 %h<4>;
.shared .align 8 .b64 barrier;
.shared .align 4 .b32 address;
mov.u32 %r10, %tid.x;
mov.u32 %r11, %cluster_ctarank;
ld.param.u64 %d10, [images];
ld.param.u64 %d11, [cells];
// Shared memory, at a multiple of 1024.
mov.u32 %r2, dynamic;
add.u32 %r2, %r2, 1023;
and.b32 %r2, %r2, -1024;
mul.wide.u32 %d4, %r11, {image_bytes};
add.s64 %d10, %d10, %d4;
shl.b32 %r12, %r10, 4;
copy:
setp.ge.u32 %p2, %r12, {image_bytes};
@%p2 bra copied;
cvt.u64.u32 %d5, %r12;
add.s64 %d5, %d10, %d5;
ld.global.v4.u32 {{%r30, %r31, %r32, %r33}}, [%d5];
add.u32 %r13, %r2, %r12;
st.shared.v4.u32 [%r13], {{%r30, %r31, %r32, %r33}};
add.u32 %r12, %r12, 2048;
bra copy;
copied:
fence.proxy.async.shared::cta;
mov.u32 %r8, barrier;
mov.u32 %r14, address;
setp.ne.u32 %p3, %r10, 0;
@%p3 bra initialized;
mbarrier.init.shared::cta.b64 [%r8], 1;
fence.mbarrier_init.release.cluster;
initialized:
setp.ge.u32 %p4, %r10, 32;
@%p4 bra allocated;
tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [%r14], {COLUMNS};
tcgen05.relinquish_alloc_permit.{group}.sync.aligned;
allocated:
tcgen05.fence::before_thread_sync;
{meet}
tcgen05.fence::after_thread_sync;
ld.shared.u32 %r4, [%r14];
// The lanes of a warp start at 32 times its number in its group of four.
shr.u32 %r15, %r10, 5;
shl.b32 %r15, %r15, 21;
add.u32 %r5, %r4, %r15;
mul.wide.u32 %d6, %r11, {LANES * COLUMNS * 4};
mul.wide.u32 %d7, %r10, {COLUMNS * 4};
add.s64 %d12, %d11, %d6;
add.s64 %d12, %d12, %d7;
{move_columns("st")}
tcgen05.fence::before_thread_sync;
{meet}
tcgen05.fence::after_thread_sync;
or.b32 %r16, %r10, %r11;
setp.ne.u32 %p5, %r16, 0;
@%p5 bra issued;
setp.eq.u32 %p1, {int(mma.accumulate)}, 1;
mov.u16 %h1, 3;
{issue}
{commit}
issued:
mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r8], 0;
@!%p6 bra issued;
tcgen05.fence::after_thread_sync;
{move_columns("ld")}
tcgen05.fence::before_thread_sync;
{meet}
@%p4 bra end;
tcgen05.dealloc.{group}.sync.aligned.b32 %r4, {COLUMNS};
end:
ret;
}}
"""


def image_bytes(shared):
    return -(-max(len(memory) for memory in shared) // 16) * 16


def make(mma, words, shared, suffixes=("",), rename=("", "")):
    """The PTX of a kernel with one instruction for each suffix."""
    issues = [instruction(mma, words, suffix) for suffix in suffixes]
    return kernel(mma, "\n".join(issues).replace(*rename), image_bytes(shared))


def launch_kernel(mma, ptx, shared, cells, seed=1):
    """The cells of tensor memory after a launch."""
    images = np.zeros((mma.cta_group, image_bytes(shared)), "uint8")
    for image, memory in zip(images, shared, strict=True):
        image[: len(memory)] = np.frombuffer(bytes(memory), "uint8")
    _, after = launch(
        ptx,
        [images, np.ascontiguousarray(cells)],
        grid=(mma.cta_group, 1, 1),
        block=(128, 1, 1),
        cluster=(mma.cta_group, 1, 1),
        shared=images.shape[1] + 1024,
        seed=seed,
        arch="sm_100a",
    )
    return after


def execute_with(seed, *suffixes, rename=("", "")):
    """An ``execute`` for :func:`umma_model.run` that launches a kernel."""

    def execute(mma, words, shared, cells):
        ptx = make(mma, words, shared, suffixes or ("",), rename)
        return launch_kernel(mma, ptx, shared, cells, seed)

    return execute


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_of_every_kind_and_layout(kind, rng):
    for _, cta_group, ws, m, all_n in forms([kind]):
        n = all_n[int(rng.integers(len(all_n)))]
        mma = random_mma(
            *(rng, kind, cta_group, ws, m, n),
            a_in_tensor_memory=bool(rng.integers(2)),
            accumulate=bool(rng.integers(2)),
        )
        check(run(rng, mma, execute_with(int(rng.integers(1 << 30)))), mma)


def test_optional_operands(rng):
    disabled = tuple(int(x) for x in rng.integers(0, 1 << 32, 8))
    for options in ({"disabled": disabled}, {"scale_input": 7}):
        for cta_group in (1, 2):
            mma = random_mma(rng, "f16", cta_group, False, 128, 32, **options)
            result = run(rng, mma, execute_with(1))
            np.testing.assert_array_equal(result.after, expected_cells(mma, result))
    zero = 1 << 39 | 2 << 40 | 3 << 48 | 5 << 56
    mma = random_mma(rng, "i8", 1, True, 32, 64, zero_columns=zero, max_shift=8)
    check(run(rng, mma, execute_with(2)), mma)


def expected_cells(mma, result):
    """Tensor memory with the rows of D that are written, and the rest as it was."""
    lane, column = mma.places
    words = np.array(mma.disabled, "uint32").reshape(2, 4)
    cells = result.before.copy()
    expected = result.expected.view("uint32" if mma.d != "f16" else "uint16").astype("uint32")
    for cta, rows in enumerate(np.split(expected, mma.cta_group)):
        on = words[cta][lane // 32] >> (lane % 32).astype("uint32") & 1 == 0
        cells[cta][lane[on], result.d_column + column[on]] = rows[on]
    return cells


def check_repeated(mma, result, times):
    """D after an instruction on integers has been executed more than once."""
    before = read_d(mma, np.roll(result.before, -result.d_column, axis=2)).astype("int64")
    exact = before + times * (result.expected - before)
    np.testing.assert_array_equal(result.actual, exact.astype("int32"))


def test_instructions_of_a_thread_are_executed_in_order(rng):
    mma = random_mma(rng, "i8", 1, False, 128, 32, a_in_tensor_memory=True, ashift=True)
    once = run(np.random.default_rng(1), mma, execute_with(0))
    for seed in range(3):
        result = run(np.random.default_rng(1), mma, execute_with(seed, "", "", ""))
        columns = slice(result.a_column, result.a_column + 8)
        shifted = np.minimum(np.arange(32) + 3, 31)
        lanes = (32 * np.arange(4)[:, None] + shifted).ravel()
        np.testing.assert_array_equal(result.after[0][:, columns], result.before[0][lanes, columns])
        assert (result.actual != once.actual).any()


def test_matrices_in_collectors(rng):
    for ws, buffer in ((False, "a"), (True, "b3")):
        uses = [f".collector::{buffer}::{use}" for use in ("fill", "use", "lastuse", "discard")]
        mma = random_mma(rng, "i8", 1, ws, 128, 64)
        check_repeated(mma, run(rng, mma, execute_with(4, *uses)), 4)
        message = f"needs its matrix in the collector buffer.*{buffer}::fill"
        for wrong in (uses[1:2], [uses[0], uses[3], uses[2]], [uses[0], uses[2], uses[2]]):
            with pytest.raises(EmulatorError, match=message):
                run(rng, mma, execute_with(5, *wrong))
    pair = random_mma(rng, "f16", 2, False, 256, 64)
    check(run(rng, pair, execute_with(6, ".collector::a::fill")), pair)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mma.ws.sp.cta_group::1.kind::f16 [%r0], %d0, %d1, [%r1], %r1, %p0", ".sp with .ws"),
        ("mma.kind::f16 [%r0], %d0, %d1, %r1, %p0", "it needs .cta_group::1 or .cta_group::2"),
        ("mma.cta_group::1 [%r0], %d0, %d1, %r1, %p0", "it needs a kind"),
        ("mma.cta_group::1.kind::f16.wide [%r0], %d0, %d1, %r1, %p0", "wide"),
        ("mma.cta_group::1.kind::f16 [%r0], %d0, %d1, %r1, %p0, 16", "it must be 0 to 15"),
        ("mma.cta_group::1.kind::i8 [%r0], %d0, %d1, %r1, %p0, 3", "scale-input-d is allowed"),
        (
            "mma.cta_group::2.kind::f16 [%r0], %d0, %d1, %r1, {%r1, %r2, %r3, %r4}, %p0",
            "disable-output-lane has 4 elements; with .cta_group::2 it has 8",
        ),
        ("mma.cta_group::1.kind::f16.ashift [%r0], %d0, %d1, %r1, %p0", "needs A in tensor memory"),
        (
            "mma.cta_group::1.kind::f16.ashift.collector::a::fill [%r0], [%r2], %d1, %r1, %p0",
            "cannot be combined with .ashift",
        ),
        (
            "mma.ws.cta_group::1.kind::f16.collector::a::fill [%r0], %d0, %d1, %r1, %p0",
            "the collector buffers of .ws are b0 to b3",
        ),
        ("mma.ws.cta_group::2.kind::f16 [%r0], %d0, %d1, %r1, %p0", "takes cta_group::1 only"),
        (
            "mma.cta_group::1.kind::mxf8f6f4 [%r0], %d0, %d1, %r1, [%r6], [%r7], %p0",
            "needs .block_scale",
        ),
        (
            "mma.cta_group::1.kind::mxf4nvf4.block_scale [%r0], %d0, %d1, %r1, [%r6], [%r7], %p0",
            "kind::mxf4nvf4 needs .block16, .block32",
        ),
        (
            "mma.cta_group::1.kind::mxf4.block_scale.scale_vec::4X "
            "[%r0], %d0, %d1, %r1, [%r6], [%r7], %p0",
            "has no 4 scale factors for each row",
        ),
    ],
)
def test_what_does_not_load(text, message):
    ptx = f".visible .entry kernel()\n{{\n{REGISTERS}tcgen05.{text};\nret;\n}}\n"
    with pytest.raises(EmulatorError) as error:
        load(ptx, "sm_100a")
    assert "tcgen05.mma" in str(error.value) and message in str(error.value)


def test_illegal_descriptors_name_the_instruction(rng):
    mma = Mma("f16", "f16", "f16", "f32", 128, 32)

    def execute(mma, words, shared, cells):
        words[1] |= 1 << 61
        return execute_with(1)(mma, words, shared, cells)

    with pytest.raises(EmulatorError, match=r"bits 61-63, the swizzle(?s:.*)tcgen05\.mma"):
        run(rng, mma, execute)


def test_the_checker_sees_what_the_tensor_core_reads(rng):
    mma = random_mma(rng, "f16", 2, False, 256, 64)
    proxy = "fence.proxy.async.shared::cta;"
    for seed in range(3):
        with checks():
            check(run(rng, mma, execute_with(seed)), mma)
            assert reports() == []

    def execute(mma, words, shared, cells):
        return launch_kernel(mma, changed(make(mma, words, shared), proxy, ""), shared, cells)

    message = r"tcgen05\.mma.*no fence\.proxy\.async lies between"
    with checks(), pytest.raises(EmulatorError, match=message):
        run(rng, mma, execute)


def test_a_pair_needs_two_ctas(rng):
    mma = Mma("f16", "f16", "f16", "f32", 256, 32, cta_group=2)
    ptx = kernel(mma, instruction(mma, [0] * 15), 16)
    images, cells = np.zeros((1, 16), "uint8"), np.zeros((1, LANES, COLUMNS), "uint32")
    with pytest.raises(EmulatorError, match="cta_group::2"):
        launch(ptx, [images, cells], block=(128, 1, 1), shared=4096, arch="sm_100a")


def test_scale_factors_have_two_names(rng):
    for kind, rules in SCALED.items():
        for vectors, scale in rules:
            mma = Mma(kind, "e2m1", "e2m1", "f32", 128, 64, vectors=vectors, scale=scale)
            names = f".scale_vec::{vectors}X", f".block{mma.k // vectors}"
            check(run(rng, mma, execute_with(6, rename=names)), mma)
    for kind in ("mxf8f6f4", "mxf4"):
        ((vectors, _),) = SCALED[kind]
        mma = Mma(kind, "e2m1", "e2m1", "f32", 128, 64, vectors=vectors)
        check(run(rng, mma, execute_with(7, rename=(f".scale_vec::{vectors}X", ""))), mma)
