// CTAs, clusters and the launch that they belong to.

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_CLUSTER_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_CLUSTER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulator/async/named_barrier.h"
#include "emulator/base/device.h"
#include "emulator/exec/machine/cluster_source.h"
#include "emulator/exec/machine/completion.h"
#include "emulator/exec/machine/output.h"
#include "emulator/exec/machine/program.h"
#include "emulator/exec/machine/register_file.h"
#include "emulator/exec/machine/warp.h"
#include "emulator/exec/machine/warpgroup.h"
#include "emulator/exec/schedule/schedule.h"
#include "emulator/exec/schedule/watch.h"
#include "emulator/memory/device_heap.h"
#include "emulator/memory/memory.h"
#include "emulator/tensor/tensor_memory.h"
#include "emulator/tensor/umma_collector.h"

namespace warploom::emulator {

using Dim3 = std::array<uint32_t, 3>;

constexpr uint32_t volume(const Dim3& dim) { return dim[0] * dim[1] * dim[2]; }

class Checker;
class Counters;
struct LaneAccess;
struct LaunchChecks;
struct MemoryFootprint;
struct Polled;

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
  SchedulerSource schedulers;
  uint64_t instruction_limit;    // of warps, until the launch is given up
  uint32_t threads;              // of the host, at most
  Watch& watch;
  LaunchChecks* checks = nullptr;  // nullptr: nothing is checked
  const std::vector<LaneAccess>* counted = nullptr;  // lane_accesses_of; nullptr: no report
  DeviceHeap* heap = nullptr;    // of the device; set if the module allocates
  uint64_t workspace = 0;        // address of a GridWorkspace; 0: the launch is not cooperative
  // What the launch before has touched, which may not have ended yet; nullptr if it has.
  const MemoryFootprint* before = nullptr;
  mutable Output output{};       // takes text from all threads

  uint32_t shared_bytes() const;   // of a CTA, with the reserved ones
  uint32_t dynamic_offset() const; // where dynamic shared memory begins
};

class Cta {
 public:
  Cta(Cluster& cluster, uint32_t rank, const Dim3& id);

  Cluster& cluster() const { return *cluster_; }
  uint32_t rank() const { return rank_; }
  const Dim3& id() const { return id_; }
  const SharedMemory& shared() const { return shared_; }
  const std::vector<std::unique_ptr<Warp>>& warps() const { return warps_; }
  NamedBarriers& barriers() { return barriers_; }
  Warpgroup& warpgroup(uint32_t warp) { return warpgroups_[warp / 4]; }
  TensorMemory& tensor_memory() { return tensor_memory_; }
  UmmaCollectors& collectors() { return collectors_; }
  RegisterFile& registers() { return registers_; }

  void on_exit(Warp& warp);
  // Makes ready who waits in this CTA for something.
  void wake(Wait::Kind kind, uint64_t key);
  void wake_all(Wait::Kind kind);  // whatever the key
  // The warps that have not exited, in threads: a barrier counts whole warps.
  uint32_t alive_threads() const;

 private:
  Cluster* cluster_;
  uint32_t rank_;
  Dim3 id_;
  std::vector<uint8_t> storage_;
  SharedMemory shared_;
  NamedBarriers barriers_;
  std::vector<Warpgroup> warpgroups_;
  TensorMemory tensor_memory_;
  UmmaCollectors collectors_;
  RegisterFile registers_;
  std::vector<std::unique_ptr<Warp>> warps_;
};

class Cluster {
 public:
  // `number` counts the clusters of the grid, `id` is its coordinates.
  Cluster(const Launch& launch, uint64_t number, const Dim3& id);
  ~Cluster();

  const Launch& launch() const { return *launch_; }
  const Dim3& id() const { return id_; }
  uint64_t number() const { return number_; }
  uint32_t size() const { return static_cast<uint32_t>(ctas_.size()); }
  Cta& cta(uint32_t rank) const;  // a Fault if there is none
  CompletionQueue& completions() { return completions_; }
  Checker* checker() const { return checker_.get(); }  // nullptr if checks are off
  Counters* counters() const { return counters_.get(); }  // nullptr if no report is asked for
  std::unique_ptr<Counters> take_counters();

  // Shared memory at an address of shared::cluster.
  uint8_t* shared_at(uint32_t address, uint32_t count) const {
    return cta(shared_rank(address)).shared().at(shared_offset(address), count);
  }

  // Changes the state of an mbarrier and wakes who waits for it; returns the state before.
  template <class Change>
  uint64_t update_mbarrier(uint32_t address, Change change);

  // The phase of the cluster barrier; it goes on when all lanes that are alive have arrived.
  uint64_t barrier_phase() const { return barrier_phase_; }
  void check_barrier();

  // Clusters whose launch it can cancel; nullptr if the program does not ask for them.
  ClusterSource* source() const { return source_; }
  void set_source(ClusterSource* source) { source_ = source; }

  // What its threads have printed.
  std::string printed;

  // Runs until every warp has exited and nothing is pending (true), or for some time (false).
  bool run();

  // Instructions that its warps have executed, up to the last turn.
  uint64_t instructions() const { return instructions_; }

  // Whether none of its warps can make progress by itself (exec/schedule/livelock.h), and what they look at
  // then. Executes some instructions.
  bool repeats_itself(std::vector<Polled>& polled);
  // One line for every warp that is parked.
  std::string describe_parked() const;
  // An atomic has changed memory.
  void note_change() { ++changes_; }

 private:
  void run_warp(Warp& warp, const Turn& turn);
  void complete(uint32_t which);
  bool repeats_itself(Warp& warp, std::vector<Polled>& polled);

  const Launch* launch_;
  uint64_t number_;
  Dim3 id_;
  std::vector<std::unique_ptr<Cta>> ctas_;
  std::vector<Warp*> warps_;
  CompletionQueue completions_;
  ClusterSource* source_ = nullptr;
  std::unique_ptr<Checker> checker_;
  std::unique_ptr<Counters> counters_;
  uint64_t barrier_phase_ = 0;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<uint32_t> ready_;  // of one turn
  uint64_t instructions_ = 0;
  uint64_t changes_ = 0;
};

template <class Change>
uint64_t Cluster::update_mbarrier(uint32_t address, Change change) {
  if (address % 8 != 0)
    fault_of(FaultKind::kMisaligned, "the mbarrier address 0x%x is not a multiple of 8", address);
  auto* state = reinterpret_cast<uint64_t*>(shared_at(address, 8));
  uint64_t before = *state;
  *state = change(before);
  cta(shared_rank(address)).wake(Wait::kMbarrier, address);
  return before;
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_CLUSTER_H_
