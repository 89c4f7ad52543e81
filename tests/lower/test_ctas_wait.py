"""CTAs that wait for each other's sums are interpreted; mutants of their waits are noticed."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import tvm

from tests.shared import tile_programs
from tests.shared.lowered_programs import hinted, worst_error
from warploom import language as wl
from warploom.errors import Decline, TileProgramError
from warploom.lower.emit.given_word import GIVEN_WORD
from warploom.lower.trace import lower_trace

#: The last passes before roles part.
LAST = {"sm_90a": "PingPong", "sm_100a": "ResolveTensorMemory"}
#: Each CTA has several tiles, and each tile two warpgroups on Hopper.
CASE = tile_programs.gemm(256, 192, 200, (128, 64, 32), out_dtype="float32", stages=2)
HINTS = {
    "flags": {"split_k": 2, "ctas": 4},
    "flags of stream-K": {"stream_k": True, "ctas": 4},
    "mbarriers": {"split_k": 2, "ctas": 2, "reduce_through": "cluster"},
}


@cache
def scripts(name: str, arch: str) -> dict[str, str]:
    """The program after each pass."""
    return {s.name: s.func.script() for s in lower_trace(hinted(CASE.func, **HINTS[name]), arch)}


def error(script: str, case: tile_programs.Case = CASE, seed: int = 1) -> float:
    arguments = case.arguments(np.random.default_rng(seed))
    copies = [np.copy(one) for one in arguments]
    wl.interpret(tvm.script.from_source(script), copies)
    return worst_error(case, arguments, copies)


@pytest.mark.parametrize(
    ("name", "arch"),
    [(name, arch) for name in HINTS for arch in LAST if (name, arch) != ("mbarriers", "sm_100a")],
)
def test_clean(name, arch):
    for step in ("ChooseGrid", "ResolveScopes", "ReduceSplits", LAST[arch]):
        assert error(scripts(name, arch)[step]) <= 1, step


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.some(3)
def test_random_splits(seed):
    rng = np.random.default_rng(4400 + seed)
    arch = ("sm_90a", "sm_100a")[rng.integers(2)]
    tile = (int(rng.choice([64, 128])), int(rng.choice([32, 64])), 32)
    m, n, k = (int(rng.integers(1, 3 * extent) + 1) * 8 for extent in (16, 8, 16))
    hints = {"split_k": int(rng.choice([2, 4]))} if rng.integers(2) else {"stream_k": True}
    if "split_k" in hints and arch == "sm_90a" and rng.integers(2):
        hints["reduce_through"] = "cluster"
    # The CTAs of a cluster share a tile.
    hints["ctas"] = int(rng.integers(1, 4)) * hints.get("split_k", 1)
    case = tile_programs.gemm(m, n, k, tile, out_dtype="float16", stages=2)
    try:
        steps = lower_trace(hinted(case.func, **hints), arch)
    except Decline as reason:
        assert "a part needs one at least" in str(reason)
        return
    found = {step.name: step.func.script() for step in steps}
    for name in ("ChooseGrid", "ReduceSplits", LAST[arch]):
        assert error(found[name], case, seed) <= 1, (name, m, n, k, tile, hints, arch)


def instead(old: str, new: str, count: int = -1) -> Callable[[str], str]:
    return lambda script: script.replace(old, new, count)


def nest_after(stored: str, line: str) -> Callable[[str], str]:
    """The nest with that store comes behind the line with that text."""

    def mutate(script: str) -> str:
        lines = script.splitlines()
        (end,) = (number + 1 for number, one in enumerate(lines) if stored in one)
        (behind,) = (number + 1 for number, one in enumerate(lines) if line in one)
        nest = slice(end - 3, end)
        return "\n".join([*lines[: nest.start], *lines[end:behind], *lines[nest], *lines[behind:]])

    return mutate


NEVER_SET = r"never ends: all CTAs that .* wait, CTA cta = 3 for the flag sums_given\[2, 0\]; CTA"
#: Flags that are set, and that are not.
SET, UNSET = f"T.uint64({GIVEN_WORD})", "T.uint64(0)"
BOTH_WAIT = (
    r"wait, CTA cta = 1, rank = 1 for parity 0 of the mbarrier given\[0\]; "
    r"CTA cta = 0, rank = 0 for parity 0 of the mbarrier taken\[0\]\."
)
#: What a wrong pass leaves; None for a wrong result, else the error.
MUTANTS: dict[str, tuple[str, Callable[[str], str], str | None]] = {
    "a part is forgotten": ("flags", instead("range(others)", "range(others - 1)"), None),
    "a flag is set too early": (
        "flags", nest_after("acc_of_others[slot, consumer * 64 + y, x] =", '"release"'), None
    ),
    "a flag is never set": (
        "flags", instead(f'{SET}, "", "release', f'{UNSET}, "", "release'), NEVER_SET
    ),
    "nobody waits for a flag": (
        "flags", instead(f"seen: T.uint64 = {UNSET}", f"seen: T.uint64 = {SET}"), None
    ),
    "another word is waited for": (
        "flags", instead(f"while seen != {SET}", f"while seen == {UNSET}"), None
    ),
    "the flag of another warpgroup": (
        "flags", instead("[slot, consumer]", "[slot, 0]"), NEVER_SET.replace("0\\]", "1\\]")
    ),
    "sums are given too early": (
        "mbarriers", nest_after("acc_sums[consumer, y, x] =", "given_of_peer["), None
    ),
    "sums are taken too early": (
        "mbarriers", nest_after("acc_sums_of_peer[consumer, y, x]", "taken_of_peer[consumer"), None
    ),
    "nobody waits for sums": (
        "mbarriers",
        instead("complete: T.uint32 = T.uint32(0)", "complete: T.uint32 = T.uint32(1)", 1),
        "never ends",
    ),
    "always the same parity": (
        "mbarriers", instead("reduced ^ 1), ", "reduced * 0 + 1), "), "never ends"
    ),
    "the other parity": ("mbarriers", instead("reduced ^ 1), ", "reduced), "), BOTH_WAIT),
    "no such rank": (
        "mbarriers", instead('("uint32", 1)', '("uint32", 2)'),
        "given of CTA 2 of a cluster that has 2 CTAs",
    ),
    "an mbarrier of its own": (
        "mbarriers", instead('("uint32", 1)', '("uint32", 0)'), BOTH_WAIT
    ),
    "a loop of another kind": (
        "flags", lambda script: re.sub(r"T\.ptx\.ld\(.*", "T.cuda.cta_sync()", script),
        "does more than ask for a flag",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_noticed(name):
    how, mutate, expected = MUTANTS[name]
    script = scripts(how, "sm_90a")["ReduceSplits"]
    mutant = mutate(script)
    assert mutant != script
    if expected is None:
        assert not error(mutant) <= 1
    else:
        with pytest.raises(TileProgramError, match=expected):
            error(mutant)


def test_an_operand_in_tensor_memory():
    """It is an array of lanes and columns, and no accumulator."""
    case = tile_programs.attention(130, tile=(128, 64))
    steps = {step.name: step for step in lower_trace(case.func, "sm_100a")}
    assert "operand P: through tensor memory" in steps["ShareOperands"].decisions
    script = steps["ResolveTensorMemory"].func.script()
    assert error(script, case) <= 1
    wrong = script.replace("(P[0:128, 16:32], P_chunk", "(P[0:128, 0:16], P_chunk")
    assert wrong != script and not error(wrong, case) <= 1
    refused = script.replace("(acc[0:128, 0:64], P[", "(acc[0:128, 0:64], S[")
    assert refused != script
    with pytest.raises(TileProgramError, match="has A, S, in scope accumulator"):
        error(refused, case)
