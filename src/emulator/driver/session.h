// The emulated devices of this process: memory, modules, launches and what went wrong last.

#ifndef WARPLOOM_EMULATOR_DRIVER_SESSION_H_
#define WARPLOOM_EMULATOR_DRIVER_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulator/base/json.h"
#include "emulator/check/report.h"
#include "emulator/exec/launch/decoded_module.h"
#include "emulator/exec/launch/kernel_run.h"
#include "emulator/exec/launch/loaded_module.h"
#include "emulator/exec/launch/options.h"

namespace warploom::emulator {

struct ParameterFacts {
  uint64_t bytes;
  uint64_t offset;  // among all parameters of the kernel
  Type type;
};

// Of a kernel; `source` lives as long as its module.
struct FunctionFacts {
  const ptx::Function* source;
  uint32_t static_shared;  // bytes
};

enum class MemoryKind : uint8_t {
  kDevice,
  kHost,        // pinned: every device accesses it
  kManaged,     // the same for programs that ask
  kRegistered,  // of the program, which registers it
};

// An allocation.
struct MemoryFacts {
  uint64_t begin = 0;
  uint64_t bytes = 0;
  int device = 0;
  MemoryKind kind = MemoryKind::kDevice;
  uint64_t number = 0;  // no other allocation has it
};

class Session {
 public:
  static Session& instance();

  // No other thread reads or changes anything in between (driver/fork_guard.h).
  void lock();
  void unlock();

  // The device that this thread works with, as cudaSetDevice chooses it.
  static int current_device();
  static bool set_current_device(int index);  // false if there is no such device

  // Memory of the current device; nullptr, with an error, if there is none left.
  void* allocate(std::size_t bytes, MemoryKind kind = MemoryKind::kDevice);
  // Memory of the host that kernels may access from now on. False, with an error, if part of it is
  // an allocation already.
  bool register_host(void* pointer, std::size_t bytes);
  bool unregister_host(void* pointer);
  // The allocation that holds an address; no error if there is none.
  std::optional<MemoryFacts> find_memory(const void* pointer) const;
  // False, with an error, if nothing that is allocated begins there.
  bool release(void* pointer);
  std::size_t allocated() const;  // bytes, of the current device
  // Copies between devices and host, not while a launch is under way. False, with an error, if the
  // bytes of a side begin in an allocation and go beyond it, or if they have to be on a device and
  // are in no allocation.
  bool copy(void* to, const void* from, std::size_t bytes, bool to_device, bool from_device);

  // Writes `count` numbers of `width` bytes, under the same conditions.
  bool fill(void* to, uint32_t value, std::size_t width, std::size_t count);

  // Modules and functions have handles that are given once: those of a module that was unloaded
  // are refused, whatever takes its memory. These return whether all went well, or a handle; if
  // not, error() says why.
  void* load(const void* image);  // image/image.h
  bool unload(const void* module);
  void* find_function(const void* module, const char* name);
  bool launch(const void* function, const LaunchRequest& request);
  // Something else than a launch is next in the stream: no later launch overlaps with those before.
  void end_overlap(void* stream);
  // Of a parameter of a function; nothing behind the last one, or if there is no such function.
  std::optional<ParameterFacts> parameter(const void* function, std::size_t index) const;
  std::optional<FunctionFacts> facts(const void* function) const;
  std::vector<std::string> kernel_names(const void* module) const;
  // A variable in global or constant memory.
  std::optional<MemoryFacts> variable(const void* module, const std::string& name) const;

  // What went wrong last in this thread.
  static void set_error(const std::string& message);
  static void set_error_code(int code);  // of the same failure, as a CUresult
  static const std::string& error();
  // The same if it was this CUresult, or if the call gave none; else nullptr.
  static const char* error_of(int code);

  // How later launches run. They may be changed while another thread launches.
  LaunchOptions options() const;
  template <class Change>
  void change_options(Change change) {
    std::lock_guard<std::mutex> lock(options_mutex_);
    change(options_);
  }
  uint64_t instructions() const;  // of all launches

  // The reports of the launches since the last clear, as a JSON list (exec/launch/launch_report.h).
  std::string launch_reports() const;
  void clear_launch_reports();

  // What became of the last launch that was executed under several schedules, as a JSON object
  // (exec/launch/exploration.h); empty before there is any.
  std::string exploration() const;

  // What the checks have found since the last clear, as a JSON list.
  std::string reports() const;
  void clear_reports();

 private:
  Session();

  struct ModuleEntry {
    std::unique_ptr<LoadedModule> module;
    std::map<const Program*, uintptr_t> functions;  // their handles
  };


  DeviceState& current_state();
  // Adds it to the devices that access it, or takes it from them.
  void* add_memory(void* pointer, MemoryFacts facts);
  void remove_memory(const MemoryFacts& facts);
  bool may_copy(const void* pointer, std::size_t bytes, bool on_device) const;
  const KernelHandle* find_kernel(const void* function) const;  // nullptr if there is none
  // Keeps freed memory for a while, so that no other allocation takes its place.
  void quarantine(void* pointer, std::size_t bytes);
  // Executes it once, keeps what it brings, and returns its problem.
  std::string execute(const KernelRun& run, const SchedulerSource& schedulers, uint32_t threads);

  mutable std::mutex mutex_;  // of all but the options
  std::vector<std::unique_ptr<DeviceState>> devices_;
  std::map<uint64_t, MemoryFacts> allocations_;  // by their first byte
  uint64_t last_allocation_ = 0;
  std::deque<std::pair<void*, std::size_t>> quarantine_;  // the oldest first
  std::size_t quarantined_ = 0;                           // bytes
  std::map<uintptr_t, ModuleEntry> modules_;    // by handle
  std::map<uintptr_t, KernelHandle> functions_;  // by handle
  uintptr_t last_handle_ = 0;
  DecodedModules decoded_;
  uint64_t instructions_ = 0;
  std::vector<Report> reports_;
  JsonList launch_reports_;
  std::string exploration_;

  mutable std::mutex options_mutex_;
  LaunchOptions options_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_SESSION_H_
