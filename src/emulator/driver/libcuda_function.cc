// libcuda.so.1 of the emulator: what programs ask about kernels, and how many CTAs an SM holds.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "emulator/base/device.h"
#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/function.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/library.h"
#include "emulator/driver/session.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

// CUfunction_attribute.
enum FunctionAttribute : int {
  kMaxThreadsPerBlock = 0,
  kSharedBytes = 1,
  kConstBytes = 2,
  kLocalBytes = 3,
  kRegisters = 4,
  kPtxVersion = 5,
  kBinaryVersion = 6,
  kMaxDynamicShared = 8,
  kCarveout = 9,
  kClusterRequired = 10,
  kClusterX = 11,
  kClusterZ = 13,
};

// f(facts) of a function, or of a kernel on the current device.
template <class F>
int with_function(void*& function, F f) {
  return guarded(abi::kInvalidHandle, [&] {
    function = function_of(function);
    const auto facts = Session::instance().facts(function);
    return facts ? f(*facts) : code_of(false, abi::kInvalidHandle);
  });
}

int value_of(const FunctionFacts& facts, const FunctionSettings& settings, int attribute) {
  const ptx::Function& source = *facts.source;
  const Device* device = find_device(Session::current_device());
  const int capability = device == nullptr ? 0 : 10 * device->major + device->minor;
  const int set = settings[static_cast<std::size_t>(attribute)];
  switch (attribute) {
    case kMaxThreadsPerBlock: return static_cast<int>(source.threads_limit);
    case kSharedBytes: return static_cast<int>(facts.static_shared);
    case kLocalBytes: return static_cast<int>(source.local_bytes);
    case kRegisters: return registers_of(facts);
    case kPtxVersion: return capability;
    case kBinaryVersion: return capability;
    case kMaxDynamicShared:
      return set >= 0 ? set : static_cast<int>(kSharedPerCta - std::min(facts.static_shared, kSharedPerCta));
    case kClusterRequired: return source.required_cluster[0] != 0 ? 1 : 0;
    case kClusterX:
    case kClusterX + 1:
    case kClusterZ:
      return set >= 0 ? set : static_cast<int>(source.required_cluster[attribute - kClusterX]);
    default: return set >= 0 ? set : 0;
  }
}

using BytesOf = std::size_t (*)(int);

// The size of a CTA with which an SM holds the most threads, the largest of them.
void best_block(const FunctionFacts& facts, BytesOf bytes_of, std::size_t bytes, int limit,
                int* grid, int* block) {
  const int most = std::min(static_cast<int>(facts.source->threads_limit),
                            limit > 0 ? limit : static_cast<int>(kMaxThreads));
  const Device* device = find_device(Session::current_device());
  const int sms = device == nullptr ? 0 : static_cast<int>(multiprocessors(*device));
  int best = 0;
  *grid = *block = 0;
  for (int threads = (most + 31) / 32 * 32; threads > 0; threads -= 32) {
    const int size = std::min(threads, most);
    const std::size_t dynamic = bytes_of != nullptr ? bytes_of(size) : bytes;
    const int ctas = ctas_per_sm(facts, size, dynamic);
    if (ctas * size <= best) continue;
    best = ctas * size;
    *block = size;
    *grid = ctas * sms;
  }
}

}  // namespace

WARPLOOM_CUDA_API int cuFuncGetAttribute(int* value, int attribute, void* function) {
  if (value == nullptr || attribute < 0 || attribute >= kFunctionAttributes) {
    return abi::kInvalidValue;
  }
  return with_function(function, [&](const FunctionFacts& facts) {
    *value = value_of(facts, settings_of(function), attribute);
    return abi::kSuccess;
  });
}

