"""The table of builtins names all of them, and what it says of each is true."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from tests.language.builtins import test_memory as memory
from tests.language.builtins import test_registers as registers
from tests.language.builtins import test_tensor_core as tensor_core
from tests.language.builtins import test_threads as threads
from tests.language.builtins import test_tma as tma
from tests.language.builtins.examples import signatures
from tests.language.builtins.vocabulary import ARCHS
from warploom import language as wl
from warploom.errors import TileProgramError
from warploom.lower.lowerings import lower
from warploom.target import Swizzle, cuda_target

TABLE = Path(wl.builtins.__file__).with_name("VOCABULARY.md")
TESTS = Path(__file__).parent
ROWS = {
    cells[0].strip("`"): cells[1:]
    for line in TABLE.read_text().splitlines()
    if line.startswith("| `") and (cells := [cell.strip() for cell in line.strip("|").split(" | ")])
}


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_table_is_complete():
    assert set(ROWS) == set(wl.builtins.__all__) and len(ROWS) == 52


def test_the_signatures_are_those_of_the_functions():
    *_, block = TABLE.read_text().split("```text\n")
    assert block.split("\n```")[0] == signatures()


@pytest.mark.parametrize("name", wl.builtins.__all__)
def test_a_builtin_is_reached_by_both_names_and_says_what_it_does(name):
    function = getattr(wl, name)
    assert function is getattr(T.warploom, name) and name in wl.__all__
    first, *_ = function.__doc__.splitlines()
    assert first.endswith(".") and len(first) <= 100


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_true(name):
    becomes, upstream, test = ROWS[name]
    for text in quoted(upstream):
        eval(text, {"T": T})
    ((file, function),) = (one.split("::") for one in quoted(test))
    source = (TESTS / file).read_text()
    functions = {one.name for one in ast.parse(source).body if isinstance(one, ast.FunctionDef)}
    assert function in functions and is_used(name, source)
    # The test, or what it has in its module, looks for the instruction.
    for instruction in quoted(becomes):
        assert f'"{instruction}' in source, f"{file} does not look for {instruction}"


def is_used(name: str, source: str) -> bool:
    """Whether tests have a builtin: ``wl.name``, its name as a string, or ``f"ldg{bits}"``."""
    family = re.sub(r"^(ldg|stg)\d+$", r"\1{bits}", name)
    return any(
        re.search(rf"(wl\.|T\.warploom\.|\"){re.escape(one)}\b|\"{re.escape(one)}\"", source)
        for one in (name, family)
    )


def kernels():
    """All kernels of these tests."""
    return {
        "words": memory.words(128, memory.LIMIT), "wide": memory.words(256, memory.LIMIT),
        "pointers": memory.pointers(), "copies": memory.copies(),
        "places": threads.places(), "elections": threads.elections(),
        "shuffles": threads.shuffles(), "barriers": threads.barriers(),
        "grids": threads.grids("sync_grid"), "counters": threads.grids("sync_global"),
        "searches": threads.searches(), "boxes": tma.boxes(), "swizzled": tma.swizzled(2),
        "clusters": tma.clusters(), "products": tensor_core.products(),
        "tensor_memory": tensor_core.tensor_memory(Swizzle.B64), "fields": tensor_core.fields(),
        "volta": tensor_core.volta(("row", "col"), "float32"), "budgets": registers.budgets(),
    }  # fmt: skip


def test_what_builtins_become_prints_and_parses():
    for name, func in kernels().items():
        parsed = tvm.script.from_source(func.script())
        assert tvm_ffi.structural_equal(parsed, func), name


#: Kernels with instructions of one architecture only.
ONLY = {"wide": "sm_100a", "products": "sm_90a", "tensor_memory": "sm_100a"}


@pytest.mark.slow
@pytest.mark.usefixtures("machine_code")
@pytest.mark.parametrize("arch", ARCHS)
def test_ptxas_assembles_all_of_them(arch):
    """The emulator reads PTX that ptxas might reject."""
    for name, func in kernels().items():
        if ONLY.get(name, arch) == arch:
            report = warploom.compile_report(lower(func, arch), cuda_target(arch))
            assert len(report.kernels) == 1 and not report.problems, (name, report)


#: Statements in which threads take part, and what the passes call them.
MEETINGS = {
    "sync_threads": "cta_sync", "sync_warp": "warp_sync", "sync_grid": "grid_sync",
    "loop_break": "break", "warpgroup_arrive": "tirx.ptx.wgmma_fence",
}  # fmt: skip


@pytest.mark.parametrize("name", MEETINGS)
def test_programs_without_threads_are_declined(name):
    statement = getattr(wl, name)

    @T.prim_func
    def main(A: T.Buffer((64, 64), "float16"), B: T.Buffer((64, 64), "float16")):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((64, 64), "float16", scope="shared")
        for _ in wl.pipelined(2):
            Tx.cta.copy_async(tile, A[:, :])
            statement()
            Tx.cta.copy(B[:, :], tile)

    words = f"has the statement {MEETINGS[name]}, in which threads"
    with pytest.raises(TileProgramError, match=words):
        lower(main)
