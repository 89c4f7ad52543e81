// CTAs and clusters.

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_CLUSTER_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_CLUSTER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulator/async/named_barrier.h"
#include "emulator/exec/machine/cluster_source.h"
#include "emulator/exec/machine/completion.h"
#include "emulator/exec/machine/launch.h"
#include "emulator/exec/machine/observer.h"
#include "emulator/exec/machine/register_file.h"
#include "emulator/exec/machine/warp.h"
#include "emulator/exec/machine/warpgroup.h"
#include "emulator/memory/memory.h"
#include "emulator/tensor/tensor_memory.h"
#include "emulator/tensor/umma_collector.h"

namespace warploom::emulator {

class Counters;

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
  // Those of all its CTAs.
  const std::vector<Warp*>& warps() const { return warps_; }
  CompletionQueue& completions() { return completions_; }
  // nullptr if nobody looks on; it goes with the cluster.
  Observer* observer() const { return observer_.get(); }
  void set_observer(std::unique_ptr<Observer> observer);
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

  // Instructions that its warps have executed, up to the last turn: what its clock counts.
  uint64_t instructions() const { return instructions_; }
  void add_instructions(uint64_t count) { instructions_ += count; }

  // How often an atomic has changed memory.
  uint64_t changes() const { return changes_; }
  void note_change() { ++changes_; }

 private:
  const Launch* launch_;
  uint64_t number_;
  Dim3 id_;
  std::vector<std::unique_ptr<Cta>> ctas_;
  std::vector<Warp*> warps_;
  CompletionQueue completions_;
  ClusterSource* source_ = nullptr;
  std::unique_ptr<Observer> observer_;
  std::unique_ptr<Counters> counters_;
  uint64_t barrier_phase_ = 0;
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
