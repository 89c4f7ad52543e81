// A launch, as far as its instructions can notice.

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_LAUNCH_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_LAUNCH_H_

#include <array>
#include <cstdint>
#include <vector>

#include "emulator/base/device.h"
#include "emulator/exec/machine/output.h"
#include "emulator/exec/machine/program.h"
#include "emulator/memory/device_heap.h"
#include "emulator/memory/memory.h"
#include "emulator/ptx/op_facts.h"

namespace warploom::emulator {

using Dim3 = std::array<uint32_t, 3>;

constexpr uint32_t volume(const Dim3& dim) { return dim[0] * dim[1] * dim[2]; }

// Memory of a cooperative launch; cooperative groups keep the state of the grid's barrier there.
struct GridWorkspace {
  alignas(16) uint8_t bytes[64];
};

// What is equal for all CTAs of a launch. Constant while it runs: clusters may run in threads.
struct Launch {
  const Program& program;
  const Device& device;
  const GlobalMemory& memory;
  Dim3 grid;
  Dim3 block;
  Dim3 cluster;
  bool explicit_cluster;         // somebody has asked for it
  uint32_t dynamic_shared;       // bytes
  uint8_t* parameters;           // as the PTX lays them out
  uint64_t global_base;          // address of the module's variables
  const std::vector<LaneAccess>* counted = nullptr;  // lane_accesses_of; nullptr: no report
  DeviceHeap* heap = nullptr;    // of the device; set if the module allocates
  uint64_t workspace = 0;        // address of a GridWorkspace; 0: the launch is not cooperative
  mutable Output output{};       // takes text from all threads

  uint32_t shared_bytes() const;   // of a CTA, with the reserved ones
  uint32_t dynamic_offset() const; // where dynamic shared memory begins
};

// How a grid consists of clusters.
class GridShape {
 public:
  explicit GridShape(const Launch& launch);
  uint64_t count() const;
  Dim3 id(uint64_t cluster) const;

 private:
  Dim3 extents_;  // in clusters
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_LAUNCH_H_
