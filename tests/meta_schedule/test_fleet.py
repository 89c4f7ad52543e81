"""Candidates on two servers behind TVM's RPC tracker, on this machine, emulated without a GPU."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tvm import rpc
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.runner import RunnerInput

import warploom
from warploom import meta_schedule as wms
from warploom.errors import WarploomError
from warploom.gemm.annotations import annotate
from warploom.meta_schedule import fleet
from warploom.meta_schedule.workloads import matmul

pytestmark = pytest.mark.gpu

KEY = "emulated"


@pytest.fixture
def tracker(tmp_path):
    """A tracker with two servers, each a process with this machine's device."""
    pytest.importorskip("tornado", reason="TVM's tracker needs it")
    from tvm.rpc.tracker import Tracker

    made = Tracker(host="127.0.0.1", port=19190, port_end=19290, silent=True)
    # Servers start processes of their own, which import TVM and, where this package is not
    # installed, nothing of it.
    (tmp_path / "sitecustomize.py").write_text("import warploom\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    servers = [
        subprocess.Popen(
            [sys.executable, "-m", "tvm.exec.rpc_server", "--host", "127.0.0.1", "--key", KEY,
             "--port", str(port), "--port-end", str(port + 100), "--silent", "--no-fork",
             "--tracker", f"127.0.0.1:{made.port}"],
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        for port in (19300, 19400)
    ]  # fmt: skip
    try:
        connection = rpc.connect_tracker("127.0.0.1", made.port)
        for _ in range(3000):
            if connection.summary()["queue_info"].get(KEY, {}).get("free") == 2:
                break
            time.sleep(0.1)
        yield ("127.0.0.1", made.port, KEY)
    finally:
        for server in servers:
            os.killpg(server.pid, signal.SIGKILL)  # with the processes that it started
            server.wait()
        made.terminate()


def _listening_addresses(port: int) -> set[str]:
    """The IPv4 addresses of this machine at which somebody listens on a port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    places = [row[1].split(":") for row in rows if row[3] == "0A"]
    return {
        socket.inet_ntoa(bytes.fromhex(address)[::-1])
        for address, number in places
        if int(number, 16) == port
    }


@pytest.mark.in_turn(3)
def test_two_servers_measure_side_by_side(tracker):
    connection = rpc.connect_tracker(*tracker[:2])
    servers = [server["addr"] for server in connection.summary()["server_info"]]
    for address, port in [tracker[:2], *servers]:
        assert _listening_addresses(port) == {address}, "at the address that --host names"
    func = matmul(64, 32, 64)
    mods = []
    for tile_n in (32, 16, 8):
        sch = Schedule(func)
        config = {"tile_m": 64, "tile_n": tile_n, "tile_k": 64, "stages": 2, "consumers": 1}
        annotate(sch, sch.get_sblock("matmul"), config)
        mods.append(sch.mod)
    trials = []
    builder = wms.Builder(1)
    runner = wms.FleetRunner(tracker, servers=2, listener=lambda *trial: trials.append(trial))
    try:
        inputs = [BuilderInput(mod, warploom.cuda_target("h200"), None) for mod in mods]
        built = builder.build(inputs)
        assert not any(one.error_msg for one in built)
        info = ArgInfo.from_prim_func(func)
        futures = runner.run([RunnerInput(one.artifact_path, "cuda", info) for one in built])
        found = [one.result() for one in futures]
        assert [one.error_msg for one in found] == [None] * 3
        assert all(len(one.run_secs) == 5 and min(map(float, one.run_secs)) > 0 for one in found)
        connection = rpc.connect_tracker(*tracker[:2])
        assert connection.summary()["queue_info"][KEY]["free"] == 0, "both are in use"
    finally:
        builder.close()
        runner.close()
    assert len(trials) == 3


def test_a_server_that_forks_is_told_from_a_wrong_candidate(monkeypatch):
    def fail(*_):
        raise RuntimeError("CUDA Runtime Error: cudaErrorInitializationError (3): ...")

    monkeypatch.setattr(fleet, "_place", [None])
    monkeypatch.setattr(fleet, "try_candidate", fail)
    with pytest.raises(WarploomError, match=r"key 'k' has no GPU .* with --no-fork"):
        fleet.run_remote("kernel.so", ("127.0.0.1", 9190, "k"), "cuda", 1.0, ())
