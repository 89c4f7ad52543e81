#include "emulator/exec/machine/cluster.h"

#include <algorithm>
#include <utility>

#include "emulator/exec/machine/counters.h"

namespace warploom::emulator {

Cta::Cta(Cluster& cluster, uint32_t rank, const Dim3& id)
    : cluster_(&cluster),
      rank_(rank),
      id_(id),
      registers_(*cluster.launch().program.function, volume(cluster.launch().block)) {
  const Launch& launch = cluster.launch();
  storage_.resize(launch.shared_bytes());
  shared_.data = storage_.data();
  shared_.bytes = static_cast<uint32_t>(storage_.size());
  uint32_t threads = volume(launch.block);
  uint32_t count = (threads + kLanes - 1) / kLanes;
  warpgroups_.resize((count + 3) / 4);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t left = threads - i * kLanes;
    uint32_t lanes = left >= kLanes ? kAllLanes : (1u << left) - 1;
    warps_.push_back(std::make_unique<Warp>(*this, i, lanes));
  }
}

uint32_t Cta::alive_threads() const {
  uint32_t count = 0;
  for (const auto& warp : warps_) count += warp->alive() != 0 ? kLanes : 0;
  return count;
}

void Cta::wake(Wait::Kind kind, uint64_t key) {
  for (const auto& warp : warps_) warp->wake(kind, key);
}

void Cta::wake_all(Wait::Kind kind) {
  for (const auto& warp : warps_) warp->wake_all(kind);
}

void Cta::on_exit(Warp& warp) {
  if (warp.alive() == 0) {
    registers_.exit(warp.id());
    uint32_t completed = barriers_.completed_by_exit(alive_threads());
    if (completed != NamedBarriers::kCount) {
      if (Observer* observer = cluster_->observer()) observer->barrier_complete(*this, completed);
      wake(Wait::kNamedBarrier, completed);
    }
    if (alive_threads() == 0) tensor_memory_.allocator().check_exit();
  }
  Observer* observer = cluster_->observer();
  if (observer != nullptr && warp.alive() == 0) observer->exit(warp);
  cluster_->check_barrier();
}

Cluster::Cluster(const Launch& launch, uint64_t number, const Dim3& id)
    : launch_(&launch), number_(number), id_(id) {
  const Dim3& shape = launch.cluster;
  for (uint32_t rank = 0; rank < volume(shape); ++rank) {
    Dim3 cta{id[0] * shape[0] + rank % shape[0], id[1] * shape[1] + rank / shape[0] % shape[1],
             id[2] * shape[2] + rank / shape[0] / shape[1]};
    ctas_.push_back(std::make_unique<Cta>(*this, rank, cta));
    for (const auto& warp : ctas_.back()->warps()) warps_.push_back(warp.get());
  }
  if (launch.counted != nullptr) {
    counters_ = std::make_unique<Counters>(launch.program, *launch.counted);
  }
}

Cluster::~Cluster() { launch_->output.add(number_, printed); }

void Cluster::set_observer(std::unique_ptr<Observer> observer) {
  observer_ = std::move(observer);
}

std::unique_ptr<Counters> Cluster::take_counters() { return std::move(counters_); }

Cta& Cluster::cta(uint32_t rank) const {
  if (rank >= ctas_.size()) {
    fault("there is no CTA of rank %u in a cluster of %zu", rank, ctas_.size());
  }
  return *ctas_[rank];
}

void Cluster::check_barrier() {
  bool any = false;
  for (const Warp* warp : warps_) {
    if (warp->alive() & ~warp->cluster_arrived) return;
    any |= warp->cluster_arrived != 0;
  }
  if (!any || warps_.empty()) return;
  ++barrier_phase_;
  if (observer_ != nullptr) observer_->cluster_complete();
  for (Warp* warp : warps_) {
    warp->cluster_arrived = 0;
    warp->wake(Wait::kClusterBarrier, 0);
  }
}

}  // namespace warploom::emulator
