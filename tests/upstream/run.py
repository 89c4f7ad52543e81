"""Runs TVM's own TIRx tests on the emulator and writes a table of what passes.

``python tests/upstream/run.py <checkout of TVM> <table.md> [--checks]``

The tests are TVM's, taken from a checkout of its repository; they are copied, adapted to the
release that is installed (``ADAPTATIONS``), and run on an emulated sm_100a device, and on an
emulated sm_90a device where they ask for one. A test is counted as launching if the emulator has
executed instructions of its kernels, or has refused to load one of them.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path("tests/python/tirx")
#: What is run; tests of other targets, of the parser and of the printer launch nothing.
SELECTED = (
    *("codegen", "operator/tile_primitive/cuda", "test_jit.py", "test_control_flow.py"),
    *("test_alloc_pool.py", "test_exec_context.py", "test_hint.py", "test_op.py"),
)
#: (text, replacement): TVM 0.27.0 does not take an element of a shared buffer as the address of a
#: tensor memory buffer. The allocations of these tests begin at column 0.
ADAPTATIONS = (("allocated_addr=tmem_addr[0]", "allocated_addr=T.uint32(0)"),)
#: (regular expression on the failure, short reason), the first that matches counts.
REASONS = (
    (r"(the emulator cannot load this PTX: .*)", r"\1"),
    (
        r"mbarrier.test_wait on memory that holds no mbarrier",
        "race in the test: warps wait on an mbarrier that thread 0 has yet to initialise",
    ),
    # What the checker reports of each of them, and why that is so.
    (
        r"warploom emulator: data race in kernel .* st\.global\.\S+ of CTA \(1, 0, 0\) .* "
        r"st\.global\.\S+ of CTA \(0, 0, 0\) .* writes, and nothing orders the two",
        "race in the test: both CTAs of its grid store the whole result (the same values)",
    ),
    (
        r"warploom emulator: data race in kernel .* st\.global\.\S+ of CTA \((.*?)\) warp (?!0)\d+ "
        r".* st\.global\.\S+ of CTA \(\1\) warp 0 .* writes, and nothing orders the two",
        "race in the test: all warps store the whole result (the same values)",
    ),
    (
        r"in test_binary_op_vectorized$[\s\S]*data race",
        "race in the test: two warps change the same shared memory in place",
    ),
    (
        r"warploom emulator: missing proxy fence in kernel .*tcgen05\.cp.*st\.shared",
        "missing fence.proxy.async in the test: tcgen05.cp reads what the threads have stored",
    ),
    (
        r"warploom emulator: uninitialised read in kernel .*tcgen05\.ld\S* of CTA.* tensor memory",
        "the test loads all of an allocation of tensor memory of which it has stored a part",
    ),
    (
        r"warploom emulator: mbarrier init race in kernel",
        "race in the test: warps wait on an mbarrier with no barrier after its initialisation",
    ),
    (
        r"warploom emulator: early exit in kernel dsmem_copy",
        "race in the test: the CTA that sends may exit while its copy still reads shared memory",
    ),
    (
        r"warploom emulator: tensor memory in kernel .*tcgen05\.dealloc",
        "race in the test: tcgen05.dealloc is not ordered after the loads of other warps",
    ),
    (r"warploom emulator: ([a-z -]+) in kernel", r"the checker reports: \1"),
    (r"(warploom emulator: [^(\n]*)", r"\1"),
    (
        r"in test_binary_op_vectorized$[\s\S]*Not equal to tolerance",
        "race in the test: two warps change the same shared memory in place",
    ),
    (r"shared: .*(undefined variable tid_in_scope)", r"TVM's own schedule of it has an \1"),
    (r"No module named '(torch|triton)'", r"needs \1"),
    (r"Program is not well-formed.*warp_xor_swizzle", "TVM refuses its own warp_xor_swizzle"),
    (r"(tvm\.tirx\.stmt_functor|tvm\.arith|has no attribute '\w+')", r"API of another TVM: \1"),
    (r"^E +(\w*Error: .*)$", r"\1"),
    (r"^E +(assert .*|Failed: .*)$", r"\1"),
)

#: Under a table with checks.
ABOUT_CHECKS = """\
A report fails a test whatever its numbers are; without checks these tests pass, but for the 9 in
the table without checks. What is reported is what PTX calls a race or leaves undefined:

- Stores of the same values by CTAs or warps that nothing orders are races, too. These grids have
  two CTAs, or several warps, of which each stores the whole result.
- Between `st.shared` and `tcgen05.cp`, which reads through the async proxy, stands a barrier and no
  `fence.proxy.async`; the only one comes before the stores.
