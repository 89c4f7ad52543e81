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

// Places of arguments of the encoding.
constexpr int32_t kDtype = 1, kAddress = 3, kFirstInteger = 4;
// Of a dtype's name, with the zero at its end: two words.
constexpr size_t kNameBytes = 16;

uint64_t head(int device, int32_t count) {
  return static_cast<uint64_t>(device) << 32 | static_cast<uint32_t>(count);
}

}  // namespace

bool EncodeKey::set(int device, const TVMFFIAny* arguments, int32_t count) {
  used_ = 0;
  if (count < kFirstInteger || count + 1 > static_cast<int32_t>(words_.size())) return false;
  if (arguments[kDtype].type_index != kTVMFFIRawStr) return false;
  // The name of a dtype by its characters: its address may belong to another name tomorrow.
  const char* name = arguments[kDtype].v_c_str;
  const size_t length = std::strlen(name);
  if (length >= kNameBytes) return false;
  words_[0] = head(device, count);
  words_[1] = words_[2] = 0;
  std::memcpy(&words_[1], name, length);
  for (int32_t i = kDtype + 1; i < count; ++i) {
    const int32_t wanted = i == kAddress ? kTVMFFIOpaquePtr : kTVMFFIInt;
    if (arguments[i].type_index != wanted) return false;
    words_[i + 1] = arguments[i].v_uint64;
  }
  used_ = static_cast<uint32_t>(count) + 1;
  return true;
}

bool EncodeKey::is_of(int device, const TVMFFIAny* arguments, int32_t count) const {
  if (used_ == 0 || words_[0] != head(device, count)) return false;
  uint64_t other = words_[3] ^ arguments[2].v_uint64;
  other |= words_[4] ^ arguments[kAddress].v_uint64;
  int32_t types = arguments[kDtype].type_index ^ kTVMFFIRawStr;
  types |= arguments[2].type_index ^ kTVMFFIInt;
  types |= arguments[kAddress].type_index ^ kTVMFFIOpaquePtr;
  for (int32_t i = kFirstInteger; i < count; ++i) {  // without branches: almost always equal
    other |= words_[i + 1] ^ arguments[i].v_uint64;
    types |= arguments[i].type_index ^ kTVMFFIInt;
  }
  if (other != 0 || types != 0) return false;
  return std::strcmp(reinterpret_cast<const char*>(&words_[1]), arguments[kDtype].v_c_str) == 0;
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

const uint8_t* TensorMapCache::came(Entry& entry) {
  last_->next = &entry;
  last_ = &entry;
  return entry.map;
}

const uint8_t* TensorMapCache::find_next(int device, const TVMFFIAny* arguments, int32_t count) {
  Entry* next = last_->next;
  if (next == nullptr || !next->key.is_of(device, arguments, count)) return nullptr;
  last_ = next;
  return next->map;
}

const uint8_t* TensorMapCache::find(const EncodeKey& key) {
  for (Entry& entry : set_of(key).entries) {
    if (entry.key == key) return came(entry);
  }
  return nullptr;
}

void TensorMapCache::insert(const EncodeKey& key, const uint8_t* map) {
  Set& set = set_of(key);
  Entry& entry = set.entries[set.oldest];
  entry.key = key;
  std::memcpy(entry.map, map, kTensorMapBytes);
  set.oldest = (set.oldest + 1) % kWays;
  came(entry);
}

}  // namespace warploom
