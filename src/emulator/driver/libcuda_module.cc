// libcuda.so.1 of the emulator: modules, libraries, and what links PTX.

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "emulator/base/fault.h"
#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/jit_options.h"
#include "emulator/driver/library.h"
#include "emulator/driver/session.h"
#include "emulator/image/image.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

// The bytes of a file, with a null behind them, which ends text.
std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fault("the file %s cannot be read", path);
  std::stringstream bytes;
  bytes << file.rdbuf();
  std::string all = bytes.str() + '\0';
  if (!image::is_whole(all)) fault("the file %s ends too early", path);
  return all;
}

template <class F>
int with_library(const void* handle, F f) {
  return guarded(abi::kInvalidHandle, [&] {
    std::shared_ptr<Library> library = libraries().find(handle);
    return library == nullptr ? fail(abi::kInvalidHandle, "there is no such library") : f(library);
  });
}

int put_variable(uint64_t* address, std::size_t* bytes, const void* module, const char* name) {
  if (name == nullptr) return abi::kInvalidValue;
  if (module == nullptr) return code_of(false, abi::kNotFound);
  const auto facts = Session::instance().variable(module, name);
  if (!facts) return code_of(false, abi::kNotFound);
  if (address != nullptr) *address = facts->begin;
  if (bytes != nullptr) *bytes = facts->bytes;
  return abi::kSuccess;
}

// What is linked so far. The result is PTX: the driver loads it again as it loads all PTX.
struct Link {
  std::vector<std::string> texts;
  std::string linked;
};

Handles<Link>& links() {
  static auto* handles = new Handles<Link>;
  return *handles;
}

template <class F>
int with_link(const void* handle, F f) {
  return guarded(abi::kInvalidPtx, [&] {
    std::shared_ptr<Link> link = links().find(handle);
    return link == nullptr ? fail(abi::kInvalidHandle, "there is no such link") : f(*link);
  });
}

// CUjitInputType.
enum Input : int { kCubin = 0, kPtx = 1, kFatBinary = 2 };

}  // namespace

WARPLOOM_CUDA_API int cuModuleLoadData(void** module, const void* image) {
  if (module == nullptr || image == nullptr) return abi::kInvalidValue;
  return guarded(abi::kInvalidPtx, [&] {
    *module = Session::instance().load(image);
    return code_of(*module != nullptr, abi::kInvalidPtx);
  });
}

WARPLOOM_CUDA_API int cuModuleLoadDataEx(void** module, const void* image, unsigned count,
                                         const int* options, void** values) {
  const int code = cuModuleLoadData(module, image);
  fill_logs(count, options, values, code == abi::kSuccess ? "" : Session::error());
  return code;
}

WARPLOOM_CUDA_API int cuModuleLoadFatBinary(void** module, const void* image) {
  return cuModuleLoadData(module, image);
}

WARPLOOM_CUDA_API int cuModuleLoad(void** module, const char* path) {
  if (path == nullptr) return abi::kInvalidValue;
  return guarded(abi::kFileNotFound,
                 [&] { return cuModuleLoadData(module, read_file(path).data()); });
}

WARPLOOM_CUDA_API int cuModuleUnload(void* module) {
  return guarded(abi::kInvalidHandle, [&] {
    return code_of(Session::instance().unload(module), abi::kInvalidHandle);
  });
}

// All modules are loaded when a program says so.
WARPLOOM_CUDA_API int cuModuleGetLoadingMode(int* mode) {
  constexpr int kEager = 1;
  if (mode == nullptr) return abi::kInvalidValue;
  *mode = kEager;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (function == nullptr || name == nullptr) return abi::kInvalidValue;
  return guarded(abi::kNotFound, [&] {
    *function = Session::instance().find_function(module, name);
    return code_of(*function != nullptr, abi::kNotFound);
  });
}

