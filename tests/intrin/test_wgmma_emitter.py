"""``wl.WgmmaEmitter``: its numbers, the instructions it issues, and what they compute."""

from __future__ import annotations

import functools
import re

import pytest
import tvm

from tests.intrin.wgmma_emitter_kernels import (
    CASES,
    LOOPS,
    REGIONS,
    UNROLLED,
    WHOLE,
    Case,
    lower,
    operands,
    stored,
)
from tests.shared import reference
from tests.shared.sampling import either
from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target import WGMMA_KINDS, Major, Swizzle, wgmma_kind
from warploom.target.wgmma_descriptor import WgmmaDescriptor

#: Cases that are compiled in every form: from shared memory, and from registers.
IN_ALL_FORMS = [one for one in CASES if str(one) in ("f16_in_f16_ragged", "f16_rs_two_blocks")]
#: And these where asked for.
MORE = [one for one in CASES[::3] if one not in IN_ALL_FORMS]


@functools.cache
def compiled(more: bool) -> tuple:
    """The cases as a module, or those of ``MORE`` in every form, and the PTX of each kernel."""
    forms = (WHOLE, LOOPS, UNROLLED, REGIONS)
    module = (
        lower(MORE, lambda _: forms) if more
        else lower(CASES, lambda case: forms[: 4 if case in IN_ALL_FORMS else 1])
    )  # fmt: skip
    return module, _ptx(module)


def _ptx(module) -> dict[str, str]:
    """The PTX of each kernel, without names that differ between kernels."""
    text = module.mod.imports[0].inspect_source("ptx")
    if "mma_async" not in text:  # a GPU's module has machine code
        from tvm.support.nvcc import compile_cuda

        source = module.mod.imports[0].inspect_source()
        text = compile_cuda(source, target_format="ptx", arch="sm_90a", compiler="nvrtc").decode()
    text = re.sub(r"//.*|^\t\.loc.*", "", text, flags=re.MULTILINE)
    bodies = {}
    for part in re.split(r"(?=\.visible \.entry )", text)[1:]:
        name = re.search(r"entry (\w+)_kernel\(", part)[1]
        part = re.split(r"^\t\.(?:file|section)", part, flags=re.MULTILINE)[0]
        part = re.sub(r"\$L__(\w+?)\d+(_\d+)?", r"L\1\2", part.replace(name, "kernel"))
        bodies[name] = "\n".join(line.strip() for line in part.split("\n") if line.strip())
    return bodies


def issued(body: str) -> list[str]:
    return re.findall(r"wgmma\.mma_async[\w.]*", body)


@pytest.mark.parametrize("case", either(IN_ALL_FORMS, MORE), ids=str)
@pytest.mark.parametrize("form", [LOOPS, UNROLLED])
def test_atoms_are_the_instructions_of_the_whole(case, form):
    _, ptx = compiled(case in MORE)
    whole = ptx[f"{case}_{WHOLE}"]
    assert len(issued(whole)) == case.emitter.instructions
    assert ptx[f"{case}_{form}"] == whole


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.some(3)
def test_counts_are_those_of_the_instructions(case):
    e, body = case.emitter, compiled(False)[1][f"{case}_{WHOLE}"]
    assert len(issued(body)) == e.instructions == len(list(e.atoms()))
    assert sum(int(re.search(r"m64n(\d+)k", op)[1]) for op in issued(body)) == (
        e.n * e.blocks * e.steps
    )
    registers = set()
    for statement in re.findall(r"mma_async[^;]*;", body):
        registers |= set(re.findall(r"%\w+", statement.split("}")[0]))
    # A thread's part of D, each register named by one instruction of each step.
    per_step = sum(len(re.findall(r"%\w+", s.split("}")[0]))
                   for s in re.findall(r"mma_async[^;]*;", body)) // e.steps  # fmt: skip
    assert registers and per_step == e.d_registers
    assert [body.count(f"wgmma.{name}") for name in ("fence", "commit_group", "wait_group")] == [
        1, 1, 1,
    ]  # fmt: skip


@pytest.mark.in_turn(3)
@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=str)
def test_result_is_right(rng, case: Case):
    check(compiled(False)[0], rng, case, WHOLE)


@pytest.mark.gpu
@pytest.mark.parametrize("case", either(IN_ALL_FORMS, MORE), ids=str)
def test_result_from_regions_is_right(rng, case: Case):
    check(compiled(case in MORE)[0], rng, case, REGIONS)


