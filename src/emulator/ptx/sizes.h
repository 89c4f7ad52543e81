// Arithmetic on sizes that a program or a caller names: it saturates where 64 bits would wrap, so
// that the limit which every size is compared with refuses what overflowed.

#ifndef WARPLOOM_EMULATOR_PTX_SIZES_H_
#define WARPLOOM_EMULATOR_PTX_SIZES_H_

#include <cstdint>
#include <string>

namespace warploom::emulator {

constexpr uint64_t kTooLarge = UINT64_MAX;

constexpr uint64_t add_sizes(uint64_t a, uint64_t b) { return a > kTooLarge - b ? kTooLarge : a + b; }

constexpr uint64_t multiply_sizes(uint64_t a, uint64_t b) {
  return b != 0 && a > kTooLarge / b ? kTooLarge : a * b;
}

// The next multiple of `alignment`, which is a power of two.
constexpr uint64_t align_size(uint64_t size, uint64_t alignment) {
  return add_sizes(size, alignment - 1) & ~(alignment - 1);
}
static_assert(align_size(kTooLarge, 16) > kTooLarge - 16 && align_size(17, 16) == 32);

constexpr bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

// For messages: "64", or "2^64 or more".
inline std::string size_text(uint64_t size) {
  return size == kTooLarge ? "2^64 or more" : std::to_string(size);
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_PTX_SIZES_H_
