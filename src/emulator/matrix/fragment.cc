#include "emulator/matrix/fragment.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "emulator/format/float16.h"

namespace warploom::emulator {
namespace {

constexpr int kLanes = 32;
constexpr int kMaxElements = 8;  // of one lane

// Widens a register of all lanes; the elements of a lane follow one another.
void widen_register(Type type, const uint32_t* lanes, float out[kLanes * kMaxElements]) {
  uint8_t raw[kLanes * sizeof(uint32_t)];
  std::memcpy(raw, lanes, sizeof(raw));
  widen(type, raw, 8 * static_cast<int>(sizeof(raw)) / element_bits(type), out);
}

}  // namespace

void expand_register_a(Type type, int k, int warps, const uint32_t* const* source, float* out) {
  const int group = 32 / element_bits(type), registers = k / group / 4 * 2;
  for (int r = 0; r < registers; ++r) {
    for (int warp = 0; warp < warps; ++warp) {
      float values[kLanes * kMaxElements];
      widen_register(type, source[r * warps + warp], values);
      for (int lane = 0; lane < kLanes; ++lane) {
        for (int i = 0; i < group; ++i) {
          const int column = (lane % 4 + 4 * (r / 2)) * group + i;
          float* quad = out + Product::a_index(2 * warp + r % 2, k, lane / 4, column);
          std::fill_n(quad, 4, values[lane * group + i]);
        }
      }
    }
  }
}

void expand_register_b(Type type, int k, const uint32_t* const* source, float* out) {
  const int group = 32 / element_bits(type), registers = k / group / 4;
  for (int r = 0; r < registers; ++r) {
    float values[kLanes * kMaxElements];
    widen_register(type, source[r], values);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < group; ++i) {
        const int column = (lane % 4 + 4 * r) * group + i;
        out[Product::b_index(0, k, lane / 4, column)] = values[lane * group + i];
      }
    }
  }
}

void collect_a_words(int rows, int words, int warps, const uint32_t* const* source,
                     uint32_t* out) {
  const int halves = rows / warps / 8;
  for (int r = 0; r < words / 4 * halves; ++r) {
    for (int warp = 0; warp < warps; ++warp) {
      const int first = 8 * (warp * halves + r % halves);
      for (int lane = 0; lane < kLanes; ++lane) {
        out[(first + lane / 4) * words + 4 * (r / halves) + lane % 4] =
            source[r * warps + warp][lane];
      }
    }
  }
}

void collect_b_words(int words, const uint32_t* const* source, uint32_t* out) {
  for (int r = 0; r < words / 4; ++r) {
    for (int lane = 0; lane < kLanes; ++lane) {
      out[lane / 4 * words + 4 * r + lane % 4] = source[r][lane];
    }
  }
}

void load_f16_accumulator(int n, int warps, const uint32_t* const* packed, uint32_t* const* wide) {
  for (int r = 0; r < n / 4; ++r) {
    for (int warp = 0; warp < warps; ++warp) {
      const uint32_t* source = packed[r * warps + warp];
      uint32_t* even = wide[2 * r * warps + warp];
      uint32_t* odd = wide[(2 * r + 1) * warps + warp];
      for (int lane = 0; lane < kLanes; ++lane) {
        even[lane] = float_bits(f16_to_f32(static_cast<uint16_t>(source[lane])));
        odd[lane] = float_bits(f16_to_f32(static_cast<uint16_t>(source[lane] >> 16)));
      }
    }
  }
}

void store_f16_accumulator(int n, int warps, const uint32_t* const* wide, uint32_t* const* packed) {
  for (int r = 0; r < n / 4; ++r) {
    for (int warp = 0; warp < warps; ++warp) {
      const uint32_t* even = wide[2 * r * warps + warp];
      const uint32_t* odd = wide[(2 * r + 1) * warps + warp];
      uint32_t* target = packed[r * warps + warp];
      for (int lane = 0; lane < kLanes; ++lane) {
        target[lane] = f32_to_f16(bits_float(even[lane])) |
                       static_cast<uint32_t>(f32_to_f16(bits_float(odd[lane]))) << 16;
      }
    }
  }
}

void add_integers(const uint32_t* c, const uint32_t* sum, bool saturate, uint32_t* d) {
  using Limits = std::numeric_limits<int32_t>;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int64_t exact =
        int64_t{static_cast<int32_t>(c[lane])} + static_cast<int32_t>(bits_float(sum[lane]));
    const int64_t clamped = std::clamp<int64_t>(exact, Limits::min(), Limits::max());
    d[lane] = static_cast<uint32_t>(saturate ? clamped : exact);
  }
}

}  // namespace warploom::emulator
