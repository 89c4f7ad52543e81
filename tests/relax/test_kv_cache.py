"""The kernels of TVM's paged KV cache: which are replaced, and what the cache then computes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.frontend.nn.llm.kv_cache import AttnKind, RopeMode
from tvm.tirx import PrimFunc, is_buffer_var

from tests.relax.cached_attention import TARGET, CachedAttention, CacheOptions, executable
from warploom.fallback import ORIGINAL
from warploom.programs.rotary import BEFORE, EITHER, INLINE
from warploom.relax.inspect import inspect
from warploom.relax.kv_cache import ReplaceCacheKernels, cache_kernels, left_to_tvm
from warploom.relax.kv_cache_kernel import CacheKernel
from warploom.relax.kv_cache_kernels import CACHE_KERNELS, kernels_at
from warploom.relax.signatures import Signature
from warploom.relax.tile_programs import is_tirx

#: Kernels that are replaced.
_TAKEN = {
    "batch_prefill_ragged_kv", "batch_prefill_paged_kv", "batch_prefill_paged_kv_sliding_window",
    "batch_decode_paged_kv", "batch_decode_paged_kv_sliding_window",
    "tir_kv_cache_transpose_append", "tir_kv_cache_transpose_append_mla",
    "batch_tree_attn", "tree_attn_paged_kv",
    "tir_attention_merge_state", "copy_single_page", "compact_kv_copy",
}  # fmt: skip
#: Those of them that are attention, and those of trees, which are rotated before.
_ATTENTION = {name for name in _TAKEN if name.startswith(("batch", "tree"))}
_TREES = {"batch_tree_attn", "tree_attn_paged_kv"}
_ROTATING = _ATTENTION - _TREES


def _replaced(module: tvm.IRModule) -> dict[str, PrimFunc]:
    with TARGET:
        made = ReplaceCacheKernels()(module)
    return {
        gv.name_hint: func for gv, func in made.functions.items()
        if isinstance(func, PrimFunc) and is_tirx(func)
    }  # fmt: skip


def _variable(module: tvm.IRModule, name: str) -> tvm.ir.GlobalVar:
    return next(gv for gv in module.functions if gv.name_hint == name)


@pytest.mark.parametrize(
    "options",
    [
        CacheOptions(),
        CacheOptions(71, 71, 80, "bfloat16", RopeMode.NONE),
        CacheOptions(32, 8, 128, "bfloat16"),
        CacheOptions(7, 1, 96),
        CacheOptions(16, 16, 256),
    ],
    ids=lambda one: f"{one.heads}-{one.kv_heads}-{one.head_dim}-{one.dtype}",
)
@pytest.mark.some(2)
def test_kernels_of_every_cache_are_replaced(options: CacheOptions) -> None:
    module = options.module()
    made = _replaced(module)
    assert set(made) == _TAKEN
    for name, program in made.items():
        theirs = module[_variable(module, name)]
        assert tvm_ffi.structural_equal(program.attrs[ORIGINAL], theirs)
        for own, their in zip(program.params, theirs.params, strict=True):
            assert is_buffer_var(own) == is_buffer_var(their)
            assert str(own.ty.dtype) == str(their.ty.dtype)


def test_caches_of_latent_vectors() -> None:
    """Ragged attention has other values than keys; the second merge is of such values."""
    module = CacheOptions(16, 1, 576, "bfloat16", RopeMode.NONE, latent=True).module()
    assert set(_replaced(module)) >= {
        "batch_prefill_ragged_kv", "tir_attention_merge_state", "tir_attention_merge_state_mla",
        "tir_kv_cache_transpose_append_mla", "copy_single_page_mla", "batch_prefill_paged_kv_mla",
    }  # fmt: skip
    words = {report.name: str(report) for report in inspect(module)}
    assert "16 heads of 192 and 128 (16 of keys), bfloat16" in words["batch_prefill_ragged_kv"]
    latent = "attention to latent vectors (MLA), 16 heads of 576, of which 512 are values"
    assert latent in words["batch_prefill_paged_kv_mla"]
    assert "heads of 512, bfloat16" in words["tir_attention_merge_state"]
    assert "heads of 128, bfloat16" in words["tir_attention_merge_state_mla"]


def test_latent_vectors_without_a_program_stay() -> None:
    module = CacheOptions(16, 1, 576, "float32", RopeMode.NONE, latent=True).module()
    left = left_to_tvm(module, TARGET)
    assert "it must be float16 or bfloat16" in left["batch_prefill_paged_kv_mla"]
    module = CacheOptions(16, 1, 516, "float16", RopeMode.NONE, latent=True).module()
    assert "rope_dim is 4" in left_to_tvm(module, TARGET)["batch_prefill_paged_kv_mla"]


def test_inspection_says_what_becomes_of_each_kernel() -> None:
    reports = {report.name: report for report in inspect(CacheOptions().module())}
    words = "decode attention, 4 heads of 64 (2 of keys), pages of 16 tokens, float16"
    assert str(reports["batch_decode_paged_kv"]) == f"batch_decode_paged_kv: {words}"
    assert reports["batch_decode_paged_kv"].on_tensor_cores
    assert {name for name, report in reports.items() if report.multiplies} >= _ATTENTION
    words = "two attentions become one, heads of 64, float16, 16 bytes a thread"
    assert str(reports["tir_attention_merge_state"]) == f"tir_attention_merge_state: {words}"
    assert not reports["tir_attention_merge_state"].on_tensor_cores
    assert "for debugging" in reports["tir_kv_cache_debug_get_kv"].reason
    assert reports["fused_rope"].rows.vector == 8


@pytest.mark.parametrize("mode", [RopeMode.INLINE, tirx.Var("mode", "int64")], ids=str)
def test_kernels_that_rotate_are_replaced(mode: Any) -> None:
    """A mode that is known at run time only may be either; trees are not rotated in kernels."""
    module = _with_argument(CacheOptions().module(), 8, mode)
    assert set(_replaced(module)) == _TAKEN
    rotary = INLINE if mode == RopeMode.INLINE else EITHER
    assert _rotary(module) == dict.fromkeys(_ROTATING, rotary) | dict.fromkeys(_TREES, BEFORE)


@pytest.mark.parametrize(
    ("windows", "kinds", "expected"),
    [
        (0, ["mha"], (BEFORE, BEFORE, BEFORE)),
        (1, ["mha"], (INLINE, BEFORE, INLINE)),
        (None, ["mha"], (EITHER, BEFORE, INLINE)),
        (None, ["mha", "mha_sliding"], (EITHER, EITHER, EITHER)),
        (0, ["mha", "mha_sliding"], (BEFORE, BEFORE, BEFORE)),
    ],
)
def test_windows_make_kernels_rotate(
    windows: int | None, kinds: list[str], expected: tuple[str, ...]
) -> None:
    """Of ragged attention, of that to the cache, and of that to windows."""
    module = CacheOptions().module()
    if windows is not None:
        call = next(iter(_cache_calls(module)))
        sizes = [*call[0].values[:4], tirx.IntImm("int64", windows), call[0].values[5]]
        module = _with_argument(module, 0, relax.ShapeExpr(sizes))
    numbers = [int(getattr(AttnKind, kind.upper())) for kind in kinds]
    module = _with_argument(module, 6, relax.ShapeExpr(numbers))
    ragged, paged, sliding = expected
    assert _rotary(module) == {
        "batch_prefill_ragged_kv": ragged, "batch_prefill_paged_kv": paged,
        "batch_decode_paged_kv": paged, "batch_prefill_paged_kv_sliding_window": sliding,
        "batch_decode_paged_kv_sliding_window": sliding, **dict.fromkeys(_TREES, BEFORE),
    }  # fmt: skip


def test_kernels_that_rotate_with_a_scaling_stay() -> None:
    """Those of windows rotate; ragged attention does if windows are switched on, which is rare."""
    module = CacheOptions(scaled=True).module()
    left = left_to_tvm(module, TARGET)
    windows = {name for name in _ROTATING if name.endswith("window")}
    assert left.keys() == windows | {"tir_kv_cache_debug_get_kv"}
    assert all("a scaling (rope_scaling)" in left[name] for name in windows)
    left = left_to_tvm(_with_argument(module, 8, RopeMode.INLINE), TARGET)
    assert left.keys() == _ROTATING | {"tir_kv_cache_debug_get_kv"}


def _rotary(module: tvm.IRModule) -> dict[str, str]:
    """Where attention rotates queries and keys."""
    uses = {use.variable.name_hint: use.rotary for use in cache_kernels(module)}
    return {name: next(iter(uses[name])) for name in _ATTENTION}


def _cache_calls(module: tvm.IRModule) -> list[list[Any]]:
    calls: list[list[Any]] = []

    def add(call: relax.Expr) -> None:
        if isinstance(call, relax.Call) and len(call.args) > 20:
            calls.append(list(call.args)[1:])

    relax.analysis.post_order_visit(module["create_kv"], add)
    return calls


def _with_argument(module: tvm.IRModule, number: int, value: Any) -> tvm.IRModule:
    """A module whose call that makes the cache has another argument."""

    @relax.expr_functor.mutator
    class Change(relax.PyExprMutator):
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            if getattr(call.op, "name", "") != "relax.call_pure_packed":
                return call
            arguments = list(call.args)
            arguments[number + 1] = value
            return relax.Call(call.op, arguments, call.attrs, call.ty_args)

    changed = Change(module).visit_expr(module["create_kv"])
    return tvm.IRModule({**dict(module.functions.items()), _variable(module, "create_kv"): changed})


def _with_function(module: tvm.IRModule, name: str, func: PrimFunc) -> tvm.IRModule:
    return tvm.IRModule({**dict(module.functions.items()), _variable(module, name): func})


def test_a_kernel_of_the_models_author_stays() -> None:
    """One constant differs from TVM's: the logit of keys that are not there."""
    module = CacheOptions().module()
    name = "batch_decode_paged_kv"

    def other(number: tirx.FloatImm) -> Any:
        return tirx.FloatImm(number.ty, -4e4) if number.value == -5e4 else number

    func = module[name]
    body = tvm_ffi.structural_map(func.body, (tirx.FloatImm, other), order="post")
    changed = PrimFunc(func.params, body, func.ret_type, func.attrs)
    module = _with_function(module, name, changed)
    assert "differs from TVM's kernel" in left_to_tvm(module, TARGET)[name]
    assert name not in _replaced(module)


