"""The correct programs in which bugs are planted: GEMMs of TVM, and kernels in CUDA C++."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm.tirx import PrimFunc

from tests.emulator import run_ptx
from tests.emulator.mutants import cuda_programs, mutation
from tests.emulator.mutants.mutation import Edit, Launch, Lowered
from tests.shared import gemm_functions, tile_programs
from tests.shared.blackwell import random_scales, scaled
from tests.shared.lowered_programs import hinted, last_cta_first, lower_by
from tests.shared.reference import numpy_dtype
from tests.shared.tile_programs.orchestrated import ring_by_hand
from tests.shared.tutorial_names import tutorial_names
from warploom.compiler.callback import compile_cached
from warploom.compiler.invoke import current_request
from warploom.decide import Config
from warploom.gemm.generate import tile_program as generated
from warploom.gemm.recognition import recognise
from warploom.kernels import matmul_multistage, matmul_warp_specialised
from warploom.lower.grid.persistent import persistent_grid
from warploom.lower.lowerings import SCALED, TENSOR_MEMORY, WARP_SPECIALISED, lower
from warploom.lower.tvm_passes import tile_pass
from warploom.programs import gemm
from warploom.target import cuda_target
from warploom.tile.program import TileProgram

#: Rounding of the result, and of the sums before it.
RTOL = {"float16": 2**-9, "bfloat16": 2**-7, "float32": 2**-12}


@dataclass(frozen=True)
class Product:
    """A GEMM of TVM on one problem; the result is poisoned before every launch."""

    function: Callable[[], PrimFunc]
    arch: str
    m: int
    n: int
    k: int
    dtype: str = "float16"
    out_dtype: str = "float16"
    lowered: Lowered = field(init=False, repr=False)

    def __post_init__(self) -> None:
        target = cuda_target(self.arch)
        object.__setattr__(self, "lowered", Lowered.of(self.function(), target))

    def build(self, edits: Sequence[Edit]) -> Launch:
        """A launch of the program with the edits; it asserts that the result is right."""
        run = self.lowered.build(edits)["main"]
        inputs, expected = self.inputs(np.random.default_rng(self.m))
        device = tvm.cuda(run_ptx.DEVICES[self.arch])

        def launch(_seed: int) -> None:
            c = np.full((self.m, self.n), np.nan, numpy_dtype(self.out_dtype))
            tensors = mutation.tensors((*inputs, c), device)
            run(*tensors)
            result = tensors[-1].numpy().astype(np.float64)
            rtol = RTOL[self.out_dtype]
            np.testing.assert_allclose(result, expected, rtol, atol=4 * rtol * np.std(expected))

        return launch

    def inputs(self, rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
        """The arguments of the program, and the result in double precision."""
        a, b = (
            rng.standard_normal((rows, self.k), np.float32).astype(numpy_dtype(self.dtype))
            for rows in (self.m, self.n)
        )
        return [a, b], a.astype(np.float64) @ b.astype(np.float64).T


@dataclass(frozen=True)
class ScaledProduct(Product):
    """One whose operands have block scales, which ``order`` brings into the kernel's order."""

    order: Callable[[np.ndarray], np.ndarray] = np.asarray

    def inputs(self, rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
        (a, b), _ = super().inputs(rng)
        scales = [random_scales(rng, rows, self.k) for rows in (self.m, self.n)]
        wide = [scaled(x, scale) for x, scale in zip((a, b), scales, strict=True)]
        return [a, b, *map(self.order, scales)], wide[0] @ wide[1].T


@dataclass(frozen=True)
class CaseProduct(Product):
    """One that is a tile program, with inputs of its own."""

    case: tile_programs.Case | None = None

    def inputs(self, rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
        arguments = self.case.arguments(rng)
        (result,) = self.case.expected(arguments).values()
        return arguments[:-1], result


@dataclass(frozen=True)
class Source:
    """A kernel in CUDA C++ with one array in and one array out, of equal sizes."""

    text: str
    count: int
    threads: int
    cluster: int = 1

    def build(self, edits: Sequence[Edit]) -> Launch:
        """A launch of the kernel with the edits; it asserts that the result is no poison."""
        text = self.text
        for edit in edits:
            text = edit.apply(text)
        with cuda_target("sm_90a"):
            ptx = compile_cached(current_request(text, "ptx")).output.binary.decode()
        # The launcher has a header of its own.
        body = ptx.partition(".address_size 64")[2].rstrip("\0")
        values = np.arange(self.count, dtype=np.float32)
        cluster = (self.cluster, 1, 1)

        def launch(seed: int) -> None:
            arrays = [values, np.full_like(values, np.nan)]
            block = (self.threads, 1, 1)
            result = run_ptx.launch(
                body, arrays, grid=cluster, block=block, cluster=cluster, seed=seed
            )[1]
            assert np.all(np.isfinite(result))

        return launch


#: Tiles of 64 bytes of K, three stages: the ring turns, and begins every tile at another stage.
SMALL_STEP = {
    "BM": 128, "BN": 64, "BK": 32, "STAGES": 3, "HALF": 32, "CHUNK": 32, "SWIZZLE_128B": 2,
}  # fmt: skip


def ladder(step: str, ctas: int, tile_bytes: int, size: tuple[int, int, int]) -> Product:
    """A step of the ladder, with small tiles."""
    constants = SMALL_STEP | {"TILE_BYTES": tile_bytes}
    file = f"ladder_{step}.py"
    own = tutorial_names(file)
    names = tutorial_names(file, **{name: constants[name] for name in constants if name in own})
    arch = "sm_90a" if step.startswith("hopper") else "sm_100a"
    return Product(lambda: names["gemm"](*size, ctas=ctas), arch, *size)


def swap_ab() -> Product:
    """A tile program for few rows: three CTAs with two warpgroups each compute six tiles."""
    config = Config(16, 128, 64, stages=3, consumers=2, swap_ab=True, sms=3)
    return Product(lambda: lower(gemm(config, 200, 168, 40)), "sm_90a", 40, 200, 168)


def block_scales_by_hand() -> ScaledProduct:
    names, size = tutorial_names("17_block_scales_by_hand.py", STAGES=3), (130, 136, 592)
    return ScaledProduct(
        lambda: names["gemm"](*size), "sm_100a", *size, "float8_e4m3fn", "bfloat16",
        names["block_scales"],
    )  # fmt: skip


def with_clusters(clusters: int | None, func: PrimFunc, arch: str, lowering: str) -> PrimFunc:
    """A lowered tile program whose clusters compute several tiles.

    There are few, or, without a number, they take over tiles of each other.
    """

    def few(program: TileProgram) -> TileProgram:
        cluster = program.hints.cluster or (1, 1)
        ctas = clusters and clusters * math.prod(cluster)
        return persistent_grid(program, ctas, cluster=cluster)

    replaced = {"ChooseGrid": tile_pass("FewClusters", few)}
    return lower_by(lowering, func, arch, replaced)


def tile_program(columns: int, clusters: int | None, **hints: Any) -> Product:
    """A tile program for Blackwell with tiles of 128 x ``columns`` and a ring of three stages."""
    case = tile_programs.gemm(300, 96, 272, (128, columns, 64), stages=3, out_dtype="float16")
    func = hinted(case.func, **hints)
    return Product(
        lambda: with_clusters(clusters, func, "sm_100a", TENSOR_MEMORY), "sm_100a", 300, 96, 272
    )


def dequantised() -> CaseProduct:
    """A GEMM with a dequantised operand B, in two places."""
    case = tile_programs.dequantised(8, 130, 64, 320, tile=(128, 64, 64), stages=3)
    sizes = (130, 64, 320)
    return CaseProduct(
        lambda: with_clusters(1, case.func, "sm_100a", TENSOR_MEMORY), "sm_100a", *sizes, case=case
    )


def dequantised_in_tensor_memory() -> CaseProduct:
    """A GEMM with a dequantised operand A in tensor memory, in two places."""
    sizes = (20, 104, 320)
    tile = (16, 128, 64)
    case = tile_programs.dequantised(4, *sizes, tile=tile, through="fragment", stages=3)
    return CaseProduct(
        lambda: with_clusters(1, case.func, "sm_100a", TENSOR_MEMORY), "sm_100a", *sizes, case=case
    )


def scales(order: str) -> CaseProduct:
    """A GEMM whose scales the multiplying thread copies to tensor memory; ``order`` in shared."""
    sizes = (130, 64, 5 * 128)
    case = tile_programs.scaled("mxfp8", *sizes, tile=(128, 64, 128), order=order, stages=3)
    return CaseProduct(
        lambda: with_clusters(1, case.func, "sm_100a", SCALED), "sm_100a", *sizes,
        out_dtype="float32", case=case,
    )  # fmt: skip


def sparse_mma(cluster: tuple[int, int] = (1, 1)) -> CaseProduct:
    """A GEMM whose metadata threads bring into words, and the multiplying thread copies."""
    sizes = (128 * 3 * cluster[0], 32, 4 * 128)
    case = tile_programs.sparse_gemm(*sizes, (128, 32, 128), stages=3)
    func = hinted(case.func, cluster=cluster) if cluster != (1, 1) else case.func
    return CaseProduct(
        lambda: with_clusters(1, func, "sm_100a", TENSOR_MEMORY), "sm_100a", *sizes,
        out_dtype="float32", case=case,
    )  # fmt: skip


def slice_k() -> Product:
    """Two warpgroups that share the three steps of three tiles; four stages."""
    case = tile_programs.gemm(150, 56, 88, (64, 64, 32), stages=4, out_dtype="float16")
    func = hinted(case.func, slice_k=2)
    return Product(
        lambda: with_clusters(1, func, "sm_90a", WARP_SPECIALISED), "sm_90a", 150, 56, 88
    )


def ping_pong() -> Product:
    """Two warpgroups that compute every other of ten tiles of three steps each; four stages."""
    case = tile_programs.gemm(300, 120, 88, (64, 64, 32), stages=4, out_dtype="float16")
    func = hinted(case.func, ping_pong=True)
    return Product(
        lambda: with_clusters(1, func, "sm_90a", WARP_SPECIALISED), "sm_90a", 300, 120, 88
    )


def staged_input() -> CaseProduct:
    """A residual that comes through the one buffer of two chunks of three tiles."""
    case = tile_programs.epilogue("residual", 150, 128, 64, (64, 128, 32))
    func = hinted(case.func, store_buffers=1)
    return CaseProduct(
        lambda: with_clusters(1, func, "sm_90a", WARP_SPECIALISED), "sm_90a", 150, 128, 64,
        out_dtype="float16", case=case,
    )  # fmt: skip


def transposed_chunks() -> CaseProduct:
    """The transpose of three tiles, of two warpgroups; two stores for each of three chunks."""
    function = gemm_functions.matmul(100, 104, 88, out="float32")
    config = Config(40, 128, 64, 2, swap_ab=True)
    func = generated(recognise(function.func), config)
    case = tile_programs.Case(
        func, function.arguments, lambda args: {2: function.expected(*args)[0]}, 1e-5
    )
    return CaseProduct(
        lambda: with_clusters(1, func, "sm_90a", WARP_SPECIALISED), "sm_90a", 100, 104, 88,
        out_dtype="float32", case=case,
    )  # fmt: skip


def two_copies() -> CaseProduct:
    """An operand of two copies that two warpgroups compute; three steps of two tiles."""
    case = tile_programs.computed_operand(tiles=2, steps=3)
    return CaseProduct(
        lambda: with_clusters(1, case.func, "sm_90a", WARP_SPECIALISED), "sm_90a", 256, 16, 16,
        out_dtype="float32", case=case,
    )  # fmt: skip


def sparse() -> CaseProduct:
    """A GEMM with a sparse A, whose metadata threads load from the ring; three tiles."""
    case = tile_programs.sparse_gemm(192, 32, 384, (64, 32, 128), stages=1, out_dtype="float16")
    return CaseProduct(
        lambda: with_clusters(1, case.func, "sm_90a", WARP_SPECIALISED), "sm_90a", 192, 32, 384,
        out_dtype="float16", case=case,
    )  # fmt: skip


def order_mmas() -> CaseProduct:
    """Two warpgroups that issue their MMAs in order, with block scales; three tiles."""
    case = tile_programs.block_scaled(130, 64, tile=(128, 64, 128), stages=2, order_mmas=True)
    return CaseProduct(
        lambda: with_clusters(1, case.func, "sm_90a", WARP_SPECIALISED), "sm_90a", 130, 64, 256,
        out_dtype="bfloat16", case=case,
    )  # fmt: skip


def two_by_two() -> Product:
    """A GEMM whose operands CTAs of a cluster share along either dimension."""
    case = tile_programs.gemm(300, 96, 272, (128, 48, 64), stages=3, out_dtype="float16")
    func = hinted(case.func, cluster=(2, 2))
    return Product(
        lambda: with_clusters(1, func, "sm_90a", WARP_SPECIALISED), "sm_90a", 300, 96, 272
    )


def own_barriers() -> Product:
    """A GEMM to which the tiles of a ring that the author wrote are added."""
    case = ring_by_hand(5, 2, 2)
    return CaseProduct(lambda: lower(case.func), "sm_90a", 64, 64, 128, case=case)


def rows_by_index(arch: str) -> Product:
    """A GEMM of gathered rows of A whose rows are scattered: two tiles of one CTA."""
    case = tile_programs.rows_by_index(
        "a", scatters=True, tile=(64, 32, 32), steps=5, out_dtype="float16", outside=False
    )
    func = hinted(case.func, ctas=1)
    return CaseProduct(lambda: lower(func, arch), arch, 128, 32, 160, case=case)


def stream_k() -> Product:
    """Three tiles of five steps for two CTAs, which share a tile; the first owns and waits."""
    case = tile_programs.gemm(150, 56, 320, (64, 64, 64), stages=3, out_dtype="float16")
    func = hinted(case.func, stream_k=True, ctas=2)
    return Product(lambda: last_cta_first(func), "sm_90a", 150, 56, 320)


def tile_counter() -> Product:
    """Five tiles for two CTAs, which draw them from a counter; the first CTA starts last."""
    case = tile_programs.gemm(300, 56, 128, (64, 64, 64), stages=2, out_dtype="float16")
    func = hinted(case.func, scheduler="counter", ctas=2)
    return Product(lambda: last_cta_first(func, behind="SpecializeWarps"), "sm_90a", 300, 56, 128)


def reduce_in_clusters() -> Product:
    """Three tiles of five steps for two CTAs of a cluster, which share each."""
    case = tile_programs.gemm(150, 56, 320, (64, 64, 64), stages=3, out_dtype="float16")
    func = hinted(case.func, split_k=2, reduce_through="cluster", ctas=2)
    return Product(lambda: lower(func), "sm_90a", 150, 56, 320)


@dataclass(frozen=True)
class Attention:
    """Attention of TVM on one problem; the result is poisoned before every launch."""

    function: PrimFunc
    shape: tuple[int, int, int]
    lowered: Lowered = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lowered", Lowered.of(self.function, cuda_target("sm_90a")))

    def build(self, edits: Sequence[Edit]) -> Launch:
        """A launch of the program with the edits; it asserts that the result is right."""
        run = self.lowered.build(edits)["main"]
        rng = np.random.default_rng(1)
        inputs = [rng.standard_normal(self.shape, np.float32).astype("float16") for _ in "QKV"]
        q, k, v = (x.astype(np.float64) for x in inputs)
        weights = np.exp(q @ k.transpose(0, 2, 1) / math.sqrt(self.shape[-1]))
        expected = weights / weights.sum(-1, keepdims=True) @ v

        def launch(_seed: int) -> None:
            tensors = mutation.tensors(
                (*inputs, np.full(self.shape, np.nan, "float16")), tvm.cuda(0)
            )
            run(*tensors)
            np.testing.assert_allclose(tensors[-1].numpy(), expected, 0, 2**-8)

        return launch


def attention_by_hand() -> Attention:
    heads, tokens, head_dim = shape = (1, 150, 32)
    names = tutorial_names("19_attention_by_hand.py")
    return Attention(names["attention"](tokens, head_dim, heads, keys=32, stages=2), shape)


def generated_matmul(build: Callable, **choices: Any) -> Product:
    shape = (130, 40, 160)
    return Product(
        lambda: build(*shape, tile=(128, 40, 32), consumers=2, **choices), "sm_90a", *shape,
        out_dtype="float32",
    )  # fmt: skip


def tutorial() -> Product:
    names = tutorial_names("14_first_kernel.py")
    size = (names["M"], names["N"], names["K"])
    return Product(lambda: names["matmul"], "sm_90a", *size, out_dtype="float32")


PROGRAMS: dict[str, Callable[[], Product | Attention | Source]] = {
    "hopper_step_10": lambda: ladder("hopper/v10_two_consumers", 4, 12288, (512, 128, 160)),
    "blackwell_step_8": lambda: ladder("blackwell/v08_four_stages", 2, 12288, (384, 128, 160)),
    "blackwell_step_9": lambda: ladder("blackwell/v09_cluster", 2, 10240, (512, 128, 160)),
    "block_scales_by_hand": block_scales_by_hand,
    "tile_program_pair": lambda: tile_program(32, 1, cluster=(2, 1)),
    "tile_program_pairs": lambda: tile_program(32, 1, cluster=(2, 2)),
    "tile_program_multicast": lambda: tile_program(48, 1, cluster=(2, 1)),
    "tile_program_clc": lambda: tile_program(32, None, cluster=(2, 1), scheduler="clc"),
    "tile_program_dequantised": dequantised,
    "tile_program_tensor_operand": dequantised_in_tensor_memory,
    "tile_program_scales": lambda: scales("blocks"),
    "tile_program_scales_in_rows": lambda: scales("rows"),
    "tile_program_sparse": sparse_mma,
    "tile_program_sparse_pair": lambda: sparse_mma((2, 1)),
    "tile_program_2x2": two_by_two,
    "tile_program_own_barriers": own_barriers,
    "swap_ab": swap_ab,
    "stream_k": stream_k,
    "tile_counter": tile_counter,
    "rows_by_index": lambda: rows_by_index("sm_90a"),
    "rows_by_index_sm100": lambda: rows_by_index("sm_100a"),
    "reduce_in_clusters": reduce_in_clusters,
    "slice_k": slice_k,
    "ping_pong": ping_pong,
    "sparse": sparse,
    "order_mmas": order_mmas,
    "two_copies": two_copies,
    "staged_input": staged_input,
    "transposed_chunks": transposed_chunks,
    "tutorial": tutorial,
    "attention_by_hand": attention_by_hand,
    "matmul_warp_specialised": lambda: generated_matmul(matmul_warp_specialised, stages=2),
    "matmul_one_stage": lambda: generated_matmul(matmul_warp_specialised, stages=1),
    "matmul_multistage": lambda: generated_matmul(matmul_multistage, stages=2),
    "exchange": lambda: Source(cuda_programs.EXCHANGE, 256, 256),
    "remote": lambda: Source(cuda_programs.REMOTE, 64, 32, cluster=2),
    "copies": lambda: Source(cuda_programs.COPIES, 256, 64),
}
