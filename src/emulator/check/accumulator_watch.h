// The registers that wgmma reads and writes while other instructions go on (PTX ISA, "Asynchronous
// warpgroup-level matrix instructions": wgmma.fence, wgmma.wait_group), and those that tcgen05.ld
// writes until tcgen05.wait::ld.
//
// Compilers copy such registers with mov before the wait and after the fence, and rely on ptxas to
// give both the same register. So values are followed through mov: what counts is which other
// instruction made a value, or uses it.

#ifndef WARPLOOM_EMULATOR_CHECK_ACCUMULATOR_WATCH_H_
#define WARPLOOM_EMULATOR_CHECK_ACCUMULATOR_WATCH_H_

#include <cstdint>
#include <vector>

#include "emulator/exec/machine/watched_registers.h"

namespace warploom::emulator {

// Finds them; call it when all instructions are decoded.
void watch_accumulators(Program& program);

// What a warp knows of its watched registers.
struct RegisterTags {
  struct Tag {
    uint32_t group = 0;      // clock of the wgmma group that writes it; 0: none
    uint32_t multiply = 0;   // op that does, or did last
    uint32_t touched = 0;    // number of fences when an ordinary instruction wrote it, plus 1
    uint32_t writer = 0;     // that instruction
    uint32_t read = 0;       // the same of a read
    uint32_t reader = 0;
    uint32_t load = 0;       // number of tcgen05.wait::ld when a tcgen05.ld wrote it, plus 1
    uint32_t loader = 0;     // that instruction
    bool copied = false;     // a mov has taken the value that is being loaded
  };
  std::vector<Tag> tags;
  uint32_t fences = 0;
  uint32_t load_waits = 0;

  bool is_loading(const Tag& tag) const { return tag.load == load_waits + 1; }
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_CHECK_ACCUMULATOR_WATCH_H_
