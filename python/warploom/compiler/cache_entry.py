"""The bytes of a cache entry: its name, a compiler's output, and a digest of all of that.

An entry that somebody has renamed, cut or changed is recognised by its bytes alone, so that no
request is ever answered with the entry of another.
"""

from __future__ import annotations

import hashlib
import json
import struct

from warploom.compiler.invoke import Output

_MAGIC = b"WLCUBIN2"
#: Magic, SHA-256 of the rest, bytes of the name, bytes of the JSON header.
_PREFIX = struct.Struct("<8s32sII")
_DIGEST_END = 8 + 32


def encode(name: str, output: Output) -> bytes:
    """The bytes of the entry ``name``."""
    own = name.encode()
    header = json.dumps({"log": output.log, "seconds": output.seconds}).encode()
    payload = struct.pack("<II", len(own), len(header)) + own + header + output.binary
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def decode(name: str, entry: bytes) -> Output | None:
    """The inverse of :func:`encode`.

    Returns
    -------
    Output or None
        None for bytes that are damaged, of another format, or of an entry with another name.
    """
    if len(entry) < _PREFIX.size:
        return None
    magic, digest, name_bytes, header_bytes = _PREFIX.unpack_from(entry)
    if magic != _MAGIC or hashlib.sha256(memoryview(entry)[_DIGEST_END:]).digest() != digest:
        return None
    header_at = _PREFIX.size + name_bytes
    binary_at = header_at + header_bytes
    if entry[_PREFIX.size : header_at] != name.encode():
        return None
    try:
        header = json.loads(entry[header_at:binary_at])
        return Output(entry[binary_at:], header["log"], header["seconds"])
    except (ValueError, TypeError, KeyError):  # a digest that somebody has made himself
        return None
