"""Loops of MMAs are not written out by the compiler, and sums are read behind their wait."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.tirx import ForKind, PrimFunc

from tests.shared.machine_code import listing_of_source, needs_disassembler
from warploom.decide import Config
from warploom.lower.hopper.keep_loops import keep_loops
from warploom.programs import attention, gemm
from warploom.target import cuda_target

_KEPT = "#pragma unroll 1"
_MMA = re.compile(r"HGMMA\.64x(?P<n>\d+)x\d+\.F32\S* R(?P<first>\d+)")


def _source(func: PrimFunc) -> str:
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    built = tvm.compile(module, cuda_target("h200"), tir_pipeline="warploom")
    return "".join(one.inspect_source() for one in built.mod.imports)


def _gelu(m: int, n: int, k: int) -> str:
    """The CUDA source of GELU of a product in float16, as models have it."""
    builder = relax.BlockBuilder()
    x, w = (
        relax.Var(name, relax.TensorType(shape, "float16"))
        for name, shape in (("x", (m, k)), ("w", (k, n)))
    )
    with builder.function("main", [x, w]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, w))
            out = builder.emit_output(relax.op.nn.gelu(product))
        builder.emit_func_output(out)
    built = relax.build(builder.get(), cuda_target("h200"))
    return "".join(one.inspect_source() for one in _cuda(built.mod))


def _cuda(module: Any) -> Iterator[Any]:
    for one in module.imports:
        if one.kind == "cuda":
            yield one
        yield from _cuda(one)


def _read_too_early(listing: str) -> list[str]:
    """Instructions that read sums between the last MMA and the wait for all of them."""
    found: list[str] = []
    sums = range(0)
    for line in listing.splitlines():
        text = re.sub(r"/\*.*?\*/", "", line).strip()
        mma = _MMA.search(text)
        if mma:
            first = int(mma["first"])
            sums = range(first, first + int(mma["n"]) // 2)
        elif "DEPBAR.LE gsb0, 0x0" in text:
            sums = range(0)
        elif any(int(one) in sums for one in re.findall(r"\bR(\d+)\b", text.partition(",")[2])):
            found.append(text)
    return found


@pytest.mark.parametrize(
    "func",
    [gemm(Config(128, 128, 64, stages=4), 512, 1024, 256), attention(512, 64, 2)],
    ids=["gemm", "attention"],
)
def test_steps_stay_a_loop(func: PrimFunc) -> None:
    lines = [line.strip() for line in _source(func).splitlines()]
    loops = [lines[at + 1] for at, line in enumerate(lines) if line == _KEPT]
    assert loops and all(line.startswith("for (int") for line in loops)


def test_loops_without_mmas_are_as_they_were() -> None:
    var = tirx.Var("i", "int32")
    loop = tirx.For(var, 0, 8, ForKind.SERIAL, tirx.Evaluate(var + 1))
    assert tvm_ffi.structural_equal(keep_loops(loop), loop)
    assert not keep_loops(loop).annotations


def test_a_sum_that_is_read_too_early_is_found() -> None:
    mma, wait = "HGMMA.64x16x16.F32 R24, gdesc[UR4], R24, gsb0 ;", "DEPBAR.LE gsb0, 0x0 ;"
    reads = "F2FP.F16.F32.PACK_AB R4, R24, R25 ;"
    assert _read_too_early("\n".join([mma, reads, wait])) == [reads]
    assert not _read_too_early("\n".join([mma, wait, reads]))


@needs_disassembler
@pytest.mark.parametrize(("m", "n", "k"), [(1500, 5120, 1280), (384, 2560, 768)])
def test_no_sum_is_read_before_its_wait(m: int, n: int, k: int) -> None:
    source = _gelu(m, n, k)
    listing = listing_of_source(source)
    assert "HGMMA" in listing and not _read_too_early(listing)
