// Finds data races, missing proxy fences, reads of memory that nothing has written, and misuse of
// barriers, while a cluster executes.
//
// Every instruction that touches memory or synchronises tells the checker of its cluster
// (`checker_of(cluster)`, nullptr when checks are off). Generic accesses belong to a warp.
// Asynchronous operations take a Ticket when they are issued, which holds what their issuer knew
// then, and show it when they touch memory; their accesses are stamped with what announces their
// completion, so that they are over for those who have observed that, and for nobody else.

#ifndef WARPLOOM_EMULATOR_CHECK_CHECKER_H_
#define WARPLOOM_EMULATOR_CHECK_CHECKER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/check/accumulator_watch.h"
#include "emulator/check/clock.h"
#include "emulator/check/lane_races.h"
#include "emulator/check/launch_checks.h"
#include "emulator/check/ordering.h"
#include "emulator/check/shadow.h"
#include "emulator/check/sync_location.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {

class TensorMemoryCheck;

// An asynchronous operation, or another bearer of what a warp knew at some time.
struct Ticket {
  std::shared_ptr<const Knowledge> known;
  Stamp reads;   // of its accesses; no clock until it is known where they complete
  Stamp writes;
  Stamp issued;  // of the warp, for tcgen05
  uint16_t thread = 0;
  const Op* op = nullptr;
  bool async_proxy = true;
};
using TicketPtr = std::shared_ptr<Ticket>;

enum class Touch : uint8_t { kRead, kWrite, kReadWrite };

class Checker : public Observer {
 public:
  Checker(Cluster& cluster, LaunchChecks& checks);
  ~Checker() override;
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  // --- Generic accesses (check/generic_access.cc) ---
  // `bytes` at the address operand of every active lane. Call it before registers change.
  void generic(Warp& warp, const Op& op, uint32_t active, ptx::Space space, uint32_t bytes,
               Touch touch, Ordering ordering = {});
  // The same for one lane and an address that is no operand.
  void generic_lane(Warp& warp, const Op& op, int lane, ptx::Space space, uint64_t address,
                    uint32_t bytes, Touch touch, Ordering ordering = {});

  // bar.warp.sync of these lanes.
  void warp_barrier(Warp& warp, uint32_t active);
  // ldmatrix reads, or stmatrix writes, the row of 16 bytes at the address of a lane. Its words
  // are those of the lanes from `first` on; kLanes: every lane may have a part of each.
  void matrix_row(Warp& warp, const Op& op, int lane, uint32_t first, bool writes);
  // griddepcontrol.wait: the launches before this one are over.
  void wait_for_grids(Warp& warp);

  // --- Fences (check/fences.cc) ---
  void fence_memory(Warp& warp, const Op& op, const MemoryFence& fence);
  void fence_proxy(Warp& warp);   // fence.proxy.async in all its forms
  void fence_inits(Warp& warp);   // fence.mbarrier_init
  void fence_tensor_before(Warp& warp);  // tcgen05.fence::before_thread_sync
  void fence_tensor_after(Warp& warp);   // tcgen05.fence::after_thread_sync

  // --- Tensor maps in global memory (check/tensor_map_check.cc) ---
  void release_tensor_maps(Warp& warp);  // fence.proxy.tensormap::generic.release
  void acquire_tensor_map(Warp& warp, const Op& op, int lane, uint64_t address);
  // A copy reads the map when it is issued.
  void use_tensor_map(Warp& warp, const Op& op, int lane, uint64_t address);

  // --- Asynchronous operations (check/async_access.cc) ---
  // An operation that completes on an mbarrier, known when it completes.
  TicketPtr issue(Warp& warp, const Op& op, int lane);
  // An operation of the open bulk group of a thread; of the open cp.async group of a warp.
  TicketPtr issue_in_bulk_group(Warp& warp, const Op& op, int lane);
  TicketPtr issue_copy_async(Warp& warp, const Op& op, int lane);
  void commit_bulk_group(Warp& warp, int lane);
  void commit_copy_async(Warp& warp);
  // All but the `allowed` latest groups are done; `reads_only` for wait_group.read.
  void wait_bulk_group(Warp& warp, int lane, uint32_t allowed, bool reads_only);
  void wait_copy_async(Warp& warp, uint32_t allowed);
  void wait_copy_async_all(Warp& warp);
  // What cp.async.mbarrier.arrive brings to the barrier: the cp.async before it are done.
  TicketPtr copy_async_done(Warp& warp, const Op& op, int lane);
  // wgmma: what all four warps know, for an instruction that is executed now.
  TicketPtr execute_wgmma(Cta& cta, uint32_t warpgroup, const Op& op);
  void commit_wgmma(Warp& warp);
  void wait_wgmma(Warp& warp, uint32_t allowed);
  // Registers of wgmma and tcgen05.ld (check/register_checks.cc).
  void fence_wgmma(Warp& warp);
  void wait_tensor_loads(Warp& warp);
  void registers(Warp& warp, const Op& op, const WatchedOp& watched);
  // tcgen05: an asynchronous instruction of a thread; commit gives what its arrival brings to the
  // mbarrier: everything that the thread issued before is done.
  TicketPtr issue_tcgen05(Warp& warp, const Op& op, int lane);
  TicketPtr commit_tcgen05(Warp& warp, const Op& op, int lane);

