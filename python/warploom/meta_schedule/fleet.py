"""Measures candidates on other machines, through TVM's own RPC tracker and servers.

One machine runs the tracker, and each machine with a GPU a server::

    python -m tvm.exec.rpc_tracker --host TRACKER --port 9190
    python -m tvm.exec.rpc_server --host ADDRESS --tracker TRACKER:9190 --key KEY --no-fork

Servers need this package only to be emulated. Without ``--no-fork`` they have no GPU: ``import
tvm`` has opened it, and CUDA does not work in a process that is forked after that.

**TVM's RPC is for trusted networks.** It has neither passwords nor encryption: anyone who reaches
the port of a server runs code there, and anyone who reaches the tracker can get a server. Both
listen at the address that ``--host`` names, and by default at all addresses (``0.0.0.0``): name one
of a network in which every machine is trusted, or ``127.0.0.1`` behind an SSH tunnel.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tvm import rpc
from tvm.ir.utils import derived_object
from tvm.runtime import Tensor

from warploom.errors import WarploomError
from warploom.meta_schedule.measure import Argument, Listener, Measurement, try_candidate
from warploom.meta_schedule.processes import Pool
from warploom.meta_schedule.runner import PooledRunner

#: Bytes that TVM's evaluator flushes from the L2 cache before each sample.
_FLUSHED_BYTES = 2 * 60 * 1000 * 1000
_SAMPLES, _IDLE_MILLISECONDS = 5, 10
#: The error of CUDA in a process that was forked from one that has opened the GPU.
_AFTER_FORK = "cudaErrorInitializationError"

#: Host, port and key of a tracker.
Tracker = tuple[str, int, str]


class RemotePlace:
    """A device of a server: see :class:`warploom.meta_schedule.place.Place`.

    Parameters
    ----------
    session : tvm.rpc.RPCSession
    device_type : str
        Such as ``"cuda"``; the first of that type.
    """

    def __init__(self, session: Any, device_type: str) -> None:
        self.session = session
        self.device = session.device(device_type, 0)
        self._modules: dict[int, Any] = {}
        self._uploads = 0

    def load(self, library: str) -> Any:
        # A library of a name that is loaded already would not be loaded again.
        self._uploads += 1
        name = f"{self._uploads}-{Path(library).name}"
        self.session.upload(library, name)
        module = self.session.load_module(name)
        kernel = module["main"]
        self._modules = {id(kernel): module}
        return kernel

    def launching(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def wait(self) -> None:
        self.device.sync()

    def time(self, kernel: Any, sets: list[list[Tensor]]) -> tuple[tuple[float, ...], int | None]:
        """By TVM's evaluator, which times where the device is."""
        evaluator = self._modules[id(kernel)].time_evaluator(
            "main",
            self.device,
            number=1,
            repeat=_SAMPLES,
            cooldown_interval_ms=_IDLE_MILLISECONDS,
            cache_flush_bytes=_FLUSHED_BYTES,
        )
        return tuple(float(seconds) for seconds in evaluator(*sets[0]).results), None


_place: list[RemotePlace] = []


def run_remote(
    artifact: str, tracker: Tracker, device_type: str, seconds: float,
    arguments: tuple[Argument, ...],
) -> Measurement:  # fmt: skip
    """In a worker: as :func:`try_candidate`, on the server that this process has a session with."""
    if not _place:
        host, port, key = tracker
        session = rpc.connect_tracker(host, port).request(key, session_timeout=seconds)
        _place.append(RemotePlace(session, device_type))
    try:
        return try_candidate(_place[0], artifact, arguments)
    except Exception as error:
        if _AFTER_FORK not in str(error):
            raise
        raise WarploomError(
            f"A server with the key {tracker[2]!r} has no GPU in the processes that it forks; "
            "start tvm.exec.rpc_server with --no-fork."
        ) from None


@derived_object
class FleetRunner(PooledRunner):
    """``runner=warploom.meta_schedule.FleetRunner(...)``: candidates on the servers of a tracker.

    Parameters
    ----------
    tracker : (str, int, str)
        Host, port and key.
    servers : int
        How many of them to use side by side.
    timeout_sec : float
        After which a candidate counts as hanging; its session ends, and the next candidate
        asks the tracker for a new one.
    session_sec : float
        After which a server ends a session by itself.
    listener : callable, optional
        As of :class:`Runner`.

    Examples
    --------
    >>> runner = wms.FleetRunner(("tracker", 9190, "h200"), servers=8)  # doctest: +SKIP
    >>> wms.tune_tir(mod, target, "work_dir", 512, runner=runner)  # doctest: +SKIP
    """

    def __init__(
        self,
        tracker: Tracker,
        servers: int = 1,
        timeout_sec: float = 60.0,
        session_sec: float = 3600.0,
        listener: Listener | None = None,
    ) -> None:
        super().__init__(Pool([{}] * servers, lose_failed=True), timeout_sec, listener)
        self.tracker, self.session_sec = tracker, session_sec

    def submit(
        self, artifact: str, device_type: str, taken: tuple[Argument, ...]
    ) -> Future[Measurement]:
        return self.pool.submit(
            run_remote, artifact, self.tracker, device_type, self.session_sec, taken,
            timeout=self.timeout_sec,
        )  # fmt: skip
