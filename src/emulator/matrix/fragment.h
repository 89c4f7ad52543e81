// Register fragments of mma.sync and wgmma: from registers to the order of Product and back.

#ifndef WARPLOOM_EMULATOR_MATRIX_FRAGMENT_H_
#define WARPLOOM_EMULATOR_MATRIX_FRAGMENT_H_

#include <cstdint>

#include "emulator/matrix/element.h"
#include "emulator/matrix/product.h"

namespace warploom::emulator {

// Register A of 16 rows a warp: register r of lane l holds row l / 4 + 8 * (r % 2) and the
// 32 / element_bits elements of K that start at (l % 4 + 4 * (r / 2)) of such groups.
// `source` is [register][warps] -> [32]; `out` is the A of a Product.
void expand_register_a(Type type, int k, int warps, const uint32_t* const* source, float* out);

// Register B of 8 columns: register r of lane l holds column l / 4 and the elements of K that
// start at (l % 4 + 4 * r) groups.
void expand_register_b(Type type, int k, const uint32_t* const* source, float* out);

// The same fragments as rows of 32-bit words: out[row][word] and out[column][word]. A of 8 rows has
// no registers for the other half.
void collect_a_words(int rows, int words, int warps, const uint32_t* const* source, uint32_t* out);
void collect_b_words(int words, const uint32_t* const* source, uint32_t* out);

// One block of 8 rows, dense, into the A or the B of a Product. Element (row, k) is
// values[row * row_step + k * k_step].
inline void expand_a_block(const float* values, int row_step, int k_step, int k, int block,
                           float* out) {
  for (int i = 0; i < k; ++i) {
    for (int row = 0; row < 8; ++row) {
      float* quad = out + Product::a_index(block, k, row, i);
      const float value = values[row * row_step + i * k_step];
      quad[0] = quad[1] = quad[2] = quad[3] = value;
    }
  }
}

inline void expand_b_block(const float* values, int row_step, int k_step, int k, int block,
                           float* out) {
  for (int i = 0; i < k; ++i) {
    for (int column = 0; column < 8; ++column) {
      out[Product::b_index(block, k, column, i)] = values[column * row_step + i * k_step];
    }
  }
}

// An accumulator whose registers hold two f16, an even and an odd column, to and from one of f32.
void load_f16_accumulator(int n, int warps, const uint32_t* const* packed, uint32_t* const* wide);
void store_f16_accumulator(int n, int warps, const uint32_t* const* wide, uint32_t* const* packed);

// d = c + sum for a register of s32 and a sum in float that is an integer; wraps around or clamps.
void add_integers(const uint32_t* c, const uint32_t* sum, bool saturate, uint32_t* d);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MATRIX_FRAGMENT_H_
