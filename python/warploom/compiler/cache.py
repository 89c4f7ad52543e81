"""A folder of compiled kernels that processes can share.

An entry is one file (:mod:`warploom.compiler.cache_entry`). It is written under another name and
renamed, so that a reader sees a whole entry or none; a file that is no entry of that name counts
as absent, and is written anew. Entries are run as code: which folders are trusted is said in
:mod:`warploom.runtime.cache_folder`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from warploom.compiler.cache_entry import decode, encode
from warploom.compiler.cache_key import CacheKey
from warploom.compiler.invoke import Output
from warploom.errors import CacheWarning, WarploomError
from warploom.runtime import cache_folder
from warploom.runtime.cache_folder import CacheFolder, UnsafeFolder
from warploom.warn import warn

_SUFFIX = ".wlc"
_DEFAULT_MEBIBYTES = 1024


@dataclass(frozen=True)
class CubinCache:
    """Compiler outputs by :class:`CacheKey`.

    Attributes
    ----------
    directory : Path
        Made with mode 0700 when first written to. It serves its entries if it cannot be written,
        and nothing if others than its owner can write it; either is said in a
        :class:`~warploom.errors.CacheWarning`, once in a process.
    max_bytes : int
        When a new entry makes the files exceed this, those unused for longest are deleted until
        a tenth of the room is free.
    readable : tuple of Path
        Folders that are searched after ``directory``, and never written. Their user trusts
        their owners, who alone may be able to write them.

    Examples
    --------
    A team shares the kernels that a build machine has compiled: that machine runs with
    ``WARPLOOM_CACHE_DIR=/srv/kernels``, after ``chmod -R go+rX /srv/kernels``; all
    others run with ``WARPLOOM_CACHE_READ=/srv/kernels``.
    """

    directory: Path
    max_bytes: int = _DEFAULT_MEBIBYTES << 20
    readable: tuple[Path, ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> CubinCache | None:
        """The cache that the environment asks for, None if ``WARPLOOM_CACHE=0``.

        ``WARPLOOM_CACHE_DIR`` names the directory, by default ``warploom`` in the user's cache
        directory (``XDG_CACHE_HOME``); ``WARPLOOM_CACHE_MB`` bounds it, by default to 1024;
        ``WARPLOOM_CACHE_READ`` lists folders to read besides, separated by colons.

        Raises
        ------
        WarploomError
            If the bound is not a positive whole number.
        """
        if environ.get("WARPLOOM_CACHE", "1") == "0":
            return None
        named = environ.get("WARPLOOM_CACHE_DIR")
        limit = environ.get("WARPLOOM_CACHE_MB", str(_DEFAULT_MEBIBYTES))
        if not limit.isdecimal() or int(limit) == 0:
            raise WarploomError(
                f"WARPLOOM_CACHE_MB is {limit!r} but must be a positive whole number of mebibytes."
            )
        folders = environ.get("WARPLOOM_CACHE_READ", "").split(os.pathsep)
        return cls(
            _absolute(named) if named else cache_folder.default_folder(environ),
            int(limit) << 20,
            tuple(_absolute(folder) for folder in folders if folder),
        )

    def get(self, key: CacheKey) -> Output | None:
        """The output stored under ``key``, or None.

        A key without compiler matches the most recently used entry of any compiler.
        """
        for path in (self.directory, *self.readable):
            own = path == self.directory
            try:
                with cache_folder.opened(path, named_owner=not own) as folder:
                    output = self._find(folder, key, own)
            except UnsafeFolder as reason:
                _say_once(path, f"The cache is not used: {reason}")
            except OSError as error:
                if not own:  # the user's own appears with the first entry
                    _say_once(
                        path,
                        f"WARPLOOM_CACHE_READ names {path}, which has no folder "
                        f"{cache_folder.VERSION} that can be read ({error.strerror or error}).",
                    )
            else:
                if output is not None:
                    return output
        return None

    def put(self, key: CacheKey, output: Output) -> bool:
        """Store an output; False if the key has no compiler or the directory refuses."""
        if key.compiler is None:
            return False
        name = _name(key.content, key.compiler)
        try:
            with cache_folder.opened(self.directory, create=True) as folder:
                folder.write(name, encode(name, output))
                self._trim(folder)
        except UnsafeFolder as reason:
            _say_once(self.directory, f"The cache is not used: {reason}")
            return False
        except OSError as error:
            _say_once(
                self.directory,
                f"The cache {self.directory} cannot be written ({error.strerror or error}), so "
                "that every process compiles anew; set WARPLOOM_CACHE_DIR to a folder that can, "
                "or WARPLOOM_CACHE=0.",
            )
            return False
        return True

    def _find(self, folder: CacheFolder, key: CacheKey, own: bool) -> Output | None:
        for name in _candidates(folder, key):
            try:
                entry = folder.read(name, self.max_bytes)
            except FileNotFoundError:
                continue
            output = decode(name, entry) if entry is not None else None
            if output is not None:
                if own:
                    folder.touch(name)
                return output
            warn(f"{folder.path / name} is damaged; its kernel is compiled again.", CacheWarning)
        return None

    def _trim(self, folder: CacheFolder) -> None:
        """Delete the entries unused for longest; other processes may be doing the same."""
        files = folder.files()
        total = sum(file.size for file in files)
        if total <= self.max_bytes:
            return
        for file in sorted(files, key=lambda file: file.used):
            if total <= self.max_bytes * 9 // 10:
                break
            if not cache_folder.is_unfinished(file.name):
                folder.remove(file.name)
                total -= file.size


def _name(content: str, compiler: str) -> str:
    return f"{content}-{compiler}{_SUFFIX}"


def _candidates(folder: CacheFolder, key: CacheKey) -> Iterable[str]:
    if key.compiler is not None:
        return (_name(key.content, key.compiler),)
    files = [
        file
        for file in folder.files()
        if file.name.startswith(f"{key.content}-") and file.name.endswith(_SUFFIX)
    ]
    return [file.name for file in sorted(files, key=lambda file: file.used, reverse=True)]


@functools.cache
def _absolute(named: str) -> Path:
    """A folder that the user has named, wherever the process goes later."""
    return Path(os.path.abspath(os.path.expanduser(named)))


@functools.cache
def _say_once(folder: Path, text: str) -> None:
    warn(text, CacheWarning)
