"""What ``emulator.run`` is given: every wrong value is one sentence, and nothing is truncated."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from tests.emulator import run_ptx
from warploom import IllegalCombination, emulator
from warploom.emulator import arguments

HEADER = run_ptx.HEADER.replace("{arch}", "sm_90a")
#: Copies its second parameter, of each type that a parameter can have, to memory.
COPY = (
    HEADER
    + """
.visible .entry k(.param .u64 out, .param .{type} value)
{{
.reg .b{bits} %v; .reg .b64 %d;
ld.param.u64 %d, [out];
ld.param.b{bits} %v, [value];
st.global.b{bits} [%d], %v;
ret;
}}
"""
)
NOTHING = HEADER + ".visible .entry k(.param .u64 p) { ret; }"
TYPES = ["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "b16", "b32", "f32", "f64"]


def copied(type_name: str, value) -> bytes:
    size = int(type_name[1:]) // 8
    text = COPY.format(type=type_name, bits=8 * size)
    (out,) = emulator.run(text, [np.full(size, 0xA5, np.uint8), value]).outputs
    return out.tobytes()


def refused(call, message: str) -> None:
    with pytest.raises(emulator.EmulatorError, match=message) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("type_name", TYPES)
def test_numbers_become_the_type_of_the_parameter(rng, type_name):
    bits = int(type_name[1:])
    if type_name.startswith("f"):
        for value in (3, -2.5, True):
            assert copied(type_name, value) == np.dtype(f"f{bits // 8}").type(value).tobytes()
        return
    for value in (0, 1, (1 << bits) - 1, -1 << (bits - 1), int(rng.integers(0, 1 << (bits - 1)))):
        expected = (value % (1 << bits)).to_bytes(bits // 8, "little")
        assert copied(type_name, value) == expected
        assert copied(type_name, expected) == expected
    for value in (1 << bits, (-1 << (bits - 1)) - 1, 1 << 70):
        refused(lambda value=value: copied(type_name, value), f"given {value}; allowed are -")


@pytest.mark.parametrize(
    ("type_name", "value", "message"),
    [
        ("u32", 1.5, r"Parameter 1 of k \(.u32, 4 bytes\) is given the float 1.5; give an int"),
        ("f32", 1e300, "given 1e\\+300; at most 3.4"),
        ("u32", np.float32(1), "of dtype float32; give a number of that type"),
        ("f32", np.int32(1), "of dtype int32; give a number of that type"),
        ("u32", np.int64(1), "of 8 bytes; give a number of that size"),
        ("u32", None, "is given None; give a number, a numpy array or bytes"),
        ("u64", None, "is given None"),
        ("u64", "text", "is given 'text' of type str"),
        ("u64", [1, 2], r"is given \[1, 2\] of type list"),
        ("u64", object, "is given <class 'object'> of type type"),
        ("u64", 1j, "of type complex"),
        ("u32", b"123", "of 3 bytes"),
        ("u32", np.zeros(1), "is no pointer, and an array of shape .1,. was given"),
    ],
)
def test_what_is_no_number_of_the_parameter_is_refused(type_name, value, message):
    refused(lambda: copied(type_name, value), message)


@pytest.mark.parametrize("dtype", ["object", "U4", "S4", "M8[s]", "m8[s]", ">f4", ">i2"])
def test_arrays_without_numbers_of_the_device_are_refused(dtype):
    for shape in ((8,), (0,), ()):
        array = np.zeros(shape, dtype)
        refused(lambda array=array: emulator.run(NOTHING, [array]), "^Parameter 0 of k .* of dtype")
    with pytest.raises(emulator.EmulatorError, match="no numbers for"):
        arguments.check_array("x", np.zeros(2, [("a", object)]))


def test_any_strides_and_rights_are_fine(rng):
    base = rng.random((8, 6), np.float32)
    for array in (base.T, base[::2, ::-1], np.broadcast_to(base[0], (4, 6)), base[:, :0]):
        array = array.view()
        array.flags.writeable = False
        (out,) = emulator.run(NOTHING, [array]).outputs
        np.testing.assert_array_equal(out, array)


@pytest.mark.parametrize("name", ["grid", "block", "cluster"])
@pytest.mark.parametrize(
    "value", [0, -1, 1 << 32, (1, 1 << 40), True, (1, False), 1.0, "2", (), (1, 1, 1, 1), None]
)
def test_launch_dimensions_have_32_bits(name, value):
    """None is the default, of course."""
    call = lambda: emulator.run(NOTHING, [0], **{name: value})  # noqa: E731
    if value is None:
        call()
    else:
        refused(call, f"^{name}={re.escape(repr(value))} is no launch dimension")


@pytest.mark.parametrize("value", [-1, 1 << 32, 1 << 40, True, 16.0, "16"])
def test_shared_memory_has_32_bits(value):
    refused(lambda: emulator.run(NOTHING, [0], shared=value), f"^shared={value!r} is no size")


def test_launches_beyond_the_hardware_are_refused():
    refused(lambda: emulator.run(NOTHING, [0], grid=(1, 1 << 31)), "at most 65535 are allowed")
    refused(lambda: emulator.run(NOTHING, [0], shared=(1 << 32) - 1), "bytes of shared memory")
    refused(lambda: emulator.run(NOTHING, [0], block=(1 << 31, 1 << 31)), "threads in a CTA")


@pytest.mark.parametrize("args", [None, 3, np.zeros((2, 4)), {"p": 0}, iter([0]), "ab"])
def test_arguments_are_a_list(args):
    refused(lambda: emulator.run(NOTHING, args), "^The arguments are .*; give a list")


@pytest.mark.parametrize("name", ["seed", "explore", "exhaustive"])
@pytest.mark.parametrize("value", [1.5, "1", None, True, 1 << 64])
def test_options_are_ints(name, value):
    with pytest.raises(IllegalCombination):
        emulator.run(NOTHING, [0], **{name: value})


@T.prim_func
def double(a: T.Buffer((128,), "float32"), b: T.Buffer((128,), "float32")):
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([128])
    b[thread] = a[thread] * T.float32(2)


@pytest.mark.parametrize(
    "value", [None, np.zeros(128, object), "a", [1.0] * 128, np.zeros(128, ">f4")]
)
def test_programs_of_tvm_refuse_the_same(value):
    module = tvm.IRModule({"main": double})
    refused(lambda: emulator.run(module, [value, np.zeros(128, np.float32)]), "^Argument 0 of main")
