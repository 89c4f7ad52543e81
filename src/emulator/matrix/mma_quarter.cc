// mma.sync.m8n8k4 of f16: each of four groups of eight lanes, 0 to 3 with 16 to 19 and so on, has a
// product of its own (PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type").

#include <cmath>
#include <cstdint>

#include "emulator/format/float16.h"
#include "emulator/matrix/mma.h"

namespace warploom::emulator {
namespace {

constexpr int kLanes = 32;
constexpr int kSize = 8;
constexpr int kDepth = 4;

float half_at(const uint32_t* const* registers, int lane, int element) {
  return f16_to_f32(static_cast<uint16_t>(registers[element / 2][lane] >> 16 * (element % 2)));
}

// Element (i, k) of A or of the transpose of B: i is 0 to 7, and a lane holds a row of four k, or
// four i of one k.
float operand_at(const uint32_t* const* registers, bool lane_has_k, int group, int i, int k) {
  const int lane = 4 * group + 16 * (i / 4);
  return lane_has_k ? half_at(registers, lane + i % 4, k) : half_at(registers, lane + k, i % 4);
}

// Where a lane has element `i` of an accumulator.
struct Place {
  int row;
  int column;
};

Place place_of(bool packed, int lane, int i) {
  const int lower = 4 * (lane / 16);
  if (packed) return {lane % 4 + lower, i};
  return {(lane & 1) + (i & 2) + lower, (i & 4) + (lane & 2) + (i & 1)};
}

}  // namespace

void mma_sync_quarters(const MmaForm& form, uint32_t* const* d, const uint32_t* const* a,
                       const uint32_t* const* b, const uint32_t* const* c) {
  float start[kLanes / kSize][kSize][kSize];
  const bool packed_c = form.c == Type::kF16, packed_d = form.d == Type::kF16;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < kSize; ++i) {
      const Place place = place_of(packed_c, lane, i);
      start[lane / 4 % 4][place.row][place.column] =
          packed_c ? half_at(c, lane, i) : bits_float(c[i][lane]);
    }
  }
  uint32_t result[kSize][kLanes] = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4 % 4;
    for (int i = 0; i < kSize; ++i) {
      const Place place = place_of(packed_d, lane, i);
      float sum = 0;
      for (int k = 0; k < kDepth; ++k) {
        sum = std::fma(operand_at(a, !form.a_column_major, group, place.row, k),
                       operand_at(b, !form.b_row_major, group, place.column, k), sum);
      }
      sum += start[group][place.row][place.column];
      if (packed_d) {
        result[i / 2][lane] |= static_cast<uint32_t>(f32_to_f16(sum)) << 16 * (i % 2);
      } else {
        result[i][lane] = std::isnan(sum) ? 0x7fffffffu : float_bits(sum);
      }
    }
  }
  for (int r = 0; r < (packed_d ? kSize / 2 : kSize); ++r) {
    for (int lane = 0; lane < kLanes; ++lane) d[r][lane] = result[r][lane];
  }
}

}  // namespace warploom::emulator
