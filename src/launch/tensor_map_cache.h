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

  bool operator==(const EncodeKey& other) const;
  uint64_t hash() const;

 private:
  bool add(uint64_t word);
  bool add_text(const char* text);

  // Five dimensions need 31.
  std::array<uint64_t, 32> words_;
  uint32_t used_ = 0;
};

// Of a fixed size: a new map takes the place of one of the kWays that share its set.
class TensorMapCache {
 public:
  // The bytes of a map, or nullptr.
  const uint8_t* find(const EncodeKey& key, uint64_t hash) const;
  void insert(const EncodeKey& key, uint64_t hash, const uint8_t* map);

 private:
  static constexpr size_t kSets = 512;
  static constexpr size_t kWays = 4;

  struct Set {
    EncodeKey keys[kWays];
    uint8_t maps[kWays][kTensorMapBytes];
    uint32_t oldest = 0;
  };

  static size_t index(uint64_t hash) { return hash >> 55; }
  static_assert(kSets == size_t{1} << (64 - 55));

  std::array<Set, kSets> sets_{};
};

}  // namespace warploom

#endif  // WARPLOOM_LAUNCH_TENSOR_MAP_CACHE_H_
