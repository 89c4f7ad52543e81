"""The lean headers: the same machine code in less time, and stock TVM where they do not suffice."""

from __future__ import annotations

import pytest
import tvm

from tests.shared.compiler_kernels import SOURCES, TARGET, compile_uncached, doubled
from tests.shared.sampling import sampled
from warploom.compiler import invoke, sass
from warploom.compiler.cubin import read_kernels

pytestmark = pytest.mark.usefixtures("machine_code")

_STOCK = {"WARPLOOM_LEAN_HEADERS": "0"}


def lean_only(source: str):
    """Compile with the lean headers, without falling back."""
    with TARGET:
        request = invoke.current_request(source, "cubin")
        return invoke._compile(request, (f"-I{invoke.LEAN_INCLUDE}",))


def generated(dtype: str) -> str:
    executable = tvm.compile(tvm.IRModule({"main": doubled(dtype)}), TARGET, tir_pipeline="tirx")
    return str(executable.mod.imports[0].inspect_source())


@pytest.mark.parametrize(
    "dtype",
    sampled(["float16", "float32", "float8_e5m2", "bfloat16", "float8_e4m3fn", "int8"], 2),
)
@pytest.mark.some(1)
def test_tvm_kernels_get_the_same_machine_code(dtype):
    source = generated(dtype)
    assert "cooperative_groups" in source
    assert_same_code(lean_only(source), compile_uncached(source, _STOCK))


@pytest.mark.parametrize("name", sampled(SOURCES, 2))
@pytest.mark.some(1)
def test_other_kernels_get_the_same_machine_code(name):
    assert_same_code(lean_only(SOURCES[name]), compile_uncached(SOURCES[name], _STOCK))


def assert_same_code(lean, stock):
    assert read_kernels(lean.binary) == read_kernels(stock.binary)
    assert sass.listing(lean.binary) == sass.listing(stock.binary)


def test_the_integers_of_tvm_s_preamble_have_their_standard_types():
    names = [f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    names += ["intptr_t", "uintptr_t"]
    claims = " && ".join(f"is_same_v<cuda::std::{name}, ::{name}>" for name in names)
    source = f"""
#include <cuda/std/cstdint>
#include <cuda/std/type_traits>
using cuda::std::is_same_v;
static_assert({claims});
static_assert(is_same_v<int64_t, long long> && is_same_v<uint64_t, unsigned long long>);
static_assert(is_same_v<int8_t, signed char> && is_same_v<uint32_t, unsigned int>);
extern "C" __global__ void widest(int64_t* out) {{ *out = sizeof(intptr_t); }}
"""
    assert_same_code(lean_only(source), compile_uncached(source, _STOCK))


def test_the_traits_of_tvm_s_preamble_have_their_standard_values():
    claims = " && ".join(
        [
            "is_same<int, int>::value && !is_same_v<int, unsigned>",
            "is_integral<const long>::value && is_integral<bool>::value",
            "!is_integral<float>::value && !is_integral<int*>::value",
            "is_floating_point<double>::value && !is_floating_point<int>::value",
            "is_signed<float>::value && is_signed<int>::value && !is_signed<float4>::value",
            "is_unsigned<unsigned char>::value && is_unsigned<bool>::value",
            "!is_unsigned<float>::value && !is_unsigned<int*>::value",
            "is_same_v<enable_if<true, int>::type, int>",
            "is_same_v<conditional<false, int, float>::type, float>",
        ]
    )
    source = f"""
#include <cuda/std/type_traits>
using namespace cuda::std;
static_assert({claims});
extern "C" __global__ void infinite(float* out) {{ *out = INFINITY; }}
"""
    assert_same_code(lean_only(source), compile_uncached(source, _STOCK))


@pytest.mark.parametrize(
    "source",
    [
        """#include <cooperative_groups.h>
extern "C" __global__ void grid_wide(int* out) { cooperative_groups::this_grid().sync(); *out = 1; }
""",
        """#include <cuda/std/limits>
extern "C" __global__ void widest(int* out) { *out = cuda::std::numeric_limits<int>::max(); }
""",
    ],
)
@pytest.mark.some(1)
def test_what_needs_more_is_compiled_as_stock_tvm_does(source):
    with pytest.raises(RuntimeError):
        lean_only(source)
    assert compile_uncached(source).binary == compile_uncached(source, _STOCK).binary


def test_an_error_in_the_source_is_the_error_of_stock_tvm():
    source = 'extern "C" __global__ void broken() { no_such_function(); }'
    with pytest.raises(RuntimeError, match="no_such_function"):
        compile_uncached(source)


def test_listening_leaves_nothing_behind():
    from cuda.bindings import nvrtc

    before = (nvrtc.nvrtcCompileProgram, nvrtc.nvrtcDestroyProgram)
    assert "ptxas info" in compile_uncached(SOURCES["shared"]).log
    with pytest.raises(RuntimeError):
        compile_uncached("not C++")
    assert (nvrtc.nvrtcCompileProgram, nvrtc.nvrtcDestroyProgram) == before
