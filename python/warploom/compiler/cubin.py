"""Cubins: the facts about kernels in them, and their places inside other files."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from warploom.errors import WarploomError

_ELF_MAGIC = b"\x7fELF\x02\x01\x01"
_MACHINE_CUDA = 190
_HEADER_BYTES = 64
#: The options that ptxas notes in a cubin (section ``.note.nv.tkinfo``).
_OPTION = re.compile(rb"-arch[ =](sm_\d+[af]?)\b")
#: ABI version from which the second byte of the flags is the architecture, before it the first.
_SECOND_BYTE_SINCE = 8


@dataclass(frozen=True)
class KernelInfo:
    """The resources of one kernel, as its cubin gives them (``src/cubin/kernel_info.h``).

    Attributes
    ----------
    name : str
    registers : int
        32-bit registers a thread has at launch, before any ``setmaxnreg``.
    shared_bytes : int
        Static shared memory a CTA, without the KiB that the system reserves.
    frame_bytes, stack_bytes : int
        Local memory a thread: of the kernel's own frame, and of its deepest call chain.
    max_threads : int
        The bound of ``__launch_bounds__``; 0 if there is none.
    barriers : int
        Named barriers a CTA.
    code_bytes, instructions : int
        Size of the machine code, padding included; an instruction has 16 bytes.
    """

    name: str
    registers: int
    shared_bytes: int
    frame_bytes: int
    stack_bytes: int
    max_threads: int
    barriers: int
    code_bytes: int
    instructions: int


def read_kernels(cubin: bytes) -> tuple[KernelInfo, ...]:
    """The kernels of a cubin, in the order of its symbol table.

    Raises
    ------
    WarploomError
        If the bytes are not a cubin or are damaged; the message says where.
    ToolchainError
        If the native library is missing.
    """
    import tvm_ffi

    from warploom.runtime.native import library

    library()
    kernels = tvm_ffi.get_global_func("warploom.cubin.kernels")
    try:
        entries = kernels(cubin)
    except ValueError as error:
        raise WarploomError(str(error)) from None
    return tuple(
        KernelInfo(**{k: str(v) if k == "name" else int(v) for k, v in kernel.items()})
        for kernel in entries
    )


def architecture(cubin: bytes) -> str:
    """Return the architecture that a cubin was compiled for, such as ``"sm_100a"``.

    Without a note of ptxas it is the number in the ELF header, which does not tell ``sm_90`` from
    ``sm_90a``.

    Raises
    ------
    WarploomError
        If the bytes are not a cubin.
    """
    if not cubin.startswith(_ELF_MAGIC) or not _cubin_size(cubin[:_HEADER_BYTES]):
        raise WarploomError("The bytes are no cubin: they do not begin with its ELF header.")
    if option := _OPTION.search(cubin):
        return option[1].decode()
    (flags,) = struct.unpack_from("<I", cubin, 48)
    return f"sm_{flags >> 8 & 0xFF if cubin[8] >= _SECOND_BYTE_SINCE else flags & 0xFF}"


def find_cubins(data: bytes) -> tuple[bytes, ...]:
    """The cubins inside a file: itself, or those in a library that ``export_library`` wrote.

    Compressed ones, as nvcc puts into a fatbin, are not found.
    """
    return tuple(_cubins(data))


def _cubins(data: bytes) -> Iterator[bytes]:
    at = data.find(_ELF_MAGIC)
    while at >= 0:
        size = _cubin_size(data[at : at + _HEADER_BYTES])
        if size and at + size <= len(data):
            yield data[at : at + size]
        at = data.find(_ELF_MAGIC, at + (size or 1))


def _cubin_size(header: bytes) -> int:
    """Bytes of the cubin with this ELF header, 0 if it is another kind of ELF file.

    The last thing in a cubin is one of its two tables of headers.
    """
    if len(header) < _HEADER_BYTES or struct.unpack_from("<H", header, 18)[0] != _MACHINE_CUDA:
        return 0
    program_table, section_table = struct.unpack_from("<QQ", header, 32)
    program_bytes, programs, section_bytes, sections = struct.unpack_from("<4H", header, 54)
    return max(program_table + program_bytes * programs, section_table + section_bytes * sections)
