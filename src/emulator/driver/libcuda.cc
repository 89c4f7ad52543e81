// libcuda.so.1 of the emulator: the functions of the driver API that TVM's CUDA runtime calls.
//
// An error's name is the channel by which a reason reaches the user: TVM puts what cuGetErrorName
// returns into the exception it raises.

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "emulator/base/device.h"
#include "emulator/base/fault.h"
#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/graph.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/session.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

int execute(const void* function, const LaunchRequest& request) {
  return Session::instance().launch(function, request) ? abi::kSuccess : abi::kLaunchFailed;
}

// The same launch later, when the caller's arguments are gone.
Work keep(const void* function, LaunchRequest request) {
  std::vector<std::vector<char>> values;
  while (auto parameter = Session::instance().parameter(function, values.size())) {
    const void* const* arguments = request.arguments;
    const std::size_t index = values.size();
    if (arguments == nullptr || arguments[index] == nullptr) {
      fault("a launch is captured without its argument %zu: a pointer to it is null", index);
    }
    const char* from = static_cast<const char*>(arguments[index]);
    values.emplace_back(from, from + parameter->bytes);
  }
  return [function, request, values = std::move(values)]() mutable {
    std::vector<void*> pointers;
    for (std::vector<char>& value : values) pointers.push_back(value.data());
    request.arguments = pointers.data();
    return execute(function, request);
  };
}

LaunchRequest request_of(const abi::LaunchConfig& config, void** arguments) {
  LaunchRequest request;
  std::memcpy(request.grid.data(), config.grid, sizeof(config.grid));
  std::memcpy(request.block.data(), config.block, sizeof(config.block));
  request.dynamic_shared = config.shared_bytes;
  request.arguments = arguments;
  request.stream = config.stream;
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    const abi::LaunchAttribute& attribute = config.attributes[i];
    if (attribute.id == abi::kAttributeClusterDimension) {
      std::memcpy(request.cluster.data(), attribute.value.dimension, sizeof(config.grid));
      request.explicit_cluster = true;
    } else if (attribute.id == abi::kAttributeCooperative) {
      request.cooperative = attribute.value.dimension[0] != 0;
    } else if (attribute.id == abi::kAttributeProgrammaticSerialization) {
      request.dependent = attribute.value.dimension[0] != 0;
    }
  }
  return request;
}

}  // namespace

WARPLOOM_CUDA_API int cuInit(unsigned) { return abi::kSuccess; }

// NVRTC asks for undocumented tables, which its cache of cubins needs, and does without them.
WARPLOOM_CUDA_API int cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return abi::kNotFound;
}