def test_a_kernel_with_other_parameters_stays() -> None:
    module = CacheOptions().module()
    module = _with_function(module, "batch_decode_paged_kv", module["fused_rope"])
    assert "has 6 parameters" in left_to_tvm(module, TARGET)["batch_decode_paged_kv"]


def test_a_kernel_that_the_model_calls_elsewhere_stays() -> None:
    module = CacheOptions().module()
    kernel = _variable(module, "batch_decode_paged_kv")
    builder = relax.BlockBuilder(module)
    with builder.function("other", []):
        called = relax.call_tir(kernel, [], relax.TensorType((1,), "float16"))
        builder.emit_func_output(called)
    module = builder.get()
    assert "in other places" in left_to_tvm(module, TARGET)["batch_decode_paged_kv"]


def test_a_size_without_a_kernel_stays() -> None:
    left = left_to_tvm(CacheOptions(4, 4, 64, "float32").module(), TARGET)
    assert "it must be float16 or bfloat16" in left["batch_decode_paged_kv"]


@pytest.mark.parametrize(("scaled", "stay"), [(False, set()), (True, _ROTATING)])
def test_two_caches_share_kernels(scaled: bool, stay: set[str]) -> None:
    """Even if one of them rotates in the kernels, unless there is no program that does."""
    module = CacheOptions(scaled=scaled).module()
    windows = {name for name in stay if name.endswith("window")}
    for mode, taken in ((RopeMode.NONE, _TAKEN - windows), (RopeMode.INLINE, _TAKEN - stay)):
        second = _with_argument(module, 8, mode)["create_kv"].with_attr("global_symbol", "two")
        both = {**dict(module.functions.items()), tvm.ir.GlobalVar("two"): second}
        assert _replaced(tvm.IRModule(both)).keys() & _TAKEN == taken


