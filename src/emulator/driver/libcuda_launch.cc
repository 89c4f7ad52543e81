// libcuda.so.1 of the emulator: launches.

#include <cstring>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/launch.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

LaunchRequest request_of(const unsigned (&grid)[3], const unsigned (&block)[3],
                         unsigned shared_bytes, void* stream) {
  LaunchRequest request;
  std::memcpy(request.grid.data(), grid, sizeof(grid));
  std::memcpy(request.block.data(), block, sizeof(block));
  request.dynamic_shared = shared_bytes;
  request.stream = stream;
  return request;
}

}  // namespace

WARPLOOM_CUDA_API int cuLaunchKernelEx(const abi::LaunchConfig* config, void* function,
                                       void** arguments, void** extra) {
  if (config == nullptr || config->attribute_count > abi::kMostAttributes ||
      (config->attribute_count != 0 && config->attributes == nullptr)) {
    return abi::kInvalidValue;
  }
  LaunchRequest request =
      request_of(config->grid, config->block, config->shared_bytes, config->stream);
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    const abi::LaunchAttribute& attribute = config->attributes[i];
    if (attribute.id == abi::kAttributeClusterDimension) {
      std::memcpy(request.cluster.data(), attribute.value.dimension, sizeof(config->grid));
      request.explicit_cluster = true;
    } else if (attribute.id == abi::kAttributeCooperative) {
      request.cooperative = attribute.value.dimension[0] != 0;
    } else if (attribute.id == abi::kAttributeProgrammaticSerialization) {
      request.dependent = attribute.value.dimension[0] != 0;
    }
  }
  return submit_launch(function, request, {arguments, extra});
}

WARPLOOM_CUDA_API int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared_bytes, void* stream,
                                     void** arguments, void** extra) {
  const LaunchRequest request = request_of({grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                                           shared_bytes, stream);
  return submit_launch(function, request, {arguments, extra});
}

WARPLOOM_CUDA_API int cuLaunchCooperativeKernel(void* function, unsigned grid_x, unsigned grid_y,
                                                unsigned grid_z, unsigned block_x, unsigned block_y,
                                                unsigned block_z, unsigned shared_bytes,
                                                void* stream, void** arguments) {
  LaunchRequest request = request_of({grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                                     shared_bytes, stream);
  request.cooperative = true;
  return submit_launch(function, request, {arguments, nullptr});
}
