"""Damages PTX at random, and loads and launches what comes out. Run in a process of its own.

``python -m tests.emulator.fuzz <seed> <count>`` prints how many programs were refused when they
were loaded, how many failed when launched, and how many ran. The test is that it ends in time, by
itself: whatever PTX says, the emulator answers with an error or with a result.
"""

from __future__ import annotations

import collections
import re
import sys

import numpy as np
import tvm

from tests.emulator.run_ptx import EmulatorError, launch, load
from tests.shared.compiler_kernels import TARGET
from warploom.compiler.callback import compile_cached
from warploom.compiler.invoke import current_request

#: Arithmetic, divergence, shuffles, shared memory, atomics, an mbarrier and a bulk copy.
SOURCE = """
extern "C" __global__ void __launch_bounds__(128) kernel(float* a, unsigned* b, double* c) {
  __shared__ alignas(128) float rows[512];
  __shared__ alignas(8) unsigned long long full;
  unsigned bar = (unsigned)__cvta_generic_to_shared(&full);
  unsigned to = (unsigned)__cvta_generic_to_shared(rows);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar));
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;" :: "r"(bar) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "512, [%2];" :: "r"(to), "l"(a), "r"(bar) : "memory");
  }
  __syncthreads();
  asm volatile("{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; "
               "@p bra DONE; bra WAIT; DONE: }" :: "r"(bar) : "memory");
  float sum = 0;
  for (int i = threadIdx.x; i < 128; i += 3 + threadIdx.x % 5) sum = sum * 0.5f + rows[i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 3 == 1) {
    atomicAdd(b + threadIdx.x % 7, __float_as_uint(sum) >> 20);
  } else if (threadIdx.x & 4) {
    c[threadIdx.x] = (double)sum / (1 + threadIdx.x) + sqrt((double)rows[threadIdx.x]);
  }
  __syncthreads();
  rows[threadIdx.x] = __ballot_sync(0xffffffffu, sum > 1.0f) + __popc(__float_as_uint(sum));
  __syncthreads();
  a[threadIdx.x] = rows[threadIdx.x ^ 37];
}
"""

#: What mutations put in: tokens that PTX has in many places, and numbers at their limits.
PIECES = (
    *("{", "}", "[", "]", "(", ")", ",", ";", ":", "|", "@", "@!", "//", "/*", "*/", '"', "_"),
    *("%r1", "%rd1", "%f1", "%fd1", "%p1", "%h1", "%rs1", "%tid.x"),
    *("0", "1", "-1", "31", "32", "0x7fffffff", "0xffffffff", "0x8000000000000000"),
    *("4294967296", "99999999999999999999"),
    *(".b32", ".u64", ".f64", ".pred", ".shared", ".global", ".v4", ".sync", ".aligned"),
)


def ptx_of(source: str) -> str:
    """The PTX that NVRTC makes of CUDA source, without its header."""
    with TARGET:
        text = compile_cached(current_request(source, "ptx")).output.binary.decode()
    return text[text.index(".address_size 64") + len(".address_size 64") :].rstrip("\0")


def mutate(tokens: list[str], rng: np.random.Generator) -> str:
    """One to four damages: a token is lost, doubled, swapped, replaced, or the rest is cut off."""
    tokens = list(tokens)
    for _ in range(rng.integers(1, 5)):
        place = int(rng.integers(len(tokens)))
        kind = int(rng.integers(12))
        if kind < 3:
            del tokens[place]
        elif kind < 4:
            tokens.insert(place, tokens[place])
        elif kind < 7:
            other = int(rng.integers(len(tokens)))
            tokens[place], tokens[other] = tokens[other], tokens[place]
        elif kind < 9:
            tokens[place] = str(rng.choice(PIECES))
        elif kind < 11:
            tokens[place] = re.sub(r"\d+", lambda _: str(int(rng.integers(300))), tokens[place])
        elif rng.integers(8) == 0:
            tokens = tokens[: max(place, 1)]
    return " ".join(tokens)


def fuzz(seed: int, count: int) -> collections.Counter:
    """Mutate, load and launch ``count`` programs."""
    rng = np.random.default_rng(seed)
    # Line ends stay: directives such as .loc end there.
    tokens = re.findall(r"\n|[^\s,;\[\]{}()]+|[,;\[\]{}()]", ptx_of(SOURCE))
    outcomes: collections.Counter = collections.Counter()
    for _ in range(count):
        text = mutate(tokens, rng)
        try:
            load(text)
        except EmulatorError as error:
            assert "cannot load this PTX" in str(error), error
            outcomes["refused"] += 1
            continue
        arrays = [rng.random(128, "float32"), np.zeros(128, "uint32"), np.zeros(128)]
        try:
            launch(text, arrays, block=(128, 1, 1), limit=20_000, seed=int(rng.integers(1 << 32)))
        except EmulatorError:
            outcomes["failed"] += 1
        else:
            outcomes["ran"] += 1
    return outcomes


if __name__ == "__main__":
    tvm.cuda(0)  # loads what compiles
    result = fuzz(int(sys.argv[1]), int(sys.argv[2]))
    print(*(f"{name} {result[name]}" for name in ("refused", "failed", "ran")))
