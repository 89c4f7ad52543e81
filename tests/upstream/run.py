"""Runs TVM's own TIRx tests with warploom and with stock TVM, and writes a table of what passes.

``python tests/upstream/run.py <checkout of TVM> <table.md> [--checks] [tests ...]``

The tests are TVM's, taken from a checkout of its repository; they are copied, adapted to the
release that is installed (``ADAPTATIONS``), and run on an emulated sm_100a device, and on an
emulated sm_90a device where they ask for one. A test is counted as launching if the emulator has
executed instructions of its kernels, or has refused to load one of them.

Every test runs a second time with stock TVM, to which warploom lends nothing but the device. The
exit status is 1 if a test passes with stock TVM and fails with warploom.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path("tests/python")
#: What is run by default: all of TIRx but its tests for other targets.
SELECTED = (
    *("tirx/codegen", "tirx/operator/tile_primitive/cuda", "tirx/transform"),
    *(f"tirx/test_{name}.py" for name in ("jit", "control_flow", "alloc_pool", "exec_context")),
    *(f"tirx/test_{name}.py" for name in ("hint", "op", "exec_scope", "inline", "layout")),
    *(f"tirx/test_{name}.py" for name in ("parser_printer", "verifier", "buffer_print")),
)
#: (text, replacement): TVM 0.27.0 does not take an element of a shared buffer as the address of a
#: tensor memory buffer. The allocations of these tests begin at column 0.
ADAPTATIONS = (("allocated_addr=tmem_addr[0]", "allocated_addr=T.uint32(0)"),)
#: How often a test runs again that fails on one side alone.
REPEATS = 3
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
    # These import what the release does not have, and only configure TVM's own CI.
    (target / TESTS / "conftest.py").unlink(missing_ok=True)
    for path in (target / TESTS).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for old, new in ADAPTATIONS:
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")


def _run(tree: Path, arch: str, checks: bool, tests: list[str], stock: bool) -> list[dict]:
    """The outcomes of the tests of one file, in a process of its own.

    Some of TVM's tests register op schedules that take every later call of their process.
    """
    log = tree / "log.jsonl"
    log.write_text("", encoding="utf-8")
    here = Path(__file__).resolve().parent
    environ = os.environ | {
        "WARPLOOM_EMULATOR": "1",
        "WARPLOOM_EMULATOR_ARCH": arch,
        "WARPLOOM_EMULATOR_CHECK": "1" if checks else "0",
        # Under other schedules those tests fail too that only work because warp 0 comes first.
        "WARPLOOM_EMULATOR_SCHEDULE": "round-robin",
        "UPSTREAM_LOG": str(log),
        "UPSTREAM_STOCK": "1" if stock else "0",
        "TVM_DEVICE_BACKEND_AUTOLOAD": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(here)))),
    }
    options = ["-q", "-p", "plugin", "-p", "no:cacheprovider", "-p", "no:randomly"]
    with contextlib.suppress(subprocess.TimeoutExpired):  # what is not in the log has not passed
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, "--tb=short", "-W", "ignore", *tests],
            cwd=tree, env=environ, check=False, timeout=1800, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def _run_both(tree: Path, checks: bool, tests: list[str], stock: bool) -> list[dict]:
    """The results on sm_100a, and on sm_90a of the tests that ask for it."""
    results = _run(tree, "sm_100a", checks, tests, stock)
    hopper = [r["id"] for r in results if "compute == 9.0" in r["reason"]]
    if hopper:
        results = [r for r in results if r["id"] not in hopper]
        results += _run(tree, "sm_90a", checks, hopper, stock)
    return results


def _files(tree: Path, tests: list[str]) -> list[str]:
    """The files of tests below what was asked for."""
    paths = [tree / TESTS / name for name in tests]
    files = [
        file for path in paths for file in ([path] if path.suffix else path.rglob("test_*.py"))
    ]
    return sorted(str(file.relative_to(tree)) for file in files)


def regressions(results: list[dict], stock: list[dict]) -> list[str]:
    """The tests that pass with stock TVM, and not with warploom."""
    passed = {r["id"] for r in results if r["outcome"] == "passed"}
    return [r["id"] for r in stock if r["outcome"] == "passed" and r["id"] not in passed]


def _repeated(
    tree: Path, checks: bool, results: list[dict], others: list[dict], stock: bool
) -> list[dict]:
    """The results, where tests that only the others pass have been run again.

    Some of TVM's tests read memory that nobody has written: they pass now and then.
    """
    for _ in range(REPEATS):
        lost = regressions(results, others)
        if not lost:
            break
        again = _run_both(tree, checks, lost, stock)
        better = {r["id"]: r for r in again if r["outcome"] == "passed"}
        for name in better:
            print(f"  passes now and then: {name}", file=sys.stderr)
        results = [better.get(r["id"], r) for r in results]
    return results


def _comparison(results: list[dict], stock: list[dict]) -> list[str]:
    lost = regressions(results, stock)
    gained = regressions(stock, results)
    counts = [collections.Counter(r["outcome"] for r in some) for some in (results, stock)]
    return [
        f"With warploom {counts[0]['passed']} of {len(results)} tests pass, with stock TVM "
        f"{counts[1]['passed']} of {len(stock)}. {len(lost)} pass with stock TVM alone, "
        f"{len(gained)} with warploom alone.",
        *(f"- with stock TVM alone: {one.removeprefix(f'{TESTS}/')}" for one in lost),
        *(f"- with warploom alone: {one.removeprefix(f'{TESTS}/')}" for one in gained),
    ]


def _table(
    results: list[dict], stock: list[dict], revision: str, checks: bool, command: str
) -> str:
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
            *_comparison(results, stock),
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("tests", nargs="*", help=f"below {TESTS}; by default those of TIRx")
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
        results: list[dict] = []
        stock: list[dict] = []
        for file in _files(tree, arguments.tests or SELECTED):
            checks = arguments.checks
            found = [_run_both(tree, checks, [file], is_stock) for is_stock in (False, True)]
            found = [
                _repeated(tree, checks, found[n], found[1 - n], is_stock)
                for n, is_stock in enumerate((False, True))
            ]
            results += found[0]
            stock += found[1]
            passed = [sum(r["outcome"] == "passed" for r in some) for some in found]
            print(f"{file}: {passed[0]} pass, with stock TVM {passed[1]}", file=sys.stderr)
            for lost in regressions(*found):
                print(f"  with stock TVM alone: {lost}", file=sys.stderr)
    revision = f"{version}, tests of commit {commit or 'unknown'}"
    options = ["--checks"] * arguments.checks + arguments.tests
    command = " ".join(["python tests/upstream/run.py <checkout>", *options])
    table = _table(results, stock, revision, arguments.checks, command)
    arguments.table.write_text(table, encoding="utf-8")
    print(table)
    return 1 if regressions(results, stock) else 0


if __name__ == "__main__":
    raise SystemExit(main())