WARPLOOM_CUDA_API int cuDriverGetVersion(int* version) {
  *version = abi::kDriverVersion;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDeviceGetCount(int* count) {
  *count = device_count();
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDeviceGetName(char* name, int length, int device) {
  const Device* facts = find_device(device);
  if (facts == nullptr) return abi::kInvalidDevice;
  if (name == nullptr || length <= 0) return abi::kInvalidValue;
  std::snprintf(name, static_cast<std::size_t>(length), "%s", facts->name);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuGetErrorName(int error, const char** text) {
  *text = error == abi::kSuccess ? "CUDA_SUCCESS" : Session::error().c_str();
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuGetErrorString(int error, const char** text) {
  return cuGetErrorName(error, text);
}

WARPLOOM_CUDA_API int cuModuleLoadData(void** module, const void* image) {
  if (module == nullptr || image == nullptr) return abi::kInvalidValue;
  *module = guarded<void*>(
      nullptr, [&] { return Session::instance().load(static_cast<const char*>(image)); });
  return *module != nullptr ? abi::kSuccess : abi::kInvalidPtx;
}

WARPLOOM_CUDA_API int cuModuleUnload(void* module) {
  return guarded(abi::kInvalidHandle, [&] {
    return Session::instance().unload(module) ? abi::kSuccess : abi::kInvalidHandle;
  });
}

WARPLOOM_CUDA_API int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (function == nullptr || name == nullptr) return abi::kInvalidValue;
  *function = guarded<void*>(nullptr,
                             [&] { return Session::instance().find_function(module, name); });
  return *function != nullptr ? abi::kSuccess : abi::kNotFound;
}

// Limits of shared memory are checked at the launch.
WARPLOOM_CUDA_API int cuFuncSetAttribute(void*, int, int) { return abi::kSuccess; }

WARPLOOM_CUDA_API int cuLaunchKernelEx(const abi::LaunchConfig* config, void* function,
                                       void** arguments, void**) {
  if (config == nullptr || config->attribute_count > abi::kMostAttributes ||
      (config->attribute_count != 0 && config->attributes == nullptr)) {
    return abi::kInvalidValue;
  }
  return guarded(abi::kLaunchFailed, [&] {
    LaunchRequest request = request_of(*config, arguments);
    if (is_captured(config->stream)) return submit(config->stream, keep(function, request));
    return execute(function, request);
  });
}

WARPLOOM_CUDA_API int warploom_emulator_device_count() { return device_count(); }

WARPLOOM_CUDA_API uint32_t warploom_emulator_multiprocessors(int index) {
  const Device* facts = find_device(index);
  return facts == nullptr ? 0 : multiprocessors(*facts);
}

WARPLOOM_CUDA_API const Device* warploom_emulator_device(int index) { return find_device(index); }

WARPLOOM_CUDA_API int warploom_emulator_current_device() { return Session::current_device(); }

WARPLOOM_CUDA_API int warploom_emulator_set_device(int index) {
  return Session::set_current_device(index) ? abi::kSuccess : abi::kInvalidDevice;
}

WARPLOOM_CUDA_API void* warploom_emulator_allocate(std::size_t bytes) {
  return guarded<void*>(nullptr, [&] { return Session::instance().allocate(bytes); });
}

WARPLOOM_CUDA_API int warploom_emulator_release(void* pointer) {
  return guarded(abi::kInvalidValue, [&] {
    return Session::instance().release(pointer) ? abi::kSuccess : abi::kInvalidValue;
  });
}

WARPLOOM_CUDA_API std::size_t warploom_emulator_allocated() {
  return guarded(std::size_t{0}, [] { return Session::instance().allocated(); });
}

WARPLOOM_CUDA_API const char* warploom_emulator_error() { return Session::error().c_str(); }

WARPLOOM_CUDA_API int warploom_emulator_copy(void* stream, void* to, const void* from,
                                             std::size_t bytes, bool to_device, bool from_device) {
  return guarded(abi::kInvalidValue, [&] {
    return submit(stream, [=] {
      Session& session = Session::instance();
      session.end_overlap(stream);
      const bool copied = session.copy(to, from, bytes, to_device, from_device);
      return copied ? abi::kSuccess : abi::kInvalidValue;
    });
  });
}

WARPLOOM_CUDA_API int warploom_emulator_begin_capture(void* stream) {
  return guarded(abi::kCaptureUnsupported, [&] {
    return begin_capture(stream) ? abi::kSuccess : abi::kCaptureUnsupported;
  });
}

WARPLOOM_CUDA_API bool warploom_emulator_is_captured(void* stream) {
  return guarded(false, [&] { return is_captured(stream); });
}

WARPLOOM_CUDA_API Graph* warploom_emulator_end_capture(void* stream) {
  return guarded<Graph*>(nullptr, [&] { return end_capture(stream).release(); });
}

WARPLOOM_CUDA_API Graph* warploom_emulator_copy_graph(const Graph* graph) {
  return guarded<Graph*>(nullptr, [&] { return new Graph(*graph); });
}

WARPLOOM_CUDA_API int warploom_emulator_replay_graph(const Graph* graph) {
  return guarded(abi::kLaunchFailed, [&] { return graph->replay(); });
}

WARPLOOM_CUDA_API void warploom_emulator_delete_graph(Graph* graph) { delete graph; }
