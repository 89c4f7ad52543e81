// The emulated devices of this process: memory, modules, launches and what went wrong last.

#ifndef WARPLOOM_EMULATOR_DRIVER_SESSION_H_
#define WARPLOOM_EMULATOR_DRIVER_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/check/report.h"
#include "emulator/driver/decoded_module.h"
#include "emulator/driver/device.h"
#include "emulator/driver/options.h"
#include "emulator/exec/cluster.h"
#include "emulator/exec/json.h"
#include "emulator/exec/memory.h"
#include "emulator/exec/program.h"

namespace warploom::emulator {

// A device with what lies in its memory.
struct DeviceState {
  const Device* device = nullptr;
  GlobalMemory memory;
  DeviceHeap heap{memory};
  GridWorkspace workspace{};
  std::size_t allocated = 0;  // bytes
};

// A PTX module with its variables in global memory.
class LoadedModule {
 public:
  // A Fault if the device does not execute such PTX.
  LoadedModule(std::shared_ptr<const DecodedModule> module, DeviceState& state);
  ~LoadedModule();
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  const Program* find(const std::string& name) const { return module_->find(name); }
  uint64_t global_base() const { return base_; }
  DeviceState& state() const { return state_; }

 private:
  uint64_t address_of(const ptx::Relocation& relocation) const;

  DeviceState& state_;
  std::shared_ptr<const DecodedModule> module_;
  std::vector<uint8_t> globals_;
  uint64_t base_ = 0;
};

struct KernelHandle {
  const LoadedModule* module;
  const Program* program;
};

struct LaunchRequest {
  Dim3 grid;
  Dim3 block;
  Dim3 cluster{1, 1, 1};
  uint32_t dynamic_shared = 0;
  bool cooperative = false;    // all CTAs are live together, and may wait for each other
  void** arguments = nullptr;  // one pointer for each parameter
};

class Session {
 public:
  static Session& instance();

  // The device that this thread works with, as cudaSetDevice chooses it.
  static int current_device();
  static bool set_current_device(int index);  // false if there is no such device

  // Memory of the current device; nullptr if there is none left.
  void* allocate(std::size_t bytes);
  void release(void* pointer);
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
  // Keeps what was found; returns the message of the launch, empty if all went well.
  std::string keep_reports(const LaunchReports& launch, const std::string& problem);

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceState>> devices_;
  std::map<void*, Allocation> allocations_;
  std::map<LoadedModule*, std::unique_ptr<LoadedModule>> modules_;
  std::string error_ = "no error";
  DecodedModules decoded_;
  LaunchOptions options_;
  uint64_t instructions_ = 0;
  std::vector<Report> reports_;
  std::string reports_text_;
  JsonList launch_reports_;
  std::string launch_reports_text_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_SESSION_H_
