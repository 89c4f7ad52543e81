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
constexpr int kInvalidHandle = 400;
constexpr int kNotFound = 500;
constexpr int kLaunchFailed = 719;
constexpr int kCaptureUnsupported = 900;
constexpr int kCaptureInvalidated = 901;

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

// cudaMemcpyKind.
enum CopyKind : int { kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3 };

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
  kMemoryClockRate = 36,
  kGlobalMemoryBusWidth = 37,
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

namespace warploom::emulator {
struct Device;
struct Graph;
}  // namespace warploom::emulator

// What the emulated runtime library takes from the emulated driver library.
extern "C" {
int warploom_emulator_device_count();
const warploom::emulator::Device* warploom_emulator_device(int index);  // nullptr: none such
uint32_t warploom_emulator_multiprocessors(int index);
int warploom_emulator_current_device();
int warploom_emulator_set_device(int index);
// In the memory of the current device.
void* warploom_emulator_allocate(std::size_t bytes);
int warploom_emulator_release(void* pointer);
std::size_t warploom_emulator_allocated();
const char* warploom_emulator_error();  // what went wrong last
// `to_device`, `from_device`: that side has to lie in an allocation of a device.
int warploom_emulator_copy(void* stream, void* to, const void* from, std::size_t bytes,
                           bool to_device, bool from_device);
int warploom_emulator_begin_capture(void* stream);
bool warploom_emulator_is_captured(void* stream);
warploom::emulator::Graph* warploom_emulator_end_capture(void* stream);  // nullptr: no capture
warploom::emulator::Graph* warploom_emulator_copy_graph(const warploom::emulator::Graph* graph);
int warploom_emulator_replay_graph(const warploom::emulator::Graph* graph);
void warploom_emulator_delete_graph(warploom::emulator::Graph* graph);
}

#endif  // WARPLOOM_EMULATOR_DRIVER_CUDA_ABI_H_
