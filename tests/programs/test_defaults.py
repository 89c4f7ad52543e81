"""Every program of the package is lowered with its defaults, for every size that it accepts."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from warploom import compile_report
from warploom.decide import Config
from warploom.errors import IllegalCombination, WarploomWarning
from warploom.lower.lowerings import lower
from warploom.programs import (
    attention,
    conv2d,
    gemm,
    gemm_block_scaled,
    gemm_grouped,
    gemm_grouped_block_scaled,
    gemm_quantised,
    paged_decode,
    paged_latent,
    paged_prefill,
    paged_tree_attention,
    ragged_prefill,
    ragged_tree_attention,
)
from warploom.target import cuda_target
from warploom.target.dtypes import bits_of

ARCHS = ("sm_90a", "sm_100a")
HALVES, BYTES = ("float16", "bfloat16"), ("float8_e4m3fn", "float8_e5m2")


class Draw:
    """Random arguments: sizes over four orders of magnitude, of the multiples that TMA wants."""

    def __init__(self, rng: Any, arch: str) -> None:
        self.rng, self.arch = rng, arch

    def of(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def size(self, step: int = 1) -> int:
        return max(1, int(2 ** self.rng.uniform(0, 14.3)) // step) * step

    def rows(self) -> int | None:
        return self.of(None, 1, self.size(), self.size())

    def groups(self) -> int:
        return self.of(1, 8, 64, self.size() % 300 + 1)

    def gemm(self) -> Any:
        return gemm(Config(cluster_m=2), self.size(8), self.size(8), self.rows())

    def gemm_block_scaled(self) -> Any:
        return gemm_block_scaled(
            self.size(8), self.size(16), self.rows(), self.of(*BYTES), self.of(*HALVES),
            self.of("MK", "KM"), arch=self.arch,
        )  # fmt: skip

    def gemm_grouped(self) -> Any:
        dtype = self.of(*HALVES, "float8_e4m3fn", "float32")
        out = self.of(*HALVES) if dtype in BYTES else self.of(None, *HALVES)
        return gemm_grouped(
            self.groups(), self.size(8), self.size(128 // bits_of(dtype)), self.rows(), dtype, out,
            self.of("int32", "int64"), arch=self.arch,
        )  # fmt: skip

    def gemm_grouped_block_scaled(self) -> Any:
        return gemm_grouped_block_scaled(
            self.groups(), self.size(8), self.size(16), self.rows(),
            self.of(*BYTES), self.of(*HALVES), self.of("MK", "KM"), self.of("int32", "int64"),
            arch=self.arch,
        )  # fmt: skip

    def gemm_quantised(self) -> Any:
        group = self.of(32, 64, 128, 256, 512)
        return gemm_quantised(
            self.size(8), self.size(max(group, 128)), self.rows(), self.of(4, 8), group,
            self.of(*HALVES), arch=self.arch,
        )  # fmt: skip

    def attention(self) -> Any:
        shared, elements = self.of(1, 2, 4), (8 * int(self.rng.integers(1, 33)) for _ in range(2))
        return attention(
            self.of(None, self.size()), next(elements), shared * self.of(1, 2, 4), shared,
            self.of(1, 3), self.of(False, "TopLeft", "BottomRight"), self.of(*HALVES),
            tokens_first=self.of(True, False), arch=self.arch, keys=self.of(None, self.size()),
            value_dim=self.of(None, next(elements)), bias=self.of(None, "", "q", "bhq"),
            bias_dtype=self.of(*HALVES, "float32"),
        )  # fmt: skip

    def paged_decode(self) -> Any:
        shared, step = self.of(1, 2, 8), 8
        return paged_decode(
            shared * self.of(1, 2, 7, 16, 71), shared, step * int(self.rng.integers(1, 33)),
            self.of(*HALVES), self.of(8, 16, 32, 64, 128, 256), self.of(True, False),
            arch=self.arch,
        )  # fmt: skip

    def ragged_prefill(self) -> Any:
        shared, step = self.of(1, 2, 8), 8
        head_dim, value_dim = (step * int(self.rng.integers(1, 33)) for _ in range(2))
        return ragged_prefill(
            shared * self.of(1, 2, 7, 16, 71), shared, head_dim, self.of(None, value_dim),
            self.of(*HALVES), arch=self.arch,
        )  # fmt: skip

    def paged_prefill(self) -> Any:
        shared, step = self.of(1, 2, 8), 8
        return paged_prefill(
            shared * self.of(1, 2, 7, 16, 71), shared, step * int(self.rng.integers(1, 33)),
            self.of(*HALVES), self.of(8, 16, 32, 64, 128, 256), self.of(True, False),
            arch=self.arch,
        )  # fmt: skip

    def paged_latent(self) -> Any:
        return paged_latent(
            self.of(1, 7, 16, 20, 71, 128), self.of(512, 8 * int(self.rng.integers(1, 65))),
            self.of(64, 8 * int(self.rng.integers(9))), self.of(*HALVES),
            self.of(8, 16, 32, 64, 128, 256), arch=self.arch,
        )  # fmt: skip

    def conv2d(self) -> Any:
        taps = self.of((1, 1), (3, 3), (5, 5), (1, 3))
        return conv2d(
            self.of(1, 3, 16), self.size() % 500 + 5, self.size() % 500 + 5, 64 * self.of(1, 3, 16),
            self.size(8), taps, self.of(1, 2, 3, 8), self.of(0, 1, 2), self.of(*HALVES),
            relu=self.of(True, False),
        )  # fmt: skip


PROGRAMS = (
    "gemm", "gemm_block_scaled", "gemm_grouped", "gemm_grouped_block_scaled", "gemm_quantised",
    "attention", "conv2d", "paged_decode", "paged_latent", "paged_prefill",
    "ragged_prefill",
)  # fmt: skip
_MANY = pytest.param(100, marks=pytest.mark.long)


@pytest.mark.parametrize("count", [3, _MANY])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.some(4)
def test_defaults_have_a_kernel_for_every_size(name, arch, count, rng):
    """Shared memory, registers and all else fit: the preferred lowering takes the program."""
    draw = Draw(rng, arch)
    for _ in range(count):
        func = getattr(draw, name)()
        print(func.script()[:600])
        with warnings.catch_warnings():
            warnings.simplefilter("error", WarploomWarning)
            lower(func, arch)


#: The largest of what the defaults choose, of an architecture.
LARGEST = {
    # Of so many steps that ptxas does not unroll them: with four it keeps all scales at once, and
    # spills 80 bytes on sm_100a.
    "grouped block-scaled": lambda arch: gemm_grouped_block_scaled(8, 4096, 7168, 4096, arch=arch),
    # Sizes of so many groups do not fit in registers.
    "grouped block-scaled, 64 groups": lambda arch: gemm_grouped_block_scaled(
        64, 512, 640, 100, arch=arch
    ),
    "grouped, 64 groups": lambda arch: gemm_grouped(64, 512, 512, 2048, arch=arch),
    "attention of 256": lambda arch: attention(512, 256, 2, causal=True, arch=arch),
    "attention of three warpgroups": lambda arch: attention(3072, 128, 32, arch=arch),
    "paged decode of 256": lambda arch: paged_decode(16, 2, 256, sliding_window=True, arch=arch),
    "paged decode of 192": lambda arch: paged_decode(16, 2, 192, arch=arch),
    "ragged prefill of 256": lambda arch: ragged_prefill(16, 2, 256, arch=arch),
    "ragged prefill of 192 and 128": lambda arch: ragged_prefill(16, 16, 192, 128, arch=arch),
    "paged prefill of 256": lambda arch: paged_prefill(16, 2, 256, sliding_window=True, arch=arch),
    "paged trees of 256": lambda arch: paged_tree_attention(16, 2, 256, arch=arch),
    "paged decode of 256, no window": lambda arch: paged_decode(16, 2, 256, arch=arch),
    "latents of 512 and 64": lambda arch: paged_latent(128, dtype="bfloat16", arch=arch),
    "convolution": lambda _: conv2d(1, 28, 28, 128, 256),
    "quantised": lambda arch: gemm_quantised(512, 1024, 64, arch=arch),
}


@pytest.mark.parametrize("arch", ["sm_90a", pytest.param("sm_100a", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LARGEST)
@pytest.mark.some(1)
def test_largest_tiles_do_not_spill(name, arch, machine_code):
    report = compile_report(LARGEST[name](arch), cuda_target(arch))
    assert report.arch == arch
    assert not report.problems, "\n".join(map(str, report.problems))


#: Programs whose sums, logits and masks lie in registers, by the elements of a head.
OF_HEADS = {
    "attention": lambda dim, dtype, causal, arch: attention(
        512, dim, 2, causal=causal, dtype=dtype, arch=arch
    ),
    "decode": lambda dim, dtype, masked, arch: paged_decode(
        16, 2, dim, dtype, sliding_window=masked, arch=arch
    ),
    "prefill": lambda dim, dtype, masked, arch: paged_prefill(
        16, 2, dim, dtype, sliding_window=masked, arch=arch
    ),
    "ragged prefill": lambda dim, dtype, masked, arch: ragged_prefill(
        14, 2, dim, 256 - dim // 16 * 8 if masked else None, dtype, arch=arch
    ),
    "paged trees": lambda dim, dtype, shared, arch: paged_tree_attention(
        16 if shared else 2, 2, dim, dtype, arch=arch
    ),
    "ragged trees": lambda dim, dtype, shared, arch: ragged_tree_attention(
        16 if shared else 2, 2, dim, dtype, arch=arch
    ),
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", OF_HEADS)
@pytest.mark.some(1)
def test_no_head_spills(name, arch, rng, machine_code):
    """Heads of any size: neither logits nor places of threads in tiles of odd widths do."""
    dim, dtype = 8 * int(rng.integers(8, 33)), HALVES[rng.integers(2)]
    choice = bool(rng.integers(2))
    print(f"{name} of {dim} elements, {dtype}, {choice}")
    report = compile_report(OF_HEADS[name](dim, dtype, choice, arch), cuda_target(arch))
    assert not report.problems, "\n".join(map(str, report.problems))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: attention(64, 100), "head_dim is 100; .* multiples of 8 up to 256, so pad"),
        (lambda: attention(64, 512), "head_dim is 512"),
        (lambda: attention(64, 64, 3, 2), "3 heads cannot share 2"),
        (lambda: gemm_quantised(64, 200), "k 200 with groups of 128 .* pad the weights"),
        (lambda: gemm_quantised(60, 256), "n 60 must be a multiple of 8"),
        (lambda: gemm_quantised(64, 384, group=96), "k 384 with groups of 96 .* divides the group"),
        (lambda: gemm_quantised(64, 256, bits=3), "weights of 3 bits .* 4 and 8 bits"),
        (lambda: conv2d(1, 8, 8, 64, 1), "the output's 1 at least 2"),
        (lambda: conv2d(1, 4, 4, 64, 64, (7, 7), padding=0), "there is no output"),
    ],
)
def test_what_has_no_kernel_is_refused(make, message):
    with pytest.raises(IllegalCombination, match=message):
        make()
