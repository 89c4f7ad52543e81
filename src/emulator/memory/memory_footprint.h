// The global memory that a launch has touched, for the launch that may start before it ends.

#ifndef WARPLOOM_EMULATOR_MEMORY_MEMORY_FOOTPRINT_H_
#define WARPLOOM_EMULATOR_MEMORY_MEMORY_FOOTPRINT_H_

#include <cstdint>
#include <map>
#include <string>

namespace warploom::emulator {

// Ranges of addresses; those that touch are one.
class AddressRanges {
 public:
  void add(uint64_t begin, uint64_t end);
  bool overlap(uint64_t begin, uint64_t end) const;

 private:
  std::map<uint64_t, uint64_t> ranges_;  // begin -> end
};

struct MemoryFootprint {
  std::string kernel;
  AddressRanges written;
  AddressRanges read;  // and not written afterwards

  bool writes(uint64_t address, uint64_t bytes) const {
    return written.overlap(address, address + bytes);
  }
  bool reads(uint64_t address, uint64_t bytes) const {
    return read.overlap(address, address + bytes);
  }
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_MEMORY_MEMORY_FOOTPRINT_H_
