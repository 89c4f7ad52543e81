"""Philox 4x32 with 10 rounds: random bits as a function of a seed and a counter.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011. The key is the
seed, and the counter has the offset in its lower half.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_FACTORS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_WORD = np.uint64(0xFFFFFFFF)

#: Device function of the first two words, of which the lower half is the first.
BITS = "warploom_philox"
#: Device function of a float32 with the standard normal distribution.
NORMAL = "warploom_philox_normal"


def source_of(name: str) -> str:
    """The CUDA source of a device function ``(seed, offset)``."""
    if name == BITS:
        return _bits_source(BITS)
    return _bits_source(f"{NORMAL}_bits") + f"""\
__device__ __forceinline__ float {NORMAL}(unsigned long long seed, unsigned long long offset) {{
  const unsigned long long bits = {NORMAL}_bits(seed, offset);
  const float radius = ((unsigned int)bits >> 8) * 0x1p-24f + 0x1p-24f;
  const float turns = ((unsigned int)(bits >> 32) >> 8) * 0x1p-24f;
  return sqrtf(-2.0f * logf(radius)) * cospif(2.0f * turns);
}}
"""


def _bits_source(name: str) -> str:
    return f"""\
__device__ __forceinline__ unsigned long long {name}(unsigned long long seed,
                                                     unsigned long long offset) {{
  unsigned int a = (unsigned int)offset, b = (unsigned int)(offset >> 32), c = 0, d = 0;
  unsigned int k = (unsigned int)seed, l = (unsigned int)(seed >> 32);
#pragma unroll
  for (int round = 0; round < {_ROUNDS}; ++round) {{
    const unsigned int p = {_FACTORS[0]:#x}u * a, q = {_FACTORS[1]:#x}u * c;
    const unsigned int high_p = __umulhi({_FACTORS[0]:#x}u, a);
    const unsigned int high_q = __umulhi({_FACTORS[1]:#x}u, c);
    a = high_q ^ b ^ k, b = q, c = high_p ^ d ^ l, d = p;
    k += {_STEPS[0]:#x}u, l += {_STEPS[1]:#x}u;
  }}
  return a | ((unsigned long long)b << 32);
}}
"""


def bits(seed: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """The first two words, as uint64.

    Parameters
    ----------
    seed, offset : numpy.ndarray of uint64

    Examples
    --------
    >>> hex(int(bits(np.uint64(0), np.uint64(0))))
    '0xe169c58d6627e8d5'
    """
    seed, offset = np.broadcast_arrays(seed, offset)
    half = np.uint64(32)
    a, b = offset & _WORD, offset >> half
    k, l = seed & _WORD, seed >> half  # noqa: E741  (as in the paper, k0 and k1)
    c = d = np.zeros_like(a)
    for _ in range(_ROUNDS):
        p, q = a * np.uint64(_FACTORS[0]), c * np.uint64(_FACTORS[1])
        a, b, c, d = (q >> half) ^ b ^ k, q & _WORD, (p >> half) ^ d ^ l, p & _WORD
        k, l = (k + np.uint64(_STEPS[0])) & _WORD, (l + np.uint64(_STEPS[1])) & _WORD  # noqa: E741
    return a | (b << half)


def normal(seed: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Numbers with the standard normal distribution, float64 (Box and Muller, 1958)."""
    both = bits(seed, offset)
    first, second = ((both >> np.uint64(shift)) & np.uint64(0xFFFFFF) for shift in (8, 40))
    radius, turns = (first + 1) * 2.0**-24, second * 2.0**-24
    return np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * turns)


#: Device function -> what it computes of arrays of uint64.
FUNCTIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {BITS: bits, NORMAL: normal}
