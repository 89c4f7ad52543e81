"""Waits for products: the latest place, the fewest groups, and what is done when they complete."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import tvm
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st
from tvm import tirx
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import Buffer, Stmt

from lowered_programs import check
from tile_programs.case import Case, poisoned, random_values, wide
from warploom import language as wl
from warploom.compiler import sass
from warploom.compiler.callback import compile_cached
from warploom.compiler.invoke import current_request
from warploom.layout.fragment import wgmma_accumulator
from warploom.programs import attention
from warploom.target import cuda_target
from warploom.tile.effects import Effects
from warploom.transform.wait_products import Group, Products

TILES = {
    name: tirx.decl_buffer(
        (64, 8), "float32", name, scope="local", layout=wgmma_accumulator(64, 8)
    )
    for name in "abcdef"
}


def tiles(names: Iterable[str]) -> frozenset[Buffer]:
    return frozenset(TILES[name] for name in names)


def group(reads: str, writes: str) -> Group:
    return Group(tiles(reads), tiles(writes))


def waits(statements: list[Stmt]) -> list[int]:
    """How many groups each wait leaves under way."""
    found = []
    for one in statements:
        text = one.script()
        if "wait_group" in text:
            found.append(int(text.split("wgmma(")[1].split(",")[0]))
    return found


def test_a_statement_waits_for_what_it_touches_and_no_more():
    products = Products()
    for one in (group("ab", "c"), group("ab", "d"), group("ab", "e")):
        products.issue(one)
    assert products.before(Effects(tiles("a"), tiles("f"))) == []
    assert waits(products.before(Effects(tiles("c"), tiles("")))) == [2]
    assert waits(products.before(Effects(tiles(""), tiles("d")))) == [1]
    assert waits(products.before(Effects(tiles(""), tiles("a")))) == [0]
    assert products.groups == [] and products.wait_all_but(0) == []


def test_a_warpgroup_meets_after_what_a_product_hides():
    products, computed = Products(), tiles("cdef")
    products.issue(group("a", "c"))
    assert products.before_computing(Effects(tiles("d"), tiles("d")), computed, 1) == []
    found = products.before_computing(Effects(tiles("c"), tiles("c")), computed, 1)
    assert "meet_after" in "".join(one.script() for one in found) and waits(found) == [0]
    # Nothing is computed under the product, or not after the latest of them.
    products.issue(group("a", "c"))
    found = products.before_computing(Effects(tiles("c"), tiles("c")), computed, 1)
    assert "meet_after" not in "".join(one.script() for one in found) and waits(found) == [0]
    products.issue(group("a", "c"))
    products.before_computing(Effects(tiles("d"), tiles("d")), computed, 1)
    products.issue(group("a", "e"))
    found = products.before_computing(Effects(tiles("c"), tiles("c")), computed, 1)
    assert "meet_after" not in "".join(one.script() for one in found) and waits(found) == [1]


@pytest.mark.skipif(sass.disassembler() is None, reason="needs nvdisasm")
def test_the_softmax_of_attention_is_computed_under_a_product():
    func = attention(256, 64, heads=1, tile=(64, 64))
    mod = tvm.compile(tvm.IRModule({"main": func}), cuda_target("h200"), tir_pipeline="warploom")
    (source,) = (one.inspect_source() for one in mod.mod.imports)
    with cuda_target("h200"):
        listing = sass.listing(compile_cached(current_request(source, "cubin")).output.binary)
    inside = listing.partition("DEPBAR.LE gsb0, 0x1")[2].partition("DEPBAR.LE gsb0, 0x0")[0]
    # A thread has 32 of the weights, and a factor of each of its two rows.
    assert inside.count("MUFU.EX2") == 34, listing


def test_actions_are_done_when_their_group_is_complete():
    products, done = Products(), []
    groups = [group("a", "d"), group("b", "e")]
    for number, one in enumerate(groups):
        products.issue(one)
        products.when_done(one, number, lambda number=number: done.append(number) or [])
    products.wait_all_but(1)
    assert done == [0]
    assert products.finish(0) == [] and waits(products.finish(1)) == [0]
    assert done == [0, 1] and products.held == []


@given(st.lists(st.tuples(st.sampled_from(("issue", "wait", "finish")), st.integers(0, 5))))
def test_an_action_is_done_at_the_first_wait_that_completes_its_group(steps):
    """Once, neither before its group is complete nor after; ``finish`` waits for one of them."""
    products = Products()
    issued: list[Group] = []
    complete = 0
    done: list[int] = []
    for number, (step, count) in enumerate(steps):
        before = complete
        if step == "issue":
            # Equal groups are different products.
            issued.append(group("a", "bcdef"[number % 5]))
            products.issue(issued[-1])
            which = len(issued) - 1
            products.when_done(issued[-1], which, lambda which=which: done.append(which) or [])
            found = []
        elif step == "wait":
            found = waits(products.wait_all_but(count))
            complete = max(complete, len(issued) - count)
        else:
            found = waits(products.finish(count))
            complete = max(complete, count + 1 if count < len(issued) else 0)
        assert found == ([len(issued) - complete] if complete > before else [])
        assert done == list(range(complete))


def test_guarded_actions_have_a_condition():
    products = Products()
    one = group("a", "d")
    products.issue(one)
    products.when_done(one, "stage", lambda: [tirx.Evaluate(7)])
    condition = tirx.Var("k", "int32") > 0
    statements = products.guarded(condition).wait_all_but(0)
    (guarded,) = (one for one in statements if isinstance(one, tirx.IfThenElse))
    assert guarded.condition.same_as(condition)
    assert len(products.groups) == 1


def test_results_are_pinned_once_no_product_writes_them():
    products = Products()
    for _ in range(2):
        products.issue(group("a", "d"))
    assert len(products.wait_all_but(1)) == 1
    script = "".join(one.script() for one in products.wait_all_but(0))
    assert "d_pinned" in script and "warploom_pin_float32" in script


names = st.frozensets(st.sampled_from(sorted(TILES)), max_size=3)


@limit(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), names, names), max_size=12))
def test_no_statement_runs_while_a_conflicting_product_may(steps):
    products = Products()
    under_way: list[Group] = []
    for is_product, reads, writes in steps:
        found = Effects(tiles(reads), tiles(writes))
        left = waits(products.before(found))
        assert len(left) <= 1
        if left:
            under_way = under_way[len(under_way) - left[0] :]
        assert under_way == products.groups
        assert not any(one.conflicts(found) for one in under_way)
        if is_product:
            under_way.append(Group(found.reads, found.writes))
            products.issue(under_way[-1])


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("specialise", [True, False])
def test_a_stage_is_given_back_after_the_last_of_equal_products(stages, specialise, rng):
    """Two products of the same tiles are two groups, and both read the stage."""

    @T.prim_func
    def func(A: T.Buffer((64, 256), "float16"), B: T.Buffer((64, 256), "float16"),
             C: T.Buffer((64, 64), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        for k in wl.pipelined(4, stages):
            Tx.cta.copy_async(A_s, A[0:64, k * 64 : k * 64 + 64])
            Tx.cta.copy_async(B_s, B[0:64, k * 64 : k * 64 + 64])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
            Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
        Tx.cta.copy(C, acc)

    def arguments(rng):
        return [*(random_values(rng, (64, 256), "float16") for _ in range(2)),
                poisoned((64, 64), "float32")]  # fmt: skip

    def expected(args):
        return {2: 2 * wide(args[0]) @ wide(args[1]).T}

    check(Case(func, arguments, expected, 1e-6), rng, specialise=specialise)
