// State spaces as checked byte ranges, and how their addresses look.
//
// A global address is the host's address of the byte. A shared address has 32 bits: the rank of
// the CTA in its cluster in bits 24 to 31, the offset in that CTA's shared memory below, so that
// shared::cta addresses are shared::cluster addresses too (PTX ISA, "State Spaces"). Generic
// addresses of shared and local memory carry a tag in bits 56 to 63, which no host address has.

#ifndef WARPLOOM_EMULATOR_MEMORY_MEMORY_H_
#define WARPLOOM_EMULATOR_MEMORY_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "emulator/base/fault.h"

namespace warploom::emulator {

constexpr int kRankShift = 24;
constexpr uint32_t kOffsetMask = (1u << kRankShift) - 1;
constexpr uint64_t kSharedWindow = uint64_t{1} << 56;
constexpr uint64_t kLocalWindow = uint64_t{2} << 56;
constexpr uint64_t kWindowMask = uint64_t{0xff} << 56;

constexpr uint32_t shared_rank(uint32_t address) { return address >> kRankShift; }
constexpr uint32_t shared_offset(uint32_t address) { return address & kOffsetMask; }
constexpr uint32_t shared_address(uint32_t rank, uint32_t offset) {
  return rank << kRankShift | offset;
}

// Shared memory of one CTA. The first kReserved bytes belong to the system, as on the hardware, so
// that no variable has address 0.
struct SharedMemory {
  static constexpr uint32_t kReserved = 1024;

  uint8_t* data = nullptr;
  uint32_t bytes = 0;  // with the reserved ones

  // The bytes [offset, offset + count); a Fault if they are not all in bounds.
  uint8_t* at(uint32_t offset, uint64_t count) const {
    if (offset < kReserved || count > bytes || offset > bytes - count) out_of_bounds(offset, count);
    return data + offset;
  }

 private:
  [[noreturn]] void out_of_bounds(uint32_t offset, uint64_t count) const;
};

// The live allocations of the device.
class GlobalMemory {
 public:
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
    bool contains(uint64_t address, uint64_t count) const {
      return address >= begin && address <= end && count <= end - address;
    }
  };

  void add(uint64_t begin, uint64_t bytes);
  // Accesses to it are errors that say so, until another allocation takes its place.
  void remove(uint64_t begin);
  // Whether an allocation that was there has been removed.
  bool was_removed(uint64_t address, Range& range) const;

  // Calls f(Range) for every allocation, in the order of their addresses.
  template <class F>
  void for_each(F f) const {
    for (const auto& [begin, end] : allocations_) f(Range{begin, end});
  }

  // The allocation that holds [address, address + count); a Fault that names the nearest
  // allocation if there is none.
  Range find(uint64_t address, uint64_t count) const;

  // The last allocation that begins at or below the address; false if there is none.
  bool nearest(uint64_t address, Range& range) const;

  // The same as a pointer that can be read and written.
  uint8_t* at(uint64_t address, uint64_t count) const {
    find(address, count);
    return reinterpret_cast<uint8_t*>(address);
  }

 private:
  // Those that errors can name; the others are forgotten.
  static constexpr std::size_t kMostRemoved = 4096;

  std::map<uint64_t, uint64_t> allocations_;  // begin -> end
  std::map<uint64_t, uint64_t> removed_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MEMORY_MEMORY_H_
