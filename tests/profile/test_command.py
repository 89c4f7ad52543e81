"""``warploom profile``: the record, the picture and the errors of the command."""

from __future__ import annotations

import json

import pytest

from warploom.cli import main

PROGRAM = """
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from warploom import language as wl

@T.prim_func
def product(a: T.handle, B: T.Buffer((64, 96), "float16"), c: T.handle):
    m = T.int32()
    A, C = T.match_buffer(a, (m, 96), "float16"), T.match_buffer(c, (m, 64), "float32")
    T.device_entry()
    i = T.cta_id([T.ceildiv(m, 64)])
    A_s = T.alloc_buffer((64, 32), "float16", scope="shared")
    B_s = T.alloc_buffer((64, 32), "float16", scope="shared")
    acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
    for k in wl.pipelined(3):
        Tx.cta.copy_async(A_s, A[i * 64 : i * 64 + 64, k * 32 : k * 32 + 32])
        Tx.cta.copy_async(B_s, B[:, k * 32 : k * 32 + 32])
        Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
    Tx.cta.copy(C[i * 64 : i * 64 + 64, :], acc)
"""


@pytest.mark.gpu
def test_the_command(tmp_path, capsys):
    (tmp_path / "program.py").write_text(PROGRAM)
    place, out = f"{tmp_path}/program.py:product", str(tmp_path / "found")
    assert main(["profile", place, "130", "--ctas", "132", "--out", out]) == 0
    printed = capsys.readouterr().out
    assert "load" in printed and "epilogue" in printed and "of 3 CTAs" in printed
    assert json.loads((tmp_path / "found.json").read_text())["traceEvents"]
    assert "Timeline of product" in (tmp_path / "found.svg").read_text()
    if "no PNG" not in printed:
        assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")
    for arguments, words in (
        ([place], "symbolic"), ([place, "1", "2"], "[2] are of nothing"),
        ([str(tmp_path)], "is no program"), (["gemm", "1", "1", "1", "1"], "has 3 sizes"),
    ):  # fmt: skip
        assert main(["profile", *arguments]) == 2
        assert words in capsys.readouterr().err
