// Tensor maps that a thread has encoded before, by everything that decides their bytes.
//
// TVM's host code encodes every tensor map of a kernel at each of its calls, which takes longer than
// all else that it does. A map is a function of the arguments of the encoding alone; equal arguments
// therefore give equal bytes, whatever has been freed or allocated in between.

#ifndef WARPLOOM_LAUNCH_TENSOR_MAP_CACHE_H_
#define WARPLOOM_LAUNCH_TENSOR_MAP_CACHE_H_

#include <tvm/ffi/c_api.h>

#include <array>
#include <cstdint>
#include <memory>

namespace warploom {

constexpr size_t kTensorMapBytes = 128;

// The arguments of runtime.cuTensorMapEncodeTiled, without the first, where the map is written to.
class EncodeKey {
 public:
  // False if they are not what TVM's host code passes: the name of a dtype as the second, an address
  // as the fourth, integers as all others. The key is then useless.
  bool set(int device, const TVMFFIAny* arguments, int32_t count);

  // Whether set() of these gives this key, without one being made of them.
  bool is_of(int device, const TVMFFIAny* arguments, int32_t count) const;

  bool operator==(const EncodeKey& other) const;
  uint64_t hash() const;

 private:
  // Device and count, the name of the dtype, then the other arguments. Five dimensions need 31.
  std::array<uint64_t, 32> words_;
  uint32_t used_ = 0;
};

// Of a fixed size: a new map takes the place of one of the kWays that share its set.
class TensorMapCache {
 public:
  // The bytes of the map that came after the last one before, if it has that key, or nullptr. Code
  // that launches kernels asks for the same maps in the same order again and again.
  const uint8_t* find_next(int device, const TVMFFIAny* arguments, int32_t count);

  // The bytes of a map, or nullptr.
  const uint8_t* find(const EncodeKey& key);
  void insert(const EncodeKey& key, const uint8_t* map);

 private:
  static constexpr size_t kSets = 512;
  static constexpr size_t kWays = 4;

  struct Entry {
    EncodeKey key;
    uint8_t map[kTensorMapBytes];
    Entry* next = nullptr;  // what was asked for after this; only the key tells what is in it now
  };

  struct Set {
    Entry entries[kWays];
    uint32_t oldest = 0;
  };

  Set& set_of(const EncodeKey& key) { return sets_[key.hash() >> 55]; }
  static_assert(kSets == size_t{1} << (64 - 55));
  const uint8_t* came(Entry& entry);

  std::array<Set, kSets> sets_{};
  Entry* last_ = &sets_[0].entries[0];
};

}  // namespace warploom

#endif  // WARPLOOM_LAUNCH_TENSOR_MAP_CACHE_H_
