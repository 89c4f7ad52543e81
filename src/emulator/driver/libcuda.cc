// libcuda.so.1 of the emulator: the functions of the driver API that TVM's CUDA runtime calls.
//
// An error's name is the channel by which a reason reaches the user: TVM puts what cuGetErrorName
// returns into the exception it raises.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/device.h"
#include "emulator/driver/graph.h"
#include "emulator/driver/session.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

int execute(const KernelHandle& kernel, const LaunchRequest& request) {
  return Session::instance().launch(kernel, request) ? abi::kSuccess : abi::kLaunchFailed;
}

// The same launch later, when the caller's arguments are gone.
Work keep(const KernelHandle& kernel, LaunchRequest request) {
  std::vector<std::vector<char>> values;
  for (const ptx::Variable* parameter : kernel.program->function->parameters) {
    const char* from = static_cast<const char*>(request.arguments[values.size()]);
    values.emplace_back(from, from + parameter->bytes);
  }
  return [kernel, request, values = std::move(values)]() mutable {
    std::vector<void*> pointers;
    for (std::vector<char>& value : values) pointers.push_back(value.data());
    request.arguments = pointers.data();
    return execute(kernel, request);
  };
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
  std::snprintf(name, static_cast<std::size_t>(length), "%s", facts->name);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuGetErrorName(int error, const char** text) {
  // TVM reads the text before it calls the driver again.
  static thread_local std::string message;
  message = error == abi::kSuccess ? "CUDA_SUCCESS" : Session::instance().error();
  *text = message.c_str();
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuGetErrorString(int error, const char** text) {
  return cuGetErrorName(error, text);
}

WARPLOOM_CUDA_API int cuModuleLoadData(void** module, const void* image) {
  *module = Session::instance().load(static_cast<const char*>(image));
  return *module != nullptr ? abi::kSuccess : abi::kInvalidPtx;
}

WARPLOOM_CUDA_API int cuModuleUnload(void* module) {
  Session::instance().unload(static_cast<LoadedModule*>(module));
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuModuleGetFunction(void** function, void* module, const char* name) {
  const auto* loaded = static_cast<const LoadedModule*>(module);
  const Program* program = loaded->find(name);
  if (program == nullptr) {
    Session::instance().set_error(std::string("the module has no kernel '") + name + "'");
    return abi::kNotFound;
  }
  // Function handles have no counterpart that frees them; a program has at most one handle.
  static std::map<std::pair<const LoadedModule*, const Program*>, KernelHandle> handles;
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  *function = &handles.try_emplace({loaded, program}, KernelHandle{loaded, program}).first->second;
  return abi::kSuccess;
}

// Limits of shared memory are checked at the launch.
WARPLOOM_CUDA_API int cuFuncSetAttribute(void*, int, int) { return abi::kSuccess; }

WARPLOOM_CUDA_API int cuLaunchKernelEx(const abi::LaunchConfig* config, void* function,
                                       void** arguments, void**) {
  LaunchRequest request;
  std::memcpy(request.grid.data(), config->grid, sizeof(config->grid));
  std::memcpy(request.block.data(), config->block, sizeof(config->block));
  request.dynamic_shared = config->shared_bytes;
  request.arguments = arguments;
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    const abi::LaunchAttribute& attribute = config->attributes[i];
    if (attribute.id == abi::kAttributeClusterDimension) {
      std::memcpy(request.cluster.data(), attribute.value.dimension, sizeof(config->grid));
      request.explicit_cluster = true;
    } else if (attribute.id == abi::kAttributeCooperative) {
      request.cooperative = attribute.value.dimension[0] != 0;
    }
  }
  const auto& kernel = *static_cast<const KernelHandle*>(function);
  if (is_captured(config->stream)) return submit(config->stream, keep(kernel, request));
  return execute(kernel, request);
}

WARPLOOM_CUDA_API int warploom_emulator_device_count() { return device_count(); }

WARPLOOM_CUDA_API const Device* warploom_emulator_device(int index) { return find_device(index); }

WARPLOOM_CUDA_API int warploom_emulator_current_device() { return Session::current_device(); }

WARPLOOM_CUDA_API int warploom_emulator_set_device(int index) {
  return Session::set_current_device(index) ? abi::kSuccess : abi::kInvalidDevice;
}

WARPLOOM_CUDA_API void* warploom_emulator_allocate(std::size_t bytes) {
  return Session::instance().allocate(bytes);
}

WARPLOOM_CUDA_API int warploom_emulator_release(void* pointer) {
  return Session::instance().release(pointer) ? abi::kSuccess : abi::kInvalidValue;
}

WARPLOOM_CUDA_API std::size_t warploom_emulator_allocated() {
  return Session::instance().allocated();
}

WARPLOOM_CUDA_API const char* warploom_emulator_error() {
  const char* text = nullptr;
  cuGetErrorName(abi::kLaunchFailed, &text);
  return text;
}

WARPLOOM_CUDA_API int warploom_emulator_copy(void* stream, void* to, const void* from,
                                             std::size_t bytes) {
  return submit(stream, [=] {
    std::memmove(to, from, bytes);
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int warploom_emulator_begin_capture(void* stream) {
  return begin_capture(stream) ? abi::kSuccess : abi::kCaptureUnsupported;
}

WARPLOOM_CUDA_API bool warploom_emulator_is_captured(void* stream) { return is_captured(stream); }

WARPLOOM_CUDA_API Graph* warploom_emulator_end_capture(void* stream) {
  return end_capture(stream).release();
}

WARPLOOM_CUDA_API Graph* warploom_emulator_copy_graph(const Graph* graph) {
  return new Graph(*graph);
}

WARPLOOM_CUDA_API int warploom_emulator_replay_graph(const Graph* graph) {
  return graph->replay();
}

WARPLOOM_CUDA_API void warploom_emulator_delete_graph(Graph* graph) { delete graph; }

// For the Python face.
WARPLOOM_CUDA_API int warploom_emulator_find_arch(const char* arch) { return find_arch(arch); }

// -1 behind the last parameter.
WARPLOOM_CUDA_API int64_t warploom_emulator_parameter_bytes(const void* function, int index) {
  const auto& parameters =
      static_cast<const KernelHandle*>(function)->program->function->parameters;
  auto position = static_cast<std::size_t>(index);
  return position < parameters.size() ? static_cast<int64_t>(parameters[position]->bytes) : -1;
}

WARPLOOM_CUDA_API void warploom_emulator_set_seed(uint64_t seed) {
  Session::instance().options().schedule.seed = seed;
}

WARPLOOM_CUDA_API void warploom_emulator_set_instruction_limit(uint64_t limit) {
  Session::instance().options().instruction_limit = limit;
}

// Success, or an error if there is no strategy of this name (exec/schedule.h).
WARPLOOM_CUDA_API int warploom_emulator_set_schedule(const char* name) {
  bool known = find_strategy(name, &Session::instance().options().schedule.strategy);
  return known ? abi::kSuccess : abi::kInvalidValue;
}

// 0: as many as the host has processors.
WARPLOOM_CUDA_API void warploom_emulator_set_threads(uint32_t threads) {
  Session::instance().options().threads = threads != 0 ? threads : host_threads();
}

// 0: no limit.
WARPLOOM_CUDA_API void warploom_emulator_set_seconds(double seconds) {
  Session::instance().options().seconds = seconds;
}

WARPLOOM_CUDA_API uint64_t warploom_emulator_instructions() {
  return Session::instance().instructions();
}

WARPLOOM_CUDA_API void warploom_emulator_set_report(int on) {
  Session::instance().options().report = on != 0;
}

WARPLOOM_CUDA_API const char* warploom_emulator_launch_reports() {
  return Session::instance().launch_reports();
}

WARPLOOM_CUDA_API void warploom_emulator_clear_launch_reports() {
  Session::instance().clear_launch_reports();
}

// Every later launch is executed under so many schedules; 0 and 1 mean one.
WARPLOOM_CUDA_API void warploom_emulator_set_explore(int64_t count) {
  Session::instance().options().explore = static_cast<uint64_t>(std::max<int64_t>(count, 0));
}

// A systematic search for every later launch; 0 schedules end it.
WARPLOOM_CUDA_API void warploom_emulator_set_exhaustive(int64_t schedules, int preemptions) {
  LaunchOptions& options = Session::instance().options();
  options.exhaustive = static_cast<uint64_t>(std::max<int64_t>(schedules, 0));
  options.preemptions = static_cast<uint32_t>(std::max(preemptions, 0));
}

WARPLOOM_CUDA_API const char* warploom_emulator_exploration() {
  return Session::instance().exploration();
}

WARPLOOM_CUDA_API void warploom_emulator_set_checks(int on) {
  Session::instance().options().checks = on != 0;
}

WARPLOOM_CUDA_API const char* warploom_emulator_reports() { return Session::instance().reports(); }

WARPLOOM_CUDA_API void warploom_emulator_clear_reports() { Session::instance().clear_reports(); }
