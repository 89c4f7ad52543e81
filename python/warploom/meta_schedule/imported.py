"""Records from measurements of ``warploom bench exhaustive``, for databases to be shipped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import TuningRecord, Workload
from tvm.target import Target

from warploom.decide.old_records import read_config, with_new_key
from warploom.errors import reading
from warploom.gemm.workloads import function
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule.database import write_database
from warploom.meta_schedule.records import trace_of


def import_lines(
    files: Iterable[str | Path], destination: str | Path, target: Target, best: int
) -> int:
    """Write a database of the fastest candidates of each GEMM; returns how many.

    Parameters
    ----------
    files : iterable of path
        Lines as :class:`warploom_bench.exhaustive.Line`; others are left out.
    destination : path
        A folder; its records are replaced.
    target : Target
        Of the GPU that measured.
    best : int
        Candidates of each GEMM.
    """
    lines_of: dict[GemmShape, list[dict[str, Any]]] = {}
    for line in _lines(files):
        lines_of.setdefault(GemmShape(**line["shape"]), []).append(line)
    records = [
        record
        for shape, lines in lines_of.items()
        for record in _records(shape, sorted(lines, key=lambda line: line["us"])[:best], target)
    ]
    write_database(records, destination)
    return len(records)


def _lines(files: Iterable[str | Path]) -> Iterator[dict[str, Any]]:
    for file in files:
        with reading(file, "output of `bench exhaustive`"):
            text = Path(file).read_text("utf-8")
            lines = [with_new_key(json.loads(line)) for line in text.splitlines()]
        for line in lines:
            if line.get("config") and line.get("us") is not None:
                yield line


def _records(
    shape: GemmShape, lines: Iterable[dict[str, Any]], target: Target
) -> Iterator[TuningRecord]:
    func = function(shape)
    workload, info = Workload(tvm.IRModule({"main": func})), ArgInfo.from_prim_func(func)
    for line in lines:
        trace = trace_of(workload.mod, read_config(line["config"]), short=True)
        seconds = [us * 1e-6 for us in line["samples"]]
        yield TuningRecord(trace, workload, seconds, target, info)