def test_the_table_checks_its_rows() -> None:
    assert all(row in kernels_at(row.slot, row.place) for row in CACHE_KERNELS)
    assert {use.variable.name_hint for use in cache_kernels(CacheOptions().module())} >= _TAKEN
    (row,) = kernels_at(17, 1)
    with pytest.raises(ValueError, match="no number 99"):
        dataclasses.replace(row, slot=99)
    with pytest.raises(ValueError, match="a reason is given"):
        CacheKernel(row.slot, row.place, row.words, signature=row.signature, stock=row.stock)
    with pytest.raises(ValueError, match=r"no number, name or name\+1"):
        Signature.of("q: float16 batch-1")


@pytest.fixture(params=["float16", "bfloat16"])
def attention(request: pytest.FixtureRequest, rng: np.random.Generator) -> CachedAttention:
    options = {
        "float16": CacheOptions(),
        "bfloat16": CacheOptions(7, 1, 80, "bfloat16", RopeMode.NONE),
    }
    return CachedAttention(options[request.param], rng)


@pytest.mark.gpu
@pytest.mark.some(1)
def test_prompts_tokens_forks_and_pops(
    attention: CachedAttention, rng: np.random.Generator
) -> None:
    """Lengths of one token, at the borders of pages and beside them, in random order."""
    for sequence, length in enumerate(rng.permutation([1, 15, 16, 17, 33, 48])):
        attention.add(sequence)
        attention.check({sequence: int(length)})
    attention.check(dict.fromkeys(map(int, rng.permutation(6)), 1))
    attention.check({0: 5, 3: 1, 1: 18})
    attention.fork(2, 6, -1)
    attention.fork(5, 7, int(rng.integers(1, attention.known[5].shape[1])))
    attention.check(dict.fromkeys((7, 2, 6, 5), 1))
    attention.pop(1, int(rng.integers(1, 18)))
    for _ in range(3):
        attention.check(dict.fromkeys((1, 7, 6, 0), 1))
    attention.check({6: 3, 7: 20})


