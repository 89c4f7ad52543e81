"""What the author of a tile program reads after a typical mistake, as plain ``python`` shows it.

All programs with mistakes run in one process. Each is shown in at most five lines, with the
author's line, what is wrong with it, and what to write.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from warploom.compiler.failure import KEPT, compiler_error
from warploom.errors import CompilerError
from warploom.messages import display
from warploom.messages.blame import find_line, with_place
from warploom.target import cuda_target

PROGRAM = """
import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from warploom import language as wl
from warploom.target import cuda_target

M, N, K, BM, BN, BK = 128, 128, 128, 64, 64, 64

@T.prim_func
def linear(A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"), C: T.Buffer((M, N), "float16")):
    T.device_entry()
    wl.hints(persistent=True)
    i, j = T.cta_id([M // BM, N // BN])
    A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
    B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
    acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
    out = T.alloc_buffer((BM, BN), "float16", scope="fragment")
    for k in wl.pipelined(K // BK, stages=2):
        Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, k * BK : k * BK + BK])
        Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, k * BK : k * BK + BK])
        Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
    for y, x in T.grid(BM, BN):
        out[y, x] = T.cast(T.max(acc[y, x], T.float32(0)), "float16")
    Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], out)

executable = tvm.compile(tvm.IRModule({"main": linear}), cuda_target("h200"), tir_pipeline="warploom")
a, b, c = (tvm.runtime.tensor(np.ones((128, 128), "float16"), tvm.cuda(0)) for _ in range(3))
executable["main"](a, b, c)
"""  # noqa: E501
BY_HAND = """
import numpy as np
import tvm
from tvm.backend.cuda.lang.pipeline import TMABar
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from warploom.layout.fragment import wgmma_accumulator
from warploom.target import cuda_target

layout = mma_shared_layout("float16", 3, (64, 64))
registers = wgmma_accumulator(64, 64)

@T.prim_func
def load(a: T.Buffer((64, 64), "float16"), b: T.Buffer((64, 64), "float16")):
    T.device_entry()
    T.cta_id([1])
    T.warpgroup_id([1])
    thread = T.thread_id_in_wg([128])
    pool = T.SMEMPool()
    tile = pool.alloc((64, 64), "float16", align=1024, layout=layout)
    full = TMABar(pool, 1)
    pool.commit()
    full.init(1)
    T.ptx.fence.proxy.async_.shared__cta()
    T.cuda.cta_sync()
    if thread == 0:
        full.arrive(0, 64 * 64 * 2)
        Tx.copy_async(tile[:, :], a[:, :], dispatch="tma_auto", mbar=full.ptr_to([0]))
    full.wait(0, 0)
    acc = T.alloc_buffer((64, 64), "float32", scope="local", layout=registers)
    Tx.wg.gemm_async(acc[:, :], tile[:, :], tile[:, :], accum=False, wait=True)
    Tx.wg.copy(b[:, :], tile[:, :])

executable = tvm.compile(tvm.IRModule({"main": load}), cuda_target("h200"), tir_pipeline="tirx")
a, b = (tvm.runtime.tensor(np.ones((64, 64), "float16"), tvm.cuda(0)) for _ in range(2))
executable["main"](a, b)
"""
#: Runs each program of a JSON file as ``python`` does; prints what ``sys.excepthook`` shows.
RUNNER = """
import contextlib, io, json, pathlib, runpy, sys
import tvm
from warploom import emulator

emulator.enable()
shown = {}
for name, text in json.loads(pathlib.Path(sys.argv[1]).read_text()).items():
    file = pathlib.Path(sys.argv[1]).with_name(f"{name}.py")
    file.write_text(text)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            runpy.run_path(str(file), run_name="__main__")
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
    shown[name] = out.getvalue()
print(json.dumps(shown))
"""
#: What the runner makes a program of that is shown as stock TVM does.
WITH_BACKTRACE = "import os\nos.environ['TVM_BACKTRACE'] = '1'\n"
NOTE = "note: run with `TVM_BACKTRACE=1` environment variable to display a backtrace."
MAX = "T.max(acc[y, x], T.float32(0))"
EPILOGUE = f"""    for y, x in T.grid(BM, BN):
        out[y, x] = T.cast({MAX}, "float16")
