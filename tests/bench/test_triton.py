"""The Triton kernel of the benchmark, compiled for Hopper where Triton is installed."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton")
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from warploom_bench import triton_gemm  # noqa: E402

tl = triton.language
#: TVM's type of the operands -> Triton's, of the sum and of the result.
TYPES = {
    "float16": ("fp16", tl.float32, tl.float16, "fp16"),
    "float8_e4m3fn": ("fp8e4nv", tl.float32, tl.bfloat16, "bf16"),
    "int8": ("i8", tl.int32, tl.int32, "i32"),
    "float32": ("fp32", tl.float32, tl.float32, "fp32"),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("straight", [True, False], ids=["NT", "TN"])
def test_it_uses_tma_and_wgmma(dtype, straight):
    if not straight and dtype != "float16":
        pytest.skip("operands of other types lie along K")
    element, total, out, result = TYPES[dtype]
    config = triton_gemm.configs(dtype)[2]
    bm, bn, bk = (config.kwargs[name] for name in ("BM", "BN", "BK"))
    boxes = {"a": [bm, bk], "b": [bn, bk]} if straight else {"a": [bk, bm], "b": [bk, bn]}
    constants = {
        "A_IS_MK": straight, "B_IS_NK": straight, "SCALED": dtype.startswith("float8"),
        "SUM": total, "OUT": out, "CTAS": 132, "GROUP": 8, **config.kwargs,
    }  # fmt: skip
    signature = {name: f"tensordesc<{element}{box}>" for name, box in boxes.items()}
    signature |= {"c": f"tensordesc<{result}{[bm, bn]}>", "scale_a": "*fp32", "scale_b": "*fp32"}
    signature |= dict.fromkeys("mnk", "i32") | dict.fromkeys(constants, "constexpr")
    made = triton.compile(
        ASTSource(triton_gemm.matmul, signature, constants), target=GPUTarget("cuda", 90, 32),
        options={"num_stages": config.num_stages, "num_warps": config.num_warps},
    )  # fmt: skip
    assert "wgmma.mma_async" in made.asm["ptx"] and "cp.async.bulk.tensor" in made.asm["ptx"]
    assert made.metadata.shared <= 227 * 1024
