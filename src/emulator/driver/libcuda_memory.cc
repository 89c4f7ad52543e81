// libcuda.so.1 of the emulator: memory, and what is known about pointers.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/session.h"
#include "emulator/driver/stream.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

void* pointer_of(uint64_t address) { return reinterpret_cast<void*>(address); }

int allocate(void** pointer, std::size_t bytes, MemoryKind kind) {
  if (pointer == nullptr) return abi::kInvalidValue;
  return guarded(abi::kOutOfMemory, [&] {
    *pointer = Session::instance().allocate(bytes, kind);
    return code_of(*pointer != nullptr, abi::kOutOfMemory);
  });
}

int release(void* pointer) {
  return guarded(abi::kInvalidValue, [&] {
    return code_of(Session::instance().release(pointer), abi::kInvalidValue);
  });
}

// Memory that a graph allocates would be another one for every launch.
int in_stream(void* stream) {
  if (!is_stream(stream)) return fail(abi::kInvalidHandle, "there is no such stream");
  if (!is_captured(stream)) return abi::kSuccess;
  return fail(abi::kNotSupported, "graphs that allocate or free memory are not served");
}

enum PointerAttribute : int {
  kContext = 1,
  kMemoryType = 2,
  kDevicePointer = 3,
  kHostPointer = 4,
  kSyncMemops = 6,
  kBufferId = 7,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kLegacyIpc = 10,
  kRangeStart = 11,
  kRangeSize = 12,
  kMapped = 13,
  kHandleTypes = 14,
  kGpuDirect = 15,
  kAccessFlags = 16,
  kPool = 17,
};

template <class Value>
int put(void* place, Value value) {
  *static_cast<Value*>(place) = value;
  return abi::kSuccess;
}

int attribute_of(void* place, int attribute, const MemoryFacts& facts, uint64_t address) {
  const bool on_host = facts.kind == MemoryKind::kHost || facts.kind == MemoryKind::kRegistered;
  switch (attribute) {
    case kContext: return put<uint64_t>(place, static_cast<uint64_t>(facts.device) + 1);
    case kMemoryType: return put<unsigned>(place, on_host ? abi::kTypeHost : abi::kTypeDevice);
    case kDevicePointer: return put(place, address);
    case kHostPointer:
      if (facts.kind == MemoryKind::kDevice) return abi::kInvalidValue;
      return put(place, address);
    case kSyncMemops: return put(place, 0u);
    case kBufferId: return put<uint64_t>(place, facts.number);
    case kIsManaged: return put(place, facts.kind == MemoryKind::kManaged ? 1u : 0u);
    case kDeviceOrdinal: return put(place, facts.device);
    case kLegacyIpc: return put(place, 0u);
    case kRangeStart: return put(place, facts.begin);
    case kRangeSize: return put<std::size_t>(place, facts.bytes);
    case kMapped: return put(place, 1u);
    case kHandleTypes: return put<uint64_t>(place, 0);
    case kGpuDirect: return put(place, 0u);
    case kAccessFlags: return put(place, 3u);  // reads and writes
    case kPool: return put<uint64_t>(place, 0);
    default: return abi::kInvalidValue;
  }
}

}  // namespace

WARPLOOM_CUDA_API int cuMemAlloc_v2(uint64_t* pointer, std::size_t bytes) {
  return allocate(reinterpret_cast<void**>(pointer), bytes, MemoryKind::kDevice);
}

WARPLOOM_CUDA_API int cuMemAllocPitch_v2(uint64_t* pointer, std::size_t* pitch, std::size_t width,
                                         std::size_t height, unsigned) {
  if (pitch == nullptr || width > kMemoryBytes || height > kMemoryBytes) return abi::kInvalidValue;
  *pitch = (width + 511) / 512 * 512;
  if (height != 0 && *pitch > kMemoryBytes / height) return abi::kOutOfMemory;
  return cuMemAlloc_v2(pointer, *pitch * height);
}

WARPLOOM_CUDA_API int cuMemAllocManaged(uint64_t* pointer, std::size_t bytes, unsigned) {
  return allocate(reinterpret_cast<void**>(pointer), bytes, MemoryKind::kManaged);
}

WARPLOOM_CUDA_API int cuMemFree_v2(uint64_t pointer) { return release(pointer_of(pointer)); }

WARPLOOM_CUDA_API int cuMemAllocHost_v2(void** pointer, std::size_t bytes) {
  return allocate(pointer, bytes, MemoryKind::kHost);
}

WARPLOOM_CUDA_API int cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return allocate(pointer, bytes, MemoryKind::kHost);
}

