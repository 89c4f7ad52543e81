"""``gemm_async`` on Hopper: the instructions it emits, and its results on a GPU.

On a GPU machine ``python -m pytest tests/ops/test_gemm_async.py -m gpu`` runs a sample in which
every pair of choices occurs; the emulator runs some in which every choice does, and with ``--slow``
a third of that sample. ``WARPLOOM_FULL=1`` runs every operand form and every width instead, and
``WARPLOOM_SUMMARY=FILE`` writes the counts and failures as JSON.
"""

import collections
import functools
import os
import re
import time
from dataclasses import dataclass, fields

import pytest
import tvm
from tvm.support.nvcc import compile_cuda

from tests.ops import gemm_async_run as run
from tests.shared.gemm_async_kernel import TARGET, lower
from tests.shared.generators import Case, full_cases, quick_cases
from tests.shared.sampling import covering, either
from warploom import emulator
from warploom.compiler.kernel_report import KernelReport
from warploom.compiler.report import compile_report
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target.swizzle import Major
from warploom.target.wgmma import WGMMA_M

_SMALL_FIRST = sorted(quick_cases(), key=lambda case: case.m * case.n * case.k)
#: Every choice of every axis is compiled, and with ``--slow`` every eighth case of the sample.
CHOICES, _ = covering(
    _SMALL_FIRST, lambda case: [(f.name, getattr(case, f.name)) for f in fields(case)]
)
MORE = [case for case in quick_cases()[::8] if case not in CHOICES]
#: Without a GPU these are run: every choice, and the smallest of every group.
EMULATED = list(dict.fromkeys((*CHOICES, *{c.group: c for c in _SMALL_FIRST[::-1]}.values())))


@dataclass(frozen=True)
class Compiled:
    """What one case became: the text of its kernel, and the report on its machine code."""

    source: str
    ptx: str
    report: KernelReport


@functools.cache
def _compiled(cases: tuple[Case, ...]) -> dict[Case, Compiled]:
    module = lower(cases)
    source = module.mod.imports[0].inspect_source()
    ptx = module.mod.imports[0].inspect_source("ptx")
    if "mma_async" not in ptx:  # a GPU's module has machine code
        ptx = compile_cuda(source, target_format="ptx", arch="sm_90a", compiler="nvrtc").decode()
    report = compile_report(module, TARGET)
    # ptxas names the function, but a warning may be about no function in particular.
    assert not report.problems, "\n".join(map(str, report.problems))
    kernels = {kernel.info.name: kernel for kernel in report.kernels}
    names = [f"case_{i}_kernel" for i in range(len(cases))]
    bodies = ((_body(source, n), _body(ptx, f".entry {n}")) for n in names)
    found = [Compiled(*pair, kernels[n]) for pair, n in zip(bodies, names, strict=True)]
    return dict(zip(cases, found, strict=True))


@pytest.fixture(params=either(CHOICES, MORE), ids=str)
def case(request) -> Case:
    return request.param


@pytest.fixture
def compiled(case) -> Compiled:
    """What the case became."""
    # A run draws few of the other cases.
    return _compiled(tuple(CHOICES) if case in CHOICES else (case,))[case]


def _body(text: str, function: str) -> str:
    """The definition of ``function``, which follows its declaration, up to the closing brace."""
    start = text.rindex(f"{function}(")
    return text[start : text.index("\n}\n", start)]


