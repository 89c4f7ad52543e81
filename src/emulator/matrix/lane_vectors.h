// Vectors of lanes for the inner loops of matrix products, whatever the instruction set.

#ifndef WARPLOOM_EMULATOR_MATRIX_LANE_VECTORS_H_
#define WARPLOOM_EMULATOR_MATRIX_LANE_VECTORS_H_

#include <cstdint>
#include <cstring>

namespace warploom::emulator {

constexpr int kRegister = 32;  // lanes

#define WARPLOOM_INLINE inline __attribute__((always_inline))

// GCC and Clang vectors: legal for any target, split up where the target's registers are shorter.
typedef float Vector4 __attribute__((vector_size(16)));
typedef float Vector8 __attribute__((vector_size(32)));
typedef float Vector16 __attribute__((vector_size(64)));
typedef int32_t Integers4 __attribute__((vector_size(16)));
typedef int32_t Integers8 __attribute__((vector_size(32)));
typedef int32_t Integers16 __attribute__((vector_size(64)));
typedef uint32_t Words4 __attribute__((vector_size(16)));
typedef uint32_t Words8 __attribute__((vector_size(32)));
typedef uint32_t Words16 __attribute__((vector_size(64)));

template <class I>
struct WordsOf;
template <>
struct WordsOf<Integers4> {
  using type = Words4;
};
template <>
struct WordsOf<Integers8> {
  using type = Words8;
};
template <>
struct WordsOf<Integers16> {
  using type = Words16;
};

// *result = x + y or x - y, which wraps around.
template <class I>
WARPLOOM_INLINE void add_wrapping(const I& x, const I& y, I* result) {
  using Words = typename WordsOf<I>::type;
  *result = reinterpret_cast<I>(reinterpret_cast<Words>(x) + reinterpret_cast<Words>(y));
}

template <class I>
WARPLOOM_INLINE void subtract_wrapping(const I& x, const I& y, I* result) {
  using Words = typename WordsOf<I>::type;
  *result = reinterpret_cast<I>(reinterpret_cast<Words>(x) - reinterpret_cast<Words>(y));
}

template <class V>
WARPLOOM_INLINE void load(const void* source, V* vector) {
  std::memcpy(vector, source, sizeof(V));
}

// The four even columns of one k, and the four odd ones, for each row of a vector. `b` is followed
// by the next k, which a wide load may read as well. Shuffles keep the size of the vector: GCC
// sends all others through memory.
template <class V>
WARPLOOM_INLINE void columns(const void* b, V* even, V* odd) {
  const char* bytes = static_cast<const char*>(b);
  if constexpr (sizeof(V) == 16) {
    load(bytes, even);
    load(bytes + sizeof(V), odd);
  } else {
    V both;
    load(bytes, &both);
    if constexpr (sizeof(V) == 32) {
      *even = __builtin_shufflevector(both, both, 0, 1, 2, 3, 0, 1, 2, 3);
      *odd = __builtin_shufflevector(both, both, 4, 5, 6, 7, 4, 5, 6, 7);
    } else {
      *even = __builtin_shufflevector(both, both, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
      *odd = __builtin_shufflevector(both, both, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
    }
  }
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_LANE_VECTORS_H_