WARPLOOM_CUDA_API int cuMemFreeHost(void* pointer) { return release(pointer); }

WARPLOOM_CUDA_API int cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned) {
  return guarded(abi::kInvalidValue, [&] {
    return code_of(Session::instance().register_host(pointer, bytes), abi::kInvalidValue);
  });
}

WARPLOOM_CUDA_API int cuMemHostUnregister(void* pointer) {
  return guarded(abi::kInvalidValue, [&] {
    return code_of(Session::instance().unregister_host(pointer), abi::kInvalidValue);
  });
}

WARPLOOM_CUDA_API int cuMemHostGetDevicePointer_v2(uint64_t* address, void* pointer, unsigned) {
  if (address == nullptr) return abi::kInvalidValue;
  return guarded(abi::kInvalidValue, [&] {
    const auto facts = Session::instance().find_memory(pointer);
    if (!facts || facts->kind == MemoryKind::kDevice) {
      return fail(abi::kInvalidValue, "the pointer is in no pinned memory of the host");
    }
    *address = reinterpret_cast<uint64_t>(pointer);
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuMemHostGetFlags(unsigned* flags, void*) {
  if (flags == nullptr) return abi::kInvalidValue;
  *flags = 2;  // mapped for devices
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total) {
  if (free_bytes == nullptr || total == nullptr) return abi::kInvalidValue;
  const std::size_t used =
      guarded(std::size_t{0}, [] { return Session::instance().allocated(); });
  *total = kMemoryBytes;
  *free_bytes = used < kMemoryBytes ? kMemoryBytes - used : 0;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuMemGetAddressRange_v2(uint64_t* base, std::size_t* bytes, uint64_t address) {
  return guarded(abi::kNotFound, [&] {
    const auto facts = Session::instance().find_memory(pointer_of(address));
    if (!facts) return fail(abi::kNotFound, "the address is in no allocation");
    if (base != nullptr) *base = facts->begin;
    if (bytes != nullptr) *bytes = facts->bytes;
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuMemAllocAsync(uint64_t* pointer, std::size_t bytes, void* stream) {
  return guarded(abi::kOutOfMemory, [&] {
    if (int code = in_stream(stream); code != abi::kSuccess) return code;
    return cuMemAlloc_v2(pointer, bytes);
  });
}

WARPLOOM_CUDA_API int cuMemFreeAsync(uint64_t pointer, void* stream) {
  return guarded(abi::kInvalidValue, [&] {
    if (int code = in_stream(stream); code != abi::kSuccess) return code;
    return cuMemFree_v2(pointer);
  });
}

// Memory of the host may be anywhere already, and hints about it change nothing.
WARPLOOM_CUDA_API int cuMemAdvise(uint64_t, std::size_t, int, int) { return abi::kSuccess; }

WARPLOOM_CUDA_API int cuMemAdvise_v2(uint64_t, std::size_t, int, int, int) {
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuMemPrefetchAsync(uint64_t, std::size_t, int, void*) {
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuMemPrefetchAsync_v2(uint64_t, std::size_t, int, int, unsigned, void*) {
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuPointerGetAttribute(void* value, int attribute, uint64_t address) {
  if (value == nullptr) return abi::kInvalidValue;
  return guarded(abi::kInvalidValue, [&] {
    const auto facts = Session::instance().find_memory(pointer_of(address));
    return facts ? attribute_of(value, attribute, *facts, address) : abi::kInvalidValue;
  });
}

// Attributes that a pointer does not have are zero; that is no error.
WARPLOOM_CUDA_API int cuPointerGetAttributes(unsigned count, const int* attributes, void** values,
                                             uint64_t address) {
  if (attributes == nullptr || values == nullptr) return abi::kInvalidValue;
  for (unsigned i = 0; i < count; ++i) {
    if (cuPointerGetAttribute(values[i], attributes[i], address) == abi::kSuccess) continue;
    const bool is_long = attributes[i] == kContext || attributes[i] == kDevicePointer ||
                         attributes[i] == kHostPointer || attributes[i] == kBufferId ||
                         attributes[i] == kRangeStart || attributes[i] == kRangeSize ||
                         attributes[i] == kPool || attributes[i] == kHandleTypes;
    if (attributes[i] == kDeviceOrdinal) {
      put(values[i], -2);  // CU_DEVICE_INVALID
    } else if (is_long) {
      put<uint64_t>(values[i], 0);
    } else {
      put(values[i], 0u);
    }
  }
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuPointerSetAttribute(const void*, int, uint64_t) { return abi::kSuccess; }
