#include "emulator/tensor/umma_layout.h"

#include <algorithm>
#include <cinttypes>

#include "emulator/base/fault.h"

namespace warploom::emulator {

DataPath umma_data_path(int m, int cta_group, bool weight_stationary) {
  const int rows = m / cta_group;
  if (rows == 128) return {rows, 1, false};
  if (cta_group == 1 && !weight_stationary) return {rows, 1, true};
  return {rows, 128 / rows, false};
}

ZeroColumns::ZeroColumns(uint64_t bits, int m, int n, int max_shift)
    : bits_(bits), columns_(n / (128 / m)) {
  constexpr uint64_t kReserved = uint64_t{3} << 62 | uint64_t{7} << 36;
  if ((bits & kReserved) != 0) {
    fault("the zero-column mask 0x%016" PRIx64 " sets bits 36-38 or 62-63, which are reserved",
          bits);
  }
  const int allowed = std::min(max_shift, m == 32 ? 16 : 32);
  if (shift() > allowed) {
    fault("the zero-column mask 0x%016" PRIx64 " shifts by %d columns; the instruction descriptor "
          "and M = %d allow %d",
          bits, shift(), m, allowed);
  }
}

// The names of the two spans are exchanged in one table of the manual; its examples are followed.
bool ZeroColumns::is_zero(int column) const {
  if (!any()) return false;
  const int mask = column / columns_;
  const auto start = static_cast<int>(bits_ >> (8 * mask) & 255);
  const bool zeros_first = (bits_ >> (32 + mask) & 1) != 0;
  const auto zeros = static_cast<int>(bits_ >> 40 & 255) + 1;
  const auto used = static_cast<int>(bits_ >> 48 & 255) + 1;
  const int position = (column % columns_ + start) % (zeros + used);
  return zeros_first ? position < zeros : position >= used;
}

}  // namespace warploom::emulator