@pytest.mark.in_turn(3)
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("mode", "window"), [(RopeMode.INLINE, False), (RopeMode.NORMAL, True)], ids=str
)
@pytest.mark.some(1)
def test_keys_that_are_rotated_in_kernels(
    rng: np.random.Generator, mode: RopeMode, window: bool
) -> None:
    """By the mode, and because sequences may have windows, which these do not."""
    attention = CachedAttention(CacheOptions(rope_mode=mode), rng, window)
    for sequence, length in enumerate((17, 1, 40)):
        attention.add(sequence)
        attention.check({sequence: length})
    attention.check({2: 1, 0: 1})
    attention.check({1: 5, 0: 20})
    attention.check({0: 1, 1: 1, 2: 1})


@pytest.mark.gpu
def test_trees_of_tokens(rng: np.random.Generator) -> None:
    """A token of a tree sees those before the tree and its branch; then some are accepted."""
    attention = CachedAttention(CacheOptions(), rng)
    for sequence, length in enumerate((21, 16)):
        attention.add(sequence)
        attention.check({sequence: length})
    trees = {0: [-1, 0, 0, 1, 3, 2], 1: [-1, -1, 0, 1, 2]}
    attention.check({number: len(tree) for number, tree in trees.items()}, trees)
    attention.accept({0: 4, 1: 3})
    attention.check({0: 1, 1: 1})
    attention.check({0: 4, 1: 7})


@pytest.mark.in_turn(2)
@pytest.mark.gpu
@pytest.mark.parametrize("sink", [0, 4, 20])
@pytest.mark.some(1)
def test_sliding_windows(rng: np.random.Generator, sink: int) -> None:
    options = CacheOptions(2, 1, 64, "float16", RopeMode.NONE)
    attention = CachedAttention(options, rng, window=True)
    for sequence in range(3):
        attention.add(sequence)
    attention.slide(0, 24 + sink, sink)
    attention.slide(1, 40 + sink, sink)
    attention.check({0: 20 + sink, 1: 39, 2: 40})
    for _ in range(20):
        attention.check({0: 1, 1: 1, 2: 1})
    attention.check({1: 5, 2: 3, 0: 4})
    attention.check({0: 1, 1: 1})


@pytest.mark.in_turn(3)
@pytest.mark.gpu
def test_a_build_that_fails_takes_tvms_kernel(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from warploom.errors import StockScheduleWarning
    from warploom.relax import kv_cache_attention

    def broken(*_: Any, **__: Any) -> PrimFunc:
        raise RuntimeError("out of ideas")

    monkeypatch.setattr(kv_cache_attention, "paged_decode", broken)
    # With these heads, no two threads of TVM's kernel store one element.
    options = CacheOptions(16, 1, 128)
    executable.cache_clear()
    with pytest.warns(StockScheduleWarning, match="batch_decode_paged_kv .* out of ideas"):
        attention = CachedAttention(options, rng)
    executable.cache_clear()
    attention.add(0)
    attention.check({0: 9})
    attention.check({0: 1})
