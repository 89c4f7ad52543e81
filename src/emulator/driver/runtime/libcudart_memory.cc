// libcudart.so.13 of the emulator: memory.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/runtime/cudart.h"

using namespace warploom::emulator;           // NOLINT: everything below belongs to the emulator
using namespace warploom::emulator::runtime;  // NOLINT

namespace {

// cudaMemcpyKind.
enum CopyKind : int { kHostToHost = 0, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3 };

// cudaPitchedPtr, cudaPos, cudaExtent and cudaMemcpy3DParms.
struct Pitched {
  void* pointer;
  std::size_t pitch, width, height;
};

struct Position {
  std::size_t x, y, z;
};

struct Copy3d {
  void* from_array;
  Position from_at;
  Pitched from;
  void* to_array;
  Position to_at;
  Pitched to;
  Position extent;
  int kind;
};

struct PointerAttributes {
  int kind;
  int device;
  void* device_pointer;
  void* host_pointer;
  long reserved[8];
};

// Where a side is by the kind of the copy; both may be anywhere if the kind leaves it open, and so
// may what is on the host.
unsigned place(int kind, bool to) {
  const bool on_device = kind == kDeviceToDevice || kind == (to ? kHostToDevice : kDeviceToHost);
  return on_device ? abi::kTypeDevice : abi::kTypeUnified;
}

int copy_2d(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
            std::size_t width, std::size_t height, int kind, void* stream) {
  abi::Copy2d copy{};
  copy.from.type = place(kind, false);
  copy.from.device = address_of(from);
  copy.from.pitch = from_pitch;
  copy.to.type = place(kind, true);
  copy.to.device = address_of(to);
  copy.to.pitch = to_pitch;
  copy.width = width;
  copy.height = height;
  return cuMemcpy2DAsync_v2(&copy, stream);
}

}  // namespace

WARPLOOM_CUDA_API int cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
  return noted(cuMemGetInfo_v2(free_bytes, total));
}

WARPLOOM_CUDA_API int cudaMalloc(void** pointer, std::size_t bytes) {
  return noted(cuMemAlloc_v2(address_at(pointer), bytes));
}

WARPLOOM_CUDA_API int cudaMallocPitch(void** pointer, std::size_t* pitch, std::size_t width,
                                      std::size_t height) {
  return noted(cuMemAllocPitch_v2(address_at(pointer), pitch, width, height, 4));
}

WARPLOOM_CUDA_API int cudaMallocManaged(void** pointer, std::size_t bytes, unsigned flags) {
  return noted(cuMemAllocManaged(address_at(pointer), bytes, flags));
}

WARPLOOM_CUDA_API int cudaMallocAsync(void** pointer, std::size_t bytes, void* stream) {
  return noted(cuMemAllocAsync(address_at(pointer), bytes, stream));
}

WARPLOOM_CUDA_API int cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, void* pool,
                                              void* stream) {
  return noted(cuMemAllocFromPoolAsync(address_at(pointer), bytes, pool, stream));
}

WARPLOOM_CUDA_API int cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  return noted(cuMemHostAlloc(pointer, bytes, flags));
}

WARPLOOM_CUDA_API int cudaMallocHost(void** pointer, std::size_t bytes) {
  return cudaHostAlloc(pointer, bytes, 0);
}

WARPLOOM_CUDA_API int cudaFree(void* pointer) {
  return noted(cuMemFree_v2(address_of(pointer)));
}

WARPLOOM_CUDA_API int cudaFreeHost(void* pointer) { return cudaFree(pointer); }

WARPLOOM_CUDA_API int cudaFreeAsync(void* pointer, void* stream) {
  return noted(cuMemFreeAsync(address_of(pointer), stream));
}

WARPLOOM_CUDA_API int cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags) {
  return noted(cuMemHostRegister_v2(pointer, bytes, flags));
}

WARPLOOM_CUDA_API int cudaHostUnregister(void* pointer) {
  return noted(cuMemHostUnregister(pointer));
}

WARPLOOM_CUDA_API int cudaHostGetDevicePointer(void** address, void* pointer, unsigned flags) {
  return noted(cuMemHostGetDevicePointer_v2(address_at(address), pointer, flags));
}

WARPLOOM_CUDA_API int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind,
                                      void* stream) {
  switch (kind) {
    case kHostToDevice: return noted(cuMemcpyHtoDAsync_v2(address_of(to), from, bytes, stream));
    case kDeviceToHost: return noted(cuMemcpyDtoHAsync_v2(to, address_of(from), bytes, stream));
    case kDeviceToDevice:
      return noted(cuMemcpyDtoDAsync_v2(address_of(to), address_of(from), bytes, stream));
    default: return noted(cuMemcpyAsync(address_of(to), address_of(from), bytes, stream));
  }
}

WARPLOOM_CUDA_API int cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  return waited(cudaMemcpyAsync(to, from, bytes, kind, nullptr));
}

WARPLOOM_CUDA_API int cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                          void* stream) {
  return cudaMemcpyAsync(to, from, bytes, kDeviceToDevice, stream);
}

WARPLOOM_CUDA_API int cudaMemcpyPeer(void* to, int, const void* from, int, std::size_t bytes) {
  return cudaMemcpy(to, from, bytes, kDeviceToDevice);
}

