// The state of a warp: registers, and where its lanes are.
//
// Lanes that execute together form a fragment. A divergent branch splits a fragment in two and
// creates a join at the immediate post-dominator of the branch; fragments that arrive there wait
// until all lanes of the join have arrived or exited, and go on as one. Fragments of a warp are
// scheduled independently, so that lanes may wait for each other (PTX ISA, "Independent Thread
// Scheduling"). A call is a join too, where lanes arrive by returning (exec/machine/call_form.h).

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_WARP_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_WARP_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulator/exec/machine/program.h"
#include "emulator/memory/memory.h"

namespace warploom::emulator {

class Cta;
class Cluster;

// Why a fragment is parked, for the report of a deadlock and for those who wake it.
struct Wait {
  enum Kind : uint8_t {
    kNothing,
    kLanes,           // all lanes of the warp have to arrive at an *.aligned instruction
    kMembers,         // key: member mask; its lanes have to arrive at a *.sync instruction
    kMbarrier,        // key: shared address
    kNamedBarrier,    // key: number
    kClusterBarrier,
    kWarpgroup,       // other warps of the warpgroup have to issue wgmma
    kBulkGroup,       // key: lane
    kRegisters,       // key: registers of a thread that setmaxnreg asks for
    kTensorMemory,    // columns have to be freed, or the peer has to ask for them
  };
  Kind kind = kNothing;
  uint64_t key = 0;
};

struct Fragment {
  enum State : uint8_t { kFree, kReady, kParked };
  State state = kFree;
  uint32_t lanes = 0;
  int32_t pc = 0;
  int32_t join = -1;  // index into the warp's joins
  Wait wait;
};

struct Join {
  static constexpr int32_t kCall = -2;

  int32_t pc = -1;        // where lanes arrive; kCall: they arrive by returning from a call
  int32_t resume = -1;    // where they go on
  int32_t parent = -1;
  uint32_t expected = 0;  // lanes that have not exited; 0: unused
  uint32_t arrived = 0;
};

// A call that has not returned.
struct Call {
  const Op* site = nullptr;
  int callee = -1;               // index into Program::functions
  uint64_t frame = 0;            // where the callee's frame begins in local memory
  uint64_t stack = 0;            // bytes of a thread below that frame, with saved registers
  uint32_t depth = 0;
  std::vector<uint32_t> saved;   // the caller's values, if the caller is recursive
};

// Why a warp's turn ended.
enum class Stop : uint8_t {
  kElsewhere,  // anything else
  kSync,       // behind an instruction that synchronises, or at one that waits
  kYield,      // it polls something, or gives way to others
};

class Warp {
 public:
  Warp(Cta& cta, uint32_t id, uint32_t lanes);
  Warp(const Warp&) = delete;
  Warp& operator=(const Warp&) = delete;

  Cta& cta() const { return *cta_; }
  Cluster& cluster() const { return *cluster_; }
  const Program& program() const { return *program_; }
  uint32_t id() const { return id_; }
  uint32_t alive() const { return alive_; }
  bool ready() const { return ready_ != 0; }

  // The elements of a value; S is uint32_t or uint64_t, as Ref::bits says.
  template <class S>
  S* lanes(Ref ref) const {
    uint8_t* base = ref.offset >= 0 ? file_ + ref.offset : literals_ + ~ref.offset;
    return reinterpret_cast<S*>(base);
  }

  // One element, of either width.
  uint64_t value(Ref ref, int lane) const {
    return ref.bits == 64 ? lanes<uint64_t>(ref)[lane] : lanes<uint32_t>(ref)[lane];
  }
  void set_value(Ref ref, int lane, uint64_t value) const {
    if (ref.bits == 64) {
      lanes<uint64_t>(ref)[lane] = value;
    } else {
      lanes<uint32_t>(ref)[lane] = static_cast<uint32_t>(value);
    }
  }

  // Lanes whose predicate is true (false, if the operand is negated).
  uint32_t predicate(Ref ref) const {
    uint32_t mask = *lanes<uint32_t>(ref);
    return ref.negated ? ~mask : mask;
  }
  void set_predicate(Ref ref, uint32_t lanes_set, uint32_t active) const {
    uint32_t& mask = *lanes<uint32_t>(ref);
    mask = (mask & ~active) | (lanes_set & active);
  }

  // An address operand of one lane, with its displacement.
  uint64_t address(const Address& address, int lane) const {
    return value(address.base, lane) + static_cast<uint64_t>(address.displacement);
  }
  uint64_t address(const Op& op, int lane) const { return address(op.address, lane); }