  // Stamps the operation: whoever sees the current phase of this mbarrier complete knows that it
  // is over. Call it before the accesses of each completion.
  void complete_on(Ticket& ticket, uint32_t mbarrier);

  // Accesses of an operation when it executes. Shared addresses are those of shared::cluster.
  void async_shared(const Ticket& ticket, uint32_t address, uint32_t bytes, Touch touch);
  void async_global(const Ticket& ticket, uint64_t address, uint64_t bytes, Touch touch);

  // --- mbarriers (check/mbarrier_clocks.cc); states before and after, as memory has them ---
  void mbarrier_init(Warp& warp, const Op& op, int lane, uint32_t address);
  void mbarrier_inval(Warp& warp, const Op& op, int lane, uint32_t address);
  // arrive, expect_tx and complete_tx of a thread.
  void mbarrier_arrive(Warp& warp, const Op& op, int lane, uint32_t address, uint64_t before,
                       uint64_t after, bool relaxed = false);
  // complete_tx or arrival of an asynchronous operation.
  void mbarrier_signal(const Ticket& ticket, uint32_t address, uint64_t before, uint64_t after);
  // test_wait or try_wait of lanes that wait for one barrier, `lane` the first of them. Returns
  // whether this is the first time that it fails for this phase: a try_wait may give up then, so
  // that a program shows whether it tries again.
  bool mbarrier_wait(Warp& warp, const Op& op, int lane, uint32_t address, bool done,
                     bool relaxed = false);
  // For the report of a deadlock: who supplied this barrier up to now.
  std::string mbarrier_history(uint32_t address) const;

  // --- Barriers of CTA and cluster (check/barrier_clocks.cc) ---
  void barrier_arrive(Warp& warp, uint32_t barrier, bool waits);
  void barrier_complete(Cta& cta, uint32_t barrier) override;
  void cluster_arrive(Warp& warp, bool relaxed);
  void cluster_complete() override;
  void cluster_wait(Warp& warp);
  void exit(Warp& warp) override;

  // --- For checks of other memories, such as tensor memory ---
  TensorMemoryCheck& tensor_memory() { return *tensor_memory_; }
  // What a warp knows, and the stamp of what it does now.
  const Knowledge& known(const Warp& warp) const;
  Stamp stamp(Warp& warp);
  // Everything that the warp did up to now, for an edge that no function above draws.
  TicketPtr release(Warp& warp, const Op& op, int lane) { return ticket_of(warp, op, lane); }
  void acquire(Warp& warp, const Knowledge& known);
  Stamp new_dimension();
  void report(Finding finding, const Op* first, const Op* second, const std::string& text);
  // "cp.async... (PTX line 12) of CTA (0, 0, 0) warp 1 lane 0".
  std::string describe(const Access& access) const;
  Access mark_of(const Ticket& ticket, Stamp stamp) const;
  const Op* op_of(const Access& access) const { return &program_.ops[access.op]; }

  LaunchChecks& checks() { return checks_; }

 private:
  // Numbers of the groups of asynchronous operations of a thread, a warp or a warpgroup.
  struct Groups {
    uint32_t dimension = 0;
    uint32_t sequence = 1;           // clock of operations that are issued now
    std::deque<uint32_t> ends;       // clocks of the latest groups, oldest first

    void commit();
    // Clock of all but the `allowed` latest groups.
    uint32_t done(uint32_t allowed) const;
  };

