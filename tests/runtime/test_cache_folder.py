"""The folder of a cache: who may write it, what may lie in it, and who else may read it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from warploom.compiler import cache as caches
from warploom.compiler.cache import CubinCache
from warploom.compiler.cache_key import CacheKey
from warploom.compiler.invoke import Output
from warploom.errors import CacheWarning
from warploom.runtime import cache_folder
from warploom.runtime.cache_folder import VERSION, default_folder

KEY = CacheKey("0" * 64, "a" * 16)
OTHER = CacheKey("1" * 64, "a" * 16)
NAME = f"{KEY.content}-{KEY.compiler}.wlc"
OUTPUT = Output(b"binary", "log", 1.5)


@pytest.fixture(autouse=True)
def nothing_said():
    """What is said once in a process is said once in each test."""
    caches._say_once.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("always", CacheWarning)
        yield


@pytest.fixture
def cache(tmp_path) -> CubinCache:
    return CubinCache(tmp_path / "cache")


@pytest.fixture
def folder(cache) -> Path:
    return cache.directory / VERSION


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_folders_and_entries_are_the_users_alone(cache, folder, umask):
    before = os.umask(umask)
    try:
        assert cache.put(KEY, OUTPUT)
    finally:
        os.umask(before)
    assert [_mode(path) for path in (cache.directory, folder, folder / NAME)] == [
        0o700,
        0o700,
        0o600,
    ]


@pytest.mark.parametrize(
    ("which", "mode"), [(w, m) for w in ("cache", "folder") for m in (0o720, 0o702, 0o777, 0o770)]
)
def test_a_folder_that_others_can_write_is_not_used(cache, folder, which, mode):
    cache.put(KEY, OUTPUT)
    wrong = cache.directory if which == "cache" else folder
    wrong.chmod(mode)
    with pytest.warns(CacheWarning) as caught:
        assert cache.get(KEY) is None and not cache.put(OTHER, OUTPUT) and cache.get(KEY) is None
    (said,) = caught  # once, not for each call
    text = str(said.message)
    assert f"{wrong} has mode {mode:04o}" in text and f"chmod go-w {wrong}" in text
    assert [path.name for path in folder.iterdir()] == [NAME]
    wrong.chmod(0o755)
    assert cache.get(KEY) == OUTPUT


def test_a_folder_like_tmp_may_hold_a_cache(cache):
    cache.directory.mkdir()
    cache.directory.chmod(0o1777)
    assert cache.put(KEY, OUTPUT) and cache.get(KEY) == OUTPUT


@pytest.mark.parametrize("which", ["cache", "folder"])
def test_a_folder_of_somebody_else_is_not_used_unless_it_is_named(
    cache, folder, which, monkeypatch, tmp_path
):
    cache.put(KEY, OUTPUT)
    wrong = cache.directory if which == "cache" else folder
    if os.geteuid() == 0:
        os.chown(wrong, 12345, -1)
    else:  # nobody but root gives folders away: then this process is somebody else
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.warns(CacheWarning, match=r"belongs to the user with id .* WARPLOOM_CACHE_READ"):
        assert cache.get(KEY) is None
    own = CubinCache(tmp_path / "own", readable=(cache.directory,))
    assert own.get(KEY) == OUTPUT


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)  # a socket's path has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name[:80])
        os.rename(path.name[:80], path.name)
    finally:
        os.chdir(before)


def _link_to_the_entry(path: Path) -> None:
    path.symlink_to(path.with_name(NAME))


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def _the_other_entry(path: Path) -> None:
    path.with_name(NAME).rename(path)


def _by_others(path: Path) -> None:
    path.with_name(NAME).rename(path)
    path.chmod(0o622)


def _of_a_tebibyte(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


PLANTED = [_fifo, _socket, Path.mkdir, _link_to_the_entry, _link_to_itself, _the_other_entry]
PLANTED += [_by_others, _of_a_tebibyte, Path.touch]
PLANTED += [lambda path, n=n: path.write_bytes(b"WLCUBIN2"[:n] + bytes(n)) for n in (1, 8, 40, 99)]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_whatever_else_has_the_name_of_an_entry_is_a_miss(cache, folder, plant):
    cache.put(KEY, OUTPUT)
    plant(folder / NAME.replace("0" * 64, "1" * 64))
    with pytest.warns(CacheWarning, match="is damaged"):
        assert cache.get(OTHER) is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert cache.get(CacheKey(OTHER.content, None)) is None
    if plant is Path.mkdir:
        with pytest.warns(CacheWarning, match="cannot be written"):
            assert not cache.put(OTHER, OUTPUT)
    else:
        assert cache.put(OTHER, OUTPUT) and cache.get(OTHER) == OUTPUT


def test_renamed_entries_never_answer_for_each_other(cache, folder):
    """Two entries exchanged: the outputs are of other kernels, and both are whole."""
    cache.put(KEY, OUTPUT)
    cache.put(OTHER, Output(b"other", "", 2.0))
    one, two = (folder / f"{key.content}-{key.compiler}.wlc" for key in (KEY, OTHER))
    one.rename(folder / "away")
    two.rename(one)
    (folder / "away").rename(two)
    for key in (KEY, OTHER, CacheKey(KEY.content, None)):
        with pytest.warns(CacheWarning, match="is damaged"):
            assert cache.get(key) is None


@pytest.mark.parametrize("link", ["cache", "folder"])
def test_the_cache_may_be_a_link_and_its_folder_may_not(cache, folder, tmp_path, link):
    cache.put(KEY, OUTPUT)
    if link == "cache":
        cache.directory.rename(tmp_path / "elsewhere")
        cache.directory.symlink_to(tmp_path / "elsewhere")
        assert cache.get(KEY) == OUTPUT
    else:
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
        assert cache.get(KEY) is None


_KILLED = """
import os, signal, sys
from pathlib import Path
from warploom.runtime import cache_folder
def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
os.replace = stop
with cache_folder.opened(Path(sys.argv[1]), create=True) as folder:
    folder.write("entry", bytes(100_000))
