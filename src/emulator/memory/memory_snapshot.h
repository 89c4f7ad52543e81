// The contents of all allocations of a device at one time.

#ifndef WARPLOOM_EMULATOR_MEMORY_MEMORY_SNAPSHOT_H_
#define WARPLOOM_EMULATOR_MEMORY_MEMORY_SNAPSHOT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "emulator/memory/memory.h"

namespace warploom::emulator {

class MemorySnapshot {
 public:
  explicit MemorySnapshot(const GlobalMemory& memory);

  // Writes it back.
  void restore() const;

  // Where memory differs from it now: "byte 12 of the allocation of 64 bytes at 0x... is 0x01, not
  // 0x02"; empty if nowhere.
  std::string difference() const;

 private:
  struct Part {
    uint64_t begin;
    std::vector<uint8_t> bytes;
  };
  std::vector<Part> parts_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MEMORY_MEMORY_SNAPSHOT_H_
