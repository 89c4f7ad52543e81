// libcuda.so.1 of the emulator: copies and fills.

#include <cstddef>
#include <cstdint>

#include "emulator/driver/copy.h"
#include "emulator/driver/cuda_abi.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

void* pointer_of(uint64_t address) { return reinterpret_cast<void*>(address); }

CopySide on_device(uint64_t address) { return {pointer_of(address), true}; }
// What is on the host by the name of the function may be anywhere.
CopySide on_host(const void* pointer) { return {const_cast<void*>(pointer), false}; }

template <class Structure>
int copy_of(const Structure* copy, void* stream) {
  CopySide to, from;
  CopyExtent extent;
  if (copy == nullptr) return abi::kInvalidValue;
  if (!read_copy(*copy, &to, &from, &extent)) return abi::kNotSupported;
  return submit_copy(stream, to, from, extent);
}

int fill(uint64_t to, uint32_t value, std::size_t width, std::size_t count, void* stream) {
  return submit_fill(stream, pointer_of(to), 0, value, width, count, 1);
}

}  // namespace

WARPLOOM_CUDA_API int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, std::size_t bytes,
                                           void* stream) {
  return submit_copy(stream, on_device(to), on_host(from), {bytes});
}

WARPLOOM_CUDA_API int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, std::size_t bytes,
                                           void* stream) {
  return submit_copy(stream, on_host(to), on_device(from), {bytes});
}

WARPLOOM_CUDA_API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, std::size_t bytes,
                                           void* stream) {
  return submit_copy(stream, on_device(to), on_device(from), {bytes});
}

WARPLOOM_CUDA_API int cuMemcpyAsync(uint64_t to, uint64_t from, std::size_t bytes, void* stream) {
  return submit_copy(stream, on_host(pointer_of(to)), on_host(pointer_of(from)), {bytes});
}

WARPLOOM_CUDA_API int cuMemcpyPeerAsync(uint64_t to, void*, uint64_t from, void*, std::size_t bytes,
                                        void* stream) {
  return submit_copy(stream, on_device(to), on_device(from), {bytes});
}

WARPLOOM_CUDA_API int cuMemcpyHtoD_v2(uint64_t to, const void* from, std::size_t bytes) {
  return cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr);
}

WARPLOOM_CUDA_API int cuMemcpyDtoH_v2(void* to, uint64_t from, std::size_t bytes) {
  return cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr);
}

WARPLOOM_CUDA_API int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, std::size_t bytes) {
  return cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr);
}

WARPLOOM_CUDA_API int cuMemcpy(uint64_t to, uint64_t from, std::size_t bytes) {
  return cuMemcpyAsync(to, from, bytes, nullptr);
}

WARPLOOM_CUDA_API int cuMemcpyPeer(uint64_t to, void* to_context, uint64_t from,
                                   void* from_context, std::size_t bytes) {
  return cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, nullptr);
}

WARPLOOM_CUDA_API int cuMemcpy2DAsync_v2(const abi::Copy2d* copy, void* stream) {
  return copy_of(copy, stream);
}

WARPLOOM_CUDA_API int cuMemcpy2D_v2(const abi::Copy2d* copy) { return copy_of(copy, nullptr); }

WARPLOOM_CUDA_API int cuMemcpy2DUnaligned_v2(const abi::Copy2d* copy) {
  return copy_of(copy, nullptr);
}

WARPLOOM_CUDA_API int cuMemcpy3DAsync_v2(const abi::Copy3d* copy, void* stream) {
  return copy_of(copy, stream);
}

WARPLOOM_CUDA_API int cuMemcpy3D_v2(const abi::Copy3d* copy) { return copy_of(copy, nullptr); }

// Fills: elements of 8, 16 and 32 bits, at once and in streams, in one and in two dimensions.
#define WARPLOOM_FILL(bits, type)                                                                  \
  WARPLOOM_CUDA_API int cuMemsetD##bits##Async(uint64_t to, type value, std::size_t count,         \
                                               void* stream) {                                     \
    return fill(to, value, sizeof(type), count, stream);                                           \
  }                                                                                                \
  WARPLOOM_CUDA_API int cuMemsetD##bits##_v2(uint64_t to, type value, std::size_t count) {         \
    return fill(to, value, sizeof(type), count, nullptr);                                          \
  }                                                                                                \
  WARPLOOM_CUDA_API int cuMemsetD2D##bits##Async(uint64_t to, std::size_t pitch, type value,       \
                                                 std::size_t width, std::size_t height,            \
                                                 void* stream) {                                   \
    return submit_fill(stream, pointer_of(to), pitch, value, sizeof(type), width, height);         \
  }                                                                                                \
  WARPLOOM_CUDA_API int cuMemsetD2D##bits##_v2(uint64_t to, std::size_t pitch, type value,         \
                                               std::size_t width, std::size_t height) {            \
    return submit_fill(nullptr, pointer_of(to), pitch, value, sizeof(type), width, height);        \
  }
WARPLOOM_FILL(8, unsigned char)
WARPLOOM_FILL(16, unsigned short)
WARPLOOM_FILL(32, unsigned)
#undef WARPLOOM_FILL
