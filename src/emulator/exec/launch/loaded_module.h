// A PTX module on a device.

#ifndef WARPLOOM_EMULATOR_EXEC_LAUNCH_LOADED_MODULE_H_
#define WARPLOOM_EMULATOR_EXEC_LAUNCH_LOADED_MODULE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "emulator/base/device.h"
#include "emulator/exec/launch/decoded_module.h"
#include "emulator/exec/machine/launch.h"
#include "emulator/exec/machine/program.h"
#include "emulator/memory/device_heap.h"
#include "emulator/memory/memory.h"
#include "emulator/memory/memory_footprint.h"

namespace warploom::emulator {

// A device with what lies in its memory.
struct DeviceState {
  const Device* device = nullptr;
  GlobalMemory memory;
  DeviceHeap heap{memory};
  GridWorkspace workspace{};
  std::size_t allocated = 0;  // bytes
  // Of the last launch of each stream, if later ones may start before it ends; else nullptr.
  std::map<void*, std::shared_ptr<const MemoryFootprint>> footprints;
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
  std::vector<std::string> kernel_names() const { return module_->kernel_names(); }
  const ptx::Variable* find_variable(const std::string& name) const;  // nullptr: there is none
  uint64_t global_base() const { return base_; }
  DeviceState& state() const { return state_; }

 private:
  DeviceState& state_;
  std::shared_ptr<const DecodedModule> module_;
  std::unique_ptr<uint8_t[], void (*)(void*)> storage_{nullptr, std::free};
  uint64_t base_ = 0;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_LAUNCH_LOADED_MODULE_H_
