"""What threads compute: exponentials, conversions, dequantised weights, an epilogue's elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from warploom_bench.machine.measurement import Measurement, Samples
from warploom_bench.machine.probe import ROW_BYTES, Probe
from warploom_bench.machine.rig import Rig

#: Words of each thread, which it computes with in turn: more than one instruction in flight.
_WORDS = 8


@dataclass(frozen=True)
class Operation:
    """An operation on words.

    Attributes
    ----------
    name : str
    code : str
        CUDA that makes ``unsigned w`` of ``unsigned w``; it is executed again and again.
    elements : int
        Elements that it makes.
    what : str
    values : callable
        Random generator and count -> the words to begin with.
    expected : callable
        Words -> words after one execution.
    units : int, optional
        Units in the last place that are allowed; those of :data:`_ALLOWED` by default.
    """

    name: str
    code: str
    elements: int
    what: str
    values: Callable[[np.random.Generator, int], np.ndarray]
    expected: Callable[[np.ndarray], np.ndarray]
    units: int | None = None


def _floats(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.uniform(-4, 4, count).astype(np.float32).view(np.uint32)


def _positive(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.uniform(0.25, 4, count).astype(np.float32).view(np.uint32)


def _halves(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.uniform(-2, 2, 2 * count).astype(np.float16).view(np.uint32)


def _bits(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, 2**32, count, np.uint32)


def _small_float8(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.uniform(-4, 4, 4 * count).astype(ml_dtypes.float8_e4m3fn).view(np.uint32)


def _of_float(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda words: function(words.view(np.float32).astype(np.float64)).astype(np.float32)


def _of_half(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda words: function(words.view(np.float16).astype(np.float64)).astype(np.float16)


def _twice(words: np.ndarray, dtype: type) -> np.ndarray:
    return np.repeat(words.view(np.float32), 2).astype(dtype)


def _nibbles(words: np.ndarray) -> np.ndarray:
    """The signed nibbles 0 and 4 of words, as the kernel dequantises them."""
    low, high = words & 15, words >> 16 & 15
    return np.stack([low, high], 1).astype(np.int64).ravel().astype(np.float16) - np.float16(8)


def _row_max(words: np.ndarray) -> np.ndarray:
    """What each lane has after it has met the others of its four."""
    values = words.view(np.float32).reshape(-1, 4, _WORDS)
    return np.repeat(values.max(1, keepdims=True), 4, 1).ravel()


#: The larger one of a word and that of another lane.
_SHUFFLED = (
    'asm volatile("{{.reg .b32 o; shfl.sync.bfly.b32 o, %0, {}, 31, -1; max.f32 %0, %0, o;}}" '
    ': "+r"(w));'
)
_ASM = 'asm volatile("{}" : "+r"(w));'
_HALF_8 = 0x64086408  # 1032 twice: 1024 + 8, for biased nibbles


OPERATIONS = (
    Operation("ex2", _ASM.format("ex2.approx.ftz.f32 %0, %0;"), 1,
              "ex2.approx of float32", _floats, _of_float(np.exp2)),
    Operation("ex2-f16x2", _ASM.format("ex2.approx.f16x2 %0, %0;"), 2,
              "ex2.approx of two float16", _halves, _of_half(np.exp2)),
    Operation("tanh", _ASM.format("tanh.approx.f32 %0, %0;"), 1,
              # A relative error of up to 2^-11 (PTX ISA, "tanh").
              "tanh.approx of float32", _floats, _of_float(np.tanh), units=1 << 12),
    Operation("tanh-f16x2", _ASM.format("tanh.approx.f16x2 %0, %0;"), 2,
              "tanh.approx of two float16", _halves, _of_half(np.tanh)),
    # Two reciprocals in a row are nothing, which ptxas knows: a summand stands between them.
    Operation("rcp", 'asm volatile("{.reg .f32 t; rcp.approx.ftz.f32 t, %0; '
              'add.f32 %0, t, 0f3F000000;}" : "+r"(w));', 1,
              "rcp.approx of float32", _positive, _of_float(lambda x: 1 / x + 0.5)),
    Operation("f32-to-f16", _ASM.format("cvt.rn.f16x2.f32 %0, %0, %0;"), 2,
              "two float32 to float16", _floats, lambda w: _twice(w, np.float16)),
    Operation("f32-to-bf16", _ASM.format("cvt.rn.bf16x2.f32 %0, %0, %0;"), 2,
              "two float32 to bfloat16", _floats, lambda w: _twice(w, ml_dtypes.bfloat16)),
    Operation("e4m3-to-f16",
              'asm volatile("{.reg .b16 a, b; mov.b32 {a, b}, %0; cvt.rn.f16x2.e4m3x2 %0, a;}" '
              ': "+r"(w));', 2, "two e4m3 to float16", _small_float8,
              lambda w: w.view(ml_dtypes.float8_e4m3fn).reshape(-1, 4)[:, :2].ravel()
              .astype(np.float16)),
    # Two nibbles become 1024 + nibble (lop3), from which 1032 is taken: a signed weight of 4 bits.
    Operation("int4-to-f16",
              f'asm volatile("lop3.b32 %0, %0, 0x000f000f, 0x64006400, 0xea; '
              f'sub.rn.f16x2 %0, %0, %1;" : "+r"(w) : "r"({_HALF_8}u));',
              2, "two weights of 4 bits to float16", _bits, _nibbles),
    Operation("fma", 'asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+r"(w));', 1,
              "fma of float32", _floats, _of_float(lambda x: x * x + x)),
    Operation("max", 'asm volatile("max.f32 %0, %0, %1;" : "+r"(w) : "f"(0.5f));', 1,
              "maximum of float32", _floats, _of_float(lambda x: np.maximum(x, 0.5))),
    # Four lanes hold a row of wgmma's accumulator.
    Operation("row-max", _SHUFFLED.format(1) + _SHUFFLED.format(2), 1,
              "maximum of a row that four lanes hold", _floats, _row_max),
)  # fmt: skip


def _source(code: str) -> str:
    return (
        r"""