"""
STORE = "    Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], out)\n"


@dataclass(frozen=True)
class Mistake:
    """A change of the program, and what has to be shown.

    Attributes
    ----------
    old, new : str
        What is replaced, everywhere, and by what.
    line : str
        A part of the line of the program that is shown.
    says : str
        Regular expression: the value, the rule and the fix.
    program : str
        What is changed.
    also : tuple of (str, str)
        A further replacement.
    """

    old: str
    new: str
    line: str
    says: str
    program: str = PROGRAM
    also: tuple[str, str] = ("", "")

    def apply(self) -> str:
        """The program with the mistake."""
        assert self.old in self.program and self.also[0] in self.program
        program = self.program.replace(self.old, self.new)
        return program.replace(*self.also) if any(self.also) else program


def value(expression: str, says: str) -> Mistake:
    """The elements of the result are another expression."""
    return Mistake(MAX, expression, expression, says)


def call(arguments: str, says: str) -> Mistake:
    """The kernel gets other arguments."""
    return Mistake('["main"](a, b, c)', f'["main"]({arguments})', f"({arguments})", says)


MISTAKES = {
    "forgotten_accum": Mistake(", accum=k > 0", "", "gemm_async(acc",
        r"TileProgramWarning: The MMA into acc starts anew .*; write accum=k > 0"),
    "rest_of_k": Mistake(", 128, 64, 64, 64\n", ", 200, 64, 64, 64\n", "copy_async(A_s",
        r"TileProgramWarning: A is loaded in 3 steps .* the last 8 are not; write T.ceildiv\(200",
        also=('executable["main"](a, b, c)', "")),
    "copy_to_another_dtype": Mistake('B_s = T.alloc_buffer((BN, BK), "float16"',
        'B_s = T.alloc_buffer((BN, BK), "bfloat16"', "copy_async(B_s", "float16.*bfloat16"),
    "operands_of_mixed_dtypes": Mistake('B_s = T.alloc_buffer((BN, BK), "float16"',
        'B_s = T.alloc_buffer((BN, BK), "bfloat16"', "gemm_async(acc",
        "B_s, of dtype bfloat16 .*; no tensor core .* allowed are float16 x float16, .* cast",
        also=('B: T.Buffer((N, K), "float16")', 'B: T.Buffer((N, K), "bfloat16")')),
    "float64": Mistake('"float16"', '"float64"', "gemm_async(acc",
        "of dtype float64 into acc.* no tensor core .* allowed are float16 x float16, .* cast"),
    "shape_of_a_product_by_hand": Mistake("tile[:, :], acc", "tile[0:32, :], acc", "gemm_async(acc",
        r"^DispatchError: gemm_async: .* D is 64 x 64 \(M x N\).* B 32 x 64 ", BY_HAND),
    "shape": Mistake("A_s = T.alloc_buffer((BM, BK)", "A_s = T.alloc_buffer((BM, BK + 8)",
        "copy_async(A_s", r"\['64', '72'\] != src region shape \['64', '64'\]"),
    "rank": Mistake(", k * BK : k * BK + BK])\n        Tx.cta.copy_async(B_s", "])\n        "
        "Tx.cta.copy_async(B_s", "copy_async(A_s", r"\['64', '64'\] != src .* \['64', '128'\]"),
    "too_many_indices": Mistake("A[i * BM", "A[0, i * BM", "copy_async(A_s", r"write 2$"),
    "no_stages": Mistake("stages=2", "stages=0", "stages=0", "stages is 0; .* at least 1"),
    "many_stages": Mistake("stages=2", "stages=40", "stages=40",
        r"needs \d+ bytes of shared memory and a CTA has 232448; use fewer stages or smaller tiles"
        r": A_s: 40 x 64 x 64 float16, 327680 bytes; B_s"),
    "hint": Mistake("persistent=True", "persistant=True", "persistant", r"\^ did you mean persis"),
    "hint_range": Mistake("persistent=True", "consumers=4", "consumers=4", "consumers is 4; .* 3 "),
    "raster": Mistake("persistent=True", 'raster="row"', "raster", "'row'; .* one of 'rows', 'col"),
    "primitive": Mistake("gemm_async", "gem_async", "gem_async", "mean gemm_async"),
    "function": Mistake("T.max", "T.maxx", "T.maxx", r"\^ did you mean max\?"),
    "of_the_language": Mistake("pipelined", "pipeline", "wl.pipeline(", "mean pipelined"),
    "name": Mistake("acc, A_s, B_s", "acc, As, B_s", "acc, As, B_s", r"As\n(.*\n)*.*mean A_s"),
    "dtype": Mistake('(BM, BK), "float16"', '(BM, BK), "flaot16"', "flaot16", "mean float16"),
    "dtype_of_parameter": Mistake('(M, K), "float16"', '(M, K), "half"', "def linear",
        r"`half`; did you mean float16\?"),
    "no_device_entry": Mistake("    T.device_entry()\n", "", "def linear",
        r"linear has no device entry; write T.device_entry\(\) as the first statement"),
    "no_such_gpu": Mistake('cuda_target("h200")', 'cuda_target("a100")', "a100",
        "'a100'; allowed are h100, .*sm_100a"),
    "old_arch": Mistake('cuda_target("h200")', '{"kind": "cuda", "arch": "sm_80"}', "sm_80",
        "for sm_80; compile for sm_90a or sm_100a"),
    "max": value("max(acc[y, x], 0.0)", r"max\(\) .*; write T.max\(a, b\)"),
    "min": value("min(0.0, acc[y, x])", r"write T.min\(a, b\)"),
    "abs": value("abs(acc[y, x])", r"write T.abs\(x\)"),
    "round": value("round(acc[y, x])", r"write T.round\(x\)"),
    "pow": value("pow(acc[y, x], 2)", r"write T.pow\(x, y\)"),
    "float": value("float(acc[y, x])", r'write T.cast\(x, "float32"\)'),
    "int": value("int(acc[y, x])", r'write T.cast\(x, "int32"\)'),
    "bool": value("bool(acc[y, x])", "write a comparison such as x != 0"),
    "and": value("(acc[y, x] > 0 and acc[y, x])", r"write T.And\(a, b\)"),
    "len": value("T.float32(len(acc))", r"write tile.shape\[0\]"),
    "sum": value("sum(acc)", r"write Tx.cta.sum\(row, tile, axes=1\)"),
    "list": value("list(acc[y, x])[0]", r"write for y, x in T.grid"),
    "numpy": value("np.tanh(acc[y, x])", "np.tanh is for values of the host; write T.tanh"),
    "iteration": Mistake("for y, x in T.grid(BM, BN)", "for y, x in acc", "in acc", "T.grid"),
    "never_loaded": Mistake(
        "        Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, k * BK : k * BK + BK])\n",
        "",
        "gemm_async(acc",
        r"B_s is read before anything is written to it; .* so load, zero or fill it first",
    ),
    "missing_wait": Mistake(
        "    full.wait(0, 0)\n",
        "",
        "Tx.wg.gemm_async",
        r"^EmulatorError: .* in kernel load_kernel: .*missing_wait.py:\d+ Tx.* Fix: .*wait",
        BY_HAND,
    ),
    "scope": Mistake('scope="accumulator"', 'scope="acumulator"', "acumulator",
        "allocated in scope 'acumulator'; allowed are shared, .*; did you mean 'accumulator'"),
    "if_on_elements": Mistake(
        "        out[y, x] =", "        if acc[y, x] > 0:\n            out[y, x] =",
        "if acc[y, x] > 0", r"depends on an element of the tile acc.* T.if_then_else\(condition"),
    "no_epilogue": Mistake(EPILOGUE, "", "Tx.cta.copy(C", "out is read before anything is written"),
    "no_result": Mistake(EPILOGUE + STORE, "", "gemm_async(acc",
        r"nothing reads acc, the result of this gemm_async; .* Tx.cta.cast\(out, acc\)"),
    "sum_by_stores": Mistake("out[y, x] =", "out[y, 0] =", "out[y, 0]",
        r"\(y = 0, x = 0\) and \(y = 0, x = 1\) of the nest both store out\[y, 0\]"),
    "beyond_the_tile": Mistake("T.grid(BM, BN)", "T.grid(BM, BN + 8)", "out[y, x]",
        r"\[0, \d+\] lies outside of (out|acc), .* so shorten the loops"),
    "dtype_of_argument": call("a.numpy().astype('float32'), b, c",
        r"A\.dtype .*\n.*expected float16; convert A before the call"),
    "shape_of_argument": call("tvm.runtime.tensor(a.numpy()[:, :64], tvm.cuda(0)), b, c",
        r"A\.(strides|shape)(.*\n)+.*give A that shape"),
    "rank_of_argument": call("tvm.runtime.tensor(a.numpy()[0], tvm.cuda(0)), b, c",
        r"A\.ndim .*\n.*expected 2"),
    "missing_argument": call("a, b", r"Expected 3 arguments .*\n.*linear\(A: Tensor\(\[128, 128\]"),
    "place_of_argument": call("a.numpy(), b, c", r"expected cuda; .* tvm.runtime.tensor\(A, tvm.c"),
}  # fmt: skip


def test_typical_mistakes_are_shown_in_five_lines(run_python, tmp_path):
    programs = {name: mistake.apply() for name, mistake in MISTAKES.items()}
    file = tmp_path / "programs.json"
    others = {"right": PROGRAM, "by_hand": BY_HAND}
    others |= {"zero": "import tvm\n1 / 0", "number": "int('x')"}
    others["whole"] = WITH_BACKTRACE + programs["primitive"]
    file.write_text(json.dumps(programs | others))
    code = f"import sys\nsys.argv[1:] = [{str(file)!r}]\n{RUNNER}"
    result = run_python(code, PYTEST_CURRENT_TEST=None, TVM_BACKTRACE=None)
    assert result.returncode == 0, result.stderr
    shown = json.loads(result.stdout.splitlines()[-1])
    for name in ("right", "by_hand"):
        assert not re.search("error|warning", shown[name], re.I)
    for name, last in {"zero": "ZeroDivisionError: ", "number": "ValueError: invalid"}.items():
        assert "Traceback" in shown[name] and NOTE not in shown[name]
        assert shown[name].splitlines()[-1].startswith(last)
    assert "Traceback" in shown["whole"] and NOTE not in shown["whole"]
    assert shown["primitive"].splitlines()[0] in shown["whole"]
    wrong = {}
    for name, mistake in MISTAKES.items():
        lines = shown[name].splitlines()
        number = next(
            n for n, text in enumerate(programs[name].splitlines(), 1) if mistake.line in text
        )
        good = (
            len(lines) <= 5
            and f"{name}.py:{number}" in shown[name]
            and programs[name].splitlines()[number - 1].strip() in shown[name]
            and re.search(mistake.says, shown[name], re.M)
            and lines.count(NOTE) == ("Warning" not in mistake.says)
        )
        if not good:
            wrong[name] = f"line {number}\n{shown[name]}"
    assert not wrong, "\n\n".join(f"{name}: {text}" for name, text in wrong.items())


@pytest.mark.in_turn(3)
def test_warploom_emulate_shows_the_same(run_python, tmp_path):
    file = tmp_path / "mistake.py"
    file.write_text(PROGRAM.replace("gemm_async", "gem_async"))
    code = f"import sys\nfrom warploom import cli\nsys.exit(cli.main(['emulate', {str(file)!r}]))\n"
    result = run_python(code, PYTEST_CURRENT_TEST=None, TVM_BACKTRACE=None)
    assert result.returncode == 1
    lines = (result.stderr + result.stdout).splitlines()
    lines = [line for line in lines if not line.startswith("warploom: CUDA kernels run on")]
    assert lines[0].endswith("no attribute 'gem_async'") and f"{file}:23" in lines[1]
    assert "did you mean gemm_async" in lines[3] and lines[4:] == [NOTE]


def test_notebooks_show_the_same(monkeypatch, capsys):
    shell = SimpleNamespace(custom_exceptions=())
    shell.set_custom_exc = lambda kinds, show: vars(shell).update(
        custom_exceptions=kinds, show=show
    )
    shell.showtraceback = lambda error, tb_offset: print("whole", error[0].__name__)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    display._install_in_notebook()
    with pytest.raises(shell.custom_exceptions) as caught:
        cuda_target("a100")
    error = (caught.type, caught.value, caught.tb)
    for whole in (False, True):
        monkeypatch.setattr(display, "_wants_everything", lambda whole=whole: whole)
        shell.show(shell, *error, tb_offset=1)
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert lines[0].startswith("IllegalCombination: No target for 'a100'; allowed are")
    assert lines[1].startswith(f" --> {__file__}:") and 'cuda_target("a100")' in lines[2]
    assert lines[3:] == [NOTE] and shown.out == "whole IllegalCombination\n"
    # A handler that is there already stays.
    shell.custom_exceptions, shell.show = (KeyError,), None
    display._install_in_notebook()
    assert shell.custom_exceptions == (KeyError,) and shell.show is None


def test_a_hook_that_was_there_before_sees_every_error(run_python):
    code = (
        "import sys\nsys.excepthook = lambda kind, *_: print('hook', kind.__name__)\n"
        "from warploom.target import cuda_target\ncuda_target('a100')"
    )
    result = run_python(code, PYTEST_CURRENT_TEST=None)
    assert result.stdout.splitlines()[-1] == "hook IllegalCombination"


def test_a_rejected_source_is_one_sentence_with_the_file_of_the_log(tmp_path):
    log = "NVRTC compilation failed:\nk.cu(3): warning #177-D: \"x\" unused\n\nk.cu(7): error: " \
        'identifier "y" is undefined\n\nk.cu(9): error: expected a ";"\n'  # fmt: skip
    error = compiler_error(RuntimeError(log), "the source", {7: "/home/me/k.py:12"})
    assert isinstance(error, CompilerError) and isinstance(error, RuntimeError)
    text, place = str(error).splitlines()
    assert text.startswith('NVRTC compilation failed: k.cu(7): error: identifier "y" is undefined')
    assert "(2 errors)" in text and place == " --> /home/me/k.py:12"
    file = Path(re.search("log and source: (.*)", text)[1])
    assert 'expected a ";"' in file.read_text() and "the source" in file.read_text()
    for _ in range(2 * KEPT):  # a search with many failures leaves a few files
        compiler_error(RuntimeError(log), "another")
    assert len(list(file.parent.iterdir())) <= KEPT
    assert compiler_error(RuntimeError("Failed to get CUBIN"), "the source") is None


def test_the_place_is_that_of_the_first_name_in_the_message(tmp_path):
    file = tmp_path / "right.py"
    file.write_text(PROGRAM.partition("executable =")[0])
    linear = runpy.run_path(str(file))["linear"]
    for message, line in {
        "Rows of A, which A_s is loaded from, are odd.": "copy_async(A_s",
        "A product of A_s and B_s into acc is too large.": "gemm_async(acc",
        "acc is too large.": "acc = T.alloc",
        "A tile cannot be stored from out to C.": "Tx.cta.copy(C",
        "persistent is no good here.": "wl.hints",
        "Use fewer stages.": "wl.pipelined",
        "Element x of y does not exist.": "out[y, x]",
        "linear has too few of them.": "def linear",
    }.items():
        assert line in find_line(message, linear).text, message
    assert find_line("Nothing of the kind exists.", linear) is None
    assert with_place("acc is bad.", linear).splitlines()[1] == f" --> {file}:18"
    assert with_place(f"acc is bad.\n --> {file}:3", linear).count("-->") == 1
