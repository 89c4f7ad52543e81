// Copies of boxes between global and shared memory, row by row.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "emulator/async/tensor_map.h"
#include "emulator/matrix/swizzle.h"

namespace warploom::emulator {
namespace {

constexpr uint32_t kChunk = 16;
constexpr uint32_t kSharedAlign = 128;
constexpr uint32_t kMaxRowBytes = 256 * 8;

// The part of one row of the box that lies in the tensor, in bytes of the row.
struct Row {
  uint32_t shared;   // offset of the row in shared memory, before the swizzle
  uint32_t begin;
  uint32_t end;      // equal to begin if the row is out of bounds
  uint64_t address;  // of byte `begin`
};

bool in_bounds(const TensorMap& map, int dimension, int64_t index) {
  return index >= 0 && index <= int64_t{map.last_index[dimension]};
}

// Calls visit(Row) for every row of the box, in the order of shared memory.
template <class Visit>
void for_each_row(const TensorMap& map, const int32_t* coordinates, uint32_t offset, Visit visit) {
  const int64_t size = map.element_bytes, columns = map.count[0], first = coordinates[0];
  const uint32_t pitch = tensor_map_row_pitch(map);
  const int64_t extent = int64_t{map.last_index[0]} + 1;
  const int64_t begin = std::clamp<int64_t>(-first, 0, columns);
  const int64_t end = std::clamp<int64_t>(extent - first, begin, columns);
  uint32_t place[kTensorMapRank] = {};
  for (;;) {
    bool inside = begin < end;
    int64_t distance = (first + begin) * size;
    for (int d = 1; d < map.rank; ++d) {
      const int64_t index = map.gathers ? coordinates[1 + place[1]]
                                        : coordinates[d] + int64_t{place[d]} * map.step[d];
      inside = inside && in_bounds(map, d, index);
      // Out of bounds, the product may be anything; the address is not used then.
      if (inside) distance += index * static_cast<int64_t>(map.stride_bytes[d - 1]);
    }
    const auto first_byte = static_cast<uint32_t>(begin * size);
    visit(Row{offset, first_byte, inside ? static_cast<uint32_t>(end * size) : first_byte,
              map.address + static_cast<uint64_t>(distance)});
    offset += pitch;
    int d = 1;
    while (d < map.rank && ++place[d] == map.count[d]) place[d++] = 0;
    if (d >= map.rank) return;
  }
}

// Global memory, asking for the allocation only when a row leaves that of the row before.
class Window {
 public:
  explicit Window(const GlobalMemory& memory) : memory_(memory) {}

  uint8_t* at(uint64_t address, uint64_t count) {
    if (!range_.contains(address, count)) range_ = memory_.find(address, count);
    return reinterpret_cast<uint8_t*>(address);
  }

 private:
  const GlobalMemory& memory_;
  GlobalMemory::Range range_;
};

void check_offset(const TensorMap& map, const SharedMemory& shared, uint32_t offset) {
  if (offset % kSharedAlign != 0) {
    fault("a tensor copy at shared offset 0x%x: the address must be a multiple of %u", offset,
          kSharedAlign);
  }
  shared.at(offset, tensor_map_footprint(map));
}

// What fills elements that are out of bounds: NaN is the same 16 bits again and again, and for each
// type one that no arithmetic gives, so that fma.oob knows it.
uint64_t fill_bits(const TensorMap& map) { return map.fill_nan ? 0x7ff77ff77ff77ff7u : 0; }

void fill(const TensorMap& map, uint8_t* row, uint32_t begin, uint32_t end) {
  const uint64_t bits = fill_bits(map);
  for (uint32_t i = begin; i < end; i += map.element_bytes) {
    std::memcpy(row + i, &bits, map.element_bytes);
  }
}

// To nearest; a carry moves into the exponent. NaN becomes the one of tf32.
uint32_t round_to_tf32(uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffe000u;
  return (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
}

void round_row(uint8_t* row, uint32_t begin, uint32_t end) {
  for (uint32_t i = begin; i < end; i += sizeof(uint32_t)) {
    uint32_t bits;
    std::memcpy(&bits, row + i, sizeof(bits));
    bits = round_to_tf32(bits);
    std::memcpy(row + i, &bits, sizeof(bits));
  }
}

// Between a row and its chunks in shared memory. The swizzle stays within 128 aligned bytes, and
// rows are as wide as the swizzle, so that all chunks are in the bounds that check_offset saw.
template <class Copy>
void for_each_chunk(const TensorMap& map, const SharedMemory& shared, const Row& row, Copy copy) {
  const uint32_t bytes = map.count[0] * uint32_t{map.element_bytes};
  for (uint32_t i = 0; i < bytes; i += kChunk) {
    copy(shared.data + swizzle(row.shared + i, map.swizzle_row_bytes), i);
  }
}

}  // namespace

void tensor_rows(const TensorMap& map, const int32_t* coordinates,
                 const std::function<void(const TensorRow&)>& visit) {
  for_each_row(map, coordinates, 0, [&](const Row& row) {
    if (row.begin != row.end) {
      visit({row.shared + row.begin, row.end - row.begin, row.address});
    }
  });
}

void tensor_load(const TensorMap& map, const int32_t* coordinates, const GlobalMemory& global,
                 const SharedMemory& shared, uint32_t offset) {
  check_offset(map, shared, offset);
  Window window(global);
  const uint32_t bytes = map.count[0] * uint32_t{map.element_bytes};
  for_each_row(map, coordinates, offset, [&](const Row& row) {
    uint8_t buffer[kMaxRowBytes];
    fill(map, buffer, 0, row.begin);
    fill(map, buffer, row.end, bytes);
    if (row.begin < row.end) {
      const uint32_t count = row.end - row.begin;
      std::memcpy(buffer + row.begin, window.at(row.address, count), count);
      if (map.round_tf32) round_row(buffer, row.begin, row.end);
    }
    for_each_chunk(map, shared, row,
                   [&](uint8_t* chunk, uint32_t i) { std::memcpy(chunk, buffer + i, kChunk); });
  });
}

void tensor_store(const TensorMap& map, const int32_t* coordinates, const GlobalMemory& global,
                  const SharedMemory& shared, uint32_t offset, Reduction reduction) {
  check_offset(map, shared, offset);
  check_reduction(map.type, reduction);
  Window window(global);
  const uint32_t bytes = map.count[0] * uint32_t{map.element_bytes};
  // In a row, bounds are seen by chunks of the tensor: the padding in the last one is written, too.
  const uint64_t extent = (uint64_t{map.last_index[0]} + 1) * map.element_bytes;
  const auto padding = static_cast<uint32_t>((kChunk - extent % kChunk) % kChunk);
  for_each_row(map, coordinates, offset, [&](const Row& row) {
    if (row.begin == row.end) return;
    uint8_t buffer[kMaxRowBytes];
    for_each_chunk(map, shared, row,
                   [&](uint8_t* chunk, uint32_t i) { std::memcpy(buffer + i, chunk, kChunk); });
    const uint32_t count = std::min(row.end + padding, bytes) - row.begin;
    bulk_reduce(map.type, reduction, window.at(row.address, count), buffer + row.begin, count);
  });
}

}  // namespace warploom::emulator
