// Fat binaries: the containers that nvcc and fatbinary put PTX and cubins into.

#ifndef WARPLOOM_EMULATOR_IMAGE_FAT_BINARY_H_
#define WARPLOOM_EMULATOR_IMAGE_FAT_BINARY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace warploom::emulator::image {

constexpr uint32_t kFatBinary = 0xba55ed50;
constexpr uint32_t kFatWrapper = 0x466243b1;  // of the variable that nvcc's programs register

struct FatEntry {
  enum Kind { kPtx, kCubin, kOther };
  Kind kind = kOther;
  uint32_t sm = 0;   // 90 for sm_90 and sm_90a
  std::string text;  // of PTX, not compressed
};

// All of it is read that is told by the container itself. A Fault if it is damaged.
std::vector<FatEntry> read_fat_binary(const uint8_t* container);
// With its header; 0 if it is none.
std::size_t fat_binary_bytes(const uint8_t* container);

// The containers that a wrapper names: one, or those of the modules that nvcc has linked.
std::vector<const uint8_t*> containers_of_wrapper(const uint8_t* wrapper);

}  // namespace warploom::emulator::image

#endif  // WARPLOOM_EMULATOR_IMAGE_FAT_BINARY_H_
