"""The benchmarks, by name."""

from __future__ import annotations

#: Name of a benchmark -> the module with ``main(arguments)``.
BENCHMARKS = {
    "gemm": "warploom_bench.gemm",
    "attention": "warploom_bench.attention",
    "dequant": "warploom_bench.dequant",
    "block-scaled": "warploom_bench.block_scaled",
    "grouped": "warploom_bench.grouped",
    "convolution": "warploom_bench.convolution",
    "relax": "warploom_bench.relax_block",
    "ladder": "warploom_bench.ladder",
    "gallery": "warploom_bench.gallery",
    "generated": "warploom_bench.generated",
    "compile": "warploom_bench.compile_time",
    "cold": "warploom_bench.cold_start",
    "launch": "warploom_bench.launch",
    "machine": "warploom_bench.machine.command",
    "exhaustive": "warploom_bench.exhaustive",
    "judge": "warploom_bench.judge",
    "tuning": "warploom_bench.tuning",
    "model": "warploom_bench.models.command",
    "model-error": "warploom_bench.model_error",
    "soak": "warploom_bench.soak",
    "profile": "warploom_bench.timeline",
}
