"""Reports of the emulator name the lines of TVMScript that PTX was made from."""

from __future__ import annotations

import re

import pytest

from warploom.emulator import script_lines

CODE = """#include <cuda.h>
#ifdef FLOAT16
#include <cuda_fp16.h>
#endif

void kernel() {
  first();
  // warploom: from("/a/gemm.py:7");
  if (x) {
    // warploom: from("/a/gemm.py:8");
    second();
    // warploom: end();
    third();
  }
  // warploom: end();
  fourth();
}
"""

PROGRAM = """
import numpy as np
import tvm
import warploom
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from warploom.target import cuda_target


@T.prim_func
def too_far(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
    T.func_attr({"global_symbol": "too_far"})
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([128])
    if thread >= 0:
        STATEMENT


device = tvm.cuda(0)
program = tvm.compile(tvm.IRModule({"main": too_far}), cuda_target("sm_90a"), tir_pipeline="tirx")
a, b = (tvm.runtime.tensor(np.zeros(64, "float32"), device) for _ in range(2))
try:
    program["main"](a, b)
except Exception as error:
    print(str(error))
"""


def test_markers_are_taken_out_and_remembered():
    text, places = script_lines.split(CODE)
    assert "warploom" not in text
    lines = text.splitlines()
    assert {lines[number - 1].strip(): place for number, place in places.items()} == {
        "if (x) {": "/a/gemm.py:7",
        "second();": "/a/gemm.py:8",
        "third();": "/a/gemm.py:7",
        "}": "/a/gemm.py:7",
    }


def test_the_compiler_numbers_lines_as_they_are():
    """Whatever TVM does to the lines above, those after the includes keep their numbers."""
    lines = script_lines.source_of(CODE).text.splitlines()
    (directive,) = (i for i, line in enumerate(lines) if line.startswith("#line"))
    assert lines[directive - 1] == "#endif"
    assert int(lines[directive].split()[1]) == directive + 2


def test_source_without_markers_and_includes():
    source = script_lines.source_of("a\nb\n")
    assert source.places == {} and source.text == '#line 2 "tvm_kernels.cu"\na\nb\n'


def test_only_lines_that_the_ptx_names_are_appended(tmp_path):
    script = tmp_path / "gemm.py"
    script.write_text("\n" * 7 + "  full.wait(  0)\n")
    source = script_lines.Source("first();\n  second();\n", {2: f"{script}:8"})
    ptx = b'.loc 1 2 3\nret;\n.file 1 "/here/tvm_kernels.cu"\n\0'
    text = script_lines.append(ptx, source).decode()
    assert re.findall("//@.*", text) == [
        "//@cuda 2 second();",
        "//@script 2 gemm.py:8 full.wait( 0)",
    ]
    assert '.file 1 "tvm_kernels.cu"' in text and "\0" not in text


@pytest.mark.parametrize(
    "statement", ["b[thread] = a[thread] + T.float32(1)", "b[0] = a[thread * 4]"]
)
@pytest.mark.some(1)
def test_a_fault_names_the_statement(run_python, statement):
    program = PROGRAM.replace("STATEMENT", statement)
    result = run_python(program, WARPLOOM_EMULATOR="1")
    assert result.returncode == 0, result.stderr[-3000:]
    line = program.splitlines().index(f"        {statement}") + 1
    assert f"script script.py:{line} {statement}" in result.stdout, result.stdout
    assert "tvm_kernels.cu:" in result.stdout


def test_the_same_code_is_compiled_with_and_without_markers(run_python):
    """Of a kernel with tile primitives, whose lowering keeps the place of the call."""
    program = """
import tvm, warploom
from warploom.compiler import callback
from warploom.emulator import script_lines
from warploom.programs import compile_gemm

sources = []
source_of = script_lines.source_of

def listen(code):
    sources.append(source_of(code))
    return sources[-1]

script_lines.source_of = listen
first = compile_gemm(None, 256, 256)
script_lines.add_markers = lambda module: module
compile_gemm(None, 256, 256)
assert "// warploom:" not in first.mod.imports[0].inspect_source()
assert sources[0].text == sources[1].text
places = {place.rpartition("/")[2].split(":")[0] for place in sources[0].places.values()}
assert "gemm.py" in places and not places & {"tma.py", "gemm_async_wgmma.py"}, places
assert len(sources[0].places) > 50 and not sources[1].places
"""
    result = run_python(program, WARPLOOM_EMULATOR="1")
    assert result.returncode == 0, result.stderr[-3000:]
