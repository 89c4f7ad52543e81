#include "emulator/tensor/umma_descriptor.h"

#include <cinttypes>

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

struct SwizzleCode {
  uint32_t row_bytes;  // 0: there is no such code
  uint32_t atom_bytes;
};

// By bits 61 to 63.
constexpr SwizzleCode kSwizzles[8] = {{16, 16}, {128, 32}, {128, 16}, {0, 0},
                                      {64, 16}, {0, 0},    {32, 16},  {0, 0}};

constexpr uint32_t bits_at(uint64_t bits, int position, int count) {
  return static_cast<uint32_t>(bits >> position & ((uint64_t{1} << count) - 1));
}

[[noreturn]] void refuse(uint64_t bits, const char* field, uint32_t value, const char* allowed) {
  fault_of(FaultKind::kDescriptor,
           "the matrix descriptor 0x%016" PRIx64 " has %u in %s; it must be %s", bits, value, field,
           allowed);
}

}  // namespace

UmmaDescriptor parse_umma_descriptor(uint64_t bits) {
  const auto require = [bits](uint32_t value, uint32_t expected, const char* field,
                              const char* allowed) {
    if (value != expected) refuse(bits, field, value, allowed);
  };
  require(bits_at(bits, 46, 3), 1, "bits 46-48",
          "the constant 1 (a descriptor of sm_90 has 0 there)");
  require(bits_at(bits, 14, 2), 0, "bits 14-15", "0: a start address has 18 bits, 4 of them 0");
  require(bits_at(bits, 30, 2), 0, "bits 30-31", "0: a leading offset has 18 bits, 4 of them 0");
  require(bits_at(bits, 53, 8), 0, "bits 53-60", "0");
  require(bits_at(bits, 52, 1), 0, "bit 52, the mode of the leading offset",
          "0 (relative): sm_100 has no absolute one");
  const uint32_t code = bits_at(bits, 61, 3);
  const SwizzleCode swizzle = kSwizzles[code];
  if (swizzle.row_bytes == 0) {
    refuse(bits, "bits 61-63, the swizzle", code,
           "0 (none), 1 (128 bytes in atoms of 32), 2 (128 bytes), 4 (64 bytes) or 6 (32 bytes)");
  }
  const UmmaDescriptor descriptor{
      bits_at(bits, 0, 14) << 4,  bits_at(bits, 16, 14) << 4, bits_at(bits, 32, 14) << 4,
      swizzle.row_bytes,          swizzle.atom_bytes,         bits_at(bits, 49, 3)};
  if (!descriptor.swizzled()) {
    require(descriptor.base_offset, 0, "bits 49-51, the base offset",
            "0 without a swizzle, which has no pattern to start");
  }
  if (descriptor.start % swizzle.atom_bytes != 0) {
    refuse(bits, "bits 0-13, the start address in units of 16 bytes", descriptor.start >> 4,
           "even: this swizzle moves 32 bytes as a whole");
  }
  return descriptor;
}

}  // namespace warploom::emulator
