// What of the binary interface of CUDA 13 the emulated libraries need, so that they build without
// CUDA's headers. Names and values are those of cuda.h and driver_types.h.

#ifndef WARPLOOM_EMULATOR_DRIVER_CUDA_ABI_H_
#define WARPLOOM_EMULATOR_DRIVER_CUDA_ABI_H_

#include <cstddef>
#include <cstdint>

#define WARPLOOM_CUDA_API extern "C" __attribute__((visibility("default")))

namespace warploom::emulator::abi {

// CUresult and cudaError_t.
constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidPtx = 218;
constexpr int kNotFound = 500;
constexpr int kLaunchFailed = 719;
constexpr int kNotSupported = 801;

constexpr int kDriverVersion = 13000;

constexpr unsigned kAttributeClusterDimension = 4;

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

// The start of cudaDeviceProp.
struct DeviceProperties {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luid_node_mask;
  std::size_t total_global_memory;
  std::size_t shared_per_cta;
  int registers_per_cta;
  int warp_size;
  std::size_t pitch;
  int max_threads;
  int max_block[3];
  int max_grid[3];
  std::size_t constant_memory;
  int major;
  int minor;
};

// Values of cudaDeviceAttr.
enum Attribute : int {
  kMaxThreadsPerBlock = 1,
  kMaxBlockDimX = 2,
  kMaxBlockDimY = 3,
  kMaxBlockDimZ = 4,
  kMaxGridDimX = 5,
  kMaxGridDimY = 6,
  kMaxGridDimZ = 7,
  kMaxSharedMemoryPerBlock = 8,
  kWarpSize = 10,
  kMaxRegistersPerBlock = 12,
  kClockRate = 13,
  kMultiProcessorCount = 16,
  kL2CacheSize = 38,
  kMaxThreadsPerMultiProcessor = 39,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerMultiprocessor = 81,
  kMaxRegistersPerMultiprocessor = 82,
  kMaxSharedMemoryPerBlockOptin = 97,
  kClusterLaunch = 120,
};

}  // namespace warploom::emulator::abi

// What the emulated runtime library takes from the emulated driver library.
extern "C" {
void* warploom_emulator_allocate(std::size_t bytes);
void warploom_emulator_release(void* pointer);
std::size_t warploom_emulator_allocated();
}

#endif  // WARPLOOM_EMULATOR_DRIVER_CUDA_ABI_H_
