"""The benchmarks, by name."""

from __future__ import annotations

#: Name of a benchmark -> the module with ``main(arguments)``.
BENCHMARKS = {
    "gemm": "warploom.bench.gemm",
    "attention": "warploom.bench.attention",
    "dequant": "warploom.bench.dequant",
    "block-scaled": "warploom.bench.block_scaled",
    "grouped": "warploom.bench.grouped",
    "convolution": "warploom.bench.convolution",
    "relax": "warploom.bench.relax_block",
    "ladder": "warploom.bench.ladder",
    "generated": "warploom.bench.generated",
    "compile": "warploom.bench.compile_time",
    "cold": "warploom.bench.cold_start",
    "launch": "warploom.bench.launch",
    "exhaustive": "warploom.bench.exhaustive",
    "judge": "warploom.bench.judge",
    "tuning": "warploom.bench.tuning",
    "model": "warploom.bench.model_error",
    "soak": "warploom.bench.soak",
    "profile": "warploom.bench.timeline",
}
