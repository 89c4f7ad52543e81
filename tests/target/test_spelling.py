"""One spelling of swizzles and of the options of tensor maps, in every function that takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from tvm.script import tirx as T

from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.layout.inspect import main as inspect_layout
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target import Major, Swizzle, box_error, shared_align
from warploom.target.spelling import (
    INTERLEAVES,
    L2_PROMOTIONS,
    OOB_FILLS,
    SWIZZLES,
    Interleave,
    L2Promotion,
    OobFill,
    read_interleave,
    read_l2_promotion,
    read_oob_fill,
    read_swizzle,
    read_swizzle_codes,
)
from warploom.target.swizzle_codes import SWIZZLE_CODES
from warploom.target.tensor_map import TensorMap
from warploom.target.wgmma_descriptor import WgmmaDescriptor


def spellings(swizzle: Swizzle) -> list[Any]:
    """Every way to say ``swizzle`` to any function."""
    size = swizzle.row_bytes if swizzle is not Swizzle.NONE else 0
    found = [swizzle, swizzle.codes.name, size, tvm.tirx.IntImm("int32", size)]
    return [*found, None] if swizzle is Swizzle.NONE else found


def in_kernel(emit: Callable) -> Any:
    """What a builtin emits, as a function; ``emit(A, tile, descriptor)`` says which."""

    @T.prim_func
    def func(A: T.Buffer((64, 64), "float16")):
        with T.attr({"tirx.device_entry": T.bool(True)}):
            T.cta_id([1])
            T.thread_id([128])
            tile = T.alloc_buffer((8, 64), "float16", scope="shared", align=1024)
            descriptor = T.alloc_buffer((1,), "uint64", scope="local")
            emit(A, tile, descriptor)

    return func


def on_host(swizzle: Any) -> Any:
    @T.prim_func
    def func(A: T.Buffer((64, 64), "float16")):
        source = wl.create_tma_descriptor(A, (8, 8), swizzle=swizzle)
        T.device_entry()
        T.cta_id([1])
        T.thread_id([128])
        tile = T.alloc_buffer((8, 64), "float16", scope="shared", align=1024)
        bar = T.alloc_buffer((1,), "uint64", scope="shared")
        wl.tma_load(source, bar, tile, 0, 0)

    return func


def wgmma(swizzle: Any) -> Any:
    def emit(A, tile, descriptor):
        T.evaluate(wl.initialize_wgmma_descriptor(descriptor[0], tile, swizzle, 1, 64))

    return in_kernel(emit)


def tcgen05(swizzle: Any) -> Any:
    return in_kernel(
        lambda A, tile, d: wl.initialize_tcgen05_descriptor(
            d[0], tile, 1, 64, swizzle_mode=swizzle
        )
    )


#: Function that takes a swizzle -> (what it makes of one, column of its own codes).
FUNCTIONS: dict[str, tuple[Callable, str | None]] = {
    "create_tma_descriptor": (on_host, "tensor_map"),
    "initialize_wgmma_descriptor": (wgmma, "wgmma"),
    "initialize_tcgen05_descriptor": (tcgen05, "tcgen05"),
    "WgmmaEmitter.of": (
        lambda s: wl.WgmmaEmitter.of(64, 64, 64, "float16", a_swizzle=s or 0, b_swizzle=s or 0),
        None,
    ),
    "SharedMatrix": (lambda s: SharedMatrix("float16", Major.K, s, 64, 64), None),
    "WgmmaDescriptor": (lambda s: WgmmaDescriptor(Major.K, s, 16, 1024, 2), None),
    "TensorMap": (lambda s: TensorMap("float16", (64, 64), (8, 8), s), None),
    "box_error": (lambda s: box_error("float16", (8, 256), s), None),
    "shared_align": (shared_align, None),
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tvm.tirx.PrimFunc):
        return tvm_ffi.structural_equal(one, other, map_free_vars=True)
    return one == other


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("swizzle", Swizzle)
def test_every_function_takes_every_spelling(name, swizzle):
    make, column = FUNCTIONS[name]
    ways = spellings(swizzle)
    if column is not None:
        ways.append(getattr(swizzle.codes, column))
    made = [make(one) for one in ways]
    assert all(same(made[0], one) for one in made[1:]), ways
    others = [make(one) for one in Swizzle if one is not swizzle]
    if name not in ("box_error", "shared_align"):
        assert not any(same(made[0], one) for one in others)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("value", ["128", "128b", "B128", 256, 7, True, 128.0, -1, "64 B"])
def test_anything_else_is_refused_with_what_is_allowed(name, value):
    with pytest.raises(Exception, match=r"must be one of 'none', '32B', '64B', '128B'"):
        FUNCTIONS[name][0](value)


def test_codes_mean_what_their_interface_says():
    """3 is 128 bytes to a tensor map and 32 bytes to wgmma; tcgen05 has no 3."""
    assert read_swizzle_codes("swizzle", 3, "tensor_map").name == "128B"
    assert read_swizzle_codes("swizzle", 3, "wgmma").name == "32B"
    with pytest.raises(IllegalCombination, match=r"1 \(128B_ATOM_32B\), 2 \(128B\), 4 \(64B\)"):
        read_swizzle_codes("swizzle", 3, "tcgen05")
    with pytest.raises(IllegalCombination, match="'128B', or bytes: 0, 32, 64, 128; or its own"):
        read_swizzle_codes("swizzle", "128B_ATOM_32B", "wgmma")
    assert read_swizzle_codes("swizzle", "128B_ATOM_32B", "tcgen05").tcgen05 == 1
    with pytest.raises(IllegalCombination, match="swizzle is 3; it must be one of 'none', '32B'"):
        read_swizzle("swizzle", 3)


@pytest.mark.parametrize("column", ["tensor_map", "wgmma", "tcgen05"])
def test_a_number_of_bytes_is_never_a_code(column):
    codes = {getattr(one, column) for one in SWIZZLE_CODES} - {0, None}
    assert not codes & {one.row_bytes for one in SWIZZLE_CODES}


READERS = {
    read_swizzle: (SWIZZLES, Swizzle), read_l2_promotion: (L2_PROMOTIONS, L2Promotion),
    read_oob_fill: (OOB_FILLS, OobFill), read_interleave: (INTERLEAVES, Interleave),
}  # fmt: skip


@pytest.mark.parametrize("read", READERS)
def test_names_bytes_and_members_agree(read):
    names, members = READERS[read]
    assert set(names.values()) == set(members)
    for name, member in names.items():
        assert read("option", name) is read("option", member) is member
        if name[:-1].isdigit():
            assert read("option", int(name[:-1])) is member
    assert read("option", None) is next(iter(names.values()))


@given(st.sampled_from(list(READERS)), st.text() | st.floats() | st.integers() | st.binary())
def test_whatever_else_is_refused_in_one_sentence(read, value):
    names, _ = READERS[read]
    allowed = {*names, 0, *(int(one[:-1]) for one in names if one[:-1].isdigit())}
    if value in allowed and not isinstance(value, float) and (value != 0 or "none" in names):
        return
    with pytest.raises(IllegalCombination, match=r"^option is .*; it must be one of '"):
        read("option", value)


def test_a_tensor_map_takes_names():
    spelled = TensorMap("float16", (64, 64), (8, 64), "128B", "256B", "nan", "none")
    assert spelled == TensorMap(
        "float16", (64, 64), (8, 64), Swizzle.B128, L2Promotion.B256, OobFill.NAN, Interleave.NONE
    )
    with pytest.raises(IllegalCombination, match="oob_fill is 1; it must be one of 'zeros', 'nan'"):
        TensorMap("float16", (64, 64), (8, 64), oob_fill=1)


def test_the_command_line_says_what_is_allowed(capsys):
    with pytest.raises(SystemExit):
        inspect_layout(["smem", "--swizzle", "12"])
    assert "'none', '32B', '64B', '128B'" in " ".join(capsys.readouterr().err.split())
    outputs = []
    for text in ("128B", "128"):
        inspect_layout(["smem", "--swizzle", text])
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != ""