MB_INLINE unsigned once(unsigned w) { """
        + code
        + r""" return w; }
MB_PROBE {
  const int steps = p[0], write = p[1];
  unsigned* mine = (unsigned*)data + threadIdx.x * 8;
  unsigned w[8];
  #pragma unroll
  for (int i = 0; i < 8; ++i) w[i] = mine[i];
  __syncthreads();
  long long ns = mb_ns(), begin = mb_clock();
  #pragma unroll 4
  for (int s = 0; s < steps; ++s)
    #pragma unroll
    for (int i = 0; i < 8; ++i) w[i] = once(w[i]);
  __syncthreads();
  long long end = mb_clock();
  if (threadIdx.x == 0) mb_times(out, begin, end, ns, mb_ns());
  if (write)
    #pragma unroll
    for (int i = 0; i < 8; ++i) mine[i] = w[i];
}
"""
    )


_THREADS = 512
PROBES = {
    (one.name, threads): Probe(f"{one.name}-{threads}", _source(one.code), threads=threads)
    for one in OPERATIONS
    for threads in (128, _THREADS)
}
#: Units in the last place by which an approximate result may differ.
_ALLOWED = {np.dtype(np.float32): 32, np.dtype(np.float16): 4}


def _words(values: np.ndarray) -> np.ndarray:
    """Words of memory as rows of float16."""
    return values.view(np.float16).reshape(-1, ROW_BYTES // 2)


def check(rig: Rig, one: Operation, threads: int) -> None:
    """What each thread has after one execution."""
    words = one.values(np.random.default_rng(3), threads * _WORDS)
    data = rig.put(_words(words))
    rig.launch(PROBES[one.name, threads], [1, 1], 1, data)
    expected = one.expected(words)
    found = np.ascontiguousarray(rig.get(data)).reshape(-1).view(expected.dtype)
    bound = np.finfo if expected.dtype in _ALLOWED else ml_dtypes.finfo
    units = _ALLOWED.get(expected.dtype, 0) if one.units is None else one.units
    allowed = units * float(bound(expected.dtype).eps)
    wide = expected.astype(np.float64)
    near = np.abs(found.astype(np.float64) - wide) <= allowed * np.maximum(np.abs(wide), 1e-3)
    rig.check(one.name, near, np.full(near.shape, True))


def measurement(one: Operation) -> Measurement:
    """Cycles of an SM for an element of each of its threads, by how many warps it has."""

    def run(rig: Rig) -> Samples:
        steps = rig.steps(1000)
        for threads in (128, _THREADS):
            check(rig, one, threads)
            words = one.values(np.random.default_rng(4), threads * _WORDS)
            data = rig.put(_words(words))

            def take(threads=threads, data=data) -> float:
                out = rig.launch(PROBES[one.name, threads], [steps, 0], 1, data)
                made = steps * _WORDS * one.elements * threads
                return made / float(out.cycles[0])

            yield f"{threads} threads", rig.sample(take)

    probes = tuple(PROBES[one.name, threads] for threads in (128, _THREADS))
    return Measurement(one.name, "elements/cycle", f"{one.what}, one SM", probes, run)


_ROWS, _COLUMNS = 64, 128
#: Elements of a thread in a tile of a warpgroup.
_OF_A_THREAD = _ROWS * _COLUMNS // 128

#: Accumulators of a warpgroup to float16 in shared memory, by ``stmatrix``, also transposed.
EPILOGUE = Probe("epilogue", r"""
template <bool TRANSPOSED>
MB_INLINE void store(unsigned to, const float* d, int c) {
  unsigned w[4];
  #pragma unroll
  for (int i = 0; i < 4; ++i)
    asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w[i])
                 : "f"(d[c * 4 + 2 * i + 1]), "f"(d[c * 4 + 2 * i]));
  if (TRANSPOSED)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 : : "r"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 : : "r"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
}
template <bool TRANSPOSED>
MB_INLINE void tile(unsigned base, const float* d, int warp, int lane) {
  #pragma unroll
  for (int c = 0; c < 16; c += 2) {
    const int matrix = lane / 8, r = lane % 8, block = c + matrix / 2, half = matrix % 2;
    const int row = TRANSPOSED ? block * 8 + r : warp * 16 + 8 * half + r;
    const int column = TRANSPOSED ? warp * 16 + 8 * half : block * 8;
    store<TRANSPOSED>(base + row * (TRANSPOSED ? 144 : 272) + column * 2, d, c);
  }
}
MB_PROBE {
  const int steps = p[0], transposed = p[1], write = p[2];
  unsigned char* shared = mb_aligned(raw);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float d[64];
  #pragma unroll
  for (int i = 0; i < 64; ++i) d[i] = (float)((threadIdx.x * 64 + i) * 37 % 2048) - 1024.0f;
  __syncthreads();
  long long ns = mb_ns(), begin = mb_clock();
  for (int s = 0; s < steps; ++s) {
    if (transposed) tile<true>(mb_address(shared), d, warp, lane);
    else tile<false>(mb_address(shared), d, warp, lane);
  }
  __syncthreads();
  long long end = mb_clock();
  if (threadIdx.x == 0) mb_times(out, begin, end, ns, mb_ns());
  const int rows = transposed ? 128 : 64, pieces = transposed ? 8 : 16;
  const int pitch = transposed ? 144 : 272;
  if (write)
    for (int i = threadIdx.x; i < rows * pieces; i += 128)
      ((uint4*)data)[i] = *(const uint4*)(shared + i / pieces * pitch + i % pieces * 16);
}
""", shared=128 * 144)  # fmt: skip


def _tile() -> np.ndarray:
    """The tile that the threads of :data:`EPILOGUE` hold, as wgmma lays it out."""
    thread, i = np.meshgrid(np.arange(128), np.arange(_OF_A_THREAD), indexing="ij")
    tile = np.full((_ROWS, _COLUMNS), np.nan)
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (i // 2 % 2)
    tile[row, i // 4 * 8 + thread % 4 * 2 + i % 2] = (thread * 64 + i) * 37 % 2048 - 1024
    return tile


def epilogue(rig: Rig) -> Samples:
    """A warpgroup that is alone on its SM."""
    steps = rig.steps(500)
    for name, transposed in (("float16", 0), ("float16, transposed", 1)):
        data = rig.put(
            np.full((_ROWS * _COLUMNS * 2 // ROW_BYTES, ROW_BYTES // 2), np.nan, np.float16)
        )
        rig.launch(EPILOGUE, [1, transposed, 1], 1, data)
        expected = _tile().T if transposed else _tile()
        rig.check(f"epilogue, {name}", rig.get(data).reshape(expected.shape), expected)

        def take(transposed=transposed) -> float:
            out = rig.launch(EPILOGUE, [steps, transposed, 0], 1)
            return float(out.cycles[0]) / (steps * _OF_A_THREAD)

        yield name, rig.sample(take)


MEASUREMENTS = (
    *map(measurement, OPERATIONS),
    Measurement(
        "epilogue", "cycles/element", "float32 of a thread to float16 in shared memory",
        (EPILOGUE,), epilogue,
    ),
)  # fmt: skip
