#include "emulator/driver/library.h"

#include <exception>

#include "emulator/base/device.h"
#include "emulator/base/fault.h"
#include "emulator/driver/session.h"
#include "emulator/image/image.h"

namespace warploom::emulator {

Library::Library(const void* image) : parts_(static_cast<std::size_t>(device_count())) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    try {
      parts_[i].ptx = image::find_ptx(image, *find_device(static_cast<int>(i)));
    } catch (const std::exception& error) {
      parts_[i].problem = error.what();
    }
  }
  if (module() == nullptr) {
    // The session has said why.
    throw Fault(Session::error().substr(Session::error().find(": ") + 2));
  }
}

Library::~Library() {
  for (const auto& [name, handle] : kernels) emulator::kernels().remove(handle);
  for (const Part& part : parts_) {
    if (part.module != nullptr) Session::instance().unload(part.module);
  }
}

void* Library::module() {
  std::lock_guard<std::mutex> lock(libraries_mutex());
  if (parts_.empty()) fault("there is no emulated device");
  Part& part = parts_[static_cast<std::size_t>(Session::current_device())];
  if (!part.problem.empty()) {
    Session::set_error("warploom emulator: the library cannot be loaded: " + part.problem);
    return nullptr;
  }
  if (part.module == nullptr) part.module = Session::instance().load(part.ptx.c_str());
  return part.module;
}

void* Library::function(const std::string& name) {
  void* loaded = module();
  return loaded == nullptr ? nullptr : Session::instance().find_function(loaded, name.c_str());
}

// Never destroyed: programs end with libraries in use.
Handles<Library>& libraries() {
  static auto* handles = new Handles<Library>;
  return *handles;
}

Handles<Kernel>& kernels() {
  static auto* handles = new Handles<Kernel>;
  return *handles;
}

std::mutex& libraries_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

void* function_of(void* function_or_kernel) {
  std::shared_ptr<Kernel> kernel = kernels().find(function_or_kernel);
  if (kernel == nullptr) return function_or_kernel;
  std::shared_ptr<Library> library = kernel->library.lock();
  return library == nullptr ? function_or_kernel : library->function(kernel->name);
}

}  // namespace warploom::emulator
