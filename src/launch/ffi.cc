// Puts the cache of tensor maps in front of the function of TVM's runtime that encodes them.

#include <dlfcn.h>
#include <tvm/ffi/container/tuple.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <cstring>
#include <memory>

#include "launch/tensor_map_cache.h"

namespace warploom {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Function;
using tvm::ffi::PackedArgs;

using GetDevice = int (*)(int*);

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

// Of the CUDA runtime that TVM has loaded, which may be the emulated one.
GetDevice find_get_device() {
  void* runtime = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
  void* function = runtime == nullptr ? nullptr : dlsym(runtime, "cudaGetDevice");
  if (function == nullptr) {
    TVM_FFI_THROW(RuntimeError) << "no CUDA runtime is loaded, so that no tensor map is encoded";
  }
  return reinterpret_cast<GetDevice>(function);
}

// The alignment that the driver wants, which the encoding checks.
bool is_aligned(const void* map) { return reinterpret_cast<uintptr_t>(map) % 64 == 0; }

// A GPU of another architecture may want other bytes, so that the device is a part of the key.
Function cached_encode(Function encode) {
  const GetDevice get_device = find_get_device();
  return Function::FromPacked([encode, get_device](PackedArgs packed, Any* result) {
    const auto* arguments = reinterpret_cast<const TVMFFIAny*>(packed.data());
    EncodeKey key;
    int device = -1;
    if (get_device(&device) != 0 || !key.set(device, arguments, packed.size()) ||
        arguments[0].type_index != kTVMFFIOpaquePtr || !is_aligned(arguments[0].v_ptr)) {
      encode.CallPacked(packed, result);
      return;
    }
    ThreadCache& cache = thread_cache();
    if (!cache.maps) cache.maps = std::make_unique<TensorMapCache>();
    const uint64_t hash = key.hash();
    if (const uint8_t* map = cache.maps->find(key, hash)) {
      ++cache.hits;
      std::memcpy(arguments[0].v_ptr, map, kTensorMapBytes);
      return;
    }
    ++cache.misses;
    encode.CallPacked(packed, result);  // throws if it fails, and nothing is kept
    cache.maps->insert(key, hash, static_cast<const uint8_t*>(arguments[0].v_ptr));
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
