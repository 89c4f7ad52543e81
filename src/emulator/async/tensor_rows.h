// The rows of a box, in the order of shared memory: those of a tile, or the pixels of im2col.

#ifndef WARPLOOM_EMULATOR_ASYNC_TENSOR_ROWS_H_
#define WARPLOOM_EMULATOR_ASYNC_TENSOR_ROWS_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "emulator/async/tensor_copy.h"
#include "emulator/async/tensor_map.h"
#include "emulator/base/fault.h"
#include "emulator/ptx/sizes.h"

namespace warploom::emulator {

// One row; the part of it that lies in the tensor, in units.
struct BoxRow {
  uint32_t shared;   // offset of the row in shared memory, before the swizzle
  uint32_t units;    // of the row
  uint32_t begin;
  uint32_t end;      // equal to begin if the row is out of bounds
  uint64_t address;  // of unit `begin`
};

class BoxRows {
 public:
  BoxRows(const TensorMap& map, const TensorPlace& place)
      : map_(map), place_(place), pitch_(tensor_map_row_pitch(map)) {}

  // Calls visit(BoxRow) for every row of the box whose first one is at `offset`.
  template <class Visit>
  void each(uint32_t offset, Visit visit) const {
    if (map_.mode == TensorMode::kTiled) {
      each_of_tile(offset, visit);
    } else {
      each_pixel(offset, visit);
    }
  }

 private:
  using Index = std::array<int64_t, kTensorMapRank>;

  // `units` from the element at this index on; those of dimension 0 are contiguous.
  BoxRow row_at(const Index& index, uint32_t units, uint32_t shared) const {
    const int64_t columns = units, first = index[0];
    const int64_t extent = int64_t{map_.last_index[0]} + 1;
    const int64_t begin = std::clamp<int64_t>(-first, 0, columns);
    const int64_t end = std::clamp<int64_t>(extent - first, begin, columns);
    bool inside = begin < end;
    for (int d = 1; d < map_.rank; ++d) {
      const auto at = static_cast<std::size_t>(d);
      inside = inside && index[at] >= 0 && index[at] <= int64_t{map_.last_index[d]};
    }
    return {shared, units, static_cast<uint32_t>(begin),
            static_cast<uint32_t>(inside ? end : begin),
            inside ? address_of(index, first + begin) : map_.address};
  }

  // Of an element in the tensor: no index is negative.
  uint64_t address_of(const Index& index, int64_t unit) const {
    uint64_t address = add_sizes(map_.address, static_cast<uint64_t>(unit) * map_.unit_bytes);
    for (int d = 1; d < map_.rank; ++d) {
      const auto along = static_cast<uint64_t>(index[static_cast<std::size_t>(d)]);
      address = add_sizes(address, multiply_sizes(along, map_.stride_bytes[d - 1]));
    }
    if (address == kTooLarge) {
      fault_of(FaultKind::kOutOfBounds,
               "the element (%lld, %lld, ...) of the tensor lies beyond the last address, 2^64 - 1",
               static_cast<long long>(index[0]), static_cast<long long>(index[1]));
    }
    return address;
  }

  int64_t first_unit() const { return place_.at[0] / map_.unit_elements; }

  // Slices with a stride between them are rows of their own.
  template <class Visit>
  void each_of_tile(uint32_t offset, Visit visit) const {
    const bool dense = map_.step[0] == 1;
    const uint32_t units = dense ? map_.count[0] : 1;
    uint32_t place[kTensorMapRank] = {};
    for (;;) {
      Index index{};
      index[0] = first_unit() + int64_t{place[0]} * map_.step[0];
      for (int d = 1; d < map_.rank; ++d) {
        const auto at = static_cast<std::size_t>(d);
        index[at] = map_.gathers ? place_.at[1 + place[1]]
                                 : place_.at[at] + int64_t{place[d]} * map_.step[d];
      }
      visit(row_at(index, units, offset + place[0] * map_.unit_shared_bytes));
      int d = dense ? 1 : 0;
      while (d < map_.rank && ++place[d] == map_.count[d]) place[d++] = 0;
      if (d >= map_.rank) return;
      if (d >= 1) offset += pitch_;
    }
  }

  // The filter's base moves through the bounding box, W first, and on to the next image. The
  // offsets say which of the filter's elements meets each base.
  template <class Visit>
  void each_pixel(uint32_t offset, Visit visit) const {
    const bool wide = map_.mode != TensorMode::kIm2col;
    const std::size_t images = map_.rank - 1u, moving = wide ? 1 : images - 1;
    const int64_t shift = wide ? place_.offsets[1] : 0;
    const uint32_t halo = tensor_halo(map_, place_);
    const uint32_t halo_every = map_.mode == TensorMode::kIm2colWide128 ? 32 : map_.pixels;
    Index base{};
    for (std::size_t d = 1; d < map_.rank; ++d) base[d] = place_.at[d];
    base[0] = first_unit();
    base[1] += shift;
    auto pixel = [&](int64_t beyond) {
      Index index = base;
      index[1] += beyond;
      for (std::size_t i = 0; !wide && i < moving; ++i) index[i + 1] += place_.offsets[i];
      visit(row_at(index, map_.count[0], offset));
      offset += pitch_;
    };
    for (uint32_t p = 1; p <= map_.pixels; ++p) {
      pixel(0);
      for (uint32_t i = 1; p % halo_every == 0 && i <= halo; ++i) {
        pixel(int64_t{i} * map_.step[1]);
      }
      for (std::size_t i = 0; i < moving; ++i) {
        base[i + 1] += map_.step[i + 1];
        if (base[i + 1] <= int64_t{map_.last_index[i + 1]} + map_.upper[i] + shift) break;
        base[i + 1] = map_.lower[i] + shift;
        if (i + 1 == moving) base[images] += map_.step[images];
      }
    }
  }

  const TensorMap& map_;
  const TensorPlace& place_;
  uint32_t pitch_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_ASYNC_TENSOR_ROWS_H_
