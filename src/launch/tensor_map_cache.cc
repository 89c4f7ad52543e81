#include "launch/tensor_map_cache.h"

#include <cstring>
#include <utility>

namespace warploom {
namespace {

// Odd multipliers that have nothing to do with each other (the finaliser of splitmix64).
constexpr uint64_t multiplier(uint64_t i) {
  uint64_t z = (i + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return (z ^ (z >> 31)) | 1;
}

template <size_t... I>
constexpr std::array<uint64_t, sizeof...(I)> multipliers(std::index_sequence<I...>) {
  return {multiplier(I)...};
}

constexpr auto kMultipliers = multipliers(std::make_index_sequence<32>{});

}  // namespace

bool EncodeKey::add(uint64_t word) {
  if (used_ == words_.size()) return false;
  words_[used_++] = word;
  return true;
}

// The name of a dtype: its characters, because its address may belong to another name tomorrow.
bool EncodeKey::add_text(const char* text) {
  uint64_t halves[2] = {};
  for (size_t i = 0; text[i] != '\0'; ++i) {
    if (i == sizeof(halves)) return false;
    halves[i / 8] |= static_cast<uint64_t>(static_cast<unsigned char>(text[i])) << (8 * (i % 8));
  }
  return add(halves[0]) && add(halves[1]);
}

bool EncodeKey::set(int device, const TVMFFIAny* arguments, int32_t count) {
  used_ = 0;
  if (!add(static_cast<uint64_t>(device) << 32 | static_cast<uint32_t>(count))) return false;
  for (int32_t i = 1; i < count; ++i) {
    const TVMFFIAny& argument = arguments[i];
    const int32_t wanted = i == 1 ? kTVMFFIRawStr : i == 3 ? kTVMFFIOpaquePtr : kTVMFFIInt;
    if (argument.type_index != wanted) return false;
    if (!(i == 1 ? add_text(argument.v_c_str) : add(argument.v_uint64))) return false;
  }
  return true;
}

bool EncodeKey::operator==(const EncodeKey& other) const {
  return used_ == other.used_ &&
         std::memcmp(words_.data(), other.words_.data(), used_ * sizeof(words_[0])) == 0;
}

uint64_t EncodeKey::hash() const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < used_; ++i) sum += words_[i] * kMultipliers[i];
  return sum;
}

const uint8_t* TensorMapCache::find(const EncodeKey& key, uint64_t hash) const {
  const Set& set = sets_[index(hash)];
  for (size_t way = 0; way < kWays; ++way) {
    if (set.keys[way] == key) return set.maps[way];
  }
  return nullptr;
}

void TensorMapCache::insert(const EncodeKey& key, uint64_t hash, const uint8_t* map) {
  Set& set = sets_[index(hash)];
  set.keys[set.oldest] = key;
  std::memcpy(set.maps[set.oldest], map, kTensorMapBytes);
  set.oldest = (set.oldest + 1) % kWays;
}

}  // namespace warploom