"""


def test_what_a_killed_writer_left_is_removed(cache, folder):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(cache.directory)], env=environ, timeout=120
    )
    assert killed.returncode == -signal.SIGKILL
    (left,) = folder.iterdir()
    assert left.stat().st_size == 100_000
    assert cache.put(KEY, OUTPUT)
    assert [path.name for path in folder.iterdir()] == [NAME]


def test_what_is_being_written_is_kept_and_counted(cache, folder):
    cache.put(KEY, OUTPUT)
    with cache_folder.opened(cache.directory) as opened:
        file, name = opened._begin()
        try:
            os.write(file, bytes(1000))
            sizes = {each.name: each.size for each in opened.files()}
            assert sizes[name] == 1000 and set(sizes) == {name, NAME}
            small = CubinCache(cache.directory, max_bytes=999)
            assert small.put(OTHER, OUTPUT)  # no room, since 1000 bytes are taken
            assert [path.name for path in folder.iterdir()] == [name]
        finally:
            os.close(file)
            opened.remove(name)


def _read_only(cache: CubinCache) -> None:
    cache.directory.chmod(0o500)


def _file_in_the_way(cache: CubinCache) -> None:
    cache.directory.rmdir()
    cache.directory.write_text("in the way")


def _file_for_the_folder(cache: CubinCache) -> None:
    (cache.directory / VERSION).write_text("in the way")


SPOILT = [_file_in_the_way, _file_for_the_folder]
SPOILT += [_read_only] if os.geteuid() else []  # root can write everywhere


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_cache_that_cannot_be_written_says_so_once(cache, spoil):
    cache.directory.mkdir(mode=0o700)
    spoil(cache)
    with pytest.warns(CacheWarning, match=r"cannot be written .* set WARPLOOM_CACHE_DIR") as caught:
        for key in (KEY, OTHER):
            assert cache.get(key) is None and not cache.put(key, OUTPUT)
    assert len(caught) == 1


def test_a_full_disk_leaves_nothing(cache, folder, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    cache.put(KEY, OUTPUT)
    monkeypatch.setattr(os, "fchmod", full)
    with pytest.warns(CacheWarning, match="No space left on device"):
        assert not cache.put(OTHER, OUTPUT)
    assert [path.name for path in folder.iterdir()] == [NAME]


def test_a_readable_folder_is_read_and_never_written(tmp_path, recwarn):
    theirs, mine = CubinCache(tmp_path / "theirs"), tmp_path / "mine"
    theirs.put(KEY, OUTPUT)
    os.utime(theirs.directory / VERSION / NAME, (1, 1))
    cache = CubinCache(mine, readable=(theirs.directory,))
    assert cache.get(KEY) == OUTPUT and cache.get(CacheKey(KEY.content, None)) == OUTPUT
    assert (theirs.directory / VERSION / NAME).stat().st_mtime == 1
    assert cache.get(OTHER) is None and cache.put(OTHER, OUTPUT)
    assert theirs.get(OTHER) is None and cache.get(OTHER) == OUTPUT
    mine_first = Output(b"mine", "", 0.0)
    cache.put(KEY, mine_first)
    assert cache.get(KEY) == mine_first
    assert not recwarn.list


def test_a_readable_folder_that_others_can_write_or_that_is_not_there_is_named(tmp_path):
    theirs = CubinCache(tmp_path / "theirs")
    theirs.put(KEY, OUTPUT)
    (theirs.directory / VERSION).chmod(0o775)
    cache = CubinCache(tmp_path / "mine", readable=(theirs.directory, tmp_path / "typo"))
    with pytest.warns(CacheWarning) as caught:
        assert cache.get(KEY) is None and cache.get(KEY) is None
    first, second = (str(each.message) for each in caught)
    assert "has mode 0775" in first
    assert f"WARPLOOM_CACHE_READ names {tmp_path / 'typo'}" in second


def test_entries_can_be_read_by_those_who_can_read_the_folder(cache, folder):
    cache.put(KEY, OUTPUT)
    folder.chmod(0o750)
    cache.put(OTHER, OUTPUT)
    assert _mode(folder / NAME) == 0o600
    assert _mode(folder / NAME.replace("0" * 64, "1" * 64)) == 0o640


def test_entries_of_older_versions_are_neither_read_nor_written(cache):
    cache.put(KEY, OUTPUT)
    entry = (cache.directory / VERSION / NAME).read_bytes()
    (cache.directory / VERSION / NAME).rename(cache.directory / NAME)
    assert cache.get(KEY) is None
    assert cache.put(KEY, Output(b"new", "", 0.0))
    assert (cache.directory / NAME).read_bytes() == entry


@pytest.mark.parametrize("home", [None, "", "relative"])
@pytest.mark.parametrize("xdg", [None, "", "relative"])
@pytest.mark.parametrize("account", ["/home/somebody", "", None])
def test_the_folder_is_absolute_with_and_without_a_home(monkeypatch, home, xdg, account):
    class Account:
        pw_dir = account

    def lookup(_):
        if account is None:
            raise KeyError("no such user")
        return Account

    monkeypatch.setattr(cache_folder.pwd, "getpwuid", lookup)
    named = {"HOME": home, "XDG_CACHE_HOME": xdg}
    found = default_folder({name: value for name, value in named.items() if value is not None})
    assert found.is_absolute()
    if account:
        assert found == Path(account, ".cache", "warploom")
    else:
        assert found.name == f"warploom-{os.geteuid()}"


def test_named_folders_are_absolute_and_stay_where_they_were(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    environ = {"WARPLOOM_CACHE_DIR": "some/cache-of-a-test", "WARPLOOM_CACHE_READ": "a:/b::~/c"}
    first = CubinCache.from_environment(environ)
    monkeypatch.chdir("/")
    assert CubinCache.from_environment(environ) == first
    assert first.directory == tmp_path / "some" / "cache-of-a-test"
    assert first.readable == (tmp_path / "a", Path("/b"), Path("~/c").expanduser())


_CROWD = """
import sys
from pathlib import Path
from warploom.compiler.cache import CubinCache
from warploom.compiler.cache_key import CacheKey
from warploom.compiler.invoke import Output
import random, warnings
warnings.simplefilter("error")
cache = CubinCache(Path(sys.argv[1]), max_bytes=200_000)  # room for 20 of 40 entries
random.seed(sys.argv[2])
hits = 0
for _ in range(400):
    number = random.randrange(40)
    key = CacheKey(f"{number:064x}", "a" * 16)
    output = cache.get(key)
    if output is None:
        assert cache.put(key, Output(bytes([number]) * 10_000, "", float(number)))
    else:
        assert output == Output(bytes([number]) * 10_000, "", float(number))
        hits += 1
print(hits)
"""


def test_many_processes_write_and_evict_at_the_same_time(cache, folder):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", _CROWD, str(cache.directory), str(seed)],
            env=environ, stdout=subprocess.PIPE, text=True,
        )
        for seed in range(4)
    ]  # fmt: skip
    hits = [int(process.communicate(timeout=240)[0]) for process in crowd]
    assert [process.returncode for process in crowd] == [0] * 4 and all(hits)
    cache = CubinCache(cache.directory, max_bytes=200_000)
    cache.put(KEY, OUTPUT)
    files = list(folder.iterdir())
    assert all(path.suffix == ".wlc" for path in files)
    assert sum(path.stat().st_size for path in files) <= cache.max_bytes
