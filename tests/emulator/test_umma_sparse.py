"""tcgen05.mma.sp: the metadata in tensor memory says which elements of K a sparse A holds.

It lies where CUTLASS has it (``cute::UMMA::tmem_e_frg``), and, of 8-bit and 16-bit elements, JAX's
Pallas (``format_tcgen05_sparse_metadata``): nobody has recorded a Blackwell GPU.
"""

import dataclasses

import numpy as np
import pytest

from tests.emulator.native import emulator_function
from tests.emulator.run_ptx import EmulatorError
from tests.emulator.test_umma import check, random_mma
from tests.emulator.test_umma_ptx import execute_with
from tests.emulator.umma_model import NARROW, OPERANDS, STORAGE, Mma, run, write_metadata
from tests.shared.reference import numpy_dtype
from warploom.target.swizzle import Major, Swizzle

KINDS = ["f16", "tf32", "f8f6f4", "i8"]
#: Swizzles whose atoms have rows of B, which are 64 bytes.
WIDE = [Swizzle.NONE, Swizzle.B64, Swizzle.B128]


def sparse_mma(rng, kind, cta_group=1, **options):
    m, step = 128 * cta_group, 16 * cta_group
    n = int(rng.integers(1, 256 // step + 1)) * step
    if kind == "i8" and cta_group == 2:
        n = -(-n // 32) * 32
    mma = random_mma(rng, kind, cta_group, False, m, n, sparse=True, **options)
    types = [name for name in OPERANDS[kind] if name not in NARROW]
    a, b = (types[int(rng.integers(len(types)))] for _ in range(2))
    d = "s32" if kind == "i8" else "f32"
    swizzles = tuple(WIDE[int(rng.integers(3))] for _ in range(2))
    return dataclasses.replace(mma, a=a, b=b, d=d, **{"swizzles": swizzles} | options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cta_group", [1, 2])
@pytest.mark.parametrize("a_in_tensor_memory", [False, True])
def test_it_is_the_mma_of_the_dense_matrix(kind, cta_group, a_in_tensor_memory, rng):
    for selector in (0, 1) if kind in ("f16", "tf32") else (0,):
        mma = sparse_mma(
            rng, kind, cta_group, selector=selector, a_in_tensor_memory=a_in_tensor_memory
        )
        check(run(rng, mma), mma)


@pytest.mark.parametrize("majors", [(x, y) for x in Major for y in Major])
def test_majors(majors, rng):
    for kind in ("f16", "i8"):
        mma = sparse_mma(rng, kind, majors=majors, swizzles=(Swizzle.B128, Swizzle.B128))
        check(run(rng, mma), mma)


@pytest.mark.parametrize("kind", KINDS)
def test_kernels(kind, rng):
    mma = sparse_mma(rng, kind)
    check(run(rng, mma, execute_with(1)), mma)


def test_elements_that_a_does_not_hold_are_not_multiplied(rng, monkeypatch):
    """Infinity times the zero of a dense matrix would be no number."""
    mma = Mma("f16", "f16", "bf16", "f32", 128, 16, sparse=True, accumulate=False)

    def first_ones(rng, mma, tensor):
        start, places = write_metadata(rng, mma, tensor)
        tensor.cells[:, :, start] = 0x44444444
        places[:] = np.tile([0, 1], 8) + np.repeat(np.arange(0, 32, 4), 2)
        return start, places

    def with_infinities(rng, shape, dtype):
        values = rng.standard_normal(shape).astype(numpy_dtype(STORAGE[dtype]))
        values[:, 3::4] = np.inf if dtype == mma.b else 1
        return values, values.astype("float64")

    monkeypatch.setattr("tests.emulator.umma_model.write_metadata", first_ones)
    monkeypatch.setattr("tests.emulator.umma_model.random_codes", with_infinities)
    assert np.isfinite(run(rng, mma).actual).all()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"m": 64, "n": 16}, "metadata of fewer than 128 rows"),
        ({"kind": "i8", "a": "s8", "b": "s8", "d": "s32", "selector": 1}, "selector is 0"),
        ({"selector": 2}, "the sparsity selector is 0 or 1"),
        ({"swizzles": (Swizzle.B128, Swizzle.B32)}, "rows of 64 bytes, .* byte 0 of the 32"),
        ({"ws": True}, ".sp with .ws, .block_scale or .ashift is not supported"),
    ],
)
def test_forms_that_are_refused(changes, message, rng, monkeypatch):
    monkeypatch.setattr(
        "tests.emulator.umma_model.write_metadata",
        lambda rng, mma, tensor: (0, np.zeros((mma.m, mma.k), int)),
    )
    mma = Mma("f16", "f16", "f16", "f32", 128, 64, sparse=True)
    with pytest.raises(ValueError, match=message):
        run(rng, dataclasses.replace(mma, **changes))


def test_a_dense_descriptor_is_refused():
    with pytest.raises(ValueError, match=r"has 0 in bit 2; .* tcgen05.mma.sp has 1 there"):
        bits = Mma("f16", "f16", "f16", "f32", 128, 16).instruction
        emulator_function("umma_shape")("f16", 1, 0, "sp", bits)


@pytest.mark.parametrize("nibble, kind", [(0x0, "f16"), (0xA, "i8"), (0x8, "tf32")])
def test_metadata_that_names_no_elements(nibble, kind, rng, monkeypatch):
    def illegal(rng, mma, tensor):
        start, places = write_metadata(rng, mma, tensor)
        tensor.cells[:, 37, start] = 0x11111111 * nibble
        return start, places

    monkeypatch.setattr("tests.emulator.umma_model.write_metadata", illegal)
    with pytest.raises(ValueError, match=f"metadata of row .* is 0x{nibble:x}; it must|indices"):
        run(rng, sparse_mma(rng, kind))


def test_metadata_at_an_odd_column_is_refused(rng, monkeypatch):
    monkeypatch.setattr(
        "tests.emulator.umma_model.write_metadata",
        lambda rng, mma, tensor: (3, write_metadata(rng, mma, tensor)[1]),
    )
    with pytest.raises((ValueError, EmulatorError), match="lane 0 and column 3"):
        run(rng, sparse_mma(rng, "f16"))
