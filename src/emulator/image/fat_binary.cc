#include "emulator/image/fat_binary.h"

#include <cstring>
#include <string_view>

#include "emulator/base/fault.h"
#include "emulator/image/lz4.h"
#include "emulator/image/zstd.h"

namespace warploom::emulator::image {
namespace {

// The header of a container: magic, version, its own size, and the bytes of the entries behind it.
constexpr std::size_t kHeaderSizeAt = 6, kBytesAt = 8, kHeaderBytes = 16;

// The header of an entry.
constexpr std::size_t kKindAt = 0, kOwnSizeAt = 4, kPayloadAt = 8, kPackedAt = 16, kSmAt = 28,
                      kFlagsAt = 40, kUnpackedAt = 56, kEntryHeader = 64;
constexpr uint16_t kPtxKind = 1, kCubinKind = 2;
constexpr uint64_t kLz4 = 0x2000, kZstd = 0x8000;
// No PTX is longer (ptx/limits.h has the limits of what it may contain).
constexpr uint64_t kMostText = uint64_t{256} << 20;

template <class T>
T number(const uint8_t* place) {
  T value;
  std::memcpy(&value, place, sizeof(value));
  return value;
}

std::string text_of(const uint8_t* entry, std::size_t header, uint64_t payload) {
  const auto flags = number<uint64_t>(entry + kFlagsAt);
  const auto packed = number<uint32_t>(entry + kPackedAt);
  const auto unpacked = number<uint64_t>(entry + kUnpackedAt);
  const auto* begin = reinterpret_cast<const char*>(entry + header);
  if ((flags & (kLz4 | kZstd)) == 0) return {begin, payload};
  if (packed > payload || unpacked > kMostText) fault("the fat binary is damaged");
  const std::string_view bytes(begin, packed);
  return (flags & kLz4) != 0 ? decompress_lz4(bytes, unpacked) : decompress_zstd(bytes, unpacked);
}

}  // namespace

std::size_t fat_binary_bytes(const uint8_t* container) {
  if (number<uint32_t>(container) != kFatBinary) return 0;
  return number<uint16_t>(container + kHeaderSizeAt) + number<uint64_t>(container + kBytesAt);
}

std::vector<FatEntry> read_fat_binary(const uint8_t* container) {
  const std::size_t header = number<uint16_t>(container + kHeaderSizeAt);
  uint64_t left = number<uint64_t>(container + kBytesAt);
  if (number<uint32_t>(container) != kFatBinary || header < kHeaderBytes) {
    fault("the fat binary is damaged");
  }
  std::vector<FatEntry> entries;
  for (const uint8_t* entry = container + header; left >= kEntryHeader;) {
    const std::size_t own = number<uint32_t>(entry + kOwnSizeAt);
    const auto payload = number<uint64_t>(entry + kPayloadAt);
    if (own < kEntryHeader || own > left || payload > left - own) {
      fault("the fat binary is damaged");
    }
    const auto kind = number<uint16_t>(entry + kKindAt);
    FatEntry found;
    found.sm = number<uint32_t>(entry + kSmAt);
    found.kind = kind == kPtxKind     ? FatEntry::kPtx
                 : kind == kCubinKind ? FatEntry::kCubin
                                      : FatEntry::kOther;
    if (found.kind == FatEntry::kPtx) {
      found.text = text_of(entry, own, payload);
      found.text.resize(std::strlen(found.text.c_str()));  // it is padded with nulls
    }
    entries.push_back(std::move(found));
    entry += own + payload;
    left -= own + payload;
  }
  return entries;
}

std::vector<const uint8_t*> containers_of_wrapper(const uint8_t* wrapper) {
  // Magic, version, the container; behind it, from version 2 on, a list of others that ends with
  // a null: those of the modules before they were linked.
  constexpr std::size_t kVersionAt = 4, kDataAt = 8, kListAt = 16;
  std::vector<const uint8_t*> containers;
  if (number<uint32_t>(wrapper + kVersionAt) >= 2) {
    const auto* list = number<const uint8_t* const*>(wrapper + kListAt);
    for (; list != nullptr && *list != nullptr; ++list) containers.push_back(*list);
  }
  if (containers.empty()) containers.push_back(number<const uint8_t*>(wrapper + kDataAt));
  return containers;
}

}  // namespace warploom::emulator::image
