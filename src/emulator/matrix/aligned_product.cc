#include "emulator/matrix/aligned_product.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "emulator/format/float16.h"
#include "emulator/matrix/exact_sum.h"
#include "emulator/matrix/lane_vectors.h"

namespace warploom::emulator {
namespace {

// Between these, products, scales and results are normal floats.
constexpr int32_t kLeastFast = -100;
constexpr int32_t kMostFast = 120;

// Exponents in the order of the operands.
struct Exponents {
  alignas(64) int32_t a[4 * 2 * Product::kMaxK * kRegister];
  alignas(64) int32_t b[256 * Product::kMaxK + 8];
};

WARPLOOM_INLINE void find_exponents(const float* values, int count, int32_t least, int32_t* out) {
  for (int i = 0; i < count; ++i) out[i] = exponent_of(float_bits(values[i]), least);
}

void exact_block(const Product& p, const float* a, const float* b, uint32_t* const* d) {
  for (int reg = 0; reg < 4; ++reg) {
    const float* rows = a + reg / 2 * p.k * kRegister;
    uint32_t* out = d[reg * p.warps];
    for (int lane = 0; lane < kRegister; ++lane) {
      const float* column = b + reg % 2 * 4 + lane % 4;
      const float c = bits_float(out[lane]);
      ExactSum sum(p.rule);
      for (int i = 0; i < p.k; ++i) sum.find(rows[i * kRegister + lane], column[8 * i]);
      sum.find(c);
      for (int i = 0; i < p.k; ++i) {
        sum.add(static_cast<double>(rows[i * kRegister + lane]) * column[8 * i]);
      }
      sum.add(c);
      out[lane] = sum.result();
    }
  }
}

// The larger of x and y in each lane, in x.
template <class I>
WARPLOOM_INLINE void take_larger(I* x, const I& y) {
  *x = *x > y ? *x : y;
}

template <class I>
WARPLOOM_INLINE bool any(const I& lanes) {
  uint64_t words[sizeof(I) / sizeof(uint64_t)];
  std::memcpy(words, &lanes, sizeof(lanes));
  uint64_t set = 0;
  for (uint64_t word : words) set |= word;
  return set != 0;
}

// The sums of one vector of rows with one column.
template <class V, class I>
struct Sums {
  I exponent;
  I low, high;  // of the halves of k: 8 products with 25 bits kept do not overflow
  V scale;
};

// 2^exponent in each lane.
template <class V, class I>
WARPLOOM_INLINE void power(const I& exponent, V* result) {
  const I bits = (exponent + 127) << 23;
  std::memcpy(result, &bits, sizeof(bits));
}

template <class V, class I>
WARPLOOM_INLINE void start(const uint32_t* accumulator, int kept, Sums<V, I>* sums) {
  V c;
  I bits;
  load(accumulator, &c);
  load(accumulator, &bits);
  const I field = bits >> 23 & 0xff;
  I exponent = field - 127;
  take_larger(&exponent, I{} + kLeastF32);
  exponent = field == 0xff ? I{} + kNotFinite : (bits << 1) == 0 ? I{} + kZero : exponent;
  take_larger(&sums->exponent, exponent);
  // Where there is no term, any scale will do.
  I used = sums->exponent;
  take_larger(&used, I{} + kLeastFast);
  power(kept - used, &sums->scale);
  sums->low = I{};
  sums->high = __builtin_convertvector(c * sums->scale, I);
}

// Adds the lanes whose sums the fast path cannot form.
template <class V, class I>
WARPLOOM_INLINE void add_refused(const Sums<V, I>& sums, I* refused) {
  const I e = sums.exponent;
  I total;
  add_wrapping(sums.low, sums.high, &total);
  const I overflow = ((sums.low ^ total) & (sums.high ^ total)) < 0;
  *refused |= overflow | (e > kMostFast) | ((e < kLeastFast) & (e > kNoTerm));
}

template <class V, class I>
WARPLOOM_INLINE void finish(const Sums<V, I>& sums, const SumRule& rule, I* result) {
  I total, magnitude;
  add_wrapping(sums.low, sums.high, &total);
  const I negative = total < 0;
  subtract_wrapping(total ^ negative, negative, &magnitude);
  I extra = magnitude >> rule.significant;
  extra |= extra >> 1;
  extra |= extra >> 2;
  extra |= extra >> 4;
  const I lost = magnitude & extra;
  magnitude -= lost;
  if (rule.sticky) magnitude |= lost != 0 ? extra + 1 : I{};
  I used = sums.exponent;
  take_larger(&used, I{} + kLeastFast);
  V unit;
  power(used - rule.kept, &unit);
  const V value = __builtin_convertvector(magnitude, V) * unit;
  std::memcpy(result, &value, sizeof(value));
  *result |= negative & std::numeric_limits<int32_t>::min();
}

// Vectors of rows that are worked on together share the vectors of columns. `rows` are the places
// of the vectors in the operand.
template <class V, class I, int kGroup>
struct Group {
  int rows[kGroup];
  Sums<V, I> even[kGroup], odd[kGroup];
};

template <class V, class I, int kGroup>
WARPLOOM_INLINE void find_exponents(const int32_t* a, const int32_t* b, int count,
                                    Group<V, I, kGroup>* group) {
  for (int v = 0; v < kGroup; ++v)
    group->even[v].exponent = group->odd[v].exponent = I{} + 2 * kZero;
  for (int i = 0; i < count; ++i, a += kRegister, b += 8) {
    I even, odd;
    columns(b, &even, &odd);
    for (int v = 0; v < kGroup; ++v) {
      I rows;
      load(a + group->rows[v], &rows);
      take_larger(&group->even[v].exponent, rows + even);
      take_larger(&group->odd[v].exponent, rows + odd);
    }
  }
}

// Adds the truncated products of `count` indices of k to one half of the sums.
template <class V, class I, int kGroup, I Sums<V, I>::*kHalf>
WARPLOOM_INLINE void accumulate(const float* a, const float* b, int count,
                                Group<V, I, kGroup>* group) {
  for (int i = 0; i < count; ++i, a += kRegister, b += 8) {
    V even, odd;
    columns(b, &even, &odd);
    for (int v = 0; v < kGroup; ++v) {
      V rows;
      load(a + group->rows[v], &rows);
      // Lanes that will be refused may overflow.
      I& even_sum = group->even[v].*kHalf;
      I& odd_sum = group->odd[v].*kHalf;
      const I even_term = __builtin_convertvector(rows * even * group->even[v].scale, I);
      const I odd_term = __builtin_convertvector(rows * odd * group->odd[v].scale, I);
      add_wrapping(even_sum, even_term, &even_sum);
      add_wrapping(odd_sum, odd_term, &odd_sum);
    }
  }
}

// 16 rows against 8 columns; `d` holds the even and the odd register of each half. Whether all
// lanes could be summed; nothing is written if not.
template <class V, class I, int kGroup>
WARPLOOM_INLINE bool fast_block(const Product& p, const float* a, const int32_t* a_exponents,
                                const float* b, const int32_t* b_exponents, uint32_t* const* d) {
  constexpr int kLanes = sizeof(V) / sizeof(float);
  constexpr int kParts = kRegister / kLanes;
  constexpr int kVectors = 2 * kParts;
  const int middle = p.k / 2;
  I even[kVectors], odd[kVectors];
  I refused = I{};
  for (int first = 0; first < kVectors; first += kGroup) {
    Group<V, I, kGroup> group;
    for (int v = 0; v < kGroup; ++v) {
      const int half = (first + v) / kParts, part = (first + v) % kParts;
      group.rows[v] = half * p.k * kRegister + part * kLanes;
    }
    find_exponents(a_exponents, b_exponents, p.k, &group);
    for (int v = 0; v < kGroup; ++v) {
      const int half = (first + v) / kParts, part = (first + v) % kParts;
      start(d[2 * half * p.warps] + part * kLanes, p.rule.kept, &group.even[v]);
      start(d[(2 * half + 1) * p.warps] + part * kLanes, p.rule.kept, &group.odd[v]);
    }
    accumulate<V, I, kGroup, &Sums<V, I>::low>(a, b, middle, &group);
    accumulate<V, I, kGroup, &Sums<V, I>::high>(a + middle * kRegister, b + middle * 8,
                                                p.k - middle, &group);
    for (int v = 0; v < kGroup; ++v) {
      add_refused(group.even[v], &refused);
      add_refused(group.odd[v], &refused);
      finish(group.even[v], p.rule, &even[first + v]);
      finish(group.odd[v], p.rule, &odd[first + v]);
    }
  }
  if (any(refused)) return false;
  for (int v = 0; v < kVectors; ++v) {
    uint32_t* const* registers = d + 2 * (v / kParts) * p.warps;
    std::memcpy(registers[0] + v % kParts * kLanes, &even[v], sizeof(I));
    std::memcpy(registers[p.warps] + v % kParts * kLanes, &odd[v], sizeof(I));
  }
  return true;
}

template <class V, class I, int kGroup>
WARPLOOM_INLINE void multiply_aligned(const Product& p) {
  static thread_local Exponents exponents;
  find_exponents(p.a, p.warps * 2 * p.k * kRegister, p.rule.least_a, exponents.a);
  find_exponents(p.b, p.n * p.k, p.rule.least_b, exponents.b);
  for (int warp = 0; warp < p.warps; ++warp) {
    for (int block = 0; block < p.n / 8; ++block) {
      const int a = Product::a_index(2 * warp, p.k, 0, 0);
      const int b = Product::b_index(block, p.k, 0, 0);
      uint32_t* const* d = p.d + 4 * block * p.warps + warp;
      if (!fast_block<V, I, kGroup>(p, p.a + a, exponents.a + a, p.b + b, exponents.b + b, d)) {
        exact_block(p, p.a + a, p.b + b, d);
      }
    }
  }
}

}  // namespace

void multiply_aligned_any(const Product& product) {
  multiply_aligned<Vector4, Integers4, 1>(product);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void multiply_aligned_avx2(const Product& product) {
  multiply_aligned<Vector8, Integers8, 2>(product);
}

__attribute__((target("avx512f"))) void multiply_aligned_avx512(const Product& product) {
  multiply_aligned<Vector16, Integers16, 2>(product);
}
#endif

}  // namespace warploom::emulator
