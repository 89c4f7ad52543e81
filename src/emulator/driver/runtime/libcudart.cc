// libcudart.so.13 of the emulator: devices and errors. Whatever it does, it has from the driver.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "emulator/base/device.h"
#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/runtime/cudart.h"
#include "emulator/driver/error_names.h"

using namespace warploom::emulator;           // NOLINT: everything below belongs to the emulator
using namespace warploom::emulator::runtime;  // NOLINT

namespace warploom::emulator::runtime {
namespace {

thread_local int last = 0;
thread_local int unseen_launch = 0;

}  // namespace

int noted(int code) {
  if (code != abi::kSuccess && code != abi::kNotReady) last = code;
  return code;
}

int last_error(bool clear) {
  const int code = last;
  if (clear) last = unseen_launch = 0;
  return code;
}

void launch_failed(int code) { unseen_launch = code; }

int waited(int code) {
  const int failed = std::exchange(unseen_launch, 0);
  return noted(code != abi::kSuccess ? code : failed);
}

}  // namespace warploom::emulator::runtime

namespace {

// cudaDeviceProp of CUDA 13. What is not named here is 0.
struct DeviceProperties {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luid_node_mask;
  std::size_t total_global_memory, shared_per_cta;
  int registers_per_cta, warp_size;
  std::size_t pitch;
  int max_threads, max_block[3], max_grid[3];
  std::size_t constant_memory;
  int major, minor;
  std::size_t texture_alignment, texture_pitch_alignment;
  int multiprocessors, integrated, maps_host_memory;
  int textures[25], surfaces[14];
  std::size_t surface_alignment;
  int concurrent_kernels, ecc, pci_bus, pci_device, pci_domain, tcc, engines, unified_addressing;
  int memory_bits, l2_bytes, l2_persisting, max_threads_per_sm, stream_priorities, l1, l1_local;
  std::size_t shared_per_sm;
  int registers_per_sm, managed_memory, is_multi_board, board, host_atomics, pageable;
  int concurrent_managed, preemption, registered_pointers, cooperative;
  std::size_t shared_per_cta_opt_in;
  int pageable_by_host, direct_managed, ctas_per_sm, access_window;
  std::size_t reserved_shared;
  int host_register, sparse, host_register_read_only, timeline, pools, rdma;
  unsigned rdma_flush;
  int rdma_order;
  unsigned pool_handles;
  int deferred_arrays, ipc_events, clusters, function_pointers, numa_config, numa_id, mps, host_numa;
  unsigned pci_device_id, pci_subsystem_id;
  int host_numa_ipc, reserved[56];
};
static_assert(sizeof(DeviceProperties) == 1008 && offsetof(DeviceProperties, clusters) == 748);

int attribute(int number, int device) {
  int value = 0;
  cuDeviceGetAttribute(&value, number, device);
  return value;
}

}  // namespace

WARPLOOM_CUDA_API int cudaGetDeviceCount(int* count) { return noted(cuDeviceGetCount(count)); }

