"""Machine code of a function, as text: what the compiler made of it, and in which order."""

from __future__ import annotations

import pytest
import tvm
from tvm.tirx import PrimFunc

from warploom.compiler import sass
from warploom.compiler.callback import compile_cached
from warploom.compiler.invoke import current_request
from warploom.target import cuda_target

needs_disassembler = pytest.mark.skipif(sass.disassembler() is None, reason="needs nvdisasm")


def listing_of_source(source: str) -> str:
    """Of CUDA source, for an H200."""
    with cuda_target("h200"):
        return sass.listing(compile_cached(current_request(source, "cubin")).output.binary)


def listing_of(func: PrimFunc, pipeline: str = "warploom") -> str:
    """Of the kernel of a function, built for an H200."""
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    built = tvm.compile(mod, cuda_target("h200"), tir_pipeline=pipeline)
    (source,) = (one.inspect_source() for one in built.mod.imports)
    return listing_of_source(source)
