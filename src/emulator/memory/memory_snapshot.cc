#include "emulator/memory/memory_snapshot.h"

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <cstring>

#include "emulator/base/fault.h"

namespace warploom::emulator {

MemorySnapshot::MemorySnapshot(const GlobalMemory& memory) {
  memory.for_each([&](const GlobalMemory::Range& range) {
    const auto* begin = reinterpret_cast<const uint8_t*>(range.begin);
    parts_.push_back({range.begin, {begin, begin + (range.end - range.begin)}});
  });
}

void MemorySnapshot::restore() const {
  for (const Part& part : parts_) {
    std::copy(part.bytes.begin(), part.bytes.end(), reinterpret_cast<uint8_t*>(part.begin));
  }
}

std::string MemorySnapshot::difference() const {
  for (const Part& part : parts_) {
    const auto* now = reinterpret_cast<const uint8_t*>(part.begin);
    if (part.bytes.empty() || std::memcmp(now, part.bytes.data(), part.bytes.size()) == 0) continue;
    auto place = std::mismatch(part.bytes.begin(), part.bytes.end(), now);
    return format("byte %zu of the allocation of %zu bytes at 0x%" PRIx64 " is 0x%02x, not 0x%02x",
                  static_cast<std::size_t>(place.second - now), part.bytes.size(), part.begin,
                  *place.second, *place.first);
  }
  return "";
}

}  // namespace warploom::emulator
