"""``warploom check``: kernels of files with PTX, launched with arguments of the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.emulator.run_ptx import HEADER
from tests.emulator.test_driver_api import fat_binary
from warploom.emulator.check_command import argument_of, main
from warploom.errors import WarploomError

#: ``a[i] += b[i]`` for i below n, by one thread an element; and each thread stores its number.
PTX = HEADER.format(arch="sm_90a") + """
.visible .entry add(.param .u64 a, .param .u64 b, .param .u32 n)
{
  .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<6>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra END;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
  ld.global.f32 %f1, [%rd4]; ld.global.f32 %f2, [%rd5];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd4], %f3;
END:
  ret;
}
.visible .entry race(.param .u64 a)
{
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [a];
  mov.u32 %r1, %tid.x;
  st.global.u32 [%rd1], %r1;
  ret;
}
"""
ADD = ["--kernel", "add", "--grid", "2", "--block", "64", "--args"]
RACE = ["--kernel", "race", "--grid", "2", "--block", "64", "--args", "int32[1]=0"]


@pytest.fixture(params=["text", "fat binary"])
def file(request, tmp_path):
    path = tmp_path / "kernels"
    path.write_bytes(PTX.encode() if request.param == "text" else fat_binary(1, PTX.encode()))
    return str(path)


def test_a_correct_kernel_is_silent(file, capsys):
    assert main([file, *ADD, "float32[100]", "float32[100]=2", "int32=100"]) == 0
    assert "nothing was found" in capsys.readouterr().out


def test_what_is_wrong_is_printed(file, capsys):
    assert main([file, *RACE]) == 1
    assert "data race in kernel race" in capsys.readouterr().out
    assert main([file, *ADD, "float32[100]", "float32[99]", "int32=100"]) == 1
    assert "lie in no allocation" in capsys.readouterr().out


def test_json(file, capsys):
    assert main([file, *RACE, "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)
    assert finding["kind"] == "data race" and finding["kernel"] == "race"
    assert finding["sides"][0]["instruction"] == "st.global.u32"
    assert main([file, *ADD, "float32[2]", "float32[2]", "int32=2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_what_cannot_start_is_an_error(file, tmp_path):
    with pytest.raises(WarploomError, match="Name the kernel; the PTX has add, race"):
        main([file])
    with pytest.raises(WarploomError, match="add has 3 parameters, and 1 arguments"):
        main([file, *ADD, "float32[2]"])
    with pytest.raises(WarploomError, match="no file"):
        main([str(tmp_path / "nothing.ptx")])
    half = tmp_path / "half"
    half.write_bytes(fat_binary(1, PTX.encode() + b"\xff")[:100])
    with pytest.raises(WarploomError, match=r"fat binary of .* bytes, of which 100 are there"):
        main([str(half)])
    cubin = tmp_path / "cubin"
    cubin.write_bytes(b"\x7fELF" + bytes(60))
    with pytest.raises(WarploomError, match="which has machine code only"):
        main([str(cubin)])


@pytest.mark.parametrize(
    "text, dtype, shape, value",
    [
        ("float16[3,4]", "float16", (3, 4), None), ("int8[5]", "int8", (5,), None),
        ("bfloat16[2, 2]=1.5", "bfloat16", (2, 2), 1.5), ("float32[]=2", "float32", (), 2),
    ],
)  # fmt: skip
def test_arrays(rng, text, dtype, shape, value):
    array = argument_of(text, rng)
    assert (str(array.dtype), array.shape) == (dtype, shape)
    assert value is None or (array.astype(float) == value).all()
    assert np.isnan(argument_of("float32[4]=nan", rng)).all()


def test_numbers(rng):
    assert argument_of("int32=5", rng) == 5 and argument_of("float32=0.5", rng) == 0.5
    assert 0 <= argument_of("uint8", rng) < 8


@pytest.mark.parametrize("text", ["", "float31[2]", "float16(2)", "int32=x", "int8[2]=300", "[2]"])
def test_other_words_are_no_arguments(rng, text):
    with pytest.raises(WarploomError, match="is no argument"):
        argument_of(text, rng)
