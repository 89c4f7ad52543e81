"""A directory of compiled kernels that processes and machines can share.

An entry is one file: magic, SHA-256 of the rest, length of a JSON header, header, binary. It is
written under another name and renamed, so that a reader sees a whole entry or none; whatever fails
the checksum counts as absent, with a warning, and is written anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from warploom.compiler.cache_key import CacheKey
from warploom.compiler.invoke import Output
from warploom.errors import WarploomError

_MAGIC = b"WLCUBIN1"
_PREFIX = struct.Struct("<8s32sI")  # magic, SHA-256 of what follows it, bytes of the header
_SUFFIX = ".wlc"
_DEFAULT_MEBIBYTES = 1024


@dataclass(frozen=True)
class CubinCache:
    """Compiler outputs by :class:`CacheKey`.

    Attributes
    ----------
    directory : Path
        Created when first written to. A directory that cannot be written serves what it has.
    max_bytes : int
        When a new entry makes the files exceed this, those unused for longest are deleted until
        a tenth of the room is free.
    """

    directory: Path
    max_bytes: int = _DEFAULT_MEBIBYTES << 20

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> CubinCache | None:
        """The cache that the environment asks for, None if ``WARPLOOM_CACHE=0``.

        ``WARPLOOM_CACHE_DIR`` names the directory, by default ``warploom`` in the user's cache
        directory (``XDG_CACHE_HOME``); ``WARPLOOM_CACHE_MB`` bounds it, by default to 1024.

        Raises
        ------
        WarploomError
            If the bound is not a positive whole number.
        """
        if environ.get("WARPLOOM_CACHE", "1") == "0":
            return None
        named = environ.get("WARPLOOM_CACHE_DIR")
        home = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        limit = environ.get("WARPLOOM_CACHE_MB", str(_DEFAULT_MEBIBYTES))
        if not limit.isdecimal() or int(limit) == 0:
            raise WarploomError(
                f"WARPLOOM_CACHE_MB is {limit!r} but must be a positive whole number of mebibytes."
            )
        return cls(Path(named) if named else Path(home, "warploom"), int(limit) << 20)

    def get(self, key: CacheKey) -> Output | None:
        """The output stored under ``key``, or None.

        A key without compiler matches the most recently used entry of any compiler.
        """
        for path in self._candidates(key):
            with contextlib.suppress(OSError):
                output = decode(path.read_bytes())
                if output is not None:
                    with contextlib.suppress(OSError):  # a read-only directory keeps its times
                        os.utime(path)
                    return output
                warnings.warn(
                    f"{path} is damaged; what it held is compiled again.",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return None

    def put(self, key: CacheKey, output: Output) -> bool:
        """Store an output; False if the key has no compiler or the directory refuses."""
        if key.compiler is None:
            return False
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.directory, prefix=".writing-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(encode(output))
                os.replace(temporary, self._path(key.content, key.compiler))
            except BaseException:
                os.unlink(temporary)
                raise
            self._trim()
        except OSError:
            return False
        return True

    def _path(self, content: str, compiler: str) -> Path:
        return self.directory / f"{content}-{compiler}{_SUFFIX}"

    def _candidates(self, key: CacheKey) -> Iterable[Path]:
        if key.compiler is not None:
            return (self._path(key.content, key.compiler),)
        return sorted(self.directory.glob(f"{key.content}-*{_SUFFIX}"), key=_last_use, reverse=True)

    def _trim(self) -> None:
        """Delete the entries unused for longest; other processes may be doing the same."""
        sizes = {}
        for path in self.directory.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(OSError):
                sizes[path] = path.stat().st_size
        total = sum(sizes.values())
        if total <= self.max_bytes:
            return
        for path in sorted(sizes, key=_last_use):
            if total <= self.max_bytes * 9 // 10:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= sizes[path]


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def encode(output: Output) -> bytes:
    """The bytes of an entry."""
    header = json.dumps({"log": output.log, "seconds": output.seconds}).encode()
    payload = struct.pack("<I", len(header)) + header + output.binary
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def decode(entry: bytes) -> Output | None:
    """The inverse of :func:`encode`; None for bytes that are damaged or of another format."""
    if len(entry) < _PREFIX.size:
        return None
    magic, digest, length = _PREFIX.unpack_from(entry)
    checked = entry[len(_MAGIC) + len(digest) :]
    if magic != _MAGIC or hashlib.sha256(checked).digest() != digest:
        return None
    header = json.loads(entry[_PREFIX.size : _PREFIX.size + length])
    return Output(entry[_PREFIX.size + length :], header["log"], header["seconds"])
