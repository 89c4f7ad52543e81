"""The folder of a cache, opened so that no other user can replace its entries.

Entries hold machine code and host code, which run in this process: a user who can write the folder
can run code as its reader. A :class:`CacheFolder` is therefore used only while its owner alone can
write it. It is held by a descriptor; files are opened relative to that, without following links
and without waiting for a writer, and only regular files of at most a given size are read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: Folder of this format of entries inside a cache; other versions of warploom have others.
VERSION = "v2"
#: Start of the names of entries while they are written. Their writers hold a lock on them.
_WRITING = ".writing-"
#: Rights to write that only the owner may have.
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a FIFO waits until somebody writes to it.
_OPEN_ENTRY = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeFolder(Exception):
    """A folder that another user can write; the message names the user and the fix."""


@dataclass(frozen=True)
class File:
    """A file of the folder: its name, bytes, and time of last use in seconds since 1970."""

    name: str
    size: int
    used: float


@dataclass(frozen=True)
class CacheFolder:
    """An open folder of entries.

    Attributes
    ----------
    path : Path
    descriptor : int
        Of the folder.
    mode : int
        Rights of the folder, as ``st_mode`` has them.
    """

    path: Path
    descriptor: int
    mode: int

    def read(self, name: str, most: int) -> bytes | None:
        """The contents of a regular file of at most ``most`` bytes that its owner alone can write.

        Raises
        ------
        FileNotFoundError
            If there is no such file. For anything else in its place the result is None.
        """
        try:
            file = os.open(name, _OPEN_ENTRY, dir_fd=self.descriptor)
        except FileNotFoundError:
            raise
        except OSError:  # a link, a socket, or a file without the right to read it
            return None
        try:
            state = os.fstat(file)
            if not stat.S_ISREG(state.st_mode) or state.st_mode & _OTHERS_WRITE:
                return None
            if state.st_size > most:
                return None
            return _read_all(file, state.st_size)
        except OSError:
            return None
        finally:
            os.close(file)

    def touch(self, name: str) -> None:
        """Note that an entry was used now; a folder that cannot be written keeps its times."""
        with contextlib.suppress(OSError):
            os.utime(name, dir_fd=self.descriptor, follow_symlinks=False)

    def write(self, name: str, contents: bytes) -> None:
        """Make a file appear whole, in the place of a file of its name.

        Those who may read the folder may read the file.

        Raises
        ------
        OSError
            If it cannot be written; nothing is left then.
        """
        file, temporary = self._begin()
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(contents)
                stream.flush()
                os.fchmod(file, 0o600 | self.mode & 0o044)
                folder = self.descriptor
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            self.remove(temporary)
            raise

    def _begin(self) -> tuple[int, str]:
        """A new file, open and locked, and its name."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            name = f"{_WRITING}{os.urandom(8).hex()}"
            file = os.open(name, flags, 0o600, dir_fd=self.descriptor)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return file, name
            os.close(file)  # deleted by another process before it was locked

    def remove(self, name: str) -> None:
        """Delete a file; another process may have done it."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self.descriptor)

    def names(self) -> list[str]:
        """Names of all entries of the folder."""
        return os.listdir(self.descriptor)

    def files(self) -> list[File]:
        """The regular files, those that are being written too; leftovers are deleted."""
        result = []
        with os.scandir(self.descriptor) as entries:
            for entry in entries:
                try:
                    state = entry.stat(follow_symlinks=False)
                except OSError:  # deleted meanwhile
                    continue
                if not stat.S_ISREG(state.st_mode):
                    continue
                if not (entry.name.startswith(_WRITING) and self._remove_leftover(entry.name)):
                    result.append(File(entry.name, state.st_size, state.st_mtime))
        return result

    def _remove_leftover(self, name: str) -> bool:
        """Delete an unfinished file whose writer holds no lock, because it was killed."""
        try:
            file = os.open(name, _OPEN_ENTRY, dir_fd=self.descriptor)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.remove(name)
            return True
        except OSError:  # its writer is alive, or there are no locks
            return False
        finally:
            os.close(file)


def is_unfinished(name: str) -> bool:
    """Whether a name is that of an entry while it is written."""
    return name.startswith(_WRITING)


def _read_all(file: int, size: int) -> bytes:
    parts = []
    while size > 0:
        part = os.read(file, size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


@contextlib.contextmanager
def opened(cache: Path, create: bool = False, named_owner: bool = False) -> Iterator[CacheFolder]:
    """Open the folder of this version's entries in a cache.

    Parameters
    ----------
    cache : Path
        Absolute. It, and the folder in it, are made with mode 0700 if they are missing.
    create : bool
        Whether to make them.
    named_owner : bool
        Whether the folders may belong to anybody, because the user has named them.

    Raises
    ------
    UnsafeFolder
        If others than the owner can write one of the folders, or the owner is neither this user
        nor root.
    OSError
        If there are no such folders, or they cannot be made or opened.
    """
    path = cache / VERSION
    if create:
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.mkdir(mode=0o700, exist_ok=True)
    _require_safe(cache, os.stat(cache), named_owner, sticky=True)
    if create:
        path.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, _OPEN_FOLDER)
    try:
        state = os.fstat(descriptor)
        _require_safe(path, state, named_owner)
        yield CacheFolder(path, descriptor, state.st_mode)
    finally:
        os.close(descriptor)


def refusal(cache: Path) -> str | None:
    """Why a cache of the user's own is not used although it is there, or None."""
    try:
        with opened(cache):
            return None
    except UnsafeFolder as reason:
        return str(reason)
    except OSError:
        return None


def _require_safe(
    folder: Path, state: os.stat_result, named_owner: bool, sticky: bool = False
) -> None:
    """Raise unless only the owner can replace entries of a folder, and is trusted.

    In a folder like ``/tmp``, whose mode has the sticky bit, nobody can exchange what belongs to
    somebody else.
    """
    safe_by_bit = sticky and state.st_mode & stat.S_ISVTX
    if state.st_mode & _OTHERS_WRITE and not safe_by_bit:
        raise UnsafeFolder(
            f"{folder} has mode {stat.S_IMODE(state.st_mode):04o}, so that others than its owner "
            f"can write it; run: chmod go-w {folder}"
        )
    if not named_owner and state.st_uid not in (os.geteuid(), 0):
        raise UnsafeFolder(
            f"{folder} belongs to the user with id {state.st_uid}, who can change what this "
            f"process, of the user with id {os.geteuid()}, would run; set WARPLOOM_CACHE_DIR to a "
            "folder of your own, or name this one in WARPLOOM_CACHE_READ if you trust its owner"
        )


def default_folder(environ: Mapping[str, str]) -> Path:
    """``warploom`` in the user's cache directory; always absolute.

    The cache directory is ``XDG_CACHE_HOME`` if that is an absolute path, as its specification
    asks, else ``~/.cache``. A user without a home has a folder in the directory for temporary
    files, which is his by its owner.
    """
    if os.path.isabs(environ.get("XDG_CACHE_HOME", "")):
        return Path(environ["XDG_CACHE_HOME"], "warploom")
    for home in (environ.get("HOME", ""), _home_of_account()):
        if os.path.isabs(home):
            return Path(home, ".cache", "warploom")
    return Path(tempfile.gettempdir(), f"warploom-{os.geteuid()}").absolute()


def _home_of_account() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:  # a container may run a user without an account
        return ""