  uint8_t* local(int lane, uint64_t offset, uint32_t count);

  // Executes at most `budget` instructions of one fragment; returns how many. With `to_sync` it
  // stops behind one that synchronises (Op::synchronises).
  uint32_t run(uint32_t budget, bool to_sync);
  // How many instructions the call of `run` that is under way has executed.
  uint32_t executed() const { return executed_; }
  // Why the last call of `run` returned.
  Stop stop() const { return stop_; }

  // Called by `run` functions: the fragment that executes waits. They return kRetry or kPark.
  void park(Wait wait);

  // Makes every fragment ready that waits for this.
  void wake(Wait::Kind kind, uint64_t key);
  void wake_all(Wait::Kind kind);  // whatever the key

  const std::array<Fragment, kLanes>& fragments() const { return fragments_; }

  // Instruction that is executed, or was last.
  const Op* current_op() const;

  // What the next call of `run` does first; nullptr if it does not execute an instruction.
  const Op* next_op() const;
  // Lanes that would execute that instruction.
  uint32_t next_lanes() const;
  // The lanes that a fragment waits for at a *.sync instruction.
  uint32_t missing_members(const Fragment& fragment) const;
  // Everything that decides what the warp does next, but for memory.
  std::vector<uint8_t> state() const;

  // Cached allocation of the last global access.
  GlobalMemory::Range global_range;
  // Cluster barrier: lanes that have arrived in its current phase.
  uint32_t cluster_arrived = 0;
  // The warp has arrived at a bar.red and has not read its result.
  bool barrier_reduced = false;
  // Phase of the cluster barrier that each lane arrived in last.
  std::array<uint64_t, kLanes> cluster_phase{};

 private:
  // kToSync: stops behind an instruction that synchronises. kCounts: tells the cluster's counters.
  uint32_t next_fragment() const;
  bool is_at_join(const Fragment& fragment) const;
  template <bool kToSync, bool kCounts>
  uint32_t run_fragment(Fragment& fragment, uint32_t budget);
  void arrive(Fragment& fragment);
  void release(int32_t join);
  void split(Fragment& fragment, const Op& op, uint32_t taken);
  void jump_table(Fragment& fragment, const Op& op);
  void exit(Fragment& fragment, uint32_t lanes);
  // Defined in call.cc.
  void call(Fragment& fragment, const Op& op, uint32_t lanes);
  void enter(const Op& site, int callee, uint32_t lanes, int32_t after, int32_t parent);
  void return_from(Fragment& fragment, uint32_t lanes);
  const Call* innermost_call(int32_t join) const;
  void reserve_local(uint64_t bytes);
  Fragment& add_fragment(uint32_t lanes, int32_t pc, int32_t join);
  void remove(Fragment& fragment);
  // Defined in warp_sync.cc.
  Step run_sync(Fragment& fragment, const Op& op, uint32_t mask);
  Step meet_warp(Fragment& fragment, const Op& op, uint32_t mask);
  Step meet_members(Fragment& fragment, const Op& op, uint32_t mask);
  bool meet(const Fragment& fragment, const Op& op, uint32_t group, uint32_t members);
  void exchange(const Op& op, uint32_t group, uint32_t others, uint32_t present);
  Step wait_for_members(Fragment& fragment, const Op& op, uint32_t waiting);
  uint32_t waiting_fragments(const Op& op, uint32_t members) const;
  void set_state(Fragment& fragment, Fragment::State state);
  int32_t make_join(int32_t pc, int32_t parent, uint32_t expected);

  Cta* cta_;
  Cluster* cluster_;
  const Program* program_;
  uint8_t* file_;
  uint8_t* literals_;
  uint32_t id_;
  uint32_t alive_;
  uint32_t ready_ = 0;   // bit i: fragment i
  uint32_t parked_ = 0;
  Fragment* current_ = nullptr;
  Stop stop_ = Stop::kElsewhere;
  uint32_t executed_ = 0;
  uint32_t last_ = 0;   // fragment that ran last
  std::array<Fragment, kLanes> fragments_;
  std::vector<Join> joins_;
  std::unique_ptr<uint64_t[]> file_storage_;
  std::vector<Call> calls_;     // of the joins with the same index that are calls
  uint64_t local_bytes_ = 0;    // of a lane
  std::vector<uint8_t> local_;  // of all lanes, one after the other
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_WARP_H_
