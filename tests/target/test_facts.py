"""Architecture facts against TVM's own tables and against brute-force statements of the rules."""

import ast
import itertools
import sys
from pathlib import Path

import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm.backend.cuda.cpp import descriptors

from warploom import target
from warploom.errors import IllegalCombination
from warploom.target import (
    ARCHS,
    GPUS,
    SM90A,
    SM100A,
    TCGEN05_KINDS,
    WGMMA_KINDS,
    Major,
    Swizzle,
    arch_of,
    cuda_target,
    gpu_of,
    target_from_device,
    tcgen05_kinds,
    wgmma_kind,
)
from warploom.target.dtypes import bits_of
from warploom.warn import silenced

ALL_DTYPES = sorted(
    {dtype for kind in TCGEN05_KINDS for dtype in (*kind.operands, *kind.d)}
    | {dtype for kind in WGMMA_KINDS for dtype in (kind.a, kind.b, kind.d)}
    | {"float64", "int4", "float8_e8m0fnu"}
)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_width_of_a_dtype_is_that_of_tvm(dtype):
    assert bits_of(dtype) == tvm.DataType(dtype).bits


@pytest.mark.parametrize("name", ["float", "float16x4", "handle", "", "bool8", "f16"])
def test_width_of_anything_else_is_refused(name):
    with pytest.raises(IllegalCombination, match="no scalar dtype"):
        bits_of(name)


@given(chunk=st.integers(0, 1 << 14), byte=st.integers(0, 15), swizzle=st.sampled_from(Swizzle))
def test_a_swizzle_exchanges_chunks_within_an_atom_row(chunk, byte, swizzle):
    offset = 16 * chunk + byte
    moved = swizzle.apply(offset)
    assert swizzle.apply(moved) == offset
    assert moved % 16 == byte and moved // swizzle.row_bytes == offset // swizzle.row_bytes
    # The permutation of a row is its number in the atom, counted in lines of 128 bytes.
    line = offset // 128 % (swizzle.row_bytes // 16)
    assert moved // 16 % 8 == (chunk % 8) ^ line


def test_swizzle_names_are_inverse():
    assert [Swizzle.from_bits(bits) for bits in range(4)] == list(Swizzle)
    assert sorted(s.wgmma_code for s in Swizzle) == [0, 1, 2, 3]
    assert len({s.tcgen05_code for s in Swizzle}) == 4


