"""The driver API of the emulator as other programs than TVM use it, through ctypes."""

from __future__ import annotations

import base64
import ctypes
import struct

import numpy as np
import pytest

from tests.emulator import run_ptx
from warploom.errors import ToolchainError

try:
    library = run_ptx.library()
except ToolchainError as error:
    pytest.skip(str(error), allow_module_level=True)

PTX = b""".version 8.0
.target sm_90
.address_size 64
.visible .entry add_one(.param .u64 p, .param .u32 n)
{
  .reg .pred %q;
  .reg .b32 %r<6>;
  .reg .b64 %d<4>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  ld.param.u32 %r5, [n];
  setp.ge.u32 %q, %r4, %r5;
  @%q ret;
  ld.param.u64 %d1, [p];
  mul.wide.u32 %d2, %r4, 4;
  add.u64 %d3, %d1, %d2;
  ld.global.u32 %r5, [%d3];
  add.u32 %r5, %r5, 1;
  st.global.u32 [%d3], %r5;
  ret;
}
"""
#: The same text, as `zstd -19` compresses it.
ZSTD = base64.b64decode(
    "KLUv/WTqAPUHABJMJhlgeQP8PyOe6cWYp5dQQTxdVLVlegAKWoIlwJgLyU4qs5Y8/idi/FfPLXdpRaa3twBK"
    "5EYt1zLFEha1TN4eVyKZ9Z9HxozPv85cBS0LzrvsQpwPHsW5AdVsQT+9Fr3eDYjAgLVxtNQaUTjva96puUCx"
    "bPqfDd6MUW9qqYpr5wCiNA0rnjCm938y04U7U+vO7ADhS2NZxZd2Hi2oAT1rpuji0rrlMEogKu2ACspJkmEO"
    "p3j4IiIbe5UEntPCazQgElFEJkwM/8y6VoARpKG0hFoakO+T4IfdwWLmCJwsgx+YQLWGVphv1l3hnYMQ84Oi"
    "JpRKKOXC0wmqgr8/zdBdzg=="
)
LZ4_FLAG, ZSTD_FLAG = 0x2000, 0x8000
NOT_SUPPORTED = 801


