// Copies of boxes of tensors between global and shared memory (PTX ISA, "Tensor copy").

#ifndef WARPLOOM_EMULATOR_ASYNC_TENSOR_COPY_H_
#define WARPLOOM_EMULATOR_ASYNC_TENSOR_COPY_H_

#include <array>
#include <cstdint>
#include <functional>

#include "emulator/async/bulk_copy.h"
#include "emulator/async/tensor_map.h"
#include "emulator/memory/memory.h"

namespace warploom::emulator {

// Where a box is: coordinates, dimension 0 first and of any sign, and the offsets of im2col. Those
// of im2col::w are its halo, in pixels, and how far it is shifted along W.
struct TensorPlace {
  std::array<int32_t, kTensorMapRank> at{};
  std::array<uint16_t, kTensorMapRank - 2> offsets{};
};

enum class TensorDirection : uint8_t { kLoad, kStore };

// A Fault if boxes of this map cannot be copied so, wherever they are.
void check_tensor_copy(const TensorMap& map, TensorDirection direction, Reduction reduction);
// A Fault if there is no box here.
void check_tensor_place(const TensorMap& map, const TensorPlace& place);

// Pixels that the instruction adds to those of the map.
uint32_t tensor_halo(const TensorMap& map, const TensorPlace& place);

// The part of one row of a box that lies in the tensor.
struct TensorRow {
  uint32_t shared;        // its first byte in the box, before the swizzle
  uint32_t shared_bytes;
  uint64_t address;       // in global memory
  uint32_t bytes;
};

// Calls visit for every row of the box that is not out of bounds.
void tensor_rows(const TensorMap& map, const TensorPlace& place,
                 const std::function<void(const TensorRow&)>& visit);

// Where the 16 bytes at this offset of shared memory lie after the swizzle.
uint32_t tensor_swizzle(const TensorMap& map, uint32_t offset);

// A Fault unless the box lies in shared memory if its first row is at this offset, a multiple of 128.
void check_tensor_offset(const TensorMap& map, const TensorPlace& place, const SharedMemory& shared,
                         uint32_t offset);

// Moves the box to shared memory; for a multicast, once per CTA. The offset is a multiple of 128.
void tensor_load(const TensorMap& map, const TensorPlace& place, const GlobalMemory& global,
                 const SharedMemory& shared, uint32_t offset);

// The other way round; elements out of bounds stay in shared memory.
void tensor_store(const TensorMap& map, const TensorPlace& place, const GlobalMemory& global,
                  const SharedMemory& shared, uint32_t offset, Reduction reduction);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_ASYNC_TENSOR_COPY_H_