WARPLOOM_CUDA_API int cuModuleGetFunctionCount(unsigned* count, void* module) {
  if (count == nullptr) return abi::kInvalidValue;
  return guarded(abi::kInvalidHandle, [&] {
    *count = static_cast<unsigned>(Session::instance().kernel_names(module).size());
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuModuleEnumerateFunctions(void** functions, unsigned count, void* module) {
  if (functions == nullptr) return abi::kInvalidValue;
  return guarded(abi::kInvalidHandle, [&] {
    const std::vector<std::string> names = Session::instance().kernel_names(module);
    for (unsigned i = 0; i < count && i < names.size(); ++i) {
      functions[i] = Session::instance().find_function(module, names[i].c_str());
    }
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuModuleGetGlobal_v2(uint64_t* address, std::size_t* bytes, void* module,
                                           const char* name) {
  return guarded(abi::kNotFound, [&] { return put_variable(address, bytes, module, name); });
}

WARPLOOM_CUDA_API int cuLibraryLoadData(void** library, const void* image, const int* options,
                                        void** values, unsigned count, const int*, void**,
                                        unsigned) {
  if (library == nullptr || image == nullptr) return abi::kInvalidValue;
  const int code = guarded(abi::kInvalidPtx, [&] {
    *library = libraries().add(std::make_shared<Library>(image));
    return abi::kSuccess;
  });
  fill_logs(count, options, values, code == abi::kSuccess ? "" : Session::error());
  return code;
}

WARPLOOM_CUDA_API int cuLibraryLoadFromFile(void** library, const char* path, const int* options,
                                            void** values, unsigned count, const int*, void**,
                                            unsigned) {
  if (path == nullptr) return abi::kInvalidValue;
  return guarded(abi::kFileNotFound, [&] {
    return cuLibraryLoadData(library, read_file(path).data(), options, values, count, nullptr,
                             nullptr, 0);
  });
}

WARPLOOM_CUDA_API int cuLibraryUnload(void* library) {
  return with_library(library, [&](const std::shared_ptr<Library>&) {
    libraries().remove(library);
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuLibraryGetModule(void** module, void* handle) {
  if (module == nullptr) return abi::kInvalidValue;
  return with_library(handle, [&](const std::shared_ptr<Library>& library) {
    *module = library->module();
    return code_of(*module != nullptr, abi::kInvalidPtx);
  });
}

WARPLOOM_CUDA_API int cuLibraryGetKernel(void** kernel, void* handle, const char* name) {
  if (kernel == nullptr || name == nullptr) return abi::kInvalidValue;
  return with_library(handle, [&](const std::shared_ptr<Library>& library) {
    if (library->function(name) == nullptr) return code_of(false, abi::kNotFound);
    void*& known = library->kernels[name];
    if (known == nullptr) {
      known = kernels().add(std::make_shared<Kernel>(Kernel{library, handle, name}));
    }
    *kernel = known;
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuLibraryGetKernelCount(unsigned* count, void* handle) {
  return with_library(handle, [&](const std::shared_ptr<Library>& library) {
    return cuModuleGetFunctionCount(count, library->module());
  });
}

WARPLOOM_CUDA_API int cuLibraryEnumerateKernels(void** found, unsigned count, void* handle) {
  if (found == nullptr) return abi::kInvalidValue;
  return with_library(handle, [&](const std::shared_ptr<Library>& library) {
    const auto names = Session::instance().kernel_names(library->module());
    for (unsigned i = 0; i < count && i < names.size(); ++i) {
      cuLibraryGetKernel(&found[i], handle, names[i].c_str());
    }
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuLibraryGetGlobal(uint64_t* address, std::size_t* bytes, void* handle,
                                         const char* name) {
  return with_library(handle, [&](const std::shared_ptr<Library>& library) {
    return put_variable(address, bytes, library->module(), name);
  });
}

WARPLOOM_CUDA_API int cuLibraryGetManaged(uint64_t* address, std::size_t* bytes, void* library,
                                          const char* name) {
  return cuLibraryGetGlobal(address, bytes, library, name);
}

WARPLOOM_CUDA_API int cuLinkCreate_v2(unsigned, const int*, void**, void** link) {
  if (link == nullptr) return abi::kInvalidValue;
  return guarded(abi::kOutOfMemory, [&] {
    *link = links().add(std::make_shared<Link>());
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuLinkAddData_v2(void* handle, int type, const void* data, std::size_t bytes,
                                       const char*, unsigned, const int*, void**) {
  if (data == nullptr) return abi::kInvalidValue;
  return with_link(handle, [&](Link& link) {
    // With a null behind it, as text needs it.
    const std::string image = std::string(static_cast<const char*>(data), bytes) + '\0';
    if (type != kPtx && type != kFatBinary && type != kCubin) {
      return fail(abi::kNotSupported, "only PTX and fat binaries can be linked");
    }
    if (!image::is_whole(image)) return fail(abi::kInvalidPtx, "what is linked ends too early");
    const Device* device = find_device(Session::current_device());
    if (device == nullptr) return abi::kInvalidDevice;
    link.texts.push_back(image::find_ptx(image.data(), *device));
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuLinkAddFile_v2(void* link, int type, const char* path, unsigned count,
                                       const int* options, void** values) {
  if (path == nullptr) return abi::kInvalidValue;
  return guarded(abi::kFileNotFound, [&] {
    const std::string bytes = read_file(path);
    return cuLinkAddData_v2(link, type, bytes.data(), bytes.size() - 1, path, count, options, values);
  });
}

WARPLOOM_CUDA_API int cuLinkComplete(void* handle, void** image, std::size_t* bytes) {
  if (image == nullptr) return abi::kInvalidValue;
  return with_link(handle, [&](Link& link) {
    link.linked = image::join_ptx(link.texts);
    *image = link.linked.data();
    if (bytes != nullptr) *bytes = link.linked.size() + 1;
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuLinkDestroy(void* link) {
  return guarded(abi::kInvalidHandle, [&] {
    return links().remove(link) != nullptr ? abi::kSuccess
                                           : fail(abi::kInvalidHandle, "there is no such link");
  });
}