def lz4(text: bytes) -> bytes:
    """A block of LZ4: the text but for its last 20 bytes as literals, a match, then literals."""
    head, tail = text[:-20], text[-20:]
    match = 12
    offset = 32

    def length(count: int) -> bytes:
        return b"" if count < 15 else bytes([255] * ((count - 15) // 255) + [(count - 15) % 255])

    copied = head[-offset : -offset + match]
    block = bytes([(min(len(head), 15) << 4) | (match - 4)]) + length(len(head)) + head
    block += struct.pack("<H", offset)
    rest = tail
    return block + bytes([(min(len(rest), 15) << 4)]) + length(
        len(rest)
    ) + rest, head + copied + rest


def fat_binary(kind: int, payload: bytes, flags: int = 0, unpacked: int = 0, sm: int = 90) -> bytes:
    """A container with one entry."""
    padded = payload + bytes(-len(payload) % 8)
    entry = struct.pack(
        "<HHIQIIIIIIQQQ",
        kind, 0x101, 64, len(padded), len(payload) if flags else 0, 0, 0, sm, 64, 0, flags | 0x11,
        0, unpacked,
    )  # fmt: skip
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(padded)) + entry + padded


def error_text(code: int) -> str:
    text = ctypes.c_char_p()
    library.cuGetErrorString(code, ctypes.byref(text))
    return (text.value or b"").decode(errors="replace")


def load(image: bytes) -> ctypes.c_void_p:
    module = ctypes.c_void_p()
    code = library.cuModuleLoadData(ctypes.byref(module), image)
    assert code == 0, error_text(code)
    return module


def find(name: str, version: int = 13000) -> tuple[int | None, int]:
    pointer, status = ctypes.c_void_p(), ctypes.c_int(-1)
    library.cuGetProcAddress_v2(
        name.encode(), ctypes.byref(pointer), version, ctypes.c_uint64(0), ctypes.byref(status)
    )
    return pointer.value, status.value


def add_one(module: ctypes.c_void_p, count: int, stream: ctypes.c_void_p | None = None) -> None:
    """Checks that a module's kernel adds 1 to an array, launched with a buffer of arguments."""
    function, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    assert library.cuModuleGetFunction(ctypes.byref(function), module, b"add_one") == 0
    assert library.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4 * count)) == 0
    assert library.cuMemsetD32_v2(pointer, 7, ctypes.c_size_t(count)) == 0
    buffer = struct.pack("<QI", pointer.value, count)
    size = ctypes.c_size_t(len(buffer))
    extra = (ctypes.c_void_p * 5)(
        1, ctypes.cast(ctypes.c_char_p(buffer), ctypes.c_void_p), 2, ctypes.addressof(size), 0
    )
    code = library.cuLaunchKernel(function, -(-count // 32), 1, 1, 32, 1, 1, 0, stream, None, extra)
    assert code == 0, error_text(code)
    result = np.zeros(count, "uint32")
    to = ctypes.c_void_p(result.ctypes.data)
    assert library.cuMemcpyDtoH_v2(to, pointer, ctypes.c_size_t(4 * count)) == 0
    np.testing.assert_array_equal(result, 8)
    assert library.cuMemFree_v2(pointer) == 0


@pytest.mark.parametrize("form", ["text", "plain", "lz4", "zstd"])
def test_ptx_is_loaded_from_whatever_holds_it(form):
    packed, unpacked = lz4(PTX + b"// " + b"x" * 80)
    # What the match repeats is within a comment.
    image = {
        "text": PTX,
        "plain": fat_binary(1, PTX),
        "lz4": fat_binary(1, packed, LZ4_FLAG, len(unpacked)),
        "zstd": fat_binary(1, ZSTD, ZSTD_FLAG, len(PTX)),
    }[form]
    module = load(image)
    add_one(module, 77)
    assert library.cuModuleUnload(module) == 0
    assert library.cuModuleUnload(module) != 0, "handles are given once"


@pytest.mark.parametrize("form", ["lz4", "zstd"])
def test_damaged_binaries_are_errors(form, rng):
    """Whatever byte is another one: a module, or an error with a reason, and never a crash."""
    packed, unpacked = lz4(PTX) if form == "lz4" else (ZSTD, PTX)
    whole = bytearray(
        fat_binary(1, packed, LZ4_FLAG if form == "lz4" else ZSTD_FLAG, len(unpacked))
    )
    failed = 0
    for place in rng.integers(80, len(whole), 150):
        damaged = whole.copy()
        damaged[place] ^= int(rng.integers(1, 256))
        module = ctypes.c_void_p()
        code = library.cuModuleLoadData(ctypes.byref(module), bytes(damaged))
        if code:
            failed += 1
            assert "warploom emulator: " in error_text(code)
        else:
            library.cuModuleUnload(module)
    assert failed > 50


def test_machine_code_alone_is_refused_with_a_way_out():
    for image in (fat_binary(2, b"\x7fELF" + bytes(60)), b"\x7fELF" + bytes(60)):
        module = ctypes.c_void_p()
        code = library.cuModuleLoadData(ctypes.byref(module), image)
        assert code == 218 and "machine code" in error_text(code)
    assert "code=compute_90" in error_text_of_load(fat_binary(2, b"\x7fELF" + bytes(60)))
    assert "for sm_90" in error_text_of_load(fat_binary(2, b"\x7fELF" + bytes(60)))


def error_text_of_load(image: bytes) -> str:
    return error_text(library.cuModuleLoadData(ctypes.byref(ctypes.c_void_p()), image))


def test_names_have_the_meaning_of_the_version_that_asks():
    address, status = find("cuMemAlloc", 3020)
    assert status == 0 and address == ctypes.cast(library.cuMemAlloc_v2, ctypes.c_void_p).value
    old, new = find("cuStreamGetCaptureInfo", 12000), find("cuStreamGetCaptureInfo", 12030)
    assert old[0] != new[0] and {old[1], new[1]} == {0}
    assert find("cuLibraryLoadData", 11000) == (None, 2), "there was none before 12.0"
    assert find("cuNothingOfTheKind") == (None, 1)


def test_functions_that_are_not_served_say_so():
    address, status = find("cuTexObjectCreate")
    assert status == 0
    code = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    assert code == NOT_SUPPORTED
    assert "cuTexObjectCreate is not served" in error_text(code)
    assert library.cuIpcGetMemHandle(None, None) == NOT_SUPPORTED
    assert "cuIpcGetMemHandle" in error_text(NOT_SUPPORTED)
    # Errors that no call of this thread has made have their own names.
    assert error_text(600) == "CUDA_ERROR_NOT_READY"


#: Functions whose arguments are handles, and numbers of them.
WITH_HANDLES = {
    "cuStreamSynchronize": 1, "cuStreamDestroy_v2": 1, "cuStreamWaitEvent": 3,
    "cuEventRecord": 2, "cuEventDestroy_v2": 1, "cuEventQuery": 1, "cuGraphDestroy": 1,
    "cuGraphLaunch": 2, "cuGraphExecDestroy": 1, "cuLibraryUnload": 1, "cuCtxSetCurrent": 1,
    "cuCtxDestroy_v2": 1, "cuMemPoolDestroy": 1, "cuLinkDestroy": 1, "cuModuleUnload": 1,
    "cuFuncLoad": 1, "cuMemFree_v2": 1, "cuMemHostUnregister": 1, "cuUserObjectRelease": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_HANDLES)
def test_handles_that_are_none_are_errors(name, rng):
    for handle in (3, 0x1234, (1 << 40) + 8, int(rng.integers(1 << 41, 1 << 62))):
        arguments = [ctypes.c_uint64(handle)] * WITH_HANDLES[name]
        assert getattr(library, name)(*arguments) != 0, hex(handle)


def test_a_stream_joins_a_capture_by_an_event():
    """Fork and join: the graph has the work of both streams, in an order that respects events."""
    first, second, forked, joined = (ctypes.c_void_p() for _ in range(4))
    for stream in (first, second):
        assert library.cuStreamCreate(ctypes.byref(stream), 0) == 0
    for event in (forked, joined):
        assert library.cuEventCreate(ctypes.byref(event), 2) == 0
    seen: list[int] = []
    note = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda number: seen.append(number))

    def capture(join: bool) -> tuple[int, ctypes.c_void_p]:
        graph = ctypes.c_void_p()
        assert library.cuStreamBeginCapture_v2(first, 0) == 0
        assert library.cuLaunchHostFunc(first, note, ctypes.c_void_p(1)) == 0
        assert library.cuEventRecord(forked, first) == 0
        assert library.cuStreamWaitEvent(second, forked, 0) == 0
        assert library.cuLaunchHostFunc(second, note, ctypes.c_void_p(2)) == 0
        assert library.cuEventRecord(joined, second) == 0
        if join:
            assert library.cuStreamWaitEvent(first, joined, 0) == 0
        assert library.cuStreamSynchronize(second) == 900, "it is being captured"
        assert library.cuLaunchHostFunc(first, note, ctypes.c_void_p(3)) == 0
        return library.cuStreamEndCapture(first, ctypes.byref(graph)), graph

    assert capture(join=False)[0] == 904, "unjoined"
    code, graph = capture(join=True)
    assert code == 0 and seen == []
    count, executable = ctypes.c_size_t(), ctypes.c_void_p()
    assert library.cuGraphGetEdges(graph, None, None, ctypes.byref(count)) == 0
    assert count.value == 3  # 1 before 2 and 3, 2 before 3
    flags = ctypes.c_uint64(0)
    assert library.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, flags) == 0
    for _ in range(2):
        assert library.cuGraphLaunch(executable, second) == 0
    assert seen == [1, 2, 3] * 2
    for stream in (first, second):
        assert library.cuStreamDestroy_v2(stream) == 0
    assert library.cuGraphExecDestroy(executable) == library.cuGraphDestroy(graph) == 0


