"""Records the CUDA source that each test compiles, to show that a change makes the same code.

In the tree before the change and in the one after it::

    pytest --record-cuda=FOLDER -p no:randomly --hypothesis-seed=0 --every-case --slow -m "not long"

then ``python -m tests.shared.cuda_record BEFORE AFTER`` lists the tests that compile something
else, and the first lines that differ. The exit status is 1 if there are any. Names of variables do
not count.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import sys
from pathlib import Path

import pytest

_TOKEN = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\])*")|(?P<name>(?<![\w.])[A-Za-z_]\w*(?!\w)(?!\s*\())"""
    r"""|(?P<space>(?:\s|//[^\n]*|/\*.*?\*/)+)""",
    re.DOTALL,
)
#: Names that have a meaning of their own, where they stand for no call.
_KEPT = re.compile(
    r"(?:(?:un)?signed|char|short|int|long|u?int\d*(?:_t)?|uint|uchar|float\d*|double|half2?|bool"
    r"|void|const|volatile|extern|struct|if|else|for|while|return|break|continue|true|false"
    r"|threadIdx|blockIdx|blockDim|gridDim|nv_\w+|__\w+|CUtensorMap|alignas|asm|static|auto)\Z"
)
#: Folder of a record: a file of tests for each process, and the sources by their digests.
_SOURCES, _TESTS = "sources", "tests-{}.jsonl"


def plain(source: str) -> str:
    """CUDA source without comments, and with numbers in place of the names of variables."""
    names: dict[str, str] = {}

    def token(found: re.Match[str]) -> str:
        if found["text"] is not None:
            return found[0]
        if found["space"] is not None:
            return "\n" if "\n" in found[0] else " "
        if _KEPT.match(found[0]):
            return found[0]
        return names.setdefault(found[0], f"v{len(names)}")

    return _TOKEN.sub(token, source)


class Recorder:
    """A plugin of pytest that writes a record.

    Parameters
    ----------
    folder : Path
    process : str
        Name of this process among those of the run.
    """

    def __init__(self, folder: Path, process: str) -> None:
        self._sources = folder / _SOURCES
        self._sources.mkdir(parents=True, exist_ok=True)
        self._file = folder / _TESTS.format(process)
        self._found: list[str] = []

    def add(self, source: str) -> None:
        """Note a source that the current test compiles."""
        text = plain(source)
        digest = hashlib.sha256(text.encode()).hexdigest()[:20]
        path = self._sources / f"{digest}.cu"
        if not path.exists():
            path.write_text(text)
        self._found.append(digest)

    @pytest.hookimpl
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self._found:
            with self._file.open("a") as file:
                file.write(json.dumps([nodeid, self._found]) + "\n")
        self._found = []


def install(config: pytest.Config, folder: str) -> None:
    """Record what this process compiles."""
    from warploom.compiler import callback

    recorder = Recorder(Path(folder), os.environ.get("PYTEST_XDIST_WORKER", "one"))
    config.pluginmanager.register(recorder)
    stock = callback.current_request

    def request(source: str, *options: object) -> object:
        recorder.add(source)
        return stock(source, *options)

    callback.current_request = request


def read(folder: Path) -> dict[str, list[str]]:
    """Test -> digests of what it has compiled."""
    found: dict[str, list[str]] = {}
    for file in folder.glob(_TESTS.format("*")):
        for line in file.read_text().splitlines():
            test, digests = json.loads(line)
            found[test] = digests
    return found


def main(before: str, after: str) -> int:
    """Compare two records."""
    old, new = Path(before), Path(after)
    records = read(old), read(new)
    common = sorted(records[0].keys() & records[1].keys())
    changed = [test for test in common if records[0][test] != records[1][test]]
    for test in changed:
        pairs = zip(records[0][test], records[1][test], strict=False)
        first = next((pair for pair in pairs if pair[0] != pair[1]), None)
        print(f"{test}: {len(records[0][test])} sources before, {len(records[1][test])} after")
        if first is not None:
            texts = [
                (folder / _SOURCES / f"{digest}.cu").read_text().splitlines()
                for folder, digest in zip((old, new), first, strict=True)
            ]
            lines = difflib.unified_diff(*texts, before, after, lineterm="", n=1)
            print("\n".join(f"    {line}" for line, _ in zip(lines, range(12), strict=False)))
    count = sum(len(records[0][test]) for test in common)
    print(f"{len(common)} tests compile {count} sources; {len(changed)} tests compile others.")
    alone = [len(one.keys() - set(common)) for one in records]
    print(f"{alone[0]} tests compile something before alone, {alone[1]} after alone.")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
