"""A database that raises at once when a write of TVM to its files fails.

TVM's ``JSONDatabase`` appends lines to two files and asks neither whether they arrived (a full disk
loses every record without a word) nor whether another process writes too (numbers of workloads
would then mean different functions). This database wraps it and looks at its files around each
line.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import (
    Database,
    JSONDatabase,
    PyDatabase,
    TuningRecord,
    Workload,
)
from tvm.target import Target

from warploom.errors import NotSaved

#: File names of ``JSONDatabase(work_dir=...)``.
WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"


@derived_object
class SavedDatabase(PyDatabase):
    """TVM's database of a folder; a line that is not in its file is an error.

    Parameters
    ----------
    folder : path
        With two files that TVM can read.

    Raises
    ------
    NotSaved
        From ``commit_workload`` and ``commit_tuning_record``: if the disk is full or the folder
        read-only, or if another process has written to the files.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.folder = Path(folder)
        self.stock = JSONDatabase(work_dir=str(folder))
        self.sizes = {name: self._size(name) for name in (WORKLOADS, RECORDS)}

    def has_workload(self, mod: IRModule) -> bool:
        return self.stock.has_workload(mod)

    def commit_workload(self, mod: IRModule) -> Workload:
        if self.stock.has_workload(mod):
            return self.stock.commit_workload(mod)
        return self._append(WORKLOADS, lambda: self.stock.commit_workload(mod))

    def commit_tuning_record(self, record: TuningRecord) -> None:
        self._append(RECORDS, lambda: self.stock.commit_tuning_record(record))

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        return self.stock.get_top_k(workload, top_k)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        return self.stock.get_all_tuning_records()

    def query_tuning_record(
        self, mod: IRModule, target: Target, workload_name: str = "main"
    ) -> TuningRecord | None:
        return self.stock.query_tuning_record(mod, target, workload_name)

    def query_schedule(
        self, mod: IRModule, target: Target, workload_name: str = "main"
    ) -> Schedule | None:
        return self.stock.query_schedule(mod, target, workload_name)

    def query_ir_module(
        self, mod: IRModule, target: Target, workload_name: str = "main"
    ) -> IRModule | None:
        return self.stock.query_ir_module(mod, target, workload_name)

    def dump_pruned(self, destination: Database) -> None:
        self.stock.dump_pruned(destination)

    def __len__(self) -> int:
        return len(self.stock)

    def _append(self, name: str, commit: Callable[[], Any]) -> Any:
        """The result of ``commit``, once the file has another line."""
        path = self.folder / name
        for file, size in self.sizes.items():
            if self._size(file) != size:
                raise NotSaved(
                    f"{self.folder / file} was changed by another process while this one tunes; "
                    "let each tune in its own folder, and join the folders by "
                    "`warploom tune db merge`."
                )
        try:
            with path.open("ab"):  # the system's own reason, which TVM does not tell
                pass
            made = commit()
            self._require_line(path, self.sizes[name])
        except OSError as error:
            raise NotSaved.of(path, error) from error
        self.sizes[name] = self._size(name)
        return made

    def _size(self, name: str) -> int:
        path = self.folder / name
        return path.stat().st_size if path.exists() else 0

    def _require_line(self, path: Path, before: int) -> None:
        """Remove an incomplete line, and raise if there is one."""
        with path.open("rb+") as file:
            file.seek(0, 2)
            if file.tell() > before:
                file.seek(-1, 2)
                if file.read(1) == b"\n":
                    return
            file.truncate(before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
