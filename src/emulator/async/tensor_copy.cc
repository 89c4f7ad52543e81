// Copies of boxes between global and shared memory, row by row.

#include "emulator/async/tensor_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "emulator/async/tensor_rows.h"
#include "emulator/matrix/swizzle.h"

namespace warploom::emulator {
namespace {

constexpr uint32_t kChunk = 16;
constexpr uint32_t kLine = 128;
constexpr uint32_t kSharedAlign = 128;
constexpr uint32_t kMaxRowBytes = 256 * 32;

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

// What fills elements that are out of bounds: NaN is the same 16 bits again and again, and for each
// type one that no arithmetic gives, so that fma.oob knows it.
uint64_t fill_bits(const TensorMap& map) { return map.fill_nan ? 0x7ff77ff77ff77ff7u : 0; }

void fill(const TensorMap& map, uint8_t* row, uint32_t begin, uint32_t end) {
  const uint64_t bits = fill_bits(map);
  for (uint32_t i = begin; i < end; i += sizeof(bits)) {
    std::memcpy(row + i, &bits, std::min<std::size_t>(sizeof(bits), end - i));
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

// Between a row, as it is in global memory, and its chunks in shared memory. The swizzle stays
// within 128 aligned bytes, and rows are as wide as the swizzle, so that all chunks are in the
// bounds that check_tensor_offset saw. Calls copy(chunk in shared memory, byte of the row, count).
template <class Copy>
void for_each_chunk(const TensorMap& map, const SharedMemory& shared, const BoxRow& row,
                    Copy copy) {
  const uint32_t bytes = row.units * map.unit_shared_bytes;
  if (map.unit_bytes == map.unit_shared_bytes) {
    for (uint32_t i = 0; i < bytes; i += kChunk) {
      copy(shared.data + tensor_swizzle(map, row.shared + i), i, kChunk);
    }
  } else {
    for (uint32_t i = 0, from = 0; i < bytes; i += kChunk, from += map.unit_bytes) {
      copy(shared.data + tensor_swizzle(map, row.shared + i), from, map.unit_bytes);
    }
  }
}

bool swaps_halves(const TensorMap& map, const SharedMemory& shared, const uint8_t* chunk) {
  return map.swaps_halves && (static_cast<uint32_t>(chunk - shared.data) / kLine & 1) != 0;
}

}  // namespace

uint32_t tensor_swizzle(const TensorMap& map, uint32_t offset) {
  return swizzle_atoms(offset, map.swizzle_row_bytes, map.swizzle_atom_bytes);
}

void check_tensor_offset(const TensorMap& map, const TensorPlace& place, const SharedMemory& shared,
                         uint32_t offset) {
  if (offset % kSharedAlign != 0) {
    fault_of(FaultKind::kMisaligned,
             "a tensor copy at shared offset 0x%x: the address must be a multiple of %u", offset,
             kSharedAlign);
  }
  shared.at(offset, tensor_map_footprint(map, tensor_halo(map, place)));
}

void tensor_rows(const TensorMap& map, const TensorPlace& place,
                 const std::function<void(const TensorRow&)>& visit) {
  BoxRows(map, place).each(0, [&](const BoxRow& row) {
    if (row.begin == row.end) return;
    const uint32_t units = row.end - row.begin;
    visit({row.shared + row.begin * map.unit_shared_bytes, units * map.unit_shared_bytes,
           row.address, units * map.unit_bytes});
  });
}

void tensor_load(const TensorMap& map, const TensorPlace& place, const GlobalMemory& global,
                 const SharedMemory& shared, uint32_t offset) {
  check_tensor_offset(map, place, shared, offset);
  Window window(global);
  BoxRows(map, place).each(offset, [&](const BoxRow& row) {
    uint8_t buffer[kMaxRowBytes];
    const uint32_t begin = row.begin * map.unit_bytes, end = row.end * map.unit_bytes;
    fill(map, buffer, 0, begin);
    fill(map, buffer, end, row.units * map.unit_bytes);
    if (begin < end) {
      std::memcpy(buffer + begin, window.at(row.address, end - begin), end - begin);
      if (map.round_tf32) round_row(buffer, begin, end);
    }
    for_each_chunk(map, shared, row, [&](uint8_t* chunk, uint32_t from, uint32_t count) {
      std::memcpy(chunk, buffer + from, count);
      if (swaps_halves(map, shared, chunk)) std::swap_ranges(chunk, chunk + 8, chunk + 8);
    });
  });
}

void tensor_store(const TensorMap& map, const TensorPlace& place, const GlobalMemory& global,
                  const SharedMemory& shared, uint32_t offset, Reduction reduction) {
  check_tensor_offset(map, place, shared, offset);
  check_reduction(map.type, reduction);
  Window window(global);
  // In a row, bounds are seen by chunks of the tensor: the padding in the last one is written, too.
  const uint64_t extent = (uint64_t{map.last_index[0]} + 1) * map.unit_bytes;
  const auto padding = static_cast<uint32_t>((kChunk - extent % kChunk) % kChunk);
  BoxRows(map, place).each(offset, [&](const BoxRow& row) {
    if (row.begin == row.end) return;
    uint8_t buffer[kMaxRowBytes];
    for_each_chunk(map, shared, row, [&](uint8_t* chunk, uint32_t to, uint32_t count) {
      std::memcpy(buffer + to, chunk, count);
    });
    const uint32_t begin = row.begin * map.unit_bytes;
    const uint32_t end =
        std::min(row.end * map.unit_bytes + padding, row.units * map.unit_bytes);
    bulk_reduce(map.type, reduction, window.at(row.address, end - begin), buffer + begin,
                end - begin);
  });
}

}  // namespace warploom::emulator
