"""Host code computes in its own memory: that of the device is out of its reach on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import emulator
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import lower
from warploom.pipeline import warploom_pipeline
from warploom.programs import paged_decode
from warploom.target import cuda_target


@T.prim_func
def scaled(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, 64), "float32", align=16)
    B = T.match_buffer(b, (n, 64), "float32", align=16)
    # A loop: its result cannot be the value of a variable.
    power: T.int32 = 1
    for _ in T.serial(3):
        power = power * 2 + T.truncmod(n, 2)
    with wl.kernel():
        i = T.cta_id([T.truncdiv(n + 63, 64)])
        A_f = T.alloc_buffer((64, 64), "float32", scope="fragment")
        Tx.cta.copy(A_f, A[i * 64 : i * 64 + 64, 0:64])
        for y, x in T.grid(64, 64):
            A_f[y, x] = A_f[y, x] * T.cast(power, "float32")
        Tx.cta.copy(B[i * 64 : i * 64 + 64, 0:64], A_f)


def allocations(func: tirx.PrimFunc) -> list[str]:
    """The scopes of the buffers that a host function allocates."""
    scopes: list[str] = []
    tvm_ffi.structural_walk(
        func.body, (tirx.AllocBuffer, lambda node: scopes.append(str(node.buffer.scope())))
    )
    return scopes


def places(func: tirx.PrimFunc) -> int:
    """How many places on the stack a host function has for its scalars."""
    found = []

    def visit(call: Call) -> None:
        is_place = isinstance(call.op, Op) and call.op.name == "tirx.tvm_stack_alloca"
        if is_place and str(call.args[0]).strip('"') == "shape":
            found.append(call)

    tvm_ffi.structural_walk(func.body, (Call, visit))
    return len(found)


def hosts(func: tirx.PrimFunc) -> list[tirx.PrimFunc]:
    target = cuda_target("h200").with_host("llvm")
    passes, _, _ = warploom_pipeline()
    mod = tvm.IRModule({"main": func.with_attrs({"global_symbol": "main", "target": target})})
    with target:
        lowered = passes(mod)
    return [f for f in lowered.functions.values() if "tirx.is_entry_func" in (f.attrs or {})]


@pytest.mark.parametrize("func", [scaled, paged_decode(8, 2, 64)], ids=["loop", "paged_decode"])
def test_host_code_allocates_workspaces_of_the_device_only(func):
    (host,) = hosts(func)
    assert set(allocations(host)) <= {"global"}
    assert places(host) >= 1


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 64, 100])
def test_scalar_that_the_host_assigns_in_a_loop(n, rng):
    a = rng.standard_normal((n, 64)).astype("float32")
    b = np.full_like(a, np.nan)
    found = emulator.run(scaled, [a, b]).outputs[1]
    power = 1
    for _ in range(3):
        power = power * 2 + n % 2
    np.testing.assert_array_equal(found, a * np.float32(power))


def test_kernel_that_assigns_to_a_scalar_of_the_host_is_declined():
    @T.prim_func
    def counted(b: T.handle):
        n = T.int32()
        B = T.match_buffer(b, (n, 64), "float32", align=16)
        count: T.int32 = n
        with wl.kernel():
            T.cta_id([1])
            B_f = T.alloc_buffer((64, 64), "float32", scope="fragment")
            count = count + 1
            Tx.cta.fill(B_f, T.cast(count, "float32"))
            Tx.cta.copy(B[0:64, 0:64], B_f)

    with pytest.raises(Decline, match="assigns to count, a scalar of the host"):
        lower(counted, "sm_90a")


def test_kernel_that_only_assigns_to_a_scalar_of_the_host_is_declined():
    @T.prim_func
    def counted(b: T.handle):
        n = T.int32()
        B = T.match_buffer(b, (n, 64), "float32", align=16)
        count: T.int32 = n
        with wl.kernel():
            T.cta_id([1])
            B_f = T.alloc_buffer((64, 64), "float32", scope="fragment")
            count = 3  # noqa: F841
            Tx.cta.fill(B_f, T.float32(1))
            Tx.cta.copy(B[0:64, 0:64], B_f)

    with pytest.raises(Decline, match="assigns to count, a scalar of the host"):
        lower(counted, "sm_90a")