// Limits of shared memory are checked at the launch, too.
WARPLOOM_CUDA_API int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute < 0 || attribute >= kFunctionAttributes) return abi::kInvalidValue;
  return with_function(function, [&](const FunctionFacts& facts) {
    const int64_t most = int64_t{kSharedPerCtaOptIn} - facts.static_shared;
    if (attribute == kMaxDynamicShared && (value < 0 || value > most)) {
      return fail(abi::kInvalidValue, facts.source->name + " asks for " + std::to_string(value) +
                                          " bytes of dynamic shared memory; at most " +
                                          std::to_string(most) + " are allowed");
    }
    set_attribute(function, attribute, value);
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuFuncGetName(const char** name, void* function) {
  if (name == nullptr) return abi::kInvalidValue;
  return with_function(function, [&](const FunctionFacts& facts) {
    *name = facts.source->name.c_str();
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuFuncGetParamInfo(void* function, std::size_t index, std::size_t* offset,
                                         std::size_t* bytes) {
  return with_function(function, [&](const FunctionFacts&) {
    const auto parameter = Session::instance().parameter(function, index);
    if (!parameter) return abi::kInvalidValue;
    if (offset != nullptr) *offset = parameter->offset;
    if (bytes != nullptr) *bytes = parameter->bytes;
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuFuncIsLoaded(int* state, void* function) {
  if (state == nullptr) return abi::kInvalidValue;
  return with_function(function, [&](const FunctionFacts&) {
    *state = 1;
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuFuncLoad(void* function) {
  return with_function(function, [](const FunctionFacts&) { return abi::kSuccess; });
}

WARPLOOM_CUDA_API int cuFuncSetCacheConfig(void* function, int) { return cuFuncLoad(function); }

WARPLOOM_CUDA_API int cuFuncSetSharedMemConfig(void* function, int) { return cuFuncLoad(function); }

WARPLOOM_CUDA_API int cuKernelGetFunction(void** function, void* kernel) {
  if (function == nullptr) return abi::kInvalidValue;
  return with_function(kernel, [&](const FunctionFacts&) {
    *function = kernel;
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuKernelGetLibrary(void** library, void* handle) {
  if (library == nullptr) return abi::kInvalidValue;
  return guarded(abi::kInvalidHandle, [&] {
    std::shared_ptr<Kernel> kernel = kernels().find(handle);
    if (kernel == nullptr) return fail(abi::kInvalidHandle, "there is no such kernel");
    *library = kernel->library_handle;
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuKernelGetName(const char** name, void* kernel) {
  return cuFuncGetName(name, kernel);
}

WARPLOOM_CUDA_API int cuKernelGetParamInfo(void* kernel, std::size_t index, std::size_t* offset,
                                           std::size_t* bytes) {
  return cuFuncGetParamInfo(kernel, index, offset, bytes);
}

WARPLOOM_CUDA_API int cuKernelGetAttribute(int* value, int attribute, void* kernel, int device) {
  const int before = Session::current_device();
  if (!Session::set_current_device(device)) return abi::kInvalidDevice;
  const int code = cuFuncGetAttribute(value, attribute, kernel);
  Session::set_current_device(before);
  return code;
}

WARPLOOM_CUDA_API int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  const int before = Session::current_device();
  if (!Session::set_current_device(device)) return abi::kInvalidDevice;
  const int code = cuFuncSetAttribute(kernel, attribute, value);
  Session::set_current_device(before);
  return code;
}

WARPLOOM_CUDA_API int cuKernelSetCacheConfig(void* kernel, int, int) { return cuFuncLoad(kernel); }

WARPLOOM_CUDA_API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, void* function,
                                                                  int threads,
                                                                  std::size_t dynamic_shared) {
  if (count == nullptr) return abi::kInvalidValue;
  return with_function(function, [&](const FunctionFacts& facts) {
    *count = ctas_per_sm(facts, threads, dynamic_shared);
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* count, void* function, int threads, std::size_t dynamic_shared, unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(count, function, threads, dynamic_shared);
}

WARPLOOM_CUDA_API int cuOccupancyMaxPotentialBlockSize(int* grid, int* block, void* function,
                                                       BytesOf bytes_of, std::size_t bytes,
                                                       int limit) {
  if (grid == nullptr || block == nullptr) return abi::kInvalidValue;
  return with_function(function, [&](const FunctionFacts& facts) {
    best_block(facts, bytes_of, bytes, limit, grid, block);
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block,
                                                                void* function, BytesOf bytes_of,
                                                                std::size_t bytes, int limit,
                                                                unsigned) {
  return cuOccupancyMaxPotentialBlockSize(grid, block, function, bytes_of, bytes, limit);
}

WARPLOOM_CUDA_API int cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, void* function,
                                                              int ctas, int threads) {
  if (bytes == nullptr || ctas <= 0) return abi::kInvalidValue;
  return with_function(function, [&](const FunctionFacts& facts) {
    if (ctas_per_sm(facts, threads, 0) < ctas) return abi::kInvalidValue;
    const uint64_t each = kSharedPerSm / static_cast<unsigned>(ctas);
    const uint64_t taken = facts.static_shared + (kSharedPerSm - kSharedPerCtaOptIn);
    *bytes = each > taken ? each - taken : 0;
    return abi::kSuccess;
  });
}

// The largest cluster that every GPU of the architecture takes.
WARPLOOM_CUDA_API int cuOccupancyMaxPotentialClusterSize(int* size, void* function,
                                                         const abi::LaunchConfig* config) {
  if (size == nullptr || config == nullptr) return abi::kInvalidValue;
  return with_function(function, [&](const FunctionFacts&) {
    *size = 8;
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuOccupancyMaxActiveClusters(int* count, void* function,
                                                   const abi::LaunchConfig* config) {
  if (count == nullptr || config == nullptr ||
      (config->attributes == nullptr && config->attribute_count != 0)) {
    return abi::kInvalidValue;
  }
  return with_function(function, [&](const FunctionFacts& facts) {
    uint64_t ctas = 1;
    for (unsigned i = 0; i < std::min(config->attribute_count, abi::kMostAttributes); ++i) {
      if (config->attributes[i].id != abi::kAttributeClusterDimension) continue;
      for (unsigned extent : config->attributes[i].value.dimension) ctas *= extent;
    }
    const int64_t threads = int64_t{config->block[0]} * config->block[1] * config->block[2];
    const Device* device = find_device(Session::current_device());
    const uint64_t all = static_cast<uint64_t>(ctas_per_sm(facts, threads, config->shared_bytes)) *
                         (device == nullptr ? 0 : multiprocessors(*device));
    *count = static_cast<int>(all / std::max<uint64_t>(ctas, 1));
    return abi::kSuccess;
  });
}
