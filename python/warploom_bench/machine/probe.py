"""Probes: kernels that do one thing between two reads of the clock."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import Any

from warploom_bench.machine.device_code import PRELUDE, SLOTS

#: Bytes of a row of memory, as tensor maps see it.
ROW_BYTES = 128
#: Bytes of shared memory that a CTA of sm_90 may have, and what aligning costs at most.
_MOST_SHARED, _ALIGNMENT = 227 * 1024, 1024


@dataclass(frozen=True)
class Probe:
    """A kernel of which CUDA source is the body.

    Attributes
    ----------
    name : str
    source : str
        CUDA behind ``PRELUDE``, with a function ``MB_PROBE {...}`` for all threads. It has ``const
        int* p``, 16 parameters; ``void* data``, memory; ``long long* out`` with 16 places for each
        CTA; ``unsigned char* raw``, shared memory; ``map``, the address of the tensor map.
    threads : int
        Of a CTA.
    cluster : int
        CTAs of a cluster.
    shared : int
        Bytes of shared memory.
    box : int
        Rows of a box of the tensor map, each of 128 bytes, or 0 for no map.
    pitch : int
        Bytes of a row of memory: 128, or more for rows that begin within a line.
    early : bool
        Whether it is launched before the kernel before it has ended (PDL).
    """

    name: str
    source: str
    threads: int = 128
    cluster: int = 1
    shared: int = 0
    box: int = 0
    pitch: int = ROW_BYTES
    early: bool = False

    def __post_init__(self) -> None:
        assert 32 <= self.threads <= 1024 and self.threads % 32 == 0
        assert self.cluster in (1, 2, 4, 8) and 0 <= self.box <= 256
        assert 0 <= self.shared <= _MOST_SHARED - _ALIGNMENT
        assert self.pitch >= ROW_BYTES and self.pitch % 16 == 0
        assert "MB_PROBE {" in self.source

    @property
    def digest(self) -> str:
        """A hash of all that decides the kernel."""
        return hashlib.sha256(f"{self!r}{PRELUDE}".encode()).hexdigest()[:12]


@functools.cache
def compile_probe(probe: Probe) -> Any:
    """The executable with ``main(parameters, data, out)``, for sm_90a.

    ``parameters`` are int32 [16], ``data`` float16 [rows, pitch / 2], ``out`` int64 [CTAs, 16].
    """
    import tvm

    from warploom.target import cuda_target

    module = tvm.IRModule({"main": prim_func(probe)})
    return tvm.compile(module, cuda_target("sm_90a"), tir_pipeline="warploom")


def prim_func(probe: Probe) -> Any:
    """The TIRx function of a probe."""
    return _mapped(probe) if probe.box else _plain(probe)


def _waits(probe: Probe) -> None:
    """What makes a launch a programmatic one, which ``warploom.lower.host`` sees and tags."""
    from tvm.script import tirx as T

    if probe.early:
        T.evaluate(T.ptx.griddepcontrol.launch_dependents())
        T.evaluate(T.ptx.griddepcontrol.wait())


def _in_clusters(probe: Probe) -> None:
    """Clusters of one CTA would be launched as clusters, too."""
    from tvm.script import tirx as T

    if probe.cluster > 1:
        T.cta_id_in_cluster([probe.cluster])


def _plain(probe: Probe) -> Any:
    from tvm.script import tirx as T

    columns, shared, source = probe.pitch // 2, _allocated(probe), PRELUDE + probe.source

    @T.prim_func
    def main(parameters: T.Buffer((SLOTS,), "int32"), data: T.handle, out: T.handle):
        rows, ctas = T.int32(), T.int32()
        D = T.match_buffer(data, (rows, columns), "float16")
        ticks = T.match_buffer(out, (ctas, SLOTS), "int64")
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        _in_clusters(probe)
        T.cta_id([ctas])
        T.thread_id([probe.threads])
        pool = T.SMEMPool()
        S = pool.alloc((shared,), "uint8", align=1024)
        pool.commit()
        _waits(probe)
        T.cuda.func_call(
            "probe", T.address_of(parameters[0]), T.address_of(D[0, 0]), T.address_of(ticks[0, 0]),
            T.address_of(S[0]), T.uint64(0), source_code=source,
        )  # fmt: skip

    return main


def _mapped(probe: Probe) -> Any:
    from tvm.script import tirx as T

    from warploom import language as wl

    columns, shared, source = probe.pitch // 2, _allocated(probe), PRELUDE + probe.source

    @T.prim_func
    def main(parameters: T.Buffer((SLOTS,), "int32"), data: T.handle, out: T.handle):
        rows, ctas = T.int32(), T.int32()
        D = T.match_buffer(data, (rows, columns), "float16")
        ticks = T.match_buffer(out, (ctas, SLOTS), "int64")
        boxes = wl.create_tma_descriptor(D, (probe.box, ROW_BYTES // 2), swizzle="128B")
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        _in_clusters(probe)
        T.cta_id([ctas])
        T.thread_id([probe.threads])
        pool = T.SMEMPool()
        S = pool.alloc((shared,), "uint8", align=1024)
        pool.commit()
        _waits(probe)
        T.cuda.func_call(
            "probe", T.address_of(parameters[0]), T.address_of(D[0, 0]), T.address_of(ticks[0, 0]),
            T.address_of(S[0]), T.address_of(boxes), source_code=source,
        )  # fmt: skip

    return main


def _allocated(probe: Probe) -> int:
    return probe.shared + _ALIGNMENT if probe.shared else 16
