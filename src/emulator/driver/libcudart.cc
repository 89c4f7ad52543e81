// libcudart.so.13 of the emulator: the functions of the runtime API that TVM's CUDA runtime calls.
//
// Device memory is memory of the host, streams execute at once unless they are captured into a
// graph, and events take no time: elapsed times are those of the host, and say nothing about a GPU.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <utility>

#include "emulator/base/device.h"
#include "emulator/driver/cuda_abi.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  Clock::time_point time;
};

struct Stream {};

}  // namespace

WARPLOOM_CUDA_API int cudaGetDeviceCount(int* count) {
  *count = warploom_emulator_device_count();
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaGetDevice(int* device) {
  *device = warploom_emulator_current_device();
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaSetDevice(int device) {
  return warploom_emulator_set_device(device);
}

WARPLOOM_CUDA_API int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  const Device* facts = warploom_emulator_device(device);
  if (facts == nullptr) return abi::kInvalidDevice;
  struct Entry {
    int attribute;
    uint32_t value;
  };
  const Entry entries[] = {
      {abi::kMaxThreadsPerBlock, kMaxThreads},
      {abi::kMaxBlockDimX, 1024},
      {abi::kMaxBlockDimY, 1024},
      {abi::kMaxBlockDimZ, 64},
      {abi::kMaxGridDimX, 0x7fffffff},
      {abi::kMaxGridDimY, 0xffff},
      {abi::kMaxGridDimZ, 0xffff},
      {abi::kMaxSharedMemoryPerBlock, kSharedPerCta},
      {abi::kWarpSize, 32},
      {abi::kMaxRegistersPerBlock, kRegistersPerCta},
      {abi::kClockRate, facts->clock_kilohertz},
      {abi::kMultiProcessorCount, warploom_emulator_multiprocessors(device)},
      {abi::kMemoryClockRate, facts->memory_kilohertz},
      {abi::kGlobalMemoryBusWidth, facts->memory_bits},
      {abi::kL2CacheSize, facts->l2_bytes},
      {abi::kMaxThreadsPerMultiProcessor, kMaxThreadsPerSm},
      {abi::kComputeCapabilityMajor, static_cast<uint32_t>(facts->major)},
      {abi::kComputeCapabilityMinor, static_cast<uint32_t>(facts->minor)},
      {abi::kMaxSharedMemoryPerMultiprocessor, kSharedPerSm},
      {abi::kMaxRegistersPerMultiprocessor, kRegistersPerCta},
      {abi::kMaxSharedMemoryPerBlockOptin, kSharedPerCtaOptIn},
      {abi::kClusterLaunch, 1},
  };
  *value = 0;
  for (const Entry& entry : entries) {
    if (entry.attribute == attribute) *value = static_cast<int>(entry.value);
  }
  return abi::kSuccess;
}

// Only the start of the structure is filled: how long it is depends on the version of CUDA.
WARPLOOM_CUDA_API int cudaGetDeviceProperties(abi::DeviceProperties* properties, int device) {
  const Device* facts = warploom_emulator_device(device);
  if (facts == nullptr) return abi::kInvalidDevice;
  *properties = abi::DeviceProperties{};
  std::snprintf(properties->name, sizeof(properties->name), "%s", facts->name);
  properties->total_global_memory = kMemoryBytes;
  properties->shared_per_cta = kSharedPerCta;
  properties->registers_per_cta = static_cast<int>(kRegistersPerCta);
  properties->warp_size = 32;
  properties->max_threads = static_cast<int>(kMaxThreads);
  properties->major = facts->major;
  properties->minor = facts->minor;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
  std::size_t used = warploom_emulator_allocated();
  *total = kMemoryBytes;
  *free_bytes = used < kMemoryBytes ? kMemoryBytes - used : 0;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaMalloc(void** pointer, std::size_t bytes) {
  *pointer = warploom_emulator_allocate(bytes);
  return *pointer != nullptr ? abi::kSuccess : abi::kOutOfMemory;
}

WARPLOOM_CUDA_API int cudaMallocHost(void** pointer, std::size_t bytes) {
  return cudaMalloc(pointer, bytes);
}

WARPLOOM_CUDA_API int cudaFree(void* pointer) {
  return warploom_emulator_release(pointer);
}

WARPLOOM_CUDA_API int cudaFreeHost(void* pointer) { return cudaFree(pointer); }

// What is on the host by the kind of the copy may be anywhere; the same holds for both sides if the
// kind leaves it open.
WARPLOOM_CUDA_API int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind,
                                      void* stream) {
  const bool to_device = kind == abi::kHostToDevice || kind == abi::kDeviceToDevice;
  const bool from_device = kind == abi::kDeviceToHost || kind == abi::kDeviceToDevice;
  return warploom_emulator_copy(stream, to, from, bytes, to_device, from_device);
}

WARPLOOM_CUDA_API int cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                          void* stream) {
  return warploom_emulator_copy(stream, to, from, bytes, true, true);
}

