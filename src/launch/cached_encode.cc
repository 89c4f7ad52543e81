// Puts the cache of tensor maps in front of the function of TVM's runtime that encodes them.

#include <tvm/ffi/container/tuple.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <cstring>
#include <memory>

#include "launch/cuda_library.h"
#include "launch/tensor_map_cache.h"

namespace warploom {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Function;
using tvm::ffi::PackedArgs;

// Each thread has its own, so that none waits for another.
struct ThreadCache {
  std::unique_ptr<TensorMapCache> maps;  // made when first needed
  int64_t hits = 0;
  int64_t misses = 0;
};

ThreadCache& thread_cache() {
  static thread_local ThreadCache cache;
  return cache;
}

// Which device a map is encoded for. A GPU of another architecture may want other bytes, so that
// the device is a part of the key where there is more than one architecture.
class Devices {
 public:
  Devices()
      : get_device_(cuda_function<int(int*)>(kCudaRuntime, "cudaGetDevice")),
        get_count_(cuda_function<int(int*)>(kCudaRuntime, "cudaGetDeviceCount")),
        get_attribute_(
            cuda_function<int(int*, int, int)>(kCudaRuntime, "cudaDeviceGetAttribute")) {
    if (get_device_ == nullptr || get_count_ == nullptr || get_attribute_ == nullptr) {
      TVM_FFI_THROW(RuntimeError) << "no CUDA runtime is loaded, so that no tensor map is encoded";
    }
  }

  // 0 where devices do not differ; -1 if there is none.
  int current() const {
    // Not before a map is wanted: to ask for devices initialises CUDA, after which no process that
    // is forked can use it.
    static const bool differ = this->differ();
    int device = 0;
    if (differ && get_device_(&device) != 0) return -1;
    return device;
  }

 private:
  bool differ() const {
    int count = 0;
    if (get_count_(&count) != 0) return true;
    for (int device = 1; device < count; ++device) {
      for (int attribute : {kMajor, kMinor}) {
        int first = 0, other = 0;
        if (get_attribute_(&first, attribute, 0) != 0) return true;
        if (get_attribute_(&other, attribute, device) != 0 || other != first) return true;
      }
    }
    return false;
  }

  // Values of cudaDeviceAttr.
  static constexpr int kMajor = 75, kMinor = 76;

  int (*get_device_)(int*);
  int (*get_count_)(int*);
  int (*get_attribute_)(int*, int, int);
};

// The alignment that the driver wants, which the encoding checks.
bool is_aligned(const void* map) { return reinterpret_cast<uintptr_t>(map) % 64 == 0; }

Function cached_encode(Function encode) {
  return Function::FromPacked([encode, devices = Devices()](PackedArgs packed, Any* result) {
    const auto* arguments = reinterpret_cast<const TVMFFIAny*>(packed.data());
    const int32_t count = packed.size();
    const int device = devices.current();
    if (device < 0 || count == 0 || arguments[0].type_index != kTVMFFIOpaquePtr ||
        !is_aligned(arguments[0].v_ptr)) {
      encode.CallPacked(packed, result);
      return;
    }
    ThreadCache& cache = thread_cache();
    if (!cache.maps) cache.maps = std::make_unique<TensorMapCache>();
    const uint8_t* map = cache.maps->find_next(device, arguments, count);
    EncodeKey key;
    if (map == nullptr) {
      if (!key.set(device, arguments, count)) {
        encode.CallPacked(packed, result);
        return;
      }
      map = cache.maps->find(key);
    }
    if (map != nullptr) {
      ++cache.hits;
      std::memcpy(arguments[0].v_ptr, map, kTensorMapBytes);
      return;
    }
    ++cache.misses;
    encode.CallPacked(packed, result);  // throws if it fails, and nothing is kept
    cache.maps->insert(key, static_cast<const uint8_t*>(arguments[0].v_ptr));
  });
}

tvm::ffi::Tuple<int64_t, int64_t> counts() {
  return tvm::ffi::Tuple<int64_t, int64_t>(thread_cache().hits, thread_cache().misses);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("warploom.launch.cached_encode", cached_encode,
           "runtime.cuTensorMapEncodeTiled that remembers what it has encoded, given that function.")
      .def("warploom.launch.tensor_map_counts", counts,
           "How often this thread has found a tensor map, and how often it has encoded one.");
}

}  // namespace
}  // namespace warploom