WARPLOOM_CUDA_API int cudaGetDevice(int* device) {
  if (device == nullptr) return noted(abi::kInvalidValue);
  *device = warploom_emulator_current_device();
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaSetDevice(int device) {
  return noted(warploom_emulator_set_device(device));
}

WARPLOOM_CUDA_API int cudaInitDevice(int device, unsigned, unsigned) {
  return noted(warploom_emulator_set_device(device));
}

WARPLOOM_CUDA_API int cudaSetDeviceFlags(unsigned) { return abi::kSuccess; }

WARPLOOM_CUDA_API int cudaGetDeviceFlags(unsigned* flags) {
  if (flags == nullptr) return noted(abi::kInvalidValue);
  *flags = 8;  // cudaDeviceMapHost
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaDeviceGetAttribute(int* value, int number, int device) {
  return noted(cuDeviceGetAttribute(value, number, device));
}

WARPLOOM_CUDA_API int cudaGetDeviceProperties(DeviceProperties* properties, int device) {
  if (properties == nullptr) return noted(abi::kInvalidValue);
  DeviceProperties made{};
  const int code = cuDeviceGetName(made.name, sizeof(made.name), device);
  if (code != abi::kSuccess) return noted(code);
  cuDeviceGetUuid_v2(made.uuid, device);
  made.total_global_memory = kMemoryBytes;
  struct Row {
    int* place;
    int attribute;
  };
  const Row rows[] = {
      {&made.registers_per_cta, 12}, {&made.warp_size, 10},
      {&made.max_threads, 1},        {&made.max_block[0], 2},
      {&made.max_block[1], 3},       {&made.max_block[2], 4},
      {&made.max_grid[0], 5},        {&made.max_grid[1], 6},
      {&made.max_grid[2], 7},        {&made.major, 75},
      {&made.minor, 76},             {&made.multiprocessors, 16},
      {&made.maps_host_memory, 19},  {&made.concurrent_kernels, 31},
      {&made.engines, 40},           {&made.unified_addressing, 41},
      {&made.memory_bits, 37},       {&made.l2_bytes, 38},
      {&made.max_threads_per_sm, 39}, {&made.stream_priorities, 78},
      {&made.l1, 79},                {&made.l1_local, 80},
      {&made.registers_per_sm, 82},  {&made.managed_memory, 83},
      {&made.concurrent_managed, 89}, {&made.preemption, 90},
      {&made.registered_pointers, 91}, {&made.cooperative, 95},
      {&made.ctas_per_sm, 106},      {&made.host_register, 99},
      {&made.host_register_read_only, 113}, {&made.pools, 115},
      {&made.clusters, 120},         {&made.function_pointers, 129},
      {&made.host_numa, 134},
  };
  for (const Row& row : rows) *row.place = attribute(row.attribute, device);
  made.shared_per_cta = static_cast<std::size_t>(attribute(8, device));
  made.shared_per_sm = static_cast<std::size_t>(attribute(81, device));
  made.shared_per_cta_opt_in = static_cast<std::size_t>(attribute(97, device));
  made.reserved_shared = static_cast<std::size_t>(attribute(111, device));
  made.constant_memory = static_cast<std::size_t>(attribute(9, device));
  made.pitch = static_cast<std::size_t>(attribute(11, device));
  made.texture_alignment = made.surface_alignment = 512;
  made.texture_pitch_alignment = 32;
  made.pci_bus = device + 1;
  std::memcpy(properties, &made, sizeof(made));
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return noted(cuDeviceGetPCIBusId(text, length, device));
}

WARPLOOM_CUDA_API int cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return noted(cuDeviceGetByPCIBusId(device, text));
}

WARPLOOM_CUDA_API int cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return noted(cuDeviceCanAccessPeer(can, device, peer));
}

WARPLOOM_CUDA_API int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return noted(cuCtxGetStreamPriorityRange(least, greatest));
}

WARPLOOM_CUDA_API int cudaDeviceSetLimit(int limit, std::size_t value) {
  return noted(cuCtxSetLimit(limit, value));
}

WARPLOOM_CUDA_API int cudaDeviceGetLimit(std::size_t* value, int limit) {
  return noted(cuCtxGetLimit(value, limit));
}

WARPLOOM_CUDA_API int cudaDeviceSetCacheConfig(int) { return abi::kSuccess; }

WARPLOOM_CUDA_API int cudaDeviceSynchronize() { return waited(abi::kSuccess); }

WARPLOOM_CUDA_API int cudaDeviceReset() { return waited(abi::kSuccess); }

WARPLOOM_CUDA_API int cudaDriverGetVersion(int* version) {
  return noted(cuDriverGetVersion(version));
}

WARPLOOM_CUDA_API int cudaRuntimeGetVersion(int* version) {
  return noted(cuDriverGetVersion(version));
}

// cudaDriverEntryPointQueryResult is the status of the driver.
WARPLOOM_CUDA_API int cudaGetDriverEntryPointByVersion(const char* name, void** function,
                                                       unsigned version, unsigned long long flags,
                                                       int* status) {
  cuGetProcAddress_v2(name, function, static_cast<int>(version), flags, status);
  return function == nullptr || name == nullptr ? noted(abi::kInvalidValue) : abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaGetDriverEntryPoint(const char* name, void** function,
                                              unsigned long long flags, int* status) {
  return cudaGetDriverEntryPointByVersion(name, function, abi::kDriverVersion, flags, status);
}

WARPLOOM_CUDA_API int cudaGetLastError() { return last_error(true); }

WARPLOOM_CUDA_API int cudaPeekAtLastError() { return last_error(false); }

WARPLOOM_CUDA_API const char* cudaGetErrorName(int error) {
  const char* name = runtime_error_name(error);
  return name != nullptr ? name : "cudaErrorUnknown";
}

WARPLOOM_CUDA_API const char* cudaGetErrorString(int error) {
  if (error == abi::kSuccess) return "no error";
  const char* reason = warploom_emulator_error_of(error);
  if (reason != nullptr) return reason;
  return error == abi::kInvalidDevice ? "there is no emulated device of this number"
                                      : cudaGetErrorName(error);
}

WARPLOOM_CUDA_API int cudaProfilerStart() { return abi::kSuccess; }

WARPLOOM_CUDA_API int cudaProfilerStop() { return abi::kSuccess; }
