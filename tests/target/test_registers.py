"""Registers of roles: one rule for tile programs and generated kernels, and what ptxas does."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared import tile_programs
from tests.shared.compiler_kernels import compile_uncached
from tests.shared.lowered_programs import hinted
from warploom.compiler.cubin import read_kernels
from warploom.compiler.ptxas_log import parse
from warploom.errors import Decline, IllegalCombination
from warploom.kernels import matmul_warp_specialised
from warploom.kernels.matmul_spec import MatmulSpec
from warploom.lower.lowerings import lower
from warploom.target import ARCHS, PRODUCER_REGISTERS, SM90A, RegisterRoles

ROLES = st.builds(
    RegisterRoles, st.sampled_from(sorted(ARCHS.values(), key=str)), st.integers(1, 3),
    st.integers(1, 4),
)  # fmt: skip
COUNTS = st.integers(3, 32).map(lambda n: 8 * n)


@given(ROLES)
def test_what_is_chosen_is_legal_and_leaves_nothing(roles):
    producer, consumer = roles.split()
    roles.check(producer, consumer)
    start, most = roles.at_launch(consumer), roles.arch.registers_per_thread
    assert min(PRODUCER_REGISTERS, start) <= producer <= start <= consumer
    if consumer + 8 <= most:
        with pytest.raises(IllegalCombination, match="would wait for ever"):
            roles.check(min(PRODUCER_REGISTERS, start), consumer + 8)
    if producer + 8 <= start:
        with pytest.raises(IllegalCombination, match="would wait for ever"):
            roles.check(producer + 8, consumer)


@given(ROLES, COUNTS, COUNTS)
def test_a_budget_that_is_accepted_can_be_carried_out(roles, producer, consumer):
    """The order of events in a CTA: all start alike, one releases, the others take."""
    bound = roles.arch.registers_of_each(roles.blocks, 128 * (roles.consumers + 1))
    start = min(bound, consumer)
    pool = start - producer
    runs = pool >= 0 and pool >= roles.consumers * (consumer - start)
    try:
        roles.check(producer, consumer)
    except IllegalCombination as error:
        assert not runs
        assert ("only release" in str(error)) == (pool < 0)
    else:
        assert runs
        assert 128 * roles.blocks * (producer + roles.consumers * consumer) <= 64 * 1024


@given(ROLES, st.none() | COUNTS, st.none() | COUNTS)
def test_what_is_given_stays(roles, producer, consumer):
    split = roles.split(producer, consumer)
    for given_, chosen in zip((producer, consumer), split, strict=True):
        assert chosen == given_ if given_ is not None else chosen % 8 == 0


@pytest.mark.parametrize("count", [20, 44, 257, 0])
def test_setmaxnreg_takes_multiples_of_8(count):
    with pytest.raises(IllegalCombination, match="multiples of 8 from 24 to 256"):
        RegisterRoles(SM90A, 1).check(count, 232)


SOURCE = """
extern "C" __global__ void __launch_bounds__({threads}, {blocks}) kernel(float* out) {{
  if (threadIdx.x < 128) {{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
  }} else {{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 {consumer};");
    out[threadIdx.x] = 1;
  }}
}}
"""


@pytest.mark.usefixtures("machine_code")
@pytest.mark.parametrize(
    ("consumers", "blocks", "consumer"),
    [(1, 1, 232), (1, 1, 104), (1, 1, 256), (2, 1, 240), (2, 1, 160), (3, 1, 160), (1, 2, 208)],
)
def test_ptxas_starts_a_kernel_with_the_registers_of_the_rule(consumers, blocks, consumer):
    roles = RegisterRoles(SM90A, consumers, blocks)
    output = compile_uncached(
        SOURCE.format(threads=128 * (consumers + 1), blocks=blocks, consumer=consumer)
    )
    (kernel,) = read_kernels(output.binary)
    assert not parse(output.log).advice
    # A thread with 255 occupies 256.
    assert kernel.registers + kernel.registers % 2 == roles.at_launch(consumer)


def _generator(registers, consumers):
    matmul_warp_specialised(
        512, 512, 512, tile=(64 * consumers, 64, 64), consumers=consumers, registers=registers
    )


def _program(registers, consumers):
    case = tile_programs.gemm(256, 256, 128, (64 * consumers, 64, 64), stages=2)
    script = lower(hinted(case.func, registers=registers, specialise=True)).script()
    assert re.findall(r"setmaxnreg\((\d+)", script) == [str(count) for count in registers]


@pytest.mark.parametrize(
    ("registers", "consumers", "refused"),
    [
        ((40, 232), 1, None), ((40, 232), 2, None), ((40, 240), 2, "would wait for ever"),
        ((24, 240), 2, None), ((24, 248), 1, None), ((104, 104), 1, None),
        ((112, 104), 1, "only release"), ((176, 168), 2, "only release"), ((168, 168), 2, None),
        ((40, 152), 3, None), ((40, 160), 3, "would wait for ever"), ((32, 160), 3, None),
    ],
)  # fmt: skip
@pytest.mark.some(3)
def test_generator_and_tile_program_agree(registers, consumers, refused):
    for build in (_generator, _program):
        if refused is None:
            build(registers, consumers)
        else:
            with pytest.raises((IllegalCombination, Decline), match=refused):
                build(registers, consumers)


def test_the_budget_of_one_producer_and_one_consumer():
    """40 and 232 of a launch of 256 threads: the compiler starts each with 232."""
    assert MatmulSpec(registers=(40, 232)).register_split == (40, 232)
    RegisterRoles(SM90A, 1).check(40, 232)
