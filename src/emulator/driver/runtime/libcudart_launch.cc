// libcudart.so.13 of the emulator: launches, and what programs ask about kernels.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/runtime/cudart.h"

using namespace warploom::emulator;           // NOLINT: everything below belongs to the emulator
using namespace warploom::emulator::runtime;  // NOLINT

namespace {

int launch(void* function, const Dim3& grid, const Dim3& block, void** arguments,
           std::size_t shared, void* stream, abi::LaunchAttribute* attributes, unsigned count) {
  if (function == nullptr) return abi::kInvalidValue;
  if (shared > UINT32_MAX) return noted(abi::kInvalidValue);
  abi::LaunchConfig config{{grid.x, grid.y, grid.z},    {block.x, block.y, block.z},
                           static_cast<unsigned>(shared), stream, attributes, count};
  const int code = cuLaunchKernelEx(&config, function, arguments, nullptr);
  if (code != abi::kSuccess) launch_failed(code);
  return noted(code);
}

// cudaLaunchConfig_t.
struct RuntimeConfig {
  Dim3 grid, block;
  std::size_t shared;
  void* stream;
  abi::LaunchAttribute* attributes;
  unsigned count;
};

abi::LaunchConfig driver_config(const RuntimeConfig& config) {
  return {{config.grid.x, config.grid.y, config.grid.z},
          {config.block.x, config.block.y, config.block.z},
          static_cast<unsigned>(std::min<std::size_t>(config.shared, UINT32_MAX)),
          config.stream,
          config.attributes,
          config.count};
}

}  // namespace

WARPLOOM_CUDA_API int cudaLaunchKernel(const void* host, Dim3 grid, Dim3 block, void** arguments,
                                       std::size_t shared, void* stream) {
  void* function = function_of(host);
  if (function == nullptr) {
    launch_failed(abi::kInvalidPtx);
    return noted(abi::kInvalidPtx);
  }
  return launch(function, grid, block, arguments, shared, stream, nullptr, 0);
}

WARPLOOM_CUDA_API int __cudaLaunchKernel(void* kernel, Dim3 grid, Dim3 block, void** arguments,
                                         std::size_t shared, void* stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

WARPLOOM_CUDA_API int cudaLaunchCooperativeKernel(const void* host, Dim3 grid, Dim3 block,
                                                  void** arguments, std::size_t shared,
                                                  void* stream) {
  abi::LaunchAttribute cooperative{};
  cooperative.id = abi::kAttributeCooperative;
  cooperative.value.dimension[0] = 1;
  void* function = function_of(host);
  return function == nullptr
             ? noted(abi::kInvalidPtx)
             : launch(function, grid, block, arguments, shared, stream, &cooperative, 1);
}

WARPLOOM_CUDA_API int cudaLaunchKernelExC(const RuntimeConfig* config, const void* host,
                                          void** arguments) {
  if (config == nullptr) return noted(abi::kInvalidValue);
  void* function = function_of(host);
  return function == nullptr
             ? noted(abi::kInvalidPtx)
             : launch(function, config->grid, config->block, arguments, config->shared,
                      config->stream, config->attributes, config->count);
}

// cudaFuncAttribute has the numbers of CUfunction_attribute.
WARPLOOM_CUDA_API int cudaFuncSetAttribute(const void* host, int attribute, int value) {
  void* function = function_of(host);
  return noted(function == nullptr ? abi::kInvalidPtx
                                   : cuFuncSetAttribute(function, attribute, value));
}

WARPLOOM_CUDA_API int cudaFuncSetCacheConfig(const void*, int) { return abi::kSuccess; }

// The start of cudaFuncAttributes.
struct FunctionAttributes {
  std::size_t shared, constant, local;
  int threads, registers, ptx, binary, cache, dynamic_shared, carveout;
};

WARPLOOM_CUDA_API int cudaFuncGetAttributes(FunctionAttributes* attributes, const void* host) {
  if (attributes == nullptr) return noted(abi::kInvalidValue);
  void* function = function_of(host);
  if (function == nullptr) return noted(abi::kInvalidPtx);
  const auto ask = [&](int number) {
    int value = 0;
    cuFuncGetAttribute(&value, number, function);
    return value;
  };
  int value = 0;
  if (int code = cuFuncGetAttribute(&value, 0, function); code != abi::kSuccess) return noted(code);
  *attributes = {static_cast<std::size_t>(ask(1)), static_cast<std::size_t>(ask(2)),
                 static_cast<std::size_t>(ask(3)), value, ask(4), ask(5), ask(6), ask(7), ask(8),
                 ask(9)};
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* count, const void* host, int threads, std::size_t shared, unsigned) {
  void* function = function_of(host);
  return noted(function == nullptr ? abi::kInvalidPtx
                                   : cuOccupancyMaxActiveBlocksPerMultiprocessor(
                                         count, function, threads, shared));
}

WARPLOOM_CUDA_API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* count, const void* host,
                                                                    int threads,
                                                                    std::size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, host, threads, shared, 0);
}

WARPLOOM_CUDA_API int cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes,
                                                                const void* host, int ctas,
                                                                int threads) {
  void* function = function_of(host);
  return noted(function == nullptr ? abi::kInvalidPtx
                                   : cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, ctas,
                                                                             threads));
}

WARPLOOM_CUDA_API int cudaOccupancyMaxPotentialClusterSize(int* size, const void* host,
                                                           const RuntimeConfig* config) {
  void* function = function_of(host);
  if (function == nullptr || config == nullptr) return noted(abi::kInvalidValue);
  const abi::LaunchConfig same = driver_config(*config);
  return noted(cuOccupancyMaxPotentialClusterSize(size, function, &same));
}

WARPLOOM_CUDA_API int cudaOccupancyMaxActiveClusters(int* count, const void* host,
                                                     const RuntimeConfig* config) {
  void* function = function_of(host);
  if (function == nullptr || config == nullptr) return noted(abi::kInvalidValue);
  const abi::LaunchConfig same = driver_config(*config);
  return noted(cuOccupancyMaxActiveClusters(count, function, &same));
}

WARPLOOM_CUDA_API int cudaGetFuncBySymbol(void** function, const void* host) {
  void* kernel = function_of(host);
  return noted(kernel == nullptr ? abi::kInvalidPtx : cuKernelGetFunction(function, kernel));
}

WARPLOOM_CUDA_API int cudaGetKernel(void** kernel, const void* host) {
  if (kernel == nullptr) return noted(abi::kInvalidValue);
  *kernel = function_of(host);
  return noted(*kernel != nullptr ? abi::kSuccess : abi::kInvalidPtx);
}