def test_memory_tells_what_it_is_and_where_it_ends(rng):
    size = int(rng.integers(1, 5000))
    pointer, base, bytes_ = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t()
    assert library.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(size), 1) == 0
    inside = ctypes.c_uint64(pointer.value + size - 1)
    outside = ctypes.c_uint64(pointer.value + size)
    range_of = library.cuMemGetAddressRange_v2
    assert range_of(ctypes.byref(base), ctypes.byref(bytes_), inside) == 0
    assert (base.value, bytes_.value) == (pointer.value, size)
    assert range_of(ctypes.byref(base), ctypes.byref(bytes_), outside) != 0
    managed = ctypes.c_uint()
    assert library.cuPointerGetAttribute(ctypes.byref(managed), 8, inside) == 0
    assert managed.value == 1
    fill = ctypes.c_uint64(pointer.value), ctypes.c_ubyte(1), ctypes.c_size_t(size + 1)
    assert library.cuMemsetD8_v2(*fill) != 0
    assert "goes beyond its end" in error_text(1)
    assert library.cuMemFree_v2(pointer) == 0
    own = np.arange(size, dtype="uint8")
    address = ctypes.c_void_p(own.ctypes.data)
    assert library.cuMemHostRegister_v2(address, ctypes.c_size_t(size), 0) == 0
    assert library.cuMemHostRegister_v2(address, ctypes.c_size_t(size), 0) != 0
    assert library.cuMemFree_v2(ctypes.c_uint64(own.ctypes.data)) != 0, "it is the program's"
    assert library.cuMemHostUnregister(address) == 0


def test_a_rectangle_is_copied_with_its_pitches(rng):
    """``CUDA_MEMCPY2D`` from the host: rows of 5 of 9 bytes to rows of 16."""
    source = rng.integers(0, 256, (7, 9)).astype("uint8")
    pointer = ctypes.c_uint64()
    assert library.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(16 * 7)) == 0
    assert library.cuMemsetD8_v2(pointer, ctypes.c_ubyte(255), ctypes.c_size_t(16 * 7)) == 0
    copy = struct.pack(
        "<QQQQQQQ QQQQQQQ QQ",
        2, 1, 1, source.ctypes.data, 0, 0, 9, 3, 0, 2, 0, pointer.value, 0, 16, 5, 6,
    )  # fmt: skip
    assert library.cuMemcpy2D_v2(copy) == 0
    result = np.frombuffer((ctypes.c_ubyte * 112).from_address(pointer.value), "uint8").copy()
    expected = np.full((7, 16), 255, "uint8")
    expected[:6, 3:8] = source[1:7, 2:7]
    np.testing.assert_array_equal(result.reshape(7, 16), expected)
    assert library.cuMemFree_v2(pointer) == 0