def check(module, rng, case: Case, form: str) -> None:
    a, b, d = operands(case, rng)
    e, device = case.emitter, tvm.cuda(0)
    result = tvm.runtime.tensor(d, device)
    inputs = (stored(case.a_tile, a), stored(e.b, b))
    module[f"{case}_{form}"](*(tvm.runtime.tensor(one, device) for one in inputs), result)
    sign = (-1) ** sum(e.negate)
    fraction = reference.error_fraction(e.kind.a, e.kind.d)
    before = d if case.accum else None
    expected = reference.accumulate([sign * a.astype("float64")], [b], before, fraction)
    assert not expected.mismatches(result.numpy()).any(), expected.worst(result.numpy())


@pytest.mark.parametrize("kind", WGMMA_KINDS, ids=lambda kind: f"{kind.a}x{kind.b}_{kind.d}")
def test_counts_of_every_kind(kind):
    """Registers hold exactly the elements; instructions cover the matmul exactly."""
    for m, n, steps in ((64, 8, 1), (128, 256, 3), (192, 96, 2)):
        e = wl.WgmmaEmitter.of(m, n, steps * kind.k, kind.a, kind.d, b_dtype=kind.b)
        assert e.kind == kind and sum(e.widths) == n and e.steps == steps
        assert e.instructions == e.blocks * len(e.widths) * steps
        assert e.a_registers * 4 * 128 == m * e.k * kind.bits // 8
        assert e.d_registers * 4 * 128 == m * n * tvm.DataType(kind.d).bits // 8
        for layout, size in ((e.d_layout, m * n), (e.a_layout, m * e.k)):
            threads = 1
            for it in layout.shard:
                threads *= int(it.extent) if it.axis.is_thread() else 1
            assert threads == 128 and int(layout.span("m")) * threads == size


@pytest.mark.parametrize("major", Major)
@pytest.mark.parametrize("swizzle", Swizzle)
def test_descriptor_is_that_of_the_matrix(major, swizzle):
    matrix = SharedMatrix("float16", major, swizzle, 128, 64)
    described = matrix.wgmma
    assert described.encoded == matrix.descriptor
    assert described.encoded >> 62 == (4 - swizzle.bits) % 4
    assert (described.encoded >> 16 & 0x3FFF) * 16 == described.leading_bytes
    assert (described.encoded >> 32 & 0x3FFF) * 16 == described.stride_bytes
    assert described.atom_elements * 2 == swizzle.row_bytes
    assert described.steps_per_atom == max(swizzle.row_bytes // 32, 1)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ((Major.K, Swizzle.B128, 8, 1024, 2), "leading byte offset of a matrix descriptor is 8"),
        ((Major.K, Swizzle.B128, 16, 1 << 18, 2), "stride byte offset .* is 262144"),
        ((Major.K, Swizzle.B128, 16, -16, 2), "from 0 to 262128"),
        ((Major.K, Swizzle.B128, 16, 1024, 8), "1, 2 or 4 bytes, got 8"),
    ],
)  # fmt: skip
def test_illegal_descriptors_are_refused(arguments, sentence):
    with pytest.raises(IllegalCombination, match=sentence):
        WgmmaDescriptor(*arguments)


@pytest.mark.parametrize(
    "shape, options, sentence",
    [
        ((96, 64, 64, "float16"), {}, "M = 96 is not a positive multiple of 64"),
        ((64, 60, 64, "float16"), {}, "float16 operand .* atoms"),
        ((64, 64, 24, "float16"), {}, "K = 24 is not a positive multiple of 16"),
        ((64, 64, 64, "float64"), {}, "no instruction for float64 x float64"),
        ((64, 64, 64, "bfloat16", "float16"), {}, "cannot accumulate in float16"),
        ((64, 64, 64, "int8"), {"b_major": "MN"}, "int8 and MN-major"),
        ((64, 64, 64, "float16"), {"satfinite": True}, "satfinite exists for integers only"),
        ((64, 64, 64, "int8"), {"negate_b": True}, "negate_b exist for floating point only"),
        ((64, 64, 32, "float16"), {"b_swizzle": Swizzle.B128}, "swizzle B128 consists of atoms"),
    ],
)  # fmt: skip
def test_what_the_hardware_lacks_is_refused(shape, options, sentence):
    with pytest.raises(IllegalCombination, match=sentence):
        wl.WgmmaEmitter.of(*shape, **options)


def test_operands_larger_than_their_buffers_are_refused():
    kind, small = wgmma_kind("float16", "float16", "float32"), SharedMatrix(
        "float16", Major.K, Swizzle.B128, 64, 64
    )  # fmt: skip
    with pytest.raises(IllegalCombination, match="B is 128 x 64, more than its buffer's 64 x 64"):
        wl.WgmmaEmitter(kind, 64, 128, 64, small)
    with pytest.raises(IllegalCombination, match="A has elements of float16, not bfloat16"):
        wl.WgmmaEmitter(wgmma_kind("bfloat16", "bfloat16", "float32"), 64, 64, 64, small, small)
