"""What all tests share: the emulator where there is no GPU, markers, and a random generator.

``tests/README.md`` says how the tests are run.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from tests.shared import selection
from warploom import emulator

#: Base of every test's seed; another value gives every test other data.
BASE_SEED = int(os.environ.get("WARPLOOM_TEST_SEED", "0"))

#: With several processes, each of them has one thread for each of these.
_THREADS = (
    *("WARPLOOM_EMULATOR_THREADS", "TVM_NUM_THREADS"),
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
)

# Building TVM programs takes longer than hypothesis' deadline for one example.
hypothesis.settings.register_profile("warploom", deadline=None, print_blob=True)
hypothesis.settings.load_profile("warploom")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run all tests marked slow or long")
    parser.addoption(
        "--slow-seed", type=int, metavar="N", help="draws other tests marked slow (the commit)"
    )
    parser.addoption(
        "--every-case", action="store_true", help="all cases of functions marked some(n)"
    )
    parser.addoption("--record-cuda", metavar="FOLDER", help="see cuda_record.py")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """All cores test a folder (``-n auto``), one process tests files; ``-n`` says otherwise."""
    option = config.option
    if not hasattr(option, "numprocesses") or hasattr(config, "workerinput"):
        return  # there is no pytest-xdist, or this is one of its processes
    if option.numprocesses is None and not option.tx:
        has_folder = any(Path(one).is_dir() for one in config.args)
        option.numprocesses = "auto" if has_folder and not option.trace else 0
    if option.numprocesses and option.dist == "no":
        # Tests of a file stay together until a process has nothing left.
        option.dist = "worksteal"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """The cores that this process may use; pytest-xdist would count neither all nor only those."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return len(os.sched_getaffinity(0))


def pytest_configure(config: pytest.Config) -> None:
    """Where there is no GPU, kernels run on the emulator, which checks them."""
    config.option.slow_seed = selection.seed_of(config)  # other processes get it from the first
    if getattr(config.option, "numprocesses", None):
        for name in _THREADS:  # of the processes that begin after this
            os.environ.setdefault(name, "1")
    os.environ.setdefault("WARPLOOM_EMULATOR_CHECK", "1")
    # Tests watch TVM compile, and mutants change what compiles: no module may be from before.
    os.environ.setdefault("WARPLOOM_MODULE_CACHE", "0")
    emulator.enable_without_gpu()
    if folder := config.getoption("record_cuda"):
        from tests.shared import cuda_record

        cuda_record.install(config, folder)


def _why_no_gpu() -> str | None:
    """Why tests marked ``gpu`` cannot run here, or None if they can."""
    import tvm

    device = tvm.cuda(0)
    if not device.exist:
        return "no CUDA device"
    version = tuple(int(part) for part in device.compute_version.split("."))
    if version < (9, 0):
        return f"needs compute capability 9.0, the device has {device.compute_version}"
    return None


def pytest_report_header(config: pytest.Config) -> str:
    if selection.takes_all(config):
        return "slow tests: all"
    seed = config.getoption("slow_seed")
    return f"slow tests: {selection.DRAWN} of them, drawn with --slow-seed={seed}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("every_case"):
        selection.mark_cases(items, config.getoption("slow_seed"))
    if not selection.takes_all(config):
        others = selection.left_out(items, config.getoption("slow_seed"))
        names = {item.nodeid for item in others}
        items[:] = [item for item in items if item.nodeid not in names]
        config.hook.pytest_deselected(items=others)
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_gpu() if on_gpu else None
    if reason:
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason=reason))
    hardware = [item for item in items if item.get_closest_marker("hardware")]
    if hardware and (_why_no_gpu() or emulator.is_enabled()):
        for item in hardware:
            item.add_marker(pytest.mark.skip(reason="needs a GPU, not its emulation"))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator seeded from the test's name; a failing test shows the seed."""
    seed = BASE_SEED + zlib.crc32(request.node.nodeid.encode())
    print(f"seed {seed} (WARPLOOM_TEST_SEED={BASE_SEED})")
    return np.random.default_rng(seed)


@pytest.fixture(autouse=True)
def loggers_of_searches_propagate() -> None:
    """Let loggers of earlier searches propagate again, as before them.

    pytest gives those that do not a handler without a name, and then TVM fails on that.
    """
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("tvm.s_tir.meta_schedule"):
            logging.getLogger(name).propagate = True


@pytest.fixture(autouse=True)
def turn_on_the_gpu(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[None]:
    """Tests marked ``hardware`` have the GPU for themselves, those marked ``gpu`` share it."""
    alone, some = (request.node.get_closest_marker(name) for name in ("hardware", "gpu"))
    if not (alone or some) or "PYTEST_XDIST_WORKER" not in os.environ or emulator.is_enabled():
        yield
        return
    # The folder above that of a process of pytest-xdist is common to all of them.
    with open(tmp_path_factory.getbasetemp().parent / "gpu.lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@pytest.fixture
def machine_code(monkeypatch) -> None:
    """Compilations of the test make cubins, as for a GPU, and not PTX for the emulator."""
    monkeypatch.setattr(emulator, "is_enabled", lambda: False)


@pytest.fixture
def grid_of(monkeypatch) -> Callable[[int | None], None]:
    """``grid_of(n)`` lets tile programs have n clusters, so that each computes several tiles."""
    from warploom.lower.grid.persistent import persistent_grid
    from warploom.lower.passes import choose_grid

    def few(clusters: int | None) -> None:
        def small(program, _, group, cluster):
            return persistent_grid(program, clusters * math.prod(cluster), group, cluster)

        monkeypatch.setattr(choose_grid, "persistent_grid", small if clusters else persistent_grid)

    return few


@pytest.fixture
def two_devices(monkeypatch) -> tuple[int, int]:
    """Two GPUs for runners, by number: those of this machine, or the only one twice."""
    import tvm

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1" if tvm.cuda(1).exist else "0,0")
    return 0, 1


@pytest.fixture
def run_python(tmp_path) -> Callable[..., subprocess.CompletedProcess]:
    """``run_python(code, NAME=value, ...)`` runs code in a new process, from a file.

    Keyword arguments change its environment; the value None removes a variable. The process gets
    the emulator only if it asks for it.
    """

    def run(code: str, **changes: str | None) -> subprocess.CompletedProcess:
        script = tmp_path / "script.py"
        script.write_text(code)
        changes = {emulator.OPT_IN: None, **changes}
        environ = {key: value for key, value in os.environ.items() if key not in changes}
        environ |= {key: value for key, value in changes.items() if value is not None}
        return subprocess.run(
            [sys.executable, str(script)], env=environ, capture_output=True, text=True, timeout=1800
        )

    return run
