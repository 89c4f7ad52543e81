// A launch as the caller has asked for it, which can be executed more than once.

#ifndef WARPLOOM_EMULATOR_EXEC_LAUNCH_KERNEL_RUN_H_
#define WARPLOOM_EMULATOR_EXEC_LAUNCH_KERNEL_RUN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "emulator/check/launch_checks.h"
#include "emulator/check/report.h"
#include "emulator/exec/launch/loaded_module.h"
#include "emulator/exec/launch/options.h"
#include "emulator/exec/machine/launch.h"

namespace warploom::emulator {

struct KernelHandle {
  const LoadedModule* module;
  const Program* program;
};

struct LaunchRequest {
  Dim3 grid;
  Dim3 block;
  Dim3 cluster{1, 1, 1};
  bool explicit_cluster = false;  // by an attribute of the launch or of the kernel
  uint32_t dynamic_shared = 0;
  bool cooperative = false;    // all CTAs are live together, and may wait for each other
  bool dependent = false;      // it may start before the launch before it in the stream has ended
  void* stream = nullptr;
  void** arguments = nullptr;  // one pointer for each parameter
};

// What an execution leaves behind, but for the contents of memory.
struct RunResult {
  std::string problem;            // empty if all went well
  uint64_t instructions = 0;
  std::string printed;
  std::string report;             // exec/launch/launch_report.h; empty if none is asked for
  std::vector<Report> findings;   // of the checks
};

class KernelRun {
 public:
  // Copies the arguments. `options` must outlive it.
  KernelRun(const KernelHandle& kernel, const LaunchRequest& request,
            const LaunchOptions& options);

  const Program& program() const { return *kernel_.program; }
  const DeviceState& state() const { return state_; }
  uint64_t clusters() const;  // of the grid; 0 if it is not legal

  // Executes the kernel with the memory as it is now. Everything else is as it was when the run was
  // made, so that the same schedulers do the same again.
  RunResult execute(const SchedulerSource& schedulers, uint32_t threads) const;

 private:
  void leave_footprint(const LaunchChecks* checks) const;

  KernelHandle kernel_;
  LaunchRequest request_;
  const LaunchOptions& options_;
  DeviceState& state_;
  std::vector<uint8_t> storage_;
  uint8_t* parameters_;
  std::map<uint64_t, uint64_t> heap_;
  std::shared_ptr<const MemoryFootprint> before_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_LAUNCH_KERNEL_RUN_H_
