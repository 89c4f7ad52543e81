"""Record the corpus on the GPU of this machine: ``python -m tests.emulator.golden.record OUT``.

Needs Python, numpy and NVIDIA's driver. Every family runs in a process of its own, because a
kernel that fails takes its process' context with it; what follows it runs in the next process.
"""

from __future__ import annotations

import argparse
import datetime
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.emulator.golden import corpus, recording
from tests.emulator.ptx_driver import Driver

#: Functions whose failure leaves the context as it was.
HARMLESS = ("cuModuleLoadData", "cuTensorMapEncode")

#: A kernel that takes longer hangs.
SECONDS_PER_CASE = 20.0


def _child(library: str, family: str, start: int, path: Path) -> None:
    """Append (name, result) to a file until a case fails."""
    driver = Driver(library)
    with path.open("ab") as file:
        pickle.dump(("device", (driver.device_name, driver.version)), file)
        for case, result in recording.run(driver, corpus.family(family)[start:]):
            pickle.dump((case.name, result), file)
            file.flush()
            if isinstance(result, str) and not any(name in result for name in HARMLESS):
                return


def _records(path: Path) -> list[tuple[str, object]]:
    records = []
    with path.open("rb") as file:
        while True:
            try:
                records.append(pickle.load(file))
            except (EOFError, pickle.UnpicklingError):
                return records


def record(library: str, family: str, folder: Path) -> None:
    """Run all cases of a family, in as many processes as it takes, and save what they gave."""
    cases = corpus.family(family)
    records: list[tuple[str, object]] = []
    device: tuple[str, int] = ("", 0)
    while len(records) < len(cases):
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary) / "records"
            path.touch()
            command = [sys.executable, "-m", "tests.emulator.golden.record", str(path)]
            command += ["--library", library, "--family", family, "--start", str(len(records))]
            child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            errors: list[str] = []
            reader = threading.Thread(target=lambda c=child, e=errors: e.append(c.stderr.read()))
            reader.start()
            size, since = -1, time.monotonic()
            while child.poll() is None and time.monotonic() - since < SECONDS_PER_CASE:
                time.sleep(0.05)
                if path.stat().st_size != size:
                    size, since = path.stat().st_size, time.monotonic()
            hangs = child.poll() is None
            child.kill()
            child.wait()
            reader.join()
            new = _records(path)
        if new:
            device = new.pop(0)[1]
        records += new
        failed = hangs or child.returncode != 0
        if failed and len(records) < len(cases):
            reason = "it hangs" if hangs else errors[0].strip().splitlines()[-1:] or ["crash"]
            records.append((cases[len(records)].name, str(reason)))
    results = {name: r for name, r in records if isinstance(r, bytes)}
    failures = {name: r for name, r in records if isinstance(r, str)}
    digests = {case.name: case.digest for case in cases}
    today = datetime.date.today().isoformat()
    saved = recording.Recording(*device, today, digests, results, failures)
    recording.save(folder / f"{family}.npz", saved)
    print(f"{family}: {len(results)} cases, {len(failures)} failures", flush=True)
    for name, reason in list(failures.items())[:10]:
        print(f"  {name}: {reason}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the folder for <family>.npz")
    parser.add_argument("--library", default="libcuda.so.1", help="the driver")
    families = list(corpus.FAMILIES)
    parser.add_argument("--family", choices=families, nargs="+", default=families)
    parser.add_argument("--start", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start is not None:
        _child(options.library, options.family[0], options.start, options.out)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for family in options.family:
        start = time.monotonic()
        record(options.library, family, options.out)
        print(f"  {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
