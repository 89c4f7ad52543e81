"""Every planted synchronisation bug is reported with its cause, and correct kernels are silent."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import tvm
from tvm.tirx import PrimFunc

import cuda_programs
import emulator_ptx
import mutation
from mutants import MUTANTS, Mutant
from mutants_sm100 import SM100_MUTANTS
from mutation import Edit, Launch, Lowered, execute
from warploom import emulator
from warploom.compiler.callback import compile_cached
from warploom.compiler.invoke import current_request
from warploom.emulator.settings import SCHEDULES
from warploom.kernels import GemmConfig, gemm
from warploom.kernels.sm100_config import Sm100GemmConfig
from warploom.kernels.sm100_gemm_pair import sm100_gemm_pair
from warploom.kernels.sm100_gemm_persistent import sm100_gemm_persistent
from warploom.target import cuda_target

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not emulator.is_enabled(), reason="bugs are for the emulator only"),
]

ALL_MUTANTS = (*MUTANTS, *SM100_MUTANTS)
#: A bug may need a certain schedule to show.
SEEDS = (1, 2, 3)
#: Of correct kernels: one seed of each strategy, and 100 of each with ``--slow``.
SAMPLE, ALL = range(7, 8), range(1, 101)


@dataclass(frozen=True)
class Product:
    """A GEMM of TVM on one problem; the result is poisoned before every launch."""

    function: Callable[[], PrimFunc]
    arch: str
    m: int
    n: int
    k: int
    lowered: Lowered = field(init=False, repr=False)

    def __post_init__(self) -> None:
        target = cuda_target(self.arch)
        object.__setattr__(self, "lowered", Lowered.of(self.function(), target))

    def build(self, edits: Sequence[Edit]) -> Launch:
        """A launch of the program with the edits; it asserts that the result is right."""
        run = self.lowered.build(edits)["main"]
        rng = np.random.default_rng(self.m)
        a, b = (rng.standard_normal((rows, self.k), np.float32) for rows in (self.m, self.n))
        a, b = a.astype(np.float16), b.astype(np.float16)
        expected = a.astype(np.float64) @ b.astype(np.float64).T
        device = tvm.cuda(emulator_ptx.DEVICES[self.arch])

        def launch(_seed: int) -> None:
            c = np.full((self.m, self.n), np.nan, np.float16)
            tensors = mutation.tensors((a, b, c), device)
            run(*tensors)
            np.testing.assert_allclose(tensors[-1].numpy(), expected, rtol=2**-9, atol=2**-7)

        return launch


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
            result = emulator_ptx.launch(
                body, arrays, grid=cluster, block=block, cluster=cluster, seed=seed
            )[1]
            assert np.all(np.isfinite(result))

        return launch


def sm90_gemm() -> Product:
    config = GemmConfig(
        tile_m=128, tile_n=64, tile_k=32, stages=3, cluster=2, consumers=2, store_n=32,
        store_buffers=2, ctas=4,
    )  # fmt: skip
    return Product(lambda: gemm(300, 136, 168, config=config), "sm_90a", 300, 136, 168)


#: Three stages for five tiles of K: the ring turns, and begins every tile at another stage.
SM100 = Sm100GemmConfig(tile_n=64, store_n=32, stages=3)


def sm100_product(make: Callable, config: Sm100GemmConfig) -> Product:
    return Product(lambda: make(config, 72, 272, 300), "sm_100a", 300, 72, 272)


PROGRAMS: dict[str, Callable[[], Product | Source]] = {
    "sm90_gemm": sm90_gemm,
    "sm100_gemm_persistent": lambda: sm100_product(
        sm100_gemm_persistent, replace(SM100, accumulators=2, ctas=2)
    ),
    "sm100_gemm_pair": lambda: sm100_product(sm100_gemm_pair, replace(SM100, cta_group=2)),
    "exchange": lambda: Source(cuda_programs.EXCHANGE, 256, 256),
    "remote": lambda: Source(cuda_programs.REMOTE, 64, 32, cluster=2),
    "copies": lambda: Source(cuda_programs.COPIES, 256, 64),
}


@functools.cache
def program(name: str) -> Product | Source:
    return PROGRAMS[name]()


@pytest.mark.parametrize("mutant", ALL_MUTANTS, ids=str)
def test_mutant_is_reported_with_its_cause(mutant: Mutant):
    launch = program(mutant.program).build(mutant.edits)
    outcomes = []
    for seed in SEEDS:
        outcomes.append(execute(launch, seed))
        if outcomes[-1].shows(mutant.kind, mutant.words):
            return
    shown = "\n".join(map(str, outcomes))
    pytest.fail(f"expected [{mutant.kind}] with {mutant.words}, got\n{shown}")


def silent(name: str, seeds: Sequence[int]) -> None:
    launch = program(name).build(())
    for schedule in SCHEDULES:
        for seed in seeds:
            outcome = execute(launch, seed, schedule)
            assert not outcome.error and not outcome.reports, f"{schedule} {seed}:\n{outcome}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_correct_programs_are_silent(name: str):
    silent(name, SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_correct_programs_are_silent_under_100_seeds(name: str):
    silent(name, ALL)


def test_mutants_are_distinct():
    assert len({(m.program, m.edits) for m in ALL_MUTANTS}) == len(ALL_MUTANTS)
    assert len({str(m) for m in ALL_MUTANTS}) == len(ALL_MUTANTS)