WARPLOOM_CUDA_API int cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                                        std::size_t from_pitch, std::size_t width,
                                        std::size_t height, int kind, void* stream) {
  return noted(copy_2d(to, to_pitch, from, from_pitch, width, height, kind, stream));
}

WARPLOOM_CUDA_API int cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from,
                                   std::size_t from_pitch, std::size_t width, std::size_t height,
                                   int kind) {
  return waited(copy_2d(to, to_pitch, from, from_pitch, width, height, kind, nullptr));
}

WARPLOOM_CUDA_API int cudaMemcpy3DAsync(const Copy3d* asked, void* stream) {
  if (asked == nullptr) return noted(abi::kInvalidValue);
  abi::Copy3d copy{};
  const unsigned array = abi::kTypeArray;  // which the driver refuses
  copy.from.type = asked->from_array != nullptr ? array : place(asked->kind, false);
  copy.from.device = address_of(asked->from.pointer);
  copy.from.pitch = asked->from.pitch;
  copy.from.height = asked->from.height;
  copy.from.x = asked->from_at.x;
  copy.from.y = asked->from_at.y;
  copy.from.z = asked->from_at.z;
  copy.to.type = asked->to_array != nullptr ? array : place(asked->kind, true);
  copy.to.device = address_of(asked->to.pointer);
  copy.to.pitch = asked->to.pitch;
  copy.to.height = asked->to.height;
  copy.to.x = asked->to_at.x;
  copy.to.y = asked->to_at.y;
  copy.to.z = asked->to_at.z;
  copy.width = asked->extent.x;
  copy.height = asked->extent.y;
  copy.depth = asked->extent.z;
  return noted(cuMemcpy3DAsync_v2(&copy, stream));
}

WARPLOOM_CUDA_API int cudaMemcpy3D(const Copy3d* copy) {
  return waited(cudaMemcpy3DAsync(copy, nullptr));
}

WARPLOOM_CUDA_API int cudaMemsetAsync(void* to, int value, std::size_t bytes, void* stream) {
  return noted(cuMemsetD8Async(address_of(to), static_cast<unsigned char>(value), bytes, stream));
}

WARPLOOM_CUDA_API int cudaMemset(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

WARPLOOM_CUDA_API int cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width,
                                        std::size_t height, void* stream) {
  return noted(cuMemsetD2D8Async(address_of(to), pitch, static_cast<unsigned char>(value), width,
                                 height, stream));
}

WARPLOOM_CUDA_API int cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width,
                                   std::size_t height) {
  return cudaMemset2DAsync(to, pitch, value, width, height, nullptr);
}

// Hints about managed memory change nothing.
WARPLOOM_CUDA_API int cudaMemAdvise(const void*, std::size_t, int, int, int) {
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaMemPrefetchAsync(const void*, std::size_t, int, int, unsigned, void*) {
  return abi::kSuccess;
}

// Memory that nothing is known about is the program's own, which is no error.
WARPLOOM_CUDA_API int cudaPointerGetAttributes(PointerAttributes* attributes, const void* pointer) {
  if (attributes == nullptr) return noted(abi::kInvalidValue);
  constexpr int kKind = 2, kManaged = 8, kDevice = 9;
  enum Kind : int { kUnregistered = 0, kOnHost = 1, kOnDevice = 2, kIsManaged = 3 };
  *attributes = {};
  attributes->device = -1;
  unsigned kind = 0, managed = 0;
  const uint64_t address = address_of(pointer);
  if (cuPointerGetAttribute(&kind, kKind, address) != abi::kSuccess) {
    attributes->kind = kUnregistered;
    attributes->host_pointer = const_cast<void*>(pointer);
    return abi::kSuccess;
  }
  cuPointerGetAttribute(&managed, kManaged, address);
  cuPointerGetAttribute(&attributes->device, kDevice, address);
  attributes->kind = managed != 0 ? kIsManaged : kind == abi::kTypeHost ? kOnHost : kOnDevice;
  attributes->device_pointer = const_cast<void*>(pointer);
  if (attributes->kind != kOnDevice) attributes->host_pointer = const_cast<void*>(pointer);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaDeviceGetDefaultMemPool(void** pool, int device) {
  return noted(cuDeviceGetDefaultMemPool(pool, device));
}

WARPLOOM_CUDA_API int cudaDeviceGetMemPool(void** pool, int device) {
  return noted(cuDeviceGetMemPool(pool, device));
}

WARPLOOM_CUDA_API int cudaDeviceSetMemPool(int device, void* pool) {
  return noted(cuDeviceSetMemPool(device, pool));
}

WARPLOOM_CUDA_API int cudaMemPoolSetAttribute(void* pool, int attribute, void* value) {
  return noted(cuMemPoolSetAttribute(pool, attribute, value));
}

WARPLOOM_CUDA_API int cudaMemPoolGetAttribute(void* pool, int attribute, void* value) {
  return noted(cuMemPoolGetAttribute(pool, attribute, value));
}

WARPLOOM_CUDA_API int cudaMemPoolTrimTo(void* pool, std::size_t bytes) {
  return noted(cuMemPoolTrimTo(pool, bytes));
}
