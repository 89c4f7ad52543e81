// libcuda.so.1 of the emulator: pools of memory. A pool has a device, and nothing in reserve.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/handles.h"
#include "emulator/driver/session.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

WARPLOOM_CUDA_API int cuMemAllocAsync(uint64_t* pointer, std::size_t bytes, void* stream);
WARPLOOM_CUDA_API int cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned flags);

namespace {

// CUmemLocation: where the memory of a pool is.
enum Place : int { kOnDevice = 1, kOnHost = 2 };

// The start of CUmemPoolProps.
struct Properties {
  int allocation_type;
  int handle_types;
  int place;
  int place_number;
};

struct Pool {
  int device = 0;
  MemoryKind kind = MemoryKind::kDevice;
  uint64_t threshold = 0;  // all that a program can set, and see again
  std::map<int, int> switches{{1, 1}, {2, 1}, {3, 1}};
};

enum PoolAttribute : int { kLastSwitch = 3, kThreshold = 4, kLastAttribute = 8 };

struct Pools {
  Handles<Pool> all;
  std::map<int, void*> defaults, chosen;  // by device
};

Pools& pools() {
  static auto* made = [] {
    auto* pools = new Pools;
    for (int i = 0; i < device_count(); ++i) {
      auto pool = std::make_shared<Pool>();
      pool->device = i;
      pools->chosen[i] = pools->defaults[i] = pools->all.add(pool);
    }
    return pools;
  }();
  return *made;
}

template <class F>
int with_pool(const void* handle, F f) {
  return guarded(abi::kInvalidValue, [&] {
    std::shared_ptr<Pool> pool = pools().all.find(handle);
    return pool == nullptr ? fail(abi::kInvalidValue, "there is no such pool of memory")
                           : f(*pool);
  });
}

int pool_of(const std::map<int, void*>& from, void** pool, int device) {
  auto entry = from.find(device);
  if (entry == from.end()) return abi::kInvalidDevice;
  if (pool == nullptr) return abi::kInvalidValue;
  *pool = entry->second;
  return abi::kSuccess;
}

}  // namespace

WARPLOOM_CUDA_API int cuDeviceGetDefaultMemPool(void** pool, int device) {
  return guarded(abi::kOutOfMemory, [&] { return pool_of(pools().defaults, pool, device); });
}

WARPLOOM_CUDA_API int cuDeviceGetMemPool(void** pool, int device) {
  return guarded(abi::kOutOfMemory, [&] { return pool_of(pools().chosen, pool, device); });
}

WARPLOOM_CUDA_API int cuDeviceSetMemPool(int device, void* pool) {
  return with_pool(pool, [&](Pool&) {
    if (pools().chosen.count(device) == 0) return abi::kInvalidDevice;
    pools().chosen[device] = pool;
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuMemPoolCreate(void** pool, const Properties* properties) {
  if (pool == nullptr || properties == nullptr) return abi::kInvalidValue;
  return guarded(abi::kOutOfMemory, [&] {
    if (properties->handle_types != 0) {
      return fail(abi::kNotSupported, "pools that other processes share are not served");
    }
    auto made = std::make_shared<Pool>();
    made->kind = properties->place == kOnDevice ? MemoryKind::kDevice : MemoryKind::kHost;
    if (made->kind == MemoryKind::kDevice) {
      if (find_device(properties->place_number) == nullptr) return abi::kInvalidDevice;
      made->device = properties->place_number;
    }
    *pool = pools().all.add(std::move(made));
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuMemPoolDestroy(void* pool) {
  return guarded(abi::kInvalidValue, [&] {
    for (const auto& [device, handle] : pools().defaults) {
      if (handle == pool) return fail(abi::kInvalidValue, "a default pool cannot be destroyed");
    }
    return pools().all.remove(pool) != nullptr ? abi::kSuccess : abi::kInvalidValue;
  });
}

WARPLOOM_CUDA_API int cuMemPoolTrimTo(void* pool, std::size_t) {
  return with_pool(pool, [](Pool&) { return abi::kSuccess; });
}

WARPLOOM_CUDA_API int cuMemPoolSetAttribute(void* handle, int attribute, void* value) {
  if (value == nullptr) return abi::kInvalidValue;
  return with_pool(handle, [&](Pool& pool) {
    if (attribute < 1 || attribute > kLastAttribute) return abi::kInvalidValue;
    if (attribute <= kLastSwitch) pool.switches[attribute] = *static_cast<int*>(value);
    if (attribute == kThreshold) pool.threshold = *static_cast<uint64_t*>(value);
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuMemPoolGetAttribute(void* handle, int attribute, void* value) {
  if (value == nullptr) return abi::kInvalidValue;
  return with_pool(handle, [&](Pool& pool) {
    if (attribute < 1 || attribute > kLastAttribute) return abi::kInvalidValue;
    if (attribute <= kLastSwitch) {
      *static_cast<int*>(value) = pool.switches[attribute];
    } else {
      *static_cast<uint64_t*>(value) = attribute == kThreshold ? pool.threshold : 0;
    }
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuMemPoolSetAccess(void* pool, const void*, std::size_t) {
  return with_pool(pool, [](Pool&) { return abi::kSuccess; });
}

// Where memory is, it can be read and written; devices do not reach that of each other.
WARPLOOM_CUDA_API int cuMemPoolGetAccess(int* flags, void* handle, const int* location) {
  if (flags == nullptr || location == nullptr) return abi::kInvalidValue;
  return with_pool(handle, [&](Pool& pool) {
    constexpr int kReadWrite = 3;
    const bool reaches = pool.kind != MemoryKind::kDevice ||
                         (location[0] == kOnDevice && location[1] == pool.device);
    *flags = reaches ? kReadWrite : 0;
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuMemAllocFromPoolAsync(uint64_t* pointer, std::size_t bytes, void* handle,
                                              void* stream) {
  return with_pool(handle, [&](Pool& pool) {
    if (pool.kind != MemoryKind::kDevice) {
      return cuMemHostAlloc(reinterpret_cast<void**>(pointer), bytes, 0);
    }
    const int before = Session::current_device();
    Session::set_current_device(pool.device);
    const int code = cuMemAllocAsync(pointer, bytes, stream);
    Session::set_current_device(before);
    return code;
  });
}