- `tcgen05.ld` of 128 lanes follows stores to a part of them; what it loads beside is not compared.
- An mbarrier that one thread initialises is used by other warps before any barrier of the CTA.
- A CTA whose shared memory is the source of a copy to another CTA does not wait for its end.
- Tensor memory is given back by one warp while others may still load from it.
- Warps update overlapping parts of one buffer in place.
"""


def _reason(text: str) -> str:
    for pattern, replacement in REASONS:
        found = re.search(pattern, text, re.MULTILINE)
        if found:
            # Failures that differ in line numbers and sizes have one reason.
            text = re.sub(r"0x[0-9a-f]+|\d+ bytes|line \d+", "…", found.expand(replacement))
            return text[:160].replace("|", "\\|")
    return text.strip().splitlines()[-1][:160] if text.strip() else "no message"


def _adapted_copy(checkout: Path, target: Path) -> None:
    shutil.copytree(checkout / TESTS, target / TESTS)
    for path in (target / TESTS).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for old, new in ADAPTATIONS:
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")


def _run(tree: Path, arch: str, checks: bool, tests: list[str]) -> list[dict]:
    log = tree / f"{arch}.jsonl"
    here = Path(__file__).resolve().parent
    environ = os.environ | {
        "WARPLOOM_EMULATOR": "1",
        "WARPLOOM_EMULATOR_ARCH": arch,
        "WARPLOOM_EMULATOR_CHECK": "1" if checks else "0",
        # Under other schedules those tests fail too that only work because warp 0 comes first.
        "WARPLOOM_EMULATOR_SCHEDULE": "round-robin",
        "UPSTREAM_LOG": str(log),
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(here)))),
    }
    options = ["-q", "-p", "plugin", "-p", "no:cacheprovider", "--tb=short", "-W", "ignore"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=tree, env=environ, check=False, timeout=7200, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    if not log.exists():
        raise SystemExit(f"pytest has run no test for {arch}")
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def _table(results: list[dict], revision: str, checks: bool, command: str) -> str:
    launching = [r for r in results if r["launched"] or "cannot load this PTX" in r["reason"]]
    files: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for result in launching:
        name = result["id"].split("::")[0].removeprefix(f"{TESTS}/")
        files[name][result["outcome"]] += 1
    rows = [
        f"| {name} | {count.total()} | {count['passed']} | {count['failed']} |"
        for name, count in sorted(files.items())
    ]
    total = collections.Counter(r["outcome"] for r in launching)
    failures: dict[str, list[str]] = collections.defaultdict(list)
    for result in results:
        if result["outcome"] == "failed":
            kind = "launches" if result in launching else "does not launch"
            failures[f"{kind}: {_reason(result['reason'])}"].append(result["id"])
    reasons = [
        f"| {len(ids)} | {reason} | {ids[0].removeprefix(f'{TESTS}/')} |"
        for reason, ids in sorted(failures.items(), key=lambda item: -len(item[1]))
    ]
    today = datetime.date.today().isoformat()
    return "\n".join(
        [
            "# TVM's own TIRx tests on the emulator",
            "",
            f"{today}, TVM {revision}, race checks {'on' if checks else 'off'}, by `{command}`.",
            "",
            f"{total.total()} tests launch kernels: {total['passed']} pass, {total['failed']} "
            "fail.",
            "",
            "| file | launching tests | pass | fail |",
            "|---|---|---|---|",
            *rows,
            "",
            "Failures, by reason, with an example:",
            "",
            "| tests | reason | example |",
            "|---|---|---|",
            *reasons,
            *(["", *ABOUT_CHECKS.splitlines()] if checks else []),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("--checks", action="store_true", help="with the race checker")
    arguments = parser.parse_args()
    version = subprocess.run(
        [sys.executable, "-c", "import tvm; print(tvm.__version__)"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout.strip()  # fmt: skip
    commit = subprocess.run(
        ["git", "-C", str(arguments.checkout), "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False, timeout=60,
    ).stdout.strip()  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        _adapted_copy(arguments.checkout, tree)
        results = _run(tree, "sm_100a", arguments.checks, [str(TESTS / name) for name in SELECTED])
        hopper = [r["id"] for r in results if "compute == 9.0" in r["reason"]]
        if hopper:
            results = [r for r in results if r["id"] not in hopper]
            results += _run(tree, "sm_90a", arguments.checks, hopper)
    revision = f"{version}, tests of commit {commit or 'unknown'}"
    command = f"python tests/upstream/run.py <checkout>{' --checks' * arguments.checks}"
    arguments.table.write_text(
        _table(results, revision, arguments.checks, command), encoding="utf-8"
    )
    print(arguments.table.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