  // The versions of a location that relaxed reads, and acquiring ones, of each scope have seen.
  using SeenVersions = std::array<std::array<uint64_t, kScopes>, 2>;

  struct WarpState {
    Knowledge known;
    uint32_t dimension = 0;
    bool released = false;           // the next access starts a new clock
    uint64_t releases = 0;
    std::shared_ptr<const Knowledge> snapshot;  // of `known`, if it is still that
    // What the last fence of this scope, or of a wider one, lets relaxed operations release.
    std::array<ReleasePtr, kScopes> fences;
    Releases fence_others;
    // What relaxed reads and waits have seen, for the next fence.
    Releases acquirable;
    Knowledge acquirable_known;
    // What has been executed before the last cluster barrier, visible or not.
    VectorClock executed;
    std::unordered_map<uint64_t, SeenVersions> seen;  // of locations
    Groups copy_async;
    std::map<int, std::pair<Groups, Groups>> bulk;  // of a lane: reads done, writes done
    std::map<int, Groups> tensor;    // tcgen05, of a lane
    uint32_t wgmma_commits = 0;
    RegisterTags registers;
  };

  // Whose access is checked.
  struct Actor {
    const Knowledge* known = nullptr;
    Access mark;
    const Op* op = nullptr;
    uint32_t rank = 0;  // of its CTA
    uint32_t lane_bytes = 0;  // of one lane, of weak loads and stores
  };

  // A release, and the acquire that it does not reach because of the scope of one of them.
  struct NarrowOrder {
    NarrowRelease narrow;
    const Op* acquire = nullptr;
  };

  struct Supplier {
    const Op* op;
    uint16_t thread;
    uint64_t times;
  };

  struct Attempt {  // a wait that failed
    const Op* op;
    uint16_t thread;
    uint32_t phase;
  };

  struct Mbarrier {
    uint32_t dimension = 0;
    uint32_t phase = 0;      // phases completed, over all uses of the address
    bool live = false;
    Access init;
    Knowledge pending;       // what the arrivals up to now have brought
    Knowledge completed;     // what those brought that had arrived when the last phase completed
    uint32_t joined_warp = UINT32_MAX;  // what was joined last: nothing new if it comes again
    std::shared_ptr<const Knowledge> joined;
    std::vector<Supplier> suppliers;
    std::vector<Attempt> attempts;
  };

  // A write to a tensor map that a fence of this cluster has made visible to copies.
  struct AcquiredMap {
    Access write;
    Stamp fence;
  };

  struct NamedBarrier {
    Knowledge pending;
    std::vector<Warp*> waiters;
  };

  // What has to be over when a CTA exits: accesses of other CTAs to its shared memory, and those of
  // asynchronous operations.
  struct Touched {
    std::vector<Access> latest;         // by dimension
    VectorClock exited;                 // what came before the exit of its warps
    uint32_t warps_left = 0;
  };

  // Where a cell lies, for reports and for the rules that differ between memories.
  struct Where {
    bool shared = true;
    uint64_t address = 0;  // shared::cluster or global
    uint32_t bytes = 0;
  };

  uint32_t index_of(const Warp& warp) const;
  WarpState& state(const Warp& warp);
  uint16_t thread_of(const Warp& warp, int lane) const;
  uint32_t op_index(const Op& op) const;
  const std::shared_ptr<const Knowledge>& snapshot(WarpState& state);
  ReleasePtr make_release(const Warp& warp, const Op& op);
  void learn(WarpState& state, const Knowledge& known);
  void apply(WarpState& state, const Releases& releases);
  void start_clock(WarpState& state);

  std::pair<Groups, Groups>& bulk_of(Warp& warp, int lane);
  Groups& copy_async_of(Warp& warp);
  Groups& warpgroup_of(const Warp& warp);
  Groups& tensor_of(Warp& warp, int lane);
  static void raise(WarpState& state, const Groups& groups, uint32_t allowed);

  Actor actor_of(Warp& warp, const Op& op, int lane, Ordering ordering);
  Actor actor_of(const Ticket& ticket, Touch touch) const;
  Access mark_of(const Warp& warp, const Op& op) const;
  void check_multiply(Warp& warp, const Op& op, const WatchedOp& watched);
  void check_loading(Warp& warp, const Op& op, const WatchedOp& watched);
  TicketPtr ticket_of(Warp& warp, const Op& op, int lane);