// A failed launch is reported by the launch itself and leaves the device usable.
WARPLOOM_CUDA_API int cudaGetLastError() { return abi::kSuccess; }

WARPLOOM_CUDA_API int cudaPeekAtLastError() { return abi::kSuccess; }

WARPLOOM_CUDA_API const char* cudaGetErrorName(int error) {
  switch (error) {
    case abi::kSuccess: return "cudaSuccess";
    case abi::kOutOfMemory: return "cudaErrorMemoryAllocation";
    case abi::kInvalidDevice: return "cudaErrorInvalidDevice";
    case abi::kInvalidValue: return "cudaErrorInvalidValue";
    case abi::kLaunchFailed: return "cudaErrorLaunchFailure";
    case abi::kCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case abi::kCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    default: return "cudaErrorUnknown";
  }
}

WARPLOOM_CUDA_API const char* cudaGetErrorString(int error) {
  switch (error) {
    case abi::kSuccess: return "no error";
    case abi::kInvalidDevice: return "there is no emulated device of this number";
    case abi::kOutOfMemory:
    case abi::kInvalidValue:
    case abi::kLaunchFailed: return warploom_emulator_error();
    case abi::kCaptureUnsupported: return "the stream is being captured, or cannot be";
    case abi::kCaptureInvalidated: return "the stream is not being captured";
    default: return "unknown error";
  }
}

WARPLOOM_CUDA_API int cudaEventCreate(Event** event) {
  *event = new (std::nothrow) Event;
  return *event != nullptr ? abi::kSuccess : abi::kOutOfMemory;
}

WARPLOOM_CUDA_API int cudaEventDestroy(Event* event) {
  delete event;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaEventRecord(Event* event, void*) {
  event->time = Clock::now();
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaEventSynchronize(Event*) { return abi::kSuccess; }

WARPLOOM_CUDA_API int cudaEventElapsedTime(float* milliseconds, Event* begin, Event* end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaStreamCreate(Stream** stream) {
  *stream = new (std::nothrow) Stream;
  return *stream != nullptr ? abi::kSuccess : abi::kOutOfMemory;
}

WARPLOOM_CUDA_API int cudaStreamCreateWithFlags(Stream** stream, unsigned) {
  return cudaStreamCreate(stream);
}

WARPLOOM_CUDA_API int cudaStreamDestroy(Stream* stream) {
  delete stream;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaStreamSynchronize(Stream* stream) {
  return warploom_emulator_is_captured(stream) ? abi::kCaptureUnsupported : abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaStreamWaitEvent(Stream*, Event*, unsigned) { return abi::kSuccess; }

WARPLOOM_CUDA_API int cudaStreamBeginCapture(Stream* stream, int) {
  return warploom_emulator_begin_capture(stream);
}

// cudaStreamCaptureStatusNone or -Active.
WARPLOOM_CUDA_API int cudaStreamIsCapturing(Stream* stream, int* status) {
  *status = warploom_emulator_is_captured(stream) ? 1 : 0;
  return abi::kSuccess;
}

// No call is forbidden while a stream is captured; the mode is only kept.
WARPLOOM_CUDA_API int cudaThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int current = 0;  // cudaStreamCaptureModeGlobal
  std::swap(current, *mode);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaStreamEndCapture(Stream* stream, Graph** graph) {
  *graph = warploom_emulator_end_capture(stream);
  return *graph != nullptr ? abi::kSuccess : abi::kCaptureInvalidated;
}

WARPLOOM_CUDA_API int cudaGraphInstantiate(Graph** executable, const Graph* graph,
                                           unsigned long long) {
  *executable = warploom_emulator_copy_graph(graph);
  return *executable != nullptr ? abi::kSuccess : abi::kOutOfMemory;
}

WARPLOOM_CUDA_API int cudaGraphLaunch(const Graph* executable, Stream*) {
  return warploom_emulator_replay_graph(executable);
}

WARPLOOM_CUDA_API int cudaGraphDestroy(Graph* graph) {
  warploom_emulator_delete_graph(graph);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaGraphExecDestroy(Graph* executable) {
  warploom_emulator_delete_graph(executable);
  return abi::kSuccess;
}