@pytest.mark.in_turn(3)
def test_emits_the_fewest_instructions(case, compiled):
    """In the PTX: one instruction for each 64-row block, each K step and each part of N."""
    issued = collections.Counter(re.findall(r"wgmma\.mma_async[\w.]*", compiled.ptx))
    blocks = case.m // WGMMA_M // case.warpgroups
    widths = [int(re.search(r"m64n(\d+)k", opcode).group(1)) for opcode in issued]
    assert issued.total() % (blocks * case.steps) == 0
    columns = [w for w, count in zip(widths, issued.values(), strict=True) for _ in range(count)]
    assert sum(columns) == case.n * blocks * case.steps
    assert set(issued) == {case.kind.opcode(width) for width in widths}
    if case.b_form.major is Major.K:
        parts = issued.total() // (blocks * case.steps)
        assert parts == (-(-case.n // 256) if case.n in case.kind.n or case.n > 256 else 2)


def test_synchronises_as_the_caller_asked(compiled):
    """One fence, commit and wait: the test's own, or those of the call with ``wait=True``."""
    pattern = r"wgmma\.(fence|mma_async|commit_group|wait_group)"
    order = re.findall(pattern, compiled.ptx)
    assert [order[0], *order[-2:]] == ["fence", "commit_group", "wait_group"]
    assert set(order[1:-2]) == {"mma_async"}


def test_descriptors_describe_their_operand(case, compiled):
    """Each instruction carries the descriptor of A and then that of B, or of B alone."""
    shared = [(case.a_form, case.a_tile)] if case.a_form else []
    expected = []
    for form, tile in [*shared, (case.b_form, case.b_tile)]:
        mn, k = tile.shape if form.major is Major.K else tile.shape[::-1]
        matrix = SharedMatrix(case.kind.a, form.major, form.swizzle, mn, k)
        expected.append(matrix.descriptor)
    calls = [line for line in compiled.source.splitlines() if "_mma_async_" in line]
    assert calls
    for call in calls:
        assert [int(value) for value in re.findall(r"\(uint64_t\)(\d+)ULL", call)] == expected


def test_accumulators_stay_in_registers(compiled):
    """No spill, no stack, and one machine instruction for each in the PTX: none is serialised."""
    report = compiled.report
    assert report.spill_store_bytes == report.spill_load_bytes == 0
    assert report.info.frame_bytes == report.info.stack_bytes == 0
    mnemonics = {"HGMMA", "QGMMA", "IGMMA"}
    assert sum(report.sass[name] for name in mnemonics) == compiled.ptx.count("mma_async")


@pytest.mark.some(4)
def test_no_block_rank_reaches_the_strides(compiled):
    """In a cluster a block's own shared addresses carry its rank in bits that a stride has."""
    calls = [line for line in compiled.source.splitlines() if "_mma_async_" in line]
    assert calls
    for call in calls:
        addresses = call.count("cvta_generic_to_shared(")
        assert addresses and len(re.findall(r"& \(uint\)262143\) >> \(uint\)4", call)) == addresses


@pytest.fixture(scope="module")
def results(request) -> dict[str, list[run.Outcome]]:
    """Outcomes of all cases by group; everything runs once, in as many processes as CPU cores."""
    full = os.environ.get("WARPLOOM_FULL") == "1"
    start = time.monotonic()
    quick = EMULATED if emulator.is_enabled() else quick_cases()
    outcomes = run.run_cases(full_cases() if full else quick)
    summary = run.summarise(outcomes, time.monotonic() - start, tvm.cuda(0).device_name)
    if path := os.environ.get("WARPLOOM_SUMMARY"):
        run.write_summary(summary, path)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("", *run.summary_lines(summary), sep="\n")
    groups = collections.defaultdict(list)
    for outcome in outcomes:
        groups[outcome.group].append(outcome)
    return groups


@pytest.mark.gpu
@pytest.mark.parametrize("group", sorted({case.group for case in quick_cases()}))
@pytest.mark.some(8)
def test_results_are_right(results, group):
    """Every element of D, those beside the computed part included, within its error bound."""
    wrong = [f"{o.case}: {o.error}" for o in results[group] if o.error]
    assert results[group] and not wrong, "\n".join([f"{len(wrong)} wrong", *wrong[:20]])


@pytest.mark.gpu
@pytest.mark.long
def test_more_results_are_right():
    """Of larger cases: every eighth of the sample, and the first of every group."""
    first = {case.group: case for case in quick_cases()[::-1]}.values()
    wrong = [f"{o.case}: {o.error}" for o in run.run_cases([*MORE, *first]) if o.error]
    assert not wrong, "\n".join([f"{len(wrong)} wrong", *wrong[:20]])
