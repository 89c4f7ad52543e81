// Libraries of kernels that belong to no device: each is loaded on a device when it is used there.

#ifndef WARPLOOM_EMULATOR_DRIVER_LIBRARY_H_
#define WARPLOOM_EMULATOR_DRIVER_LIBRARY_H_

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "emulator/driver/handles.h"

namespace warploom::emulator {

class Library {
 public:
  // Reads the image, which may be gone afterwards, and loads it on the current device; a Fault if
  // that is not possible.
  explicit Library(const void* image);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // On the current device; nullptr, with an error, if there is none.
  void* module();
  void* function(const std::string& name);

  std::map<std::string, void*> kernels;  // handles that were given

 private:
  struct Part {
    std::string ptx;
    std::string problem;  // why there is none for the device
    void* module = nullptr;
  };
  std::vector<Part> parts_;  // by device
};

struct Kernel {
  std::weak_ptr<Library> library;
  void* library_handle;
  std::string name;
};

Handles<Library>& libraries();
Handles<Kernel>& kernels();

// Held while a library is loaded on a device; for driver/fork_guard.h.
std::mutex& libraries_mutex();

// The function of a kernel on the current device; functions stay what they are.
void* function_of(void* function_or_kernel);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_LIBRARY_H_
