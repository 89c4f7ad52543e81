"""Files of a work directory: replaced as a whole, and written by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from warploom.compiler.cache import CubinCache
from warploom.errors import CacheWarning, NotSaved, WarploomError
from warploom.warn import warn

#: The file that a process locks while it writes; the system unlocks it when the process ends.
LOCK = "warploom_tuning.lock"


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that readers, also after a crash, see the old file or the new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        os.fchmod(handle, 0o644)  # others may read it, as if it had been opened
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise


@contextlib.contextmanager
def cached_folder(name: str) -> Iterator[Path]:
    """A folder of tuning records in the cache.

    A temporary one with ``WARPLOOM_CACHE=0``, and where the cache cannot be written.

    Parameters
    ----------
    name : str
        Of the folder.
    """
    cache = CubinCache.from_environment(os.environ)
    if cache is not None:
        folder = cache.directory / "autotune" / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            warn(
                f"Tuning records cannot be written to {folder} ({error.strerror}), so that every "
                "process measures anew; set WARPLOOM_CACHE_DIR to a folder that can.",
                CacheWarning,
            )
        else:
            yield folder
            return
    with tempfile.TemporaryDirectory(prefix="warploom-tuning-") as temporary:
        yield Path(temporary)


@contextlib.contextmanager
def only_writer(folder: str | Path, wait: bool = False) -> Iterator[None]:
    """Make sure that no other process tunes in a folder, or mends it.

    Parameters
    ----------
    folder : path
    wait : bool
        Whether to wait for another process that does.

    Raises
    ------
    WarploomError
        If another process does, and ``wait`` is false.
    NotSaved
        If nothing can be written to the folder.
    """
    path = Path(folder, LOCK)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise NotSaved.of(path, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        owner = os.read(handle, 20).decode(errors="replace").strip()
        os.close(handle)
        raise WarploomError(
            f"Process {owner or 'of another user'} tunes in {folder}; wait for it, or tune in "
            "another folder and join both by `warploom tune db merge`."
        ) from None
    try:
        with contextlib.suppress(OSError):  # only for the message of others
            os.ftruncate(handle, 0)
            os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        os.close(handle)
