"""Philox 4x32-10 in Python's integers, as Random123 defines it, for tests of random numbers."""

from __future__ import annotations


def words(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """The four words of one counter."""
    mask = 2**32 - 1
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32) ^ b ^ k, q & mask, (p >> 32) ^ d ^ m, p & mask
        k, m = (k + 0x9E3779B9) & mask, (m + 0xBB67AE85) & mask
    return a, b, c, d


def first_word(seed: int, offset: int) -> int:
    """The first word of a seed and an offset of 64 bits each."""
    split = [(value % 2**64 % 2**32, value % 2**64 >> 32) for value in (offset, seed)]
    return words((*split[0], 0, 0), split[1])[0]
