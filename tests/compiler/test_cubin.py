"""The cubin reader: kernels of good files, clear errors for damaged ones, cubins inside files."""

from __future__ import annotations

import functools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shared.compiler_kernels import SHARED, compile_uncached
from warploom.compiler.cubin import KernelInfo, find_cubins, read_kernels
from warploom.errors import WarploomError


@functools.cache
def cubin() -> bytes:
    return compile_uncached(SHARED).binary


def read_or_reject(data: bytes) -> tuple[KernelInfo, ...] | None:
    """Kernels, or None after a one-sentence error. Anything else, a crash included, fails."""
    try:
        return read_kernels(data)
    except WarploomError as error:
        assert str(error).startswith("malformed cubin: ") and str(error).endswith(".")
        return None


def test_every_field_of_a_good_file():
    rows, plain = sorted(read_kernels(cubin()), key=lambda info: info.name, reverse=True)
    assert (rows.name, rows.shared_bytes, rows.max_threads) == ("shared_rows", 4000, 256)
    assert (plain.name, plain.shared_bytes, plain.max_threads) == ("plain", 0, 0)
    for info in (rows, plain):
        assert 0 < info.registers <= 255 and info.frame_bytes == info.stack_bytes == 0
        assert info.code_bytes == 16 * info.instructions > 0
    assert (rows.barriers, plain.barriers) == (1, 0)


def test_no_prefix_is_read_past_its_end():
    whole = read_kernels(cubin())
    for length in range(len(cubin())):
        # The program headers at the end are not needed, so that long prefixes may be complete.
        assert read_or_reject(cubin()[:length]) in (None, whole)
    assert read_or_reject(cubin()[: len(cubin()) // 2]) is None


@settings(max_examples=400)
@given(st.data())
def test_corrupted_files_are_read_or_rejected(data):
    damaged = bytearray(cubin())
    for _ in range(data.draw(st.integers(1, 8))):
        # Half of the damage goes to where the structure is: the header and the section table.
        table = struct.unpack_from("<Q", cubin(), 40)[0]
        start = data.draw(st.sampled_from([0, 0, table, 0]))
        stop = len(damaged) - 8 if data.draw(st.booleans()) else min(start + 512, len(damaged) - 8)
        at = data.draw(st.integers(start, stop))
        value = data.draw(st.sampled_from([0, 1, 0xFF, 2**31, 2**63, 2**64 - 1]))
        width = data.draw(st.sampled_from([1, 2, 4, 8]))
        damaged[at : at + width] = struct.pack("<Q", value)[-width:]
    kernels = read_or_reject(bytes(damaged))
    assert kernels is None or all(info.code_bytes <= len(damaged) for info in kernels)


@given(st.binary(max_size=300))
def test_other_files_are_rejected(data):
    assert read_or_reject(data) is None
    assert read_or_reject(cubin()[:64] + data) is None


def test_an_elf_file_for_another_machine_is_named():
    other = bytearray(cubin())
    struct.pack_into("<H", other, 18, 62)
    with pytest.raises(WarploomError, match="not for the CUDA machine"):
        read_kernels(bytes(other))


@given(st.lists(st.binary(max_size=64), min_size=2, max_size=4))
def test_embedded_cubins_are_found_whole(between):
    host = bytearray(cubin()[:64])
    struct.pack_into("<H", host, 18, 62)  # an ELF header of the host around them
    data = bytes(host) + cubin().join(between)
    assert find_cubins(data) == (cubin(),) * (len(between) - 1)


def test_a_cut_off_cubin_is_not_found():
    assert find_cubins(cubin()[:-1]) == ()
