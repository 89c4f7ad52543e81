"""Runs the cases of a family on a driver, and the files that hold their results."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.emulator.golden import corpus
from tests.emulator.golden.case import Case
from tests.emulator.ptx_driver import Driver, DriverError

#: Kernels in one module. Compiling one takes a driver about a millisecond for each of them.
MODULE_CASES = 48

#: Where the committed files are.
DATA = Path(__file__).parent / "data"


@dataclasses.dataclass(frozen=True)
class Recording:
    """What a device made of a family: for each case its digest and the bytes of its results."""

    device: str
    driver: int
    date: str
    digests: dict[str, str]
    results: dict[str, bytes]
    failures: dict[str, str]


def _load(driver: Driver, cases: list[Case]) -> object | str:
    """The module with these cases; a driver's reason if there is none."""
    try:
        return driver.load(corpus.module(cases))
    except DriverError as error:
        return str(error)


def run(driver: Driver, cases: list[Case]) -> Iterator[tuple[Case, bytes | str]]:
    """Each case with the bytes of its results, or with the reason why there are none.

    After a kernel that failed, a real driver's context is lost: the caller has to go on in
    another process. A module that does not load costs its own cases only.
    """
    for start in range(0, len(cases), MODULE_CASES):
        part = cases[start : start + MODULE_CASES]
        loaded = _load(driver, part)
        for i, case in enumerate(part):
            module, name = loaded, f"kernel{i}"
            if isinstance(module, str):
                module, name = _load(driver, [case]), "kernel0"
            if isinstance(module, str):
                yield case, module
                continue
            try:
                arrays = driver.launch(
                    module,
                    name,
                    case.arrays,
                    maps=case.maps,
                    grid=case.grid,
                    block=case.block,
                    cluster=case.cluster,
                    shared=case.shared,
                )
            except DriverError as error:
                yield case, str(error)
            else:
                yield case, b"".join(a.tobytes() for a in arrays[len(case.inputs) :])


def save(path: Path, recording: Recording) -> None:
    """One array for all bytes: an archive with a member for each case would be twice as large."""
    names = list(recording.results)
    meta = {
        "device": recording.device,
        "driver": recording.driver,
        "date": recording.date,
        "names": names,
        "digests": [recording.digests[name] for name in names],
        "sizes": [len(recording.results[name]) for name in names],
        "failures": recording.failures,
    }
    data = b"".join(recording.results.values())
    np.savez_compressed(
        path,
        meta=np.frombuffer(json.dumps(meta).encode(), np.uint8),
        data=np.frombuffer(data, np.uint8),
    )


def read(path: Path) -> Recording:
    with np.load(path) as archive:
        meta = json.loads(archive["meta"].tobytes())
        data = archive["data"].tobytes()
    names, results, start = meta["names"], {}, 0
    for name, size in zip(names, meta["sizes"], strict=True):
        results[name] = data[start : start + size]
        start += size
    digests = dict(zip(names, meta["digests"], strict=True))
    return Recording(
        meta["device"], meta["driver"], meta["date"], digests, results, meta["failures"]
    )
