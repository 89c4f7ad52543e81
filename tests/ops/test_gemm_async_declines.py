"""What wgmma cannot do is refused in one sentence: the operand, the rule and what to change."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

import pytest
import tvm
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import S, TileLayout

from tests.shared.gemm_async_kernel import TARGET
from warploom.layout.fragment import wgmma_accumulator, wgmma_register_a


@dataclass(frozen=True)
class Operand:
    """A buffer and the part of it that the call names; no layout means the right one."""

    shape: tuple[int, ...]
    dtype: str
    scope: str = "shared"
    layout: Any = None
    part: tuple[slice | int, ...] = ()
    align: int = 1024

    @property
    def region(self) -> tuple[slice | int, ...]:
        return self.part or tuple(slice(0, extent) for extent in self.shape)


@dataclass(frozen=True)
class Call:
    """A call of ``gemm_async``, legal as it stands; each test spoils one thing."""

    d: Operand = Operand((64, 64), "float32", "local")
    a: Operand = Operand((64, 64), "float16")
    b: Operand = Operand((64, 64), "float16")
    options: tuple[tuple[str, Any], ...] = ()
    scope: str = "wg"
    warpgroups: int = 1
    target: tvm.target.Target = TARGET
    first_bytes: int = 1024

    def compile(self) -> None:
        with self.target:
            tvm.compile(
                tvm.IRModule({"main": self._kernel()}), target=self.target, tir_pipeline="tirx"
            )

    def _kernel(self):
        fragments = {
            "d": lambda shape: wgmma_accumulator(*shape, self.warpgroups),
            "a": lambda shape: wgmma_register_a(self.a.dtype, shape[1], shape[0]),
            "b": lambda shape: wgmma_register_a(self.b.dtype, shape[1], shape[0]),
        }

        def allocate(pool, name):
            operand = getattr(self, name)
            shape, dtype = operand.shape, operand.dtype
            if operand.scope == "local":
                layout = operand.layout or fragments[name](shape)
                return T.alloc_buffer(shape, dtype, scope="local", layout=layout)
            layout = operand.layout or mma_shared_layout(dtype, 3, shape)
            return pool.alloc(shape, dtype, align=operand.align, layout=layout)

        def multiply(d, a, b):
            where = {"wg": Tx.wg, "cta": Tx.cta, "warp": Tx.warp}[self.scope]
            where.gemm_async(
                d[self.d.region],
                a[self.a.region],
                b[self.b.region],
                **{"accum": False, "dispatch": "wgmma"} | dict(self.options),
            )

        @T.prim_func
        def kernel(out_ptr: T.handle):
            T.match_buffer(out_ptr, (1,), "float32")
            T.device_entry()
            T.cta_id([1])
            T.warpgroup_id([self.warpgroups])
            T.warp_id_in_wg([4])
            T.lane_id([32])
            pool = T.SMEMPool()
            pool.alloc((self.first_bytes,), "uint8", align=1024)
            a = T.meta_var(allocate(pool, "a"))
            b = T.meta_var(allocate(pool, "b"))
            d = T.meta_var(allocate(pool, "d"))
            pool.commit()
            multiply(d, a, b)

        return kernel


def shared(*shape: int, dtype: str = "float16", **other) -> Operand:
    return Operand(shape, dtype, **other)


def registers(*shape: int, dtype: str = "float32", **other) -> Operand:
    return Operand(shape, dtype, "local", **other)


def flat(*shape: int) -> TileLayout:
    """Row-major, the layout of an ordinary buffer."""
    return TileLayout(S[shape])


FULL = slice(0, 64)
SM_90 = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})

#: What is spoiled -> (changes to the call, words of the refusal in order).
REFUSED = {
    "operand dtypes differ": (
        {"b": shared(64, 64, dtype="bfloat16")},
        ["float16 x bfloat16", "allowed", "float16 x float16"],
    ),
    "no such operand dtype": (
        {"a": shared(64, 64, dtype="int16"), "b": shared(64, 64, dtype="int16")},
        ["int16 x int16", "allowed", "int8 x int8"],
    ),
    "bfloat16 in a float16 accumulator": (
        {
            "a": shared(64, 64, dtype="bfloat16"),
            "b": shared(64, 64, dtype="bfloat16"),
            "d": registers(64, 64, dtype="float16"),
        },
        ["bfloat16 x bfloat16", "float16", "allowed: float32"],
    ),
    "int8 in a float32 accumulator": (
        {"a": shared(64, 128, dtype="int8"), "b": shared(64, 128, dtype="int8")},
        ["int8 x int8", "float32", "allowed: int32"],
    ),
    "D in plain layout": (
        {"d": registers(64, 64, layout=flat(64, 64))},
        ["D has layout", "fragment", r"layout=wgmma_accumulator\(64, 64\)"],
    ),
    "D in shared memory": (
        {"d": shared(64, 64, dtype="float32")},
        ["D must be in registers", "shared"],
    ),
    "A in registers in plain layout": (
        {"a": registers(64, 64, dtype="float16", layout=flat(64, 64))},
        ["A has layout", "fragment", "layout=wgmma_register_a"],
    ),
    "A in registers, transposed": (
        {"a": registers(64, 64, dtype="float16"), "options": (("transA", True),)},
        ["A in registers", "K-major", "transA=False"],
    ),
    "A in registers for several warpgroups": (
        {
            "a": registers(64, 64, dtype="float16"),
            "d": registers(128, 64),
            "scope": "cta",
            "warpgroups": 2,
        },
        ["A in registers", "one warpgroup", r"Tx\.wg\.gemm_async"],
    ),
    "B in registers": (
        {"b": registers(64, 64, dtype="float16")},
        ["B must be in shared memory", "local"],
    ),
    "A in plain layout": (
        {"a": shared(64, 64, layout=flat(64, 64))},
        ["A: ", "tensor core cannot read", "mma_shared_layout"],
    ),
    "B in plain layout": (
        {"b": shared(64, 64, layout=flat(64, 64))},
        ["B: ", "tensor core cannot read", "mma_shared_layout"],
    ),
    "fp8 B stored MN-major": (
        {
            "a": shared(64, 128, dtype="float8_e4m3fn"),
            "b": shared(128, 128, dtype="float8_e4m3fn", part=(slice(0, 128), FULL)),
            "options": (("transB", True),),
        },
        ["B is float8_e4m3fn", "transB=True", "16-bit", "K-major"],
    ),
    "tf32 A stored MN-major": (
        {
            "a": shared(32, 64, dtype="float32"),
            "b": shared(64, 32, dtype="float32"),
            "options": (("transA", True),),
        },
        ["A is float32", "transA=True", "16-bit", "K-major"],
    ),
    "N = 12": (
        {
            "d": registers(64, 64, part=(FULL, slice(0, 12))),
            "b": shared(64, 64, part=(slice(0, 12), FULL)),
        },
        ["N = 12", "8, 16, ... 256"],
    ),
    "M = 32": (
        {
            "d": registers(64, 64, part=(slice(0, 32), FULL)),
            "a": shared(64, 64, part=(slice(0, 32), FULL)),
        },
        ["D has 32 rows", "multiples of 64"],
    ),
    "K = 8": (
        {
            "a": shared(64, 64, part=(FULL, slice(0, 8))),
            "b": shared(64, 64, part=(FULL, slice(0, 8))),
        },
        ["K = 8", "multiple of 16", "pad K"],
    ),
    "K of A and B differ": (
        {"a": shared(64, 64, part=(FULL, slice(0, 32)))},
        ["shapes disagree", "A 64 x 32", "B 64 x 64"],
    ),
    "rows of B and columns of D differ": (
        {"b": shared(128, 64)},
        ["shapes disagree", "D is 64 x 64", "B 128 x 64"],
    ),
    "A starts within a step of K": (
        {"a": shared(64, 128, part=(FULL, slice(8, 72)))},
        ["first K of A = 8", "multiple of 16"],
    ),
    "B starts within eight rows": (
        {"b": shared(128, 64, part=(slice(4, 68), FULL))},
        ["first B row = 4", "multiple of 8"],
    ),
    "MN-major B starts within a swizzle atom": (
        {"b": shared(64, 128, part=(FULL, slice(32, 96))), "options": (("transB", True),)},
        ["first B row = 32", "multiple of 64"],
    ),
    "D starts within eight columns": (
        {"d": registers(64, 128, part=(FULL, slice(4, 68)))},
        ["first column of D = 4", "multiple of 8"],
    ),
    "two stages at once": (
        {"b": shared(2, 64, 64)},
        ["B must be a matrix", r"\[2, 64, 64\]", "leading dimensions"],
    ),
    "A between swizzle atoms": (
        {"a": shared(64, 64, align=128), "first_bytes": 1152},
        ["A starts 1152 bytes", "B128", "multiple of 1024", "align=1024"],
    ),
    "one warp": ({"scope": "warp"}, ["whole warpgroups", "warp", r"Tx\.wg\.gemm_async"]),
    "arch sm_90": ({"target": SM_90}, ["sm_90a", "sm_90'"]),
    "unknown option": (
        {"options": (("scale", 2),)},
        ["unknown option 'scale'", "allowed", "wait"],
    ),
    "a wait for more groups than there are": (
        {"options": (("wait", 8),)},
        ["wait is 8", "from 0 to 7"],
    ),
    "a wait of -1": ({"options": (("wait", -1),)}, ["wait is -1", "from 0 to 7"]),
    "a wait that is no number": ({"options": (("wait", "all"),)}, ["wait is 'all'", "0 to 7"]),
    "a sign that is no bool": ({"options": (("negate_a", 2),)}, ["negate_a is 2", "True or False"]),
    "saturation of floats": (
        {"options": (("satfinite", True),)},
        ["satfinite", "integers", "float16"],
    ),
    "negated integers": (
        {
            "a": shared(64, 128, dtype="int8"),
            "b": shared(64, 128, dtype="int8"),
            "d": registers(64, 64, dtype="int32"),
            "options": (("negate_a", True),),
        },
        ["negate_a", "floating point", "int8"],
    ),
}


def test_the_unspoiled_call_compiles():
    Call().compile()


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_operand_rule_and_fix(name):
    changes, words = REFUSED[name]
    with pytest.raises(Exception, match="wgmma") as caught:
        dataclasses.replace(Call(), **changes).compile()
    reason = re.search(r"wgmma: .*", str(caught.value)).group()
    assert re.search(".*".join(words), reason), f"expected {words} in order, got: {reason}"
