// The emulated devices of this process: memory, modules, launches and what went wrong last.

#ifndef WARPLOOM_EMULATOR_DRIVER_SESSION_H_
#define WARPLOOM_EMULATOR_DRIVER_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "emulator/check/report.h"
#include "emulator/driver/decoded_module.h"
#include "emulator/driver/kernel_run.h"
#include "emulator/driver/loaded_module.h"
#include "emulator/driver/options.h"
#include "emulator/exec/json.h"

namespace warploom::emulator {

class Session {
 public:
  static Session& instance();

  // The device that this thread works with, as cudaSetDevice chooses it.
  static int current_device();
  static bool set_current_device(int index);  // false if there is no such device

  // Memory of the current device; nullptr if there is none left.
  void* allocate(std::size_t bytes);
  // False, with an error, if nothing that is allocated begins there.
  bool release(void* pointer);
  std::size_t allocated() const;  // bytes, of the current device

  // These return whether all went well; if not, error() says why.
  LoadedModule* load(const char* ptx);
  void unload(LoadedModule* module);
  bool launch(const KernelHandle& kernel, const LaunchRequest& request);

  void set_error(const std::string& message);
  const std::string& error() const { return error_; }

  // How later launches run.
  LaunchOptions& options() { return options_; }
  uint64_t instructions() const { return instructions_; }  // of all launches

  // The reports of the launches since the last clear, as a JSON list (exec/launch_report.h).
  const char* launch_reports();
  void clear_launch_reports();

  // What became of the last launch that was executed under several schedules, as a JSON object
  // (driver/exploration.h); empty before there is any.
  const char* exploration() const { return exploration_.c_str(); }

  // What the checks have found since the last clear, as a JSON list.
  const char* reports();
  void clear_reports();

 private:
  Session();

  struct Allocation {
    std::size_t bytes;
    DeviceState* state;
  };

  DeviceState& current_state();
  // Keeps freed memory for a while, so that no other allocation takes its place.
  void quarantine(void* pointer, std::size_t bytes);
  // Executes it once, keeps what it brings, and returns its problem.
  std::string execute(const KernelRun& run, const SchedulerSource& schedulers, uint32_t threads);

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceState>> devices_;
  std::map<void*, Allocation> allocations_;
  std::deque<std::pair<void*, std::size_t>> quarantine_;  // the oldest first
  std::size_t quarantined_ = 0;                           // bytes
  std::map<LoadedModule*, std::unique_ptr<LoadedModule>> modules_;
  std::string error_ = "no error";
  DecodedModules decoded_;
  LaunchOptions options_;
  uint64_t instructions_ = 0;
  std::vector<Report> reports_;
  std::string reports_text_;
  JsonList launch_reports_;
  std::string launch_reports_text_;
  std::string exploration_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_SESSION_H_
