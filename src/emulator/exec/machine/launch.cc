#include "emulator/exec/machine/launch.h"

#include <algorithm>

namespace warploom::emulator {

uint32_t Launch::dynamic_offset() const {
  uint32_t alignment = std::max(program.dynamic_alignment, 16u);
  uint32_t end = SharedMemory::kReserved + program.static_shared;
  return (end + alignment - 1) / alignment * alignment;
}

uint32_t Launch::shared_bytes() const { return dynamic_offset() + dynamic_shared; }

GridShape::GridShape(const Launch& launch)
    : extents_{launch.grid[0] / launch.cluster[0], launch.grid[1] / launch.cluster[1],
               launch.grid[2] / launch.cluster[2]} {}

uint64_t GridShape::count() const { return uint64_t{extents_[0]} * extents_[1] * extents_[2]; }

Dim3 GridShape::id(uint64_t cluster) const {
  return {static_cast<uint32_t>(cluster % extents_[0]),
          static_cast<uint32_t>(cluster / extents_[0] % extents_[1]),
          static_cast<uint32_t>(cluster / extents_[0] / extents_[1])};
}

}  // namespace warploom::emulator