  void check_lanes(Warp& warp, const Op& op, uint32_t active, ptx::Space space, uint32_t bytes,
                   bool writes);
  void check_lane(Warp& warp, const Op& op, int lane, uint32_t shared, uint32_t bytes,
                  bool writes);
  void order_lanes(const Warp& warp) { lane_races_.synchronise(index_of(warp)); }
  void touch_shared(const Actor& actor, uint32_t address, uint32_t bytes, Touch touch);
  void touch_global(const Actor& actor, uint64_t address, uint64_t bytes, Touch touch);
  void acquire_at(Warp& warp, const Op& op, uint64_t location, bool global, Ordering ordering);
  void release_at(Warp& warp, const Op& op, uint64_t location, bool global, Ordering ordering);
  void note_narrow(const NarrowRelease& narrow, const Op& acquire);
  void note_touched(const Access& mark, const Op* op, uint32_t rank);
  // Preconditions of an access: a peer that has started, a launch before this one that is over, and
  // memory that is constant for ld.global.nc (check/premises.cc).
  void check_started(const Actor& actor, uint32_t address);
  void check_grids(const Actor& actor, uint64_t address, uint64_t bytes, Touch touch);
  void check_constant(const Access& read, const Access& write, bool reads, const Where& where);

  // One cell; `place` names its address in a report.
  void check_read(Shadow& shadow, Cell& cell, const Actor& actor, const Where& where);
  void check_write(Shadow& shadow, Cell& cell, const Actor& actor, const Where& where);
  void check_prior(const Access& prior, bool prior_writes, const Actor& actor, bool writes,
                   const Where& where);
  bool is_pending(const Access& prior, const Actor& actor) const;
  bool comes_before(const Access& prior, const Actor& actor) const;
  void report_conflict(Finding finding, const Access& prior, bool prior_writes, const Actor& actor,
                       bool writes, const Where& where);
  bool reads_nothing_written(Shadow& shadow, const Actor& actor, const Where& where);
  void report_uninitialized(Shadow& shadow, const Actor& actor, const Where& where);
  void report_on_barrier(const Actor& actor, bool writes, const Where& where);

  // Scopes (check/scopes.cc). How far apart the threads of two accesses are; whether a strong
  // access includes the thread of the other; and why the order that a release would have made is
  // missing, empty if there is none.
  Scope distance(const Access& a, const Access& b) const;
  bool both_strong(const Access& a, const Access& b) const;
  std::string scope_problem(const Access& prior, const Actor& actor) const;

  // The distinct last writes of these bytes of global memory.
  std::vector<Access> writes_of(uint64_t address, uint32_t bytes);

  Mbarrier* find_mbarrier(uint32_t address);
  void check_init_order(const Mbarrier& barrier, const Knowledge& known, const Access& mark,
                        uint32_t address, const char* action);
  void supply(Mbarrier& barrier, const Op& op, uint16_t thread);
  void follow_phase(Mbarrier& barrier, uint64_t before, uint64_t after);

  std::string place_of(uint32_t shared) const;
  std::string global_place_of(uint64_t address) const;

  Cluster& cluster_;
  LaunchChecks& checks_;
  const Program& program_;
  uint32_t id_;                     // linear index of the cluster
  uint32_t warps_per_cta_;
  uint32_t dimensions_ = 0;
  Stamp grids_over_;                // known after griddepcontrol.wait
  std::vector<WarpState> warps_;
  std::vector<Shadow> shared_;      // of each CTA
  std::vector<Touched> touched_;
  std::vector<Groups> warpgroups_;
  std::unordered_map<uint32_t, Mbarrier> mbarriers_;
  std::vector<std::array<NamedBarrier, 16>> named_;
  Knowledge cluster_pending_;
  Knowledge cluster_completed_;
  VectorClock cluster_arriving_;
  VectorClock cluster_arrived_;
  std::unordered_map<uint64_t, std::vector<AcquiredMap>> acquired_maps_;  // by address
  Releases foreign_;                // releases of other clusters that this one has acquired
  SyncLocations shared_locations_;
  std::vector<NarrowOrder> narrow_;  // the latest of each pair of instructions and warp
  LaneRaces lane_races_;
  std::unique_ptr<TensorMemoryCheck> tensor_memory_;
  ReportLog log_;
};

// That of a cluster, whose only observers are checkers; nullptr if checks are off.
inline Checker* checker_of(const Cluster& cluster) {
  return static_cast<Checker*>(cluster.observer());
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_CHECK_CHECKER_H_
