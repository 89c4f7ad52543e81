// What of the binary interface of CUDA 13 the emulated libraries need, so that they build without
// CUDA's headers. Names and values are those of cuda.h and driver_types.h.

#ifndef WARPLOOM_EMULATOR_DRIVER_CUDA_ABI_H_
#define WARPLOOM_EMULATOR_DRIVER_CUDA_ABI_H_

#include <cstddef>
#include <cstdint>

#define WARPLOOM_CUDA_API extern "C" __attribute__((visibility("default")))

namespace warploom::emulator::abi {

// CUresult and cudaError_t; driver/error_names.cc has the names of all.
constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidContext = 201;
constexpr int kInvalidPtx = 218;
constexpr int kFileNotFound = 301;
constexpr int kInvalidHandle = 400;
constexpr int kNotFound = 500;
constexpr int kNotReady = 600;
constexpr int kLaunchFailed = 719;
constexpr int kNotSupported = 801;
constexpr int kCaptureUnsupported = 900;
constexpr int kCaptureInvalidated = 901;
constexpr int kCaptureUnmatched = 903;
constexpr int kCaptureUnjoined = 904;
constexpr int kGraphUpdateFailed = 910;

constexpr int kDriverVersion = 13000;

constexpr unsigned kAttributeCooperative = 2;
constexpr unsigned kAttributeClusterDimension = 4;
constexpr unsigned kAttributeProgrammaticSerialization = 6;
constexpr unsigned kMostAttributes = 64;  // cuda.h has fewer

struct LaunchAttribute {
  unsigned id;
  unsigned padding;
  union {
    char bytes[64];
    unsigned dimension[3];
  } value;
};

struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

// CUDA_MEMCPY2D and the start of CUDA_MEMCPY3D.
enum MemoryType : unsigned { kTypeHost = 1, kTypeDevice = 2, kTypeArray = 3, kTypeUnified = 4 };

struct CopySide2d {
  std::size_t x, y;
  unsigned type;
  void* host;
  uint64_t device;
  void* array;
  std::size_t pitch;
};

struct Copy2d {
  CopySide2d from, to;
  std::size_t width, height;
};

struct CopySide3d {
  std::size_t x, y, z, level;
  unsigned type;
  void* host;
  uint64_t device;
  void* array;
  void* reserved;
  std::size_t pitch, height;
};

struct Copy3d {
  CopySide3d from, to;
  std::size_t width, height, depth;
};

// CUDA_KERNEL_NODE_PARAMS_v2, and _v3 with a context behind.
struct KernelNode {
  void* function;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void** arguments;
  void** extra;
  void* kernel;
  void* context;
};

// CUDA_MEMSET_NODE_PARAMS.
struct FillNode {
  uint64_t to;
  std::size_t pitch;
  unsigned value;
  unsigned width;  // bytes of an element
  std::size_t columns, rows;
};

using HostFunction = void (*)(void*);

// CUDA_HOST_NODE_PARAMS.
struct HostNode {
  HostFunction function;
  void* data;
};

static_assert(sizeof(Copy2d) == 128 && sizeof(Copy3d) == 200 && sizeof(KernelNode) == 72 &&
              sizeof(FillNode) == 40 && sizeof(LaunchAttribute) == 72);

}  // namespace warploom::emulator::abi

#endif  // WARPLOOM_EMULATOR_DRIVER_CUDA_ABI_H_
