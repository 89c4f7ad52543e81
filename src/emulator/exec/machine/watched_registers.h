// The registers that asynchronous instructions of a program read and write while others go on:
// those of wgmma and tcgen05.ld (check/accumulator_watch.h).

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_WATCHED_REGISTERS_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_WATCHED_REGISTERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/exec/machine/program.h"

namespace warploom::emulator {

// Which watched registers, by number, an instruction uses.
struct WatchedOp {
  enum Kind : uint8_t { kOrdinary, kMove, kMultiply, kTensorLoad };
  Kind kind = kOrdinary;
  Run run = nullptr;              // what the instruction does
  std::vector<uint32_t> reads;    // of kMultiply: A
  std::vector<uint32_t> writes;   // of kMultiply: D
};

// All of a program. Instructions that are watched run watch_registers() instead of their own
// function.
struct AccumulatorWatch {
  std::vector<int32_t> index;     // of each op in `ops`, -1: it is not watched
  std::vector<WatchedOp> ops;
  uint32_t registers = 0;

  const WatchedOp* find(uint32_t op) const {
    return index[op] < 0 ? nullptr : &ops[static_cast<std::size_t>(index[op])];
  }
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_WATCHED_REGISTERS_H_
