// Finds accesses to tensor memory that nothing orders, or that tcgen05 fences do not, and reads of
// cells that nobody has written.
//
// Every access has two stamps. `issued` is that of the warp when it executed the instruction: who
// knows it comes after the instruction, but perhaps before its effects. `done` is what tcgen05.wait
// or a tcgen05.commit announces. mma, cp and shift are executed in the order of their issue, so
// among them the first is enough. Between threads, tcgen05.fence::before_thread_sync and
// ::after_thread_sync must carry the knowledge (PTX ISA, "tcgen05 Memory Consistency Model").

#ifndef WARPLOOM_EMULATOR_CHECK_TENSOR_MEMORY_CHECK_H_
#define WARPLOOM_EMULATOR_CHECK_TENSOR_MEMORY_CHECK_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "emulator/check/checker.h"
#include "emulator/tensor/tensor_memory.h"

namespace warploom::emulator {

enum class TensorActor : uint8_t {
  kAllocator,  // alloc and dealloc
  kLoad,       // ld, done after tcgen05.wait::ld
  kStore,      // st, done after tcgen05.wait::st
  kPipeline,   // mma, cp and shift
};

class TensorMemoryCheck {
 public:
  TensorMemoryCheck(Checker& checker, uint32_t ctas, uint32_t warps_per_cta);

  // The accesses of one instruction.
  class Accessor {
   public:
    void read(uint32_t rank, uint32_t lane, uint32_t column, uint32_t columns);
    void write(uint32_t rank, uint32_t lane, uint32_t column, uint32_t columns);

   private:
    friend class TensorMemoryCheck;
    // The last transition of a cell, which its neighbours mostly make, too.
    struct Memo {
      uint32_t from = UINT32_MAX;
      uint32_t to = 0;
    };

    Accessor(TensorMemoryCheck& check, TicketPtr ticket, uint32_t mark)
        : check_(check), ticket_(std::move(ticket)), mark_(mark) {}

    TensorMemoryCheck& check_;
    TicketPtr ticket_;
    uint32_t mark_;
    Memo read_;
    Memo write_;
    uint32_t written_ = 0;  // state of the cells that it has written; 0: none yet
  };

  // tcgen05.ld and tcgen05.st, which a warp executes now.
  Accessor load(Warp& warp, const Op& op);
  Accessor store(Warp& warp, const Op& op);
  // An instruction that Checker::issue_tcgen05 gave the ticket for, when it is executed.
  Accessor execute(const TicketPtr& ticket);

  void wait_loads(Warp& warp) {
    wait(warp, transfers_of(warp).loads);
    checker_.wait_tensor_loads(warp);
  }
  void wait_stores(Warp& warp) { wait(warp, transfers_of(warp).stores); }

  // Columns of the CTA of the warp are new, or end.
  void allocate(Warp& warp, const Op& op, uint32_t column, uint32_t columns);
  void free(Warp& warp, const Op& op, uint32_t column, uint32_t columns);

 private:
  struct Mark {
    Access access;
    Stamp issued;
    Stamp done;
    TensorActor actor = TensorActor::kAllocator;
  };

  // What has happened to a cell. Cells with the same past share one.
  struct State {
    uint32_t written_by = 0;        // a mark; alloc counts
    bool initialized = false;
    std::vector<uint32_t> read_by;  // since then
  };

  struct Transfers {  // of a warp
    Stamp loads;
    Stamp stores;
  };

  struct Place {
    uint32_t rank, lane, column;
  };

  Transfers& transfers_of(const Warp& warp);
  void wait(Warp& warp, Stamp& transfers);
  TicketPtr ticket_of(Warp& warp, const Op& op);
  Accessor transfer(Warp& warp, const Op& op, TensorActor actor, Stamp done);
  uint32_t new_mark(const TicketPtr& ticket, TensorActor actor, Stamp done);
  uint32_t new_state(State state);
  uint32_t* cells(uint32_t rank, uint32_t lane, uint32_t column);

  // The state of a cell after an access.
  uint32_t after_read(uint32_t from, const Accessor& accessor, const Place& place);
  uint32_t after_write(uint32_t from, Accessor& accessor, const Place& place);
  void check_order(uint32_t prior_mark, bool prior_writes, const Accessor& accessor, bool writes,
                   const Place& place);
  void report_uninitialized(uint32_t allocated_by, const Accessor& accessor, const Place& place);
  // What would put `own` after `prior`; nullptr if it comes after it.
  static const char* what_is_missing(const Mark& prior, const Mark& own, const Knowledge& known);

  Checker& checker_;
  std::vector<Mark> marks_;                   // 0: of no access
  std::vector<State> states_;                 // 0: never allocated
  std::vector<std::vector<uint32_t>> cells_;  // of each CTA: states, lane after lane
  std::vector<Transfers> transfers_;          // of each warp, by CTA
  uint32_t warps_per_cta_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_CHECK_TENSOR_MEMORY_CHECK_H_