@pytest.mark.parametrize("kind", WGMMA_KINDS, ids=lambda kind: f"{kind.a}-{kind.b}-{kind.d}")
def test_wgmma_widths_cover_a_tile_with_the_fewest_instructions(kind):
    for n, align in itertools.product(range(4, 769, 4), (8, 16, 32, 64)):
        # All (count, width, last): equal multiples of align, then one that is not wider.
        cuts = {(1, n, n)} if n in kind.n else set()
        for width, last in itertools.product(kind.n, kind.n):
            if width % align == 0 and last <= width and n > last and (n - last) % width == 0:
                cuts.add(((n - last) // width + 1, width, last))
        if cuts:
            widths = kind.split_n(n, align)
            assert sum(widths) == n and set(widths[:-1]) <= {widths[0]}
            assert (len(widths), widths[0], widths[-1]) in cuts
            assert len(widths) == min(count for count, _, _ in cuts)
        else:
            with pytest.raises(IllegalCombination, match=f"N = {n} "):
                kind.split_n(n, align)


def test_wgmma_kind_names_what_is_wrong():
    dtypes = sorted({kind.a for kind in WGMMA_KINDS})
    legal = {(kind.a, kind.b, kind.d) for kind in WGMMA_KINDS}
    for a, b, d in itertools.product(dtypes, dtypes, ("float16", "float32", "int32", "float64")):
        if (a, b, d) in legal:
            assert wgmma_kind(a, b, d).k * bits_of(a) == 256
            continue
        with pytest.raises(IllegalCombination) as caught:
            wgmma_kind(a, b, d)
        assert f"{a} x {b}" in str(caught.value) and "allowed" in str(caught.value)


def tvm_kind(a, b, d, scale):
    names = [{"float32": "tf32"}.get(name, name) for name in (a, b)]
    try:
        return descriptors._get_tcgen05_mma_kind(d, *names, scale or "", scale or "")
    except ValueError:
        return None


def test_tcgen05_kinds_are_those_of_tvm():
    operands = sorted({dtype for kind in TCGEN05_KINDS for dtype in kind.operands})
    accumulators = sorted({dtype for kind in TCGEN05_KINDS for dtype in kind.d})
    scales = (None, "float8_e8m0fnu", "float8_e4m3fn")
    refusal = r"tcgen05: .*(allowed|must be of one set)"
    found = 0
    for a, b, d, scale in itertools.product(operands, operands, accumulators, scales):
        theirs = tvm_kind(a, b, d, scale)
        if theirs is None:
            with pytest.raises(IllegalCombination, match=refusal):
                tcgen05_kinds(a, b, d, scale)
        else:
            found += 1
            assert theirs in {kind.kind for kind in tcgen05_kinds(a, b, d, scale)}
    assert found == 1 + 4 + 1 + 2 * 25 + 4 + 25 + 1


@pytest.mark.parametrize("kind", TCGEN05_KINDS, ids=lambda kind: f"{kind.kind}-{kind.d[0]}")
def test_tcgen05_shapes_are_those_of_tvm(kind):
    for m, n, group in itertools.product((32, 64, 96, 128, 256), range(0, 273, 4), (1, 2)):
        try:
            descriptors._check_tcgen05_mma_matrix_shape(kind.kind, group, m, n, kind.k, False)
        except ValueError:
            with pytest.raises(IllegalCombination, match=f"= ({m}|{n}) is not legal"):
                kind.check_shape(m, n, group)
        else:
            kind.check_shape(m, n, group)
    with pytest.raises(IllegalCombination, match="cta_group is 4"):
        kind.check_shape(128, 128, 4)


@pytest.mark.parametrize("kind", TCGEN05_KINDS, ids=lambda kind: f"{kind.kind}-{kind.d[0]}")
def test_tcgen05_shapes_with_a_sparse_a_are_those_of_tvm(kind):
    for group, shape in enumerate(kind.shapes, 1):
        m = max(shape.m)
        for n in shape.n(m):
            descriptors._check_tcgen05_mma_matrix_shape(
                kind.kind, group, m, n, kind.sparse_k, True
            )
        with pytest.raises(ValueError, match="Invalid matrix shape"):
            descriptors._check_tcgen05_mma_matrix_shape(kind.kind, group, m, n, kind.k, True)


@pytest.mark.parametrize("kind", TCGEN05_KINDS, ids=lambda kind: f"{kind.kind}-{kind.d[0]}")
def test_tcgen05_scales_and_majors_are_those_of_tvm(kind):
    for scale in kind.scales:
        theirs = descriptors._get_tcgen05_mma_scale_vec_size(kind.kind, scale.dtype)
        assert kind.k // scale.vector == theirs
    for dtype in kind.operands:
        name = {"float32": "tf32"}.get(dtype, dtype)
        transposable = descriptors.PTXDataType.from_string(name) in (
            descriptors._TCGEN05_MMA_TRANS_DTYPES
        )
        # TVM refuses MN-major tf32 later, for want of the swizzle that it needs.
        assert (Major.MN in kind.majors(dtype)) == (transposable and name != "tf32")
    with pytest.raises(IllegalCombination, match="has no float64 operand"):
        kind.majors("float64")


@given(st.integers(-8, 300))
def test_setmaxnreg_takes_multiples_of_8_from_24_to_256(registers):
    if registers in range(24, 257, 8):
        SM90A.setmaxnreg.check(registers)
    else:
        with pytest.raises(IllegalCombination, match=f"setmaxnreg: {registers} registers"):
            SM90A.setmaxnreg.check(registers)


@pytest.mark.parametrize("portable, most", [(True, 8), (False, 16)])
def test_cluster_sizes(portable, most):
    for blocks in range(-1, 33):
        if blocks in (1, 2, 4, 8, 16) and blocks <= most:
            SM90A.check_cluster(blocks, portable)
        else:
            with pytest.raises(IllegalCombination, match=f"cluster of {blocks} blocks .* {most}"):
                SM90A.check_cluster(blocks, portable)


@pytest.mark.parametrize("name", [*GPUS, *ARCHS, "H100", "SM_90A"])
def test_a_target_leads_back_to_its_architecture(name):
    arch = arch_of(cuda_target(name))
    assert arch is (GPUS[name.lower()].arch if name.lower() in GPUS else ARCHS[name.lower()])


def test_the_target_of_an_h100_is_that_of_the_stock_tag():
    ours, stock = dict(cuda_target("h100").attrs), tvm.target.Target("nvidia/nvidia-h100").attrs
    assert ours.pop("model") == "h100"
    assert ours == dict(stock)


@pytest.mark.parametrize("name", ["sm_90", "sm_100"])
def test_an_architecture_without_its_tensor_cores_is_refused(name):
    with pytest.raises(IllegalCombination, match=f"'{name}'.*did you mean {name}a"):
        cuda_target(name)


class FakeDevice:
    """What :func:`target_from_device` asks of a device."""

    exist = True
    device_name = "Fake"
    max_shared_memory_per_block = 49152
    l2_cache_size_bytes = 12345
    multi_processor_count = 50
    max_clock_rate = 1_500_000
    index = 0

    def __init__(self, version):
        self.compute_version = version


@pytest.mark.parametrize("version, arch", [("9.0", SM90A), ("10.0", SM100A)])
def test_target_of_a_live_device(version, arch):
    with silenced():
        found = target_from_device(FakeDevice(version))
    assert gpu_of(found).sms == FakeDevice.multi_processor_count
    assert arch_of(found) is arch and found.attrs["l2_cache_size_bytes"] == 12345


@pytest.mark.parametrize("version", ["8.0", "8.9", "10.3", "12.0"])
def test_another_device_is_named_in_the_refusal(version):
    with pytest.raises(IllegalCombination, match=rf"Fake .* {version}; supported are 9\.0"):
        target_from_device(FakeDevice(version))


def test_a_missing_device_is_refused():
    missing = FakeDevice("9.0")
    missing.exist = False
    with pytest.raises(IllegalCombination, match="There is no device"):
        target_from_device(missing)


@pytest.mark.parametrize(
    "other, message",
    [("llvm", "kind is 'llvm'"), ({"kind": "cuda", "arch": "sm_90"}, "arch is 'sm_90'")],
)
def test_facts_of_another_target_are_refused(other, message):
    with pytest.raises(IllegalCombination, match=message):
        arch_of(tvm.target.Target(other))


FACTS = [
    "arch", "clusters_that_fit", "dtypes", "gpus", "limits", "spelling", "swizzle", "swizzle_codes",
    "tcgen05", "tma", "wgmma",
]  # fmt: skip


@pytest.mark.parametrize("module", FACTS)
def test_facts_do_not_import_tvm(module):
    imported = set()
    for node in ast.walk(ast.parse((Path(target.__file__).parent / f"{module}.py").read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    local = {name for name in imported if name.startswith("warploom.")}
    assert local <= {"warploom.errors", *(f"warploom.target.{name}" for name in FACTS)}
    assert {name.split(".")[0] for name in imported - local} <= sys.stdlib_module_names
