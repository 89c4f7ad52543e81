"""The benchmarks, by name."""

from __future__ import annotations

from dataclasses import dataclass

from warploom.command_help import Entry

_ALL, _KERNELS, _MODELS = "All of it", "Kernels", "Models"
_HOST, _TUNING = "Compiling and launching", "Models of costs and tuning"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark.

    Attributes
    ----------
    module : str
        The module with ``main(arguments)``.
    group, sentence : str
        The heading that lists have it under, and what it measures.
    example : str
        Arguments that people give it.
    """

    module: str
    group: str
    sentence: str
    example: str


#: Name of a benchmark -> the benchmark; lists have this order.
# fmt: off
BENCHMARKS = {
    name: Benchmark(f"warploom_bench.{module}", group, sentence, example)
    for name, module, group, sentence, example in (
        ("goals", "goals", _ALL,
         "Measures the performance goals of this package, row by row.", "--row 1"),
        ("headline", "headline", _ALL,
         "Writes the numbers of the first page from one committed run.", "--run kept.json"),
        ("gemm", "gemm", _KERNELS,
         "Times GEMMs against cuBLAS and other libraries, and checks them.",
         "--shape 4096x4096x4096"),
        ("attention", "attention", _KERNELS,
         "Times attention against PyTorch's implementations.", "--tokens 4096 --head-dim 128"),
        ("dequant", "dequant", _KERNELS,
         "Times GEMMs with weights of 4 and 8 bits against the 16-bit GEMM.", "--m 1"),
        ("block-scaled", "block_scaled", _KERNELS,
         "Times 8-bit GEMMs with block scales against cuBLASLt's.", "--m 4096"),
        ("grouped", "grouped", _KERNELS,
         "Times the grouped GEMMs of a mixture of experts.", "--m 4096"),
        ("convolution", "convolution", _KERNELS,
         "Times convolutions against cuDNN's.", "--images 32"),
        ("gallery", "gallery", _KERNELS,
         "Times the kernels of the gallery against PyTorch's operators.", "softmax layer_norm"),
        ("ladder", "ladder", _KERNELS,
         "Times every step of the Hopper ladder against cuBLAS.", "--size 4096"),
        ("generated", "generated", _KERNELS,
         "Times the generated matmuls against cuBLAS.", "--size 4096"),
        ("relax", "relax_block", _MODELS,
         "Times a decoder block built by Relax against torch.compile.", "--rows 4096"),
        ("model", "models.command", _MODELS,
         "Times a whole model beside PyTorch and the roofline.", "llama-3-8b --gpu h100"),
        ("compile", "compile_time", _HOST,
         "Times the way from TVMScript to machine code.", "--repeat 7"),
        ("cold", "cold_start", _HOST,
         "Times how soon a new process has its first result.", "--size 4096"),
        ("launch", "launch", _HOST, "Times the host's part of a call of a kernel.", "--rounds 21"),
        ("profile", "timeline", _HOST, "Times what recording a timeline costs.", "--size 4096"),
        ("tuning", "tuning", _TUNING,
         "Measures how far defaults and short searches are from the best.", "--trials 32"),
        ("exhaustive", "exhaustive", _TUNING,
         "Measures many configs of each GEMM of a suite.", "--count 200 --out all.jsonl"),
        ("judge", "judge", _TUNING,
         "Compares the model's choice with the best config of a search.", "--help"),
        ("records", "make_records", _TUNING,
         "Measures layers of public models for the shipped records.", "--minutes 8"),
        ("hit-rate", "hit_rate", _TUNING,
         "Says how much of the public models the shipped records cover.", "--gpu h200"),
        ("model-error", "model_error", _TUNING,
         "Compares the analytic model with measured times; needs no GPU.", "--plot error.svg"),
        ("machine", "machine.command", _TUNING,
         "Measures the constants of this GPU by microbenchmarks.", "--json machine.json"),
        ("soak", "soak", _TUNING,
         "Feeds a runner with candidates that hang, crash and lie.", "--minutes 30"),
    )
}
# fmt: on


def groups() -> dict[str, list[Entry]]:
    """The benchmarks as lists have them."""
    found: dict[str, list[Entry]] = {}
    for name, one in BENCHMARKS.items():
        example = f"warploom bench {name} {one.example}"
        found.setdefault(one.group, []).append(Entry(name, one.sentence, example))
    return found
