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
  Type type;
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
  void* allocate(std::size_t bytes);
  // False, with an error, if nothing that is allocated begins there.
  bool release(void* pointer);
  std::size_t allocated() const;  // bytes, of the current device
  // Copies between devices and host, not while a launch is under way. False, with an error, if the
  // bytes of a side begin in an allocation and go beyond it, or if they have to be on a device and
  // are in no allocation.
  bool copy(void* to, const void* from, std::size_t bytes, bool to_device, bool from_device);

  // Modules and functions have handles that are given once: those of a module that was unloaded
  // are refused, whatever takes its memory. These return whether all went well, or a handle; if
  // not, error() says why.
  void* load(const char* ptx);
  bool unload(const void* module);
  void* find_function(const void* module, const char* name);
  bool launch(const void* function, const LaunchRequest& request);
  // Something else than a launch is next in the stream: no later launch overlaps with those before.
  void end_overlap(void* stream);
  // Of a parameter of a function; nothing behind the last one, or if there is no such function.
  std::optional<ParameterFacts> parameter(const void* function, std::size_t index) const;

  // What went wrong last in this thread.
  static void set_error(const std::string& message);
  static const std::string& error();

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

  struct Allocation {
    std::size_t bytes;
    DeviceState* state;
  };

  DeviceState& current_state();
  bool may_copy(const void* pointer, std::size_t bytes, bool on_device) const;
  const KernelHandle* find_kernel(const void* function) const;  // nullptr if there is none
  // Keeps freed memory for a while, so that no other allocation takes its place.
  void quarantine(void* pointer, std::size_t bytes);
  // Executes it once, keeps what it brings, and returns its problem.
  std::string execute(const KernelRun& run, const SchedulerSource& schedulers, uint32_t threads);

  mutable std::mutex mutex_;  // of all but the options
  std::vector<std::unique_ptr<DeviceState>> devices_;
  std::map<void*, Allocation> allocations_;
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
